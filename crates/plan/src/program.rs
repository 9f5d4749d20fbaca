//! The program: an analyzed plan. Everything is resolved to indices and typed, conversions and checks
//! are explicit nodes, and each point that can abort names its reason. The reference interpreter and
//! the compiler read this and nothing else; its comments define what they must agree on.
//!
//! # One event
//!
//! A *root* stream is a source, or a `Committed`, `Aborted` or `Emitted` stream. To process an event
//! of a root stream: for each [`Delivery`] of the root, in order, evaluate the filters and maps on the
//! way to the delivery's stream (an event may be dropped there, or fail) and, where it arrives, run
//! the transaction. Then process the events that these transactions emitted, one by one in the order
//! of emission, each with all that follows from it, before the next. A failure in a derived stream is
//! emitted once, on its `Failed` stream, and no stream after that point sees the event.
//!
//! # One transaction
//!
//! Statements run in order, each seeing the effects of those before it, also where two roles meet in
//! one row. Explicit `Emit`s and a returned record become visible only if the transaction commits, in
//! that order; where the body never returns a record, the input event itself is emitted on
//! `Committed`. On an abort all changes of the transaction are undone, nothing it emitted is kept, and
//! one event goes out on `Aborted`: the input's fields, the reason, and for each [`Seen`] the value of
//! the row *before* the transaction (null where the row or key is missing; key columns are the key
//! even where the row is missing; for a role over a list or over rows, the element of the innermost running
//! loop over these at the point of the abort, null outside such a loop).
#![allow(missing_docs, reason = "the fields of a variant are documented with the variant")]

use crate::{Aggregate, Ask, Edge, Limits, Periods, Selection, Window};
use serde::{Deserialize, Deserializer, Serialize};
use tidemill_model::{ColumnType, Schema, SourceId, Type, Value};
use typed_index_collections::TiVec;

tidemill_model::index_types! {
    /// Index into [`Program::tables`].
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct TableId;
    /// Index into [`Program::streams`].
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct StreamId;
    /// Index into [`Program::transactions`].
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct TransactionId;
}

/// Index into [`Transaction::roles`].
pub type RoleId = usize;
/// Index into [`Transaction::locals`].
pub type LocalId = usize;
/// Index into [`Transaction::loops`].
pub type LoopId = usize;
/// Index into the `reasons` of the transaction or derived stream at hand.
pub type ReasonId = u32;

/// An analyzed application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The application's name.
    pub name: String,
    /// The version of its schema.
    pub schema_version: u64,
    /// In declaration order.
    pub tables: TiVec<TableId, Table>,
    /// All streams, implicit ones included; inputs before what derives from them.
    pub streams: TiVec<StreamId, Stream>,
    /// In declaration order.
    pub transactions: TiVec<TransactionId, Transaction>,
    /// In declaration order.
    pub sinks: Vec<Sink>,
    /// How much one transaction may do.
    #[serde(default, skip_serializing_if = "Limits::is_default")]
    pub limits: Limits,
}

impl Program {
    /// A transaction with a role that is rows of its table and not one row, if there is one, and that role.
    pub fn scan(&self) -> Option<(&Transaction, &Role)> {
        let mut roles = self.transactions.iter().flat_map(|t| t.roles.iter().map(move |role| (t, role)));
        roles.find(|(_, role)| role.scan.is_some())
    }

    /// The streams of the sources, by number.
    pub fn sources(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(|stream| matches!(stream.origin, Origin::Source { .. }))
    }

    /// Whether a source's events can be sent, but not read: they bring no event time, and those of another source do.
    /// Gives that source. Events that are read would have to be in order with those of the other.
    pub fn sent_beside(&self, source: &Stream) -> Option<&Stream> {
        let mut timed = self.sources().filter(|other| other.own_time().is_some());
        timed.next().filter(|_| source.own_time().is_none())
    }

    /// The streams of what is due, in the order of a boundary: what closes, by the transactions that run on it; then ticks;
    /// then wakes.
    pub fn dues(&self) -> Vec<StreamId> {
        let order = |s: StreamId| match &self.streams[s].origin {
            Origin::Due(due) if due.is_ticks() => Some((1, None)),
            Origin::Due(due) if due.is_wakes() => Some((2, None)),
            Origin::Due(_) | Origin::Batch(_) => {
                Some((0, self.streams[s].deliveries.first().map(|delivery| delivery.transaction)))
            }
            _ => None,
        };
        let mut dues: Vec<_> = self.streams.keys().filter_map(|s| Some((order(s)?, s))).collect();
        dues.sort_unstable();
        dues.into_iter().map(|(_, stream)| stream).collect()
    }

    /// The streams of late events that are inputs, in the order of their sources.
    pub fn lates(&self) -> Vec<StreamId> {
        let is_late = |s: &StreamId| matches!(self.streams[*s].origin, Origin::LateRoot(_));
        self.streams.keys().filter(is_late).collect()
    }

    /// Whether rows can wake between the events of an epoch: nothing else is due, and each event that an epoch is given holds
    /// the time of its position.
    pub fn wakes_within(&self) -> bool {
        let is_due = self.streams.iter().any(|stream| matches!(stream.origin, Origin::Due(_)));
        let fits = |stream: &Stream| match &stream.origin {
            Origin::Source { .. } => stream.own_time().is_some(),
            Origin::Due(due) => due.is_wakes(),
            Origin::LateRoot(_) | Origin::Batch(_) => false,
            _ => true,
        };
        is_due && self.streams.iter().all(fits)
    }

    /// The source whose late events a stream has: the stream that users know as that of the late events.
    pub fn late_of(&self, stream: StreamId) -> Option<StreamId> {
        match self.streams[stream].origin {
            Origin::Late(source) => Some(source),
            Origin::Map { input, .. } => match self.streams[input].origin {
                Origin::LateRoot(source) if self.streams[source].late() == Some(stream) => Some(source),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Indexes as they are written; before version 9 of the format of states each was a column.
fn columns_of_indexes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<usize>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Columns {
        One(usize),
        Several(Vec<usize>),
    }
    let several = |columns| match columns {
        Columns::One(column) => vec![column],
        Columns::Several(columns) => columns,
    };
    Ok(Vec::<Columns>::deserialize(from)?.into_iter().map(several).collect())
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// In declaration order.
    pub columns: Vec<Column>,
    /// Indices of the key columns, in order; at least one.
    pub key: Vec<usize>,
    /// Its indexes: of each the columns, the first of which counts most.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "columns_of_indexes")]
    pub indexes: Vec<Vec<usize>>,
    /// Declared groups of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<KeyGroups>,
    /// Whether it holds the windows over a stream, so that only the program's own transactions know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
}

/// Groups of keys: the value of a key column of ints modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyGroups {
    /// The column.
    pub column: usize,
    /// How many.
    pub count: usize,
}

impl Table {
    /// The columns of an index by name.
    pub fn named(&self, index: &[usize]) -> String {
        let names: Vec<&str> = index.iter().map(|&column| self.columns[column].name.as_str()).collect();
        names.join(", ")
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// What an insert without a value gives it.
    pub default: Option<Value>,
    /// Where the cell, of type `Bytes`, is a window: what it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Its name in an earlier version of the schema: a state that has no column of its own name migrates that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// How a state's values of another type become values of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert: Option<Conversion>,
}

/// A function of one value, as a program of one transaction: from events of a row's number and a value of the type
/// `from` to events of the row's number and the converted value, or to an abort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversion {
    /// What it takes. Where it cannot be None, None stays None.
    pub from: ColumnType,
    /// It has one source and no tables. Its sinks are the committed and the aborted events.
    pub program: Box<Program>,
}

impl Column {
    /// A column that says nothing else about itself.
    pub fn new(name: impl Into<String>, ty: impl Into<ColumnType>) -> Column {
        Column { name: name.into(), ty: ty.into(), default: None, window: None, was: None, convert: None }
    }
}

/// A stream of events of one schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// `transfers`, `transfer.committed`, `transfers.late`, `transfer.emitted.alerts`, …
    pub name: String,
    /// Its events' fields.
    pub schema: Schema,
    /// The field that holds event time, where one is declared.
    pub event_time: Option<usize>,
    /// Where its events come from.
    pub origin: Origin,
    /// The root stream whose events this stream's events are, possibly filtered and mapped; itself
    /// for a root. For `Late` and `Bad`: the source.
    pub root: StreamId,
    /// The transactions that an event of this root must be offered to, by transaction and then by
    /// input index. Empty for other streams.
    pub deliveries: Vec<Delivery>,
}

impl Stream {
    /// Whether the events of a source are sent without a time, and hold that of their anchored position.
    pub fn is_anchored(&self) -> bool {
        matches!(self.origin, Origin::Source { anchored: true, .. })
    }

    /// How long the answers of calls with a key are kept, microseconds; none where calls have no keys.
    pub fn remembers(&self) -> Option<i64> {
        match self.origin {
            Origin::Source { remembers, .. } => remembers,
            _ => None,
        }
    }

    /// The stream of a source's late events.
    pub fn late(&self) -> Option<StreamId> {
        match self.origin {
            Origin::Source { late, .. } => Some(late),
            _ => None,
        }
    }

    /// The field of a source's events in which they bring their event time.
    pub fn own_time(&self) -> Option<usize> {
        self.event_time.filter(|_| !self.is_anchored())
    }

    /// The field that the gate fills with the time of the position.
    pub fn filled_time(&self) -> Option<usize> {
        self.event_time.filter(|_| self.is_anchored())
    }

    /// The schema of a source's events as they are sent or read.
    pub fn brought(&self) -> Schema {
        let mut schema = self.schema.clone();
        if let Some(field) = self.filled_time() {
            schema.fields.remove(field);
        }
        schema
    }
}

/// A transaction to run on an event, if it arrives through the filters and maps on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The transaction.
    pub transaction: TransactionId,
    /// Index into [`Transaction::inputs`].
    pub input: usize,
}

/// Where a stream's events come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Origin {
    /// From outside. An event is late if its time is less than the greatest time among the source's
    /// earlier events (by offset; late ones do not count) minus `lateness`. A lateness below zero says by how much each
    /// event is later than the one before, at least, as of a clock.
    Source {
        /// The source's number, in declaration order.
        source: SourceId,
        /// In the unit of the event-time field.
        lateness: i64,
        /// Its events are sent, and their event-time field gets the time of their anchored position.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anchored: bool,
        /// Its events are calls that may have a key, and answers are kept for so long, microseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remembers: Option<i64>,
        /// Its late events, same schema.
        late: StreamId,
        /// Its undecodable records, [`bad_schema`].
        bad: StreamId,
    },
    /// Those for which the predicate (non-null `Bool`) holds.
    Filter {
        /// Of this stream.
        input: StreamId,
        /// Over `Field` nodes.
        predicate: Expr,
        /// What can go wrong.
        reasons: Vec<String>,
        /// Where it then goes.
        failed: StreamId,
    },
    /// One each.
    Map {
        /// For the events of this stream.
        input: StreamId,
        /// In schema order.
        fields: Vec<OutputField>,
        /// What can go wrong.
        reasons: Vec<String>,
        /// Where it then goes.
        failed: StreamId,
    },
    /// Of a transaction.
    Committed(TransactionId),
    /// Of a transaction.
    Aborted(TransactionId),
    /// Of a transaction: index into [`Transaction::emits`].
    Emitted(TransactionId, usize),
    /// What is due at times: the windows over a stream that close.
    Due(Due),
    /// Of a source stream. Feeds sinks only.
    Late(StreamId),
    /// Of a source stream whose late events are inputs: a root. Its events have the fields of the source's, and then, as
    /// their event time, the time of their position: the greatest of the source's earlier times and marks. A map of it
    /// without that field is the stream that the source names.
    LateRoot(StreamId),
    /// The atomic batches of a source (S-Store §2.1): a root.
    Batch(Batch),
    /// Of a source stream. Feeds sinks only.
    Bad(StreamId),
    /// Of a derived stream: the input's fields and `reason`. Feeds sinks only.
    Failed(StreamId),
}

/// The events of a source, some at a time. The fields are `batch`, the number of the batch from 1, `events`, the events in
/// their order, and then those that the size has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The source. Its late events are in no batch.
    pub source: StreamId,
    /// Which events are a batch.
    pub size: BatchSize,
}

/// Which events of a source are a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchSize {
    /// So many, at least one. The batch stands directly behind the last of them, with all that follows from that event
    /// between. Where events hold a time, it has that of its last one, under its name. What is left at the end of time is a
    /// batch, too: due at the boundary behind the greatest time that was shown, which it has, or behind all where none was.
    Count(u64),
    /// Those of an interval between two boundaries of a grid, if it has any; due at the end, as what closes there. Its
    /// fields `start` and `end` are the boundaries.
    Time {
        /// The length of an interval.
        every: i64,
        /// The grid: this, and each multiple of the length before and after it.
        origin: i64,
    },
}

impl Batch {
    /// The earliest boundary at which a batch can be due that an event begins.
    pub fn bound(&self) -> Bound {
        match self.size {
            BatchSize::Count(_) => Bound::Never,
            BatchSize::Time { every, origin } => Bound::Grid { every, origin },
        }
    }
}

impl Origin {
    /// Whether it is a root whose events an epoch is given, not one that a transaction feeds.
    pub fn is_given(&self) -> bool {
        matches!(self, Origin::Source { .. } | Origin::LateRoot(_) | Origin::Batch(_) | Origin::Due(_))
    }

    /// Where something of it is due at boundaries: the earliest for what an event makes.
    pub fn bound(&self) -> Option<Bound> {
        match self {
            Origin::Due(due) => Some(due.bound.clone()),
            Origin::Batch(batch) => Some(batch.bound()),
            _ => None,
        }
    }

    /// Whether its events are those of a source, one by one or in batches, without a transaction between.
    pub fn is_of_source(&self) -> bool {
        self.is_given() && !matches!(self, Origin::Due(_))
    }
}

/// Rows of a table that are due at times.
///
/// A row is due at the *boundary* in its column `due`: behind everything with a time below, before everything else. It gives
/// one event. The transactions on that event delete the row or make it due later. The events of one boundary are in the
/// order of the column `first`, those of rows without one in the order of their keys. What closes before an instant comes
/// first, then the ticks of the instant, then the rows that wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The table.
    pub table: TableId,
    /// The column that holds the boundary; an int in units of event time.
    pub due: usize,
    /// The column that orders rows; an int. It is `due` where keys do: of rows that wake, and of those that a join frees.
    pub first: usize,
    /// How the fields of the event are made.
    pub fields: Vec<DueField>,
    /// How early a row can be due that a transaction makes.
    pub bound: Bound,
    /// The type of times: `Time` or `Int`.
    pub time: Type,
}

/// A field of a [`Due`] event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DueField {
    /// A column of the row; None where the column `none` is true.
    Part {
        /// The column.
        column: usize,
        /// The other column.
        none: Option<usize>,
    },
    /// An int column as a time, less a length.
    Time {
        /// The column.
        column: usize,
        /// The length.
        less: i64,
    },
    /// The boundary less a length.
    Start {
        /// The length.
        length: i64,
    },
    /// The boundary.
    End,
}

/// The earliest boundary of a row that is made by an event of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// The first after it of a grid: `origin` and each multiple of `every` before and after it.
    Grid {
        /// The distance.
        every: i64,
        /// Where it starts.
        origin: i64,
    },
    /// The end of the period that holds it.
    Periods(Periods),
    /// That long after it.
    After(i64),
    /// That long after it; but a row that was due may stay, and be due again from the next instant on.
    Again(i64),
    /// The end of time, after all events.
    Never,
    /// No row, but the times of a clock: `origin` and each multiple of `every` before and after it that is after the first
    /// time of all. The table's row holds the next, once there was one. See [`Due::next_tick`].
    Ticks {
        /// The distance.
        every: i64,
        /// Where it starts.
        origin: i64,
    },
    /// So long after it, at least 1: rows that wake.
    Wakes {
        /// The least distance.
        after: i64,
    },
    /// No row, but the times of a grid that is after the first time of all, until a window that begins where the input ends
    /// has closed; each completes the instant before. The table's row holds the next, once there was one. At each there is
    /// an event without a key, and then one for each row of another table, in the order of keys. See [`Due::next_rows`].
    Rows {
        /// The distance.
        every: i64,
        /// Where it starts.
        origin: i64,
        /// The length of a window.
        length: i64,
        /// The other table. The fields of an event are made of its rows.
        of: TableId,
    },
}

/// So many ticks come between two events of sources.
pub const TICKS_MAX: i128 = 10_000;

impl Due {
    /// The next tick: `known` as the row has it, if there was one; `last` is the time of the last event of a source, or of
    /// the first if none has passed. None until the next event if [`TICKS_MAX`] followed the last: those up to that event
    /// are left out.
    pub fn next_tick(&self, known: Option<i64>, last: i64) -> Option<i64> {
        let (Bound::Ticks { every, .. } | Bound::Rows { every, .. }) = self.bound else {
            unreachable!("they are at the times of a grid")
        };
        let first = self.bound.after(last)?;
        let next = known.map_or(first, |known| known.max(first));
        let before = (i128::from(next) - i128::from(first)) / i128::from(every);
        (before < TICKS_MAX).then_some(next)
    }

    /// How many times of the grid are left out where events pass up to a time: `known` and `last` are as of
    /// [`Due::next_tick`] before that.
    pub fn left_out(&self, known: Option<i64>, last: i64, until: i64) -> u64 {
        let (Bound::Ticks { every, .. } | Bound::Rows { every, .. }) = self.bound else {
            unreachable!("they are at the times of a grid")
        };
        let Some(first) = self.bound.after(last) else { return 0 };
        let next = known.map_or(first, |known| known.max(first));
        if next > until { 0 } else { (until.abs_diff(next) / every as u64).saturating_add(1) }
    }

    /// The next boundary of [`Bound::Rows`]: `known` and `last` are as of ticks. `end`: at the end of time, the greatest time
    /// that was shown; no window has rows that begins after it.
    pub fn next_rows(&self, known: Option<i64>, last: i64, end: Option<i64>) -> Option<i64> {
        let Bound::Rows { length, .. } = self.bound else { unreachable!("they are rows of a table") };
        // Behind the last of all times there is none.
        let next = self.next_tick(known, last).filter(|_| known != Some(i64::MAX))?;
        let begins = i128::from(next) - i128::from(length);
        end.is_none_or(|end| begins <= i128::from(end)).then_some(next)
    }

    /// Whether these are the rows of another table.
    pub fn is_rows(&self) -> bool {
        matches!(self.bound, Bound::Rows { .. })
    }

    /// Whether these are the ticks of a clock.
    pub fn is_ticks(&self) -> bool {
        matches!(self.bound, Bound::Ticks { .. })
    }

    /// Whether the rows of a boundary are in the order of their keys.
    pub fn is_by_key(&self) -> bool {
        self.first == self.due
    }

    /// Whether these are rows that wake.
    pub fn is_wakes(&self) -> bool {
        matches!(self.bound, Bound::Wakes { .. })
    }

    /// Whether it begins the instant of its boundary, as timers do; all else completes the instant before.
    pub fn begins_instant(&self) -> bool {
        self.is_ticks() || self.is_wakes()
    }
}

impl Bound {
    /// The earliest boundary of a row that is made at a time; none beyond the end of time.
    pub fn after(&self, time: i64) -> Option<i64> {
        match *self {
            Bound::Grid { every, origin } | Bound::Ticks { every, origin } | Bound::Rows { every, origin, .. } => {
                let slice = (i128::from(time) - i128::from(origin)).div_euclid(every.into());
                i64::try_from((slice + 1) * i128::from(every) + i128::from(origin)).ok()
            }
            Bound::Periods(ref periods) => periods.end(time),
            Bound::After(gap) | Bound::Again(gap) | Bound::Wakes { after: gap } => time.checked_add(gap),
            Bound::Never => Some(i64::MAX),
        }
    }
}

/// The fields of a source's `bad` stream: where the record stood, what was wrong, and its text as
/// far as it is text.
pub fn bad_schema() -> Schema {
    use tidemill_model::Type::{Int, Str};
    let (int, text) = (ColumnType::optional(Int), ColumnType::optional(Str));
    let reason = ColumnType::required(Str);
    Schema::scalars([("origin", text), ("line", int), ("column", text), ("reason", reason), ("record", text)])
}

/// A stream that leaves the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// What goes out.
    pub stream: StreamId,
}

/// A state transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    /// Its name.
    pub name: String,
    /// The streams it runs on; their schemas are equal.
    pub inputs: Vec<StreamId>,
    /// That schema.
    pub schema: Schema,
    /// The rows it may touch.
    pub roles: Vec<Role>,
    /// The types of its local variables. Analysis has made sure that none is read before it is set.
    pub locals: Vec<Local>,
    /// The list field of each `ForEach`.
    pub loops: Vec<usize>,
    /// What it does.
    pub body: Vec<Stmt>,
    /// The texts of all reasons it can abort with.
    pub reasons: Vec<String>,
    /// What goes out on commit.
    pub committed: CommittedOutput,
    /// Named emissions.
    pub emits: Vec<EmitOutput>,
    /// Its `Aborted` stream: the input's fields, `reason`, then one column per `seen`.
    pub aborted: StreamId,
    /// The columns of rows that `aborted` shows.
    pub seen: Vec<Seen>,
    /// Whether an event that it emits can reach another transaction. Such transactions (and those that they reach) run
    /// one event at a time, unless in [`crate::Waves`].
    pub cascades: bool,
    /// Which others it commits or aborts with.
    #[serde(default)]
    pub nesting: Nesting,
    /// Whether it only folds its events into a row of its own; [`Program::fold`] says whether they may be folded apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
}

/// How the rows of a transaction's first role are merged. Its second role, if it has one, is the row that counts the
/// groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// By column of the table. Those of the key and those that a row has from its first event stay.
    pub columns: Vec<Merge>,
}

/// What becomes of a cell where a later partial row is merged into a row that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Merge {
    /// It stays as it is.
    Stays,
    /// It stays; a row that is new is given the next number by the row that counts.
    Number,
    /// It stays. It holds the number of an event by the row that counts, which counts all events; in a row that is new, those
    /// that were counted before are added.
    EventNumber,
    /// The sum of both.
    Sum,
    /// The lesser one, by number; None counts for nothing.
    Least,
    /// The greater one.
    Greatest,
    /// Whether one of them is true.
    Any,
    /// Whether both are.
    All,
    /// The later one.
    Last,
    /// The lesser one or, with `greatest`, the greater one, as of [`Merge::Least`]; where it is the later one, the
    /// cells `with` it are.
    Best {
        /// Whether the greater one is better.
        greatest: bool,
        /// The columns that follow, which stay otherwise.
        with: Vec<usize>,
    },
    /// The windows of both: of sums, or of moments.
    Window(Window),
    /// The same, of numbers as of [`Merge::EventNumber`].
    EventNumbers(Window),
}

/// Whether a transaction commits or aborts as one with others.
///
/// A *nest* is a root with the transactions nested in it: those that take what it, or another of them, returns or emits.
/// To run the root on an event: run it; then for each event that it emitted, in order, run its nested deliveries, and then
/// likewise for each event that these emitted, before the next. Where all commit, the other deliveries of these events
/// follow in the order in which the events were followed, as if the root had emitted them. Where one aborts, everything is
/// undone, nothing was emitted, and the root aborts, with that transaction's reason under a text of its own; what an abort
/// shows of a role over a list is null then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nesting {
    /// It stands alone.
    #[default]
    Alone,
    /// It is the root of these, in the order of their numbers.
    Root(Vec<Nested>),
    /// It is nested in this root.
    In(TransactionId),
}

/// A transaction that is nested in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nested {
    /// Which.
    pub transaction: TransactionId,
    /// The first of its reasons among those of the root; the others follow.
    pub first_reason: ReasonId,
}

impl Transaction {
    /// Whether others are nested in it.
    pub fn is_root(&self) -> bool {
        matches!(self.nesting, Nesting::Root(_))
    }

    /// Whether it is nested in another.
    pub fn is_nested(&self) -> bool {
        matches!(self.nesting, Nesting::In(_))
    }

    /// The reason with which this root aborts where a transaction of its nest does.
    pub fn reason_of(&self, transaction: TransactionId, reason: ReasonId) -> ReasonId {
        let Nesting::Root(nested) = &self.nesting else { unreachable!("{} is no root", self.name) };
        let step = nested.iter().find(|step| step.transaction == transaction).expect("it is nested in this root");
        step.first_reason + reason
    }
}

/// A local variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Its name.
    pub name: String,
    /// The join of the types of all its assignments.
    pub ty: ColumnType,
}

/// The stream `txn.committed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedOutput {
    /// The stream.
    pub stream: StreamId,
    /// Whether the input event itself is emitted, because the body never returns a record.
    pub passes_event: bool,
}

/// A stream `txn.emitted(name)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmitOutput {
    /// The name.
    pub name: String,
    /// The stream.
    pub stream: StreamId,
}

/// A column of a role that is shown with an abort, as the column `role.column`, always nullable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The role.
    pub role: RoleId,
    /// The column of its table.
    pub column: usize,
}

/// A row, a row per element of a list, or rows of its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: TableId,
    /// One per key column, of the key column's type but possibly nullable: where one is null there is
    /// no row. Pure: over `Field`, and over `Element { loop_id: 0 }` for the element in question. Key
    /// expressions cannot fail: analysis refuses those that could, except for `None`.
    ///
    /// A *dependent* key reads the rows of earlier roles. Its parts are evaluated before the body, in the order of roles, on
    /// the rows as they are before the transaction; where one fails, there is no row for this role. Its reasons are not told.
    /// Where it is a row for each of some rows ([`Role::each`]), that is done for each, with its number in the local.
    pub key: Vec<Expr>,
    /// The list field with a row per element.
    pub over: Option<usize>,
    /// Where the role is rows of its table, and not one row: the local, an `Int`, whose value is the number of the row at
    /// hand, from 0, in the order of [`Role::selection`] or of keys (false before true, words by number, text and bytes by
    /// their bytes). The rows are those before the transaction, and stay at their numbers: one that is deleted is missing
    /// then. A loop from 0 to [`Node::Rows`] sets the local, nothing else does, and the role's cells are read inside of such
    /// a loop only. The key is empty, nothing is inserted, and nothing is shown with an abort; but see [`Role::each`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<LocalId>,
    /// The earlier role with a row of this one for each of its rows. Both have one `scan`. The key is that of a role that is
    /// one row, and its rows may be inserted and are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<RoleId>,
    /// Which rows such a role is: chosen on the rows as they are before the transaction.
    #[serde(default, skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// What a read of a missing row gives.
    pub missing: Missing,
    /// Whether a write to a missing row inserts it with the defaults first.
    pub create: bool,
    /// Whether there is any `Set`, `Insert` or `Delete` on it.
    pub written: bool,
    /// Columns that the body reads (not counting `Set`).
    pub reads: Vec<usize>,
    /// Columns that the body sets.
    pub writes: Vec<usize>,
    /// "no row": a read (where `missing` is `Abort`) or, without `create`, a write or delete of a
    /// missing row.
    pub no_row: ReasonId,
    /// "key is None": like `no_row` where the key is null, and any write or insert then.
    pub no_key: ReasonId,
    /// "row exists": an insert of a row that is there.
    pub row_exists: ReasonId,
}

impl Role {
    /// Whether its rows are known only when the transaction is about to run.
    pub fn is_found_late(&self) -> bool {
        self.is_dependent() || self.scan.is_some()
    }

    /// Whether it is rows of its table that are chosen, not named by a key.
    pub fn is_chosen(&self) -> bool {
        self.scan.is_some() && self.each.is_none()
    }

    /// Whether it is one row.
    pub fn is_one_row(&self) -> bool {
        self.over.is_none() && self.scan.is_none()
    }

    /// Whether its key depends on rows that are read.
    pub fn is_dependent(&self) -> bool {
        self.key.iter().any(Expr::reads_rows)
    }

    /// The end of the names of hidden roles, each of the row that says when another role's row wakes.
    pub(crate) const WAITS: &str = "__wakes";

    /// That other role, if this is a hidden one.
    pub(crate) fn waits(&self) -> Option<&str> {
        self.name.strip_suffix(Role::WAITS)
    }
}

/// What a read of a missing row gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// The transaction aborts with `no_row` or `no_key`.
    Abort,
    /// The column's default; a key column reads as the key (aborts with `no_key` where it is null).
    Default,
}

/// A field of a map, an emission or a returned record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OutputField {
    /// A value of the field's type (a non-null expression may fill a nullable field).
    Value(Expr),
    /// The whole list field of the input event.
    List(usize),
}

/// A statement. `element` is the loop whose current element chooses the row of a role over a list,
/// and none for other roles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stmt {
    /// Set a local. The value may be non-null where the local is nullable.
    Assign { local: LocalId, value: Expr },
    /// Evaluate `value`, then set the cell. Never a key column.
    Set { role: RoleId, element: Option<LoopId>, column: usize, value: Expr },
    /// Branch on a non-null `Bool`.
    If { condition: Expr, then: Vec<Stmt>, otherwise: Vec<Stmt> },
    /// For each element of list field `loops[loop_id]`, in order.
    ForEach { loop_id: LoopId, body: Vec<Stmt> },
    /// `range(start, stop, step)` with Python's meaning; bounds are non-null `Int`, evaluated once.
    ForRange { local: LocalId, start: Expr, stop: Expr, step: i64, body: Vec<Stmt> },
    /// Leave the innermost loop.
    Break,
    /// Next round of the innermost loop.
    Continue,
    /// Abort unless the non-null `Bool` holds.
    Require { condition: Expr, reason: ReasonId },
    /// Abort.
    Abort { reason: ReasonId },
    /// Evaluate all values in order, then check that the key is not null (`no_key`) and the row is
    /// missing (`row_exists`), then make it exist. Every non-key column has its value here, defaults
    /// included (those come last).
    Insert { role: RoleId, element: Option<LoopId>, values: Vec<(usize, Expr)> },
    /// Make the row not exist (`no_key`, `no_row`).
    Delete { role: RoleId, element: Option<LoopId> },
    /// Emit on `emits[output]`.
    Emit { output: usize, fields: Vec<OutputField> },
    /// Commit; with fields, emit them on `committed`.
    Return { fields: Option<Vec<OutputField>> },
    /// Count something against a limit of [`Program::limits`]; abort where the sum is then beyond it.
    Count { count: Count, reason: ReasonId },
}

/// A typed expression. Operands are evaluated left to right; the first failure aborts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expr {
    /// The type of its value.
    pub ty: ColumnType,
    /// What it computes.
    pub node: Node,
}

/// An operation of an expression. Unless said otherwise operands are non-null and of the type that
/// the operation names. `Word` operations work on the signed 64-bit word of an `Int`, `Time`,
/// `Duration` or (unscaled) `Decimal`; scales have been made equal by explicit casts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    /// A constant; `Null` has the type that is wanted of it, nullable.
    Const(Value),
    /// A scalar field of the event.
    Field(usize),
    /// A column of the current element of the loop's list (0 for a list of scalars).
    Element { loop_id: LoopId, column: usize },
    /// A local variable.
    Local(LocalId),
    /// A cell of a role's row as of now. See [`Role::missing`].
    Cell { role: RoleId, element: Option<LoopId>, column: usize },
    /// Whether the role's row exists as of now; false where the key is null.
    Exists { role: RoleId, element: Option<LoopId> },
    /// How many rows a role has that is not one row; `Int`. See [`Role::scan`].
    Rows { role: RoleId },
    /// The number of elements of a list field.
    Length(usize),
    /// The operand (nullable), or abort where it is null.
    Unwrap { value: Box<Expr>, reason: ReasonId },
    /// Whether the operand (nullable) is null.
    IsNull(Box<Expr>),
    /// Word arithmetic; aborts with `reason` on overflow of 64 bits.
    Word { op: WordOp, left: Box<Expr>, right: Box<Expr>, reason: ReasonId },
    /// Float arithmetic: IEEE, with aborts as [`FloatOp`] says.
    Float { op: FloatOp, left: Box<Expr>, right: Box<Expr>, reason: ReasonId },
    /// `-x` of a word; aborts on overflow.
    WordNeg { value: Box<Expr>, reason: ReasonId },
    /// `abs(x)` of a word; aborts on overflow.
    WordAbs { value: Box<Expr>, reason: ReasonId },
    /// `-x` of a float.
    FloatNeg(Box<Expr>),
    /// `abs(x)` of a float.
    FloatAbs(Box<Expr>),
    /// Order of two non-null values of one type: words by number, floats by IEEE (all but `Ne` are
    /// false with NaN), bools false < true, text and bytes by their bytes.
    Compare { op: crate::CompareOp, left: Box<Expr>, right: Box<Expr> },
    /// Equality of two possibly null values of one type; null equals only null. Floats by IEEE.
    Equal { left: Box<Expr>, right: Box<Expr>, negated: bool },
    /// The right operand is evaluated only if the left is true.
    And(Box<Expr>, Box<Expr>),
    /// The right operand is evaluated only if the left is false.
    Or(Box<Expr>, Box<Expr>),
    /// Logical not.
    Not(Box<Expr>),
    /// Only the branch taken is evaluated. Branches have the type of the whole, but may be non-null
    /// where the whole is nullable.
    IfElse { condition: Box<Expr>, then: Box<Expr>, otherwise: Box<Expr> },
    /// A conversion; aborts with `reason` where the cast says so.
    Cast { cast: Cast, value: Box<Expr>, reason: ReasonId },
    /// Text and bytes joined.
    Concat(Box<Expr>, Box<Expr>),
    /// A text of a text.
    Text { op: TextOp, value: Box<Expr> },
    /// A question about two texts.
    TextTest { op: TextTest, left: Box<Expr>, right: Box<Expr> },
    /// The bytes of a window (`cell`) with one more value in it, added at `time` (the constant 0 where the
    /// window keeps the last values, and has no slices). Never fails.
    WindowAdd { window: Window, cell: Box<Expr>, time: Box<Expr>, value: Box<Expr> },
    /// An aggregate over the last `within` slices of a window, or the last `within` values, as of `time`. `Count`
    /// and `Distinct` are `Int`. `Sum` is of the type of the values; aborts with `reason` unless it fits 64 bits.
    /// `Mean` is the float quotient of sum and count, of decimals the quotient rounded half to even. `Mean`, `Min`
    /// and `Max` of no values are null.
    WindowRead { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, aggregate: Aggregate, reason: ReasonId },
    /// What a synopsis says of the last `within` slices, or of all, as of `time`. The argument is not null: an
    /// `Int`, for [`Ask::Quantile`] a `Float`, for [`Ask::Frequency`] of the type of the values. The answer is an `Int`, for
    /// [`Ask::Value`] of the type of the values, for [`Ask::Quantile`] a `Float`, both nullable. Never fails.
    SynopsisRead { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, ask: Ask, argument: Box<Expr> },
    /// The values as one record of a window ([`crate::Keep::Records`], [`crate::Keep::Latest`]); `Bytes`. Never fails.
    Pack(Vec<Expr>),
    /// Where in the bytes of a window of records the first entry begins that is in the last `within` slices as of `time`,
    /// after the one that begins at `after`, or from the start where that is negative; −1 if there is none. `Int`.
    WindowNext { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, after: Box<Expr> },
    /// The value of number `field`, among `of`, of the record in the entry that begins at `at`. It has the type that it was
    /// packed with, possibly null there.
    WindowField { cell: Box<Expr>, at: Box<Expr>, of: usize, field: usize },
    /// The start or the end of the period that holds a time, of its type. A start before all times is the first time;
    /// where an end is after the last one, it aborts with `reason`.
    Period { edge: Edge, periods: Periods, time: Box<Expr>, reason: ReasonId },
    /// Characters (Unicode scalar values) of a text, bytes of bytes; `Int`.
    Len(Box<Expr>),
    /// The operand, a text or bytes, possibly null. Once it is evaluated, its bytes (0 of a null) are counted against a
    /// limit of [`Program::limits`]; aborts with `reason` where the sum is then beyond it.
    Counted { measure: Measure, value: Box<Expr>, reason: ReasonId },
}

/// What a [`Stmt::Count`] adds, to the steps or to the bytes of memory of the transaction at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Count {
    /// A number of steps.
    Steps(i64),
    /// So many bytes.
    Memory(i64),
    /// The bytes of a text field of the event.
    Text(usize),
    /// A list field of the event, which comes straight from a source: 16 bytes for each value of its elements, and the
    /// bytes of their texts.
    List(usize),
}

/// What the bytes of a text count as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Steps: one for each [`STEP_BYTES`] of them, rounded down, as an operation is about to read them all.
    Read,
    /// Memory: each of them, as they are made or copied.
    Made,
}

/// How many bytes of a text count as one step when they are read.
pub const STEP_BYTES: i64 = 256;

/// Word arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WordOp {
    /// left + right
    Add,
    /// left − right
    Sub,
    /// left × right
    Mul,
    /// Quotient rounded towards minus infinity; `zero` where right is 0.
    FloorDiv { zero: ReasonId },
    /// left − right × floor(left / right); never overflows (`MIN % -1` is 0); `zero` where right is 0.
    Mod { zero: ReasonId },
    /// left × 10^shift / right in 128 bits, rounded half to even; `zero` where right is 0; `reason`
    /// where the result does not fit 64 bits. `shift` ≤ 18.
    DecimalDiv { shift: u8, zero: ReasonId },
    /// right if right < left else left
    Min,
    /// right if right > left else left
    Max,
}

/// Float arithmetic. `reason` is that of a division by zero (right == 0.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FloatOp {
    /// left + right
    Add,
    /// left − right
    Sub,
    /// left × right
    Mul,
    /// left / right; aborts where right is 0
    Div,
    /// As CPython's `float_divmod`: `mod = fmod(l, r)`, `div = (l - mod) / r`; where mod is not 0 and
    /// has another sign than r, `mod += r` and `div -= 1`; the quotient is div rounded to the nearest
    /// integer by `f = floor(div); if div - f > 0.5 { f += 1 }` where div is not 0, else
    /// `copysign(0, l / r)`. Aborts where right is 0.
    FloorDiv,
    /// The `mod` of the above; where it is 0, `copysign(0, r)`. Aborts where right is 0.
    Mod,
    /// right if right < left else left
    Min,
    /// right if right > left else left
    Max,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cast {
    /// The same word under another word type.
    Relabel,
    /// 0 or 1.
    BoolToInt,
    /// Int to the nearest float.
    IntToFloat,
    /// Word to float, then divided by the float 10^scale (≤ 18). Decimals, and seconds of a duration.
    WordToFloat { scale: u8 },
    /// Towards zero; aborts unless −2^63 ≤ result < 2^63 (NaN aborts).
    FloatToInt,
    /// Half to even; aborts likewise.
    FloatRound,
    /// × 10^by; aborts on overflow.
    ScaleUp {
        /// ≤ 18
        by: u8,
    },
    /// / 10^by, half to even.
    ScaleRound {
        /// ≤ 18
        by: u8,
    },
    /// / 10^by, towards zero.
    ScaleTruncate {
        /// ≤ 18
        by: u8,
    },
    /// The same decimal, aborting unless |unscaled| < 10^digits.
    FitDigits {
        /// ≤ 18
        digits: u8,
    },
    /// Decimal digits with an optional sign, nothing else; aborts otherwise and on overflow.
    StrToInt,
    /// What Rust's `f64::from_str` takes; aborts otherwise.
    StrToFloat,
    /// Decimal digits, minus sign.
    IntToStr,
    /// "True" or "False".
    BoolToStr,
    /// [`tidemill_model::format_decimal`].
    DecimalToStr {
        /// Of the decimal.
        scale: u8,
    },
}

/// A text of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextOp {
    /// As Rust's `str::to_lowercase`.
    Lower,
    /// As Rust's `str::to_uppercase`.
    Upper,
    /// As Rust's `str::trim`.
    Strip,
}

/// A question about two texts (or two bytes values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextTest {
    /// Left starts with right.
    StartsWith,
    /// Left ends with right.
    EndsWith,
    /// Right occurs in left.
    Contains,
}
