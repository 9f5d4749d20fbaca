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

use crate::{
    Aggregate, Ahead, Ask, BatchSize, DatePart, Edge, Expire, Limits, Operator, OperatorId, Owner, Periods, Selection,
    StreamPart, TablePart, TransactionPart, Window, Zone,
};
use serde::{Deserialize, Deserializer, Serialize};
use tidemill_model::{ColumnType, Schema, SourceId, Type, Value};
use typed_index_collections::TiVec;

pub use crate::ids::{StreamId, TableId, TransactionId};

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
    /// The tables, in declaration order.
    pub tables: TiVec<TableId, Table>,
    /// All streams, implicit ones included; inputs before what derives from them.
    pub streams: TiVec<StreamId, Stream>,
    /// The transactions, in declaration order.
    pub transactions: TiVec<TransactionId, Transaction>,
    /// The sinks, in declaration order.
    pub sinks: Vec<Sink>,
    /// The limits of one transaction.
    #[serde(default, skip_serializing_if = "Limits::is_default")]
    pub limits: Limits,
    /// The operators: those of its tables, in their order; then those of streams, each after those that it takes its events from.
    #[serde(default, skip_serializing_if = "has_none")]
    pub operators: TiVec<OperatorId, Operator>,
    /// Sources of earlier versions that are not wanted any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
}

impl Program {
    /// Returns a transaction with a role that is rows of its table and not one row, if there is one, and that role.
    pub fn scan(&self) -> Option<(&Transaction, &Role)> {
        let mut roles = self.transactions.iter().flat_map(|t| t.roles.iter().map(move |role| (t, role)));
        roles.find(|(_, role)| role.scan.is_some())
    }

    /// Returns the streams of the sources, by number.
    pub fn sources(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(|stream| matches!(stream.origin, Origin::Source { .. }))
    }

    /// Returns a source with event time, if this one's events can be sent, but not read: they bring no event time, and
    /// those of the other source do. Gives that source. Events that are read would have to be in order with those of
    /// the other.
    pub fn sent_beside(&self, source: &Stream) -> Option<&Stream> {
        let mut timed = self.sources().filter(|other| other.own_time().is_some());
        timed.next().filter(|_| source.own_time().is_none())
    }

    /// Returns the streams of what is due, in the order of a boundary: what closes, by the transactions that run on it;
    /// then ticks; then wakes.
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

    /// Returns the streams of late events that are inputs, in the order of their sources.
    pub fn lates(&self) -> Vec<StreamId> {
        let is_late = |s: &StreamId| matches!(self.streams[*s].origin, Origin::LateRoot(_));
        self.streams.keys().filter(is_late).collect()
    }

    /// Returns the source whose late events a stream has: the stream that users know as that of the late events.
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

fn has_none(operators: &TiVec<OperatorId, Operator>) -> bool {
    operators.is_empty()
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
    /// The columns, in declaration order.
    pub columns: Vec<Column>,
    /// Indices of the key columns, in order; at least one.
    pub key: Vec<usize>,
    /// Its indexes: of each the columns, the first of which counts most.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "columns_of_indexes")]
    pub indexes: Vec<Vec<usize>>,
    /// Declared groups of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<KeyGroups>,
    /// Its name in an earlier version of the schema: a state that has no table of its own name migrates that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The time at which its rows expire, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<Expire>,
    /// A flag: whether it holds the windows over a stream, so that only the program's own transactions know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
    /// The operator that it is a part of, if it is one; not written with a state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner<TablePart>>,
}

/// Groups of keys: the value of a key column of ints modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyGroups {
    /// The column.
    pub column: usize,
    /// The number of groups.
    pub count: usize,
}

impl Table {
    /// Returns the columns of an index by name.
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
    /// The value that an insert without a value gives it.
    pub default: Option<Value>,
    /// The window of a windowed column, whose cell is of type `Bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Its name in an earlier version of the schema: a state that has no column of its own name migrates that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The function that converts a state's values of another type to values of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert: Option<Conversion>,
}

/// A function of one value, as a program of one transaction: from events of a row's number and a value of the type
/// `from` to events of the row's number and the converted value, or to an abort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversion {
    /// The type that it takes. Where it cannot be None, None stays None.
    pub from: ColumnType,
    /// The program of the function, with one source and no tables. Its sinks are the committed and the aborted events.
    pub program: Box<Program>,
}

impl Column {
    /// Makes a column that says nothing else about itself.
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
    /// The origin of its events.
    pub origin: Origin,
    /// The root stream whose events this stream's events are, possibly filtered and mapped; itself
    /// for a root. For `Late` and `Bad`: the source.
    pub root: StreamId,
    /// The transactions that an event of this root must be offered to, by transaction and then by
    /// input index. Empty for other streams.
    pub deliveries: Vec<Delivery>,
    /// The operator that it is a part of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner<StreamPart>>,
}

impl Stream {
    /// Returns whether the events of a source are sent without a time, and hold that of their anchored position.
    pub fn is_anchored(&self) -> bool {
        matches!(self.origin, Origin::Source { anchored: true, .. })
    }

    /// Returns the time for which the answers of calls with a key are kept, microseconds; none if calls have no keys.
    pub fn remembers(&self) -> Option<i64> {
        match self.origin {
            Origin::Source { remembers, .. } => remembers,
            _ => None,
        }
    }

    /// Returns the number of keys of calls that are kept at a time, at most.
    pub fn keys_max(&self) -> u64 {
        match self.origin {
            Origin::Source { keys_max: Some(most), .. } => most,
            _ => KEYS_MAX,
        }
    }

    /// Returns how far ahead of the clock the events of a source may be, microseconds, if that has a bound. `is_of_others`: clients push
    /// them, or they are in files that are followed.
    pub fn ahead(&self, is_of_others: bool) -> Option<i64> {
        let Origin::Source { ahead, .. } = self.origin else { return None };
        let field = &self.schema.fields[self.own_time()?];
        ahead.most(is_of_others).filter(|_| field.scalar_type().is_some_and(|scalar| scalar.ty == Type::Time))
    }

    /// Returns the stream of a source's late events.
    pub fn late(&self) -> Option<StreamId> {
        match self.origin {
            Origin::Source { late, .. } => Some(late),
            _ => None,
        }
    }

    /// Returns the fields that say who makes a call, among those of a source's events as they are sent ([`Stream::brought`]).
    pub fn caller(&self) -> CallerAt {
        let Origin::Source { caller: CallerAt { user, protocol }, .. } = self.origin else {
            return CallerAt::default();
        };
        let filled = self.filled_time();
        let among = |at: usize| at - usize::from(filled.is_some_and(|filled| filled < at));
        CallerAt { user: user.map(among), protocol: protocol.map(among) }
    }

    /// Returns the field of a source's events in which they bring their event time.
    pub fn own_time(&self) -> Option<usize> {
        self.event_time.filter(|_| !self.is_anchored())
    }

    /// Returns the field that the gate fills with the time of the position.
    pub fn filled_time(&self) -> Option<usize> {
        self.event_time.filter(|_| self.is_anchored())
    }

    /// Returns the schema of a source's events as they are sent or read.
    pub fn brought(&self) -> Schema {
        let mut schema = self.schema.clone();
        if let Some(field) = self.filled_time() {
            schema.fields.remove(field);
        }
        schema
    }
}

/// The indexes of the fields of calls that say who makes them ([`CallerFields`](crate::plan::CallerFields)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerAt {
    /// The index of the name of the user.
    pub user: Option<usize>,
    /// The index of the protocol.
    pub protocol: Option<usize>,
}

impl CallerAt {
    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        *self == CallerAt::default()
    }

    /// Returns whether a field is one of them.
    pub fn has(&self, field: usize) -> bool {
        [self.user, self.protocol].contains(&Some(field))
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

/// The origin of a stream's events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Origin {
    /// The events of a source, from outside. An event is late if its time is less than the greatest time among the
    /// source's earlier events (by offset; late ones do not count) minus `lateness`. A lateness below zero says by how
    /// much each event is later than the one before, at least, as of a clock.
    Source {
        /// The source's number, in declaration order.
        source: SourceId,
        /// The lateness, in the unit of the event-time field.
        lateness: i64,
        /// Its events are sent, and their event-time field gets the time of their anchored position.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anchored: bool,
        /// The time for which answers are kept, in microseconds: its events are calls that may have a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remembers: Option<i64>,
        /// The number of keys that are kept at a time, at most. None: [`KEYS_MAX`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys_max: Option<u64>,
        /// The bound on how far ahead of the machine's clock an event may be.
        #[serde(default, skip_serializing_if = "Ahead::is_by_input")]
        ahead: Ahead,
        /// The fields that say who makes a call.
        #[serde(default, skip_serializing_if = "CallerAt::is_none")]
        caller: CallerAt,
        /// Its late events, same schema.
        late: StreamId,
        /// Its undecodable records, [`bad_schema`].
        bad: StreamId,
    },
    /// The events for which the predicate (non-null `Bool`) holds.
    Filter {
        /// The stream that is filtered.
        input: StreamId,
        /// The predicate, over `Field` nodes.
        predicate: Expr,
        /// The reasons for which the predicate can fail.
        reasons: Vec<String>,
        /// The stream of the events for which it fails.
        failed: StreamId,
    },
    /// A map: an event for each event of another stream.
    Map {
        /// The stream whose events are mapped.
        input: StreamId,
        /// The fields, in schema order.
        fields: Vec<OutputField>,
        /// The reasons for which a field can fail.
        reasons: Vec<String>,
        /// The stream of the events for which one fails.
        failed: StreamId,
    },
    /// The records that a transaction returned, or the events that it ran on.
    Committed(TransactionId),
    /// The events whose transaction aborted.
    Aborted(TransactionId),
    /// The events that a transaction emitted: index into [`Transaction::emits`].
    Emitted(TransactionId, usize),
    /// The rows of a table that are due at times, such as the windows over a stream that close.
    Due(Due),
    /// The late events of a source. Feeds sinks only.
    Late(StreamId),
    /// The late events of a source, if they are inputs: a root. Its events have the fields of the source's, and then,
    /// as their event time, the time of their position: the greatest of the source's earlier times and marks. A map of
    /// it without that field is the stream that the source names.
    LateRoot(StreamId),
    /// The atomic batches of a source (S-Store §2.1): a root.
    Batch(Batch),
    /// The undecodable records of a source. Feeds sinks only.
    Bad(StreamId),
    /// The events that failed in a filter or map: the fields of its input and `reason`. Feeds sinks only.
    Failed(StreamId),
}

/// The events of a source, some at a time. The fields are `batch`, the number of the batch from 1, `events`, the events in
/// their order, and then those that the size has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The source. Its late events are in no batch.
    pub source: StreamId,
    /// The events that are a batch.
    pub size: BatchSize,
}

impl Batch {
    /// Returns the earliest boundary at which a batch can be due that an event begins.
    pub fn bound(&self) -> Bound {
        match self.size {
            BatchSize::Count(_) => Bound::Never,
            BatchSize::Time { every, origin } => Bound::Grid { every, origin },
        }
    }
}

impl Origin {
    /// Returns whether it is a root whose events an epoch is given, not one that a transaction feeds.
    pub fn is_given(&self) -> bool {
        matches!(self, Origin::Source { .. } | Origin::LateRoot(_) | Origin::Batch(_) | Origin::Due(_))
    }

    /// Returns whether its events have places ([`Node::Place`]), and so have those of the streams that are filtered or mapped
    /// from it.
    pub fn has_places(&self) -> bool {
        matches!(self, Origin::Source { .. } | Origin::LateRoot(_))
    }

    /// Returns the earliest boundary for what an event makes, if rows of it are due at boundaries.
    pub fn bound(&self) -> Option<Bound> {
        match self {
            Origin::Due(due) => Some(due.bound.clone()),
            Origin::Batch(batch) => Some(batch.bound()),
            _ => None,
        }
    }

    /// Returns whether its events are those of a source, one by one or in batches, without a transaction between.
    pub fn is_of_source(&self) -> bool {
        self.is_given() && !matches!(self, Origin::Due(_))
    }
}

/// Rows of a table that are due at times.
///
/// A row is due at the *boundary* in its column `due`, if that is not None: behind everything with a time below, before everything else. It gives
/// one event. The transactions on that event delete the row or make it due later. The events of one boundary are in the
/// order of the column `first`, those of rows without one in the order of their keys. What closes before an instant comes
/// first, then the ticks of the instant, then the rows that wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The table.
    pub table: TableId,
    /// The column that holds the boundary; an int in units of event time, or a time.
    pub due: usize,
    /// The column that orders rows; an int. It is `due` where keys do: of rows that wake, and of those that a join frees.
    pub first: usize,
    /// The fields of the event.
    pub fields: Vec<DueField>,
    /// The earliest boundary at which a row can be due that a transaction makes.
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
        /// The origin of the grid.
        origin: i64,
    },
    /// The end of the period that the time lies in.
    Periods(Periods),
    /// The time at this distance after the event.
    After(i64),
    /// The time at this distance after the event; but a row that was due may stay, and be due again from the next
    /// instant on.
    Again(i64),
    /// The end of time, after all events.
    Never,
    /// No row, but the times of a clock: `origin` and each multiple of `every` before and after it that is after the first
    /// time of all. The table's row holds the next, once there was one. See [`Due::next_tick`].
    Ticks {
        /// The distance.
        every: i64,
        /// The origin of the grid.
        origin: i64,
    },
    /// The time at a distance of at least 1 after it: rows that wake.
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
        /// The origin of the grid.
        origin: i64,
        /// The length of a window.
        length: i64,
        /// The other table. The fields of an event are made of its rows.
        of: TableId,
    },
}

/// The most ticks between two events of sources.
pub const TICKS_MAX: i128 = 10_000;

/// The number of keys of calls of a source that are kept at a time, where nothing else is declared.
pub const KEYS_MAX: u64 = 1 << 20;
/// The greatest number that may be declared.
pub const KEYS_MAX_MAX: u64 = 1 << 30;

/// The value of a clock's row, in place of the next time, once there is none before the end of time. No tick is at it:
/// ticks come after the first time of all.
pub const NO_TICK: i64 = i64::MIN;

impl Due {
    /// Returns the next tick: `known` as the row has it, if there was one; `last` is the time of the last event of a
    /// source, or of the first if none has passed. None until the next event if [`TICKS_MAX`] followed the last: those
    /// up to that event are left out.
    pub fn next_tick(&self, known: Option<i64>, last: i64) -> Option<i64> {
        let (Bound::Ticks { every, .. } | Bound::Rows { every, .. }) = self.bound else {
            unreachable!("they are at the times of a grid")
        };
        if known == Some(NO_TICK) {
            return None;
        }
        let first = self.bound.after(last)?;
        let next = known.map_or(first, |known| known.max(first));
        let before = (i128::from(next) - i128::from(first)) / i128::from(every);
        (before < TICKS_MAX).then_some(next)
    }

    /// Returns the number of times of the grid that are left out if events pass up to a time: `known` and `last` are as
    /// of [`Due::next_tick`] before that.
    pub fn left_out(&self, known: Option<i64>, last: i64, until: i64) -> u64 {
        let (Bound::Ticks { every, .. } | Bound::Rows { every, .. }) = self.bound else {
            unreachable!("they are at the times of a grid")
        };
        let Some(first) = self.bound.after(last).filter(|_| known != Some(NO_TICK)) else { return 0 };
        let next = known.map_or(first, |known| known.max(first));
        if next > until { 0 } else { (until.abs_diff(next) / every as u64).saturating_add(1) }
    }

    /// Returns the next boundary of [`Bound::Rows`]: `known` and `last` are as of ticks. `end`: at the end of time, the
    /// greatest time that was shown; no window has rows that begins after it.
    pub fn next_rows(&self, known: Option<i64>, last: i64, end: Option<i64>) -> Option<i64> {
        let Bound::Rows { length, .. } = self.bound else { unreachable!("they are rows of a table") };
        // Behind the last of all times there is none.
        let next = self.next_tick(known, last).filter(|_| known != Some(i64::MAX))?;
        let begins = i128::from(next) - i128::from(length);
        end.is_none_or(|end| begins <= i128::from(end)).then_some(next)
    }

    /// Returns whether these are the rows of another table.
    pub fn is_rows(&self) -> bool {
        matches!(self.bound, Bound::Rows { .. })
    }

    /// Returns whether these are the ticks of a clock.
    pub fn is_ticks(&self) -> bool {
        matches!(self.bound, Bound::Ticks { .. })
    }

    /// Returns whether these are rows of a table of users that expire.
    pub fn is_expiry(&self, program: &Program) -> bool {
        self.is_wakes() && !program.tables[self.table].is_hidden
    }

    /// Returns whether the rows of a boundary are in the order of their keys.
    pub fn is_by_key(&self) -> bool {
        self.first == self.due
    }

    /// Returns whether these are rows that wake.
    pub fn is_wakes(&self) -> bool {
        matches!(self.bound, Bound::Wakes { .. })
    }

    /// Returns whether it begins the instant of its boundary, as timers do; all else completes the instant before.
    pub fn begins_instant(&self) -> bool {
        self.is_ticks() || self.is_wakes()
    }
}

impl Bound {
    /// Returns the earliest boundary of a row that is made at a time; none beyond the end of time.
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

/// Returns the fields of a source's `bad` stream: where the record stood, what was wrong, and its text as far as it is
/// text.
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
    /// The stream that goes out.
    pub stream: StreamId,
}

/// A state transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    /// Its name.
    pub name: String,
    /// The streams it runs on; their schemas are equal.
    pub inputs: Vec<StreamId>,
    /// The schema of these streams.
    pub schema: Schema,
    /// The rows it may touch.
    pub roles: Vec<Role>,
    /// The types of its local variables. Analysis has made sure that none is read before it is set.
    pub locals: Vec<Local>,
    /// The list field of each `ForEach`.
    pub loops: Vec<usize>,
    /// The statements that it runs.
    pub body: Vec<Stmt>,
    /// The texts of all reasons it can abort with.
    pub reasons: Vec<String>,
    /// The output on commit.
    pub committed: CommittedOutput,
    /// Named emissions.
    pub emits: Vec<EmitOutput>,
    /// Its `Aborted` stream: the input's fields, `reason`, then one column per `seen`.
    pub aborted: StreamId,
    /// The columns of rows that `aborted` shows.
    pub seen: Vec<Seen>,
    /// A flag: whether an event that it emits can reach another transaction. Such transactions (and those that they
    /// reach) run one event at a time, unless in [`crate::Waves`].
    pub cascades: bool,
    /// The transactions with which it commits or aborts as one.
    #[serde(default)]
    pub nesting: Nesting,
    /// A flag: whether it is a filter or map that reads rows, and nobody calls it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derives: bool,
    /// The fold, if it only folds its events into a row of its own; [`Program::fold`] says whether they may be folded
    /// apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
    /// The operator that it is a part of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner<TransactionPart>>,
}

/// The way in which the rows of a transaction's only role are merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// The merge of each column of the table. Those of the key and those that a row has from its first event stay.
    pub columns: Vec<Merge>,
}

/// The merge of a cell, if a later partial row is merged into a row that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Merge {
    /// The value of the existing row stays.
    Stays,
    /// The sum of both.
    Sum,
    /// The lesser value, by number; None counts for nothing.
    Least,
    /// The greater value.
    Greatest,
    /// True if one of them is true.
    Any,
    /// True if both are.
    All,
    /// The later value.
    Last,
    /// The lesser one or, with `greatest`, the greater one, as of [`Merge::Least`]; where it is the later one, the
    /// cells `with` it are.
    Best {
        /// A flag: whether the greater one is better.
        greatest: bool,
        /// The columns that follow, which stay otherwise.
        with: Vec<usize>,
    },
    /// The windows of both: of sums, or of moments.
    Window(Window),
}

/// The nesting of a transaction, which commits or aborts as one with others.
///
/// A *nest* is a root with the transactions nested in it: those that take what it, or another of them, returns or emits.
/// To run the root on an event: run it; then for each event that it emitted, in order, run its nested deliveries, and then
/// likewise for each event that these emitted, before the next. Where all commit, the other deliveries of these events
/// follow in the order in which the events were followed, as if the root had emitted them. Where one aborts, everything is
/// undone, nothing was emitted, and the root aborts, with that transaction's reason under a text of its own; what an abort
/// shows of a role over a list is null then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nesting {
    /// The transaction stands alone.
    #[default]
    Alone,
    /// The transaction is the root of these, in the order of their numbers.
    Root(Vec<Nested>),
    /// The transaction is nested in this root.
    In(TransactionId),
}

/// A transaction that is nested in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nested {
    /// The nested transaction.
    pub transaction: TransactionId,
    /// The first of its reasons among those of the root; the others follow.
    pub first_reason: ReasonId,
}

impl Transaction {
    /// Returns whether other transactions are nested in this one.
    pub fn is_root(&self) -> bool {
        matches!(self.nesting, Nesting::Root(_))
    }

    /// Returns whether the transaction is nested in another one.
    pub fn is_nested(&self) -> bool {
        matches!(self.nesting, Nesting::In(_))
    }

    /// Returns the reason with which this root aborts where a transaction of its nest does.
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
    /// A flag: whether the input event itself is emitted, because the body never returns a record.
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
    /// The local that numbers the rows, if the role is rows of its table, and not one row: an `Int`, whose value is the
    /// number of the row at hand, from 0, in the order of [`Role::selection`] or of keys (false before true, words by
    /// number, text and bytes by their bytes). The rows are those before the transaction, and stay at their numbers:
    /// one that is deleted is missing then. A loop from 0 to [`Node::Rows`] sets the local, nothing else does, and the
    /// role's cells are read inside of such a loop only. The key is empty, nothing is inserted, and nothing is shown
    /// with an abort; but see [`Role::each`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<LocalId>,
    /// The earlier role with a row of this one for each of its rows. Both have one `scan`. The key is that of a role that is
    /// one row, and its rows may be inserted and are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<RoleId>,
    /// The rows that such a role is: chosen on the rows as they are before the transaction.
    #[serde(default, skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// The value that a read of a missing row gives.
    pub missing: Missing,
    /// A flag: whether a write to a missing row inserts it with the defaults first.
    pub create: bool,
    /// A flag: whether there is any `Set`, `Insert` or `Delete` on it.
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
    /// The role whose row this one's row wakes, if it is a hidden role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<RoleId>,
}

impl Role {
    /// Returns whether its rows are known only when the transaction is about to run.
    pub fn is_found_late(&self) -> bool {
        self.is_dependent() || self.scan.is_some()
    }

    /// Returns whether it is rows of its table that are chosen, not named by a key.
    pub fn is_chosen(&self) -> bool {
        self.scan.is_some() && self.each.is_none()
    }

    /// Returns whether the role is one row.
    pub fn is_one_row(&self) -> bool {
        self.over.is_none() && self.scan.is_none()
    }

    /// Returns whether its key depends on rows that are read.
    pub fn is_dependent(&self) -> bool {
        self.key.iter().any(Expr::reads_rows)
    }
}

/// The value that a read of a missing row gives.
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
    /// Run the body for each element of list field `loops[loop_id]`, in order.
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
    /// The operation.
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
    /// True if the role's row exists as of now; false where the key is null.
    Exists { role: RoleId, element: Option<LoopId> },
    /// The number of rows of a role that is not one row; `Int`. See [`Role::scan`].
    Rows { role: RoleId },
    /// The number of elements of a list field.
    Length(usize),
    /// The place of the event in the history; `Int`. Its stream is made of one whose origin [has places](Origin::has_places).
    /// It is the number of the event, from 1, among those of all sources that pass: the punctual ones and, where late ones are
    /// inputs, these. So events of sources have the order of their places, whatever the epochs.
    Place,
    /// The operand (nullable), or abort where it is null.
    Unwrap { value: Box<Expr>, reason: ReasonId },
    /// True if the operand (nullable) is null.
    IsNull(Box<Expr>),
    /// Word arithmetic; aborts with `reason` on overflow of 64 bits.
    Word { op: WordOp, left: Box<Expr>, right: Box<Expr>, reason: ReasonId },
    /// Float arithmetic: IEEE, with aborts as [`FloatOp`] says.
    Float { op: FloatOp, left: Box<Expr>, right: Box<Expr>, reason: ReasonId },
    /// A function of one or two floats, with aborts as [`MathOp`] says.
    Math { op: MathOp, arguments: Vec<Expr>, reason: ReasonId },
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
    /// A function of texts and ints, with aborts as [`TextCall`] says.
    TextCall { op: TextCall, arguments: Vec<Expr>, reason: ReasonId },
    /// The bytes of a window (`cell`) with one more value in it, added at `time` (the constant 0 where the
    /// window keeps the last values, and has no slices). Never fails.
    WindowAdd { window: Window, cell: Box<Expr>, time: Box<Expr>, value: Box<Expr> },
    /// An aggregate over the last `within` slices of a window, or the last `within` values, as of `time`. `Count`
    /// and `Distinct` are `Int`. `Sum` is of the type of the values; aborts with `reason` unless it fits 64 bits.
    /// `Mean` is the float quotient of sum and count, of decimals the quotient rounded half to even. `Mean`, `Min`
    /// and `Max` of no values are null.
    WindowRead { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, aggregate: Aggregate, reason: ReasonId },
    /// The answer of a synopsis over the last `within` slices, or all, as of `time`. The argument is not null: an
    /// `Int`, for [`Ask::Quantile`] a `Float`, for [`Ask::Frequency`] of the type of the values. The answer is an
    /// `Int`, for [`Ask::Value`] of the type of the values, for [`Ask::Quantile`] a `Float`, both nullable. Never
    /// fails.
    SynopsisRead { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, ask: Ask, argument: Box<Expr> },
    /// The values as one record of a window ([`crate::Keep::Records`], [`crate::Keep::Latest`]); `Bytes`. Never fails.
    Pack(Vec<Expr>),
    /// The place in the bytes of a window of records where the first entry begins that is in the last `within` slices
    /// as of `time`, after the one that begins at `after`, or from the start where that is negative; −1 if there is
    /// none. `Int`.
    WindowNext { window: Window, cell: Box<Expr>, time: Box<Expr>, within: i64, after: Box<Expr> },
    /// The value of number `field`, among `of`, of the record in the entry that begins at `at`. It has the type that it was
    /// packed with, possibly null there.
    WindowField { cell: Box<Expr>, at: Box<Expr>, of: usize, field: usize },
    /// The start or the end of the period that holds a time, of its type. A start before all times is the first time;
    /// where an end is after the last one, it aborts with `reason`.
    Period { edge: Edge, periods: Periods, time: Box<Expr>, reason: ReasonId },
    /// A part of what calendar and clock of the zone show at a `Time`; `Int`. Never fails.
    DatePart { part: DatePart, zone: Zone, time: Box<Expr> },
    /// Characters (Unicode scalar values) of a text, bytes of bytes; `Int`.
    Len(Box<Expr>),
    /// The operand, a text or bytes, possibly null. Once it is evaluated, its bytes (0 of a null) are counted against a
    /// limit of [`Program::limits`]; aborts with `reason` where the sum is then beyond it.
    Counted { measure: Measure, value: Box<Expr>, reason: ReasonId },
}

/// The amount that a [`Stmt::Count`] adds, to the steps or to the bytes of memory of the transaction at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Count {
    /// A number of steps.
    Steps(i64),
    /// A number of bytes.
    Memory(i64),
    /// The bytes of a text field of the event.
    Text(usize),
    /// A list field of the event, which comes straight from a source: 16 bytes for each value of its elements, and the
    /// bytes of their texts.
    List(usize),
}

/// The measure by which the bytes of a text count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Steps: one for each [`STEP_BYTES`] of them, rounded down, as an operation is about to read them all.
    Read,
    /// Memory: each of them, as they are made or copied.
    Made,
}

/// The number of bytes of a text that count as one step when they are read.
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

/// Functions of floats. Aborts where the result is NaN and no argument is, or where it is infinite and all arguments are
/// finite; of [`MathOp::Hypot`] never.
///
/// Those that are not rounded correctly have the values of the crate `libm`, of the version that the workspace names: the same
/// bits on every machine, within one unit in the last place of Python's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MathOp {
    /// The square root, rounded correctly.
    Sqrt,
    /// left − right × n with the n nearest to left / right that is no further from 0; exact.
    Fmod,
    /// e^x
    Exp,
    /// The logarithm to base e.
    Log,
    /// The logarithm to base 2.
    Log2,
    /// The logarithm to base 10.
    Log10,
    /// left^right, of infinities and NaN as C99 has it.
    Pow,
    /// The sine of an angle in radians.
    Sin,
    /// The cosine of an angle in radians.
    Cos,
    /// The tangent of an angle in radians.
    Tan,
    /// The angle of the point (right, left), from −π to π.
    Atan2,
    /// The distance of the point (left, right) from the origin.
    Hypot,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cast {
    /// The word unchanged, under another word type.
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
    /// Towards minus infinity; aborts likewise.
    FloatFloor,
    /// Towards infinity; aborts likewise.
    FloatCeil,
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
    /// / 10^by, towards minus infinity.
    ScaleFloor {
        /// ≤ 18
        by: u8,
    },
    /// / 10^by, towards infinity.
    ScaleCeil {
        /// ≤ 18
        by: u8,
    },
    /// The decimal unchanged, aborting unless |unscaled| < 10^digits.
    FitDigits {
        /// ≤ 18
        digits: u8,
    },
    /// Decimal digits with an optional sign, nothing else; aborts otherwise and on overflow.
    StrToInt,
    /// The float that Rust's `f64::from_str` reads; aborts otherwise.
    StrToFloat,
    /// Decimal digits, minus sign.
    IntToStr,
    /// "True" or "False".
    BoolToStr,
    /// [`tidemill_model::format_decimal`].
    DecimalToStr {
        /// The scale of the decimal.
        scale: u8,
    },
}

/// A text of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextOp {
    /// The text in lower case, as by Rust's `str::to_lowercase`.
    Lower,
    /// The text in upper case, as by Rust's `str::to_uppercase`.
    Upper,
    /// The text without white space at its ends, as by Rust's `str::trim`.
    Strip,
}

/// Functions of texts and ints. Places and widths are counted in characters, Unicode scalar values; a negative place is
/// counted from the end of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextCall {
    /// (text, part, start, end): where the part first stands within `text[start:end]`, as a place in the text; −1 where it
    /// does not, and where the start is after the end or the text.
    Find,
    /// (text, old, new, count): with the first `count` places of `old`, of a negative count all, replaced from left to right;
    /// the empty text is before each character and at the end. Aborts where the result has more bytes than [`TEXT_MAX`]
    /// and than the text.
    Replace,
    /// (text, start, stop): the characters from one place to before another, both moved into the text.
    Slice,
    /// (text, place): one character; aborts where the text has no such place.
    At,
    /// (text, width): with zeros in front, after a sign, up to a width. Aborts where zeros are missing and the result has more
    /// bytes than [`TEXT_MAX`].
    Zfill,
    /// (text, separator, most, index): a part of the text between separators, of which the first `most` divide it, of a
    /// negative number all; aborts where there is no such part.
    Part,
    /// (text, separator, most): the number of these parts.
    Parts,
    /// (text, most, index): a part of the text between white space, as Python's `str.split()`; aborts where there is none.
    SpacedPart,
    /// (text, most): the number of these parts.
    SpacedParts,
    /// (text): the text, which is not empty; aborts where it is.
    Separator,
}

/// The maximum number of bytes of a text that is made by replacing or filling.
pub const TEXT_MAX: usize = 1 << 26;

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
