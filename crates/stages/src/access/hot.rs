//! The rows that an epoch's transactions touch, by a sample of their accesses: which rows are hot, and which make the
//! critical path.

use crate::epoch::Epoch;
use crate::machine::Machine;
use std::collections::HashMap;
use tidemill_model::Value;
use tidemill_model::arrow::value_at;
use tidemill_plan::{StreamId, TableId};
use tidemill_state::{Image, RowAddress, Table};

/// The accesses of a sample.
const SAMPLE: usize = 16;

/// A row that was touched: its table and its key.
pub type Touched = (TableId, Vec<Value>);

/// Returns the rows of some accesses by key, evenly spread over those of an epoch. Where each event is followed through
/// they are those of all transactions, elsewhere of those on sources. Call it while no transaction runs: between the
/// access of an epoch and that of the next.
pub fn touched(machine: &Machine, epoch: &Epoch) -> Vec<Touched> {
    let mut sampled: Vec<(TableId, RowAddress)> = Vec::new();
    let step = (epoch.operations() / SAMPLE).max(1);
    let mut next = epoch.number as usize % step;
    let counts = |root: StreamId| machine.wiring.cascades || machine.program.streams[root].origin.is_of_source();
    for (id, input) in epoch.work.inputs.iter_enumerated() {
        if input.len == 0 || !counts(machine.wiring.inputs[id].root) {
            continue;
        }
        for (role, rows) in machine.input(id).roles().iter().zip(&input.rows) {
            let of_role = rows.iter().skip(next).step_by(step).filter(|&&row| row != 0);
            if !machine.program.tables[role.table].is_hidden {
                sampled.extend(of_role.map(|&row| (role.table, row)));
            }
            next = (next + step - rows.len() % step) % step;
        }
    }
    sampled.iter().filter_map(|&(id, row)| Some((id, key(&machine.tables[id], row)?))).collect()
}

/// The transactions whose critical path is looked for.
const ON_PATH: usize = 512;

/// A transaction with the longest chain that ends with it.
struct Step {
    /// The number of transactions in the chain.
    length: usize,
    /// The one before it, and the row that both touch.
    before: Option<(usize, (TableId, RowAddress))>,
}

/// Returns the rows along the critical path of an epoch's first transactions, where each row sees its transactions one
/// after the other and all cost the same: some of its steps, evenly spread. None where each event is followed through,
/// since then all is one path. Call it as [`touched`].
pub fn critical(machine: &Machine, epoch: &Epoch) -> Vec<Touched> {
    if machine.wiring.cascades {
        return Vec::new();
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut last: HashMap<RowAddress, usize> = HashMap::new();
    epoch.each_in(&machine.wiring.joints, &(0..epoch.transactions().min(ON_PATH)), |at| {
        let (input, event) = (&epoch.work.inputs[at.input], at.event as usize);
        let (number, mut step) = (steps.len(), Step { length: 1, before: None });
        for (r, role) in machine.input(at.input).roles().iter().enumerate() {
            if machine.program.tables[role.table].is_hidden {
                continue;
            }
            for &row in input.rows_of(r, event, role.over.is_some()).iter().filter(|&&row| row != 0) {
                let before = last.insert(row, number).filter(|&before| before < number);
                if let Some(before) = before.filter(|&before| steps[before].length >= step.length) {
                    step = Step { length: steps[before].length + 1, before: Some((before, (role.table, row))) };
                }
            }
        }
        steps.push(step);
        true
    });
    let longest = steps.iter().enumerate().max_by_key(|(_, step)| step.length);
    let path = std::iter::successors(longest.map(|(at, _)| at), |&at| steps[at].before.map(|(before, _)| before));
    let rows: Vec<(TableId, RowAddress)> = path.filter_map(|at| Some(steps[at].before?.1)).collect();
    let some = rows.iter().step_by((rows.len() / SAMPLE).max(1));
    some.filter_map(|&(id, row)| Some((id, key(&machine.tables[id], row)?))).collect()
}

/// Returns the key of a row, if it exists.
fn key(table: &Table, row: RowAddress) -> Option<Vec<Value>> {
    let mut image = Image::new(table.shape());
    #[allow(unsafe_code)]
    // SAFETY: the row was found in the table for this epoch, and by the caller's contract no transaction runs.
    unsafe {
        table.copy_row(row, &mut image);
    }
    let definition = table.definition();
    let batch = image.exists(0).then(|| table.image_batch(&image))?;
    Some(definition.key.iter().map(|&c| value_at(batch.column(c), definition.columns[c].ty.ty, 0)).collect())
}
