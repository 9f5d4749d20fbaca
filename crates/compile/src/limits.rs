//! Counting against the limits of a program ([`tidemill_plan::Limits`]).
//!
//! A function that counts keeps its sums in two variables, which begin at 0 with each event. What is counted where is
//! explicit in the program; a body without such points has no sums and pays nothing.

use crate::body::{Body, List};
use crate::context::AccessContext;
use crate::helpers;
use crate::lower::{Lower, Val};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;
use std::mem::offset_of;
use tidemill_model::{FieldType, Type};
use tidemill_plan::typed::{Expr, Node, Stmt};
use tidemill_plan::{Count, Limits, Measure, OutputField, ReasonId, STEP_BYTES};

/// The sums of one event.
#[derive(Clone, Copy)]
pub struct Sums {
    limits: Limits,
    steps: Variable,
    memory: Variable,
    /// The bytes of texts that the context held when the event began.
    kept: Value,
}

impl Sums {
    /// Sums at 0.
    pub fn start(l: &mut Lower<'_, '_>, limits: Limits) -> Sums {
        let zero = l.int(0);
        let [steps, memory] = std::array::from_fn(|_| l.b.declare_var(I64));
        l.b.def_var(steps, zero);
        l.b.def_var(memory, zero);
        let kept = l.load(l.context, offset_of!(AccessContext, produced.arena.kept));
        Sums { limits, steps, memory, kept }
    }
}

/// Returns whether a body counts anything.
pub fn body_counts(body: &[Stmt]) -> bool {
    let mut counts = false;
    body.iter().for_each(|stmt| {
        stmt.each(&mut |inner| {
            counts |= matches!(inner, Stmt::Count { .. }) || inner.expressions().into_iter().any(expression_counts);
        });
    });
    counts
}

/// Returns whether the fields of a map count anything.
pub fn fields_count(fields: &[OutputField]) -> bool {
    fields.iter().any(|field| matches!(field, OutputField::Value(value) if expression_counts(value)))
}

/// Returns whether an expression counts anything.
pub fn expression_counts(expr: &Expr) -> bool {
    let mut counts = false;
    expr.each(&mut |inner| counts |= matches!(inner.node, Node::Counted { .. }));
    counts
}

impl Body<'_, '_> {
    fn sums(&self) -> Sums {
        self.sums.expect("a function that counts has sums")
    }

    /// Lowers the counting of a statement.
    pub fn count(&mut self, count: Count, reason: ReasonId) {
        let sums = self.sums();
        match count {
            Count::Steps(steps) => {
                let steps = self.l.int(steps);
                self.add_to_sum(sums.steps, steps, sums.limits.steps, reason);
            }
            Count::Memory(bytes) => {
                let bytes = self.l.int(bytes);
                self.add_to_sum(sums.memory, bytes, sums.limits.memory, reason);
            }
            Count::Text(field) => {
                let ty = self.event.schema.fields[field].scalar_type().expect("analysis counts texts as such");
                let text = self.field(field, ty);
                let bytes = self.text_bytes(text);
                self.add_to_sum(sums.memory, bytes, sums.limits.memory, reason);
            }
            Count::List(field) => {
                let bytes = self.list_bytes(field);
                self.add_to_sum(sums.memory, bytes, sums.limits.memory, reason);
            }
        }
    }

    /// Counts a text that has been evaluated.
    pub fn counted(&mut self, measure: Measure, text: Val, reason: ReasonId) {
        let sums = self.sums();
        let bytes = self.text_bytes(text);
        match measure {
            Measure::Read => {
                let steps = self.l.b.ins().ushr_imm_s(bytes, i64::from(STEP_BYTES.ilog2()));
                self.add_to_sum(sums.steps, steps, sums.limits.steps, reason);
            }
            Measure::Made => self.add_to_sum(sums.memory, bytes, sums.limits.memory, reason),
        }
    }

    /// Adds to a sum, and fails where it is then beyond the limit. No amount is greater than the address space or
    /// than `ROUNDS_AT_ONCE_MAX` of the analysis, so nothing overflows.
    fn add_to_sum(&mut self, sum: Variable, amount: Value, limit: i64, reason: ReasonId) {
        let before = self.l.b.use_var(sum);
        let after = self.l.b.ins().iadd(before, amount);
        self.l.b.def_var(sum, after);
        let beyond = self.l.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, after, limit);
        self.fail_if(beyond, reason);
    }

    /// Returns the bytes of a text, 0 of a null.
    fn text_bytes(&mut self, text: Val) -> Value {
        let len = text.len.expect("a text has a length");
        let Some(null) = text.null else { return len };
        let zero = self.l.int(0);
        self.l.b.ins().select(null, zero, len)
    }

    /// Returns 16 bytes for each value of a list's elements, and the bytes of their texts.
    fn list_bytes(&mut self, field: usize) -> Value {
        let FieldType::List(item) = &self.event.schema.fields[field].ty else { unreachable!("analysis counts a list") };
        let List { first, end, children } = self.list(field);
        let len = self.l.b.ins().isub(end, first);
        let mut bytes = self.l.b.ins().imul_imm_s(len, 16 * item.columns().len() as i64);
        for (column, (_, ty)) in item.columns().into_iter().enumerate() {
            if matches!(ty.ty, Type::Str | Type::Bytes) {
                let view = self.l.view_address(children, column);
                let texts = self.l.call_word(helpers::text_column_bytes as *const () as usize, &[view, first, end]);
                bytes = self.l.b.ins().iadd(bytes, texts);
            }
        }
        bytes
    }

    /// Lets go of the texts made for the event at hand, which failed: nothing points to them.
    pub fn release_texts(&mut self) {
        if let Some(sums) = self.sums {
            self.l.call(helpers::release_texts as *const () as usize, &[self.l.context, sums.kept], None);
        }
    }
}

const _: () = assert!(STEP_BYTES.count_ones() == 1, "a shift divides by it");
