//! The marks of the gate's splits, for those who watch a run.

use crate::gate::Gate;
use crate::gate::queue::Queue;
use crate::progress::SplitMarks;

/// The mark of a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitMark {
    /// Its source.
    pub source: usize,
    /// Its low mark: no event of it with a time below is punctual any more. None before it has shown a time, and without
    /// event time.
    pub low: Option<i64>,
    /// The greatest time that the split has shown.
    pub shown: Option<i64>,
    /// Events that have arrived and not passed.
    pub held: u64,
    /// A flag: whether the split has ended.
    pub ended: bool,
}

impl Gate {
    /// Returns the mark of each split.
    pub fn marks(&self) -> Vec<SplitMark> {
        let of = |(queue, of): (&Queue, &SplitMarks)| {
            let shown = of.shown().filter(|_| of.has_time());
            SplitMark {
                source: queue.place.source,
                low: shown.and(of.low()),
                shown,
                held: queue.held() as u64,
                ended: of.ended,
            }
        };
        self.queues.iter().zip(self.progress.iter()).map(of).collect()
    }
}
