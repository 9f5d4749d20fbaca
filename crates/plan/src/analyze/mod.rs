//! From plan to program: resolve names, check, type.
//!
//! 1. The plan as a whole: its version, names that occur twice, tables, times of sources.
//! 2. Streams and transactions in the order of the flow ([`flow`]), so that the schema of each input
//!    is known. Each is checked by itself; what depends on a refused one is passed over in silence,
//!    so that one mistake gives one error.
//! 3. Deliveries, cascades and sinks, once all streams have numbers.
//!
//! Within a transaction: roles, then the types of locals ([`locals`]), then the body twice, first to
//! learn the schemas of its outputs ([`records`]), then for good.

mod arithmetic;
mod coerce;
mod comparison;
mod expressions;
mod fault;
mod flow;
mod functions;
mod limits;
mod locals;
mod reasons;
mod records;
mod roles;
mod scope;
mod statements;
mod streams;
mod tables;
mod transactions;
mod types;
mod whole;
mod windows;

use crate::{
    CommittedOutput, EmitOutput, Origin, Plan, PlanError, Program, Sink, StreamRef, TableId, Transaction,
    TransactionDef, TransactionId, depth,
};
pub(crate) use expressions::CHAIN_MAX;
use flow::FlowNode;
pub(crate) use reasons::CANNOT_FAIL;
use streams::{NewStream, Streams, Unresolved};
use transactions::{Draft, Input, OutputDraft};
use typed_index_collections::TiSlice;

/// Checks and types a plan. All errors that do not follow from others are given.
pub fn analyze(plan: &Plan) -> Result<Program, Vec<PlanError>> {
    let errors = depth::check(plan);
    if !errors.is_empty() {
        return Err(errors);
    }
    depth::with_deep_stack(|| analyze_within_limits(plan))
}

fn analyze_within_limits(plan: &Plan) -> Result<Program, Vec<PlanError>> {
    let mut errors = Vec::new();
    whole::check(plan, &mut errors);
    let tables = tables::tables(plan, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut streams = Streams::new(plan);
    let mut transactions: Vec<Option<Transaction>> = vec![None; plan.transactions.len()];
    for node in flow::order(plan, &mut errors) {
        match node {
            FlowNode::Stream(index) => {
                let refused = streams.named(index, whole::source_id(plan, index));
                note(refused.err(), "stream", &plan.streams[index].name, &mut errors);
            }
            FlowNode::Transaction(index) => {
                let def = &plan.transactions[index];
                match transaction(def, index.into(), &mut streams, &tables) {
                    Ok(transaction) => transactions[index] = Some(transaction),
                    Err(refused) => note(Some(refused), "transaction", &def.name, &mut errors),
                }
            }
        }
    }
    let sinks = sinks(plan, &streams, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let transactions = transactions.into_iter().map(|t| t.expect("what is not refused is typed")).collect();
    let mut program = Program {
        name: plan.name.clone(),
        schema_version: plan.schema_version,
        tables,
        streams: streams.list,
        transactions,
        sinks,
        limits: plan.limits,
    };
    whole::connect(&mut program);
    Ok(program)
}

fn note(refused: Option<Unresolved>, kind: &str, name: &str, errors: &mut Vec<PlanError>) {
    if let Some(Unresolved::Wrong(fault)) = refused {
        errors.push(fault.of(kind, name));
    }
}

/// Types a transaction and enters its streams.
fn transaction(
    def: &TransactionDef,
    id: TransactionId,
    streams: &mut Streams<'_>,
    tables: &TiSlice<TableId, crate::Table>,
) -> Result<Transaction, Unresolved> {
    whole::check_inputs(def)?;
    let inputs = def.inputs.iter().map(|r| streams.input(r)).collect::<Result<Vec<_>, _>>()?;
    let given: Vec<_> = inputs
        .iter()
        .map(|&i| {
            let stream = &streams.list[i];
            (stream.name.as_str(), &stream.schema, stream.event_time, streams.starts_at_source(i))
        })
        .collect();
    let input: Input<'_> = transactions::common(&given)?;
    let schema = input.schema.clone();
    let Draft { roles, locals, loops, body, reasons, seen, passes_event, committed, emits, aborted } =
        transactions::transaction(def, &input, tables)?;
    let name = &def.name;
    let mut add = |reference, suffix: String, origin, output: OutputDraft| {
        let OutputDraft { schema, event_time } = output;
        streams.add(reference, NewStream { name: format!("{name}.{suffix}"), schema, event_time, origin, root: None })
    };
    let committed = CommittedOutput {
        stream: add(StreamRef::Committed(name.clone()), "committed".into(), Origin::Committed(id), committed),
        passes_event,
    };
    let aborted = add(StreamRef::Aborted(name.clone()), "aborted".into(), Origin::Aborted(id), aborted);
    let mut emit_outputs = Vec::new();
    for (index, (emit, output)) in emits.into_iter().enumerate() {
        let reference = StreamRef::Emitted { transaction: name.clone(), name: emit.clone() };
        let stream = add(reference, format!("emitted.{emit}"), Origin::Emitted(id, index), output);
        emit_outputs.push(EmitOutput { name: emit, stream });
    }
    Ok(Transaction {
        name: name.clone(),
        inputs,
        schema,
        roles,
        locals,
        loops,
        body,
        reasons,
        committed,
        emits: emit_outputs,
        aborted,
        seen,
        cascades: false,
    })
}

fn sinks(plan: &Plan, streams: &Streams<'_>, errors: &mut Vec<PlanError>) -> Vec<Sink> {
    let mut sinks = Vec::new();
    for def in &plan.sinks {
        match streams.resolve(&def.stream) {
            Ok(stream) => sinks.push(Sink { name: def.name.clone(), stream }),
            Err(refused) => note(Some(refused), "sink", &def.name, errors),
        }
    }
    sinks
}
