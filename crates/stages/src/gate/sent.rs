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
    /// The events that stood when the run began, by place: those before, the source, their number.
    standing: Vec<(u64, usize, u64)>,
}

/// The place of consecutive events of a source among all sent events that the gate holds: the number of those before, and their own.
pub type SentPlace = (u64, u64);

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

    /// Returns the places of the events of a source; empty if all that are held are of it, or none.
    pub fn places(&self, source: usize) -> Vec<SentPlace> {
        let mut before = 0;
        let place = |&(of, count): &SourceRun| {
            let place = (before, u64::from(count));
            before += place.1;
            (of as usize == source).then_some(place)
        };
        let places: Vec<SentPlace> = self.runs.iter().filter_map(place).collect();
        if places.len() == self.runs.len() { Vec::new() } else { places }
    }

    /// Puts in the events of a source that were held before, at their places, and without these after all that have some.
    pub fn stand(&mut self, source: usize, places: &[SentPlace], held: usize) {
        assert!(self.standing.iter().all(|(_, of, _)| *of != source), "a source stands once");
        let last = [(u64::MAX, held as u64)];
        let places = if places.is_empty() { &last } else { places };
        assert_eq!(places.iter().map(|(_, count)| *count).sum::<u64>(), held as u64, "each event has its place");
        self.standing.extend(places.iter().map(|&(before, count)| (before, source, count)));
        self.standing.sort_unstable();
        (self.runs, self.held) = (VecDeque::new(), 0);
        for (_, source, count) in self.standing.clone() {
            self.push(source, count as usize);
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

    #[test]
    fn events_stand_in_their_order() {
        let mut order = SentOrder::default();
        for (source, count) in [(1, 2), (0, 3), (1, 1), (3, 2)] {
            order.push(source, count);
        }
        assert_eq!(order.places(2), []);
        let mut stands = SentOrder::default();
        for (source, held) in [(0, 3), (1, 3), (3, 2)] {
            stands.stand(source, &order.places(source), held);
        }
        assert_eq!(take(&mut stands, 9), (vec![(1, 2), (0, 3), (1, 1), (3, 2)], 0));
        stands.push(5, 4);
        assert_eq!(stands.places(5), [], "all are of it");
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
