//! The flow graph and the transaction IR.
//!
//! [`Plan`] is what front ends write; [`analyze`] checks and types it into a [`Program`], which
//! everything else reads. Nothing here runs an event, knows how a row is laid out, or which language a
//! plan was written in.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ahead;
mod analyze;
pub mod build;
mod dates;
mod definitions;
mod dependencies;
mod depth;
mod ending;
mod error;
mod explain;
mod fail;
mod fold;
mod groups;
mod ids;
mod limits;
mod operations;
mod operators;
mod owners;
mod periods;
mod plan;
mod print;
mod program;
mod selection;
mod typed_visit;
mod visit;
mod waves;
mod window;

pub use ahead::{AHEAD_OF_OTHERS, Ahead};
use analyze::CANNOT_FAIL;
pub use analyze::analyze;
pub use dates::DatePart;
pub use definitions::{Definition, DefinitionKind, DefinitionPart};
pub use depth::{BLOCK_DEPTH_MAX, EXPRESSION_DEPTH_MAX, with_deep_stack};
pub use error::PlanError;
pub use explain::{
    Carried, FlowEdge, FlowGraph, FlowNode, NodeKind, explain, explain_called, expression_text, shown_streams,
    unread_late, warnings, warnings_called,
};
pub use groups::{GROUPS_MAX, GroupOf, Groups};
pub use ids::{OperatorId, StreamId, TableId, TransactionId};
pub use limits::Limits;
pub use operations::{Operation, Operations, VerdictOperation};
pub use operators::{
    BatchSize, JoinHow, Operator, OperatorKind, Owner, Reach, StreamPart, TablePart, TransactionPart, Windows,
};
pub use periods::{Edge, Periods, Unit, Zone};
pub use plan::*;
pub use program::{
    Batch, Bound, CallerAt, Cast, Column, CommittedOutput, Conversion, Count, Delivery, Due, DueField, EmitOutput,
    FloatOp, Fold, KEYS_MAX, KEYS_MAX_MAX, KeyGroups, Local, LocalId, LoopId, MathOp, Measure, Merge, Missing, NO_TICK,
    Nested, Nesting, Node, Origin, OutputField, Program, ReasonId, Role, RoleId, STEP_BYTES, Seen, Sink, Stream,
    TEXT_MAX, TICKS_MAX, Table, TextCall, TextOp, TextTest, Transaction, WordOp, bad_schema,
};
pub use selection::{Condition, ConditionDef, Direction, Fit, Order, OrderDef, Selection, SelectionDef, Test, TestDef};
pub use waves::Waves;
pub use window::{BANDS, COUNTER_ROWS, COUNTERS, HOME_BAND, Keep, REGISTERS, Slices, Window, record_nulls};

/// Typed expressions and statements, named apart from the plan's own.
pub mod typed {
    pub use crate::program::{Expr, Node, Stmt};
}
