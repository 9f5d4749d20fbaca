//! Programs of today, with sources of one split and no other inputs: the order is that in which the reference runs them.

use crate::common::{named, program, transaction};
use tidemill_model::{Schema, SerialPosition, Type, Value};
use tidemill_plan::{Ahead, CallerFields, OriginDef, Program, StreamDef};
use tidemill_random::Random;
use tidemill_reference::Reference;
use tidemill_reference::order::{Clock, Order, SplitInput, Step, What};

/// The sources of a case: for each its lateness, or none without event time, and the times of its events.
struct Case {
    lateness: Vec<Option<i64>>,
    times: Vec<Vec<i64>>,
}

impl Case {
    fn random(random: &mut Random) -> Case {
        let sources = 1 + random.below(3);
        let counts = random.below(4) == 0;
        let (ahead, back) = (1 + random.below(10), 1 + random.below(12));
        let mut lateness = || (!counts).then_some(0).map(|_| [0, 1, 5, i64::MAX, -2][random.below(5) as usize]);
        let lateness = (0..sources).map(|_| lateness()).collect();
        let mut times = || {
            let mut time = [0, i64::MIN, i64::MAX - 50][random.below(3) as usize];
            let count = random.below(30);
            let next = |_| {
                time = time.saturating_add(random.below(ahead) as i64);
                time.saturating_sub(random.below(back) as i64)
            };
            (0..count).map(next).collect::<Vec<i64>>()
        };
        let times = (0..sources).map(|_| times()).collect();
        Case { lateness, times }
    }

    /// Returns a program that takes all events in their order: records of a time, a source and an ordinal.
    fn program(&self) -> Program {
        let source = |(index, &lateness): (usize, &Option<i64>)| {
            let schema = Schema::scalars([("at", Type::Int.into()), ("s", Type::Int.into()), ("n", Type::Int.into())]);
            let event_time = lateness.map(|_| "at".to_owned());
            let origin = OriginDef::Source {
                schema,
                event_time,
                lateness: lateness.unwrap_or(0),
                anchored: false,
                remembers: None,
                keys_max: None,
                ahead: Ahead::ByInput,
                caller: CallerFields::default(),
            };
            StreamDef { name: format!("s{index}"), origin }
        };
        let streams: Vec<StreamDef> = self.lateness.iter().enumerate().map(source).collect();
        let inputs = streams.iter().map(|stream| named(&stream.name)).collect();
        program(streams, vec![transaction("t", inputs, vec![], vec![])])
    }

    fn records(&self) -> Vec<Vec<Vec<Value>>> {
        let record =
            |source: usize, (n, &time): (usize, &i64)| [time, source as i64, n as i64].map(Value::Int).to_vec();
        let of = |(source, times): (usize, &Vec<i64>)| times.iter().enumerate().map(|e| record(source, e)).collect();
        self.times.iter().enumerate().map(of).collect()
    }

    fn order(&self) -> Order {
        let mut order = Order::new(if self.lateness[0].is_none() { 0 } else { i64::MIN }, vec![]);
        for (source, lateness) in (0..).zip(&self.lateness) {
            order.join((source, 0), lateness.map_or(Clock::Counter, |lateness| Clock::EventTime { lateness }));
        }
        order
    }

    fn input(&self, source: usize, event: usize) -> SplitInput {
        SplitInput::Event(self.lateness[source].map(|_| self.times[source][event]))
    }
}

/// Returns the source and the ordinal of each step.
fn identities(steps: &[Step], what: &What) -> Vec<(i64, i64)> {
    let of = |step: &Step| match step.position.place {
        tidemill_model::Place::Record { source, offset, .. } => (i64::from(source), offset as i64),
        _ => panic!("records only"),
    };
    steps.iter().filter(|step| step.what == *what).map(of).collect()
}

fn identity(event: &[Value]) -> (i64, i64) {
    (event[1].word().expect("an int"), event[2].word().expect("an int"))
}

#[test]
fn a_whole_run_is_in_the_order_of_the_reference() {
    let mut random = Random::new(18);
    let (mut punctual, mut late) = (0, 0);
    for _ in 0..1_000 {
        let case = Case::random(&mut random);
        let mut order = case.order();
        for (source, times) in (0..).zip(&case.times) {
            (0..times.len()).for_each(|event| order.take((source as u32, 0), case.input(source, event)));
        }
        order.end();
        let steps = order.pass(usize::MAX, &mut |_| vec![]);
        let program = case.program();
        let mut reference = Reference::new(&program);
        reference.run(&case.records());
        let output = |name: &str| {
            let stream = program.streams.position(|stream| stream.name == name).expect("the stream");
            reference.output(stream).iter().map(|event| identity(event)).collect::<Vec<_>>()
        };
        let seen = output("t.committed");
        assert_eq!(identities(&steps, &What::Event), seen, "{:?} {:?}", case.lateness, case.times);
        let mut seen_late = Vec::new();
        for (source, lateness) in case.lateness.iter().enumerate() {
            if lateness.is_some() {
                seen_late.extend(output(&format!("s{source}.late")));
            }
        }
        let mut steps_late = identities(&steps, &What::Late);
        // Across sources the reference has no order of late events.
        steps_late.sort_by_key(|(source, _)| *source);
        assert_eq!(steps_late, seen_late);
        (punctual, late) = (punctual + seen.len(), late + seen_late.len());
    }
    assert!(punctual > 10_000 && late > 1_000, "{punctual} punctual and {late} late events");
}

#[test]
fn what_passes_in_pieces_is_next_in_the_reference() {
    let mut random = Random::new(4);
    for _ in 0..1_000 {
        let case = Case::random(&mut random);
        let (records, program) = (case.records(), case.program());
        let (mut order, mut reference) = (case.order(), Reference::new(&program));
        let mut taken = vec![0; case.times.len()];
        loop {
            let open: Vec<usize> = (0..taken.len()).filter(|&s| taken[s] < case.times[s].len()).collect();
            if open.is_empty() {
                order.end();
            } else {
                let source = open[random.below(open.len() as u64) as usize];
                order.take((source as u32, 0), case.input(source, taken[source]));
                reference.take(source, records[source][taken[source]].clone());
                taken[source] += 1;
            }
            let steps = order.pass(usize::MAX, &mut |_| vec![]);
            let events: Vec<&Step> = steps.iter().filter(|step| step.what == What::Event).collect();
            let mut passing = vec![0; taken.len()];
            for (source, _) in identities(&steps, &What::Event) {
                passing[source as usize] += 1;
            }
            for step in events {
                let next = reference.next_event(&mut passing).expect("as many as have passed");
                assert_eq!(step.position, SerialPosition::from(next.position), "{:?} {:?}", case.lateness, case.times);
            }
            if open.is_empty() {
                assert!((0..taken.len()).all(|source| reference.held(source) == 0));
                break;
            }
        }
    }
}
