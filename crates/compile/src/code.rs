//! All machine code of a program.

use crate::context::{AccessFn, PipelineFn};
use crate::layout::{OutputColumn, OutputPlan, StreamLayout, aborted_plan, committed_plan, emitted_plan};
use crate::lower::Constants;
use crate::pipeline::PipelinePlan;
use crate::transaction::{Form, Undo};
use crate::{pipeline, transaction};
use cranelift_codegen::Context;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Signature};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use std::ops::Range;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::typed::{Expr, Node, Stmt};
use tidemill_plan::{
    CommittedOutput, Delivery, Nesting, Operation, Operations, Origin, OutputField, Program, RoleId, StreamId,
    Transaction, TransactionId, Waves,
};
use typed_index_collections::{TiSlice, TiVec};

/// The machine refused to make code of a program.
#[derive(Debug, thiserror::Error)]
#[error("cannot compile {what}: {why}")]
pub struct CompileError {
    what: String,
    why: String,
}

fn error(what: &str, why: impl std::fmt::Display) -> CompileError {
    CompileError { what: what.into(), why: why.to_string() }
}

/// The code of a transaction for one of its inputs.
pub struct TransactionCode {
    /// Runs it whole.
    pub run: AccessFn,
    /// Captures what the abort of a root of nested transactions shows, with the reason that its verdict has. The rows
    /// are as they were before it.
    pub refuse: Option<AccessFn>,
    /// Folds events apart, where that may be ([`Program::fold`]); see [`crate::Groups`].
    pub fold: Option<AccessFn>,
    /// The code that reads the values by which each role's rows are found when it is about to run
    /// ([`tidemill_plan::Role::late_values`]), by role, if there are such values.
    pub keys: Vec<Option<KeyCode>>,
    /// Runs it in parts, where it can be taken apart.
    pub operations: Option<OperationsCode>,
    /// The places of the input's fields.
    pub layout: StreamLayout,
    /// The composition of `committed`.
    pub committed: OutputPlan,
    /// The composition of `aborted`.
    pub aborted: OutputPlan,
    /// The composition of each emission.
    pub emits: Vec<OutputPlan>,
    /// Number of its first emission among those of a context.
    pub emit_base: usize,
}

/// The code of a dependent key, or of the values in a selection: run on an event, it captures these as what is committed,
/// or aborts where there is no row to read one from.
pub struct KeyCode {
    /// The function that reads the key or the values.
    pub run: AccessFn,
    /// The types of the key's parts.
    pub types: Vec<ColumnType>,
}

/// The code of a transaction in parts ([`tidemill_plan::Operations`]). A part leaves a verdict like the whole.
pub struct OperationsCode {
    /// The operations, by group of roles.
    pub operations: Vec<OperationCode>,
    /// Decides whether it commits, and captures what it returns.
    pub verdict: AccessFn,
    /// The roles whose rows, as the operations leave them, are those of its further roles.
    pub outcomes: Vec<RoleId>,
    /// A flag for each role: whether the verdict operation updates its row.
    pub again: Vec<bool>,
}

/// The code of the updates of a group of roles.
pub struct OperationCode {
    /// The roles.
    pub roles: Vec<RoleId>,
    /// Performs them: all, or with `list` those of the elements that the context names
    /// ([`crate::AccessContext::set_elements`]).
    pub run: AccessFn,
    /// The list of whose elements each can be performed by itself.
    pub list: Option<usize>,
}

/// The code of everything that derives from a root.
pub struct PipelineCode {
    /// Runs it; none where there is nothing to compute.
    pub run: Option<PipelineFn>,
    /// The composition of what it writes.
    pub plan: PipelinePlan,
    /// Runs its deliveries, in order.
    pub joints: Vec<JointCode>,
}

/// Transactions on the same events that run one after the other: joint operators, as TStream calls them (2020, §V). One
/// function runs them all on an event before the next, which takes less than to call each by itself.
pub struct JointCode {
    /// The deliveries of the pipeline that it runs.
    pub deliveries: Range<usize>,
    /// Runs them, given as many inputs, side by side.
    pub run: AccessFn,
}

/// The code of a program. Frees it when dropped.
pub struct Code {
    /// The code of each transaction on each of its inputs.
    pub transactions: TiVec<TransactionId, Vec<TransactionCode>>,
    /// The pipeline of each root, by stream.
    pub pipelines: TiVec<StreamId, Option<PipelineCode>>,
    /// The column types of each emission number, for [`crate::AccessContext::new`].
    pub emission_types: Vec<Vec<ColumnType>>,
    /// Functions made.
    pub function_count: usize,
    /// The size of all functions, bytes.
    pub code_bytes: usize,
    _constants: Constants,
    module: Option<JITModule>,
}

// SAFETY: after construction the module is only kept for its memory, and code is immutable.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the functions' addresses are only reachable through `self`.
            unsafe { module.free_memory() };
        }
    }
}

/// Functions in the making.
struct Unit {
    module: JITModule,
    undo: Undo,
    context: Context,
    builder_context: FunctionBuilderContext,
    constants: Constants,
    function_count: usize,
    code_bytes: usize,
}

impl Unit {
    fn new(undo: Undo) -> Result<Self, CompileError> {
        let mut flags = settings::builder();
        let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
        for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("enable_verifier", verifier)] {
            flags.set(name, value).map_err(|e| error("settings", e))?;
        }
        let isa = cranelift_native::builder()
            .map_err(|e| error("for this machine", e))?
            .finish(settings::Flags::new(flags))
            .map_err(|e| error("for this machine", e))?;
        let builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
        let module = JITModule::new(builder);
        Ok(Unit {
            context: module.make_context(),
            module,
            undo,
            builder_context: FunctionBuilderContext::new(),
            constants: Constants::default(),
            function_count: 0,
            code_bytes: 0,
        })
    }

    /// Makes a function of `parameters` words.
    fn function(
        &mut self,
        name: &str,
        parameters: usize,
        build: impl FnOnce(FunctionBuilder<'_>, &mut Constants, TargetFrontendConfig),
    ) -> Result<FuncId, CompileError> {
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.extend((0..parameters).map(|_| AbiParam::new(I64)));
        let id = self
            .module
            .declare_function(name, Linkage::Local, &signature)
            .map_err(|e| error(name, format!("{e:?}")))?;
        self.context.func.signature = signature;
        let config = self.module.target_config();
        build(FunctionBuilder::new(&mut self.context.func, &mut self.builder_context), &mut self.constants, config);
        self.module.define_function(id, &mut self.context).map_err(|e| error(name, format!("{e:?}")))?;
        self.function_count += 1;
        self.code_bytes += self.context.compiled_code().map_or(0, |c| c.code_buffer().len());
        self.module.clear_context(&mut self.context);
        Ok(id)
    }
}

/// A function that is declared, with what is known about it.
struct Pending {
    id: FuncId,
    refuse: Option<FuncId>,
    fold: Option<FuncId>,
    parts: Option<PendingParts>,
    /// The function that reads each role's key, with the types of the key's parts, by role.
    keys: Vec<Option<(FuncId, Vec<ColumnType>)>>,
    code: TransactionCode,
}

/// Each operation with its function, and the verdict operation.
struct PendingParts {
    operations: Vec<(Operation, FuncId)>,
    verdict: FuncId,
    outcomes: Vec<RoleId>,
    again: Vec<bool>,
}

impl Code {
    /// Compiles a program. `wanted` says of each stream whether its events are needed as output.
    pub fn compile(program: &Program, wanted: &TiSlice<StreamId, bool>) -> Result<Code, CompileError> {
        Code::compile_for(program, wanted, Undo::ToBeginning)
    }

    /// Compiles a program whose transactions can be undone as far as `undo` says.
    pub fn compile_for(program: &Program, wanted: &TiSlice<StreamId, bool>, undo: Undo) -> Result<Code, CompileError> {
        tidemill_plan::with_deep_stack(|| Code::compile_all(program, wanted, undo))
    }

    fn compile_all(program: &Program, wanted: &TiSlice<StreamId, bool>, undo: Undo) -> Result<Code, CompileError> {
        let mut unit = Unit::new(undo)?;
        let mut emission_types = Vec::new();
        let mut transactions: TiVec<TransactionId, Vec<Pending>> = TiVec::new();
        for id in program.transactions.keys() {
            let inputs = 0..program.transactions[id].inputs.len();
            let codes: Result<_, _> =
                inputs.map(|input| compile_input(&mut unit, program, wanted, id, input, &mut emission_types)).collect();
            transactions.push(codes?);
        }
        let cascades = Waves::of(program).is_none();
        let mut pipelines = Vec::new();
        for stream in program.streams.keys() {
            let mut entry = compile_pipeline(&mut unit, program, stream)?;
            if let Some(pending) = &mut entry {
                let is_given = program.streams[stream].origin.is_given();
                let folds = |of: &Delivery| program.fold(of.transaction).is_some();
                for deliveries in joints(&pending.plan, is_given && !cascades, folds) {
                    let delivered = &pending.plan.deliveries[deliveries.clone()];
                    let parts = delivered.iter().map(|(d, ..)| (d.transaction, &transactions[d.transaction][d.input]));
                    let of = format!("{}, from {}", program.streams[stream].name, deliveries.start);
                    let id = compile_joint(&mut unit, program, &of, &parts.collect::<Vec<_>>())?;
                    pending.joints.push((deliveries, id));
                }
            }
            pipelines.push(entry);
        }
        unit.module.finalize_definitions().map_err(|e| error("the program", e))?;
        let module = &unit.module;
        // SAFETY: each address is of a finalized function that was built with the type's signature.
        let access = |id| unsafe { std::mem::transmute::<*const u8, AccessFn>(module.get_finalized_function(id)) };
        // SAFETY: as above.
        let pipe = |id| unsafe { std::mem::transmute::<*const u8, PipelineFn>(module.get_finalized_function(id)) };
        let operation = |(Operation { roles, list, .. }, id)| OperationCode { roles, run: access(id), list };
        let finish = |pending: Pending| {
            let operations = pending.parts.map(|parts| OperationsCode {
                operations: parts.operations.into_iter().map(operation).collect(),
                verdict: access(parts.verdict),
                outcomes: parts.outcomes,
                again: parts.again,
            });
            let key = |(id, types)| KeyCode { run: access(id), types };
            let keys = pending.keys.into_iter().map(|entry| entry.map(key)).collect();
            let (refuse, fold) = (pending.refuse.map(access), pending.fold.map(access));
            TransactionCode { run: access(pending.id), refuse, fold, keys, operations, ..pending.code }
        };
        let transactions = transactions.into_iter().map(|t| t.into_iter().map(finish).collect()).collect();
        let pipeline = |PendingPipeline { id, plan, joints }| {
            let joint = |(deliveries, id)| JointCode { deliveries, run: access(id) };
            PipelineCode { run: id.map(pipe), plan, joints: joints.into_iter().map(joint).collect() }
        };
        let pipelines = pipelines.into_iter().map(|entry| entry.map(pipeline)).collect();
        Ok(Code {
            transactions,
            pipelines,
            emission_types,
            function_count: unit.function_count,
            code_bytes: unit.code_bytes,
            _constants: unit.constants,
            module: Some(unit.module),
        })
    }
}

fn compile_input(
    unit: &mut Unit,
    program: &Program,
    wanted: &TiSlice<StreamId, bool>,
    id: TransactionId,
    input: usize,
    emission_types: &mut Vec<Vec<ColumnType>>,
) -> Result<Pending, CompileError> {
    let transaction = &program.transactions[id];
    let undo = if transaction.nesting == Nesting::Alone { unit.undo } else { Undo::ToMarks };
    let layout = StreamLayout::of(program, transaction.inputs[input]);
    let committed = committed_plan(program, id, wanted[transaction.committed.stream]);
    let aborted = aborted_plan(program, id, wanted[transaction.aborted]);
    let emits: Vec<OutputPlan> = (0..transaction.emits.len())
        .map(|e| emitted_plan(program, transaction, e, wanted[transaction.emits[e].stream]))
        .collect();
    let emit_base = emission_types.len();
    emission_types.extend(emits.iter().map(|e| e.captured.clone()));
    let name = format!("{}#{input}", transaction.name);
    let schema = &program.streams[transaction.committed.stream].schema;
    let [silent, unseen] = [&committed, &aborted].map(|plan| OutputPlan { wanted: false, ..plan.clone() });
    let mut make = |name: &str,
                    (part, by_element): (&Transaction, Option<usize>),
                    outputs: [&OutputPlan; 2],
                    committed_schema: &Schema,
                    form: Form| {
        let [committed, aborted] = outputs;
        let (layout, emits) = (&layout, &emits[..]);
        let spec = transaction::FunctionSpec {
            program,
            undo,
            transaction: part,
            form,
            by_element,
            layout,
            committed,
            committed_schema,
            aborted,
            emits,
            emit_base,
        };
        unit.function(name, 4, |builder, constants, config| transaction::build(&[spec], builder, constants, config))
    };
    let function = make(&name, (transaction, None), [&committed, &aborted], schema, Form::Runs)?;
    let refuse = match transaction.is_root() {
        true => {
            Some(make(&format!("{name} refused"), (transaction, None), [&silent, &aborted], schema, Form::Refuses)?)
        }
        false => None,
    };
    let fold = match program.fold(id) {
        Some(_) => Some(make(&format!("{name} folded"), (transaction, None), [&silent, &unseen], schema, Form::Folds)?),
        None => None,
    };
    let mut keys = Vec::new();
    for (r, role) in transaction.roles.iter().enumerate() {
        keys.push(match role.late_values().is_empty() {
            true => None,
            false => {
                let (reader, plan, schema) = key_reader(transaction, r);
                let id = make(
                    &format!("{name} key of {}", role.name),
                    (&reader, None),
                    [&plan, &unseen],
                    &schema,
                    Form::Runs,
                )?;
                Some((id, plan.captured))
            }
        });
    }
    let parts = match Operations::of(program, id) {
        None => None,
        Some(Operations { operations, verdict }) => {
            let mut functions = Vec::new();
            for (o, operation) in operations.into_iter().enumerate() {
                let update = (&operation.update, operation.list);
                let id = make(&format!("{name} operation {o}"), update, [&silent, &unseen], schema, Form::Runs)?;
                functions.push((operation, id));
            }
            let again = verdict.body.roles[..transaction.roles.len()].iter().map(|role| role.written).collect();
            let function =
                make(&format!("{name} verdict"), (&verdict.body, None), [&committed, &unseen], schema, Form::Runs)?;
            Some(PendingParts { operations: functions, verdict: function, outcomes: verdict.outcomes, again })
        }
    };
    let code = TransactionCode {
        run: unset,
        refuse: None,
        fold: None,
        keys: Vec::new(),
        operations: None,
        layout,
        committed,
        aborted,
        emits,
        emit_base,
    };
    Ok(Pending { id: function, refuse, fold, parts, keys, code })
}

/// Returns a transaction that returns what the rows of a role are found by and does nothing else, and how that is put
/// together.
fn key_reader(transaction: &Transaction, role: RoleId) -> (Transaction, OutputPlan, Schema) {
    let key = transaction.roles[role].late_values();
    // The row that a role for each of some rows is for stands first in their list.
    let first = transaction.roles[role]
        .each
        .and(transaction.roles[role].scan)
        .map(|local| Stmt::Assign { local, value: Expr { ty: Type::Int.into(), node: Node::Const(Value::Int(0)) } });
    let fields = key.iter().map(|&part| OutputField::Value(part.clone())).collect();
    let committed = CommittedOutput { passes_event: false, ..transaction.committed.clone() };
    let body = first.into_iter().chain([Stmt::Return { fields: Some(fields) }]).collect();
    let reader = Transaction { body, committed, ..transaction.clone() };
    let captured: Vec<ColumnType> = key.iter().map(|part| part.ty).collect();
    let columns = (0..key.len()).map(OutputColumn::Captured).collect();
    let schema = Schema::scalars(captured.iter().map(|&ty| ("key", ty)));
    (reader, OutputPlan { columns, captured, wanted: true }, schema)
}

/// Stands in for a function's address until all code is final.
unsafe extern "C" fn unset(_: *mut crate::context::AccessContext, _: *const crate::abi::InputView, _: u64, _: u64) {
    std::process::abort()
}

/// The pipeline of a root, in the making.
struct PendingPipeline {
    id: Option<FuncId>,
    plan: PipelinePlan,
    joints: Vec<(Range<usize>, FuncId)>,
}

fn compile_pipeline(
    unit: &mut Unit,
    program: &Program,
    stream: StreamId,
) -> Result<Option<PendingPipeline>, CompileError> {
    let here = &program.streams[stream];
    let is_root = here.root == stream
        && (here.origin.is_given()
            || matches!(here.origin, Origin::Committed(_) | Origin::Aborted(_) | Origin::Emitted(..)));
    if !is_root {
        return Ok(None);
    }
    let plan = PipelinePlan::of(program, stream);
    let id = if plan.needs_code() {
        let name = format!("pipeline of {}", here.name);
        Some(unit.function(&name, 5, |builder, constants, config| {
            pipeline::build(program, &plan, builder, constants, config)
        })?)
    } else {
        None
    };
    Ok(Some(PendingPipeline { id, plan, joints: Vec::new() }))
}

/// Returns the deliveries of a pipeline, those of the same events that stand side by side together if they may be
/// `joined` and none of them `folds`.
fn joints(plan: &PipelinePlan, joined: bool, folds: impl Fn(&Delivery) -> bool) -> Vec<Range<usize>> {
    let numbered = plan.deliveries.iter().map(|(of, node, _)| (node, folds(of))).enumerate();
    let numbered: Vec<_> = numbered.collect();
    let together = numbered.chunk_by(|(_, (one, folds)), (_, (other, also))| joined && one == other && !folds && !also);
    together.map(|run| run[0].0..run[0].0 + run.len()).collect()
}

/// Returns the function of a joint: of a single transaction its own. `of` tells its events from those of others that
/// the same transactions take together.
fn compile_joint(
    unit: &mut Unit,
    program: &Program,
    of: &str,
    parts: &[(TransactionId, &Pending)],
) -> Result<FuncId, CompileError> {
    if let [(_, single)] = parts {
        return Ok(single.id);
    }
    let mut specs = Vec::new();
    for &(id, Pending { code, .. }) in parts {
        let transaction = &program.transactions[id];
        specs.push(transaction::FunctionSpec {
            program,
            undo: unit.undo,
            transaction,
            form: Form::Runs,
            by_element: None,
            layout: &code.layout,
            committed: &code.committed,
            committed_schema: &program.streams[transaction.committed.stream].schema,
            aborted: &code.aborted,
            emits: &code.emits,
            emit_base: code.emit_base,
        });
    }
    let names: Vec<&str> = parts.iter().map(|&(id, _)| program.transactions[id].name.as_str()).collect();
    let name = format!("{} on the same events of {of}", names.join(", "));
    unit.function(&name, 4, |builder, constants, config| transaction::build(&specs, builder, constants, config))
}
