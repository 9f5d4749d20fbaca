//! Fills tables from the newest checkpoint, in shares of the virtual nodes, on all processors.

use crate::control::{Control, RunError};
use arrow_array::RecordBatch;
use crossbeam_channel::{RecvTimeoutError, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidemill_durability::store::{RunPart, Runs};
use tidemill_durability::{StateDirectory, StateError, TableState};
use tidemill_plan::TableId;
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::Machine;
use tidemill_state::Table;

/// The interval at which the waiting thread reports progress.
const TICK: Duration = Duration::from_millis(50);

/// Returns the rows of a table in the newest checkpoint, in batches of [`Table::schema`], each for a range of virtual
/// nodes.
pub fn checkpoint_rows<'a>(
    directory: &StateDirectory,
    table: &'a Table,
    state: &TableState,
) -> Result<impl Iterator<Item = Result<RecordBatch, StateError>> + use<'a>, StateError> {
    let runs = directory.runs(&state.runs, table.shape(), &table.definition().name)?;
    let parts = runs.parts();
    Ok(parts.map(move |part| Ok(table.image_batch(&runs.read(&part)?.existing()))))
}

struct Load {
    machine: Arc<Machine>,
    control: Arc<Control>,
    /// The shares: a table, its runs, and the part of their rows.
    shares: Vec<(TableId, Arc<Runs>, RunPart)>,
    next: AtomicUsize,
}

impl Load {
    /// Takes shares until none is left.
    fn work(&self) -> Result<(), StateError> {
        while let Some((table, runs, part)) = self.shares.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let rows = runs.read(part)?.existing();
            let table = &self.machine.tables[*table];
            table.put(table.fill_nodes(part.clone(), &rows));
            self.control.recovery.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Loads the rows of the newest checkpoint into empty tables. `tick` is called from time to time.
pub fn load(
    directory: &StateDirectory,
    machine: &Arc<Machine>,
    environment: &Arc<dyn Environment>,
    control: &Arc<Control>,
    tick: &mut dyn FnMut(),
) -> Result<(), RunError> {
    let Some(checkpoint) = directory.checkpoint() else { return Ok(()) };
    let mut shares = Vec::new();
    for ((t, table), state) in machine.tables.iter_enumerated().zip(&checkpoint.tables) {
        let runs = Arc::new(directory.runs(&state.runs, table.shape(), &table.definition().name)?);
        control.recovery.rows_in_all.fetch_add(runs.rows(), Ordering::Relaxed);
        if !state.runs.is_empty() {
            shares.extend(runs.parts().map(|part| (t, runs.clone(), part)));
        }
    }
    let threads = environment.parallelism().min(shares.len());
    let (machine, shown, control) = (machine.clone(), control, control.clone());
    let load = Arc::new(Load { machine, control, shares, next: AtomicUsize::new(0) });
    let (done, is_done) = bounded(threads);
    let mut joined = Vec::new();
    for _ in 0..threads {
        let (load, done) = (load.clone(), done.clone());
        let body = move || _ = done.send(load.work());
        joined.push(environment.spawn("load", Box::new(body)));
    }
    drop(done);
    let mut outcome = Ok(());
    loop {
        match is_done.recv_timeout(TICK) {
            Ok(share) => outcome = outcome.and(share),
            Err(RecvTimeoutError::Timeout) => tick(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for thread in joined {
        thread.join().map_err(RunError::Panic)?;
    }
    let taken = load.next.load(Ordering::Relaxed);
    assert!(outcome.is_err() || taken >= load.shares.len(), "each share of the rows was loaded");
    // Some rows were in several runs, or deleted.
    shown.recovery.rows.store(shown.recovery.rows_in_all.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(outcome?)
}
