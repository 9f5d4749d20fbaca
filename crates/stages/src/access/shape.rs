//! The operations of events as the scheduler sees them, without running any of them: for tools that inspect graphs.

use crate::access::grouping::Selection;
use crate::access::key_hashes;
use crate::access::parameters::Parameters;
use crate::access::serial::Located;
use crate::access::versions::Versions;
use crate::epoch::Epoch;
use crate::machine::{Machine, Scratch};
use crate::prepare::prepare;
use crate::wiring::InputEvent;
use arrow_array::RecordBatch;
use tidemill_plan::TransactionId;
use tidemill_txn::{AccessBuffer, Parameter, UseBuffer};

/// The accesses of an epoch's transactions, in position order.
#[derive(Clone, Debug, Default)]
pub struct EpochShape {
    /// The rows of each transaction.
    pub accesses: AccessBuffer,
    /// The use of each access, for transactions that are split into parts where they can be.
    pub uses: UseBuffer,
    /// The parameters: for each, a write, and the access of its transaction whose value it needs.
    pub parameters: Vec<Parameter>,
    /// The hash of each access's key, by access. PAT divides rows into partitions by it.
    pub key_hashes: Vec<u64>,
    /// The transaction of the program that each transaction of the epoch is an instance of.
    pub transactions: Vec<TransactionId>,
}

impl EpochShape {
    /// Returns the shape of an epoch of these events of the first source. Rows that they name are created, as in any
    /// epoch.
    pub fn of(machine: &Machine, events: &RecordBatch) -> EpochShape {
        assert!(!machine.wiring.cascades, "the rows of a program that cascades are not known beforehand");
        let mut epoch = Epoch::new(&machine.program, &machine.code, &machine.wiring);
        epoch.input.events = events.num_rows();
        epoch.input.sources[0].events = Some(events.clone());
        epoch.input.merge.push((0, events.num_rows() as u32));
        prepare(machine, &mut Scratch::new(machine, 1), &mut epoch);
        let (mut located, mut versions) = (Located::default(), Versions::new(machine));
        located.fill(machine, &epoch, &Selection::all(0..epoch.transactions()), usize::MAX);
        versions.fill(machine, &epoch, &located, true);
        let mut key_hashes = Vec::new();
        key_hashes::fill(machine, &epoch, &located, &mut key_hashes);
        let transaction = |at: &InputEvent| machine.wiring.inputs[at.input].transaction;
        EpochShape {
            parameters: Parameters::new(machine).fill(machine, &epoch, &located).to_vec(),
            key_hashes,
            transactions: located.at().iter().map(transaction).collect(),
            accesses: located.buffer().clone(),
            uses: versions.uses,
        }
    }
}
