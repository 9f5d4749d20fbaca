//! The operations of events as scheduling sees them, without running any: for tools that look at graphs.

use crate::access::grouping::GroupSet;
use crate::access::serial::Located;
use crate::access::versions::Versions;
use crate::epoch::Epoch;
use crate::machine::{Machine, Scratch};
use crate::prepare::prepare;
use arrow_array::RecordBatch;
use tidemill_plan::TransactionId;
use tidemill_txn::{AccessBuffer, UseBuffer};

/// What an epoch's transactions access, in position order.
#[derive(Clone, Debug, Default)]
pub struct EpochShape {
    /// The rows of each.
    pub accesses: AccessBuffer,
    /// What accesses are to transactions that are taken apart where they can be.
    pub uses: UseBuffer,
    /// Which of the program's transactions each is.
    pub transactions: Vec<TransactionId>,
}

impl EpochShape {
    /// Of an epoch of these events of the first source. Rows that they name are made, as in any epoch.
    pub fn of(machine: &Machine, events: &RecordBatch) -> EpochShape {
        assert!(!machine.wiring.cascades, "the rows of a program that cascades are not known beforehand");
        let mut epoch = Epoch::new(&machine.program, &machine.code, &machine.wiring);
        epoch.events = events.num_rows();
        epoch.sources[0].events = Some(events.clone());
        epoch.merge.push((0, events.num_rows() as u32));
        prepare(machine, &mut Scratch::new(machine, 1), &mut epoch);
        let (mut located, mut versions) = (Located::default(), Versions::new(machine));
        located.fill(machine, &epoch, &(0..epoch.transactions()), (GroupSet::ALL, usize::MAX));
        versions.fill(machine, &epoch, &located, true);
        let transaction = |&(input, _): &(u32, u32)| machine.wiring.inputs[input as usize].transaction;
        EpochShape {
            transactions: located.at().iter().map(transaction).collect(),
            accesses: located.buffer().clone(),
            uses: versions.uses,
        }
    }
}
