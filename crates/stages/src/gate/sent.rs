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

    /// Returns the first events, at most `most`.
    pub fn first(&self, most: usize) -> Vec<SourceRun> {
        let (mut first, mut left) = (Vec::new(), most as u32);
        for &(source, run) in &self.runs {
            if left == 0 {
                break;
            }
            let count = left.min(run);
            first.push((source, count));
            left -= count;
        }
        first
    }

    /// Removes events that pass, in their order: the first ones, or as an earlier run had them.
    pub fn pass(&mut self, runs: &[SourceRun]) {
        for &(source, count) in runs {
            match self.runs.front_mut() {
                Some((first, run)) if *first == source && *run >= count => {
                    *run -= count;
                    self.held -= count as usize;
                    self.runs.pop_front_if(|(_, run)| *run == 0);
                }
                _ => self.remove(source as usize, count as usize),
            }
        }
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

    fn take(order: &mut SentOrder, most: usize) -> (Vec<SourceRun>, usize) {
        let first = order.first(most);
        order.pass(&first);
        (first, order.held())
    }

    #[test]
    fn events_are_taken_in_the_order_in_which_they_were_sent() {
        let mut order = SentOrder::default();
        for (source, count) in [(1, 2), (0, 3), (0, 1), (2, 0), (1, 1)] {
            order.push(source, count);
        }
        assert_eq!(order.held(), 7);
        assert_eq!(take(&mut order, 3), (vec![(1, 2), (0, 1)], 4));
        order.remove(0, 2);
        assert_eq!(take(&mut order, 9), (vec![(0, 1), (1, 1)], 0));
        assert_eq!(take(&mut order, 1), (vec![], 0));
    }

    /// A replay takes them as they passed, not as they were sent.
    #[test]
    fn events_pass_in_another_order_than_that_in_which_they_were_sent() {
        let mut order = SentOrder::default();
        for (source, count) in [(0, 2), (1, 2), (0, 2)] {
            order.push(source, count);
        }
        order.pass(&[(1, 1), (0, 3)]);
        assert_eq!(take(&mut order, 9), (vec![(1, 1), (0, 1)], 0));
    }
}
