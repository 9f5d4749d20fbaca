//! Calls that are made again with their keys, beside crashes: each is in the history once, whoever makes it, how often and in
//! which life of the state, and each answer to it is the same.
//!
//! The model is a map from keys to answers that knows nothing of the engine: what was said first about a key is what
//! everybody must be told. The sinks have each call once, and the audit's interpreter gives their outcomes for the log.

use crate::bank::{logged, open};
use crate::calls::{NAMES, Said, plan, released, said};
use crate::search::Search;
use crate::session::start_planted;
use crate::trials;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use tidemill_audit::verify;
use tidemill_durability::{Bug, Planted};
use tidemill_histories::Random;
use tidemill_model::Value;
use tidemill_model::arrow::batch_of;
use tidemill_plan::{Plan, Program, analyze};
use tidemill_runtime::{NotMade, Reply, RequestKey, Session, When};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 40;
/// The number of trials before a bug is given up on.
const TRIALS_FOR_A_BUG: u64 = 200;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 4;
const THREADS: usize = 3;
/// The number of different calls.
const CALLS: usize = 400;
const HOUR: i64 = 3_600_000_000;

/// A call that is made by whoever likes to.
struct Wanted {
    which: usize,
    event: [i64; 3],
}

/// The state that the callers share.
struct Model {
    calls: Vec<Wanted>,
    /// The first answer to each call, by call.
    said: Mutex<BTreeMap<usize, Said>>,
    /// The first thing found wrong.
    wrong: Mutex<Option<String>>,
    /// The callers' clock, microseconds.
    now: AtomicI64,
}

impl Model {
    fn new(random: &mut Random) -> Model {
        let wanted = |id: usize| {
            let event = [id as i64, random.below(3) as i64, random.below(1000) as i64];
            Wanted { which: random.below(2), event }
        };
        let calls = (0..CALLS).map(wanted).collect();
        Model { calls, said: Mutex::default(), wrong: Mutex::default(), now: AtomicI64::new(0) }
    }

    fn key(&self, call: usize) -> RequestKey {
        let called = self.now.fetch_add(1000, Ordering::Relaxed);
        RequestKey { user: "all".into(), key: format!("key {call}"), called }
    }

    fn is_said(&self, call: usize) -> bool {
        self.said.lock().expect("no panic").contains_key(&call)
    }

    /// Notes an answer to a call, which must be that of the first time.
    fn told(&self, call: usize, now: Said) {
        let first = *self.said.lock().expect("no panic").entry(call).or_insert(now);
        if first != now {
            self.is_wrong(format!("call {call} was answered with {first:?}, and then with {now:?}"));
        }
    }

    fn is_wrong(&self, what: String) {
        self.wrong.lock().expect("no panic").get_or_insert(what);
    }
}

/// A caller in one session.
struct Client<'a> {
    session: &'a Session,
    program: &'a Program,
    model: &'a Model,
}

impl Client<'_> {
    /// Makes calls that one procedure takes together, and returns what waits for the answers; none if the session is over.
    fn send(&self, calls: &[usize], changes: bool) -> Option<tidemill_runtime::Calling> {
        let which = self.model.calls[calls[0]].which;
        let procedure = self.session.procedure(NAMES[which]).expect("it can be called");
        let stream = self.program.transactions.raw[which].inputs[0];
        let event = |&call: &usize| -> Vec<Value> {
            let [id, key, n] = self.model.calls[call].event;
            [id, key, n + i64::from(changes)].map(Value::Int).to_vec()
        };
        let batch = batch_of(&self.program.streams[stream].schema, &calls.iter().map(event).collect::<Vec<_>>());
        let keys: Vec<_> = calls.iter().map(|&call| Some(self.model.key(call))).collect();
        self.session.call_with(&procedure, &batch, &keys, When::Durable, None).ok()
    }

    /// Waits for the answers; whether all came.
    fn hear(&self, calls: &[usize], mut calling: tidemill_runtime::Calling, changes: bool) -> bool {
        let which = self.model.calls[calls[0]].which;
        while let Ok(Some(answered)) = calling.next(None) {
            for (reply, &call) in answered.replies().zip(&calls[answered.first..]) {
                match (&reply, changes) {
                    (Reply::Refused(NotMade::OtherArguments), true) => {}
                    (_, true) => self.model.is_wrong(format!("call {call} was made with other arguments: {reply:?}")),
                    (Reply::Refused(why), false) => self.model.is_wrong(format!("call {call}: {why}")),
                    _ => {
                        let id = self.model.calls[call].event[0];
                        self.model.told(call, said(self.program, which, &reply, id));
                    }
                }
            }
        }
        calling.left() == 0
    }

    /// Makes random calls until it is done, or the session ends.
    fn live(&self, random: &mut Random) {
        let mut waits = Vec::new();
        for _ in 0..16 {
            let first = random.below(CALLS);
            let which = self.model.calls[first].which;
            let all = (first..CALLS).filter(|&call| self.model.calls[call].which == which);
            let mut calls: Vec<usize> = all.take(1 + random.below(16)).collect();
            // One that is made twice at once.
            if random.chance(20) {
                calls.push(first);
            }
            let changes = random.chance(10) && calls.iter().all(|&call| self.model.is_said(call));
            let Some(calling) = self.send(&calls, changes) else { return };
            waits.push((calls, calling, changes));
            if random.chance(40) {
                for (calls, calling, changes) in waits.drain(..) {
                    self.hear(&calls, calling, changes);
                }
            }
        }
    }

    /// Makes all calls until each is answered.
    fn end(&self) {
        for which in 0..NAMES.len() {
            let calls: Vec<usize> = (0..CALLS).filter(|&call| self.model.calls[call].which == which).collect();
            let calling = self.send(&calls, false).expect("the last session goes on");
            assert!(self.hear(&calls, calling, false), "each call is answered");
        }
    }
}

/// Runs one trial. Returns the number of crashes, or what was wrong.
fn trial(plan: &Plan, program: &Program, seed: u64, planted: Planted) -> Result<u64, String> {
    let machine = SimStorage::new(seed);
    tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
    let mut random = Random::new(seed);
    let model = Model::new(&mut random);
    let mut crashes = 0;
    for life in 0..LIVES {
        let is_last = life + 1 == LIVES;
        if !is_last {
            let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
            machine.fail(machine.call_count() + random.below(300), fault);
        }
        let ended = start_planted(&machine, plan, program, seed, planted).and_then(|session| {
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let mut random = Random::new(seed * 100 + (life * THREADS + number) as u64);
                    let client = Client { session: &session, program, model: &model };
                    scope.spawn(move || client.live(&mut random));
                }
            });
            if is_last {
                Client { session: &session, program, model: &model }.end();
            }
            session.close(&mut || {}).expect("it is closed once")
        });
        machine.heal();
        if let Err(error) = ended {
            if !machine.is_off() {
                return Err(error.to_string());
            }
            crashes += 1;
            machine.cut_power();
        }
    }
    if let Some(wrong) = model.wrong.into_inner().expect("no panic") {
        return Err(wrong);
    }
    let state = open(&machine);
    for (which, at) in state.checkpoint().expect("the last session has ended").sources.iter().enumerate() {
        let calls = model.calls.iter().filter(|call| call.which == which).count() as u64;
        if at.events != calls {
            return Err(format!("the history has {} of {calls} calls of {}", at.events, NAMES[which]));
        }
    }
    verify(&state, Some("start"), &logged).map_err(|error| error.to_string())?;
    let outcomes = [0, 1].map(|which| [false, true].map(|is_aborted| released(&machine, which, is_aborted)));
    for (call, said) in model.said.into_inner().expect("no panic") {
        let [committed, refused] = &outcomes[model.calls[call].which];
        let id = call as i64;
        let expected = committed.get(&id).or(refused.get(&id)).copied().unwrap_or(Said::Nothing);
        if said != expected {
            return Err(format!("call {call} was answered with {said:?}, and the sinks have {expected:?}"));
        }
    }
    Ok(crashes)
}

#[test]
fn a_call_that_is_made_again_runs_once_and_is_answered_alike() {
    let plan = plan(Some(HOUR));
    let program = analyze(&plan).expect("a right plan");
    let mut crashes = 0;
    trials(TRIALS, |seed| {
        crashes +=
            trial(&plan, &program, seed, Planted::default()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        crashes > TRIALS
    });
}

/// Each bug shows as a call that is in the history twice, or that is answered in two ways, or whose key is taken for a new one;
/// the same sessions without it are right.
#[test]
fn planted_bugs_of_retries_are_found() {
    let plan = plan(Some(HOUR));
    let program = analyze(&plan).expect("a right plan");
    let bugs = [
        Bug::ReplayForgetsKeys,
        Bug::CheckpointForgetsAnswers,
        Bug::CheckpointForgetsKeys,
        Bug::AnswersAgainUnsynced,
        Bug::FilterForgetsRun,
        Bug::KeyRunsExpireEarly,
    ];
    for bug in bugs {
        let run = |seed, planted| trial(&plan, &program, seed, planted).map(drop);
        let mut search = Search::new(bug, &["and then with", "the history has", "was made with other arguments"]);
        let finds = |seed| search.finds(seed, run(seed, Planted::new(bug)), || run(seed, Planted::default()));
        assert!((0..TRIALS_FOR_A_BUG).any(finds), "{}", search.missed());
    }
}

/// Calls one after the other in a session of their own, each with its number, key and time; what is said of them.
fn in_session(machine: &SimStorage, plan: &Plan, program: &Program, calls: &[(i64, &str, i64)]) -> Vec<Said> {
    let session = start_planted(machine, plan, program, 2, Planted::default()).expect("it starts");
    let procedure = session.procedure(NAMES[0]).expect("it can be called");
    let stream = program.transactions.raw[0].inputs[0];
    let call = |&(id, key, called): &(i64, &str, i64)| {
        let batch = batch_of(&program.streams[stream].schema, &[[id, 1, 1].map(Value::Int).to_vec()]);
        let key = RequestKey { user: String::new(), key: key.into(), called };
        let mut calling = session.call_with(&procedure, &batch, &[Some(key)], When::Durable, None).expect("it goes on");
        let answered = calling.next(None).expect("it goes on").expect("a call has an answer");
        said(program, 0, &answered.replies().next().expect("an answer"), id)
    };
    let said = calls.iter().map(call).collect();
    session.close(&mut || {}).expect("it is closed once").expect("it ends well");
    said
}

/// Runs of keys are merged, so that there are few, and go when the time of their keys is over: until then each key is known.
#[test]
fn runs_of_keys_are_few_and_go_with_their_time() {
    const TIME: i64 = 1_000_000;
    const STEP: i64 = 1_000;
    let plan = plan(Some(TIME));
    let program = analyze(&plan).expect("a right plan");
    let machine = SimStorage::new(1);
    tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
    let mut random = Random::new(1);
    let (mut known, mut made, mut merged) = (Vec::<Said>::new(), 0, 0);
    for life in 0..60 {
        let first = known.len() as i64;
        let mut now = first * STEP;
        let new: Vec<(i64, String)> = (first..first + 40).map(|id| (id, format!("key {id}"))).collect();
        let mut calls: Vec<(i64, String, i64)> =
            new.into_iter().map(|(id, key)| (id, key, now + (id - first) * STEP)).collect();
        now += 40 * STEP;
        // Those of a key whose time is not over yet, up to the oldest.
        let oldest = (now - TIME) / STEP + 1;
        let again: Vec<i64> =
            (0..10).map(|_| oldest.max(0) + random.below((first + 40 - oldest.max(0)) as usize) as i64).collect();
        calls.extend(again.iter().chain(&[oldest.max(0)]).map(|&id| (id, format!("key {id}"), now)));
        let calls: Vec<(i64, &str, i64)> = calls.iter().map(|(id, key, called)| (*id, &key[..], *called)).collect();
        let said = in_session(&machine, &plan, &program, &calls);
        known.extend(&said[..40]);
        made += 40;
        for (&id, now) in again.iter().chain(&[oldest.max(0)]).zip(&said[40..]) {
            assert_eq!(known[id as usize], *now, "life {life}: key {id} of {}", known.len());
        }
        let state = open(&machine);
        let checkpoint = state.checkpoint().expect("a session has ended");
        assert_eq!(checkpoint.sources[0].events, made, "life {life}: what is known is not made again");
        let (runs, keys) = (checkpoint.keys.len(), checkpoint.keys.iter().map(|run| run.run.rows as i64).sum::<i64>());
        assert!(runs <= 16, "life {life}: {runs} runs");
        assert!(keys <= (TIME + TIME / 4) / STEP + 40, "life {life}: {keys} keys in {runs} runs");
        merged += usize::from(checkpoint.keys.iter().any(|run| run.run.rows > 60));
    }
    assert!(merged > 10, "runs were merged in {merged} lives");
}

/// A key is kept for its time and no longer, by the clock as it is: one that was ahead for a while takes nothing from keys that
/// come after it is put back, also after restarts.
#[test]
fn keys_are_kept_for_their_time_by_a_clock_that_may_be_put_back() {
    const TIME: i64 = 1_000_000;
    let plan = plan(Some(TIME));
    let program = analyze(&plan).expect("a right plan");
    let machine = SimStorage::new(1);
    tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
    let in_session = |calls: &[(i64, &str, i64)]| in_session(&machine, &plan, &program, calls);
    let first = in_session(&[(1, "a", 0), (1, "a", TIME - 1), (2, "b", TIME)]);
    assert_eq!(first[0], first[1], "it is made again within its time");
    let again = in_session(&[(2, "b", 2 * TIME - 1), (3, "a", TIME + 1)]);
    assert_eq!(again[0], first[2], "its time is not over after a restart");
    assert_ne!(again[1], first[0], "the time of the first call with the key is over");
    // The clock is ahead, and then put back.
    let ahead = in_session(&[(4, "c", 100 * TIME), (5, "d", 2 * TIME), (5, "d", 2 * TIME + 1)]);
    assert_eq!(ahead[1], ahead[2]);
    for restart in 0..20 {
        let kept = in_session(&[(5, "d", 2 * TIME + 2 + restart), (4, "c", 2 * TIME + 2 + restart)]);
        assert_eq!(kept, [ahead[1], ahead[0]], "restart {restart}");
    }
}
