//! The plan: what a front end says, as plain data. Serializable and versioned; stored with state and
//! shipped to other nodes. Names refer to things; nothing is resolved or typed yet. [`crate::analyze`]
//! turns a plan into a [`crate::Program`], which is what interpreters and compilers read.
#![allow(missing_docs, reason = "the fields of a variant are documented with the variant")]

use crate::{Ahead, DatePart, Edge, JoinHow, Limits, Periods, SelectionDef, Zone};
use serde::{Deserialize, Serialize};
use tidemill_model::{ColumnType, Schema, Value};

/// The version of this format. A reader refuses a plan of a newer one.
pub const PLAN_VERSION: u32 = 2;

/// A whole application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`] of the writer.
    pub version: u32,
    /// The application's name.
    pub name: String,
    /// The version of its schema, raised by who changes tables or events of an application with a state.
    #[serde(default = "first_version")]
    pub schema_version: u64,
    /// Shared tables.
    #[serde(default)]
    pub tables: Vec<TableDef>,
    /// Sources and the streams derived from streams, each after the streams it derives from.
    #[serde(default)]
    pub streams: Vec<StreamDef>,
    /// Transactions in declaration order, which is the order in which they see one event.
    #[serde(default)]
    pub transactions: Vec<TransactionDef>,
    /// Streams that leave the application.
    #[serde(default)]
    pub sinks: Vec<SinkDef>,
    /// The limits of one transaction.
    #[serde(default, skip_serializing_if = "Limits::is_default")]
    pub limits: Limits,
    /// Sources of earlier versions that are not wanted any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
}

/// Returns the version of an application that does not say one.
fn first_version() -> u64 {
    1
}

/// A shared table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDef {
    /// Unique among tables.
    pub name: String,
    /// Columns in declaration order.
    pub columns: Vec<ColumnDef>,
    /// Indexes, each of one column or several, by which [`RoleDef::selection`] finds rows without a look at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Vec<String>>,
    /// A flag: whether its changes are a stream ([`StreamRef::Changes`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
    /// Into which groups its keys fall that no transaction crosses ([`crate::Groups`]), if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<KeyGroupsDef>,
    /// Its name in an earlier version of the schema, whose rows it takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The time at which its rows expire, if they do. It then has a column `gone_at` with that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<Expire>,
}

/// The time at which a row is deleted, without a transaction of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expire {
    /// So long after the last write of the row: a `duration`, or an `int` where the event time is one.
    After(Value),
    /// The time in this column; at the next instant where that is over.
    At(String),
}

impl TableDef {
    /// A table without indexes and groups, whose changes are no stream and whose rows stay.
    pub fn new(name: impl Into<String>, columns: Vec<ColumnDef>) -> Self {
        let (indexes, changes, groups, was, expire) = (Vec::new(), false, None, None, None);
        TableDef { name: name.into(), columns, indexes, changes, groups, was, expire }
    }
}

/// Groups of keys: the value of a key column modulo their number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyGroupsDef {
    /// A key column of type int.
    pub column: String,
    /// The number of groups, at least 2.
    pub count: usize,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Unique in its table.
    pub name: String,
    /// Its type.
    #[serde(flatten)]
    pub ty: ColumnType,
    /// A flag: whether it is part of the key (in column order). Keys are never null, never float.
    #[serde(default)]
    pub key: bool,
    /// The value of a row that nothing was written to. Without one, an insert must give the value.
    #[serde(default)]
    pub default: Option<Value>,
    /// The window of a windowed column: the cell keeps values that were added of late, each of type `ty`, instead of
    /// one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowDef>,
    /// Its name in an earlier version of the schema, whose values it takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The function that converts the values which it takes over to values of `ty`, if they were of another type. A
    /// column of the key or a windowed one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert: Option<ConvertDef>,
}

/// A function of one value, for each row of a state that is migrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvertDef {
    /// The type of the value that it takes: in statements and expressions, the `Event` field [`ConvertDef::VALUE`].
    /// Where it cannot be None, None stays None.
    pub from: ColumnType,
    /// The statements that run first. There are no rows, no emissions and no returns; what aborts refuses the
    /// migration.
    #[serde(default)]
    pub body: Vec<Stmt>,
    /// The value that it gives after that; it fits the column's type.
    pub value: Expr,
}

impl ConvertDef {
    /// The name of the value that is converted.
    pub const VALUE: &str = "value";
}

impl ColumnDef {
    /// Makes a column that is no part of the key, and says nothing else about itself.
    pub fn new(name: impl Into<String>, ty: impl Into<ColumnType>) -> ColumnDef {
        ColumnDef {
            name: name.into(),
            ty: ty.into(),
            key: false,
            default: None,
            window: None,
            was: None,
            convert: None,
        }
    }
}

/// The values added to a windowed column that are kept. Spans are a `duration`, or an `int` where the event time is
/// one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowDef {
    /// The values of the last `span`, in slices of `slide`; without that, every time is a slice of its own.
    Span {
        span: Value,
        #[serde(default)]
        slide: Option<Value>,
        /// A flag: whether the distinct values are kept, not count, sum, least and greatest of each slice.
        #[serde(default)]
        distinct: bool,
    },
    /// All records ([`ExprNode::Pack`]) of the last `span`, in slices of `slide`.
    Records {
        span: Value,
        #[serde(default)]
        slide: Option<Value>,
    },
    /// The last record ([`ExprNode::Pack`]) of each slice of the last `span`, in slices of `slide`.
    Latest {
        span: Value,
        #[serde(default)]
        slide: Option<Value>,
    },
    /// Count, sum and sum of squares of those of the last `span`, in slices of `slide`: for variances.
    Moments {
        span: Value,
        #[serde(default)]
        slide: Option<Value>,
    },
    /// A synopsis of the values: of those of the last `span`, in slices of `slide`, or without slices of all.
    Synopsis {
        of: Synopsis,
        #[serde(default)]
        slices: Option<(Value, Value)>,
    },
    /// This number of the last values.
    Last(i64),
}

/// A part of a windowed column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowPart {
    /// `window(span)`: the values of the last `span`.
    Span(Value),
    /// `last(count)`: this number of the last values.
    Last(i64),
}

/// An aggregate of the values in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The number of values.
    Count,
    /// The sum of the values; 0 of none.
    Sum,
    /// The mean of the values; `None` of none.
    Mean,
    /// The least; `None` of none.
    Min,
    /// The greatest; `None` of none.
    Max,
    /// The number of different values.
    Distinct,
    /// The variance of a sample, a float; `None` of fewer than two.
    Variance,
    /// The standard deviation of a sample, a float; `None` of fewer than two.
    Stddev,
    /// The variance of a population, a float; `None` of none.
    Pvariance,
    /// The standard deviation of a population, a float; `None` of none.
    Pstddev,
}

impl Aggregate {
    /// Returns whether it is a variance or a standard deviation.
    pub fn is_spread(self) -> bool {
        matches!(self, Aggregate::Variance | Aggregate::Stddev | Aggregate::Pvariance | Aggregate::Pstddev)
    }
}

/// A synopsis that is kept in place of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Synopsis {
    /// Each value with the number of times that it was added.
    Counts,
    /// The registers of a HyperLogLog sketch (Flajolet, Fusy, Gandouet, Meunier, 2007), all of them.
    Registers,
    /// The buckets of a DDSketch (Masson, Rim, Lee, 2019), none of which are collapsed.
    Buckets,
    /// The counters of a Count-Min sketch (Cormode, Muthukrishnan, 2005).
    Counters,
}

impl Synopsis {
    /// Returns the noun for what it keeps.
    pub fn name(self) -> &'static str {
        match self {
            Synopsis::Counts => "counts",
            Synopsis::Registers => "registers",
            Synopsis::Buckets => "buckets",
            Synopsis::Counters => "counters",
        }
    }
}

/// The questions to a synopsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The value whose rank is the argument, from 0 on; asked of counts. First are those that are most frequent, of
    /// those as frequent the one that was added first. `None` if there is none.
    Value,
    /// The number of times that this value was added, 0 if there is none; asked of counts.
    Times,
    /// About the number of different values that were added; asked of registers. The argument does not matter.
    Distinct,
    /// About the value of the rank floor(*q* (*n* − 1)) of *n* values, counted from 0, where *q* is the argument;
    /// `None` of none, NaN where a value is NaN; asked of buckets.
    Quantile,
    /// About the number of times that the argument was added; asked of counters.
    Frequency,
}

impl Ask {
    /// Returns the synopsis that can be asked so.
    pub fn of(self) -> Synopsis {
        match self {
            Ask::Value | Ask::Times => Synopsis::Counts,
            Ask::Distinct => Synopsis::Registers,
            Ask::Quantile => Synopsis::Buckets,
            Ask::Frequency => Synopsis::Counters,
        }
    }
}

/// A stream with a name of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamDef {
    /// Unique among streams.
    pub name: String,
    /// The origin of its events.
    pub origin: OriginDef,
}

/// The fields of calls, of type `Str`, that say who makes them. A server fills them in, and takes them from no client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerFields {
    /// The name of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The protocol: `http` or `postgresql`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

impl CallerFields {
    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        *self == CallerFields::default()
    }
}

/// The origin of a named stream's events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginDef {
    /// The events come from outside.
    Source {
        /// The fields of its events.
        schema: Schema,
        /// The field that holds event time (`Time` or `int`, not nullable); none: arrival order.
        #[serde(default)]
        event_time: Option<String>,
        /// The lateness up to which an event is punctual, in the unit of the event time (microseconds for `Time`).
        /// Below zero, as of a clock: by how much each event is later than the one before, at least.
        #[serde(default)]
        lateness: i64,
        /// Its events are sent and bring no time: the field of event time gets the time of their anchored position.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anchored: bool,
        /// Its events are calls, or are pushed, which may have a key: for so long, microseconds of the callers' clock, the answer
        /// of a call or push is kept, and given to one with the same key. None: they have no keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remembers: Option<i64>,
        /// The number of keys that are kept at a time, at most. None: about a million.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys_max: Option<u64>,
        /// The bound on how far ahead of the machine's clock an event may be.
        #[serde(default, skip_serializing_if = "Ahead::is_by_input")]
        ahead: Ahead,
        /// The fields that say who makes a call, where its events are calls.
        #[serde(default, skip_serializing_if = "CallerFields::is_none")]
        caller: CallerFields,
    },
    /// A tick of event time at `origin` and each multiple of the period before and after it: the field `at`, of type
    /// `Time`, or `int` where the period is one.
    Every {
        /// A `duration`, or an `int` where the event time is one.
        period: Value,
        #[serde(default)]
        origin: i64,
    },
    /// The atomic batches of a source: an event for some of its events together.
    Batch {
        /// The source.
        input: StreamRef,
        /// The events that are a batch.
        size: BatchSizeDef,
    },
    /// The events of another stream for which the predicate holds.
    Filter {
        /// The other stream.
        input: StreamRef,
        /// A `bool` over `Event` fields.
        predicate: Expr,
    },
    /// One event for each event of another stream.
    Map {
        /// The other stream.
        input: StreamRef,
        /// The new event.
        record: Record,
    },
}

/// The events of a source that are a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSizeDef {
    /// A number of events, at least one.
    Count(u64),
    /// The events of an interval of event time that has any. Intervals begin at `origin` and at each multiple of the
    /// length before and after it.
    Time {
        /// A `duration`, or an `int` where the event time is one.
        length: Value,
        #[serde(default)]
        origin: i64,
    },
}

/// A reference to a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamRef {
    /// A source or derived stream.
    Named(String),
    /// The events that a transaction returned, or its input events if its body never returns a record.
    Committed(String),
    /// A transaction's aborts: the event's fields, `reason`, and `role.column` of the values seen.
    Aborted(String),
    /// The events that a transaction emitted under a name.
    Emitted {
        /// The transaction.
        transaction: String,
        /// The name given to `emit`.
        name: String,
    },
    /// Events of a source that broke its promise about time.
    Late(String),
    /// Records of a source that could not be decoded: `origin`, `line`, `column`, `reason`, `record`.
    Bad(String),
    /// Events for which a filter's or map's expression failed: the input's fields and `reason`.
    Failed(String),
    /// The rows of a table that wake ([`StmtNode::Wake`]): the columns of the key, and `at`.
    Woken(String),
    /// The rows of a table that committed transactions have written or deleted: its columns but for windows, of which those
    /// that are no part of the key are nullable, and `deleted`. See [`TableDef::changes`].
    Changes(String),
    /// The rows of a table that have expired ([`TableDef::expire`]), as they were: its columns but for windows.
    Expired(String),
}

/// A stream that leaves the application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkDef {
    /// Unique among sinks.
    pub name: String,
    /// The stream that goes out.
    pub stream: StreamRef,
}

/// A state transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransactionDef {
    /// Unique among transactions.
    pub name: String,
    /// The streams whose events it runs on; all of one schema.
    pub inputs: Vec<StreamRef>,
    /// The windows on which the transaction runs as they close, if it does not run on the events of its one input. It
    /// has no roles. The events that its body sees are the closes: the parts of the group, `start` and `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<OverDef>,
    /// The join of its two inputs on whose results the transaction runs, if it does not run on events. It has no roles.
    /// The events that its body sees have the fields `p.id` of the left side `p` and `a.id` of the right side `a`, and
    /// `p.exists`, `a.exists` of a side that can be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinDef>,
    /// A flag: whether it is nested in the transaction whose `Committed` or `Emitted` stream it takes: both commit, or
    /// neither does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// A flag: whether it is a filter or map that reads rows. Nobody calls it: a call is of the transaction that takes what it returns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derives: bool,
    /// The rows it may touch.
    #[serde(default)]
    pub roles: Vec<RoleDef>,
    /// The statements that it runs.
    pub body: Vec<Stmt>,
}

/// A join of two streams: the transaction's inputs, the left one first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinDef {
    /// The name of the left side in the body.
    pub left: String,
    /// The name of the right side in the body; none if the body never sees it ([`JoinHow::Anti`]).
    #[serde(default)]
    pub right: Option<String>,
    /// The key: pairs of values, over the fields of the left event and of the right. None is never equal.
    pub on: Vec<(Expr, Expr)>,
    /// The greatest distance in time of the events of a pair.
    pub bound: JoinBound,
    /// The treatment of an event without a partner.
    pub how: JoinHow,
}

/// The greatest distance in time of the events of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinBound {
    /// A distance that is less than this: a `duration`, or an `int` where the event time is one.
    Within(Value),
    /// A distance within one window, which is tumbling.
    Over(WindowsDef),
}

/// The windows over a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverDef {
    /// The group of an event: names, and values over its fields. None is a value like others. Empty: one group.
    #[serde(default)]
    pub by: Vec<(String, Expr)>,
    /// The windows of each group.
    pub windows: WindowsDef,
    /// The interval at which the window that closes next of tumbling and sliding windows gives early results: a
    /// `duration`, or an `int` where the event time is one. The results are what the transaction `window.early`
    /// commits, where `window` is the name of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Value>,
    /// A table: each of its rows has a result in each window, whether or not events are in it. The parts of the group are the
    /// columns of its key, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The top of each instant, in place of what a body gives: then `windows` and the body do not matter. It is emitted as
    /// `top`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<TopDef>,
    /// The first events of each group, in place of what a body gives: those with no other that was passed on less than this
    /// before. Over a source and its late events, these count where they stand. A `duration`, or an `int` where the event time is one. Then `windows` and the body do not matter. The
    /// transaction commits the first events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Value>,
    /// Aggregates that users write. The body reads the state of one as the columns of a role with its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<OwnDef>,
}

/// An aggregate that a user writes, of the events of a window in the order of their positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnDef {
    /// Unique in its window.
    pub name: String,
    /// The columns of its state, with the values that it begins with.
    pub state: Vec<ColumnDef>,
    /// Adds an event: over the fields of the input's events, and the state as the columns of a role with the aggregate's
    /// name, which are set.
    pub add: Vec<Stmt>,
    /// Merges the state of events that come after those of the state at hand: over that, and the other as the columns of the
    /// role `later`, which are not set. Sliding windows need it. No float of a state is computed with then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Vec<Stmt>>,
}

/// The greatest events of an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopDef {
    /// The number of places.
    pub count: i64,
    /// The value by which events are ranked, over the fields of an event: a number or a time. The first of equals is
    /// greater.
    pub by: Expr,
    /// A flag: whether events that are equal to the last come, too.
    #[serde(default)]
    pub ties: bool,
}

/// The windows of a group. Lengths are a `duration`, or an `int` where the event time is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowsDef {
    /// Windows one after the other, from `origin` on and before it.
    Tumbling {
        length: Value,
        #[serde(default)]
        origin: i64,
    },
    /// Windows of which one begins every `every`, which divides the length.
    Sliding {
        length: Value,
        every: Value,
        #[serde(default)]
        origin: i64,
    },
    /// One after the other by the local clock of a zone; the event time is a `Time`.
    Calendar(Periods),
    /// The events between two pauses of at least `gap`.
    Session { gap: Value },
    /// Windows of this number of events.
    Counting { count: i64 },
}

/// An aggregate of the events of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowFunction {
    /// The number of events.
    Count,
    /// The sum of the values; 0 of none.
    Sum,
    /// The mean of the values; `None` of none.
    Mean,
    /// The least; `None` of none.
    Min,
    /// The greatest; `None` of none.
    Max,
    /// The value of the first event.
    First,
    /// The value of the last event.
    Last,
    /// The value of the first event whose `by` is the least.
    ArgMin,
    /// The value of the first event whose `by` is the greatest.
    ArgMax,
    /// The number of different values.
    Distinct,
    /// True if some value, a `bool`, is true.
    Any,
    /// True if all values, `bool`s, are true.
    All,
    /// The variance of a sample; `None` of fewer than two values.
    Variance,
    /// The standard deviation of a sample; `None` of fewer than two values.
    Stddev,
    /// The variance of a population; `None` of no values.
    Pvariance,
    /// The standard deviation of a population; `None` of no values.
    Pstddev,
    /// The value that is the `argument`-th most frequent one, from 0 on; of those as frequent, the one that came first
    /// is before. `None` where there are fewer different values.
    TopValue,
    /// The number of times that this value is there; 0 where there are fewer different values.
    TopCount,
    /// About how many different values there are.
    ApproxDistinct,
    /// About the value below which a part of the values is, which is the `argument`, from 0 to 1; `None` of none.
    ApproxQuantile,
    /// About how often the `argument` is there: not less often.
    ApproxCount,
}

impl WindowFunction {
    /// Returns the synopsis that it is read from, and what it asks of that, where it is such a function.
    pub fn asks(self) -> Option<(Synopsis, Ask)> {
        match self {
            WindowFunction::TopValue => Some((Synopsis::Counts, Ask::Value)),
            WindowFunction::TopCount => Some((Synopsis::Counts, Ask::Times)),
            WindowFunction::ApproxDistinct => Some((Synopsis::Registers, Ask::Distinct)),
            WindowFunction::ApproxQuantile => Some((Synopsis::Buckets, Ask::Quantile)),
            WindowFunction::ApproxCount => Some((Synopsis::Counters, Ask::Frequency)),
            _ => None,
        }
    }
}

/// A row (or, over a list field or over rows, a row per element) that a transaction may touch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleDef {
    /// The name in the body.
    pub name: String,
    /// The table.
    pub table: String,
    /// One expression per key column, over `Event` fields; over `Element` fields of `over` too when
    /// that is set (with `variable` equal to the list field's name); without a list also over the rows of earlier roles. The
    /// row of the role in `each`, and of others that are for each of its rows, is the one that the row is for. A null key
    /// means: no row.
    pub key: Vec<Expr>,
    /// The list field of the event with a row per element; none: one row.
    #[serde(default)]
    pub over: Option<String>,
    /// The earlier role of [`AccessDef::All`] with a row for each of its rows; none: one row.
    #[serde(default)]
    pub each: Option<String>,
    /// The access: what may be done, and what a missing row means.
    pub access: AccessDef,
    /// The rows of the table, with [`AccessDef::All`].
    #[serde(default)]
    pub selection: SelectionDef,
}

impl RoleDef {
    /// Returns a role that is one row.
    pub fn row(name: impl Into<String>, table: impl Into<String>, key: Vec<Expr>, access: AccessDef) -> Self {
        let selection = SelectionDef::default();
        RoleDef { name: name.into(), table: table.into(), key, over: None, each: None, access, selection }
    }

    /// Returns whether the role is one row.
    pub fn is_one_row(&self) -> bool {
        self.over.is_none() && self.each.is_none() && self.access != AccessDef::All
    }
}

/// The access of a role: what it may do, and what it sees if its row is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessDef {
    /// `table.row(key)`: read and write; touching a missing row aborts.
    Row,
    /// `table.row(key, create=True)`: a missing row reads as the columns' defaults; the first write
    /// inserts it.
    Create,
    /// `table.read(key)`: read only; reading a missing row aborts.
    Read,
    /// `table.read(key, default=True)`: read only; a missing row reads as the columns' defaults.
    ReadDefault,
    /// `table.all()`, `.where(…)`, `.between(…)`, `.first(…)` and `.top(…)`: the rows of the table that [`RoleDef::selection`]
    /// chooses, by [`StmtNode::ForRows`] and [`ExprNode::Rows`]. None is inserted. The key is empty.
    All,
}

/// A place in the user's source text: 1-based lines, 0-based columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last.
    pub end_column: u32,
}

/// A statement with its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stmt {
    /// The statement.
    pub node: StmtNode,
    /// The place where it was written.
    #[serde(default)]
    pub span: Option<Span>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StmtNode {
    /// `name = value`. All assignments of a local join in one type.
    Assign { name: String, value: Expr },
    /// `role.column = value`.
    Set { role: String, column: String, value: Expr },
    /// `role.column.add(value)`, at the event's time.
    Add { role: String, column: String, value: Expr },
    /// `if condition: then else: otherwise`
    If {
        condition: Expr,
        then: Vec<Stmt>,
        #[serde(default)]
        otherwise: Vec<Stmt>,
    },
    /// `for variable in ev.list: body`. Inside, roles over the list mean the element's row.
    ForEach { variable: String, list: String, body: Vec<Stmt> },
    /// `for variable in range(start, stop, step): body`. Bounds are ints, evaluated once; the step
    /// is a constant other than zero.
    ForRange { variable: String, start: Expr, stop: Expr, step: i64, body: Vec<Stmt> },
    /// `for variable in role: body`, of a role that is all rows of its table, in the order of their keys. Inside, the role is
    /// the row at hand, which the source text calls `variable`. Rows that the transaction inserts are not visited, and those that it deletes are passed over.
    ForRows { variable: String, role: String, body: Vec<Stmt> },
    /// Leave the innermost loop.
    Break,
    /// Go on with the innermost loop.
    Continue,
    /// Abort with `reason` unless the condition holds.
    Require { condition: Expr, reason: String },
    /// Abort with `reason`.
    Abort { reason: String },
    /// Make the role's row exist: columns given, else their defaults. Aborts where it exists.
    Insert {
        role: String,
        #[serde(default)]
        values: Vec<(String, Expr)>,
    },
    /// Make the role's row not exist. Aborts where it does not.
    Delete { role: String },
    /// Have the role's row woken at an event time: it is then an event of [`StreamRef::Woken`]. In place of an earlier
    /// wake of the row; none cancels that.
    Wake {
        role: String,
        #[serde(default)]
        at: Option<Expr>,
    },
    /// Emit an event on the transaction's stream `name`.
    Emit { name: String, record: Record },
    /// End the transaction; with a record, emit it on `committed`.
    Return {
        #[serde(default)]
        record: Option<Record>,
    },
}

/// A new event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The fields, in the order of the schema to be. A bare `Event` of a list field passes the list on.
    pub fields: Vec<(String, Expr)>,
    /// The declared schema (an event class) that the fields must fit; none: inferred.
    #[serde(default)]
    pub schema: Option<Schema>,
    /// The event-time field of the declared schema.
    #[serde(default)]
    pub event_time: Option<String>,
}

/// An expression with its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expr {
    /// The operation.
    pub node: ExprNode,
    /// The place where it was written.
    #[serde(default)]
    pub span: Option<Span>,
}

/// An expression. Operands are evaluated left to right; a failure aborts the transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExprNode {
    /// A constant. A `decimal` literal is written as `Call(Decimal)` of a `str` literal.
    Literal(Value),
    /// A local variable, or the variable of a range loop.
    Local(String),
    /// `ev.name`
    Event(String),
    /// `variable.field` of a list loop; `field` is empty for a list of scalars.
    Element {
        variable: String,
        #[serde(default)]
        field: String,
    },
    /// `role.column`
    Cell { role: String, column: String },
    /// `role.column.aggregate()`, or of a part: `role.column.window(span).aggregate()`.
    Window {
        role: String,
        column: String,
        #[serde(default)]
        part: Option<WindowPart>,
        aggregate: Aggregate,
    },
    /// An aggregate of a window over a stream: `w.field.function()`, `w.count()`, `w.argmax("by").value`. `value` and
    /// `by` are over the fields of the events in the window. Where a value is None, the event does not count, but for
    /// `First`, `Last`, `ArgMin` and `ArgMax`, which only leave out events whose `by` is None.
    Aggregate {
        function: WindowFunction,
        #[serde(default)]
        value: Option<Box<Expr>>,
        #[serde(default)]
        by: Option<Box<Expr>>,
        /// The argument, over what the function of the window sees.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<Box<Expr>>,
    },
    /// The answer of a column with a synopsis, or of a part of it.
    Synopsis { role: String, column: String, ask: Ask, argument: Box<Expr> },
    /// The place of the first record of a column of records that is not too old, after the one at `after`, or from the
    /// oldest on where that is −1; −1 if there is none. Of a part of the column, those of that span are not too old.
    NextRecord {
        role: String,
        column: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<WindowPart>,
        after: Box<Expr>,
    },
    /// A value of the record at `at` of a column of records: the one of number `field` among `of`, which has this type.
    RecordField { role: String, column: String, at: Box<Expr>, of: usize, field: usize, ty: ColumnType },
    /// The values as one record, of type `bytes`.
    Pack(Vec<Expr>),
    /// `role.exists`
    Exists(String),
    /// `len(role)`, of a role that is all rows of its table: how many there are before the transaction.
    Rows(String),
    /// `-x`, `not x`
    Unary { op: UnaryOp, value: Box<Expr> },
    /// Arithmetic; `+` also joins text.
    Binary { op: BinaryOp, left: Box<Expr>, right: Box<Expr> },
    /// One comparison. Chains (`a < b < c`) are written as `All` by the front end.
    Compare { op: CompareOp, left: Box<Expr>, right: Box<Expr> },
    /// `a and b and …`: stops at the first that is false.
    All(Vec<Expr>),
    /// `a or b or …`: stops at the first that is true.
    Any(Vec<Expr>),
    /// `then if condition else otherwise`
    IfElse { condition: Box<Expr>, then: Box<Expr>, otherwise: Box<Expr> },
    /// `value is None` (negate with `Unary`).
    IsNull(Box<Expr>),
    /// The value, or the zero of its type where it is None: 0, false, 1970, nothing.
    OrZero(Box<Expr>),
    /// The start or the end of the period that holds a time, of its type.
    Period { edge: Edge, periods: Periods, time: Box<Expr> },
    /// A part of what calendar and clock of a zone show at a time: `time.hour`, `time.tz("Europe/Berlin").hour`.
    DatePart { part: DatePart, zone: Zone, time: Box<Expr> },
    /// The value under a type, as it would be set in a column of it; `target` names that in messages.
    Fitted { value: Box<Expr>, ty: ColumnType, target: String },
    /// `value in (a, b, …)`: equality with any of these.
    In { value: Box<Expr>, options: Vec<Expr> },
    /// A built-in function.
    Call { function: Function, arguments: Vec<Expr> },
    /// `len(ev.list)`
    Length(String),
    /// The place of the event ([`crate::Node::Place`]). Only operators have it, for their hidden transactions: no text of a plan.
    #[serde(skip)]
    Place,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `not x`
    Not,
}

/// Arithmetic operators, with Python's meaning: `//` and `%` round towards minus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `%`
    Mod,
}

/// Comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Built-in functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// `abs(x)`
    Abs,
    /// `min(a, b, …)`
    Min,
    /// `max(a, b, …)`
    Max,
    /// `round(x)` to int, half to even; `round(decimal, literal)` to that scale.
    Round,
    /// `len(text)`: characters of `str`, bytes of `bytes`.
    Len,
    /// `s.lower()`, ASCII and Unicode
    Lower,
    /// `s.upper()`
    Upper,
    /// `s.strip()` of white space
    Strip,
    /// `s.startswith(prefix)`
    StartsWith,
    /// `s.endswith(suffix)`
    EndsWith,
    /// `part in s` with arguments (s, part)
    Contains,
    /// `int(x)` of bool, float (towards zero), decimal (towards zero), str
    Int,
    /// `float(x)` of int, decimal, str
    Float,
    /// `str(x)` of str, int, bool, decimal
    Str,
    /// `tm.Decimal(text)` of a str literal, or `tm.Decimal(x, scale)` of int, with a literal scale
    Decimal,
    /// `tm.microseconds(n)` of int; likewise below
    Microseconds,
    /// `tm.milliseconds(n)`
    Milliseconds,
    /// `tm.seconds(n)`
    Seconds,
    /// `tm.minutes(n)`
    Minutes,
    /// `tm.hours(n)`
    Hours,
    /// `tm.days(n)`
    Days,
    /// `duration.total_microseconds()` to int, or a `Time`'s microseconds since 1970
    TotalMicroseconds,
    /// `duration.total_seconds()` to float, or a `Time`'s seconds since 1970
    TotalSeconds,
    /// `math.floor(x)` of int, float, decimal to int; likewise below
    Floor,
    /// `math.ceil(x)`
    Ceil,
    /// `math.trunc(x)`
    Trunc,
    /// `math.sqrt(x)` of int, float to float; likewise below
    Sqrt,
    /// `math.fmod(x, y)`
    Fmod,
    /// `math.exp(x)`
    Exp,
    /// `math.log(x)`
    Log,
    /// `math.log2(x)`
    Log2,
    /// `math.log10(x)`
    Log10,
    /// `math.pow(x, y)`
    Pow,
    /// `math.sin(x)`
    Sin,
    /// `math.cos(x)`
    Cos,
    /// `math.tan(x)`
    Tan,
    /// `math.atan2(y, x)`
    Atan2,
    /// `math.hypot(x, y)`
    Hypot,
    /// `s.find(part, start, end)` to int
    Find,
    /// `s.replace(old, new, count)`, of a negative count all
    Replace,
    /// `s[start:stop]`, where the greatest int stands for a stop that is left out
    Slice,
    /// `s[index]`
    At,
    /// `s.zfill(width)`
    Zfill,
    /// `s.split(separator, most)[index]`; the separator may be the literal None, and a negative `most` means all
    SplitPart,
    /// `len(s.split(separator, most))`
    SplitCount,
}
