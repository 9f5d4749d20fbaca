//! Programs as they are declared: streams of one kind of event, operators, and transactions that do not commute.

use tidemill_model::{Type, Value};
use tidemill_plan::{Aggregate, JoinHow, Periods};

/// A stream, by what makes its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feed {
    Source(usize),
    /// The late events of a source.
    Late(usize),
    /// A filter or map.
    Derived(usize),
    /// Results that an operator completes with an event, before its function runs on them. It is no input.
    Completed(usize),
    /// Events that a node returns.
    Given(usize),
    /// The early results of a node.
    Early(usize),
    /// Events that a transaction emits.
    Emitted(usize),
    /// The rows of a table that wake.
    Woken(usize),
    Ticks,
    Batch(usize),
}

#[derive(Clone, Debug)]
pub struct Declared {
    /// The type of event times.
    pub time: Type,
    pub sources: Vec<SourceOf>,
    /// Period and origin of ticks.
    pub ticks: Option<(i64, i64)>,
    pub batches: Vec<BatchOf>,
    pub derived: Vec<Derived>,
    pub tables: Vec<TableOf>,
    /// Operators and transactions, in the order of declaration.
    pub nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
pub struct SourceOf {
    pub splits: usize,
    pub lateness: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct BatchOf {
    pub source: usize,
    pub size: Size,
}

#[derive(Clone, Copy, Debug)]
pub enum Size {
    Count(u64),
    Time { length: i64, origin: i64 },
}

#[derive(Clone, Copy, Debug)]
pub struct Derived {
    pub input: Feed,
    pub does: Derives,
}

#[derive(Clone, Copy, Debug)]
pub enum Derives {
    /// Leaves out events whose number is a multiple of 3.
    Filter,
    /// Swaps key and value, and passes the time field on or not.
    Map { passes_time: bool },
}

/// A table by an int key.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableOf {
    pub column: Option<Column>,
}

/// A windowed column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The number of slices that the column keeps.
    pub slices: i64,
    pub slide: i64,
    pub is_distinct: bool,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub inputs: Vec<Feed>,
    pub does: Does,
}

#[derive(Clone, Debug)]
pub enum Does {
    Over(Over),
    Top {
        count: usize,
        ties: bool,
        by_key: bool,
    },
    First {
        within: i64,
        by_key: bool,
    },
    Join {
        bound: Bound,
        how: JoinHow,
    },
    Run(Run),
    /// A transaction on rows that wake, which may wake them again so much later.
    Wakened {
        table: usize,
        again: Option<i64>,
        passes_time: bool,
    },
    /// A transaction on ticks.
    Ticked {
        table: usize,
    },
    /// A transaction on batches.
    Batched {
        table: usize,
    },
}

/// A window over a stream.
#[derive(Clone, Debug)]
pub struct Over {
    /// The type of event times.
    pub time: Type,
    pub windows: Windows,
    pub by_key: bool,
    pub early: Option<i64>,
    /// A table of which each row has a result.
    pub rows: Option<usize>,
    pub asked: Vec<Asked>,
    /// A flag: it has an aggregate of the user's, which depends on the order of events.
    pub own: bool,
    /// A flag: results hold the end.
    pub passes_time: bool,
    /// Windows of fewer events give nothing.
    pub least: usize,
    /// Windows of more events abort.
    pub most: usize,
}

#[derive(Clone, Debug)]
pub enum Windows {
    Tumbling { length: i64, origin: i64 },
    Sliding { length: i64, every: i64, origin: i64 },
    Calendar(Periods),
    Session { gap: i64 },
    Counting { count: usize },
}

/// An aggregate of the events of a window: of the value, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Count,
    CountOfValues,
    Sum,
    Mean,
    Least,
    Greatest,
    Distinct,
    Variance,
    /// A bool: some number is even.
    AnyEven,
    /// A bool: all numbers are even.
    AllEven,
    FirstNumber,
    LastNumber,
    /// The number of the first event with the least value.
    NumberOfLeast,
    /// The number of the first event with the greatest value.
    NumberOfGreatest,
    /// The most frequent value, or the second most frequent.
    Frequent(usize),
    /// The number of times that the frequent value of this rank occurs.
    Times(usize),
}

impl Asked {
    pub const ALL: [Asked; 18] = [
        Asked::Count,
        Asked::CountOfValues,
        Asked::Sum,
        Asked::Mean,
        Asked::Least,
        Asked::Greatest,
        Asked::Variance,
        Asked::AnyEven,
        Asked::AllEven,
        Asked::Distinct,
        Asked::FirstNumber,
        Asked::LastNumber,
        Asked::NumberOfLeast,
        Asked::NumberOfGreatest,
        Asked::Frequent(0),
        Asked::Frequent(1),
        Asked::Times(0),
        Asked::Times(1),
    ];
    /// The number of them, from the first on, that let events of most windows be folded.
    pub const FOLDED: usize = 9;
}

#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Within(i64),
    Over { length: i64, origin: i64 },
}

/// A transaction that mixes numbers into the row of the event's key, in an order that shows.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub table: usize,
    /// A flag: events without a key abort; else they are of key 0.
    pub needs_key: bool,
    /// The aggregate that it reads of the table's windowed column, of so many slices; it adds to that column.
    pub reads: Option<(Aggregate, i64)>,
    /// The time from the event to the wake of the row.
    pub wakes: Option<i64>,
    pub aborts: bool,
    pub emits: bool,
    pub deletes: bool,
    pub is_nested: bool,
    pub passes_time: bool,
}

/// The numbers of rows are below this.
pub const MODULUS: i64 = 1_000_003;

/// An event: of a source in the order of its fields, else as it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub key: Option<i64>,
    pub value: Option<i64>,
    pub number: i64,
    /// The value of the field `at`, if the event has that field.
    pub at: Option<i64>,
    /// Further fields.
    pub more: Vec<Value>,
    pub is_of_source: bool,
}

impl Event {
    pub fn made(key: Option<i64>, value: Option<i64>, number: i64) -> Event {
        Event { key, value, number, at: None, more: Vec::new(), is_of_source: false }
    }

    pub fn row(&self, time: Type) -> Vec<Value> {
        let at = self.at.map(|at| Value::from_word(time, at));
        let own = [option(self.key), option(self.value), Value::Int(self.number)];
        match self.is_of_source {
            true => at.into_iter().chain(own).collect(),
            false => own.into_iter().chain(at).chain(self.more.clone()).collect(),
        }
    }
}

pub fn option(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

impl Declared {
    /// Returns the source or transaction whose events a stream has.
    pub fn root(&self, feed: Feed) -> Feed {
        match feed {
            Feed::Derived(derived) => self.root(self.derived[derived].input),
            root => root,
        }
    }

    /// Returns whether the events of a stream have the field `at`.
    pub fn has_time(&self, feed: Feed) -> bool {
        match feed {
            Feed::Source(_) | Feed::Late(_) | Feed::Woken(_) | Feed::Ticks => true,
            Feed::Batch(_) | Feed::Completed(_) => false,
            Feed::Derived(derived) => {
                let Derived { input, does } = self.derived[derived];
                self.has_time(input) && !matches!(does, Derives::Map { passes_time: false })
            }
            Feed::Given(node) | Feed::Early(node) | Feed::Emitted(node) => {
                let of = &self.nodes[node];
                let all_have = of.inputs.iter().all(|&input| self.has_time(input));
                match &of.does {
                    Does::Over(over) => over.passes_time,
                    Does::Run(run) => run.passes_time && all_have,
                    Does::Wakened { passes_time, .. } => *passes_time,
                    Does::Top { .. } | Does::First { .. } => all_have,
                    Does::Join { .. } | Does::Ticked { .. } | Does::Batched { .. } => false,
                }
            }
        }
    }

    /// Returns whether some events of a stream stand at the end of time, behind all times.
    pub fn is_endless(&self, feed: Feed) -> bool {
        match self.root(feed) {
            Feed::Given(node) | Feed::Emitted(node) => {
                let of = &self.nodes[node];
                let counts = matches!(&of.does, Does::Over(Over { windows: Windows::Counting { count: 2.. }, .. }));
                counts || of.inputs.iter().any(|&input| self.is_endless(input))
            }
            _ => false,
        }
    }

    /// Returns the name of a node in reports.
    pub fn kind(&self, node: usize) -> &'static str {
        match &self.nodes[node].does {
            Does::Over(over) => match over.windows {
                Windows::Tumbling { .. } => "tumbling",
                Windows::Sliding { .. } => "sliding",
                Windows::Calendar(_) => "calendar",
                Windows::Session { .. } => "session",
                Windows::Counting { .. } => "counting",
            },
            Does::Top { .. } => "top",
            Does::First { .. } => "first",
            Does::Join { bound: Bound::Within(_), .. } => "join within",
            Does::Join { bound: Bound::Over { .. }, .. } => "join over windows",
            Does::Run(run) if run.is_nested => "nested",
            Does::Run(_) => "transaction",
            Does::Wakened { .. } => "woken",
            Does::Ticked { .. } => "tick",
            Does::Batched { .. } => "batch",
        }
    }
}
