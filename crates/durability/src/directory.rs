//! The state directory: one process at a time, one application for ever.
//!
//! ```text
//! DIR/lock              a description of the process that holds it (`state_lock.rs`)
//! DIR/manifest          program and identity of the state, and its newest checkpoint
//! DIR/log/NNN.log       the epochs since; `log.1` after the first restore of a savepoint, and so on
//! DIR/checkpoint/NNN.rows
//! DIR/savepoint/NAME/   named checkpoints
//! ```

use crate::blocks::{self, BlockReader, BlockWriter, FilesInUse};
use crate::error::StateError;
use crate::fit::Fit;
use crate::log::{Log, LogReader};
use crate::manifest::{Checkpoint, FORMAT, Identity, Manifest, Recorded};
use crate::place::Course;
use crate::planted::{Bug, Planted};
use crate::proof::{Chain, Head, Proof};
use crate::savepoint::remove_all;
use crate::state_lock::{Guard, StateLock, TakenBy};
use crate::storage::Storage;
use crate::store::{RunWriter, Runs, StoredRun};
use crate::view::Pinned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_state::RowShape;

/// An open state directory. Dropping it releases the lock.
pub struct StateDirectory {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    id: u64,
    program: Identity,
    recorded: Option<Recorded>,
    fit: Fit,
    /// None until the first checkpoint.
    manifest: Option<Manifest>,
    /// A flag: whether the state is weak from its beginning.
    begins_weak: bool,
    /// A flag: whether runs are hashed as they are written.
    hashes: bool,
    /// The number of the next checkpoint file.
    next_file: u64,
    /// Files that this process writes, or has written and reads, whether or not a manifest names them.
    in_use: FilesInUse,
    planted: Planted,
    /// The process that goes on with the state, if this is a view of it.
    writer: Option<String>,
    /// None in a view.
    lock: Option<Arc<StateLock>>,
}

/// Options for opening a state directory.
pub struct OpenState<'a> {
    /// The storage of its files.
    pub storage: Arc<dyn Storage>,
    /// The directory; made if missing.
    pub path: &'a Path,
    /// Describes this process, for another process that finds the directory locked.
    pub holder: &'a str,
    /// The identity of a state that begins now: a unique number.
    pub id: u64,
    /// The program.
    pub program: Identity,
    /// The program in a form that runs without its source text; none if that is not wanted.
    pub recorded: Option<Recorded>,
}

impl StateDirectory {
    /// Opens or makes a state directory. Refuses a directory that another process holds, or that does not fit the
    /// program.
    pub fn open(how: OpenState<'_>) -> Result<StateDirectory, StateError> {
        let OpenState { storage, path, holder, id, program, recorded } = how;
        storage.create_directory(path).map_err(StateError::io(path, "made"))?;
        let lock = take(&*storage, path, holder)?;
        let manifest = Manifest::read(&*storage, path)?;
        let fit = manifest.as_ref().map_or(Fit::Same, |manifest| Fit::of(&manifest.program, &program));
        if let Fit::Refused(why) = &fit {
            return Err(StateError::Refused(format!("the state {} {why}", path.display())));
        }
        if let Some(nodes) =
            manifest.as_ref().map(|manifest| manifest.checkpoint.nodes).filter(|nodes| !nodes.is_whole())
        {
            return Err(StateError::Refused(format!(
                "the state {} has the rows of {nodes} only; a run needs those of all",
                path.display()
            )));
        }
        let id = manifest.as_ref().map_or(id, |manifest| manifest.id);
        StateDirectory::with(storage, path, id, program, recorded, fit, manifest, lock)
    }

    /// Opens an existing state of any program, as if that program had opened it.
    pub fn open_as_it_is(storage: Arc<dyn Storage>, path: &Path, holder: &str) -> Result<StateDirectory, StateError> {
        let absent = || StateError::Refused(format!("there is no state in {}", path.display()));
        if Manifest::read(&*storage, path)?.is_none() {
            return Err(absent());
        }
        let lock = take(&*storage, path, holder)?;
        let manifest = Manifest::read(&*storage, path)?.ok_or_else(absent)?;
        let (id, program, recorded) = (manifest.id, manifest.program.clone(), manifest.recorded.clone());
        StateDirectory::with(storage, path, id, program, recorded, Fit::Same, Some(manifest), lock)
    }

    /// Returns a view of an existing state of any program as it stands now, to be read while a run may go on with it:
    /// it changes nothing, and stays as it is (`view.rs` says how). While another process holds the state, its log ends
    /// with the last epoch that is known to be durable.
    pub fn view(storage: Arc<dyn Storage>, path: &Path) -> Result<StateDirectory, StateError> {
        let absent = || StateError::Refused(format!("there is no state in {}", path.display()));
        if Manifest::read(&*storage, path)?.is_none() {
            return Err(absent());
        }
        // Held until the pin is done: then nothing begins meanwhile.
        let locked = StateLock::take(&*storage, path, "")?;
        let pinned = Pinned::of(storage, path)?.ok_or_else(absent)?;
        let writer = locked.err().map(|TakenBy(other)| other);
        let manifest = Manifest::read(&pinned, path)?.ok_or_else(absent)?;
        Ok(StateDirectory {
            storage: Arc::new(pinned),
            path: path.to_owned(),
            id: manifest.id,
            program: manifest.program.clone(),
            recorded: manifest.recorded.clone(),
            fit: Fit::Same,
            manifest: Some(manifest),
            next_file: 1,
            in_use: FilesInUse::default(),
            begins_weak: false,
            hashes: false,
            planted: Planted::default(),
            writer,
            lock: None,
        })
    }

    /// Returns the process that went on with the state when a view of it was pinned; none if none did.
    pub fn writer(&self) -> Option<&str> {
        self.writer.as_deref()
    }

    #[allow(clippy::too_many_arguments, reason = "they are its fields")]
    fn with(
        storage: Arc<dyn Storage>,
        path: &Path,
        id: u64,
        program: Identity,
        recorded: Option<Recorded>,
        fit: Fit,
        manifest: Option<Manifest>,
        lock: StateLock,
    ) -> Result<StateDirectory, StateError> {
        let mut directory = StateDirectory {
            storage,
            path: path.to_owned(),
            id,
            program,
            recorded,
            fit,
            manifest,
            next_file: 1,
            in_use: FilesInUse::default(),
            begins_weak: false,
            hashes: false,
            planted: Planted::default(),
            writer: None,
            lock: Some(Arc::new(lock)),
        };
        match &directory.manifest {
            None => directory.clear()?,
            Some(_) => {
                directory.remove_unused()?;
                directory.remove_old_logs()?;
                directory.sync_savepoints()?;
            }
        }
        Ok(directory)
    }

    /// Returns whether no state was ever written here.
    pub fn is_new(&self) -> bool {
        self.manifest.is_none()
    }

    /// Plants a bug in it, and in the log and files that it opens.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Returns the bug that is planted, if any.
    pub fn planted(&self) -> Planted {
        self.planted
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the storage of its files.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Returns the record of what its file sinks have released.
    pub fn sink_record(&self) -> PathBuf {
        self.path.join("sinks")
    }

    /// Returns a look at its lock; none in a view.
    pub fn guard(&self) -> Option<Guard> {
        self.lock.as_ref().filter(|_| !self.planted.is(Bug::LockNotCompared)).map(Guard::of)
    }

    /// Returns a text that distinguishes this state's course from every other.
    pub fn owner(&self) -> String {
        self.course().to_string()
    }

    /// Returns its history.
    pub fn course(&self) -> Course {
        Course { id: self.id, number: self.manifest.as_ref().map_or(0, |manifest| manifest.course) }
    }

    /// Returns the chain of proof at the newest checkpoint; none if none is kept.
    pub fn chain(&self) -> Option<Chain> {
        let checkpoint = self.checkpoint()?;
        let mut chain = Chain::at(self.course(), checkpoint.epoch, checkpoint.proof?);
        chain.plant(self.planted);
        Some(chain)
    }

    /// Hashes runs as they are written.
    pub fn hash_runs(&mut self) {
        self.hashes = true;
    }

    /// Compares the runs of the newest checkpoint with the hashes that it has of them, and these with its root. Returns how
    /// many it has of how many runs.
    pub fn check_runs(&self) -> Result<(usize, usize), StateError> {
        let Some(checkpoint) = self.checkpoint() else { return Ok((0, 0)) };
        let damaged = |file: PathBuf, what: String| {
            let affected = "the rows of the checkpoint are not those that it was made of".into();
            StateError::Damaged { file, offset: 0, what, affected }
        };
        let root = checkpoint.proof.and_then(|proof| proof.root);
        if root.is_some() && root != checkpoint.root() {
            return Err(damaged(self.path.join("manifest"), "its root is not that of its runs".into()));
        }
        let mut hashed = 0;
        for run in checkpoint.runs() {
            let Some(hash) = run.hash else { continue };
            let found = blocks::file_hash(&*self.storage, &self.checkpoints(), run.index.file)?;
            if found != hash {
                let file = self.checkpoints().join(blocks::file_name(run.index.file));
                return Err(damaged(file, format!("its SHA-256 is {found}, and the manifest has {hash}")));
            }
            hashed += 1;
        }
        Ok((hashed, checkpoint.runs().count()))
    }

    /// Returns the head after the last epoch of the log; after that of the newest checkpoint where the log cannot be read.
    pub(crate) fn last_head(&self) -> Option<Head> {
        let at_checkpoint = self.chain()?.head();
        let read = || -> Result<Option<Head>, StateError> {
            let mut log = self.log()?;
            while log.next_epoch()?.is_some() {}
            Ok(log.proof().map(|chain| chain.head()))
        };
        Some(read().ok().flatten().unwrap_or(at_checkpoint))
    }

    /// Begins the chain of proof at the newest checkpoint, durably, if none is kept.
    pub fn begin_chain(&mut self) -> Result<(), StateError> {
        let begins_anew = self.planted.is(Bug::ChainBeginsAnew);
        match self.manifest.clone() {
            Some(mut was) if was.checkpoint.proof.is_none() || begins_anew => {
                was.checkpoint.proof = Some(self.first_proof(was.checkpoint.epoch));
                self.put(was)
            }
            _ => Ok(()),
        }
    }

    /// Returns the proof of a checkpoint of this epoch with which a chain begins.
    pub fn first_proof(&self, epoch: u64) -> Proof {
        Chain::begin(self.course(), epoch).proof()
    }

    /// Returns its manifest; none in a new state.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the fit of the state to the program that it was opened for.
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// Returns the newest checkpoint; none in a new state.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.manifest.as_ref().map(|manifest| &manifest.checkpoint)
    }

    /// Returns whether epochs were logged after the newest checkpoint.
    pub fn has_logged(&self) -> Result<bool, StateError> {
        Ok(!self.is_new() && self.log()?.next_epoch()?.is_some())
    }

    /// Records, durably, whether results may be released from now on before they are durable.
    pub fn weaken(&mut self, weak: bool) -> Result<(), StateError> {
        self.begins_weak = weak;
        match self.manifest.clone() {
            Some(was) if was.weak != weak => self.put(Manifest { weak, ..was }),
            _ => Ok(()),
        }
    }

    /// Returns whether results may have been released that are not durable.
    pub fn is_weak(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.weak)
    }

    /// Returns whether the recorded program differs from the one that it was opened with.
    pub fn is_recorded_otherwise(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.recorded != self.recorded)
    }

    /// Makes the state one of the program that it was opened for, at a checkpoint whose blocks are durable. Nothing
    /// is logged after this checkpoint.
    pub fn adopt(&mut self, checkpoint: Checkpoint) -> Result<(), StateError> {
        let was = self.manifest.clone().expect("only what has begun can change");
        let (mut changes, mut begins) = (was.changes, was.begins);
        if self.fit != Fit::Same {
            changes.push(checkpoint.epoch);
        }
        // A sink that is new, or writes elsewhere, has none of the earlier output.
        let sinks = |recorded: &Recorded| -> Vec<(String, Option<serde_json::Value>)> {
            recorded.plan.sinks.iter().map(|s| (s.name.clone(), recorded.sinks.get(&s.name).cloned())).collect()
        };
        if let (Some(old), Some(new)) = (&was.recorded, &self.recorded) {
            let old = sinks(old);
            let other = sinks(new).into_iter().filter(|sink| !old.contains(sink));
            begins.extend(other.map(|(name, _)| (name, checkpoint.epoch)));
        }
        let (program, recorded) = (self.program.clone(), self.recorded.clone());
        self.put(Manifest { program, recorded, begins, changes, checkpoint, ..was })?;
        self.fit = Fit::Same;
        Ok(())
    }

    /// Returns a reader of its checkpoints' blocks.
    pub fn blocks(&self) -> BlockReader {
        BlockReader::new(self.storage.clone(), self.checkpoints(), self.id)
    }

    /// Refuses to go on where the state is not the one that this process holds any more.
    fn check_held(&self) -> Result<(), StateError> {
        match &self.lock {
            Some(lock) if !self.planted.is(Bug::LockNotCompared) => lock.check(),
            _ => Ok(()),
        }
    }

    /// Begins a checkpoint file.
    pub fn write_blocks(&mut self) -> Result<BlockWriter, StateError> {
        self.check_held()?;
        let used = self.in_use.begin(self.next_file);
        let mut writer = BlockWriter::create(self.storage.clone(), &self.checkpoints(), self.id, used)?;
        writer.plant(self.planted);
        self.next_file += 1;
        Ok(writer)
    }

    /// Begins a run of rows of this shape. With a filter for at most this many rows, or none.
    pub fn write_run(&mut self, shape: &Arc<RowShape>, filter_rows: Option<usize>) -> Result<RunWriter, StateError> {
        let mut file = self.write_blocks()?;
        if self.hashes {
            file.hash();
        }
        Ok(RunWriter::new(file, shape, filter_rows))
    }

    /// Opens runs of a table.
    pub fn runs(&self, runs: &[StoredRun], shape: &Arc<RowShape>, table: &str) -> Result<Runs, StateError> {
        Runs::open(&self.blocks(), runs, shape, &format!("rows of table {table}"))
    }

    /// Begins the state of a new directory with a checkpoint whose blocks are durable, and begins its log.
    pub fn begin(&mut self, checkpoint: Checkpoint) -> Result<Log, StateError> {
        assert!(self.is_new(), "a state begins once");
        let mut log = Log::create(self.storage.clone(), self.logs(), self.id, checkpoint.epoch)?;
        log.plant(self.planted);
        log.guard(self.lock.clone());
        self.switch(checkpoint)?;
        log.prove(self.chain());
        Ok(log)
    }

    /// Makes a checkpoint, whose blocks are durable, the newest, and removes the files that only older checkpoints
    /// need.
    pub fn switch(&mut self, checkpoint: Checkpoint) -> Result<(), StateError> {
        assert_eq!(self.fit, Fit::Same, "a program writes into its own state");
        let manifest = match self.manifest.clone() {
            Some(was) => Manifest { checkpoint, ..was },
            None => Manifest {
                format: FORMAT,
                id: self.id,
                course: 0,
                log: 0,
                program: self.program.clone(),
                recorded: self.recorded.clone(),
                weak: self.begins_weak,
                begins: BTreeMap::new(),
                changes: Vec::new(),
                restored: Vec::new(),
                checkpoint,
            },
        };
        if self.planted.is(Bug::CheckpointRemovesFirst) {
            self.remove_all_but(&manifest.checkpoint.files())?;
        }
        self.put(manifest)
    }

    fn put(&mut self, manifest: Manifest) -> Result<(), StateError> {
        self.check_held()?;
        let manifest = Manifest { checkpoint: manifest.checkpoint.clone().with_root(), ..manifest };
        manifest.write(&*self.storage, &self.path, self.planted)?;
        self.manifest = Some(manifest);
        self.remove_unused()
    }

    /// Replaces the manifest by one with a new, empty log.
    pub(crate) fn begin_log_anew(&mut self, manifest: Manifest, log: u64) -> Result<(), StateError> {
        let directory = self.logs_of(log);
        self.storage.create_directory(&directory).map_err(StateError::io(&directory, "made"))?;
        for name in self.storage.list(&directory).map_err(StateError::io(&directory, "read"))? {
            let path = directory.join(name);
            self.storage.remove(&path).map_err(StateError::io(&path, "removed"))?;
        }
        Log::create(self.storage.clone(), directory, self.id, manifest.checkpoint.epoch)?;
        self.put(Manifest { log, ..manifest })?;
        self.remove_old_logs()
    }

    /// Returns the log after the newest checkpoint.
    pub fn log(&self) -> Result<LogReader, StateError> {
        let after = self.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let mut reader = LogReader::open(self.storage.clone(), self.logs(), self.id, after)?;
        reader.plant(self.planted);
        reader.guard(self.lock.clone());
        reader.hold(self.held_epoch()?);
        reader.prove(self.chain());
        self.bound(&mut reader)?;
        Ok(reader)
    }

    /// Returns the log after an earlier epoch, as far as it is kept.
    pub fn log_behind(&self, epoch: u64) -> Result<LogReader, StateError> {
        let mut reader = LogReader::open(self.storage.clone(), self.logs(), self.id, epoch)?;
        self.bound(&mut reader)?;
        Ok(reader)
    }

    /// Returns whether the log has all entries after an epoch.
    pub fn has_log_from(&self, epoch: u64) -> Result<bool, StateError> {
        LogReader::begins(&*self.storage, &self.logs(), self.id).map(|first| first.is_some_and(|first| first <= epoch))
    }

    /// Ends a log with what is known to be durable, in a view of a state that a run goes on with.
    fn bound(&self, reader: &mut LogReader) -> Result<(), StateError> {
        match self.writer {
            Some(_) => reader.end_with_durable(self.checkpoint().map_or(0, |checkpoint| checkpoint.epoch)),
            None => Ok(()),
        }
    }

    fn logs(&self) -> PathBuf {
        self.logs_of(self.manifest.as_ref().map_or(0, |manifest| manifest.log))
    }

    fn logs_of(&self, number: u64) -> PathBuf {
        log_directory(&self.path, number)
    }

    /// Removes the logs of earlier courses.
    fn remove_old_logs(&self) -> Result<(), StateError> {
        let current = self.logs();
        let names = self.storage.list(&self.path).map_err(StateError::io(&self.path, "read"))?;
        for name in names.iter().filter(|name| *name == "log" || name.starts_with("log.")) {
            let path = self.path.join(name);
            if path != current {
                remove_all(&*self.storage, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the directory of its checkpoint files.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        checkpoint_directory(&self.path)
    }

    /// Undoes an unfinished beginning. A directory that holds more than a beginning has lost its manifest.
    fn clear(&self) -> Result<(), StateError> {
        let known = ["lock", "log", "checkpoint", "manifest.new"];
        let lost = || StateError::Damaged {
            file: self.path.join("manifest"),
            offset: 0,
            what: "it is missing".into(),
            affected: "it is not known where the state lies".into(),
        };
        let names = self.storage.list(&self.path).map_err(StateError::io(&self.path, "read"))?;
        if names.iter().any(|name| name == "savepoint" || name == "sinks" || name.starts_with("log.")) {
            return Err(lost());
        }
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
                    // Each table's rows are written before the log begins.
                    Some(file) => file <= self.program.tables.len() as u64,
                    None => ["00000001.log", "00000001.new"].contains(&name.as_str()),
                };
                let length = self.storage.look(&path).map_err(StateError::io(&path, "read"))?.length;
                if !first || (name == "00000001.log" && length > Log::EMPTY_BYTES) {
                    return Err(lost());
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
        // A savepoint may be restored, so the numbers of its files are not given again.
        let last = used.last().copied().max(self.last_savepoint_file()?);
        self.next_file = self.next_file.max(last.map_or(1, |last| last + 1));
        self.remove_all_but(&used)
    }

    /// Removes checkpoint files that the manifest does not name and that are not in use.
    pub fn tidy(&mut self) -> Result<(), StateError> {
        self.remove_unused()
    }

    fn remove_all_but(&self, used: &BTreeSet<u64>) -> Result<(), StateError> {
        let directory = self.checkpoints();
        for number in blocks::numbers(&*self.storage, &directory)? {
            if !used.contains(&number) && !self.in_use.has(number) {
                blocks::remove(&*self.storage, &directory, number)?;
            }
        }
        Ok(())
    }
}

/// Takes the lock of a state directory.
fn take(storage: &dyn Storage, path: &Path, holder: &str) -> Result<StateLock, StateError> {
    match StateLock::take(storage, path, holder)? {
        Ok(lock) => {
            // Names that an earlier process made and did not sync are visible, but a power cut may still remove them.
            storage.sync_directory(path).map_err(StateError::io(path, "synced"))?;
            Ok(lock)
        }
        Err(TakenBy(other)) => Err(StateError::Refused(format!("the state {} is in use by {other}", path.display()))),
    }
}

/// Returns the directory of a state's log of this number.
pub(crate) fn log_directory(state: &Path, number: u64) -> PathBuf {
    state.join(if number == 0 { "log".into() } else { format!("log.{number}") })
}

/// Returns the directory of a state's checkpoint files.
pub(crate) fn checkpoint_directory(state: &Path) -> PathBuf {
    state.join("checkpoint")
}
