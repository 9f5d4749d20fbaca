//! Simulated storage: the trait over a [`World`], with a fault for any call.

use crate::fault::{Call, Fault, Operation, power_is_off};
use crate::file::{SimFile, SimLock};
use crate::world::{Node, World};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{Entry, File, Kind, Lock, Locked, Open, Storage, copy, directory_of};
use tidemill_histories::Random;

/// Storage of a simulated machine. Clones are the same machine.
#[derive(Clone)]
pub struct SimStorage(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    pub world: World,
    /// The number of the process: files that an earlier process opened are no longer usable.
    pub life: u64,
    off: bool,
    calls: Vec<Call>,
    faults: BTreeMap<usize, Fault>,
    lies: BTreeSet<String>,
    /// The directory of whose files syncs wait, if there is one, and what tells them that they may go on.
    syncs_wait: Option<PathBuf>,
    go_on: Arc<Condvar>,
    /// A flag: whether a file has only one name.
    has_no_links: bool,
    pub capacity: Option<u64>,
    pub seed: u64,
}

impl State {
    /// Records a call and returns its fault. An error where the power is off or is cut before the call.
    pub fn enter(&mut self, life: u64, operation: Operation, path: &Path) -> io::Result<Option<Fault>> {
        if self.off || life != self.life {
            return Err(power_is_off());
        }
        let fault = self.faults.get(&self.calls.len()).copied();
        self.calls.push(Call { operation, path: path.into() });
        self.off = matches!(fault, Some(Fault::CutBefore | Fault::CutAfter));
        if let Some(fault) = fault
            && !fault.is_done()
            && !(operation.gives_bytes() && matches!(fault, Fault::Half(_)))
            && !(operation == Operation::Sync && matches!(fault, Fault::Dropped(_)))
        {
            return fault.outcome().map(|()| None);
        }
        Ok(fault)
    }

    /// Waits until a sync of this file may go on.
    pub fn wait_to_sync(state: &Mutex<State>, path: &Path) {
        let mut state = state.lock();
        let go_on = state.go_on.clone();
        go_on.wait_while(&mut state, |state| state.syncs_wait.as_ref().is_some_and(|within| path.starts_with(within)));
    }

    /// Returns whether a sync of this file or directory does nothing.
    pub fn lies_about(&self, path: &Path) -> bool {
        self.lies.iter().any(|end| path.to_string_lossy().ends_with(end))
    }
}

/// Ends a call. Returns what it returns under a fault.
pub(crate) fn leave<T>(fault: Option<Fault>, result: T) -> io::Result<T> {
    fault.map_or(Ok(()), Fault::outcome).map(|()| result)
}

/// A guard: while it lives, syncs wait, as [`SimStorage::hold_syncs`] says.
pub struct HeldSyncs(SimStorage);

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        let state = &mut *self.0.0.lock();
        state.syncs_wait = None;
        state.go_on.notify_all();
    }
}

impl SimStorage {
    /// Makes an empty disk with room for everything.
    pub fn new(seed: u64) -> SimStorage {
        let mut state = State { seed, ..State::default() };
        state.world.create_directory(Path::new("."));
        SimStorage(Arc::new(Mutex::new(state)))
    }

    /// Returns a machine with the same disk as processes see it, all of it durable, and without calls.
    pub fn copy(&self) -> SimStorage {
        let state = self.0.lock();
        let (world, seed, has_no_links) = (state.world.copy(), state.seed, state.has_no_links);
        let copy = State { world, seed, has_no_links, ..State::default() };
        SimStorage(Arc::new(Mutex::new(copy)))
    }

    /// Puts a fault at the `call`-th call from the start, counted from 0.
    pub fn fail(&self, call: usize, fault: Fault) {
        self.0.lock().faults.insert(call, fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Sets how many bytes the disk holds; `None`: any number.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Gives each file only one name from now on: a second one is a copy.
    pub fn forbid_links(&self) {
        self.0.lock().has_no_links = true;
    }

    /// Leaves syncs out from now on: those of files and directories whose path ends with `end` succeed and do nothing,
    /// as if the program had left them out.
    pub fn lie_about(&self, end: &str) {
        self.0.lock().lies.insert(end.into());
    }

    /// Holds syncs of the files within a directory back, as long as the guard that it returns lives.
    pub fn hold_syncs(&self, within: &Path) -> HeldSyncs {
        self.0.lock().syncs_wait = Some(within.into());
        HeldSyncs(self.clone())
    }

    /// Turns the power off at once.
    pub fn kill_power(&self) {
        self.0.lock().off = true;
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().calls.clone()
    }

    /// Returns the number of calls so far.
    pub fn call_count(&self) -> usize {
        self.0.lock().calls.len()
    }

    /// Returns whether a fault has cut the power.
    pub fn is_off(&self) -> bool {
        self.0.lock().off
    }

    /// Cuts the power and restores it. Open files are no longer usable.
    pub fn cut_power(&self) {
        let state = &mut *self.0.lock();
        state.life += 1;
        state.off = false;
        let mut random = Random::new(state.seed ^ state.life.rotate_left(32));
        state.world.cut_power(&mut random);
    }

    /// Kills the process and begins another: as [`SimStorage::cut_power`], but nothing is lost.
    pub fn kill(&self) {
        let state = &mut *self.0.lock();
        state.life += 1;
        state.off = false;
        state.world.kill();
    }

    /// Flips a bit, in what is durable and in what is seen.
    pub fn flip(&self, path: &Path, byte: usize, bit: u8) {
        let state = &mut *self.0.lock();
        if let Some(Node::File(id)) = state.world.names.get(&normal(path)).copied() {
            state.world.files[id].flip(byte, bit);
        }
    }

    /// Returns all files with their contents, as processes see them. It is not counted as a call.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let world = &self.0.lock().world;
        let contents = |(path, node): (&PathBuf, &Node)| match node {
            Node::File(id) => Some((path.clone(), world.files[*id].seen.clone())),
            Node::Directory => None,
        };
        world.names.iter().filter_map(contents).collect()
    }

    /// Returns a lock that was just taken.
    fn held(&self, state: &State, path: &Path, node: Node) -> Box<dyn Lock> {
        Box::new(SimLock { state: self.0.clone(), life: state.life, path: path.into(), node })
    }

    /// Enters a call that names a path.
    fn call<T>(
        &self,
        operation: Operation,
        path: &Path,
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let (fault, result) = {
            let state = &mut *self.0.lock();
            (state.enter(state.life, operation, path)?, body(state))
        };
        // Outside of the lock: a result that is dropped here may unlock something.
        result.and_then(|result| leave(fault, result))
    }
}

/// Returns the path without a leading dot, so that each file has one spelling.
fn normal(path: &Path) -> PathBuf {
    let path = path.strip_prefix(".").unwrap_or(path);
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.into() }
}

fn found(world: &World, path: &Path) -> io::Result<Node> {
    world.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
}

fn in_a_directory(world: &World, path: &Path) -> io::Result<()> {
    match found(world, &directory_of(path))? {
        Node::Directory => Ok(()),
        Node::File(_) => Err(ErrorKind::NotADirectory.into()),
    }
}

impl Storage for SimStorage {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        let path = normal(path);
        self.call(Operation::Open, &path, |state| {
            in_a_directory(&state.world, &path)?;
            let id = match (state.world.names.get(&path), how) {
                (Some(Node::Directory), _) => return Err(ErrorKind::IsADirectory.into()),
                (Some(_), Open::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
                (Some(Node::File(id)), _) => *id,
                (None, Open::Read | Open::Append) => return Err(ErrorKind::NotFound.into()),
                (None, Open::AppendOrCreate | Open::CreateNew | Open::InPlace) => state.world.create(&path),
            };
            let (life, state) = (state.life, self.0.clone());
            Ok(Box::new(SimFile { state, life, id, path: path.clone(), how }) as Box<dyn File>)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.call(Operation::Rename, &to, |state| {
            in_a_directory(&state.world, &to)?;
            let node = found(&state.world, &from)?;
            state.world.rename(&from, &to, node);
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.0.lock().has_no_links {
            return copy(self, from, to);
        }
        let (from, to) = (normal(from), normal(to));
        self.call(Operation::Link, &to, |state| {
            in_a_directory(&state.world, &to)?;
            let node = found(&state.world, &from)?;
            if node == Node::Directory {
                return Err(ErrorKind::PermissionDenied.into());
            }
            if state.world.names.contains_key(&to) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            state.world.link(&to, node);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.call(Operation::Remove, &path, |state| {
            let node = found(&state.world, &path)?;
            if state.world.names.keys().any(|other| directory_of(other) == path && *other != path) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            state.world.remove(&path, node);
            Ok(())
        })
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        let path = normal(path);
        self.call(Operation::Look, &path, |state| {
            Ok(match found(&state.world, &path)? {
                Node::File(id) => Entry { kind: Kind::File, length: state.world.files[id].seen.len() as u64 },
                Node::Directory => Entry { kind: Kind::Directory, length: 0 },
            })
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let directory = normal(directory);
        self.call(Operation::List, &directory, |state| {
            if found(&state.world, &directory)? != Node::Directory {
                return Err(ErrorKind::NotADirectory.into());
            }
            let held = state.world.names.keys().filter(|path| directory_of(path) == directory);
            Ok(held.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.call(Operation::CreateDirectory, &path, |state| {
            for directory in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
                match state.world.names.get(directory) {
                    None => state.world.create_directory(directory),
                    Some(Node::Directory) => {}
                    Some(Node::File(_)) => return Err(ErrorKind::AlreadyExists.into()),
                }
            }
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.call(Operation::SyncDirectory, &path, |state| {
            found(&state.world, &path)?;
            if !state.lies_about(&path) {
                state.world.sync_directory(&path);
            }
            Ok(())
        })
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        let path = normal(path);
        self.call(Operation::Lock, &path, |state| {
            in_a_directory(&state.world, &path)?;
            let id = match state.world.names.get(&path) {
                Some(Node::Directory) => return Err(ErrorKind::IsADirectory.into()),
                Some(Node::File(id)) => *id,
                None => state.world.create(&path),
            };
            let file = &mut state.world.files[id];
            if state.world.locks.contains(&id) {
                return Ok(Locked::By(String::from_utf8_lossy(&file.seen).into_owned()));
            }
            if !holder.is_empty() {
                file.truncate(0);
                file.append(holder.as_bytes());
            }
            state.world.locks.insert(id);
            Ok(Locked::Mine(self.held(state, &path, Node::File(id))))
        })
    }

    /// It is not counted as a call: it changes nothing.
    fn free(&self, _: &Path) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        Ok(state.capacity.map(|capacity| capacity.saturating_sub(state.world.bytes())))
    }

    /// It is not counted as a call: it leaves nothing behind that a crash could keep.
    fn lock_entry(&self, path: &Path) -> io::Result<Locked> {
        let path = normal(path);
        let state = &mut *self.0.lock();
        if state.off {
            return Err(power_is_off());
        }
        let node = found(&state.world, &path)?;
        let is_mine = match node {
            Node::File(id) => state.world.locks.insert(id),
            Node::Directory => state.world.directory_locks.insert(path.clone()),
        };
        Ok(if is_mine { Locked::Mine(self.held(state, &path, node)) } else { Locked::By(String::new()) })
    }
}
