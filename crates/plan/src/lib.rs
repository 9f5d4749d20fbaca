//! The flow graph and the transaction IR.
//!
//! [`Plan`] is what front ends write; [`analyze`] checks and types it into a [`Program`], which
//! everything else reads. Nothing here runs an event, knows how a row is laid out, or which language a
//! plan was written in.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod analyze;
pub mod build;
mod dependencies;
mod depth;
mod error;
mod explain;
mod fail;
mod fold;
mod groups;
mod limits;
mod operations;
mod periods;
mod plan;
mod print;
mod program;
mod selection;
mod typed_visit;
mod visit;
mod waves;
mod window;

pub use analyze::analyze;
use analyze::{CANNOT_FAIL, CHANGES};
pub use depth::{BLOCK_DEPTH_MAX, EXPRESSION_DEPTH_MAX, with_deep_stack};
pub use error::PlanError;
pub use explain::{
    Carried, FlowEdge, FlowGraph, FlowNode, NodeKind, explain, expression_text, shown_streams, warnings,
};
pub use groups::{GROUPS_MAX, GroupOf, Groups};
pub use limits::Limits;
pub use operations::{Operation, Operations, VerdictOperation};
pub use periods::{Edge, Periods, Unit, Zone};
pub use plan::*;
pub use program::{
    Batch, BatchSize, Bound, Cast, Column, CommittedOutput, Conversion, Count, Delivery, Due, DueField, EmitOutput,
    FloatOp, Fold, KeyGroups, Local, LocalId, LoopId, Measure, Merge, Missing, Nested, Nesting, Node, Origin,
    OutputField, Program, ReasonId, Role, RoleId, STEP_BYTES, Seen, Sink, Stream, StreamId, TICKS_MAX, Table, TableId,
    TextOp, TextTest, Transaction, TransactionId, WordOp, bad_schema,
};
pub use selection::{Condition, ConditionDef, Direction, Fit, Order, OrderDef, Selection, SelectionDef, Test, TestDef};
pub use waves::Waves;
pub use window::{BANDS, COUNTER_ROWS, COUNTERS, HOME_BAND, Keep, REGISTERS, Slices, Window, record_nulls};

/// Typed expressions and statements, named apart from the plan's own.
pub mod typed {
    pub use crate::program::{Expr, Node, Stmt};
}
