//! The texts that say when an epoch ends and how it is made durable: the command line and every front end take the
//! same ones.

use std::time::Duration;
use tidemill_runtime::{EpochSize, Logging, Proving, Sync};

/// Most events of an epoch of fixed size.
pub const EPOCH_EVENTS_MAX: usize = 1 << 24;

/// Greatest age of an epoch in nanoseconds: an hour.
pub const EPOCH_AGE_MAX: u64 = 3_600_000_000_000;

const UNITS: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Most threads of a run.
pub const WORKERS_MAX: usize = 1024;

/// Parses a number of threads.
pub fn parse_workers(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(workers @ 1..=WORKERS_MAX) => Ok(workers),
        _ => Err(format!("'{text}' is not a number of threads; give 1 to {WORKERS_MAX}")),
    }
}

/// Parses `epoch`, or a time between syncs with its unit.
pub fn parse_sync(text: &str) -> Result<Sync, String> {
    if text.trim() == "epoch" {
        return Ok(Sync::Epoch);
    }
    match parse_epoch(text) {
        Ok(EpochSize::Age(nanoseconds)) => Ok(Sync::Every(Duration::from_nanos(nanoseconds))),
        _ => Err(format!("'{text}' is not a mode of syncing; give epoch, or a time of up to 3600s such as 50ms")),
    }
}

/// The least limit of memory: below it, what is kept free for indexes does not suffice, and rows take more.
pub const MEMORY_MIN: usize = 32 << 20;

/// Parses bytes with their unit (`512MiB`, `2GiB`, `4 GB`).
pub fn parse_memory(text: &str) -> Result<usize, String> {
    match bytes_of(text) {
        Some(bytes) if bytes >= MEMORY_MIN => Ok(bytes),
        Some(_) => Err(format!("a limit of {} is too little; give 32MiB or more", text.trim())),
        None => Err(format!("'{text}' is not a limit of memory; give bytes with their unit, such as 512MiB or 2GiB")),
    }
}

/// Returns bytes that are given with their unit.
fn bytes_of(text: &str) -> Option<usize> {
    const UNITS: [(&str, usize); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let (number, unit) = UNITS.iter().find_map(|(unit, bytes)| Some((text.trim().strip_suffix(unit)?, *bytes)))?;
    number.trim().parse::<usize>().ok()?.checked_mul(unit)
}

/// Parses bytes of a log with their unit.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match bytes_of(text) {
        Some(bytes) if bytes > 0 => Ok(bytes as u64),
        _ => Err(format!("'{text}' is not a size of a log; give bytes with their unit, such as 256MiB")),
    }
}

/// A number of keys.
pub fn parse_keys(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(keys) if keys > 0 => Ok(keys),
        _ => Err(format!("'{text}' is not a number of keys; give one such as 1000000")),
    }
}

/// Parses a time with its unit (`500ms`, `30s`).
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_epoch(text) {
        Ok(EpochSize::Age(nanoseconds)) => Ok(Duration::from_nanos(nanoseconds)),
        _ => Err(format!("'{text}' is not a time; give one with its unit such as 30s, 1us to 3600s")),
    }
}

/// Parses a flag: `true` or `false`.
pub fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" => Ok(true),
        "false" | "False" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// Parses whether a chain of proof is kept: `on`, or `off`.
pub fn parse_proof(text: &str) -> Result<Proving, String> {
    match text {
        "on" => Ok(Proving::On),
        "off" => Ok(Proving::Off),
        _ => Err(format!("'{text}' is not on, or off")),
    }
}

/// Parses `border` or `full`.
pub fn parse_logging(text: &str) -> Result<Logging, String> {
    match text.trim() {
        "border" => Ok(Logging::Border),
        "full" => Ok(Logging::Full),
        _ => Err(format!("'{text}' is not a way of logging; give border, or full")),
    }
}

/// Parses `auto`, a number of events (`1000`), or an age with its unit (`500us`, `20ms`, `1s`).
pub fn parse_epoch(text: &str) -> Result<EpochSize, String> {
    let text = text.trim();
    if text == "auto" {
        return Ok(EpochSize::Auto);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    if number.is_empty() || !(unit.is_empty() || known.is_some()) {
        return Err(format!(
            "'{text}' is not a size of an epoch; give auto, a number of events such as 1000, or an age such as 20ms"
        ));
    }
    let number: u64 = number.parse().unwrap_or(u64::MAX);
    match known {
        None if number == 0 || number > EPOCH_EVENTS_MAX as u64 => {
            Err(format!("an epoch of {text} events is out of range; give 1 to {EPOCH_EVENTS_MAX}"))
        }
        None => Ok(EpochSize::Events(number as usize)),
        Some((_, unit)) => match number.checked_mul(*unit) {
            Some(age) if (1..=EPOCH_AGE_MAX).contains(&age) => Ok(EpochSize::Age(age)),
            _ => Err(format!("an epoch of {text} is out of range; give 1us to 3600s")),
        },
    }
}

/// Parses a latency with its unit (`500us`, `20ms`, `1s`), in nanoseconds.
pub fn parse_latency(text: &str) -> Result<u64, String> {
    match parse_epoch(text) {
        Ok(EpochSize::Age(latency)) => Ok(latency),
        _ => Err(format!("'{text}' is not a latency; give a time with its unit such as 20ms, 1us to 3600s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_workers("2"), Ok(2));
        for text in ["0", "1025", "x", "-1"] {
            assert!(parse_workers(text).unwrap_err().contains("is not a number of threads"), "{text}");
        }
        assert_eq!(parse_epoch("auto"), Ok(EpochSize::Auto));
        assert_eq!(parse_epoch("1000"), Ok(EpochSize::Events(1000)));
        assert_eq!(parse_epoch("20ms"), Ok(EpochSize::Age(20_000_000)));
        assert_eq!(parse_epoch("5 us"), Ok(EpochSize::Age(5_000)));
        assert_eq!(parse_epoch("3600s"), Ok(EpochSize::Age(EPOCH_AGE_MAX)));
    }

    #[test]
    fn loggings() {
        assert_eq!(parse_logging("border"), Ok(Logging::Border));
        assert_eq!(parse_logging("full"), Ok(Logging::Full));
        assert!(parse_logging("weak").unwrap_err().contains("is not a way of logging"));
    }

    #[test]
    fn syncs() {
        assert_eq!(parse_sync("epoch"), Ok(Sync::Epoch));
        assert_eq!(parse_sync("50ms"), Ok(Sync::Every(Duration::from_millis(50))));
        for text in ["", "auto", "50", "never", "0ms"] {
            assert!(parse_sync(text).unwrap_err().contains("is not a mode of syncing"), "{text}");
        }
    }

    #[test]
    fn memory() {
        assert_eq!(parse_memory("2GiB"), Ok(2 << 30));
        assert_eq!(parse_memory(" 64 MB "), Ok(64_000_000));
        assert!(parse_memory("31MiB").unwrap_err().contains("is too little"));
        for text in ["", "2", "GiB", "2 gigabytes", "-1GiB", "1.5GiB", "99999999999999TiB"] {
            assert!(parse_memory(text).unwrap_err().contains("is not a limit of memory"), "{text}");
        }
    }

    #[test]
    fn measures_of_checkpoints() {
        assert_eq!(parse_bytes("64KiB"), Ok(64 << 10));
        for text in ["", "64", "0MiB", "KiB", "99999999999999TiB"] {
            assert!(parse_bytes(text).unwrap_err().contains("is not a size of a log"), "{text}");
        }
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        for text in ["", "30", "auto", "0s", "3601s", "1h"] {
            assert!(parse_time(text).unwrap_err().contains("is not a time"), "{text}");
        }
    }

    #[test]
    fn refusals() {
        for text in ["", "ms", "-1", "1.5s", "20 min", "true", "1000 events"] {
            assert!(parse_epoch(text).unwrap_err().contains("is not a size of an epoch"), "{text}");
        }
        for text in ["0", "0ms", "3601s", "16777217", "99999999999999999999", "99999999999999999999s"] {
            assert!(parse_epoch(text).unwrap_err().contains("is out of range"), "{text}");
        }
    }
}
