//! Which group each transaction of an epoch is in ([`tidemill_plan::Groups`]), and how the groups were scheduled.
//!
//! Groups by tables follow from the input alone; declared ones from the value of a key column, which is read from any
//! row that the transaction touches: all of its rows have the same, and keys never change.

use crate::input::Input;
use crate::machine::Machine;
use std::ops::Range;
use tidemill_plan::GroupOf;
use tidemill_schedule::{Choice, Policy, Reason};

/// A set of groups: a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSet(u8);

const _: () = assert!(tidemill_plan::GROUPS_MAX <= u8::BITS as usize, "a set of groups has a bit for each");

impl GroupSet {
    /// Every group.
    pub const ALL: GroupSet = GroupSet(u8::MAX);

    /// These.
    pub fn of(groups: impl Iterator<Item = usize>) -> Self {
        GroupSet(groups.fold(0, |set, group| set | 1 << group))
    }

    /// Whether one is among them.
    #[inline]
    pub fn has(self, group: usize) -> bool {
        self.0 >> group & 1 == 1
    }
}

/// How the transactions of a group were scheduled, and what it took. Where a program has one group, or one policy was
/// asked for, that is the whole epoch.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled {
    /// Which; none for all of them.
    pub group: Option<usize>,
    /// Its policy, and why.
    pub choice: Choice,
    /// Transactions that were decided about: but for those that were run first to know what they cost.
    pub transactions: u32,
    /// How often one was run again because of an abort.
    pub redone: u32,
    /// Time of access: of its own where it was run by itself, serially by one worker or in parallel by all; otherwise
    /// its share, by what its transactions cost. Nanoseconds.
    pub access: u64,
    /// Of it, time in transactions, of all workers together.
    pub useful: u64,
}

impl Scheduled {
    /// To be run so.
    pub fn new(group: Option<usize>, choice: Choice, transactions: u32) -> Self {
        Scheduled { group, choice, transactions, redone: 0, access: 0, useful: 0 }
    }
}

impl Default for Scheduled {
    fn default() -> Self {
        Scheduled::new(None, Choice::given(Policy::EPOCH, Reason::Unmeasured), 0)
    }
}

/// The groups of an epoch's transactions. Reused from epoch to epoch.
#[derive(Default)]
pub struct Grouping {
    /// By input: the group of each event, where it depends on the event.
    by_event: Vec<Vec<u8>>,
    /// By input: where it does not.
    by_input: Vec<usize>,
}

impl Grouping {
    /// Takes in an epoch.
    pub fn fill(&mut self, machine: &Machine, inputs: &[Input]) {
        self.by_event.resize_with(inputs.len(), Vec::new);
        self.by_input.resize(inputs.len(), 0);
        for (id, input) in inputs.iter().enumerate() {
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

    /// The group of an input's event.
    #[inline]
    pub fn of(&self, input: usize, i: usize) -> usize {
        self.by_event[input].get(i).map_or(self.by_input[input], |&group| usize::from(group))
    }
}

/// The value in the column that groups keys, of any row that an event touches; 0 where it touches none.
fn key_of(machine: &Machine, id: usize, input: &Input, i: usize) -> i64 {
    let roles = &machine.program.transactions[machine.wiring.inputs[id].transaction].roles;
    for (r, role) in roles.iter().enumerate() {
        let row = input.rows_of(r, i, role.over.is_some()).iter().copied().find(|&row| row != 0);
        if let (Some(row), Some(groups)) = (row, machine.program.tables[role.table].groups) {
            let cell = machine.tables[role.table].layout().cell(groups.column) / 8;
            #[allow(unsafe_code)]
            // SAFETY: a row of the table, found by prepare; its key cells are never written again.
            return unsafe { (row as *const i64).add(cell).read() };
        }
    }
    0
}

/// Of a run of so many transactions that begins at `at`: how many come before a range, and how many are in it.
pub fn within(range: &Range<usize>, at: usize, count: usize) -> (usize, usize) {
    let skipped = range.start.saturating_sub(at).min(count);
    (skipped, (count - skipped).min(range.end.saturating_sub(at + skipped)))
}
