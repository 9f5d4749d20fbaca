//! Sinks of one state, which share the record of what they have released.
//!
//! An epoch is committed as the engine does it: all sinks prepare it, then all commit it. After a fault a new process asks each
//! sink what it has, and gives it the epochs after that. The contract holds for each by itself, also where the record was
//! written for another; and a sink that is given nothing makes no calls.

use crate::subjects::{RECORD, batch, read_jsonl, schema};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_connect::{SinkDurability, WriteJsonl};
use tidemill_durability::{Bug, Planted, Storage};
use tidemill_histories::Random;
use tidemill_io::{IoFailure, Recovered, Sink, SinkConnection};
use tidemill_sim::{Call, Fault, SimStorage};

const SINKS: usize = 3;
/// Epochs in a script.
const EPOCHS: u64 = 8;
const SEEDS: u64 = 4;

fn path(sink: usize) -> String {
    format!("out/{sink}")
}

/// Returns the rows that an epoch gives a sink: often none.
fn rows(seed: u64, sink: usize, epoch: u64) -> Vec<i64> {
    let mut random = Random::new(seed * 1000 + epoch * 10 + sink as u64);
    let value = (epoch as i64) * 2;
    if random.chance(50) { vec![value, value + 1] } else { Vec::new() }
}

/// Returns the rows that the epochs up to one give a sink.
fn rows_through(seed: u64, sink: usize, last: Option<u64>) -> Vec<i64> {
    last.map_or(Vec::new(), |last| (0..=last).flat_map(|epoch| rows(seed, sink, epoch)).collect())
}

fn open(storage: &SimStorage, sinks: usize, planted: Planted) -> Result<Vec<Box<dyn Sink>>, IoFailure> {
    let durable = SinkDurability::at(Arc::new(storage.clone()), "one", planted, Path::new(RECORD));
    let open = |sink| WriteJsonl { path: path(sink), compression: None }.open(&schema(), Some(&durable));
    (0..sinks).map(open).collect()
}

fn recover(sinks: &mut [Box<dyn Sink>]) -> Result<Vec<Option<u64>>, IoFailure> {
    let recover = |sink: &mut Box<dyn Sink>| match sink.recover()? {
        Recovered::Through(epoch) => Ok(epoch),
        Recovered::Forgets => panic!("it keeps a record"),
    };
    sinks.iter_mut().map(recover).collect()
}

/// Has all sinks commit what was written.
fn commit(sinks: &mut [Box<dyn Sink>], epoch: u64) -> Result<(), IoFailure> {
    sinks.iter_mut().try_for_each(|sink| sink.prepare(epoch))?;
    sinks.iter_mut().try_for_each(|sink| sink.commit(epoch))
}

fn machine(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed);
    for directory in ["out", "state"] {
        storage.create_directory(Path::new(directory)).expect("no fault yet");
    }
    storage
}

/// The knowledge that processes have of each other.
#[derive(Default)]
struct Known {
    /// The last epoch whose commit has returned, of all sinks; and the last whose was called.
    committed: Option<u64>,
    called: Option<u64>,
    /// The last epoch after which all sinks have kept it.
    kept: Option<u64>,
}

impl Known {
    /// Returns the fault of the epoch that a sink says it has, if it has one.
    fn wrong(&self, seed: u64, sink: usize, epoch: Option<u64>) -> Option<String> {
        let through = |last| rows_through(seed, sink, last);
        let Known { committed, called, kept } = self;
        let lacks = epoch < *committed && through(epoch) != through(*committed);
        let is_wrong = lacks || epoch > *called || epoch < *kept;
        is_wrong.then(|| format!("sink {sink}: {epoch:?} recovered of {committed:?}, {called:?} called, {kept:?} kept"))
    }
}

/// Runs one process; the outer result is the failure of a call, the inner one is what is wrong.
fn process(storage: &SimStorage, seed: u64, known: &mut Known) -> Result<Result<(), String>, IoFailure> {
    let mut sinks = open(storage, SINKS, Planted::default())?;
    let recovered = recover(&mut sinks)?;
    if let Some(wrong) = recovered.iter().enumerate().find_map(|(sink, epoch)| known.wrong(seed, sink, *epoch)) {
        return Ok(Err(wrong));
    }
    let first = recovered.iter().min().expect("several").map_or(0, |last| last + 1);
    for epoch in first..EPOCHS {
        for (s, sink) in sinks.iter_mut().enumerate().filter(|(s, _)| recovered[*s] < Some(epoch)) {
            sink.write(&batch(&rows(seed, s, epoch)))?;
        }
        known.called = known.called.max(Some(epoch));
        commit(&mut sinks, epoch)?;
        known.committed = known.committed.max(Some(epoch));
        if Random::new(seed + epoch).chance(30) {
            sinks.iter_mut().try_for_each(|sink| sink.keep())?;
            known.kept = known.committed;
        }
    }
    sinks.into_iter().try_for_each(|sink| sink.finish())?;
    Ok(Ok(()))
}

/// Processes until one comes to the end, under a fault at a call of the first; the calls of all.
fn trial(seed: u64, fault: Option<(usize, Fault)>) -> Result<Vec<Call>, String> {
    let (storage, mut known) = (machine(seed), Known::default());
    let begun = storage.call_count();
    fault.into_iter().for_each(|(at, fault)| storage.fail(begun + at, fault));
    let mut random = Random::new(seed);
    for _ in 0..3 {
        match process(&storage, seed, &mut known) {
            Ok(ended) => {
                ended?;
                storage.heal();
                storage.cut_power();
                for sink in 0..SINKS {
                    let there = storage.files().get(&PathBuf::from(path(sink))).map(|bytes| read_jsonl(bytes));
                    let expected = rows_through(seed, sink, Some(EPOCHS - 1));
                    if there != Some(Ok(expected)) {
                        return Err(format!("at the end sink {sink} has {there:?}"));
                    }
                }
                return Ok(storage.calls().split_off(begun));
            }
            Err(failure) if fault.is_none() => return Err(format!("a call failed for no reason: {failure}")),
            Err(_) if storage.is_off() || random.chance(30) => storage.cut_power(),
            Err(_) => storage.kill(),
        }
    }
    Err("it does not come to an end".into())
}

#[test]
fn sinks_that_share_a_record_keep_the_contract() {
    let mut runs = 0;
    for seed in 1..=SEEDS {
        let calls = trial(seed, None).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        for (at, call) in calls.iter().enumerate() {
            for fault in crate::faults(call) {
                trial(seed, Some((at, fault)))
                    .unwrap_or_else(|wrong| panic!("seed {seed}, {call:?}, {fault:?}: {wrong}"));
                runs += 1;
            }
        }
    }
    println!("{runs} runs of {SINKS} sinks");
}

/// Returns the calls for an epoch that gives rows to this many of the sinks that there are.
fn calls_for(writers: usize, sinks: usize, planted: Planted) -> usize {
    let storage = machine(1);
    let mut sinks = open(&storage, sinks, planted).expect("no fault");
    recover(&mut sinks).expect("no fault");
    let mut epoch = |epoch, writers: usize| {
        let before = storage.call_count();
        sinks[..writers].iter_mut().for_each(|sink| sink.write(&batch(&[1])).expect("no fault"));
        commit(&mut sinks, epoch).expect("no fault");
        storage.call_count() - before
    };
    epoch(1, writers);
    epoch(2, writers)
}

#[test]
fn a_sink_with_nothing_to_say_costs_nothing() {
    let honest = Planted::default();
    for writers in 0..3 {
        assert_eq!(calls_for(writers, 12, honest), calls_for(writers, writers, honest), "{writers} writers");
    }
    assert_eq!(calls_for(0, 12, honest), 0);
    assert!(calls_for(0, 12, Planted::new(Bug::SilentSinkSyncs)) >= 12, "the bug shows");
    let of_a_writer = calls_for(2, 12, honest) - calls_for(1, 12, honest);
    let with_its_record = calls_for(1, 12, honest);
    assert!(of_a_writer < with_its_record, "a second writer shares the record");
}
