//! Chooses how what is due runs: within the epochs of events, which it divides into stretches, or in epochs of its own.
//!
//! A boundary that has an epoch of its own costs two changes between threads, some tens of microseconds; but epochs without
//! stretches run under any policy, and their events can be folded. So what is due runs within epochs where fewer than some
//! thousand events lie between two boundaries. No result can tell.

/// Fewer events than this between two boundaries: what is due divides epochs.
const DENSE: u64 = 1024;
/// More events than this between two boundaries: it has epochs of its own again.
const SPARSE: u64 = 4 * DENSE;
/// The number of boundaries, of those that have epochs of their own, from which this is judged.
const BOUNDARIES_JUDGED: u64 = 4;
/// The number of epochs with events that are divided, from which this is judged.
const EPOCHS_JUDGED: u64 = 8;

/// The choice.
pub struct Dividing {
    rule: Rule,
    /// A flag: whether what is due divides epochs now.
    divides: bool,
    /// Events that have passed since the choice was judged last.
    events: u64,
    /// Epochs with events since then.
    epochs: u64,
    /// Boundaries with epochs of their own since then.
    boundaries: u64,
    /// Boundaries within epochs before that.
    within_before: u64,
}

/// The rule by which it is chosen how what is due runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Epochs of its own, always.
    Never,
    /// Stretches, always.
    Always,
    /// The one or the other, by the number of events between two boundaries.
    ByDensity,
}

impl Dividing {
    /// Makes the choice before the first epoch.
    pub fn new(rule: Rule) -> Dividing {
        let divides = rule == Rule::Always;
        Dividing { rule, divides, events: 0, epochs: 0, boundaries: 0, within_before: 0 }
    }

    /// Notes an epoch with this number of events.
    pub fn passes(&mut self, events: usize) {
        self.events += events as u64;
        self.epochs += u64::from(events > 0);
    }

    /// Notes a boundary that has epochs of its own.
    pub fn passes_boundary(&mut self) {
        self.boundaries += 1;
    }

    /// Returns whether what is due divides epochs from now on. `within`: the number of boundaries within epochs so far.
    pub fn divides(&mut self, within: u64) -> bool {
        assert!(within >= self.within_before, "boundaries within epochs are only added");
        let is_judged = self.rule == Rule::ByDensity
            && if self.divides { self.epochs >= EPOCHS_JUDGED } else { self.boundaries >= BOUNDARIES_JUDGED };
        if is_judged {
            self.divides = match self.divides {
                true => self.events < SPARSE * (within - self.within_before),
                false => self.events < DENSE * self.boundaries,
            };
            (self.events, self.epochs, self.boundaries, self.within_before) = (0, 0, 0, within);
        }
        self.divides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_divided_while_boundaries_are_dense() {
        let mut dividing = Dividing::new(Rule::ByDensity);
        let mut within = 0;
        let mut run = |epochs: usize, events: usize, boundaries: u64| -> Vec<bool> {
            let mut epoch = || {
                let divides = dividing.divides(within);
                dividing.passes(events);
                match divides {
                    true => within += boundaries,
                    false => (0..boundaries).for_each(|_| dividing.passes_boundary()),
                }
                divides
            };
            (0..epochs).map(|_| epoch()).collect()
        };
        assert_eq!(run(6, 1023, 1), [false, false, false, false, true, true]);
        assert_eq!(run(20, 2000, 1), [true; 20]);
        // Some epochs may be of the last judgement.
        assert!(run(20, 10_000, 1)[15..].iter().all(|divides| !divides));
        assert_eq!(run(20, 1025, 1), [false; 20]);
    }

    #[test]
    fn some_programs_leave_no_choice() {
        for (rule, always) in [(Rule::Never, false), (Rule::Always, true)] {
            let mut dividing = Dividing::new(rule);
            for _ in 0..20 {
                assert_eq!(dividing.divides(0), always);
                dividing.passes(1_000_000);
                dividing.passes_boundary();
            }
        }
    }
}
