//! `tidemill tail`, `tidemill table` and `tidemill top`: what they take. A front end answers them ([`crate::Look`]).

use crate::loader::{Look, LookAt};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

pub const TAIL_HELP: &str = "\
Of a state, the log has the events after the newest checkpoint; a run may go on with the state meanwhile.
Ctrl-C ends it, with the exit code 130.

Examples:
  tidemill tail ./state transfer.committed
  tidemill tail http://127.0.0.1:8740 transfer.committed --after 7.12@00c0ffee00c0ffee";

pub const TABLE_HELP: &str = "\
Of a state, the rows are those after the last epoch that is known to be durable; a run may go on with it meanwhile.
'--where' needs DuckDB: pip install 'tidemill[sql]'.

Examples:
  tidemill table ./state accounts --where 'balance > 100'
  tidemill table http://127.0.0.1:8740 accounts --format csv";

/// A state or a server, and who asks.
#[derive(Debug, Args)]
struct PlaceArguments {
    /// A state directory, or where an application is served, such as http://127.0.0.1:8740.
    #[arg(value_name = "DIR|URL")]
    place: String,
    /// The secret of a user, where the server asks who one is.
    #[arg(long, value_name = "SECRET", env = "TIDEMILL_TOKEN", hide_env = true)]
    token: Option<String>,
    /// The certificates in PEM that are trusted, if not those of the system.
    #[arg(long, value_name = "FILE", env = "TIDEMILL_CA", hide_env = true)]
    ca: Option<PathBuf>,
}

impl PlaceArguments {
    fn at(&self) -> LookAt {
        LookAt { place: self.place.clone(), token: self.token.clone(), ca: self.ca.clone() }
    }
}

#[derive(Debug, Args)]
pub struct TailArguments {
    #[command(flatten)]
    at: PlaceArguments,
    /// The stream, such as transfer.committed.
    #[arg(value_name = "STREAM")]
    stream: String,
    /// Begin after this place: an epoch of a state, a position of a server such as 7.12@00c0ffee00c0ffee.
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
    /// For a state: go on with what a run adds to the log. A server is always followed.
    #[arg(long, short)]
    follow: bool,
}

impl TailArguments {
    pub fn look(&self) -> Look {
        let (stream, after) = (self.stream.clone(), self.after.clone());
        Look::Tail { stream, after, follows: self.follow, at: self.at.at() }
    }
}

/// The form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowsFormat {
    /// Columns that stand below each other.
    Table,
    /// A JSON object a line.
    Jsonl,
    /// CSV with a header.
    Csv,
}

#[derive(Debug, Args)]
pub struct TableArguments {
    #[command(flatten)]
    at: PlaceArguments,
    /// The table.
    #[arg(value_name = "NAME")]
    name: String,
    /// Only rows for which this condition of SQL holds.
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// The form: table, jsonl or csv.
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true)]
    format: RowsFormat,
    /// Short for '--format jsonl'.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl TableArguments {
    pub fn look(&self) -> Look {
        let format = match self.format {
            _ if self.json => "jsonl",
            RowsFormat::Table => "table",
            RowsFormat::Jsonl => "jsonl",
            RowsFormat::Csv => "csv",
        };
        Look::Table { name: self.name.clone(), condition: self.condition.clone(), format, at: self.at.at() }
    }
}

#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    at: PlaceArguments,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    interval: f64,
    /// Look once, over one interval.
    #[arg(long)]
    once: bool,
    /// Print a JSON object for each look.
    #[arg(long)]
    json: bool,
}

impl TopArguments {
    pub fn look(&self) -> Look {
        Look::Top { seconds: self.interval, is_once: self.once, is_json: self.json, at: self.at.at() }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not a time from 0.1 to 3600 seconds"))
}
