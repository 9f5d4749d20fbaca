//! The events of an input that were folded while their epoch was prepared ([`fold`](crate::prepare::fold)).

use tidemill_compile::Groups;
use tidemill_state::Table;

/// The events of an input that were folded in an epoch.
pub struct Folded {
    /// Their groups, with a row for each.
    pub groups: Groups,
    /// How many there are.
    pub events: usize,
    /// By reason: how many of them aborted.
    pub aborts: Vec<u64>,
    /// Stands for the row that counts groups. From there on numbers are not looked at.
    pub counter: Vec<u64>,
}

impl Folded {
    /// None, of a transaction with so many reasons to abort; `groups`: the table of their rows, `counts`: that of the
    /// row that counts them, if one does.
    pub fn new(reasons: usize, groups: &Table, counts: Option<&Table>) -> Folded {
        Folded {
            groups: Groups::new(groups),
            events: 0,
            aborts: vec![0; reasons],
            counter: vec![0; counts.map_or(0, |table| table.layout().size() / 8)],
        }
    }

    /// Forgets the events. The worker that folds the next ones has the memory in its cache, and empties the rest.
    pub fn clear(&mut self) {
        self.events = 0;
    }

    /// Empties it for the next events.
    pub fn begin(&mut self) {
        self.groups.clear();
        self.aborts.fill(0);
        self.counter.fill(0);
    }
}
