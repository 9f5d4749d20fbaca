//! What a worker brings along, and what all share.

use crate::input::Identity;
use crate::prepare::keys::KeyScratch;
use crate::wiring::Wiring;
use tidemill_compile::abi::ColumnView;
use tidemill_compile::{AccessContext, Code};
use tidemill_plan::{Groups, Program};
use tidemill_state::Table;

/// What of an epoch is logged (S-Store, §3.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// What its sources gave. State and outputs are a function of it, so a replay gives the same: what S-Store calls
    /// weak recovery, with strong recovery's guarantee.
    #[default]
    Border,
    /// That, and what each transaction of each operator that committed gave, which results wait for too. A replay is
    /// compared with it, event by event.
    Full,
}

/// What all workers read: the program and its code, the connections, the tables.
pub struct Machine {
    /// The program.
    pub program: Program,
    /// Its code.
    pub code: Code,
    /// Its connections.
    pub wiring: Wiring,
    /// Which of its transactions never share a row.
    pub groups: Groups,
    /// Its tables.
    pub tables: Vec<Table>,
    /// What a durable run of it logs.
    pub logging: Logging,
}

impl Machine {
    /// A context for its code. `ordered`: see [`AccessContext::new`].
    pub fn context(&self, ordered: bool) -> Box<AccessContext> {
        let text_bytes = self.tables.iter().map(|table| table.text_bytes().clone()).collect();
        AccessContext::new(&self.code.emission_types, ordered, text_bytes)
    }
}

/// Room of one worker for stateless work.
pub struct Scratch {
    /// For pipelines: texts that they make go to the epoch.
    pub context: Box<AccessContext>,
    /// 0, 1, 2, …
    pub identity: Identity,
    /// For keys.
    pub keys: KeyScratch,
    /// Views of the root at hand.
    pub views: Vec<ColumnView>,
}

#[allow(unsafe_code)]
// SAFETY: the views are only meaningful during a call that fills them first.
unsafe impl Send for Scratch {}

impl Scratch {
    /// For one of so many workers on this machine.
    pub fn new(machine: &Machine, workers: usize) -> Self {
        Scratch {
            context: machine.context(machine.wiring.cascades),
            identity: Identity::default(),
            keys: KeyScratch::new(machine.tables.len(), workers > 1),
            views: Vec::new(),
        }
    }
}
