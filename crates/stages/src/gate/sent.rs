//! The order of events that were sent without an event time.
//!
//! Such an event has an *anchored* position: it stands after everything that has passed when its turn comes, with its
//! whole cascade (`docs/formalism.md`, "Anchored positions"). So the gate never waits for it, and never makes it wait:
//! in each epoch the sent events follow the others, in the order in which they were sent. The log has that order.

use std::collections::VecDeque;

/// A number of consecutive events of a source.
pub type SourceRun = (u32, u32);

/// The sent events that the gate holds, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct SentOrder {
    runs: VecDeque<SourceRun>,
    held: usize,
}

impl SentOrder {
    /// Adds events of a source after the others.
    pub fn push(&mut self, source: usize, count: usize) {
        self.held += count;
        match self.runs.back_mut() {
            Some((last, run)) if *last as usize == source => *run += count as u32,
            _ if count == 0 => {}
            _ => self.runs.push_back((source as u32, count as u32)),
        }
    }

    /// Returns the number of events.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes the first events, at most `most`.
    pub fn take(&mut self, most: usize) -> Vec<SourceRun> {
        let mut taken = Vec::new();
        let mut left = most;
        while let Some((source, run)) = self.runs.front_mut().filter(|_| left > 0) {
            let count = left.min(*run as usize);
            taken.push((*source, count as u32));
            left -= count;
            *run -= count as u32;
            if *run == 0 {
                self.runs.pop_front();
            }
        }
        self.held -= most - left;
        taken
    }

    /// Removes the first events of one source, wherever they stand.
    pub fn remove(&mut self, source: usize, count: usize) {
        let mut left = count as u32;
        for (_, run) in self.runs.iter_mut().filter(|(of, _)| *of as usize == source) {
            let taken = left.min(*run);
            *run -= taken;
            left -= taken;
        }
        assert_eq!(left, 0, "events that are removed were sent");
        self.held -= count;
        self.runs.retain(|(_, run)| *run > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_in_the_order_in_which_they_were_sent() {
        let mut order = SentOrder::default();
        for (source, count) in [(1, 2), (0, 3), (0, 1), (2, 0), (1, 1)] {
            order.push(source, count);
        }
        assert_eq!(order.held(), 7);
        assert_eq!(order.take(3), [(1, 2), (0, 1)]);
        order.remove(0, 2);
        assert_eq!(order.take(9), [(0, 1), (1, 1)]);
        assert_eq!((order.held(), order.take(1)), (0, vec![]));
    }
}
