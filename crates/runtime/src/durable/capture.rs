//! Checkpoints while epochs run.
//!
//! 1. The gate says with which epoch a checkpoint is due, and how the sources stand behind it.
//! 2. The worker that has accessed that epoch copies all rows before the next epoch is accessed. This is
//!    the only part that anything waits for: a copy in memory.
//! 3. The checkpointer's thread turns the copies into blocks and makes them durable, beside the epochs.
//! 4. When all sinks have committed the epoch, the checkpoint becomes the newest, and the log before it
//!    may go.

use super::checkpoint::{BatchWriter, SourceAt, groups};
use super::logger::LogState;
use crate::engine::{Failure, RunError};
use crate::pipeline::Pipeline;
use crate::worker::Machine;
use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_durability::{Checkpoint, StateDirectory, StateError, TableState};
use tidemill_model::StreamDigest;
use tidemill_state::Image;

/// How often it is looked whether the sinks have committed.
const COMMITTED_POLL: Duration = Duration::from_millis(1);

/// A state at the end of an epoch, in memory.
pub struct Captured {
    epoch: u64,
    sources: Vec<SourceAt>,
    /// By table, by group of virtual nodes.
    images: Vec<Vec<Image>>,
    /// By sink: what went to it up to the epoch. Added by the committer.
    pub outputs: Vec<StreamDigest>,
}

impl Captured {
    /// Copies all rows. To be called between the access of `epoch` and that of the next.
    pub fn copy(machine: &Machine, epoch: u64, sources: Vec<SourceAt>) -> Captured {
        let image = |table: &tidemill_state::Table, nodes| {
            let mut image = Image::default();
            #[allow(unsafe_code)]
            // SAFETY: rows are written by access alone, and none runs now.
            unsafe {
                table.copy_nodes(nodes, &mut image);
            }
            image
        };
        let images = machine.tables.iter().map(|t| groups(t.stats().slots).map(|nodes| image(t, nodes)).collect());
        Captured { epoch, sources, images: images.collect(), outputs: Vec::new() }
    }
}

/// What those who take part in checkpoints share.
#[derive(Default)]
pub struct CheckpointState {
    /// One is under way. Set by the gate, cleared by the checkpointer.
    pub busy: AtomicBool,
    /// How many were taken.
    pub count: AtomicU64,
    /// Epochs up to this one are committed by all sinks. Written by the committer.
    pub committed: AtomicU64,
}

/// The checkpointer's thread.
pub struct Checkpointer {
    pub directory: Arc<Mutex<StateDirectory>>,
    pub machine: Arc<Machine>,
    pub captured: Receiver<Captured>,
    pub state: Arc<CheckpointState>,
    pub log_state: Arc<LogState>,
    pub failure: Arc<Failure>,
    pub pipeline: Arc<Pipeline>,
}

impl Checkpointer {
    /// Makes captured states the newest checkpoint until there are no more.
    pub fn run(self) {
        while let Ok(captured) = self.captured.recv() {
            match self.keep(captured) {
                Ok(()) => {}
                // The log has everything still; another will be taken when there is room.
                Err(StateError::Io { error, .. }) if error.kind() == ErrorKind::StorageFull => {}
                Err(error) => {
                    self.failure.set(RunError::State(error));
                    self.pipeline.stop();
                }
            }
            self.state.busy.store(false, Ordering::Release);
        }
    }

    fn keep(&self, captured: Captured) -> Result<(), StateError> {
        let Captured { epoch, sources, images, outputs } = captured;
        let outputs = super::run::outputs(&self.machine.program, outputs);
        let mut writer = BatchWriter::new(self.directory.lock().write_blocks()?);
        let mut tables = Vec::new();
        for (table, images) in self.machine.tables.iter().zip(images) {
            let mut state = TableState::default();
            for image in images.into_iter().filter(|image| !image.is_empty()) {
                writer.write_rows(&table.image_batch(&image), &mut state)?;
            }
            tables.push(state);
        }
        let sources = writer.write_sources(sources)?;
        writer.finish()?;
        while self.state.committed.load(Ordering::Acquire) < epoch {
            if self.failure.is_set() {
                return Ok(());
            }
            let (_never, never) = bounded::<()>(0);
            let _ = never.recv_timeout(COMMITTED_POLL);
        }
        self.directory.lock().switch(Checkpoint { epoch, sources, tables, outputs })?;
        self.log_state.truncate.store(epoch, Ordering::Release);
        self.state.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
