//! Joins against what they mean: every event with every other, nothing kept by key and nothing forgotten
//! (`docs/formalism.md`, "Results that complete with an instant").

use crate::support::Subject;
use tidemill_histories::{History, Random};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{PlanBuilder, event, named, record};
use tidemill_plan::{JoinBound, JoinDef, JoinHow, Plan, Stmt, StmtNode, TransactionDef, WindowsDef};
use tidemill_runtime::{Engine, EpochSize, Options};
use tidemill_txn::{Cut, Surveyor};

/// An event: its time, a key that may be none, a text that may be none, and a number.
#[derive(Clone, Debug)]
struct Seen {
    at: i64,
    key: Option<i64>,
    text: Option<String>,
    number: i64,
}

/// An event as it comes to one side of the join, 0 or 1.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    side: usize,
    seen: &'a Seen,
}

/// A case: the bound, the treatment of events without a partner, and whether a stream is joined with itself.
#[derive(Clone, Debug)]
struct Case {
    bound: JoinBound,
    how: JoinHow,
    itself: bool,
}

impl Case {
    /// Returns whether two times are within reach of each other.
    fn reaches(&self, a: i64, b: i64) -> bool {
        match self.bound {
            JoinBound::Within(Value::Int(within)) => (a - b).abs() < within,
            JoinBound::Over(WindowsDef::Tumbling { length: Value::Int(length), origin }) => {
                (a - origin).div_euclid(length) == (b - origin).div_euclid(length)
            }
            ref other => unreachable!("{other:?}"),
        }
    }

    /// Returns the instant that has no event of later ones as partner any more.
    fn last(&self, at: i64) -> i64 {
        match self.bound {
            JoinBound::Within(Value::Int(within)) => at + within - 1,
            _ => (at..).find(|&later| !self.reaches(at, later + 1)).expect("windows end"),
        }
    }

    fn waits(&self, side: usize) -> bool {
        match self.how {
            JoinHow::Inner => false,
            JoinHow::Left | JoinHow::Anti => side == 0,
            JoinHow::Outer => true,
        }
    }

    /// Returns the pairs, and the events without a partner, in order: left and right.
    fn joined<'a>(&self, arrivals: &[Arrival<'a>]) -> Vec<[Option<&'a Seen>; 2]> {
        let meet = |a: &Arrival<'_>, b: &Arrival<'_>| {
            let same = a.seen.key.is_some() && a.seen.key == b.seen.key;
            a.side != b.side && same && self.reaches(a.seen.at, b.seen.at)
        };
        let sides = |a: &Arrival<'a>, b: Option<&Arrival<'a>>| {
            let mut both = [None, None];
            both[a.side] = Some(a.seen);
            both[1 - a.side] = b.map(|b| b.seen);
            both
        };
        // At a time, in phase 1 or 2, in the order in which they are found.
        let mut all: Vec<(i64, u8, usize, [Option<&Seen>; 2])> = Vec::new();
        for (index, later) in arrivals.iter().enumerate() {
            if self.how != JoinHow::Anti {
                let partners = arrivals[..index].iter().filter(|earlier| meet(earlier, later));
                all.extend(partners.map(|earlier| (later.seen.at, 1, 0, sides(later, Some(earlier)))));
            }
        }
        let alone = |a: &&Arrival<'_>| self.waits(a.side) && !arrivals.iter().any(|b| meet(a, b));
        let alone: Vec<&Arrival<'a>> = arrivals.iter().filter(alone).collect();
        for one in &alone {
            let last = self.last(one.seen.at);
            // Keys in the order of their first event that is alone at this instant.
            let of_key = |other: &&Arrival<'_>| self.last(other.seen.at) == last && other.seen.key == one.seen.key;
            let first = alone.iter().position(of_key).expect("it is one of them");
            all.push((last, 2, first, sides(one, None)));
        }
        all.sort_by_key(|(time, phase, first, _)| (*time, *phase, *first));
        all.into_iter().map(|(.., pair)| pair).collect()
    }
}

/// Returns the events of two sources, in the order of processing; of one source, each comes to both sides.
fn arrivals<'a>(sources: &'a [Vec<Seen>], itself: bool) -> Vec<Arrival<'a>> {
    if itself {
        return sources[0].iter().flat_map(|seen| [0, 1].map(|side| Arrival { side, seen })).collect();
    }
    let mut all: Vec<Arrival<'a>> =
        (0..2).flat_map(|side| sources[side].iter().map(move |seen| Arrival { side, seen })).collect();
    all.sort_by_key(|arrival| (arrival.seen.at, arrival.side));
    all
}

fn schema_of(how: JoinHow) -> Vec<(&'static str, &'static str)> {
    let mut fields = vec![("left", "p.number"), ("left_at", "p.at"), ("left_text", "p.text")];
    if how == JoinHow::Outer {
        fields.push(("left_exists", "p.exists"));
    }
    if how != JoinHow::Anti {
        fields.extend([("right", "a.number"), ("right_at", "a.at"), ("right_text", "a.text")]);
    }
    if matches!(how, JoinHow::Outer | JoinHow::Left) {
        fields.push(("right_exists", "a.exists"));
    }
    fields
}

fn program(case: &Case) -> Plan {
    let fields = schema_of(case.how);
    let returned = record(fields.iter().map(|(name, field)| (*name, event(*field))));
    let body = vec![Stmt { node: StmtNode::Return { record: Some(returned) }, span: None }];
    let right = (case.how != JoinHow::Anti).then(|| "a".to_owned());
    let on = vec![(event("key"), event("key"))];
    let join = JoinDef { left: "p".into(), right, on, bound: case.bound.clone(), how: case.how };
    let second = if case.itself { "people" } else { "auctions" };
    let inputs = vec![named("people"), named(second)];
    let (name, join) = ("j".into(), Some(join));
    let optional = ColumnType::optional(Type::Int);
    let text = ColumnType::optional(Type::Str);
    let source = |s: tidemill_plan::build::SourceBuilder| {
        s.event_time("at", Type::Int).field("key", optional).field("text", text).field("number", Type::Int)
    };
    let mut plan = PlanBuilder::new("joins").source("people", source).source("auctions", source).build();
    plan.transactions.push(TransactionDef {
        name,
        inputs,
        over: None,
        join,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    });
    plan
}

/// Returns the result of the function for a pair.
fn given(how: JoinHow, [left, right]: [Option<&Seen>; 2]) -> Vec<Value> {
    let side = |seen: Option<&Seen>, exists: bool| {
        let int = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
        let text = seen.and_then(|seen| seen.text.clone()).map_or(Value::Null, Value::Str);
        let mut row = vec![int(seen.map(|seen| seen.number)), int(seen.map(|seen| seen.at)), text];
        row.extend(exists.then(|| Value::Bool(seen.is_some())));
        row
    };
    let mut row = side(left, how == JoinHow::Outer);
    if how != JoinHow::Anti {
        row.extend(side(right, matches!(how, JoinHow::Outer | JoinHow::Left)));
    }
    row
}

fn random_events(random: &mut Random, keys: i64, start: i64, numbers: &mut i64) -> Vec<Seen> {
    let mut at = start;
    (0..random.between(0, 40))
        .map(|_| {
            at += *random.pick(&[0, 0, 1, 1, 2, 3, 5, 40]);
            *numbers += 1;
            let key = Some(random.int(0, keys)).filter(|key| *key > 0);
            let text = *random.pick(&[None, Some(""), Some("Ü"), Some("a longer text than one word")]);
            Seen { at, key, text: text.map(str::to_owned), number: *numbers }
        })
        .collect()
}

fn random_case(random: &mut Random) -> Case {
    let length = Value::Int(*random.pick(&[1, 2, 3, 5, 8, 30]));
    let bound = match random.below(2) {
        0 => JoinBound::Within(length),
        _ => JoinBound::Over(WindowsDef::Tumbling { length, origin: *random.pick(&[0, 1, -4, 100]) }),
    };
    let how = *random.pick(&[JoinHow::Inner, JoinHow::Left, JoinHow::Outer, JoinHow::Anti]);
    Case { bound, how, itself: random.chance(20) }
}

#[test]
fn joins_are_what_they_mean() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let case = random_case(&mut random);
        let keys = random.between(1, 5) as i64;
        let (start, mut numbers) = (*random.pick(&[0, -50, 1_000_000]), 0);
        let sources: Vec<Vec<Seen>> = (0..2).map(|_| random_events(&mut random, keys, start, &mut numbers)).collect();
        let option = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
        let row = |seen: &Seen| {
            let text = seen.text.clone().map_or(Value::Null, Value::Str);
            vec![Value::Int(seen.at), option(seen.key), text, Value::Int(seen.number)]
        };
        let rows = sources.iter().map(|events| events.iter().map(row).collect()).collect();
        let expected: Vec<Vec<Value>> =
            case.joined(&arrivals(&sources, case.itself)).into_iter().map(|pair| given(case.how, pair)).collect();
        let subject = Subject::new(History { plan: program(&case), preload: vec![], sources: rows });
        let sink = subject.program.sinks.iter().position(|s| subject.program.streams[s.stream].name == "j.joined");
        let sink = sink.expect("every stream has a sink");
        assert_eq!(subject.expected.outputs[sink], expected, "seed {seed}, {case:?}, {sources:?}");
        let mut engine = Engine::new(subject.program.clone()).expect("it compiles");
        let workers = [1, 2, 4].into_iter().cycle().skip(seed as usize % 3);
        let sizes = [1, 7, 16_384].map(EpochSize::Events);
        for (workers, size) in workers.zip(sizes).chain([(1, EpochSize::Auto)]) {
            engine = engine.with_empty_tables();
            let options = Options { workers, epoch: size, ..Options::default() };
            let outcome = subject.run(&engine, options, 1 + random.below(20));
            assert!(outcome.outputs[sink] == expected, "seed {seed}, {case:?}: {:?}", outcome.outputs[sink]);
            if let Some(difference) = subject.difference(&outcome) {
                panic!("seed {seed}, {case:?}: {difference}");
            }
        }
        let left: usize = subject.expected.tables.iter().map(Vec::len).sum();
        assert_eq!(left, 0, "seed {seed}, {case:?}: at the end of time all is freed");
    }
}

/// Events of different keys touch no row in common, also where they wait for a partner: only those of one key follow each other.
#[test]
fn keys_of_joins_share_no_row() {
    const KEYS: i64 = 10_000;
    let bounds = [
        JoinBound::Within(Value::Int(5 * KEYS)),
        JoinBound::Over(WindowsDef::Tumbling { length: Value::Int(5 * KEYS), origin: 0 }),
    ];
    for (bound, how) in
        bounds.iter().flat_map(|bound| [JoinHow::Left, JoinHow::Outer, JoinHow::Anti].map(|how| (bound, how)))
    {
        let case = Case { bound: bound.clone(), how, itself: false };
        let critical = |keys: i64| {
            let program = tidemill_plan::analyze(&program(&case)).expect("a valid plan");
            let schema = &program.sources().next().expect("a source").schema;
            let event = |number: i64| {
                let [at, key, number] = [number, 7 * number % keys, number].map(Value::Int);
                vec![at, key, Value::Null, number]
            };
            let shape = {
                let events = batch_of(schema, &Vec::from_iter((0..2 * KEYS).map(event)));
                Engine::new(program.clone()).expect("it compiles").shape(&events)
            };
            let survey = Surveyor::default().survey(&shape.accesses, &shape.uses, &shape.parameters, 2, |_| 1.0);
            assert_eq!(i64::from(survey.transactions), 2 * KEYS);
            survey.paths(Cut::InPlace).critical
        };
        let (by_key, of_one) = (critical(KEYS), critical(1));
        assert!(by_key < 0.05, "{case:?}: {by_key}");
        assert!(of_one > 0.95, "{case:?}: {of_one}");
    }
}
