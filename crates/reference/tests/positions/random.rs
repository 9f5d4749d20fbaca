//! Random histories: however splits interleave, and wherever input is cut or a run pauses, the order is that of the
//! instants, one after the other.

use crate::instants::{History, by_instants};
use crate::wake;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_model::{KeyPart, Phase};
use tidemill_random::{Random, mix};
use tidemill_reference::order::{Clock, Effect, Every, Order, SplitId, SplitInput, Step, TIMERS_MAX, What};

const HISTORIES: u64 = 2_000;

/// Returns the effects of a step: a function of the step alone, here of its text.
fn react(step: &Step) -> Vec<Effect> {
    let position = &step.position;
    let bits = position.to_string().bytes().fold(7, |bits, byte| mix(bits ^ u64::from(byte)));
    let mut random = Random::new(bits);
    // A time before all others is not the beginning of any window of these.
    let time = position.time.max(-40);
    let mut effects = Vec::new();
    if random.below(3) == 0 {
        let at = (random.below(5) > 0).then(|| time + random.below(30) as i64 - 5);
        let key = vec![KeyPart::Word(random.below(3) as i64)];
        effects.push(Effect::Wake { table: random.below(2) as u32, key, at });
    }
    // Windows of 10 over everything but results, and stacked on them windows of 20.
    let (operator, length) = match (&step.what, position.place.phase()) {
        (What::Result(name), _) if name.starts_with("10") => (2 - random.below(2) as u32, 20),
        (What::Result(_), _) => return effects,
        (_, Phase::Timers | Phase::Records | Phase::Results) => (0, 10),
    };
    let end = (time.div_euclid(length) + 1) * length;
    let name = format!("{length} {end} {}", random.below(3));
    effects.push(Effect::Complete { operator, name, at: Some(end - 1) });
    effects
}

type React = fn(&Step) -> Vec<Effect>;

/// A run that takes inputs as they come, and what a log has of it.
struct Live {
    random: Random,
    order: Order,
    history: History,
    /// About the time of each split's next event, by split.
    times: BTreeMap<SplitId, i64>,
    steps: Vec<Step>,
}

impl Live {
    fn new(seed: u64) -> Live {
        let mut random = Random::new(seed);
        let everies: Vec<Every> = (0..random.below(3))
            .map(|_| Every { origin: random.below(20) as i64 - 10, period: 3 + random.below(20) as i64 })
            .collect();
        let counts = random.below(4) == 0;
        let least = if counts { 0 } else { i64::MIN };
        let order = Order::new(least, everies.clone());
        let history = History { least, everies, ..History::default() };
        let mut live = Live { random, order, history, times: BTreeMap::new(), steps: Vec::new() };
        for _ in 0..live.below(4) {
            live.join(counts);
        }
        for _ in 0..live.below(60) {
            live.input(counts);
        }
        live.order.end();
        live.pass(usize::MAX);
        live
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.random.below(bound as u64) as i64
    }

    /// Returns true one time in `of`, at random.
    fn chance(&mut self, of: i64) -> bool {
        self.below(of) == 0
    }

    fn join(&mut self, counts: bool) {
        let source = self.below(3) as u32;
        let split = self.times.keys().filter(|split| split.0 == source).count() as u32;
        let clock = if counts { Clock::Counter } else { Clock::EventTime { lateness: self.below(3) * 4 } };
        let mark = self.order.join((source, split), clock);
        self.history.splits.insert((source, split), (clock, mark, vec![]));
        self.times.insert((source, split), mark.max(0));
    }

    fn input(&mut self, counts: bool) {
        match self.below(20) {
            0 if self.times.len() < 5 => self.join(counts),
            0..4 => {
                let position = self.order.send();
                self.history.sent.insert(position);
            }
            4..8 => {
                let most = if self.chance(3) { usize::MAX } else { self.below(4) as usize };
                self.pass(most);
            }
            _ => self.split_input(counts),
        }
    }

    fn split_input(&mut self, counts: bool) {
        let open =
            |(_, (_, _, inputs)): &(&SplitId, &(Clock, i64, Vec<SplitInput>))| !inputs.contains(&SplitInput::End);
        let open: Vec<SplitId> = self.history.splits.iter().filter(open).map(|(split, _)| *split).collect();
        if open.is_empty() {
            return;
        }
        let split = open[self.below(open.len() as i64) as usize];
        let mark = self.order.mark_of(split);
        let input = match self.below(24) {
            0 => SplitInput::End,
            1 | 2 => SplitInput::Bad,
            3 => SplitInput::Lateness(self.below(10)),
            4 => SplitInput::Punctuation(mark.max(0) + self.below(12) - 2),
            5 => SplitInput::Punctuation(self.order.mark_without(&[split]).unwrap_or(mark)),
            _ if counts => SplitInput::Event(None),
            _ => {
                let ahead = [0, 0, 1, 2, 9][self.below(5) as usize];
                let back = [0, 0, 3, 12][self.below(4) as usize];
                let time = self.times.get_mut(&split).expect("it has joined");
                *time += ahead;
                SplitInput::Event(Some(*time - back))
            }
        };
        self.order.take(split, input);
        self.history.splits.get_mut(&split).expect("it has joined").2.push(input);
    }

    fn pass(&mut self, most: usize) {
        self.steps.extend(self.order.pass(most, &mut react));
    }
}

/// Runs what a log has with another interleaving and other cuts.
fn replay(history: &History, react: React, random: &mut Random) -> Vec<Step> {
    let mut order = Order::new(history.least, history.everies.clone());
    for (&split, (clock, mark, _)) in &history.splits {
        order.join_at(split, *clock, *mark);
    }
    history.sent.iter().for_each(|sent| order.send_at(sent.clone()));
    let mut rest: Vec<(SplitId, &[SplitInput])> =
        history.splits.iter().map(|(&split, (_, _, inputs))| (split, inputs.as_slice())).collect();
    let pauses = 1 + random.below(20);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let next = random.below(rest.len() as u64) as usize;
        let (split, inputs) = rest[next];
        match inputs.split_first() {
            Some((&input, inputs)) => {
                order.take(split, input);
                rest[next].1 = inputs;
            }
            None => drop(rest.swap_remove(next)),
        }
        if random.below(pauses) == 0 {
            // A pause lets pass all that may. The next run begins with what the state has.
            steps.extend(order.pass(usize::MAX, &mut { react }));
            order = order.clone();
        }
    }
    order.end();
    steps.extend(order.pass(usize::MAX, &mut { react }));
    steps
}

/// Returns the steps, one a line.
fn lines(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| format!("{} {:?}", step.position, step.what)).collect()
}

#[test]
fn where_input_is_cut_and_how_splits_interleave_cannot_be_seen() {
    for seed in 0..HISTORIES {
        let live = Live::new(seed);
        assert!(live.steps.is_sorted_by(|l, r| l.position < r.position));
        for round in 0..3 {
            let again = replay(&live.history, react, &mut Random::new(seed ^ (round << 32)));
            assert_eq!(lines(&again), lines(&live.steps), "seed {seed}, round {round}, {:?}", live.history);
        }
    }
}

#[test]
fn the_order_is_that_of_instants_one_after_the_other() {
    for seed in 0..HISTORIES {
        let live = Live::new(seed);
        let expected = by_instants(&live.history, &mut react);
        assert_eq!(lines(&live.steps), lines(&expected), "seed {seed}, {:?}", live.history);
    }
}

/// One row asks to be woken in each unit of time.
fn restless(step: &Step) -> Vec<Effect> {
    match step.what {
        What::Event | What::Wake => vec![wake(0, step.position.time + 1)],
        _ => vec![],
    }
}

#[test]
fn what_long_gaps_leave_out_does_not_depend_on_cuts() {
    let mut left_out = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let period = 1 + random.below(2) as i64;
        let mut history = History { least: i64::MIN, everies: vec![Every { origin: 0, period }], ..History::default() };
        let mut shown = BTreeSet::new();
        for source in 0..2 {
            let mut time = random.below(3) as i64;
            let inputs = (0..3).map(|_| {
                time += [0, 1, 9_999, 10_000, 10_001, 25_000][random.below(6) as usize];
                shown.insert(time);
                SplitInput::Event(Some(time))
            });
            let clock = Clock::EventTime { lateness: 0 };
            history.splits.insert((source, 0), (clock, i64::MIN, inputs.collect()));
        }
        let steps = replay(&history, restless, &mut random);
        assert_eq!(steps, replay(&history, restless, &mut random), "seed {seed}, {history:?}");
        let shown: Vec<i64> = shown.into_iter().collect();
        for gap in shown.windows(2) {
            let count = |what: What| {
                let times = steps.iter().filter(|step| step.what == what).map(|step| step.position.time);
                times.filter(|&time| gap[0] < time && time <= gap[1]).count() as i64
            };
            let ticks = gap[1] / period - gap[0] / period;
            assert_eq!(count(What::Tick), ticks.min(TIMERS_MAX), "{history:?}");
            assert_eq!(count(What::Wake), (gap[1] - gap[0]).min(TIMERS_MAX), "{history:?}");
            left_out += i64::from(ticks > TIMERS_MAX);
        }
    }
    assert!(left_out > 10, "{left_out} gaps were too long");
}

#[test]
fn random_histories_have_everything() {
    let (mut seen, mut joins) = (BTreeMap::<String, u64>::new(), 0);
    for seed in 0..HISTORIES {
        let live = Live::new(seed);
        joins += live.history.splits.values().filter(|(_, mark, _)| *mark > 0).count();
        for step in &live.steps {
            let kind = match &step.what {
                What::Result(name) => format!("window of {}", &name[..2]),
                What::Sent => format!("sent after {:?}", step.position.place.phase()),
                what => format!("{what:?}"),
            };
            *seen.entry(kind).or_default() += 1;
        }
    }
    let kinds = ["Bad", "Event", "Late", "Tick", "Wake", "sent after Records", "sent after Timers"];
    assert!(seen.keys().eq(kinds.into_iter().chain(["window of 10", "window of 20"])), "{seen:?}");
    assert!(joins > 500 && seen.values().all(|&count| count > 500), "{joins} splits joined later, {seen:?}");
}
