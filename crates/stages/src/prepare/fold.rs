//! Late merging: the events of windows whose groups can be merged are folded while they are prepared, into rows of the
//! epoch's own, and access merges these into the tables (`access/merge.rs`).
//!
//! So events of such windows are no transactions for the schedule: neither their rows nor their order nor their
//! outcomes are written down, and workers that prepare epochs fold at the same time. What [`tidemill_plan::Fold`] says
//! makes the results the same. The rows that an input touches are one for each group, and are found, marked and saved
//! like others.

use crate::epoch::Epoch;
use crate::folded::Folded;
use crate::machine::{Machine, Scratch};
use crate::prepare::{Arrived, computed_of};
use crate::wiring::InputId;
use tidemill_compile::abi::{InputView, Verdict};
use tidemill_compile::{AccessFn, Groups, KeySource, resize_zeroed};
use tidemill_model::Value;
use tidemill_state::{KeyColumn, Keys, Table};

/// Folds the events that have arrived at an input, and finds the rows of their groups; not while folding pauses.
pub fn fold(
    machine: &Machine,
    scratch: &mut Scratch,
    epoch: &mut Epoch,
    id: InputId,
    code: AccessFn,
    arrived: &Arrived<'_>,
) {
    let of = machine.input(id);
    let node = epoch.work.pipelines[of.wiring.root].nodes.get_mut(of.wiring.node);
    let (index, events) = match &node {
        Some(node) if of.wiring.node > 0 => (node.index.as_ptr(), node.len),
        _ => (scratch.identity.entries().as_ptr(), arrived.events),
    };
    if events == 0 || !scratch.pauses[id].folds() {
        return;
    }
    let (_, computed) = computed_of(node);
    let input = &mut epoch.work.inputs[id];
    input.point(arrived.views, arrived.places, &computed);
    let table = &machine.tables[of.roles()[0].table];
    let new = || Box::new(Folded::new(of.transaction.reasons.len(), table));
    let mut folded = input.folded.take().unwrap_or_else(new);
    folded.begin();
    let Folded { groups, events: all, aborts } = &mut *folded;
    if let Some(key) = constants(&of.wiring.keys.roles[0]) {
        groups.make_sole(key.into_iter());
    }
    let rows = [std::ptr::from_mut(groups).cast::<u64>().cast_const()];
    let view = InputView {
        index,
        rows: rows.as_ptr(),
        verdicts: aborts.as_mut_ptr().cast::<Verdict>(),
        ..input.view(&scratch.identity)
    };
    scratch.context.write_in_place(true);
    #[allow(unsafe_code)]
    // SAFETY: the view is of the input's events, whose index and columns cover them; the groups and a count for each
    // reason are where the code expects them.
    unsafe {
        code(&mut *scratch.context, &view, 0, events as u64);
    }
    *all = events;
    scratch.pauses[id].judge(events, groups.len());
    resolve(table, groups, &mut input.rows[0]);
    input.folded = Some(folded);
}

/// Returns the parts of a key of constants.
fn constants(key: &[KeySource]) -> Option<Vec<u64>> {
    let word = |part: &KeySource| match part {
        KeySource::Constant(Value::Bool(value)) => Some(u64::from(*value)),
        KeySource::Constant(value) => Some(value.word().expect("keys of groups are words") as u64),
        _ => None,
    };
    key.iter().map(word).collect()
}

/// Finds the rows of groups.
fn resolve(table: &Table, groups: &Groups, rows: &mut Vec<u64>) {
    let keys = groups.keys();
    let columns: Vec<KeyColumn<'_>> = keys.iter().map(|words| KeyColumn::Words(words)).collect();
    resize_zeroed(rows, groups.len());
    table.resolve(&Keys { columns: &columns, nulls: None, len: groups.len() }, rows);
}
