//! The Rust front end: plans in a few words.
//!
//! Everything is referred to by name, as in the plan itself, and nothing is checked here:
//! [`crate::analyze`] does that for all front ends alike.
//!
//! ```
//! use tidemill_model::{Type, Value};
//! use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
//!
//! let plan = PlanBuilder::new("counts")
//!     .table("pages", |t| t.key("url", Type::Str).column_or("hits", Type::Int, Value::Int(0)))
//!     .source("clicks", |s| s.field("url", Type::Str))
//!     .transaction("count", [named("clicks")], |t| {
//!         t.create("page", "pages", [event("url")]).body(|b| {
//!             b.set("page", "hits", cell("page", "hits") + 1);
//!             b.give([("url", event("url")), ("hits", cell("page", "hits"))]);
//!         })
//!     })
//!     .sink("hits", committed("count"))
//!     .build();
//! assert!(tidemill_plan::analyze(&plan).is_ok());
//! ```

mod expression;
mod parts;
mod transaction;

pub use expression::{
    all, any, cell, decimal, duration, element, event, exists, if_else, length, literal, local, max, min, none, rows,
    time, window,
};
pub use parts::{SourceBuilder, TableBuilder, record};
pub use transaction::{Block, TransactionBuilder};

use crate::{
    BatchSizeDef, Expr, Limits, OriginDef, OverDef, PLAN_VERSION, Plan, Record, SinkDef, StreamDef, StreamRef,
    TransactionDef, WindowsDef,
};
use tidemill_model::Value;

/// A plan in the making.
#[derive(Clone, Debug)]
pub struct PlanBuilder {
    plan: Plan,
}

impl PlanBuilder {
    /// Makes an empty plan of that name.
    pub fn new(name: impl Into<String>) -> Self {
        let (tables, streams, transactions, sinks) = Default::default();
        PlanBuilder {
            plan: Plan {
                version: PLAN_VERSION,
                name: name.into(),
                schema_version: 1,
                tables,
                streams,
                transactions,
                sinks,
                limits: Limits::default(),
                retired: Vec::new(),
            },
        }
    }

    /// Gives the version of its schema, which is 1 else.
    pub fn schema_version(mut self, version: u64) -> Self {
        self.plan.schema_version = version;
        self
    }

    /// Adds a table.
    pub fn table(mut self, name: impl Into<String>, table: impl FnOnce(TableBuilder) -> TableBuilder) -> Self {
        self.plan.tables.push(table(TableBuilder::new(name.into())).build());
        self
    }

    /// Adds a source.
    pub fn source(mut self, name: impl Into<String>, source: impl FnOnce(SourceBuilder) -> SourceBuilder) -> Self {
        let origin = source(SourceBuilder::default()).build();
        self.plan.streams.push(StreamDef { name: name.into(), origin });
        self
    }

    /// Says that a source of an earlier version is not wanted any more.
    pub fn retire(mut self, source: impl Into<String>) -> Self {
        self.plan.retired.push(source.into());
        self
    }

    /// Adds the stream of those events of `input` for which `predicate` holds.
    pub fn filter(mut self, name: impl Into<String>, input: StreamRef, predicate: impl Into<Expr>) -> Self {
        let origin = OriginDef::Filter { input, predicate: predicate.into() };
        self.plan.streams.push(StreamDef { name: name.into(), origin });
        self
    }

    /// Adds a stream with one event for each event of `input`; see [`record`].
    pub fn map(mut self, name: impl Into<String>, input: StreamRef, record: impl Into<Record>) -> Self {
        let origin = OriginDef::Map { input, record: record.into() };
        self.plan.streams.push(StreamDef { name: name.into(), origin });
        self
    }

    /// Adds the atomic batches of a source.
    pub fn batch(mut self, name: impl Into<String>, input: StreamRef, size: BatchSizeDef) -> Self {
        self.plan.streams.push(StreamDef { name: name.into(), origin: OriginDef::Batch { input, size } });
        self
    }

    /// Adds ticks of event time: at `origin` and at each multiple of the period before and after it.
    pub fn every(mut self, name: impl Into<String>, period: Value, origin: i64) -> Self {
        self.plan.streams.push(StreamDef { name: name.into(), origin: OriginDef::Every { period, origin } });
        self
    }

    /// Adds a window over a stream; `body` runs on each close. `by`: the parts of a group.
    pub fn window<N: Into<String>>(
        mut self,
        name: impl Into<String>,
        input: StreamRef,
        by: impl IntoIterator<Item = (N, Expr)>,
        windows: WindowsDef,
        body: impl FnOnce(&mut Block),
    ) -> Self {
        let by = by.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let close = TransactionBuilder::new(name.into(), vec![input]).body(body).build();
        self.plan.transactions.push(TransactionDef {
            over: Some(OverDef { by, windows, early: None, every: None, top: None, first: None, own: vec![] }),
            ..close
        });
        self
    }

    /// Adds a transaction that runs on the events of `inputs`.
    pub fn transaction(
        mut self,
        name: impl Into<String>,
        inputs: impl IntoIterator<Item = StreamRef>,
        transaction: impl FnOnce(TransactionBuilder) -> TransactionBuilder,
    ) -> Self {
        let builder = TransactionBuilder::new(name.into(), inputs.into_iter().collect());
        self.plan.transactions.push(transaction(builder).build());
        self
    }

    /// Sets how much one transaction may do.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// Lets a stream leave the application.
    pub fn sink(mut self, name: impl Into<String>, stream: StreamRef) -> Self {
        self.plan.sinks.push(SinkDef { name: name.into(), stream });
        self
    }

    /// Returns the plan.
    pub fn build(self) -> Plan {
        self.plan
    }
}

/// Returns a source, filter or map.
pub fn named(stream: impl Into<String>) -> StreamRef {
    StreamRef::Named(stream.into())
}

/// Refers to the events that a transaction returned, or those that it ran on.
pub fn committed(transaction: impl Into<String>) -> StreamRef {
    StreamRef::Committed(transaction.into())
}

/// Returns the aborts of a transaction.
pub fn aborted(transaction: impl Into<String>) -> StreamRef {
    StreamRef::Aborted(transaction.into())
}

/// Refers to the events that a transaction emitted under a name.
pub fn emitted(transaction: impl Into<String>, name: impl Into<String>) -> StreamRef {
    StreamRef::Emitted { transaction: transaction.into(), name: name.into() }
}

/// Returns the rows of a table that wake.
pub fn woken(table: impl Into<String>) -> StreamRef {
    StreamRef::Woken(table.into())
}

/// Refers to the changes of a table.
pub fn changes(table: impl Into<String>) -> StreamRef {
    StreamRef::Changes(table.into())
}

/// The rows of a table that have expired.
pub fn expired(table: impl Into<String>) -> StreamRef {
    StreamRef::Expired(table.into())
}

/// Returns the late events of a source.
pub fn late(source: impl Into<String>) -> StreamRef {
    StreamRef::Late(source.into())
}

/// Returns the undecodable records of a source.
pub fn bad(source: impl Into<String>) -> StreamRef {
    StreamRef::Bad(source.into())
}

/// Returns the events for which a filter or map failed.
pub fn failed(stream: impl Into<String>) -> StreamRef {
    StreamRef::Failed(stream.into())
}
