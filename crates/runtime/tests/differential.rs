//! The engine against the serial oracle: random and adversarial histories, over worker counts, epoch
//! sizes, batch sizes and granularities. States and outputs must be equal bit for bit.
//!
//! `TIDEMILL_HISTORIES` sets how many random histories are run, `TIDEMILL_SECONDS` after how many seconds none begins any
//! more, `TIDEMILL_SEED` the first seed. A failure prints its seed and configuration, which reproduce it.

mod calls;
mod driven;
mod durable;
mod join;
mod limits;
mod meaning;
mod memory;
mod over;
mod pace;
#[path = "../../sim/tests/search/mod.rs"]
mod search;
mod session;
mod stretches;
mod support;
mod wakes;

use calls::{Called, Tally};
use std::collections::HashMap;
use std::env::var;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};
use support::{Outcome, Sockets, Subject, afresh};
use tidemill_durability::Planted;
use tidemill_histories::{DataShape, History, Random, adversarial, mixed_call_plan, mixed_plan, random_data};
use tidemill_plan::{Plan, Waves, analyze};
use tidemill_runtime::{Engine, EpochSize, Options, Policies, Policy, Scheduling, Scheme};

/// Executions per plan and data: each is one history.
const CONFIGURATIONS: u64 = 4;
/// Data sets per plan: compiling a plan takes as long as running it many times.
const DATA_PER_PLAN: u64 = 25;

/// The baseline schemes that keep the order.
const ORDERED: [Scheme; 5] =
    [Scheme::Lock, Scheme::MultiVersion, Scheme::Partitioned(4), Scheme::TStream, Scheme::TStreamDealt(2)];

fn number(name: &str, default: u64) -> u64 {
    var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text}")))
}

/// Returns whether a random suite still has time.
fn has_time(since: Instant) -> bool {
    since.elapsed().as_secs() < number("TIDEMILL_SECONDS", u64::MAX)
}

/// Returns whether a suite of one part of the engine, which has a fifth of the time, still has time.
fn has_time_for_part(since: Instant) -> bool {
    since.elapsed().as_secs() < number("TIDEMILL_SECONDS", u64::MAX) / 5
}

/// Returns the policy as it is, or as often as that with owners of rows.
fn in_a_way_to_share(policy: Policy, random: &mut Random) -> Policy {
    let ways = policy.in_ways_to_share();
    if random.chance(50) { policy } else { ways[random.below(ways.len())] }
}

fn configuration(random: &mut Random) -> (Options, usize) {
    let epoch = match random.below(6) {
        0 => EpochSize::Auto,
        1 => EpochSize::Events(1),
        2 => EpochSize::Events(2 + random.below(6)),
        3 => EpochSize::Age(1),
        _ => EpochSize::Events(1 + random.below(100)),
    };
    let policies = Policy::all();
    let workers = if random.chance(50) { 1 + random.below(4) } else { 1 + random.below(16) };
    let scheduling = match random.below(8) {
        0 => Scheduling::Auto,
        1 => Scheduling::MorphStream,
        2 => Scheduling::Fixed(Policy::EPOCH),
        3 => Scheduling::Baseline(ORDERED[random.below(ORDERED.len())]),
        4 => {
            let (policy, some) = (policies[1 + random.below(policies.len() - 1)], 1 + random.below(16));
            format!("{policy}@{some}").parse().expect("a policy on some workers")
        }
        5 => Scheduling::ByGroup(Policies::new(&[0; 3].map(|_| policies[random.below(policies.len())]))),
        _ => Scheduling::Fixed(in_a_way_to_share(policies[random.below(policies.len())], random)),
    };
    let options = Options { workers, epoch, scheduling, ..Options::default() };
    (options, [1, 3, 16, 1000][random.below(4)])
}

/// Returns configuration `number` of those that have each way to share with one to four workers, on one socket and on two.
fn dealt(number: usize, random: &mut Random) -> (Options, usize) {
    let ways: Vec<Policy> = Policy::all().into_iter().flat_map(Policy::in_ways_to_share).collect();
    let (way, round) = (ways[number % ways.len()], number / ways.len());
    let (options, _) = configuration(random);
    // Batches of odd size run on two sockets.
    let batch_size = [16, 3][round / 4 % 2];
    (Options { workers: 1 + round % 4, scheduling: Scheduling::Fixed(way), ..options }, batch_size)
}

/// If one history takes this long, it hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// Aborts the process, and names the history that hangs, if a thread of the test has spent too long on one history.
#[derive(Default)]
struct Watchdog {
    running: Mutex<HashMap<ThreadId, (Instant, String)>>,
}

impl Watchdog {
    fn begins(&self, what: String) {
        self.lock().insert(current().id(), (Instant::now(), what));
    }

    fn look(&self) {
        for (since, what) in self.lock().values() {
            if since.elapsed() > DEADLINE {
                eprintln!("{what}: hangs");
                std::process::abort();
            }
        }
    }

    fn ends(&self) {
        self.lock().remove(&current().id());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, (Instant, String)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
    let mut is_new = false;
    let watchdog = WATCHDOG.get_or_init(|| {
        is_new = true;
        Watchdog::default()
    });
    if is_new {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(5));
                watchdog.look();
            }
        });
    }
    watchdog
}

fn check(subject: &Subject, engine: &Engine, options: Options, batch_size: usize, what: &str) -> Outcome {
    watchdog().begins(format!("{what}, {options:?}, batches of {batch_size}"));
    let outcome = subject.run(engine, options, batch_size);
    watchdog().ends();
    if let Some(difference) = subject.difference(&outcome) {
        panic!("{what}, {options:?}, batches of {batch_size}:\n{difference}");
    }
    let seats = options.workers.min(Sockets::by(batch_size).processors);
    let most = if matches!(options.scheduling, Scheduling::FixedOn(_)) { options.workers } else { seats };
    assert!(outcome.workers <= most as u64, "{what}, {options:?}: {} workers shared an epoch", outcome.workers);
    outcome
}

/// Each scheduling with half of the numbers of workers, and with these in half of the sizes of epochs, in turns.
#[test]
fn adversarial_histories() {
    for (place, (name, history)) in adversarial().into_iter().enumerate() {
        let subject = Subject::new(history);
        let mut engine = Engine::new(subject.program.clone()).expect(name);
        for (position, workers) in [1, 2, 3, 16].into_iter().enumerate() {
            let fixed = Policy::all().into_iter().map(Scheduling::Fixed);
            let by_group =
                ["transaction+operation,lazy+epoch", "epoch+transaction,bfs", "operation,dfs,eager+epoch+chain"];
            let by_group = by_group.map(|text| text.parse().expect("a policy for each group"));
            let decided = [Scheduling::Auto, Scheduling::MorphStream].into_iter().chain(by_group);
            let all = decided.chain(fixed).chain(ORDERED.map(Scheduling::Baseline));
            // A program that follows its events one by one is not scheduled.
            let is_scheduled = Waves::of(&subject.program).is_some();
            let ways = all.take(if is_scheduled { usize::MAX } else { 1 }).enumerate();
            for (way, scheduling) in ways.filter(|(way, _)| !is_scheduled || (place + position + way) % 4 < 2) {
                // Batches of odd size run on two sockets.
                let sizes = [
                    (EpochSize::Events(1), 5),
                    (EpochSize::Events(7), 4),
                    (EpochSize::Events(7), 5),
                    (EpochSize::Auto, 4),
                ];
                let turn = (place + way) % 2;
                for (epoch, batch_size) in sizes.into_iter().skip(turn).step_by(2) {
                    let options = Options { workers, scheduling, epoch, ..Options::default() };
                    engine = afresh(engine, &options, batch_size);
                    check(&subject, &engine, options, batch_size, name);
                }
            }
        }
    }
}

/// Groups of transactions that share no row run under their own policies in one epoch; if declared groups do share
/// rows, there is one group.
#[test]
fn groups_run_under_their_own_policies() {
    for (name, groups) in [("groups that share no row", 3), ("groups that are declared and share rows", 2)] {
        let history = adversarial().into_iter().find(|(other, _)| *other == name).expect("a history").1;
        let subject = Subject::new(history);
        let engine = Engine::new(subject.program.clone()).expect(name);
        let scheduling = "transaction+operation,lazy+transaction,bfs".parse().expect("policies");
        let options = Options { workers: 2, epoch: EpochSize::Events(100), scheduling, ..Options::default() };
        let outcome = subject.run(&engine, options, 50);
        assert_eq!(subject.difference(&outcome), None);
        let mut expected = ["transaction", "operation,lazy", "transaction,bfs"][..groups].to_vec();
        let (mut named, mut policies): (Vec<_>, Vec<_>) = outcome.policies.into_iter().unzip();
        named.sort();
        policies.sort();
        expected.sort_unstable();
        assert_eq!(policies, expected);
        assert!(named.windows(2).all(|pair| pair[0].is_some() && pair[0] != pair[1]), "{named:?}");
    }
}

/// The summary names each policy and each scheme as it ran.
#[test]
fn what_ran_is_named() {
    let history = adversarial().into_iter().find(|(name, _)| *name == "a chain of transfers").expect("a history").1;
    let subject = Subject::new(history);
    let mut engine = Engine::new(subject.program.clone()).expect("a plan that compiles");
    let policies = Policy::all().into_iter().map(|policy| (policy.to_string(), Scheduling::Fixed(policy)));
    let schemes = Scheme::ALL.map(|scheme| (scheme.to_string(), Scheduling::Baseline(scheme)));
    for (name, scheduling) in policies.chain(schemes) {
        engine = engine.with_empty_tables();
        let options = Options { workers: 2, epoch: EpochSize::Events(50), scheduling, ..Options::default() };
        assert_eq!(subject.run(&engine, options, 10).policies, [(None, name)]);
    }
}

/// Prepare lists the accesses of each epoch for the method that was asked for, where another worker may access
/// meanwhile.
#[test]
fn epochs_are_listed_ahead() {
    let history = adversarial().into_iter().find(|(name, _)| *name == "a chain of transfers").expect("a history").1;
    let subject = Subject::new(history);
    let mut engine = Engine::new(subject.program.clone()).expect("a plan that compiles");
    let policies = Policy::all().into_iter().map(Scheduling::Fixed);
    for scheduling in policies.chain(ORDERED.map(Scheduling::Baseline)) {
        for workers in [1, 2, 3] {
            engine = engine.with_empty_tables();
            let options = Options { workers, epoch: EpochSize::Events(7), scheduling, ..Options::default() };
            let outcome = check(&subject, &engine, options, 10, "listed ahead");
            let may_list = workers > 1 && scheduling != Scheduling::Fixed(Policy::EPOCH);
            assert!(outcome.epochs > 4, "{} epochs", outcome.epochs);
            assert_eq!(outcome.listed, if may_list { outcome.epochs } else { 0 }, "{options:?}");
        }
    }
}

/// The plans of random histories that are run however slow the machine is. They have each way to share with each number of
/// workers up to four.
const PLANS_MIN: u64 = 60;

/// Scheduling, number of workers, and whether they are on two sockets.
type Way = (Scheduling, usize, bool);

/// Events and choices that random histories must have come by.
#[derive(Default)]
struct Seen {
    histories: AtomicU64,
    ways: Mutex<Vec<Way>>,
    /// The greatest number of workers that the decision has chosen for an epoch.
    decided: AtomicU64,
    /// The epochs listed ahead for a policy or a scheme that was asked for.
    asked_for: AtomicU64,
    /// The epochs listed ahead for the method of the epoch before, where each epoch's is chosen.
    chosen: AtomicU64,
    tally: Mutex<Tally>,
}

impl Seen {
    /// Adds a history that ran.
    fn add(&self, options: Options, batch_size: usize, outcome: &Outcome) {
        self.histories.fetch_add(1, Ordering::Relaxed);
        let is_chosen = matches!(options.scheduling, Scheduling::Auto | Scheduling::MorphStream);
        let listed = if is_chosen { &self.chosen } else { &self.asked_for };
        listed.fetch_add(outcome.listed, Ordering::Relaxed);
        if options.scheduling == Scheduling::Auto {
            self.decided.fetch_max(outcome.workers, Ordering::Relaxed);
        }
        let way = (options.scheduling, options.workers, batch_size % 2 == 1);
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(way.0, Scheduling::ByGroup(_) | Scheduling::FixedOn(_)) && !ways.contains(&way) {
            ways.push(way);
        }
    }

    /// Returns the things that have not come about.
    fn missing(&self) -> Vec<String> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (ways, mut missing) = (self.ways.lock().unwrap_or_else(PoisonError::into_inner), Vec::new());
        let mut wants = |what: String, is_there: bool| missing.extend((!is_there).then_some(what));
        for policy in Policy::all() {
            for (workers, two) in (1..=4).flat_map(|workers| [(workers, false), (workers, true)]) {
                let is_there = ways.contains(&(Scheduling::Fixed(policy), workers, two));
                wants(format!("{policy} by {workers} workers, on two sockets: {two}"), is_there);
            }
        }
        for way in Policy::all().into_iter().flat_map(Policy::in_ways_to_share) {
            wants(way.to_string(), ways.iter().any(|(other, ..)| *other == Scheduling::Fixed(way)));
        }
        wants("more than four workers for an epoch".into(), count(&self.decided) > 4);
        wants("epochs listed ahead as asked for".into(), count(&self.asked_for) > count(&self.histories));
        wants("epochs listed ahead by choice".into(), count(&self.chosen) > 0);
        missing.extend(calls::rare(&self.tally.lock().unwrap_or_else(PoisonError::into_inner)));
        missing
    }
}

#[test]
fn random_histories() {
    let total = number("TIDEMILL_HISTORIES", 2_000);
    let first = number("TIDEMILL_SEED", 1);
    let plans = total.div_ceil(DATA_PER_PLAN * CONFIGURATIONS);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (seen, run, start) = (Seen::default(), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for t in 0..threads {
            let seeds = (first + t..first + plans).step_by(threads as usize);
            let (seen, run) = (&seen, &run);
            // Decisions by measured costs come sooner or later.
            let goes_on = move |seed: &u64| seed - first < PLANS_MIN || has_time(start) || !seen.missing().is_empty();
            scope.spawn(move || {
                seeds.take_while(goes_on).for_each(|seed| {
                    match seed.is_multiple_of(CALLED) {
                        true => random_call_plan_histories(seed, &seen.tally),
                        false => {
                            let called = seed.div_ceil(CALLED) - first.div_ceil(CALLED);
                            random_plan_histories(seed, (seed - first - called) as usize, seen);
                        }
                    }
                    run.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
    });
    let plans = run.into_inner();
    assert!(plans > 0, "no plan was run");
    let histories = plans * DATA_PER_PLAN * CONFIGURATIONS;
    println!("of those with calls: {:?}", seen.tally.lock().expect("nobody panicked"));
    println!(
        "{histories} random histories over {plans} plans from seed {first}, in {} ways; the decision chose up to {} workers",
        seen.ways.lock().expect("nobody panicked").len(),
        seen.decided.load(Ordering::Relaxed)
    );
    println!("epochs that were listed ahead: {:?} as asked for, {:?} by choice", seen.asked_for, seen.chosen);
    let missing = seen.missing();
    assert!(plans < PLANS_MIN || missing.is_empty(), "{histories} histories leave out {missing:#?}");
}

/// One in this number of plans is called.
const CALLED: u64 = 10;
/// Most events of a source, or calls of a stream, in its histories.
const CALLED_EVENTS_MAX: usize = 60;
/// The share of its histories that has crashes, in percent.
const CRASHES: usize = 25;

/// Runs histories of the plan of a seed; `place` such plans are before it.
fn random_plan_histories(seed: u64, place: usize, seen: &Seen) {
    let plan = mixed_plan(seed);
    let program = analyze(&support::with_all_sinks(&plan)).expect("random plans are valid");
    let mut engine = Engine::new(program.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for data in 0..DATA_PER_PLAN {
        let data_seed = seed * 1_000 + data;
        let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
        let subject = Subject::new(History { plan: plan.clone(), preload, sources });
        let mut random = Random::new(data_seed);
        for turn in 0..CONFIGURATIONS {
            let (options, batch_size) = match turn {
                0 => dealt(place * DATA_PER_PLAN as usize + data as usize, &mut random),
                _ => configuration(&mut random),
            };
            engine = afresh(engine, &options, batch_size);
            let what = format!("plan seed {seed}, data seed {data_seed}");
            let outcome = check(&subject, &engine, options, batch_size, &what);
            seen.add(options, batch_size, &outcome);
        }
    }
}

/// Returns the called plan of a seed: of every three one the next that has batches of calls, and one the next whose procedures have
/// nested steps.
fn called_plan(seed: u64) -> Plan {
    let is_wanted = |plan: &Plan| {
        let program = analyze(&support::with_all_sinks(plan)).expect("random plans are valid");
        match seed / CALLED % 3 {
            0 => calls::has_batches(&program),
            1 => calls::has_nests(&program),
            _ => true,
        }
    };
    (seed..).map(mixed_call_plan).find(is_wanted).expect("some plan has it")
}

fn random_call_plan_histories(seed: u64, tally: &Mutex<Tally>) {
    let plan = called_plan(seed);
    let mut called = Called::new(&plan);
    for data in 0..DATA_PER_PLAN {
        let data_seed = seed * 1_000 + data;
        let (preload, sources) = random_data(called.program(), data_seed, called_shape(data_seed));
        let history = History { plan: plan.clone(), preload, sources };
        let mut random = Random::new(data_seed);
        for number in 0..CONFIGURATIONS {
            let (options, batch_size) = configuration(&mut random);
            let seed = data_seed * CONFIGURATIONS + number;
            let lives = if random.chance(CRASHES) { 2 + random.below(2) } else { 1 };
            let setting = calls::Setting { seed, options, batch_size, lives, planted: Planted::default() };
            let what = format!("plan {}, data seed {data_seed}, {setting:?}", plan.name);
            watchdog().begins(what.clone());
            let happened = called.run(&history, setting).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            watchdog().ends();
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            happened.into_iter().for_each(|(what, count)| *tally.entry(what).or_default() += count);
        }
    }
}

/// Returns a session takes longer than a run of so few events: there are fewer.
fn called_shape(seed: u64) -> DataShape {
    let shape = DataShape::random(seed);
    DataShape { events_max: shape.events_max.min(CALLED_EVENTS_MAX), ..shape }
}
