//! Nests: which transactions commit or abort as one ([`Nesting`]).
//!
//! A nested transaction takes what another returns or emits, possibly filtered and mapped. Followed up through those that
//! are nested themselves, its inputs lead to one transaction that is not: the root.

use super::fault::{Checked, Fault};
use crate::{Nested, Nesting, Origin, Plan, PlanError, Program, ReasonId, StreamId, TransactionDef, TransactionId};

/// Checks the nested transactions of a connected program, and tells each transaction of its nest. `ids`: the number of
/// the first transaction that each of the plan's has become.
pub(super) fn nest(plan: &Plan, ids: &[TransactionId], program: &mut Program) -> Result<(), Vec<PlanError>> {
    let nested = || plan.transactions.iter().zip(ids).filter(|(def, _)| def.nested);
    let is_nested = |id: TransactionId| nested().any(|(_, other)| *other == id);
    let mut roots = Vec::new();
    let mut errors = Vec::new();
    for (def, &id) in nested() {
        match root_of(program, def, id, &is_nested) {
            Ok(root) => roots.push((id, root)),
            Err(fault) => errors.push(fault.of("transaction", &def.name)),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    roots.sort_unstable();
    for (id, root) in roots {
        enter(program, id, root);
    }
    Ok(())
}

/// Returns the root of a nested transaction.
fn root_of(
    program: &Program,
    def: &TransactionDef,
    id: TransactionId,
    is_nested: &dyn Fn(TransactionId) -> bool,
) -> Checked<TransactionId> {
    let mut root: Option<(TransactionId, StreamId)> = None;
    for &input in &program.transactions[id].inputs {
        let mut found = parent(program, input)?;
        while is_nested(found) {
            // There are no cycles, and the inputs of that one are checked by themselves.
            found = parent(program, program.transactions[found].inputs[0])?;
        }
        match root {
            None => root = Some((found, input)),
            Some((first, of)) if first != found => {
                let named = |stream: StreamId, of: TransactionId| {
                    format!("'{}' of '{}'", program.streams[stream].name, program.transactions[of].name)
                };
                let (one, other) = (named(of, first), named(input, found));
                return Err(Fault::new(format!("it is nested, and takes {one} and {other}"))
                    .hint("a transaction is nested in one; make two of it"));
            }
            Some(_) => {}
        }
    }
    match root {
        Some((root, _)) => Ok(root),
        None => Err(Fault::new(format!("'{}' has no input", def.name))),
    }
}

/// Returns the transaction whose output a nested one takes.
fn parent(program: &Program, input: StreamId) -> Checked<TransactionId> {
    let stream = &program.streams[input];
    match program.streams[stream.root].origin {
        Origin::Aborted(of) if !program.transactions[of].is_hidden() => {
            let of = &program.transactions[of].name;
            Err(Fault::new(format!(
                "it is nested, and takes '{}': with an abort of '{of}' all of them end",
                stream.name
            ))
            .hint("leave out nested=True, or take what the transaction returns or emits"))
        }
        Origin::Committed(of) | Origin::Emitted(of, _) if !program.transactions[of].is_hidden() => Ok(of),
        _ => Err(Fault::new(format!("it is nested, and no transaction returns or emits '{}'", stream.name))
            .hint("take .committed or .emitted(...) of a transaction, or leave out nested=True")),
    }
}

/// Puts a transaction under its root, whose aborts name it.
fn enter(program: &mut Program, id: TransactionId, root: TransactionId) {
    let name = program.transactions[id].name.clone();
    let texts: Vec<String> = program.transactions[id].reasons.iter().map(|text| format!("{name}: {text}")).collect();
    program.transactions[id].nesting = Nesting::In(root);
    let root = &mut program.transactions[root];
    let nested = Nested { transaction: id, first_reason: root.reasons.len() as ReasonId };
    root.reasons.extend(texts);
    match &mut root.nesting {
        Nesting::Root(others) => others.push(nested),
        nesting => *nesting = Nesting::Root(vec![nested]),
    }
}
