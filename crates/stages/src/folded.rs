//! The events of an input that were folded while their epoch was prepared ([`fold`](crate::prepare::fold)), and where
//! folding pauses because it does not pay.

use tidemill_compile::Groups;
use tidemill_state::Table;

/// The events of an input that were folded in an epoch.
pub struct Folded {
    /// The groups of the folded events, with a row for each.
    pub groups: Groups,
    /// The number of folded events.
    pub events: usize,
    /// The number of aborted events among them, by reason.
    pub aborts: Vec<u64>,
}

impl Folded {
    /// Makes an empty set, for a transaction with this number of reasons to abort; `groups`: the table of their rows.
    pub fn new(reasons: usize, groups: &Table) -> Folded {
        Folded { groups: Groups::new(groups), events: 0, aborts: vec![0; reasons] }
    }

    /// Forgets the events. The worker that folds the next ones has the memory in its cache, and empties the rest.
    pub fn clear(&mut self) {
        self.events = 0;
    }

    /// Empties the memory, for the next events.
    pub fn begin(&mut self) {
        self.groups.clear();
        self.aborts.fill(0);
    }
}

/// Fewer events cost little either way.
const JUDGED: usize = 32;
/// The number of events per group from which folding pays.
const EVENTS_PER_GROUP: usize = 4;
/// The longest pause, epochs.
const PAUSE_MAX: u32 = 16;

/// The pause in which a worker does not fold the events of an input, because it did not pay: they are transactions as
/// others are. It is tried again after one epoch, and then after twice as many as before.
#[derive(Clone, Copy, Default)]
pub struct Pause {
    left: u32,
    length: u32,
}

impl Pause {
    /// Returns whether the next epoch is folded, and counts the pause down.
    pub fn folds(&mut self) -> bool {
        let folds = self.left == 0;
        self.left = self.left.saturating_sub(1);
        folds
    }

    /// Notes how many groups the events of an epoch had that was folded.
    pub fn judge(&mut self, events: usize, groups: usize) {
        let pays = events < JUDGED || events >= EVENTS_PER_GROUP * groups;
        self.length = if pays { 0 } else { (2 * self.length).clamp(1, PAUSE_MAX) };
        self.left = self.length;
    }
}

#[cfg(test)]
mod tests {
    use super::Pause;

    #[test]
    fn pauses_become_longer_until_folding_pays() {
        let mut pause = Pause::default();
        let mut paused_for = |events, groups| {
            assert!(pause.folds(), "a pause is over");
            pause.judge(events, groups);
            (0..100).take_while(|_| !pause.folds()).count()
        };
        let pauses: Vec<usize> = (0..7).map(|_| paused_for(399, 100)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(paused_for(400, 100), 0);
        assert_eq!(paused_for(31, 31), 0);
        assert_eq!(paused_for(399, 100), 1);
    }
}
