//! A client of a sink that writes the rows of each epoch in order and checks the contract, whatever fails.
//!
//! Its calls are a function of the seed: commits of one epoch or several, of epochs without rows, rows written ahead
//! between prepare and commit, aborts, repeated calls and calls for old epochs, reopening, an early finish. After a call
//! has failed it makes another, which must fail too, and then begins a new process, after a power cut if the power is
//! off. The new process asks which epochs were committed, and continues from there.
//!
//! The contract is broken by: a recovered epoch whose commit was never called, or a lost one whose commit had returned, unless
//! it and those after wrote nothing and were not kept;
//! a file under the final name that was never finished; after the last finish and another power cut, anything but each
//! row once and in order.

use crate::subjects::{Subject, batch, is_large, large};
use std::path::Path;
use tidemill_durability::{Planted, Storage};
use tidemill_histories::Random;
use tidemill_io::{IoFailure, Recovered, Sink};
use tidemill_sim::{Call, Fault, SimStorage};

/// Epochs in a script.
const EPOCHS: u64 = 12;
/// A value that a test writes and never commits: it must not be seen.
const GARBAGE: i64 = -1;

/// A run of a sink's script.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    pub subject: &'a Subject,
    pub seed: u64,
    pub planted: Planted,
    /// Syncs of files whose paths end like this do nothing.
    pub lie: Option<&'a str>,
    pub fault: Option<(usize, Fault)>,
}

impl<'a> Trial<'a> {
    /// Makes a trial without a bug and without a fault.
    pub fn honest(subject: &'a Subject, seed: u64) -> Trial<'a> {
        Trial { subject, seed, planted: Planted::default(), lie: None, fault: None }
    }
}

/// The reason why a process ended early.
enum End {
    /// A call failed.
    Failed(IoFailure),
    /// The contract is broken.
    Wrong(String),
}

impl From<IoFailure> for End {
    fn from(failure: IoFailure) -> End {
        End::Failed(failure)
    }
}

fn wrong<T>(text: impl Into<String>) -> Result<T, End> {
    Err(End::Wrong(text.into()))
}

/// Returns the row of an epoch: some have none, one a long one.
fn rows(seed: u64, epoch: u64) -> Vec<i64> {
    let value = epoch as i64;
    match (seed + epoch) % 6 {
        1 => vec![],
        4 if epoch == 4 + seed % 6 => vec![large(value)],
        _ => vec![value * 2, value * 2 + 1],
    }
}

/// Returns the rows that all epochs up to one wrote.
fn rows_through(seed: u64, last: Option<u64>) -> Vec<i64> {
    last.map_or(Vec::new(), |last| (0..=last).flat_map(|epoch| rows(seed, epoch)).collect())
}

struct Client<'a> {
    trial: &'a Trial<'a>,
    storage: SimStorage,
    /// The last epoch whose commit returned.
    committed: Option<u64>,
    /// The last epoch whose commit was called.
    called: Option<u64>,
    /// The last epoch after whose commit the sink has kept it.
    kept: Option<u64>,
    /// The epochs whose output may stand under the final name.
    finished: Vec<Option<u64>>,
    steps: Random,
}

/// Runs a trial to its end; the calls that the script made, or what is wrong.
pub fn run(trial: &Trial) -> Result<Vec<Call>, String> {
    let storage = SimStorage::new(trial.seed);
    make_directories(&storage);
    // Something of another state is there before.
    leave_behind(trial, &storage).map_err(|failure| failure.message)?;
    let script = storage.call_count();
    trial.lie.into_iter().for_each(|end| storage.lie_about(end));
    trial.fault.into_iter().for_each(|(at, fault)| storage.fail(script + at, fault));
    let mut client = Client {
        trial,
        storage: storage.clone(),
        committed: None,
        called: None,
        kept: None,
        finished: Vec::new(),
        steps: Random::new(trial.seed),
    };
    // One fault ends one process; a bug may end more.
    let mut last = String::new();
    for _ in 0..4 {
        match client.process() {
            Ok(()) => return client.check_end().map(|()| storage.calls().split_off(script)),
            Err(End::Wrong(text)) => return Err(text),
            Err(End::Failed(failure)) if trial.fault.is_none() && trial.lie.is_none() => {
                return Err(format!("a call failed for no reason: {}", failure.message));
            }
            Err(End::Failed(failure)) => {
                last = failure.message;
                client.restart();
            }
        }
        client.check_name()?;
    }
    Err(format!("it does not come to an end: {last}"))
}

/// Makes the folders of the state and of its outputs.
pub fn make_directories(storage: &SimStorage) {
    for directory in ["out", "state"] {
        storage.create_directory(Path::new(directory)).expect("no fault yet");
    }
}

/// Returns a storage with an output of one state, committed up to an epoch.
pub fn committed(subject: &Subject, epoch: u64) -> SimStorage {
    committed_on(SimStorage::new(1), subject, epoch)
}

/// Commits an output of one state up to an epoch on an empty storage, which is given back.
pub fn committed_on(storage: SimStorage, subject: &Subject, epoch: u64) -> SimStorage {
    make_directories(&storage);
    let mut sink = subject.open(&storage, "one", Planted::default()).expect("it opens");
    sink.recover().expect("nothing is there");
    sink.write(&batch(&[1])).expect("it writes");
    sink.prepare(epoch).expect("it prepares");
    sink.commit(epoch).expect("it commits");
    storage
}

/// Returns an output that another state has not finished.
fn leave_behind(trial: &Trial, storage: &SimStorage) -> Result<(), IoFailure> {
    let mut sink = trial.subject.open(storage, "another", Planted::default())?;
    sink.recover()?;
    if trial.seed.is_multiple_of(2) {
        sink.write(&batch(&[GARBAGE]))?;
        sink.prepare(7)?;
        sink.commit(7)?;
    }
    Ok(())
}

impl Client<'_> {
    /// Begins anew after a failure.
    fn restart(&mut self) {
        if self.storage.is_off() || self.steps.chance(30) {
            self.storage.cut_power();
        } else {
            self.storage.kill();
        }
    }

    /// Runs a process from opening to the last finish.
    fn process(&mut self) -> Result<(), End> {
        let mut sink = self.open()?;
        let seed = self.trial.seed;
        let mut next = self.committed.map_or(0, |last| last + 1);
        let mut ahead = 0;
        while next < EPOCHS {
            match self.steps.below(12) {
                0 if ahead == 0 => {
                    sink = self.guarded(sink, |client, sink| client.abort(sink, next))?;
                }
                1 | 2 if ahead == 0 && self.committed.is_some() => {
                    sink = self.guarded(sink, Client::call_old)?;
                }
                3 if ahead == 0 => {
                    drop(sink);
                    sink = self.reopen()?;
                }
                4 | 5 if ahead == 0 => {
                    self.finish(sink)?;
                    sink = self.reopen()?;
                }
                _ => {
                    let last = (next + self.steps.below(3) as u64).min(EPOCHS - 1).max(next + ahead.max(1) - 1);
                    let mut written_ahead = 0;
                    sink = self.guarded(sink, |client, sink| {
                        for epoch in next + ahead..=last {
                            sink.write(&batch(&rows(seed, epoch)))?;
                        }
                        client.twice(|| Ok(sink.prepare(last)?))?;
                        let ahead = rows(seed, last + 1);
                        let often = if ahead.iter().any(is_large) { 100 } else { 20 };
                        if last + 1 < EPOCHS && client.steps.chance(often) {
                            sink.write(&batch(&ahead))?;
                            written_ahead = 1;
                        }
                        client.called = Some(last);
                        sink.commit(last)?;
                        client.committed = Some(last);
                        if client.steps.chance(20) {
                            sink.commit(last)?;
                        }
                        if client.steps.chance(30) {
                            sink.keep()?;
                            client.kept = client.committed;
                        }
                        Ok(())
                    })?;
                    next = last + 1;
                    ahead = written_ahead;
                }
            }
        }
        self.finish(sink)
    }

    /// Runs calls of a sink; after a failure no call may succeed.
    fn guarded(
        &mut self,
        mut sink: Box<dyn Sink>,
        calls: impl FnOnce(&mut Self, &mut dyn Sink) -> Result<(), End>,
    ) -> Result<Box<dyn Sink>, End> {
        match calls(self, &mut *sink) {
            Ok(()) => Ok(sink),
            Err(End::Failed(failure)) => {
                let next = self.called.map_or(0, |last| last + 1);
                let again = sink.prepare(next).and_then(|()| sink.commit(next));
                match again {
                    Ok(()) => wrong("after a failure, calls succeed"),
                    Err(_) => Err(End::Failed(failure)),
                }
            }
            Err(end) => Err(end),
        }
    }

    fn twice(&mut self, mut call: impl FnMut() -> Result<(), End>) -> Result<(), End> {
        call()?;
        if self.steps.chance(15) { call() } else { Ok(()) }
    }

    fn abort(&mut self, sink: &mut dyn Sink, epoch: u64) -> Result<(), End> {
        sink.write(&batch(&[GARBAGE]))?;
        if self.steps.chance(50) {
            sink.prepare(epoch)?;
        }
        self.twice(|| Ok(sink.abort(epoch)?))
    }

    /// Calls of an epoch that was committed, with rows that must not be seen.
    fn call_old(&mut self, sink: &mut dyn Sink) -> Result<(), End> {
        let last = self.committed.unwrap_or_default();
        let old = last - self.steps.below(last as usize + 1) as u64;
        if self.steps.chance(70) {
            sink.write(&batch(&[GARBAGE]))?;
            sink.prepare(old)?;
        }
        sink.commit(old)?;
        Ok(sink.abort(old)?)
    }

    fn finish(&mut self, sink: Box<dyn Sink>) -> Result<(), End> {
        self.finished.push(self.committed);
        sink.finish()?;
        self.kept = self.committed;
        Ok(())
    }

    /// Opens it where nothing has failed.
    fn reopen(&mut self) -> Result<Box<dyn Sink>, End> {
        self.called = self.committed;
        self.open()
    }

    fn open(&mut self) -> Result<Box<dyn Sink>, End> {
        let mut sink = self.trial.subject.open(&self.storage, "one", self.trial.planted)?;
        let recovered = match sink.recover() {
            Ok(recovered) => recovered,
            Err(failure) if self.trial.fault.is_some_and(|(at, _)| at < self.storage.call_count()) => {
                return Err(End::Failed(failure));
            }
            Err(failure) => return wrong(failure.message),
        };
        let Recovered::Through(epoch) = recovered else { return wrong("it forgets") };
        if epoch != self.committed && epoch != self.called && !self.is_silent_since(epoch) {
            let (committed, called, kept) = (self.committed, self.called, self.kept);
            return wrong(format!("{epoch:?} recovered, {committed:?} committed, {called:?} called, {kept:?} kept"));
        }
        (self.committed, self.called) = (epoch, epoch);
        Ok(sink)
    }

    /// Returns whether nothing was written after this epoch, which is not before what was kept: then it need not be recorded.
    fn is_silent_since(&self, epoch: Option<u64>) -> bool {
        let written = |last| rows_through(self.trial.seed, last);
        self.kept <= epoch && epoch < self.committed && written(epoch) == written(self.committed)
    }

    /// Checks that under the final name stands nothing, or what was finished.
    fn check_name(&self) -> Result<(), String> {
        let Some(contents) = self.trial.subject.contents(&self.storage)? else { return Ok(()) };
        let seed = self.trial.seed;
        match self.finished.iter().any(|last| contents == rows_through(seed, *last)) {
            true => Ok(()),
            false => Err(format!("{contents:?} stands under the final name")),
        }
    }

    fn check_end(&mut self) -> Result<(), String> {
        self.storage.heal();
        self.storage.cut_power();
        let (seed, last) = (self.trial.seed, Some(EPOCHS - 1));
        let contents = self.trial.subject.contents(&self.storage)?;
        if contents.as_ref() != Some(&rows_through(seed, last)) {
            return Err(format!("at the end {contents:?} is there"));
        }
        match self.open() {
            Ok(_) if self.committed == last => Ok(()),
            Ok(_) => Err(format!("at the end {:?} is committed", self.committed)),
            Err(End::Wrong(text) | End::Failed(IoFailure { message: text, .. })) => Err(text),
        }
    }
}
