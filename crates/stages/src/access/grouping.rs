//! The group of each transaction of an epoch ([`tidemill_plan::Groups`]), and how the groups were scheduled.
//!
//! Groups by tables follow from the input alone. Declared groups follow from the value of a key column, which is read
//! from any row that the transaction touches: all of its rows have the same value, and keys never change.

use crate::input::Input;
use crate::machine::Machine;
use crate::wiring::{InputEvent, InputId};
use std::ops::Range;
use tidemill_plan::GroupOf;
use tidemill_schedule::{Choice, Reason};
use typed_index_collections::{TiSlice, TiVec};

/// A set of groups, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSet(u8);

const _: () = assert!(tidemill_plan::GROUPS_MAX <= u8::BITS as usize, "a set of groups has a bit for each");

impl GroupSet {
    /// Every group.
    pub const ALL: GroupSet = GroupSet(u8::MAX);

    /// Returns the set of these groups.
    pub fn of(groups: impl Iterator<Item = usize>) -> Self {
        GroupSet(groups.fold(0, |set, group| set | 1 << group))
    }

    /// Returns whether the set contains a group.
    #[inline]
    pub fn has(self, group: usize) -> bool {
        self.0 >> group & 1 == 1
    }
}

/// The transactions of some groups in a range of an epoch's order.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The range.
    pub range: Range<usize>,
    /// The groups.
    pub groups: GroupSet,
}

impl Selection {
    /// Returns all transactions in a range.
    pub fn all(range: Range<usize>) -> Self {
        Selection { range, groups: GroupSet::ALL }
    }

    /// Returns whether these are all transactions of an epoch that has this number.
    pub fn is_all(&self, transactions: usize) -> bool {
        self.groups == GroupSet::ALL && self.range == (0..transactions)
    }
}

/// The policy under which the transactions of a group were scheduled, and the measured cost. If the program has one
/// group, or one policy was requested, this covers the whole epoch.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled {
    /// The group; none for all groups.
    pub group: Option<usize>,
    /// Its policy, and the reason for it.
    pub choice: Choice,
    /// Transactions that were scheduled by the policy, excluding the sampling prefix, which is run first to measure
    /// cost.
    pub transactions: u32,
    /// Number of re-executions because of aborts.
    pub redone: u32,
    /// Time of access, nanoseconds. If the group was run by itself, serially by one worker or in parallel by all, this
    /// is its own time; otherwise its share, in proportion to the cost of its transactions.
    pub access: u64,
    /// The part of it that was spent in transactions, summed over all workers.
    pub useful: u64,
}

impl Scheduled {
    /// Makes a group that is to be run by this choice; nothing is measured yet.
    pub fn new(group: Option<usize>, choice: Choice, transactions: u32) -> Self {
        Scheduled { group, choice, transactions, redone: 0, access: 0, useful: 0 }
    }
}

impl Default for Scheduled {
    fn default() -> Self {
        Scheduled::new(None, Choice::serially(Reason::Unmeasured), 0)
    }
}

/// The groups of an epoch's transactions. Reused from epoch to epoch.
#[derive(Default)]
pub struct Grouping {
    /// The group of each event of an input, by input; empty if the group does not depend on the event.
    by_event: TiVec<InputId, Vec<u8>>,
    /// The group of all events of an input, by input, if it does not depend on the event.
    by_input: TiVec<InputId, usize>,
}

impl Grouping {
    /// Computes the groups of an epoch's transactions.
    pub fn fill(&mut self, machine: &Machine, inputs: &TiSlice<InputId, Input>) {
        self.by_event.resize_with(inputs.len(), Vec::new);
        self.by_input.resize(inputs.len(), 0);
        for (id, input) in inputs.iter_enumerated() {
            self.by_event[id].clear();
            match machine.groups.of[machine.wiring.inputs[id].transaction] {
                GroupOf::All(group) => self.by_input[id] = group,
                GroupOf::ByKey { first, count } => {
                    let group = |i| first + key_of(machine, id, input, i).rem_euclid(count as i64) as usize;
                    self.by_event[id].extend((0..input.len).map(|i| group(i) as u8));
                }
            }
        }
    }

    /// Returns the group of an input's event.
    #[inline]
    pub fn of(&self, InputEvent { input, event }: InputEvent) -> usize {
        self.by_event[input].get(event as usize).map_or(self.by_input[input], |&group| usize::from(group))
    }
}

/// Returns the value in the column that groups keys, read from any row that an event touches; 0 if it touches none.
fn key_of(machine: &Machine, id: InputId, input: &Input, i: usize) -> i64 {
    for (r, role) in machine.input(id).roles().iter().enumerate() {
        let row = input.rows_of(r, i, role.over.is_some()).iter().copied().find(|&row| row != 0);
        if let (Some(row), Some(groups)) = (row, machine.program.tables[role.table].groups) {
            let cell = machine.tables[role.table].layout().cell(groups.column) / 8;
            #[allow(unsafe_code)]
            // SAFETY: prepare found this row of the table; its key cells are never written again.
            return unsafe { (row as *const i64).add(cell).read() };
        }
    }
    0
}

/// Returns how many of the `count` transactions that begin at `at` precede the range, and how many are in it.
pub fn within(range: &Range<usize>, at: usize, count: usize) -> (usize, usize) {
    let skipped = range.start.saturating_sub(at).min(count);
    (skipped, (count - skipped).min(range.end.saturating_sub(at + skipped)))
}
