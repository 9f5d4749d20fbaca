//! Which runs are merged, and merging them.

use super::{Run, RunWriter, Runs};
use crate::error::StateError;
use crate::planted::{Bug, Planted};

/// A run is merged with those behind it when it has at most so many times their rows.
const FACTOR: u64 = 3;
/// As many runs may be there without a merge: a merge costs a file and a manifest.
const RUNS_FREE: usize = 3;

/// The first of the runs that are to become one with all behind it; none where there are few enough. Each run
/// that is left has more than `FACTOR` times the rows of all behind it, so their number is logarithmic.
pub fn due(runs: &[Run]) -> Option<usize> {
    if runs.len() <= RUNS_FREE {
        return None;
    }
    let mut behind = runs.last()?.rows;
    let mut first = runs.len() - 1;
    for (r, run) in runs.iter().enumerate().rev().skip(1) {
        if run.rows <= FACTOR * behind {
            first = r;
        }
        behind += run.rows;
    }
    (first + 1 < runs.len()).then_some(first)
}

impl Runs {
    /// Writes these runs as one. Where they are `all` of the table, deletions are left out: there is nothing
    /// that they would delete. `worked` is told of so many rows now and then.
    pub fn merge(
        &self,
        mut into: RunWriter,
        all: bool,
        planted: Planted,
        worked: &mut dyn FnMut(usize),
    ) -> Result<Run, StateError> {
        for part in self.merge_parts() {
            let rows = self.read(&part)?;
            worked(rows.len());
            let rows = if all || planted.is(Bug::MergeDropsDeletions) { rows.existing() } else { rows };
            into.push(&rows)?;
            worked(rows.len());
        }
        into.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_nothing_is_merged_at_last() {
        let run = |rows: u64| Run { rows, ..Run::default() };
        assert_eq!(due(&[run(100), run(0), run(0)]), None);
        assert_eq!(due(&[run(100), run(0), run(0), run(0)]), Some(1));
    }

    #[test]
    fn the_number_of_runs_is_logarithmic() {
        let run = |rows: u64| Run { rows, ..Run::default() };
        let (mut runs, mut written) = (vec![run(1_000_000)], 0);
        for _ in 0..1_000 {
            runs.push(run(1_000));
            if let Some(first) = due(&runs) {
                // At the worst no key comes twice.
                let rows = runs.drain(first..).map(|run| run.rows).sum();
                written += rows;
                runs.push(run(rows));
            }
            assert!(runs.len() <= 8, "{} runs", runs.len());
        }
        assert!(written < 20 * 1_000_000, "{written} rows were written again for a million");
        assert_eq!(due(&[]), None);
    }
}
