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
    /// How each access is used by transactions that are split into parts where they can be.
    pub uses: UseBuffer,
    /// Which write needs what another access of its transaction reads.
    pub parameters: Vec<Parameter>,
    /// Of each access, the hash of the key of its row, by which PAT divides rows into partitions.
    pub key_hashes: Vec<u64>,
    /// Of each transaction, which of the program's transactions it is.
    pub transactions: Vec<TransactionId>,
}

impl EpochShape {
    /// The shape of an epoch of these events of the first source. Rows that they name are created, as in any epoch.
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
