//! The data that all workers share, and the scratch of one worker.

use crate::access::read::Kept;
use crate::due::boundaries;
use crate::folded::Pause;
use crate::input::Identity;
use crate::prepare::keys::KeyScratch;
use crate::progress::Boundaries;
use crate::wiring::{InputId, InputWiring, Wiring};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_compile::abi::ColumnView;
use tidemill_compile::{AccessContext, Code, TransactionCode};
use tidemill_plan::{Groups, Program, Role, TableId, Transaction};
use tidemill_state::{ColumnIndex, Earliest, Homes, RowAddress, Table};
use typed_index_collections::TiVec;

/// The data of an epoch that is logged (S-Store, §3.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// The input from its sources. State and outputs are a function of it, so a replay reproduces them: S-Store calls
    /// this weak recovery; here it has the guarantee of strong recovery.
    #[default]
    Border,
    /// The input, and the output of each committed transaction of each operator; results wait for both to be logged. A
    /// replay is compared with it, event by event.
    Full,
}

/// The data that all workers read: the program and its code, the connections, the tables.
pub struct Machine {
    /// The program.
    pub program: Program,
    /// Its code.
    pub code: Code,
    /// Its connections.
    pub wiring: Wiring,
    /// The groups of its transactions; two groups never share a row.
    pub groups: Groups,
    /// Its tables.
    pub tables: TiVec<TableId, Table>,
    /// The sockets that their rows are on.
    pub homes: Homes,
    /// The rows of each stream of due rows ([`Wiring::dues`]) by their boundary, if these are of a table. The worker
    /// that accesses an epoch notes the rows that it may have changed, and looks for what is due within it; the gate looks
    /// while no epoch is accessed.
    pub due_rows: Vec<Option<Mutex<Earliest>>>,
    /// The indexes of columns, by table. The worker that accesses an epoch searches them and notes the rows that it may
    /// change.
    pub column_indexes: TiVec<TableId, Mutex<Vec<ColumnIndex>>>,
    /// Copies of whole tables that hold still.
    pub kept: Kept,
    /// The data that a durable run logs.
    pub logging: Logging,
    /// The number of places before those of the first event of its sources ([`Machine::passed_before`]).
    pub passed_before: AtomicU64,
}

/// An input: the transaction, its code, and how it is connected.
#[derive(Clone, Copy)]
pub struct InputContext<'a> {
    /// Its place in the flow: its transaction, the root of its stream, and the origin of its keys.
    pub wiring: &'a InputWiring,
    /// The transaction.
    pub transaction: &'a Transaction,
    /// The transaction's code on this input.
    pub code: &'a TransactionCode,
}

impl<'a> InputContext<'a> {
    /// Returns the roles of its transaction.
    pub fn roles(self) -> &'a [Role] {
        &self.transaction.roles
    }
}

impl Machine {
    /// Returns the number of places before those of the first event of its sources: of events whose sources the program does not
    /// have any more, and of those of a state whose rows it has taken over.
    pub fn passed_before(&self) -> u64 {
        self.passed_before.load(Ordering::Relaxed)
    }

    /// Has the events of its sources stand after this number of places. Call it between runs only.
    pub fn stand_after(&self, places: u64) {
        self.passed_before.store(places, Ordering::Relaxed);
    }

    /// Returns an input.
    #[inline]
    pub fn input(&self, id: InputId) -> InputContext<'_> {
        let wiring = &self.wiring.inputs[id];
        InputContext {
            wiring,
            transaction: &self.program.transactions[wiring.transaction],
            code: &self.code.transactions[wiring.transaction][wiring.input],
        }
    }

    /// Returns a context for its compiled code. `ordered`: see [`AccessContext::new`].
    pub fn context(&self, ordered: bool) -> Box<AccessContext> {
        let text_bytes = self.tables.iter().map(|table| table.text_bytes().clone()).collect();
        AccessContext::new(&self.code.emission_types, ordered, text_bytes)
    }
}

/// The working memory of a worker for stateless work.
pub struct Scratch {
    /// The context of pipelines: the texts that they create move to the epoch.
    pub context: Box<AccessContext>,
    /// 0, 1, 2, …
    pub identity: Identity,
    /// Scratch for keys.
    pub keys: KeyScratch,
    /// Views of the current root.
    pub views: Vec<ColumnView>,
    /// The number of rows, then their addresses, for each role of the transaction at hand that is not one row.
    pub scans: Vec<Vec<RowAddress>>,
    /// The pause in folding the events of each input, by input.
    pub pauses: TiVec<InputId, Pause>,
    /// The boundaries of the epoch in access, if what is due divides it.
    pub boundaries: Boundaries,
    /// Within a nest: the rows that were noted for indexes since it began.
    pub noted: Vec<(TableId, RowAddress)>,
}

#[allow(unsafe_code)]
// SAFETY: the views are valid only during a call, and the call fills them first.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Makes the working memory for one of `workers` workers on this machine.
    pub fn new(machine: &Machine, workers: usize) -> Self {
        Scratch {
            context: machine.context(machine.wiring.cascades || machine.wiring.has_stretches),
            identity: Identity::default(),
            keys: KeyScratch::new(machine.tables.len(), workers > 1),
            views: Vec::new(),
            scans: Vec::new(),
            pauses: machine.wiring.inputs.iter().map(|_| Pause::default()).collect(),
            boundaries: boundaries(&machine.program, &machine.wiring),
            noted: Vec::new(),
        }
    }
}
