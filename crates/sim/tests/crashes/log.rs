//! The log alone, through many crashes: what was synced is read back in order, and only what was pushed is read. This is
//! much quicker than whole runs, so that rare crashes come often.

use crate::search::Search;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_durability::{Bug, Chain, Course, Head, Log, LogReader, Planted, StateError, Storage};
use tidemill_histories::Random;
use tidemill_sim::{Fault, SimStorage};

const ID: u64 = 7;
const LIVES: usize = 6;

fn payload(epoch: u64) -> Vec<u8> {
    let length = epoch * 131 % 257 + if epoch.is_multiple_of(7) { 900 } else { 0 };
    (0..length).map(|i| (i ^ epoch) as u8 | 1).collect()
}

/// Returns the chain of the log before its first epoch.
fn chain() -> Option<Chain> {
    Some(Chain::begin(Course { id: ID, number: 0 }, 0))
}

/// Returns the head that a log has after an epoch, whatever its lives were.
fn head(epoch: u64) -> Option<Head> {
    let mut chain = chain()?;
    (1..=epoch).for_each(|epoch| chain.link(epoch, &payload(epoch)));
    Some(chain.head())
}

/// Pushes, writes and syncs until something fails.
fn live(log: &mut Log, random: &mut Random, synced: &mut u64, epochs: u64) -> Result<(), StateError> {
    for _ in 0..epochs {
        for _ in 0..1 + random.below(3) {
            let epoch = log.epoch() + 1;
            log.push(epoch, &payload(epoch));
        }
        log.write()?;
        if random.chance(70) {
            log.sync()?;
            *synced = log.epoch();
            log.roll()?;
        }
        if random.chance(20) {
            log.mark();
        }
    }
    Ok(())
}

/// Runs a log through its lives; what is wrong with it.
fn trial(seed: u64, planted: Planted) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let storage = SimStorage::new(seed);
    let directory = PathBuf::from("log");
    storage.create_directory(&directory).expect("no fault");
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let mut log = Log::create(shared.clone(), directory.clone(), ID, 0).expect("no fault");
    log.prove(chain());
    let (mut synced, mut crashes) = (0, 0);
    for _ in 0..LIVES {
        log.plant(planted);
        log.set_segment_bytes(1500);
        use std::io::ErrorKind::Other;
        let fault = [Fault::CutBefore, Fault::CutAfter, Fault::Dropped(Other), Fault::Half(Other)];
        storage.fail(storage.call_count() + random.below(16), *random.pick(&fault));
        let epochs = random.below(10) as u64;
        crashes += u64::from(live(&mut log, &mut random, &mut synced, epochs).is_err());
        storage.heal();
        drop(log);
        if random.chance(60) {
            storage.cut_power()
        } else {
            storage.kill()
        }
        let wrong = |error: StateError| format!("{synced} synced: {error}");
        let mut reader = LogReader::open(shared.clone(), directory.clone(), ID, 0).map_err(wrong)?;
        reader.plant(planted);
        reader.prove(chain());
        let mut last = 0;
        while let Some(read) = reader.next_epoch().map_err(wrong)? {
            if read.epoch != last + 1 || read.payload != payload(read.epoch) {
                return Err(format!("epoch {} is read after {last}, or with another payload", read.epoch));
            }
            last = read.epoch;
        }
        if last < synced {
            return Err(format!("{last} is the last epoch, and {synced} was synced"));
        }
        // Recovery may end as early as anything else.
        storage.fail(storage.call_count() + random.below(12), Fault::CutAfter);
        log = match reader.into_log() {
            Ok(log) => log,
            Err(_) => {
                crashes += 1;
                storage.heal();
                storage.cut_power();
                let mut reader = LogReader::open(shared.clone(), directory.clone(), ID, 0).map_err(wrong)?;
                reader.prove(chain());
                while reader.next_epoch().map_err(wrong)?.is_some() {}
                reader.into_log().map_err(wrong)?
            }
        };
        storage.heal();
        // Epochs that recovery has read and made durable may have been released.
        if log.epoch() < synced {
            return Err(format!("it goes on after {}, and {synced} was synced", log.epoch()));
        }
        if log.proof().map(|chain| chain.head()) != head(log.epoch()) {
            return Err(format!("the chain is another one after {}", log.epoch()));
        }
        synced = log.epoch();
    }
    Ok(crashes)
}

#[test]
fn a_log_through_many_lives() {
    let trials = super::number("TIDEMILL_CRASHES", 1_000);
    let first = super::number("TIDEMILL_SEED", 1);
    let crash = |seed| trial(seed, Planted::default()).unwrap_or_else(|wrong| panic!("log seed {seed}: {wrong}"));
    let crashes: u64 = (first..first + trials).map(crash).sum();
    println!("{crashes} crashes of {trials} logs, from seed {first}");
}

/// The epochs that were durable are gone, or others are read in their place.
const LOST: &[&str] = &["is the last epoch, and", "it goes on after"];
const ANOTHER: &[&str] = &["is read after"];
const REFUSED: &[&str] = &["is damaged"];

#[test]
fn bugs_planted_in_the_log_are_found() {
    const SEEDS: u64 = 3_000;
    let bugs: [(Bug, &[&str]); 8] = [
        (Bug::LogUnsynced, LOST),
        (Bug::LogFillsUnsynced, &["is damaged", "is the last epoch, and", "it goes on after"]),
        (Bug::LogMarksUnsynced, REFUSED),
        (Bug::LogUnchecked, ANOTHER),
        (Bug::LogKeepsTornTail, REFUSED),
        (Bug::LogDropsUnmarked, LOST),
        (Bug::LogTrustsUnmarked, &["is damaged", "is the last epoch, and", "it goes on after"]),
        (Bug::ReplaySkipsFirst, ANOTHER),
    ];
    let run = |seed, planted| {
        let ended = std::panic::catch_unwind(|| trial(seed, planted).map(drop));
        ended.unwrap_or_else(|_| Err("panic".into()))
    };
    for (bug, shows) in bugs {
        let mut search = Search::new(bug, shows);
        let finds = |seed: &u64| search.finds(seed, run(*seed, Planted::new(bug)), || run(*seed, Planted::default()));
        let found = (1..SEEDS).find(finds);
        assert!(found.is_some(), "{}", search.missed());
    }
}
