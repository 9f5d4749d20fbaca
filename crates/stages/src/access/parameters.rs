//! Which write of a transaction needs what another of its accesses reads, for surveys (MorphStream §2.2, Definition 5).
//! Schedules do not look at it.
//!
//! A write needs the rows that its value and the conditions around it read, and those that a requirement reads: whether
//! it happens is up to these. Where an operation is performed for each element of a list by itself, the write of an element
//! needs the rows of that element; otherwise it needs those of all elements.

use crate::access::serial::Located;
use crate::epoch::Epoch;
use crate::machine::{InputContext, Machine};
use crate::wiring::{InputEvent, InputId};
use tidemill_plan::RoleId;
use tidemill_txn::Parameter;
use typed_index_collections::TiVec;

/// A dependency of a role's writes on the rows of another role, or on the other elements of the same one.
struct Need {
    read: RoleId,
    written: RoleId,
    /// A flag: whether each element needs only the row of the same element.
    by_element: bool,
}

/// The parameters of located transactions. Reused from survey to survey.
pub struct Parameters {
    needs: TiVec<InputId, Vec<Need>>,
    /// The slot of each row of the transaction at hand, if it has one, by role and element.
    slots: Vec<Option<u32>>,
    /// The first index of each role in `slots`, for the transaction at hand, and the end.
    start: Vec<usize>,
    found: Vec<Parameter>,
}

impl Parameters {
    /// Finds the needs of all transactions of a machine.
    pub fn new(machine: &Machine) -> Self {
        let needs = machine.wiring.inputs.keys().map(|id| needs_of(&machine.input(id)));
        Parameters { needs: needs.collect(), slots: Vec::new(), start: Vec::new(), found: Vec::new() }
    }

    /// Returns the parameters of the located transactions, in their order.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, located: &Located) -> &[Parameter] {
        self.found.clear();
        let mut next = 0;
        for &at in located.at() {
            next = self.place(machine, epoch, at, next);
            let Parameters { needs, slots, start, found } = self;
            let of = |role: RoleId| &slots[start[role]..start[role + 1]];
            for &Need { read, written, by_element } in &needs[at.input] {
                for (element, written) in of(written).iter().enumerate().filter_map(|(e, slot)| Some((e, (*slot)?))) {
                    let needed = if by_element { &of(read)[element..element + 1] } else { of(read) };
                    let needed = needed.iter().flatten().filter(|read| **read != written);
                    found.extend(needed.map(|&read| Parameter { read, written }));
                }
            }
        }
        assert_eq!(next as usize, located.accesses().rows().len(), "each slot is of a role");
        &self.found
    }

    /// Places the slots of a transaction, of which `first` is the first. Returns the one after the last.
    fn place(&mut self, machine: &Machine, epoch: &Epoch, at: InputEvent, first: u32) -> u32 {
        self.slots.clear();
        self.start.clear();
        let mut next = first;
        for (r, role) in machine.input(at.input).roles().iter().enumerate() {
            self.start.push(self.slots.len());
            let rows = epoch.work.inputs[at.input].rows_of(r, at.event as usize, role.over.is_some());
            for &row in rows {
                self.slots.push((row != 0).then_some(next));
                next += u32::from(row != 0);
            }
        }
        self.start.push(self.slots.len());
        next
    }
}

fn needs_of(InputContext { transaction, code, .. }: &InputContext<'_>) -> Vec<Need> {
    let operations = code.operations.as_ref().map_or(&[][..], |parts| &parts.operations[..]);
    let list_of = |role: RoleId| operations.iter().find(|o| o.roles.contains(&role)).and_then(|o| o.list);
    let over = |role: RoleId| transaction.roles[role].over;
    let mut needs = Vec::new();
    for (written, mut uses) in transaction.uses_of_writes() {
        let required = transaction.required_roles();
        needs.extend(required.iter().map(|&read| Need { read, written, by_element: false }));
        uses.retain(|read| !required.contains(read));
        let list = list_of(written).filter(|_| over(written).is_some());
        let by_element = |read: RoleId| list.is_some() && over(read) == list && over(written) == list;
        needs.extend(uses.into_iter().map(|read| Need { read, written, by_element: by_element(read) }));
    }
    needs
}
