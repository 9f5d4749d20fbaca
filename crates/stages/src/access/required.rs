//! Which operations the requirements of their transactions read, for surveys (MorphStream §2.2, Definition 5). Schedules do
//! not look at it.

use crate::access::serial::Located;
use crate::epoch::Epoch;
use crate::machine::Machine;
use crate::wiring::InputId;
use std::collections::BTreeSet;
use tidemill_plan::RoleId;
use typed_index_collections::TiVec;

/// Reused from survey to survey.
pub struct Required {
    /// By input: the roles whose rows requirements read.
    roles: TiVec<InputId, BTreeSet<RoleId>>,
    /// By slot.
    slots: Vec<bool>,
}

impl Required {
    /// Of the transactions of a machine.
    pub fn new(machine: &Machine) -> Self {
        let roles = machine.wiring.inputs.keys().map(|id| machine.input(id).transaction.required_roles());
        Required { roles: roles.collect(), slots: Vec::new() }
    }

    /// By slot of the located transactions, whether a requirement reads its row.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, located: &Located) -> &[bool] {
        let Required { roles, slots } = self;
        slots.clear();
        for at in located.at() {
            for (r, role) in machine.input(at.input).roles().iter().enumerate() {
                let rows = epoch.work.inputs[at.input].rows_of(r, at.event as usize, role.over.is_some());
                let there = rows.iter().filter(|&&row| row != 0).count();
                slots.resize(slots.len() + there, roles[at.input].contains(&r));
            }
        }
        assert_eq!(slots.len(), located.accesses().rows().len(), "each slot is required or not");
        slots
    }
}
