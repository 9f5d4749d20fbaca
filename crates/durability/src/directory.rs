//! The state directory: one process at a time, one program for ever.
//!
//! ```text
//! DIR/lock              who holds it
//! DIR/manifest          what it is of, and its newest checkpoint
//! DIR/log/NNN.log       the epochs since
//! DIR/checkpoint/NNN.rows
//! ```

use crate::blocks::{self, BlockReader, BlockWriter};
use crate::difference::difference;
use crate::error::StateError;
use crate::log::{Log, LogReader};
use crate::manifest::{Checkpoint, FORMAT, Identity, Manifest};
use crate::planted::{Bug, Planted};
use crate::storage::{Lock, Locked, Storage};
use crate::store::{Run, RunWriter, Runs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_state::RowShape;

/// An open state directory. The lock goes with it.
pub struct StateDirectory {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    id: u64,
    program: Identity,
    /// None until the first checkpoint.
    manifest: Option<Manifest>,
    /// The number of the next checkpoint file.
    next_file: u64,
    planted: Planted,
    _lock: Box<dyn Lock>,
}

/// How a state directory is opened.
pub struct OpenState<'a> {
    /// Where its files are.
    pub storage: Arc<dyn Storage>,
    /// The directory; made if missing.
    pub path: &'a Path,
    /// Who opens it, for whoever finds it locked.
    pub holder: &'a str,
    /// The identity of a state that begins now: a number that no other has.
    pub id: u64,
    /// The program.
    pub program: Identity,
}

impl StateDirectory {
    /// Opens or makes it. Refuses one that another process holds, or that is of another program.
    pub fn open(how: OpenState<'_>) -> Result<StateDirectory, StateError> {
        let OpenState { storage, path, holder, id, program } = how;
        storage.create_directory(path).map_err(StateError::io(path, "made"))?;
        let lock_path = path.join("lock");
        let lock = match storage.lock(&lock_path, holder).map_err(StateError::io(&lock_path, "locked"))? {
            Locked::Mine(lock) => lock,
            Locked::By(other) => {
                let other = if other.trim().is_empty() { "another process" } else { other.trim() };
                return Err(StateError::Refused(format!("the state {} is in use by {other}", path.display())));
            }
        };
        // What an earlier process named and did not sync is seen, and a power cut may still take it back.
        storage.sync_directory(path).map_err(StateError::io(path, "synced"))?;
        let manifest = Manifest::read(&*storage, path)?;
        if let Some(manifest) = &manifest
            && let Some(difference) = difference(&manifest.program, &program)
        {
            return Err(StateError::Refused(format!("the state {} {difference}", path.display())));
        }
        let id = manifest.as_ref().map_or(id, |manifest| manifest.id);
        let path = path.to_owned();
        let planted = Planted::default();
        let mut directory = StateDirectory { storage, path, id, program, manifest, next_file: 1, planted, _lock: lock };
        match &directory.manifest {
            None => directory.clear()?,
            Some(_) => directory.remove_unused()?,
        }
        Ok(directory)
    }

    /// Whether no state was ever put here.
    pub fn is_new(&self) -> bool {
        self.manifest.is_none()
    }

    /// Plants a bug in it, and in what goes on with it.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// The bug that is planted, if any.
    pub fn planted(&self) -> Planted {
        self.planted
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its files are.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// What tells this state from every other, as text.
    pub fn owner(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// The newest checkpoint; none in a new state.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.manifest.as_ref().map(|manifest| &manifest.checkpoint)
    }

    /// Whether the program is another than the one that wrote the log.
    pub fn code_changed(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.program.code != self.program.code)
    }

    /// Reads blocks of its checkpoints.
    pub fn blocks(&self) -> BlockReader {
        BlockReader::new(self.storage.clone(), self.checkpoints(), self.id)
    }

    /// Begins a checkpoint file.
    pub fn write_blocks(&mut self) -> Result<BlockWriter, StateError> {
        let mut writer = BlockWriter::create(self.storage.clone(), &self.checkpoints(), self.id, self.next_file)?;
        writer.plant(self.planted);
        self.next_file += 1;
        Ok(writer)
    }

    /// Begins a run of rows of that shape.
    pub fn write_run(&mut self, shape: &Arc<RowShape>) -> Result<RunWriter, StateError> {
        Ok(RunWriter::new(self.write_blocks()?, shape))
    }

    /// Opens runs of a table.
    pub fn runs(&self, runs: &[Run], shape: &Arc<RowShape>, table: &str) -> Result<Runs, StateError> {
        Runs::open(self.blocks(), runs, shape, table)
    }

    /// Puts the state of a new directory there, whose blocks are durable, and begins its log.
    pub fn begin(&mut self, checkpoint: Checkpoint) -> Result<Log, StateError> {
        assert!(self.is_new(), "a state begins once");
        let mut log = Log::create(self.storage.clone(), self.logs(), self.id, checkpoint.epoch)?;
        log.plant(self.planted);
        self.switch(checkpoint)?;
        Ok(log)
    }

    /// Makes a checkpoint, whose blocks are durable, the newest, and removes the files that only older
    /// ones need.
    pub fn switch(&mut self, checkpoint: Checkpoint) -> Result<(), StateError> {
        let manifest = Manifest { format: FORMAT, id: self.id, program: self.program.clone(), checkpoint };
        if self.planted.is(Bug::CheckpointRemovesFirst) {
            self.remove_all_but(&manifest.checkpoint.files())?;
        }
        manifest.write(&*self.storage, &self.path, self.planted)?;
        self.manifest = Some(manifest);
        self.remove_unused()
    }

    /// The log behind the newest checkpoint.
    pub fn log(&self) -> Result<LogReader, StateError> {
        let after = self.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let mut reader = LogReader::open(self.storage.clone(), self.logs(), self.id, after)?;
        reader.plant(self.planted);
        Ok(reader)
    }

    fn logs(&self) -> PathBuf {
        self.path.join("log")
    }

    fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Makes an unfinished beginning undone. What holds more than a beginning lost its manifest.
    fn clear(&self) -> Result<(), StateError> {
        let known = ["lock", "log", "checkpoint", "manifest.new"];
        let names = self.storage.list(&self.path).map_err(StateError::io(&self.path, "read"))?;
        if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(StateError::Refused(format!(
                "{} is no state directory and holds other things, such as '{other}'; give an empty one",
                self.path.display()
            )));
        }
        for directory in [self.logs(), self.checkpoints()] {
            self.storage.create_directory(&directory).map_err(StateError::io(&directory, "made"))?;
            for name in self.storage.list(&directory).map_err(StateError::io(&directory, "read"))? {
                let path = directory.join(&name);
                let first = match blocks::number(&name) {
                    // Before there is a log, each table's rows are written.
                    Some(file) => file <= self.program.tables.len() as u64,
                    None => ["00000001.log", "00000001.new"].contains(&name.as_str()),
                };
                let length = self.storage.look(&path).map_err(StateError::io(&path, "read"))?.length;
                if !first || (name == "00000001.log" && length > Log::EMPTY_BYTES) {
                    return Err(StateError::Damaged {
                        file: self.path.join("manifest"),
                        offset: 0,
                        what: "it is missing".into(),
                        affected: "it is not known where the state lies".into(),
                    });
                }
                self.storage.remove(&path).map_err(StateError::io(&path, "removed"))?;
            }
        }
        Ok(())
    }

    /// Removes checkpoint files that the newest checkpoint does not need.
    fn remove_unused(&mut self) -> Result<(), StateError> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let used = manifest.checkpoint.files();
        self.next_file = self.next_file.max(used.last().map_or(1, |last| last + 1));
        self.remove_all_but(&used)
    }

    fn remove_all_but(&self, used: &BTreeSet<u64>) -> Result<(), StateError> {
        let directory = self.checkpoints();
        for number in blocks::numbers(&*self.storage, &directory)? {
            if !used.contains(&number) {
                blocks::remove(&*self.storage, &directory, number)?;
            }
        }
        Ok(())
    }
}
