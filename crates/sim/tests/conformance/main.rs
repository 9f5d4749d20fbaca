//! Every sink there is, held to the contract of [`tidemill_io::Sink`] on simulated files: a fault
//! of every kind at every call that it makes, and each bug that can be planted in it is found.
//!
//! `TIDEMILL_SINK_SEEDS` sets how many scripts each sink goes through (2), `TIDEMILL_SEED` the first.

mod contract;
#[path = "../search/mod.rs"]
mod search;
mod shared;
mod subjects;

use contract::{Trial, run};
use search::Search;
use std::env::var;
use std::path::Path;
use subjects::{Subject, subjects};
use tidemill_durability::{Bug, Planted, read_all, replace};
use tidemill_io::{Recovered, Sink};
use tidemill_sim::{Call, Fault, Operation, SimStorage};

fn number(name: &str, default: u64) -> u64 {
    var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text}")))
}

/// Returns the faults that a call can have, and those of what is read.
fn faults(call: &Call) -> Vec<Fault> {
    let mut faults = call.faults();
    if call.operation == Operation::ReadAt {
        faults.extend([Fault::Refused(std::io::ErrorKind::Other), Fault::Flipped]);
    }
    faults
}

/// Tries a script without faults, then with each at each of its calls, until `ends` says so of one.
fn try_all<'a>(script: Trial<'a>, ends: &mut dyn FnMut(&Trial<'a>, Result<(), String>) -> bool) -> bool {
    let calls = match run(&script) {
        Ok(calls) => calls,
        Err(wrong) => return ends(&script, Err(wrong)),
    };
    if ends(&script, Ok(())) {
        return true;
    }
    calls.iter().enumerate().any(|(at, call)| {
        faults(call).into_iter().any(|fault| {
            let trial = Trial { fault: Some((at, fault)), ..script };
            let ended = run(&trial).map(drop).map_err(|wrong| format!("{call:?}: {wrong}"));
            ends(&trial, ended)
        })
    })
}

#[test]
fn every_sink_keeps_the_contract() {
    let (first, seeds) = (number("TIDEMILL_SEED", 1), number("TIDEMILL_SINK_SEEDS", 2));
    let mut runs = 0;
    for subject in subjects() {
        for seed in first..first + seeds {
            try_all(Trial::honest(&subject, seed), &mut |trial, ended| {
                ended.unwrap_or_else(|wrong| panic!("{}, seed {seed}, {:?}: {wrong}", subject.name, trial.fault));
                runs += 1;
                false
            });
        }
    }
    println!("{runs} runs of {} sinks, {seeds} scripts each, from seed {first}", subjects().len());
}

/// A bug in the sink, or a sync that is left out, breaks this part of the contract of some sink under some script.
fn is_found(what: &str, planted: Planted, lie: Option<&str>, shows: &[&str]) {
    const SEEDS: u64 = 20;
    let subjects = subjects();
    let mut search = Search::new(what, shows);
    let found = (1..=SEEDS).any(|seed| {
        subjects.iter().any(|subject| {
            try_all(Trial { planted, lie, ..Trial::honest(subject, seed) }, &mut |trial, with| {
                let honest = Trial { planted: Planted::default(), lie: None, ..*trial };
                search.finds((subject.name, seed, trial.fault), with, || run(&honest).map(drop))
            })
        })
    });
    assert!(found, "{}", search.missed());
}

/// The content in the end is not what was committed.
const CONTENTS: &[&str] = &["at the end"];
/// Another epoch is recovered than the last that was committed.
const EPOCH: &[&str] = &["recovered,"];
/// The sink finds its own record damaged.
const RECORD: &[&str] = &["state/sinks, which says what of out/result was released, cannot be used"];

#[test]
fn planted_bugs_are_found() {
    let bugs: [(Bug, &[&str]); 14] = [
        (Bug::SinkTakesOldEpochs, &["was not prepared"]),
        (Bug::SinkKeepsTail, CONTENTS),
        (Bug::SinkKeepsAborted, CONTENTS),
        (Bug::SinkCommitsUnprepared, CONTENTS),
        (Bug::SinkRecordsFirst, CONTENTS),
        (Bug::SinkRecordsInPlace, RECORD),
        (Bug::SinkForgetsErrors, &["after a failure, calls succeed"]),
        (Bug::SinkIgnoresOwner, EPOCH),
        (Bug::SinkFinishesUnrecorded, &["with what was released, is gone"]),
        (Bug::SinkRestartsFinished, CONTENTS),
        (Bug::SinkBuffersBeyondCommit, CONTENTS),
        (Bug::SinkRepeatsHeader, &["an odd line: \"a,s\""]),
        (Bug::SinkFramesAcrossCommits, &["corrupt deflate stream"]),
        (Bug::SinkSkipsEmptyEpochs, EPOCH),
    ];
    for (bug, shows) in bugs {
        is_found(&format!("{bug:?}"), Planted::new(bug), None, shows);
    }
}

#[test]
fn syncs_that_are_left_out_are_found() {
    let lies = [
        ("tidemill-part", CONTENTS),
        ("sinks.new", RECORD),
        ("state", EPOCH),
        ("tidemill-copy", CONTENTS),
        ("out", CONTENTS),
    ];
    for (end, shows) in lies {
        is_found(end, Planted::default(), Some(end), shows);
    }
}

/// Returns how many bits of a file can be flipped without being noticed when the sink recovers.
fn believed(subject: &Subject, storage: &SimStorage, file: &Path, planted: Planted) -> usize {
    let length = storage.files()[file].len();
    assert!(length > 0, "there is something to damage");
    let mut believed = 0;
    for (byte, bit) in (0..length).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        storage.flip(file, byte, bit);
        let damaged = storage.files();
        let recovered = subject.open(storage, "one", planted).and_then(|mut sink| sink.recover());
        believed += usize::from(recovered.is_ok());
        assert!(recovered.is_ok() || storage.files() == damaged, "what is refused stays as it is");
        storage.flip(file, byte, bit);
    }
    believed
}

#[test]
fn what_was_released_is_refused_with_any_bit_turned() {
    for subject in subjects() {
        let begun = || contract::committed(&subject, 3);
        let finished = || {
            let storage = begun();
            let mut sink = subject.open(&storage, "one", Planted::default()).unwrap();
            sink.recover().unwrap();
            sink.finish().unwrap();
            storage
        };
        let check = |storage: &dyn Fn() -> SimStorage, file: &Path, bug| {
            assert_eq!(believed(&subject, &storage(), file, Planted::default()), 0, "{}, {file:?}", subject.name);
            assert!(believed(&subject, &storage(), file, Planted::new(bug)) > 0, "{}, {file:?}", subject.name);
        };
        check(&begun, Path::new(subjects::RECORD), Bug::SinkTrustsRecord);
        check(&begun, &subject.beside("part"), Bug::SinkTrustsPart);
        if !subject.is_columnar() {
            check(&finished, Path::new(subjects::PATH), Bug::SinkTrustsPart);
            check(&|| unnamed(&subject, &finished), &subject.beside("part"), Bug::SinkTrustsPart);
            for planted in [Planted::default(), Planted::new(Bug::SinkTrustsPart)] {
                let storage = finished();
                let mut sink = subject.open(&storage, "one", planted).unwrap();
                sink.recover().unwrap();
                // While a run goes on, before it has something to write.
                storage.flip(Path::new(subjects::PATH), 0, 0);
                let damaged = storage.files()[Path::new(subjects::PATH)].clone();
                sink.write(&subjects::batch(&[2])).unwrap();
                let goes_on = sink.prepare(4).is_ok();
                assert_eq!(goes_on, planted.is(Bug::SinkTrustsPart), "{}", subject.name);
                let files = storage.files();
                assert_eq!(files[Path::new(subjects::PATH)], damaged, "{}", subject.name);
                assert_eq!(files.contains_key(&subject.beside("part")), goes_on, "{}", subject.name);
            }
        }
    }
}

/// A recovery cuts off what was prepared and not committed, and a power cut does not bring it back under the final name.
#[test]
fn what_was_cut_off_stays_so() {
    for (subject, seed) in subjects().iter().flat_map(|subject| (0..20).map(move |seed| (subject, seed))) {
        let storage = contract::committed_on(SimStorage::new(seed), subject, 3);
        let mut sink = subject.open(&storage, "one", Planted::default()).unwrap();
        sink.recover().unwrap();
        sink.write(&subjects::batch(&[2, 3])).unwrap();
        sink.prepare(4).unwrap();
        drop(sink);
        storage.kill();
        let mut sink = subject.open(&storage, "one", Planted::default()).unwrap();
        assert_eq!(sink.recover().unwrap(), Recovered::Through(Some(3)), "{}", subject.name);
        sink.finish().unwrap();
        storage.cut_power();
        assert_eq!(subject.contents(&storage).unwrap(), Some(vec![1]), "{}", subject.name);
    }
}

/// Another file has its note when an output is copied; an earlier record beside the output itself is refused.
#[test]
fn an_older_state_is_refused() {
    for subject in subjects() {
        for planted in [Planted::default(), Planted::new(Bug::SinkIgnoresNote)] {
            let storage = contract::committed(&subject, 3);
            let older = read_all(&storage, Path::new(subjects::RECORD)).unwrap();
            let mut sink = subject.open(&storage, "one", planted).unwrap();
            sink.recover().unwrap();
            sink.write(&subjects::batch(&[2])).unwrap();
            sink.prepare(4).unwrap();
            sink.commit(4).unwrap();
            drop(sink);
            storage.kill();
            let copied = |name: &str| {
                let copy = storage.files();
                let storage = SimStorage::new(2);
                contract::make_directories(&storage);
                // Files are numbered as they are made.
                replace(&storage, Path::new("out/other"), b"").unwrap();
                for (path, bytes) in copy {
                    replace(&storage, &path, if path.ends_with(name) { &older } else { &bytes }).unwrap();
                }
                subject.open(&storage, "one", planted).and_then(|mut sink| sink.recover())
            };
            assert_eq!(copied("sinks").unwrap(), Recovered::Through(Some(3)), "{}", subject.name);
            assert_eq!(copied("none").unwrap(), Recovered::Through(Some(4)), "{}", subject.name);
            replace(&storage, Path::new(subjects::RECORD), &older).unwrap();
            let before = storage.files();
            let opened = subject.open(&storage, "one", planted).and_then(|mut sink| sink.recover());
            if planted.is(Bug::SinkIgnoresNote) {
                assert_eq!(opened.unwrap(), Recovered::Through(Some(3)), "{}", subject.name);
            } else {
                let message = opened.unwrap_err().message;
                let said = "has what epoch 4 of this state released, and the state knows of epoch 3";
                assert!(message.contains(said), "{}: {message}", subject.name);
                assert_eq!(storage.files(), before, "{}", subject.name);
            }
        }
    }
}

/// A finished output that went on and was finished again, but for its name, which the older one has.
fn unnamed(subject: &Subject, finished: &dyn Fn() -> SimStorage) -> SimStorage {
    for call in 0.. {
        let storage = finished();
        let mut sink = subject.open(&storage, "one", Planted::default()).unwrap();
        sink.recover().unwrap();
        sink.write(&subjects::batch(&[2])).unwrap();
        sink.prepare(4).unwrap();
        sink.commit(4).unwrap();
        storage.fail(storage.call_count() + call, Fault::Refused(std::io::ErrorKind::Other));
        let ended = sink.finish();
        let last = storage.calls().pop().expect("there were calls");
        if ended.is_err() && last.operation == Operation::Rename && last.path == Path::new(subjects::PATH) {
            storage.heal();
            storage.kill();
            return storage;
        }
        assert!(ended.is_err(), "{}: a finish without a renaming", subject.name);
    }
    unreachable!("it ends")
}

/// A sink that keeps no record says so, and accepts the calls of the contract all the same.
#[test]
fn sinks_that_forget_say_so() {
    struct Shown(Vec<usize>);
    impl Sink for Shown {
        fn write(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), tidemill_io::IoFailure> {
            self.0.push(batch.num_rows());
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), tidemill_io::IoFailure> {
            Ok(())
        }
    }
    let mut null = subjects::null();
    let mut own = Shown(Vec::new());
    let sinks: [&mut dyn Sink; 2] = [&mut *null, &mut own];
    for sink in sinks {
        assert_eq!(sink.recover().unwrap(), Recovered::Forgets);
        for epoch in [3, 3, 2] {
            sink.write(&subjects::batch(&[1, 2])).unwrap();
            sink.prepare(epoch).unwrap();
            sink.commit(epoch).unwrap();
            sink.abort(epoch).unwrap();
        }
    }
    assert_eq!(own.0, [2, 2, 2], "at least once: all that was written was shown");
}
