//! Transactions and pipelines as machine code (Cranelift), and the unsafe that calling it needs.
//!
//! One function per transaction and input runs a whole transaction on each event of a run, in order
//! ([`AccessFn`]); one function per root stream runs the filters, maps and key expressions after it
//! ([`PipelineFn`]). Both read Arrow buffers and write native columns through the plain structs of
//! [`abi`]; `layout` decides beforehand which column is where.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod abi;
mod access;
mod body;
mod code;
mod context;
mod expression;
mod groups;
mod helpers;
mod layout;
mod limits;
mod lower;
mod marks;
mod math;
mod native;
mod pipeline;
mod records;
mod synopsis;
mod texts;
mod transaction;
mod window;

pub use code::{Code, CompileError, JointCode, KeyCode, OperationCode, OperationsCode, PipelineCode, TransactionCode};
pub use context::{AccessContext, AccessFn, Arena, Emissions, Garbage, PipelineFn, Produced};
pub use groups::Groups;
pub use layout::{
    By, ColumnSource, FieldSource, Format, OutputColumn, OutputPlan, PASSED_TYPE, PassedList, StreamLayout, feeds_code,
    incoming_lists,
};
pub use marks::UndoMark;
pub use native::{NativeColumn, resize_zeroed};
pub use pipeline::{DeliveryKeys, KeySource, PipelineNode, PipelinePlan};
pub use transaction::Undo;
