//! The options of a run. None of them changes results. The command line and every front end have the same, under the
//! same names and in the same words.

use crate::epoch::{
    parse_bytes, parse_epoch, parse_flag, parse_keys, parse_latency, parse_logging, parse_memory, parse_proof,
    parse_sync, parse_time, parse_workers,
};
use crate::watch::Thresholds;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_runtime::{DurabilityOptions, Logging, Options, Proving, SchedulingError, Sync};

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The engine's options: workers, scheduling, sizes.
    pub engine: Options,
    /// The state directory of a durable run.
    pub state: Option<PathBuf>,
    /// The moment at which results of a durable run are released.
    pub sync: Option<Sync>,
    /// The part of each epoch that a durable run logs.
    pub logging: Option<Logging>,
    /// The proof that a durable run keeps.
    pub proof: Option<Proving>,
    /// The time between checkpoints of a durable run, where epochs come.
    pub checkpoint_every: Option<Duration>,
    /// The bytes of log between checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// The time that a replay after a crash may take.
    pub checkpoint_replay: Option<Duration>,
    /// The number of keys of calls that are in memory.
    pub keys_in_memory: Option<usize>,
    /// Keeps the state as it is when the run begins, as a savepoint of this name.
    pub savepoint: Option<String>,
    /// A flag: whether the end of the sources' input is the end for good: without a state it always is.
    pub is_final: bool,
    /// The operators whose open rows the program as it was closes first.
    pub ends: Vec<String>,
    /// A state or savepoint whose rows the tables of the same names begin with.
    pub seed: Option<PathBuf>,
    /// The Arrow file for a record of each epoch.
    pub epoch_records: Option<PathBuf>,
    /// The bounds beyond which the log warns.
    pub thresholds: Thresholds,
}

/// An option that cannot be what it was given as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Its name, as a front end gives it: with `_` for `-`.
    pub option: String,
    /// The fault of its value.
    pub message: String,
}

impl RunOptions {
    /// Sets an option that is given as text, by its name.
    pub fn set(&mut self, option: &str, value: &OsStr) -> Result<(), OptionError> {
        self.parse(option, value).map_err(|message| OptionError { option: option.into(), message })
    }

    fn parse(&mut self, option: &str, value: &OsStr) -> Result<(), String> {
        let text = || value.to_str().ok_or_else(|| format!("{value:?} is not UTF-8"));
        match option {
            "workers" => self.engine.workers = parse_workers(text()?)?,
            "epoch" => self.engine.epoch = parse_epoch(text()?)?,
            "latency" => self.engine.latency = parse_latency(text()?)?,
            "scheduling" => {
                self.engine.scheduling = text()?.parse().map_err(|error: SchedulingError| error.to_string())?
            }
            "state" => self.state = Some(value.into()),
            "sync" => self.sync = Some(parse_sync(text()?)?),
            "memory" => self.engine.memory = Some(parse_memory(text()?)?),
            "logging" => self.logging = Some(parse_logging(text()?)?),
            "proof" => self.proof = Some(parse_proof(text()?)?),
            "checkpoint_every" => self.checkpoint_every = Some(parse_time(text()?)?),
            "checkpoint_bytes" => self.checkpoint_bytes = Some(parse_bytes(text()?)?),
            "checkpoint_replay" => self.checkpoint_replay = Some(parse_time(text()?)?),
            "keys_in_memory" => self.keys_in_memory = Some(parse_keys(text()?)?),
            "savepoint" => self.savepoint = Some(text()?.to_owned()),
            "final" => self.is_final = parse_flag(text()?)?,
            "end" => self.ends = text()?.split(',').map(|name| name.trim().to_owned()).collect(),
            "seed" => self.seed = Some(value.into()),
            "epoch_records" => self.epoch_records = Some(value.into()),
            _ => return Err("there is no such option".into()),
        }
        Ok(())
    }

    /// Returns the options of a durable run, for the engine.
    pub(crate) fn durability(&self) -> DurabilityOptions {
        let sync = self.sync.unwrap_or_default();
        let (savepoint, is_final) = (self.savepoint.clone(), self.is_final);
        let defaults = DurabilityOptions::default();
        DurabilityOptions {
            sync,
            savepoint,
            is_final,
            checkpoint_age: self.checkpoint_every,
            checkpoint_log_bytes: self.checkpoint_bytes.unwrap_or(defaults.checkpoint_log_bytes),
            checkpoint_replay: self.checkpoint_replay.unwrap_or(defaults.checkpoint_replay),
            keys_in_memory: self.keys_in_memory.unwrap_or(defaults.keys_in_memory),
            proof: self.proof.unwrap_or(defaults.proof),
            ..defaults
        }
    }

    /// Refuses an option that means something for a durable run only, where there is no state.
    pub fn check(&self) -> Result<(), OptionError> {
        let given = [
            ("savepoint", self.savepoint.is_some()),
            ("memory", self.engine.memory.is_some()),
            ("sync", self.sync.is_some()),
            ("logging", self.logging.is_some()),
            ("proof", self.proof.is_some()),
            ("checkpoint_every", self.checkpoint_every.is_some()),
            ("checkpoint_bytes", self.checkpoint_bytes.is_some()),
            ("checkpoint_replay", self.checkpoint_replay.is_some()),
            ("keys_in_memory", self.keys_in_memory.is_some()),
            ("end", !self.ends.is_empty()),
        ];
        match given.into_iter().find(|(_, given)| *given && self.state.is_none()) {
            Some((option, _)) => Err(OptionError { option: option.into(), message: "it needs a state".into() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tidemill_runtime::{EpochSize, Policy, Scheduling};

    fn of(given: &[(&str, &str)]) -> Result<RunOptions, OptionError> {
        let mut options = RunOptions::default();
        given.iter().try_for_each(|(option, value)| options.set(option, OsStr::new(value)))?;
        options.check().map(|()| options)
    }

    #[test]
    fn options_are_set_by_name() {
        let options = of(&[
            ("workers", "2"),
            ("epoch", "20ms"),
            ("latency", "5ms"),
            ("scheduling", "transaction"),
            ("state", "s"),
            ("sync", "50ms"),
            ("memory", "64MiB"),
            ("logging", "full"),
            ("proof", "off"),
            ("checkpoint_every", "60s"),
            ("checkpoint_bytes", "256MiB"),
            ("checkpoint_replay", "10s"),
            ("keys_in_memory", "1000"),
            ("savepoint", "monday"),
            ("final", "true"),
            ("end", "win, pairs"),
            ("seed", "other"),
            ("epoch_records", "r.arrow"),
        ])
        .expect("all are right");
        assert_eq!((options.engine.workers, options.engine.epoch), (2, EpochSize::Age(20_000_000)));
        assert_eq!((options.engine.latency, options.engine.memory), (5_000_000, Some(64 << 20)));
        assert_eq!(options.engine.scheduling, Scheduling::Fixed(Policy::TRANSACTION));
        assert_eq!(
            (options.state.as_deref(), options.seed.as_deref()),
            (Some(Path::new("s")), Some(Path::new("other")))
        );
        assert_eq!((options.logging, options.savepoint.as_deref()), (Some(Logging::Full), Some("monday")));
        assert_eq!((options.proof, options.durability().proof), (Some(Proving::Off), Proving::Off));
        assert_eq!(RunOptions::default().durability().proof, Proving::On);
        assert_eq!(options.ends, ["win", "pairs"]);
        assert!(options.is_final && !RunOptions::default().is_final);
        let durability = options.durability();
        assert_eq!(durability.checkpoint_age, Some(Duration::from_secs(60)));
        assert_eq!(durability.checkpoint_replay, Duration::from_secs(10));
        assert_eq!((durability.checkpoint_log_bytes, durability.keys_in_memory), (256 << 20, 1000));
        assert!(options.sync.is_some() && options.epoch_records.is_some());
    }

    #[test]
    fn wrong_options_are_named() {
        for option in ["workers", "epoch", "latency", "scheduling", "sync", "memory", "logging", "final", "speed"] {
            assert_eq!(of(&[(option, "?")]).unwrap_err().option, option);
        }
        for option in ["checkpoint_every", "checkpoint_bytes", "checkpoint_replay", "keys_in_memory", "proof"] {
            assert_eq!(of(&[(option, "?")]).unwrap_err().option, option);
        }
        for (option, value) in [
            ("savepoint", "monday"),
            ("memory", "64MiB"),
            ("sync", "epoch"),
            ("logging", "full"),
            ("proof", "on"),
            ("checkpoint_every", "1s"),
            ("checkpoint_bytes", "1MiB"),
            ("checkpoint_replay", "1s"),
            ("end", "win"),
        ] {
            let error = of(&[(option, value)]).unwrap_err();
            assert_eq!((error.option.as_str(), error.message.as_str()), (option, "it needs a state"));
            assert!(of(&[(option, value), ("state", "s")]).is_ok());
        }
    }
}
