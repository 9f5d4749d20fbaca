//! The sources of settings, and the log of a run.

use crate::log::{Log, LogFormat, LogLevel};
use crate::watch::Thresholds;
use clap::{Args, value_parser};
use std::path::PathBuf;
use tracing::Dispatch;

/// The sources of settings, and the log of the run.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// Read settings from this TOML file: options by their names, and tables [run] and [serve]. The environment goes before
    /// the file (TIDEMILL_STATE is --state), and the command line before both.
    #[arg(long, value_name = "FILE", help_heading = "Log and settings")]
    pub config: Option<PathBuf>,
    /// The form of the lines of the log, on standard error. With 'json' everything that is said there is a JSON object,
    /// errors and warnings, too.
    #[arg(
        long,
        value_enum,
        value_name = "text|json",
        default_value = "text",
        help_heading = "Log and settings",
        hide_possible_values = true
    )]
    log_format: LogFormat,
    /// The least level of what is logged: off, error, warn, info or debug [default: warn; of 'serve' without '--quiet':
    /// info].
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Log and settings", hide_possible_values = true)]
    log_level: Option<LogLevel>,
    /// Warn of a source that holds others back and has stood still for so long.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = value_parser!(u64).range(1..=86_400), help_heading = "Log and settings")]
    stuck_seconds: u64,
    /// Warn of a source that had kept up with the clock and is so far behind it.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = value_parser!(u64).range(1..=86_400), help_heading = "Log and settings")]
    lag_seconds: u64,
}

impl LogArguments {
    /// Returns the bounds beyond which the log warns.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds { stuck_min: self.stuck_seconds * 1_000_000_000, lag_max: self.lag_seconds as i64 * 1_000_000 }
    }

    /// Returns a log on standard error. `is_served`: notes and warnings are lines of it.
    pub fn dispatch(&self, is_served: bool, is_quiet: bool) -> Dispatch {
        let usual = if is_served && !is_quiet { LogLevel::Info } else { LogLevel::Warn };
        let level = self.log_level.unwrap_or(usual);
        Dispatch::new(Log::to_stderr(self.log_format, level.into(), is_served))
    }
}
