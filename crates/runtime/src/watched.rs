//! A run, as those see it who watch it.

use crate::report::Report;
use crate::summary::{SourceSummary, Summary};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tidemill_plan::{Program, TableId};
use tidemill_recovery::{Control, Savepoints, Vitals};
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::Machine;
use tidemill_state::TableStats;

/// A run, as those see it who watch it. Before the run has begun there is nothing to see. It may be looked at from any
/// thread, also when the run is over.
#[derive(Clone, Default)]
pub struct Watched(Arc<OnceLock<Begun>>);

/// A run that has begun.
pub(crate) struct Begun {
    pub machine: Arc<Machine>,
    pub control: Arc<Control>,
    pub environment: Arc<dyn Environment>,
    pub report: Arc<Mutex<Report>>,
    /// The time when it began (time of the clock).
    pub started: u64,
    pub savepoints: Option<Savepoints>,
}

impl Watched {
    pub(crate) fn begin(&self, begun: Begun) {
        self.0.get_or_init(|| begun);
    }

    /// Returns whether the run has begun.
    pub fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the program.
    pub fn program(&self) -> Option<&Program> {
        self.0.get().map(|begun| &begun.machine.program)
    }

    /// Returns the time by the run's clock, nanoseconds since it began.
    pub fn elapsed(&self) -> Option<u64> {
        self.0.get().map(|begun| begun.environment.now().saturating_sub(begun.started))
    }

    /// Returns the time by the run's clock.
    pub fn now(&self) -> Option<u64> {
        self.0.get().map(|begun| begun.environment.now())
    }

    /// Numbers by which an operator sees how it does.
    pub fn vitals(&self) -> Option<&Vitals> {
        self.0.get().map(|begun| &begun.control.vitals)
    }

    /// Returns the counts so far: those of released epochs. What is held, and by which source, is as it was when the
    /// gate was asked last ([`Vitals::ask_gate`]).
    pub fn summary(&self) -> Option<Summary> {
        let begun = self.0.get()?;
        let program = &begun.machine.program;
        let mut positions = begun.control.vitals.gate().positions;
        positions.resize_with(program.sources().count(), Default::default);
        let elapsed = begun.environment.now().saturating_sub(begun.started);
        Some(begun.report.lock().summary(program, &positions, false, elapsed))
    }

    /// Returns the counts of the sources, which are found without those of the rest.
    pub fn sources(&self) -> Option<Vec<SourceSummary>> {
        let begun = self.0.get()?;
        let program = &begun.machine.program;
        let mut positions = begun.control.vitals.gate().positions;
        positions.resize_with(program.sources().count(), Default::default);
        Some(begun.report.lock().sources(program, &positions))
    }

    /// Returns the size of a table. Waits while an epoch makes room in it.
    pub fn table_stats(&self, table: TableId) -> Option<TableStats> {
        self.0.get().map(|begun| begun.machine.tables[table].stats())
    }

    /// Returns the directory of its state, if it has one and goes on.
    pub fn state(&self) -> Option<PathBuf> {
        self.0.get()?.savepoints.as_ref()?.path()
    }
}
