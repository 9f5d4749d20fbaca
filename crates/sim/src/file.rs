//! Open files of the simulated storage, and its locks.

use crate::fault::{Fault, Operation};
use crate::storage::{State, leave};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_durability::{File, Lock, Open};
use tidemill_histories::Random;

use crate::world::{Contents, Id, Node};

/// An open file, usable only by the process that opened it.
pub(crate) struct SimFile {
    pub state: Arc<Mutex<State>>,
    pub life: u64,
    pub id: Id,
    pub path: PathBuf,
    pub how: Open,
}

impl SimFile {
    fn write<T>(
        &self,
        operation: Operation,
        body: impl FnOnce(&mut State, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let state = &mut *self.state.lock();
        let fault = state.enter(self.life, operation, &self.path)?;
        if self.how == Open::Read {
            return Err(ErrorKind::PermissionDenied.into());
        }
        body(state, fault).and_then(|result| leave(fault, result))
    }

    /// Writes what there is room for, at `offset`; none: at the end.
    fn put(&self, operation: Operation, offset: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        self.write(operation, |state, fault| {
            let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.world.bytes()));
            let contents = self.contents(state);
            let at = offset.map_or(contents.seen.len(), |offset| usize::try_from(offset).unwrap_or(usize::MAX));
            if at > contents.seen.len() {
                return Err(ErrorKind::InvalidInput.into());
            }
            let fits = (contents.seen.len() - at).saturating_add(usize::try_from(room).unwrap_or(usize::MAX));
            let fits = bytes.len().min(fits);
            let written = if matches!(fault, Some(Fault::Half(_))) { fits / 2 } else { fits };
            contents.write(at, &bytes[..written]);
            if fits < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn contents<'a>(&self, state: &'a mut State) -> &'a mut Contents {
        &mut state.world.files[self.id]
    }
}

impl File for SimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        assert_ne!(self.how, Open::InPlace, "it is written in its places");
        self.put(Operation::Append, None, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(matches!(self.how, Open::Read | Open::InPlace), "it is appended to");
        self.put(Operation::WriteAt, Some(offset), bytes)
    }

    fn fill(&self, range: Range<u64>) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(range.end - range.start).map_err(|_| ErrorKind::StorageFull)?];
        self.put(Operation::Fill, Some(range.start), &zeros)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        let fault = state.enter(self.life, Operation::ReadAt, &self.path)?;
        let seed = state.seed;
        let seen = &self.contents(state).seen;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
        let length = into.len().min(seen.len() - start);
        into[..length].copy_from_slice(&seen[start..start + length]);
        if fault == Some(Fault::Flipped) && length > 0 {
            let mut random = Random::new(seed);
            into[random.below(length)] ^= 1 << random.below(8);
        }
        leave(fault, length)
    }

    fn length(&self) -> io::Result<u64> {
        let state = &mut *self.state.lock();
        let fault = state.enter(self.life, Operation::Length, &self.path)?;
        let length = self.contents(state).seen.len() as u64;
        leave(fault, length)
    }

    /// It is not counted as a call: it changes nothing.
    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(Some((0, self.id as u64)))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.write(Operation::Truncate, |state, _| {
            let contents = self.contents(state);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > contents.seen.len() {
                return Err(ErrorKind::InvalidInput.into());
            }
            contents.truncate(length);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        State::wait_to_sync(&self.state, &self.path);
        self.write(Operation::Sync, |state, fault| {
            let lies = state.lies_about(&self.path);
            match fault {
                Some(Fault::Dropped(_)) => self.contents(state).drop_changes(),
                _ if lies => {}
                _ => self.contents(state).sync(),
            }
            Ok(())
        })
    }
}

/// A lock, held until it is dropped or its process ends.
pub(crate) struct SimLock {
    pub state: Arc<Mutex<State>>,
    pub life: u64,
    pub path: PathBuf,
    pub node: Node,
}

impl Lock for SimLock {
    /// It is not counted as a call: it changes nothing.
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(self.state.lock().world.names.get(&self.path) == Some(&self.node))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.life == self.life {
            match self.node {
                Node::File(id) => state.world.locks.remove(&id),
                Node::Directory => state.world.directory_locks.remove(&self.path),
            };
        }
    }
}
