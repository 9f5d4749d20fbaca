//! The operators of a program, as values: what its user declared that is neither a source, a filter, a map nor a transaction.
//!
//! An operator becomes tables, streams and transactions. Each of these names its owner: the operator, and the part that it is of it.
//! So what a table, stream or transaction is for is known by value. Their names are for people and for states; nothing is decided
//! by how a name is spelled, but where a state of an earlier program is read, which has nothing else ([`Table::written_owner`](crate::Table::written_owner)).

use crate::definitions::Definition;
use crate::ids::{OperatorId, StreamId, TableId};
use crate::periods::Periods;
use serde::{Deserialize, Serialize};
use tidemill_model::Type;

/// An operator of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operator {
    /// Its name, as declared; of what a table declares, the name of the table.
    pub name: String,
    /// The kind of operator, with what is declared of it.
    pub kind: OperatorKind,
    /// The streams that it takes, as declared. Its transactions may take others, which are made of these.
    pub inputs: Vec<StreamId>,
    /// The type of event times, which its lengths are in units of; none where there are no times.
    pub time: Option<Type>,
    /// The properties that decide which rows of a state it goes on with; none of operators that keep no rows of their own, and
    /// of rows that wake, which go with the table.
    pub definition: Option<Definition>,
}

/// A kind of operators. All lengths are in units of event time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// Windows over a stream.
    Window {
        /// The windows of each group.
        windows: Windows,
        /// The parts of a group.
        by: Vec<String>,
        /// The distance of early results, if there are such.
        early: Option<i64>,
        /// The table of which each row has a result, if there is one.
        rows: Option<TableId>,
    },
    /// The top of each instant.
    Top {
        /// The number of places.
        count: i64,
        /// The parts of a group.
        by: Vec<String>,
    },
    /// The first events of each group.
    First {
        /// The time within which events are repeats.
        within: i64,
        /// The parts of a group.
        by: Vec<String>,
    },
    /// A join of two streams.
    Join {
        /// The treatment of an event without a partner.
        how: JoinHow,
        /// The distance in time that events of a pair may have.
        reach: Reach,
        /// The fields of the key in the events of its sides ([`StreamPart::Left`]), without those that say whether a part is None.
        key: Vec<String>,
        /// The fields that are kept of events, as the function names them.
        fields: Vec<String>,
    },
    /// The atomic batches of a source.
    Batch(BatchSize),
    /// Ticks of event time.
    Ticks {
        /// The distance.
        every: i64,
        /// The origin of the grid.
        origin: i64,
    },
    /// The rows of a table that wake.
    Wakes(TableId),
    /// The rows of a table that expire.
    Expiry(TableId),
    /// The changes of a table.
    Changes(TableId),
}

/// The windows of a group; lengths are in units of event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// One after the other.
    Tumbling {
        /// The length.
        length: i64,
        /// The origin of the grid.
        origin: i64,
    },
    /// Several at a time.
    Sliding {
        /// The length.
        length: i64,
        /// The distance from one to the next.
        every: i64,
        /// The origin of the grid.
        origin: i64,
    },
    /// The periods of a calendar.
    Calendar(Periods),
    /// Sessions, which end where no event comes for this long.
    Session {
        /// The time without events.
        gap: i64,
    },
    /// A number of events.
    Counting {
        /// The number.
        count: i64,
    },
}

/// The distance in time that events of a pair may have, in units of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// A distance that is less than this.
    Within(i64),
    /// A distance within one tumbling window.
    Over {
        /// The length.
        length: i64,
        /// The origin of the grid.
        origin: i64,
    },
}

/// The treatment of an event without a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinHow {
    /// Nothing.
    Inner,
    /// One of the left goes out alone.
    Left,
    /// One of either side goes out alone.
    Outer,
    /// Only those of the left without a partner go out.
    Anti,
}

/// The events of a source that are a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchSize {
    /// A number of events, at least one. The batch stands directly behind the last of them, with all that follows from
    /// that event between. Where events hold a time, it has that of its last one, under its name. What is left at the
    /// end of time is a batch, too: due at the boundary behind the greatest time that was shown, which it has, or
    /// behind all where none was.
    Count(u64),
    /// The events of an interval between two boundaries of a grid, if it has any; due at the end, as what closes there.
    /// Its fields `start` and `end` are the boundaries.
    Time {
        /// The length of an interval.
        every: i64,
        /// The grid: this, and each multiple of the length before and after it.
        origin: i64,
    },
}

/// The owner of a table, stream or transaction: the operator that it is a part of, and the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner<P> {
    /// The operator.
    pub operator: OperatorId,
    /// The part.
    pub part: P,
}

/// A table that is a part of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TablePart {
    /// The open windows of groups, and what first events keep of theirs.
    Windows,
    /// The row that numbers groups, or events that wait.
    Order,
    /// The row with the next boundary at which rows without events have results.
    Grid,
    /// The events that a join keeps, by key.
    Rows,
    /// The events of a join that wait for a partner, by key.
    Waits,
    /// The row with the next tick.
    Next,
    /// The rows of a table that wait to wake, by key.
    Wakes,
}

impl TablePart {
    pub(crate) const ALL: [TablePart; 7] = [
        TablePart::Windows,
        TablePart::Order,
        TablePart::Grid,
        TablePart::Rows,
        TablePart::Waits,
        TablePart::Next,
        TablePart::Wakes,
    ];

    /// Returns the last part of the names of such tables.
    pub fn name(self) -> &'static str {
        match self {
            TablePart::Windows => "windows",
            TablePart::Order => "order",
            TablePart::Grid => "grid",
            TablePart::Rows => "rows",
            TablePart::Waits => "waits",
            TablePart::Next => "next",
            TablePart::Wakes => "wakes",
        }
    }

    /// Returns the name of such a table of an operator of this name. No name of a user's has a dot.
    pub fn named(self, operator: &str) -> String {
        format!("{operator}.{}", self.name())
    }

    /// Returns whether its rows are what an operator has open.
    pub fn is_open(self) -> bool {
        matches!(self, TablePart::Windows | TablePart::Rows | TablePart::Waits)
    }
}

/// A stream that is a part of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamPart {
    /// An input with the time of the position, made of what is declared; and where that fails.
    Input,
    /// The windows that close, and the groups whose time as first events is over.
    Due,
    /// The windows that have an early result.
    Partial,
    /// The boundaries at which rows of a table have results, with these rows.
    Boundaries,
    /// The events of the left side as a join takes them; and where that fails.
    Left,
    /// Those of the right side.
    Right,
    /// The keys of a join that are due to be deleted.
    Freed,
    /// The keys of a join whose events have waited for long enough.
    Unmatched,
    /// Those keys as the join takes them; and where that fails.
    Waited,
    /// The pairs of a join.
    Pairs,
    /// The ticks.
    Ticks,
    /// The batches.
    Batches,
    /// The rows that wake.
    Woken,
    /// The rows whose time has come.
    Gone,
    /// The changes that one transaction makes.
    Emission,
    /// The results.
    Results,
    /// The events that the function on results aborted on.
    Failures,
    /// The early results.
    Early,
    /// The events that the function on early results aborted on.
    EarlyFailures,
    /// The events that an aggregate refused.
    Refused,
    /// An output of a transaction that nothing takes.
    Rest,
}

impl StreamPart {
    /// Returns whether users know such a stream.
    pub fn is_shown(self) -> bool {
        use StreamPart::*;
        match self {
            Ticks | Batches | Woken | Results | Failures | Early | EarlyFailures | Refused => true,
            Input | Due | Partial | Boundaries | Left | Right | Freed | Unmatched | Waited | Pairs | Gone
            | Emission | Rest => false,
        }
    }
}

/// A transaction that is a part of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionPart {
    /// Takes the input: adds an event to its group or key.
    Add,
    /// Takes the input of first events, and passes them on.
    Pass,
    /// Opens windows for rows without events.
    Fill,
    /// The user's function, on what closes or matches.
    Function,
    /// The step after the function: the row of a closed window goes, or stands for the next; the next tick is noted.
    Next,
    /// The user's function on early results.
    Early,
    /// The step after that.
    Later,
    /// Deletes what a join keeps no longer.
    Free,
    /// Takes a row that wakes out of those that wait.
    Wake,
    /// Deletes a row whose time has come, and passes it on.
    Expire,
    /// Passes the changes of all transactions on.
    Unite,
}

impl TransactionPart {
    /// Returns whether users know such a transaction.
    pub fn is_shown(self) -> bool {
        use TransactionPart::*;
        match self {
            Pass | Function | Early => true,
            Add | Fill | Next | Later | Free | Wake | Expire | Unite => false,
        }
    }

    /// Returns the parts that its streams of committed and of aborted events are.
    pub(crate) fn outputs(self) -> [StreamPart; 2] {
        use TransactionPart::*;
        match self {
            Function => [StreamPart::Results, StreamPart::Failures],
            Early => [StreamPart::Early, StreamPart::EarlyFailures],
            Pass | Expire | Unite => [StreamPart::Results, StreamPart::Rest],
            Add | Fill | Next | Later | Free | Wake => [StreamPart::Rest, StreamPart::Rest],
        }
    }
}

impl Operator {
    /// Returns the table that declares it, if one does.
    pub fn table(&self) -> Option<TableId> {
        match self.kind {
            OperatorKind::Wakes(table) | OperatorKind::Expiry(table) | OperatorKind::Changes(table) => Some(table),
            _ => None,
        }
    }
}
