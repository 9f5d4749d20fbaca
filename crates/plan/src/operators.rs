//! The definitions of a program's operators: windows over streams, joins, tops, first events, atomic batches and ticks.
//!
//! An operator keeps rows from event to event. Its *definition* is all that decides these rows and when they go: the streams that
//! it takes with their filters and maps, its group or key, its lengths, what it keeps of events. The function on what it gives is no part of it.
//! So a state that an operator has left goes on with another program where the definition is the same, and only there.
//!
//! Definitions are compared by hashes of their parts; the texts are for people.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// A kind of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// Windows over a stream.
    Window,
    /// The top of each instant.
    Top,
    /// The first events of each group.
    First,
    /// A join of two streams.
    Join,
    /// The atomic batches of a source.
    Batch,
    /// Ticks of event time.
    Ticks,
}

impl OperatorKind {
    /// Returns its name in messages.
    pub fn noun(self) -> &'static str {
        match self {
            OperatorKind::Window => "window",
            OperatorKind::Top => "top",
            OperatorKind::First => "first events",
            OperatorKind::Join => "join",
            OperatorKind::Batch => "batches",
            OperatorKind::Ticks => "ticks",
        }
    }

    /// Returns the last parts of the names of its tables whose rows are what is open.
    fn open_tables(self) -> &'static [&'static str] {
        match self {
            OperatorKind::Window | OperatorKind::Top | OperatorKind::First => &["windows"],
            OperatorKind::Join => &["rows", "waits"],
            OperatorKind::Batch | OperatorKind::Ticks => &[],
        }
    }

    /// Returns the last parts of the names of its other tables.
    fn other_tables(self) -> &'static [&'static str] {
        match self {
            OperatorKind::Window | OperatorKind::Top | OperatorKind::First => &["order", "grid"],
            OperatorKind::Join => &["order"],
            OperatorKind::Batch => &[],
            OperatorKind::Ticks => &["next"],
        }
    }
}

/// An operator of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// The kind of operator.
    pub kind: OperatorKind,
    /// The parts of the definition that decide its rows, but for what it keeps of events.
    pub definition: Vec<DefinitionPart>,
    /// The columns that it keeps of events, by name. Each is kept by itself.
    pub keeps: Vec<DefinitionPart>,
}

/// A part of the definition of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionPart {
    /// The name of the part. Unique in its list.
    pub name: String,
    /// The text for people.
    pub text: String,
    /// A hash of the whole content.
    pub hash: u64,
}

impl DefinitionPart {
    /// Makes a part of its text and its whole content.
    pub fn new(name: impl Into<String>, text: impl Into<String>, content: &str) -> DefinitionPart {
        DefinitionPart { name: name.into(), text: text.into(), hash: xxh3_64(content.as_bytes()) }
    }
}

impl Operator {
    /// The name of the part that says of which table each row has a result.
    pub const ROWS: &str = "results of rows";

    /// Returns whether a hidden table of this name is one of its own.
    pub fn owns(&self, table: &str) -> bool {
        let (open, other) = (self.kind.open_tables(), self.kind.other_tables());
        self.part_of(table).is_some_and(|part| open.contains(&part) || other.contains(&part))
    }

    /// Returns whether the rows of a hidden table of this name are what it has open.
    pub fn has_open(&self, table: &str) -> bool {
        self.part_of(table).is_some_and(|part| self.kind.open_tables().contains(&part))
    }

    fn part_of<'a>(&self, table: &'a str) -> Option<&'a str> {
        table.strip_prefix(self.name.as_str())?.strip_prefix('.')
    }

    /// Returns its kind and name, for messages.
    pub fn shown(&self) -> String {
        format!("{} {}", self.kind.noun(), self.name)
    }
}
