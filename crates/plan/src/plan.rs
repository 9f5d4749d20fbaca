//! The plan: what a front end says, as plain data. Serializable and versioned; stored with state and
//! shipped to other nodes. Names refer to things; nothing is resolved or typed yet. [`crate::analyze`]
//! turns a plan into a [`crate::Program`], which is what interpreters and compilers read.
#![allow(missing_docs, reason = "the fields of a variant are documented with the variant")]

use crate::{Edge, Limits, Periods, SelectionDef};
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
    /// How much one transaction may do.
    #[serde(default, skip_serializing_if = "Limits::is_default")]
    pub limits: Limits,
}

/// Of an application that does not say.
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
    /// Whether its changes are a stream ([`StreamRef::Changes`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
    /// Into which groups its keys fall that no transaction crosses ([`crate::Groups`]), if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<KeyGroupsDef>,
}

impl TableDef {
    /// A table without indexes and groups, whose changes are no stream.
    pub fn new(name: impl Into<String>, columns: Vec<ColumnDef>) -> Self {
        TableDef { name: name.into(), columns, indexes: Vec::new(), changes: false, groups: None }
    }
}

/// Groups of keys: the value of a key column modulo their number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyGroupsDef {
    /// A key column of type int.
    pub column: String,
    /// How many, at least 2.
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
    /// Whether it is part of the key (in column order). Keys are never null, never float.
    #[serde(default)]
    pub key: bool,
    /// The value of a row that nothing was written to. Without one, an insert must give the value.
    #[serde(default)]
    pub default: Option<Value>,
    /// Where it is there, the cell keeps values added of late, each of type `ty`, instead of one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowDef>,
    /// Its name in an earlier version of the schema, whose values it takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// How the values that it takes over become values of `ty`, where they were of another type. A column of the key or a
    /// windowed one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert: Option<ConvertDef>,
}

/// A function of one value, for each row of a state that is migrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvertDef {
    /// The type of the value that it takes: in statements and expressions, the `Event` field [`ConvertDef::VALUE`].
    /// Where it cannot be None, None stays None.
    pub from: ColumnType,
    /// What it does first. There are no rows, no emissions and no returns; what aborts refuses the migration.
    #[serde(default)]
    pub body: Vec<Stmt>,
    /// What it gives after that: a value that fits the column's type.
    pub value: Expr,
}

impl ConvertDef {
    /// What the value is called.
    pub const VALUE: &str = "value";
}

impl ColumnDef {
    /// A column that is no part of the key, and says nothing else about itself.
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

/// Which of the values added to a windowed column are kept. Spans are a `duration`, or an `int` where the event
/// time is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowDef {
    /// Those of the last `span`, in slices of `slide`; without that, every time is a slice of its own.
    Span {
        span: Value,
        #[serde(default)]
        slide: Option<Value>,
        /// Whether the distinct values are kept, not count, sum, least and greatest of each slice.
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
    /// The last so many.
    Last(i64),
}

/// A part of a windowed column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowPart {
    /// `window(span)`: the values of the last `span`.
    Span(Value),
    /// `last(count)`: the last so many.
    Last(i64),
}

/// What is asked about the values in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// How many there are.
    Count,
    /// Their sum; 0 of none.
    Sum,
    /// Their mean; `None` of none.
    Mean,
    /// The least; `None` of none.
    Min,
    /// The greatest; `None` of none.
    Max,
    /// How many different ones there are.
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
    /// Whether it is a variance or a standard deviation.
    pub fn is_spread(self) -> bool {
        matches!(self, Aggregate::Variance | Aggregate::Stddev | Aggregate::Pvariance | Aggregate::Pstddev)
    }
}

/// What is kept of values in place of them.
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
    /// What it keeps, as a noun.
    pub fn name(self) -> &'static str {
        match self {
            Synopsis::Counts => "counts",
            Synopsis::Registers => "registers",
            Synopsis::Buckets => "buckets",
            Synopsis::Counters => "counters",
        }
    }
}

/// What is asked of a synopsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Of counts: the value whose rank is the argument, from 0 on. First are those that are most frequent, of those as
    /// frequent the one that was added first. `None` if there is none.
    Value,
    /// Of counts: how often that value was added; 0 if there is none.
    Times,
    /// Of registers: about how many different values were added. The argument does not matter.
    Distinct,
    /// Of buckets: about the value of the rank floor(*q* (*n* − 1)) of *n* values, counted from 0, where *q* is the argument;
    /// `None` of none, NaN where a value is NaN.
    Quantile,
    /// Of counters: about how often the argument was added.
    Frequency,
}

impl Ask {
    /// The synopsis that can be asked so.
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
    /// Where its events come from.
    pub origin: OriginDef,
}

/// Where a named stream's events come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginDef {
    /// From outside.
    Source {
        /// The fields of its events.
        schema: Schema,
        /// The field that holds event time (`Time` or `int`, not nullable); none: arrival order.
        #[serde(default)]
        event_time: Option<String>,
        /// How late an event may be, in the unit of the event time (microseconds for `Time`). Below zero, as of a clock: by how
        /// much each event is later than the one before, at least.
        #[serde(default)]
        lateness: i64,
        /// Its events are sent and bring no time: the field of event time gets the time of their anchored position.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anchored: bool,
        /// Its events are calls, which may have a key: for so long, microseconds of the callers' clock, the answer of a
        /// call is kept, and given to a call with the same key. None: calls have no keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remembers: Option<i64>,
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
        /// Which events are a batch.
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

/// Which events of a source are a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSizeDef {
    /// So many, at least one.
    Count(u64),
    /// Those of an interval of event time that has any. Intervals begin at `origin` and at each multiple of the length
    /// before and after it.
    Time {
        /// A `duration`, or an `int` where the event time is one.
        length: Value,
        #[serde(default)]
        origin: i64,
    },
}

/// How a stream is referred to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamRef {
    /// A source or derived stream.
    Named(String),
    /// What a transaction returned, or its input event where its body never returns a record.
    Committed(String),
    /// A transaction's aborts: the event's fields, `reason`, and `role.column` of the values seen.
    Aborted(String),
    /// What a transaction emitted under a name.
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
}

/// A stream that leaves the application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkDef {
    /// Unique among sinks.
    pub name: String,
    /// What goes out.
    pub stream: StreamRef,
}

/// A state transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransactionDef {
    /// Unique among transactions.
    pub name: String,
    /// The streams whose events it runs on; all of one schema.
    pub inputs: Vec<StreamRef>,
    /// Where it is there, the transaction runs on the windows of its one input as they close, not on events. It has no
    /// roles. The events that its body sees are the closes: the parts of the group, `start` and `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<OverDef>,
    /// Where it is there, the transaction runs on what a join of its two inputs gives. It has no roles. The events that its
    /// body sees have the fields `p.id` of the left side `p` and `a.id` of the right side `a`, and `p.exists`, `a.exists` of a
    /// side that can be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinDef>,
    /// Whether it is nested in the transaction whose `Committed` or `Emitted` stream it takes: both commit, or neither does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// The rows it may touch.
    #[serde(default)]
    pub roles: Vec<RoleDef>,
    /// What it does.
    pub body: Vec<Stmt>,
}

/// A join of two streams: the transaction's inputs, the left one first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinDef {
    /// What the body calls the left side.
    pub left: String,
    /// What it calls the right side; none where it never sees it ([`JoinHow::Anti`]).
    #[serde(default)]
    pub right: Option<String>,
    /// The key: pairs of values, over the fields of the left event and of the right. None is never equal.
    pub on: Vec<(Expr, Expr)>,
    /// How far apart in time events may be.
    pub bound: JoinBound,
    /// What becomes of an event without a partner.
    pub how: JoinHow,
}

/// How far apart in time the events of a pair may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinBound {
    /// By less than this: a `duration`, or an `int` where the event time is one.
    Within(Value),
    /// As far as one window, which is tumbling.
    Over(WindowsDef),
}

/// What becomes of an event without a partner.
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

/// The windows over a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverDef {
    /// The group of an event: names, and values over its fields. None is a value like others. Empty: one group.
    #[serde(default)]
    pub by: Vec<(String, Expr)>,
    /// Which windows each group has.
    pub windows: WindowsDef,
    /// How often the window that closes next of tumbling and sliding windows gives a result before it does: a `duration`, or an `int` where the event time is one.
    /// The results are what the transaction `window.early` commits, where `window` is the name of this one.
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
    /// before. A `duration`, or an `int` where the event time is one. Then `windows` and the body do not matter. The
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
    /// What it keeps, with the values that it begins with.
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
    /// How many.
    pub count: i64,
    /// By what, over the fields of an event: a number or a time. The first of equals is greater.
    pub by: Expr,
    /// Whether those that are equal to the last come, too.
    #[serde(default)]
    pub ties: bool,
}

/// Which windows a group has. Lengths are a `duration`, or an `int` where the event time is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowsDef {
    /// One after the other, from `origin` on and before it.
    Tumbling {
        length: Value,
        #[serde(default)]
        origin: i64,
    },
    /// One begins every `every`, which divides the length.
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
    /// So many events.
    Counting { count: i64 },
}

/// What is asked about the events of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowFunction {
    /// How many there are.
    Count,
    /// The sum of the values; 0 of none.
    Sum,
    /// Their mean; `None` of none.
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
    /// How many different values there are.
    Distinct,
    /// Whether some value, a `bool`, is true.
    Any,
    /// Whether all values, `bool`s, are true.
    All,
    /// The variance of a sample; `None` of fewer than two values.
    Variance,
    /// The standard deviation of a sample; `None` of fewer than two values.
    Stddev,
    /// The variance of a population; `None` of no values.
    Pvariance,
    /// The standard deviation of a population; `None` of no values.
    Pstddev,
    /// The value that is the `argument`-th most frequent one, from 0 on; of those as frequent, the one that came first is
    /// before. `None` where there are not so many.
    TopValue,
    /// How often that value is there; 0 where there are not so many.
    TopCount,
    /// About how many different values there are.
    ApproxDistinct,
    /// About the value below which a part of the values is, which is the `argument`, from 0 to 1; `None` of none.
    ApproxQuantile,
    /// About how often the `argument` is there: not less often.
    ApproxCount,
}

impl WindowFunction {
    /// The synopsis that it is read from, and what it asks of that, where it is such a function.
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
    /// What may be done and what a missing row means.
    pub access: AccessDef,
    /// Which rows of the table, with [`AccessDef::All`].
    #[serde(default)]
    pub selection: SelectionDef,
}

impl RoleDef {
    /// A role that is one row.
    pub fn row(name: impl Into<String>, table: impl Into<String>, key: Vec<Expr>, access: AccessDef) -> Self {
        let selection = SelectionDef::default();
        RoleDef { name: name.into(), table: table.into(), key, over: None, each: None, access, selection }
    }

    /// Whether it is one row.
    pub fn is_one_row(&self) -> bool {
        self.over.is_none() && self.each.is_none() && self.access != AccessDef::All
    }
}

/// What a role may do, and what it sees where its row is missing.
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

/// Where something stands in the user's source text: 1-based lines, 0-based columns.
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
    /// What to do.
    pub node: StmtNode,
    /// Where it was written.
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
    /// In the order of the schema to be. A bare `Event` of a list field passes the list on.
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
    /// What to compute.
    pub node: ExprNode,
    /// Where it was written.
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
    /// Of a window over a stream: `w.field.function()`, `w.count()`, `w.argmax("by").value`. `value` and `by` are over
    /// the fields of the events in the window. Where a value is None, the event does not count, but for `First`, `Last`,
    /// `ArgMin` and `ArgMax`, which only leave out events whose `by` is None.
    Aggregate {
        function: WindowFunction,
        #[serde(default)]
        value: Option<Box<Expr>>,
        #[serde(default)]
        by: Option<Box<Expr>>,
        /// Over what the function of the window sees.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<Box<Expr>>,
    },
    /// What a column with a synopsis, or a part of it, says.
    Synopsis { role: String, column: String, ask: Ask, argument: Box<Expr> },
    /// Of a column of records: where the first one stands that is not too old, after the one at `after`, or from the oldest
    /// on where that is −1; −1 if there is none. Of a part of the column, those of that span are not too old.
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
    /// The value under a type, as it would be set in a column of it; `target` names that in messages.
    Fitted { value: Box<Expr>, ty: ColumnType, target: String },
    /// `value in (a, b, …)`: equality with any of these.
    In { value: Box<Expr>, options: Vec<Expr> },
    /// A built-in function.
    Call { function: Function, arguments: Vec<Expr> },
    /// `len(ev.list)`
    Length(String),
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
}
