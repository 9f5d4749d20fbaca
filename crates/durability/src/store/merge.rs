//! The choice of the runs to merge, and the merge of their rows into one order.

use super::block::Opened;
use super::read::{OpenRun, RunPart};
use super::{RunWriter, Runs, StoredRun};
use crate::error::StateError;
use crate::nodes::NodeRange;
use crate::planted::Bug;
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::{Image, RowShape};

/// A run is merged with the newer ones if it has at most this many times their rows.
pub const FACTOR: u64 = 3;
/// The number of runs that may exist without a merge: a merge costs a file and a manifest.
const RUNS_FREE: usize = 3;

/// Returns the first of the runs to merge with all newer ones; none if there are few enough. Each run that is left has
/// more than `FACTOR` times the rows of all newer ones together, so the number of runs is logarithmic.
pub fn due(runs: &[StoredRun]) -> Option<usize> {
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

/// The rows of some runs in the order of their hashes; of each key, the newest row.
pub struct Merge {
    /// Cursors with rows left, newest run first.
    cursors: Vec<Cursor>,
    /// The hash of each cursor's next row, by cursor.
    heads: Vec<u64>,
    /// Rows of one hash.
    group: Image,
}

impl Merge {
    /// Makes a merge of runs, within some virtual nodes.
    pub fn new(runs: &Runs, part: &RunPart) -> Result<Merge, StateError> {
        let part = NodeRange::new(part.clone()).expect("a part has nodes");
        let mut merge = Merge { cursors: Vec::new(), heads: Vec::new(), group: Image::new(&runs.shape) };
        for run in runs.runs.iter().rev() {
            let Some(nodes) = run.run().nodes.and(part) else { continue };
            let (from, to) = nodes.hashes();
            let mut cursor = Cursor::new(run, runs, from..=to);
            if let Some(head) = cursor.next()? {
                merge.cursors.push(cursor);
                merge.heads.push(head);
            }
        }
        Ok(merge)
    }

    /// Passes the next rows, those of one hash, to `each`, as positions in images; returns false if there are no
    /// more.
    pub fn step(
        &mut self,
        mut each: impl FnMut(&Image, usize, u64) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let Some(&least) = self.heads.iter().min() else { return Ok(false) };
        let mut having = self.heads.iter().enumerate().filter(|(_, head)| **head == least);
        let (first, _) = having.next().expect("the least is there");
        if having.next().is_none() {
            // No other run has this key.
            each(&self.cursors[first].rows, self.cursors[first].row, least)?;
            self.advance(first)?;
            return Ok(true);
        }
        self.group.clear();
        let mut cursor = first;
        while cursor < self.heads.len() {
            if self.heads[cursor] != least {
                cursor += 1;
                continue;
            }
            let (rows, row) = (&self.cursors[cursor].rows, self.cursors[cursor].row);
            if !(0..self.group.len()).any(|newer| rows.same_key(row, &self.group, newer)) {
                self.group.push_of(rows, row);
            }
            // A cursor without more rows is removed, and the next one takes its place.
            self.advance(cursor)?;
        }
        (0..self.group.len()).try_for_each(|row| each(&self.group, row, least))?;
        Ok(true)
    }

    fn advance(&mut self, cursor: usize) -> Result<(), StateError> {
        match self.cursors[cursor].next()? {
            Some(head) => self.heads[cursor] = head,
            None => {
                self.cursors.remove(cursor);
                self.heads.remove(cursor);
            }
        }
        Ok(())
    }
}

/// A merge of runs into one, step by step.
pub struct Merging {
    merge: Merge,
    into: RunWriter,
    /// A flag: whether deletions are left out.
    all: bool,
}

impl Merging {
    /// Begins to merge several runs into one run. If they are `all` runs of the table, deletions are left out, because
    /// there is no older row for them to delete.
    pub fn new(runs: &Runs, into: RunWriter, all: bool) -> Result<Merging, StateError> {
        let all = all || into.planted().is(Bug::MergeDropsDeletions);
        let mut runs = runs.clone();
        if into.planted().is(Bug::MergeTurnsOrder) {
            runs.runs.reverse();
        }
        let merge = Merge::new(&runs, &(0..VIRTUAL_NODE_COUNT))?;
        Ok(Merging { merge, into, all })
    }

    /// Continues with about this many rows; returns whether there are more.
    pub fn step(&mut self, rows_max: usize) -> Result<bool, StateError> {
        let Merging { merge, into, all } = self;
        let mut rows = 0;
        while rows < rows_max {
            let more = merge.step(|image, row, hash| {
                rows += 1;
                if *all && !image.exists(row) { Ok(()) } else { into.push_row(image, row, hash) }
            })?;
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the run that it has written, when there are no more rows.
    pub fn end(self) -> RunWriter {
        self.into
    }
}

/// The position of a merge in one run.
struct Cursor {
    run: Arc<OpenRun>,
    shape: Arc<RowShape>,
    /// The data's name, for messages.
    what: Arc<str>,
    hashes: std::ops::RangeInclusive<u64>,
    /// Blocks that were not read yet.
    blocks: Range<usize>,
    opened: Opened,
    buffer: Vec<u8>,
    /// The rows of the block that was read last, and the number of the current one.
    rows: Image,
    row: usize,
}

impl Cursor {
    fn new(run: &Arc<OpenRun>, runs: &Runs, hashes: std::ops::RangeInclusive<u64>) -> Cursor {
        let blocks = run.index.blocks_of(*hashes.start(), *hashes.end());
        let (opened, buffer, rows) = (Opened::default(), Vec::new(), Image::new(&runs.shape));
        let (run, shape, what) = (run.clone(), runs.shape.clone(), runs.what.clone());
        Cursor { run, shape, what, hashes, blocks, opened, buffer, rows, row: usize::MAX }
    }

    /// Moves to the next row; returns its hash.
    fn next(&mut self) -> Result<Option<u64>, StateError> {
        loop {
            self.row = self.row.wrapping_add(1);
            if self.row < self.rows.len() {
                let hash = self.rows.hash(self.row);
                if hash > *self.hashes.end() {
                    return Ok(None);
                }
                if hash >= *self.hashes.start() {
                    return Ok(Some(hash));
                }
                continue;
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            let (what, shape) = (&*self.what, &*self.shape);
            let bytes = self.run.block(block, what, shape, &mut self.opened, &mut self.buffer)?;
            self.rows.clear();
            (0..self.opened.len()).for_each(|row| self.opened.add(bytes, row, &self.shape, &mut self.rows));
            self.row = usize::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_nothing_is_merged_at_last() {
        let run = |rows: u64| StoredRun { rows, ..StoredRun::default() };
        assert_eq!(due(&[run(100), run(0), run(0)]), None);
        assert_eq!(due(&[run(100), run(0), run(0), run(0)]), Some(1));
    }

    #[test]
    fn the_number_of_runs_is_logarithmic() {
        let run = |rows: u64| StoredRun { rows, ..StoredRun::default() };
        let (mut runs, mut written) = (vec![run(1_000_000)], 0);
        for _ in 0..1_000 {
            runs.push(run(1_000));
            if let Some(first) = due(&runs) {
                // The worst case: no key comes twice.
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
