//! The function of a transaction, or of several on the same events: entry, the loop over events, and around them
//! [`Access`].

use crate::abi::InputView;
use crate::access::{Access, unchecked_writes, witnesses};
use crate::body::{Body, Event, FieldValue, INPUT_COLUMNS, INPUT_INDEX, RoleState};
use crate::context::{AccessContext, UNDO_UNCHECKED_MAX};
use crate::layout::{OutputPlan, StreamLayout};
use crate::limits::{Sums, body_counts};
use crate::lower::{Constants, Lower, constant};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, Variable};
use std::mem::{offset_of, size_of};
use tidemill_model::Schema;
use tidemill_plan::{LocalId, Program, StreamId, Transaction};
use tidemill_state::RowLayout;

/// The extent to which a transaction can be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undo {
    /// A transaction that aborts can be undone to its own beginning.
    #[default]
    ToBeginning,
    /// A transaction can be undone to any [`crate::UndoMark`], also after it has committed.
    ToMarks,
}

/// The purpose of a transaction's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The function runs the transaction.
    Runs,
    /// The function aborts at once, with the reason of the verdict that stands there: what an abort shows is captured
    /// where a transaction that is nested in this one has aborted.
    Refuses,
    /// The function folds the events apart ([`tidemill_plan::Fold`]). In the input's view, the rows of the first role
    /// are at [`Groups`], the second role has one row, and the verdicts are one count of aborts for each reason.
    Folds,
}

/// The facts that one transaction's function depends on.
#[derive(Clone, Copy)]
pub struct FunctionSpec<'a> {
    pub program: &'a Program,
    pub undo: Undo,
    /// A transaction of the program, or a part of one ([`tidemill_plan::Operations`]).
    pub transaction: &'a Transaction,
    pub form: Form,
    /// The list that loops are over only as far as the context says, if any.
    pub by_element: Option<usize>,
    pub layout: &'a StreamLayout,
    pub committed: &'a OutputPlan,
    /// The schema of `committed`.
    pub committed_schema: &'a Schema,
    pub aborted: &'a OutputPlan,
    pub emits: &'a [OutputPlan],
    pub emit_base: usize,
}

/// Fills in a function of the type [`crate::context::AccessFn`], which is given an input for each spec: it runs all of
/// them on an event before the next.
pub fn build(
    specs: &[FunctionSpec<'_>],
    mut builder: FunctionBuilder<'_>,
    constants: &mut Constants,
    config: TargetFrontendConfig,
) {
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let &[context, inputs, first, count] = builder.block_params(entry) else {
        unreachable!("an access function has four parameters")
    };
    let end = builder.ins().iadd(first, count);
    let next_event = builder.declare_var(I64);
    builder.def_var(next_event, first);
    let [header, start, leave] = std::array::from_fn(|_| builder.create_block());
    builder.ins().jump(header, &[]);

    builder.switch_to_block(header);
    let dense = builder.use_var(next_event);
    let more = builder.ins().icmp(IntCC::UnsignedLessThan, dense, end);
    builder.ins().brif(more, start, &[], leave, &[]);

    builder.switch_to_block(start);
    for (k, spec) in specs.iter().enumerate() {
        let input = builder.ins().iadd_imm_s(inputs, (k * size_of::<InputView>()) as i64);
        let next = builder.create_block();
        run_one(spec, Lower { b: &mut builder, constants, context }, input, dense, next);
        builder.switch_to_block(next);
    }
    let following = builder.ins().iadd_imm_s(dense, 1);
    builder.def_var(next_event, following);
    builder.ins().jump(header, &[]);
    builder.switch_to_block(leave);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(config);
}

/// Compiles the transaction on one event, going on to `next`.
fn run_one(spec: &FunctionSpec<'_>, mut l: Lower<'_, '_>, input: Value, dense: Value, next: Block) {
    let transaction = spec.transaction;
    let columns = l.load_constant(input, INPUT_COLUMNS);
    let index = l.load_constant(input, INPUT_INDEX);
    let folds = spec.form == Form::Folds;
    let mut roles = role_states(spec, &mut l, input);
    let failure = l.b.create_block();
    l.b.append_block_param(failure, I64);
    l.b.set_cold_block(failure);
    let address = l.at(index, dense, 2);
    // Events that are folded as they arrive are at their own places.
    let is_root = folds && spec.program.streams[transaction.inputs[0]].root == transaction.inputs[0];
    let row = if is_root { dense } else { l.b.ins().uload32(constant(), address, 0) };
    if !folds {
        load_rows(&mut l, &mut roles, dense);
    }
    let writes = transaction.roles.iter().any(|r| r.written);
    let undo_start = l.load(
        l.context,
        match spec.undo {
            Undo::ToBeginning => offset_of!(AccessContext, undo_start),
            Undo::ToMarks => offset_of!(AccessContext, undo_top),
        },
    );
    let undo_top = writes.then(|| {
        let variable = l.b.declare_var(I64);
        l.b.def_var(variable, undo_start);
        variable
    });
    let running = running_lists(spec, &mut l);
    let at_rows = running_rows(spec, &mut l);
    let locals = transaction.locals.iter().map(|local| l.slot(local.ty)).collect();
    let checked_log = unchecked_writes(transaction, &roles) > UNDO_UNCHECKED_MAX;
    let fields = spec.layout.fields.iter().cloned().map(FieldValue::Source).collect();
    let event = Event { schema: &transaction.schema, fields, columns, dense, row, input };
    let elements = vec![None; transaction.loops.len()];
    let sums = body_counts(&transaction.body).then(|| Sums::start(&mut l, spec.program.limits));
    let schema_of = |stream: StreamId| &spec.program.streams[stream].schema;
    let mut access = Access {
        body: Body { l, event, elements, locals, roles, failure, undo_top, sums },
        spec,
        aborted_schema: schema_of(transaction.aborted),
        emit_schemas: transaction.emits.iter().map(|e| schema_of(e.stream)).collect(),
        input,
        next,
        undo_start,
        loops: Vec::new(),
        running,
        at_rows,
        // An event that is folded apart commits by itself.
        tell_commit: !folds && tells_commit(spec),
        checked_log,
        witnesses: witnesses(transaction),
    };
    if folds {
        access.find_group();
    }
    if spec.form == Form::Refuses {
        access.refuse();
    } else if access.block(&transaction.body, false) {
        access.commit(None);
    }
    access.abort(&transaction.reasons);
}

fn role_states<'a>(spec: &FunctionSpec<'a>, l: &mut Lower<'_, '_>, input: Value) -> Vec<RoleState<'a>> {
    let transaction = spec.transaction;
    let rows = l.load_constant(input, offset_of!(InputView, rows));
    let starts = l.load_constant(input, offset_of!(InputView, starts));
    let state = |(r, role): (usize, &'a tidemill_plan::Role)| {
        let table = &spec.program.tables[role.table];
        RoleState {
            role,
            table,
            layout: RowLayout::of(table),
            row: None,
            rows: l.load_constant(rows, 8 * r),
            starts: l.load_constant(starts, 8 * r),
            known: false,
        }
    };
    transaction.roles.iter().enumerate().map(state).collect()
}

/// Loads the row of each role without list, once per event.
fn load_rows(l: &mut Lower<'_, '_>, roles: &mut [RoleState<'_>], dense: Value) {
    for role in roles.iter_mut().filter(|r| r.role.over.is_none()) {
        let address = l.at(role.rows, dense, 3);
        role.row = Some(l.b.ins().load(I64, constant(), address, 0));
    }
}

/// Returns the lists for which the abort must know which element a loop is on.
fn running_lists(spec: &FunctionSpec<'_>, l: &mut Lower<'_, '_>) -> Vec<(usize, Variable)> {
    let transaction = spec.transaction;
    let mut lists: Vec<usize> = transaction.roles.iter().filter_map(|r| r.over).collect();
    lists.sort_unstable();
    lists.dedup();
    outside(lists, l)
}

/// Returns the locals of loops over rows for which the abort must know which row a loop is on.
fn running_rows(spec: &FunctionSpec<'_>, l: &mut Lower<'_, '_>) -> Vec<(LocalId, Variable)> {
    let roles = spec.transaction.roles.iter().filter(|role| role.each.is_some());
    let mut locals: Vec<LocalId> = roles.filter_map(|role| role.scan).collect();
    locals.sort_unstable();
    locals.dedup();
    outside(locals, l)
}

/// Returns a variable for each kind of loop, which says that none runs.
fn outside(loops: Vec<usize>, l: &mut Lower<'_, '_>) -> Vec<(usize, Variable)> {
    let none = l.int(-1);
    let start = |of| {
        let variable = l.b.declare_var(I64);
        l.b.def_var(variable, none);
        (of, variable)
    };
    loops.into_iter().map(start).collect()
}

/// Returns whether the end of a transaction must be told to the context: it emits, or sets texts.
fn tells_commit(spec: &FunctionSpec<'_>) -> bool {
    spec.transaction.sets_text(spec.program) || spec.emits.iter().any(|e| e.wanted)
}
