//! The definitions of a program's operators: windows over streams, joins, tops, first events, atomic batches and ticks.
//!
//! An operator keeps rows from event to event. Its *definition* is all that decides these rows and when they go: the streams that
//! it takes with their filters and maps, its group or key, its lengths, what it keeps of events. The function on what it gives is no part of it.
//! So a state that an operator has left goes on with another program where the definition is the same, and only there.
//!
//! Definitions are compared by hashes of their parts; the texts are for people. They are a part of the identity of a state, which knows
//! the tables of an operator by their names only.

use crate::operators::TablePart;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// A kind of operators with definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
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

impl DefinitionKind {
    /// Returns its name in messages.
    pub fn noun(self) -> &'static str {
        match self {
            DefinitionKind::Window => "window",
            DefinitionKind::Top => "top",
            DefinitionKind::First => "first events",
            DefinitionKind::Join => "join",
            DefinitionKind::Batch => "batches",
            DefinitionKind::Ticks => "ticks",
        }
    }

    /// Returns the kind of operators that has such a table, and no other kind has.
    pub fn of_table(part: TablePart) -> Option<DefinitionKind> {
        match part {
            TablePart::Windows => Some(DefinitionKind::Window),
            TablePart::Rows => Some(DefinitionKind::Join),
            TablePart::Next => Some(DefinitionKind::Ticks),
            TablePart::Grid | TablePart::Order | TablePart::Waits | TablePart::Wakes => None,
        }
    }

    /// Returns its tables.
    fn tables(self) -> &'static [TablePart] {
        match self {
            DefinitionKind::Window | DefinitionKind::Top | DefinitionKind::First => {
                &[TablePart::Windows, TablePart::Order, TablePart::Grid]
            }
            DefinitionKind::Join => &[TablePart::Rows, TablePart::Waits, TablePart::Order],
            DefinitionKind::Batch => &[],
            DefinitionKind::Ticks => &[TablePart::Next],
        }
    }
}

/// The definition of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The name of the operator.
    pub name: String,
    /// The kind of operator.
    pub kind: DefinitionKind,
    /// The parts of the definition that decide its rows, but for what it keeps of events.
    #[serde(rename = "definition")]
    pub parts: Vec<DefinitionPart>,
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

impl Definition {
    /// The name of the part that says of which table each row has a result.
    pub const ROWS: &str = "results of rows";

    /// Returns whether a hidden table of a state that has this name is one of its own.
    pub fn owns(&self, table: &str) -> bool {
        self.part_of(table).is_some()
    }

    /// Returns whether the rows of a hidden table of a state that has this name are what it has open.
    pub fn has_open(&self, table: &str) -> bool {
        self.part_of(table).is_some_and(TablePart::is_open)
    }

    fn part_of(&self, table: &str) -> Option<TablePart> {
        self.kind.tables().iter().copied().find(|part| part.named(&self.name) == table)
    }

    /// Returns its kind and name, for messages.
    pub fn shown(&self) -> String {
        format!("{} {}", self.kind.noun(), self.name)
    }
}
