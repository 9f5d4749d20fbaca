//! Runs that end abnormally and must not hang: a thread that panics, a source that has changed, a failure or a stop
//! while an actor waits.

use super::{Again, Records, Released, Stop, Trial, sums};
use crate::support::Subject;
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidemill_connect::System;
use tidemill_histories::Random;
use tidemill_io::{IoFailure, Next, Resumed, Sink, Source, SourceBatch};
use tidemill_model::Value;
use tidemill_model::arrow::batch_of;
use tidemill_plan::Origin;
use tidemill_runtime::{Control, DurabilityOptions, Engine, EpochSize, Options, Request, RunError, Summary};
use tidemill_sim::{Fault, SimStorage};

/// A wait that exceeds this is considered endless.
const EVER: Duration = Duration::from_secs(60);

fn engine(subject: &Subject) -> Engine {
    Engine::new(subject.program.clone()).expect("it compiles")
}

fn trial(subject: &Subject, seed: u64, again: Again) -> Trial<'_> {
    let mut trial = Trial::new(subject, SimStorage::new(seed), &mut Random::new(seed));
    trial.again.fill(again);
    trial
}

/// Returns the first records of a subject's only source.
fn first_records(subject: &Subject, count: usize) -> RecordBatch {
    let source = |stream: &&tidemill_plan::Stream| matches!(stream.origin, Origin::Source { .. });
    let stream = subject.program.streams.iter().find(source).expect("a source");
    let records: Vec<Vec<Value>> = subject.history.sources[0].iter().take(count).cloned().collect();
    batch_of(&stream.schema, &records)
}

fn live_on(trial: &Trial<'_>, source: impl Source + 'static, control: Arc<Control>) -> Result<Summary, RunError> {
    let options = Options { epoch: EpochSize::Events(1), ..Options::default() };
    let durability = DurabilityOptions::default();
    trial.live_on(&engine(trial.subject), options, vec![Box::new(source)], control, durability)
}

/// Records that end with a power cut, after some were released and more were delivered.
struct Cutting {
    records: Records,
    machine: SimStorage,
    released: Arc<Mutex<Released>>,
    /// The power cut waits until the epochs up to this one are released.
    epoch: u64,
}

impl Source for Cutting {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        if self.records.next == 50 {
            while self.released.lock().epoch.is_none_or(|epoch| epoch < self.epoch) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let now = self.machine.call_count();
            // Other threads make storage calls concurrently.
            (now..now + 100).for_each(|call| self.machine.fail(call, Fault::CutBefore));
        }
        self.records.next(wait_max)
    }

    fn token(&self) -> Option<String> {
        self.records.token()
    }

    fn replays(&self) -> bool {
        self.records.replays()
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.records.resume(token)
    }
}

/// A life that ends with a power cut, with some of the source's hundred records logged after the newest checkpoint.
fn crash(trial: &Trial<'_>) {
    let batch = first_records(trial.subject, 100);
    let (machine, released) = (trial.machine.clone(), trial.released[0].clone());
    let epoch = released.lock().epoch.unwrap_or(0) + 10;
    let records = Records { batch, next: 0, size: 1, again: trial.again[0], stop: None };
    live_on(trial, Cutting { records, machine, released, epoch }, Arc::default()).expect_err("the power goes");
    trial.machine.heal();
    trial.machine.cut_power();
}

/// Whichever thread sees the stop first: a source that is left at that point has not ended.
#[test]
fn a_stop_ends_no_source() {
    let subject = sums();
    let options = Options { epoch: EpochSize::Events(1), ..Options::default() };
    let live = |trial: &Trial<'_>, stop| {
        let engine = engine(&subject);
        let summary = trial.live(&engine, options, 1, stop, DurabilityOptions::default())?;
        assert_eq!(summary.stopped, stop.is_some());
        Ok::<_, RunError>((!summary.stopped).then(|| subject.difference(&trial.outcome(&engine))))
    };
    for again in [Again::Anew, Again::Token, Again::Replays] {
        let trial = trial(&subject, 1, again);
        live(&trial, Some(Stop { after: 10, behind: true })).expect("a stop is no failure");
        crash(&trial);
        // If the source replays, its logged records are being read again now.
        live(&trial, Some(Stop { after: 0, behind: true })).expect("a stop is no failure");
        assert_eq!(live(&trial, None).expect("it comes to its end"), Some(None), "{again:?}");
    }
}

/// A run that only replays takes nothing new of its sources. Their readers end all the same: those that were never
/// started, and those that are ahead of the gate.
#[test]
fn a_replay_alone_waits_for_no_reader() {
    let subject = sums();
    for again in [Again::Anew, Again::Token, Again::Replays] {
        let trial = trial(&subject, 1, again);
        crash(&trial);
        let replay = DurabilityOptions { replay_only: true, ..DurabilityOptions::default() };
        crate::watchdog().begins(format!("a replay alone, {again:?}"));
        let summary = trial.live(&engine(&subject), Options::default(), 1, None, replay).expect("it replays");
        crate::watchdog().ends();
        assert!(summary.durability.is_some_and(|durability| durability.replayed_events > 0), "{again:?}");
    }
}

/// Delivers the same batch over and over, up to a limit.
struct Endless {
    batch: RecordBatch,
    given: Arc<AtomicUsize>,
}

const GIVEN_MAX: usize = 60_000;

impl Source for Endless {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        std::thread::sleep(Duration::from_millis(1));
        let goes_on = self.given.fetch_add(1, Ordering::Relaxed) < GIVEN_MAX;
        Ok(goes_on.then(|| SourceBatch { events: self.batch.clone(), bad: Vec::new() }).into())
    }
}

/// A panic in the gate, the logger, the checkpointer or the thread that opens the state does not leave the others
/// working or waiting.
#[test]
fn a_panic_on_any_thread_ends_the_run() {
    const CALLS: usize = 160;
    let subject = sums();
    let options = Options { epoch: EpochSize::Events(5), memory: Some(1), ..Options::default() };
    let durability = DurabilityOptions { checkpoint_events: 20, ..DurabilityOptions::default() };
    for call in 0..CALLS {
        let trial = trial(&subject, call as u64, Again::Anew);
        trial.machine.fail(call, Fault::Panics);
        let given = Arc::new(AtomicUsize::new(0));
        let source = Endless { batch: first_records(&subject, 5), given: given.clone() };
        let live =
            || trial.live_on(&engine(&subject), options, vec![Box::new(source)], Arc::default(), durability.clone());
        let ended = catch_unwind(AssertUnwindSafe(live));
        assert!(!matches!(ended, Ok(Ok(_))), "call {call}: nobody panicked");
        assert!(given.load(Ordering::Relaxed) < GIVEN_MAX, "call {call}: the others went on");
        assert!(trial.machine.call_count() > call, "call {call} was made");
    }
}

/// Fails after its first batch was taken.
struct Failing {
    batch: Option<RecordBatch>,
}

impl Source for Failing {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let Some(events) = self.batch.take() else {
            std::thread::sleep(Duration::from_millis(20));
            return Err(IoFailure::new("the line is dead"));
        };
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}

/// A sink that waits for room until the run ends.
struct Waiting {
    control: Arc<Control>,
    waits_on: Arc<AtomicBool>,
}

impl Sink for Waiting {
    fn write(&mut self, _: &RecordBatch) -> Result<(), IoFailure> {
        let begun = Instant::now();
        while !self.control.ends() && begun.elapsed() < EVER {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.waits_on.fetch_or(!self.control.ends(), Ordering::Relaxed);
        Err(IoFailure::new("there is no room"))
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}

#[test]
fn nothing_is_waited_for_behind_a_failure() {
    let subject = sums();
    let control = Arc::new(Control::default());
    let waits_on = Arc::new(AtomicBool::new(false));
    let sink = |_: &_| Box::new(Waiting { control: control.clone(), waits_on: waits_on.clone() }) as Box<dyn Sink>;
    let request = Request {
        control: control.clone(),
        ..Request::new(
            vec![Box::new(Failing { batch: Some(first_records(&subject, 5)) })],
            subject.program.sinks.iter().map(sink).collect(),
            Arc::new(System::new()),
        )
    };
    let failure = engine(&subject).run(request, &mut || {}).expect_err("the source fails");
    assert!(failure.to_string().ends_with("the line is dead"), "{failure}");
    assert!(!waits_on.load(Ordering::Relaxed), "the sink knew that the run ends");
}

/// A source that can be read again but delivers nothing; it stops the run while the gate waits for it.
struct Silent {
    control: Arc<Control>,
    released: Arc<AtomicBool>,
    waits_on: Arc<AtomicBool>,
}

impl Source for Silent {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        std::thread::sleep(Duration::from_millis(50));
        self.control.stop();
        let begun = Instant::now();
        while !self.released.load(Ordering::Relaxed) && begun.elapsed() < EVER {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.waits_on.fetch_or(!self.released.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(Next::End)
    }

    fn replays(&self) -> bool {
        true
    }
}

#[test]
fn a_stop_ends_a_recovery_that_waits_for_a_source() {
    let subject = sums();
    let trial = trial(&subject, 1, Again::Replays);
    crash(&trial);
    let (released, waits_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let control = Arc::new(Control::default());
    let source = Silent { control: control.clone(), released: released.clone(), waits_on: waits_on.clone() };
    let summary = live_on(&trial, source, control).expect("a stop is no failure");
    assert!(!waits_on.load(Ordering::Relaxed), "it did not wait");
    assert!(summary.stopped, "{summary:?}");
    released.store(true, Ordering::Relaxed);
}

/// The log does not have the records of a source that could be read again.
#[test]
fn a_source_that_cannot_be_read_again_any_more_is_refused() {
    let subject = sums();
    let trial = trial(&subject, 1, Again::Replays);
    crash(&trial);
    let batch = first_records(&subject, 100);
    let source = Records { batch, next: 0, size: 1, again: Again::Anew, stop: None };
    let failure = live_on(&trial, source, Arc::default()).expect_err("it is refused");
    assert!(failure.to_string().ends_with("could be read again, and now it cannot"), "{failure}");
}

/// The source has not ended: records that it delivered no longer exist.
#[test]
fn a_source_that_has_less_than_was_taken_is_refused() {
    let subject = sums();
    let trial = trial(&subject, 1, Again::Anew);
    let stop = Some(Stop { after: 50, behind: true });
    let options = Options { epoch: EpochSize::Events(1), ..Options::default() };
    let durability = DurabilityOptions::default();
    let stopped = trial.live(&engine(&subject), options, 1, stop, durability).expect("a stop is no failure");
    assert!(stopped.stopped && stopped.events > 0);
    let batch = first_records(&subject, stopped.events as usize - 1);
    let source = Records { batch, next: 0, size: 1, again: Again::Anew, stop: None };
    let failure = live_on(&trial, source, Arc::default()).expect_err("it is refused");
    assert!(failure.to_string().contains("taken of it before are not there any more"), "{failure}");
}

/// A source that resumes by itself, and has less than was taken.
struct Shrunk;

impl Source for Shrunk {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(Next::End)
    }

    fn resume(&mut self, _: Option<&str>) -> Result<Resumed, IoFailure> {
        Err(IoFailure::new("the file is shorter than it was"))
    }
}

#[test]
fn a_source_that_does_not_resume_fails_the_run() {
    let subject = sums();
    let trial = trial(&subject, 1, Again::Token);
    crash(&trial);
    let failure = live_on(&trial, Shrunk, Arc::default()).expect_err("it is refused");
    assert!(failure.to_string().ends_with("the file is shorter than it was"), "{failure}");
}
