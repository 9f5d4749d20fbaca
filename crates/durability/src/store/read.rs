//! Open runs, and reading all their rows, in parts.

use super::block::Opened;
use super::filter::Filter;
use super::index::Index;
use super::merge::{FACTOR, Merge, Merging};
use super::{RunWriter, StoredRun};
use crate::blocks::{BlockFile, BlockReader};
use crate::error::StateError;
use crate::nodes::NodeRange;
use crate::planted::{Bug, Planted};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::{Image, RowShape};

/// Rows of a part: enough that filling a table with them pays, few enough that all processors get some.
const PART_ROWS: u64 = 1 << 18;

/// A run open for reading.
pub struct OpenRun {
    run: StoredRun,
    pub(super) index: Index,
    pub(super) file: BlockFile,
    /// A flag: whether the run survives a crash.
    is_durable: AtomicBool,
}

impl OpenRun {
    pub(super) fn new(run: StoredRun, index: Index, file: BlockFile) -> OpenRun {
        OpenRun { run, index, file, is_durable: AtomicBool::new(false) }
    }

    fn open(files: &BlockReader, run: &StoredRun, what: &str) -> Result<OpenRun, StateError> {
        let file = files.open(run.index.file, what)?;
        let bytes = file.read(&run.index, what)?;
        let index = Index::read(&bytes);
        let index = index.ok_or_else(|| file.malformed(run.index.offset, what, "an index does not read"))?;
        let opened = OpenRun::new(run.clone(), index, file);
        opened.is_durable.store(true, Ordering::Relaxed);
        Ok(opened)
    }

    /// Returns the run in the form in which a manifest names it.
    pub fn run(&self) -> &StoredRun {
        &self.run
    }

    /// Makes the run's file durable.
    pub fn sync(&self, planted: Planted) -> Result<(), StateError> {
        if !self.is_durable.load(Ordering::Acquire) && !planted.is(Bug::CheckpointUnsynced) {
            self.file.sync()?;
            self.is_durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the content of a block.
    pub(super) fn block<'a>(
        &'a self,
        block: usize,
        what: &str,
        shape: &RowShape,
        opened: &mut Opened,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], StateError> {
        let place = self.index.place(block);
        let offset = place.start;
        let bytes = self.file.sealed(place, what, buffer)?;
        opened.open(bytes, shape).map_err(|error| self.file.malformed(offset, what, error.0))?;
        Ok(bytes)
    }
}

/// The open runs of a table. Any thread may read them.
#[derive(Clone)]
pub struct Runs {
    /// Oldest first.
    pub(super) runs: Vec<Arc<OpenRun>>,
    pub(super) shape: Arc<RowShape>,
    /// The data's name, for messages.
    pub(super) what: Arc<str>,
}

/// Some virtual nodes.
pub type RunPart = Range<usize>;

impl Runs {
    /// Opens runs, oldest first, of rows of this shape; `what` names them, for messages. All files are then open, and may be
    /// removed.
    pub fn open(
        files: &BlockReader,
        runs: &[StoredRun],
        shape: &Arc<RowShape>,
        what: &str,
    ) -> Result<Runs, StateError> {
        let runs = runs.iter().map(|run| OpenRun::open(files, run, what).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Runs { runs, shape: shape.clone(), what: what.into() })
    }

    /// Returns the runs with those at `place` replaced by one run, or by none.
    pub fn with(&self, place: Range<usize>, run: Option<OpenRun>) -> Runs {
        let mut with = self.clone();
        with.runs.splice(place, run.map(Arc::new));
        with
    }

    /// Returns the runs with the numbers of this range only.
    pub fn only(&self, place: Range<usize>) -> Runs {
        Runs { runs: self.runs[place].to_vec(), ..self.clone() }
    }

    /// Each of them, oldest first.
    pub fn each(&self) -> impl Iterator<Item = &OpenRun> {
        self.runs.iter().map(|run| &**run)
    }

    /// Returns the runs in the form in which a manifest names them.
    pub fn named(&self) -> Vec<StoredRun> {
        self.runs.iter().map(|run| run.run.clone()).collect()
    }

    /// Returns the durable ones of the runs, in the form in which a manifest names them.
    pub fn named_durable(&self) -> Vec<StoredRun> {
        let durable = self.runs.iter().filter(|run| run.is_durable.load(Ordering::Acquire));
        durable.map(|run| run.run.clone()).collect()
    }

    /// Makes the files of all runs durable.
    pub fn sync(&self, planted: Planted) -> Result<(), StateError> {
        self.runs.iter().try_for_each(|run| run.sync(planted))
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the bytes of indexes and filters in memory.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.index.bytes()).sum()
    }

    /// Returns the bytes of the index of the first run, which holds most rows.
    pub fn bytes_first(&self) -> usize {
        self.runs.first().map_or(0, |run| run.index.bytes())
    }

    /// Returns an upper bound on the bytes of indexes and filters of the other runs, before all are merged into the
    /// first.
    pub fn bytes_behind_max(&self) -> usize {
        let Some(first) = self.runs.first() else { return 0 };
        first.index.bytes() / FACTOR as usize + Filter::bytes_for((first.run.rows / FACTOR) as usize)
    }

    /// Returns the number of rows and deletions in all runs.
    pub fn rows(&self) -> u64 {
        self.runs.iter().map(|run| run.run.rows).sum()
    }

    /// Returns the range of virtual nodes whose rows the runs may have.
    pub fn nodes(&self) -> NodeRange {
        self.runs.iter().map(|run| run.run.nodes).reduce(NodeRange::hull).unwrap_or_default()
    }

    /// Shares of all rows, of about equal size, in order.
    pub fn parts(&self) -> impl Iterator<Item = RunPart> + use<> {
        let nodes = self.nodes().nodes();
        let rows = self.rows() * nodes.len() as u64 / VIRTUAL_NODE_COUNT as u64;
        let parts = rows.div_ceil(PART_ROWS).next_power_of_two().min(nodes.len() as u64) as usize;
        let start = move |part: usize| nodes.start + part * nodes.len() / parts;
        (0..parts).map(move |part| start(part)..start(part + 1))
    }

    /// Returns the newest row or deletion of each key in a part, in the order of hashes.
    pub fn read(&self, part: &RunPart) -> Result<Image, StateError> {
        let mut all = Image::new(&self.shape);
        let mut merge = Merge::new(self, part)?;
        while merge.step(|rows, row, _| {
            all.push_of(rows, row);
            Ok(())
        })? {}
        Ok(all)
    }

    /// Merges these runs into one, at once ([`Merging`]).
    pub fn merge(&self, into: RunWriter, all: bool) -> Result<RunWriter, StateError> {
        let mut merging = Merging::new(self, into, all)?;
        while merging.step(usize::MAX)? {}
        Ok(merging.end())
    }
}
