//! A block of transactions, which clients open by themselves.
//!
//! A call takes effect at once, in a block as outside of one. So a block can be committed, which changes nothing, and
//! it can be rolled back as long as no call of it has committed. After that a rollback is an error that names what has
//! committed: nobody is to believe that it was undone.

use super::backend::Status;
use super::error::{PgError, PgResult, code};
use crate::asks::Snapshot;
use std::sync::Arc;
use tokio::time::Instant;

/// The number of calls that are named in an error.
const NAMED_MAX: usize = 10;
/// The most savepoints at once.
const SAVEPOINTS_MAX: usize = 1_000;

/// The snapshot from which all reads of a block are answered.
#[derive(Default)]
pub enum Shared {
    /// No snapshot: there was no read yet.
    #[default]
    None,
    /// A snapshot, and the time when it is given up if nothing reads it before.
    Held(Arc<Snapshot>, Instant),
    /// The snapshot was given up, as nothing had read it for too long.
    GivenUp,
}

/// The block of a connection, if one is open.
#[derive(Default)]
pub struct Block {
    open: Option<Open>,
}

#[derive(Default)]
struct Open {
    has_failed: bool,
    is_read_only: bool,
    /// The calls that have committed, and the names of the first and last few with their epochs.
    committed: usize,
    named: Vec<String>,
    /// The names of savepoints, with the number of calls that had committed before.
    savepoints: Vec<(String, usize)>,
    /// The snapshot that its reads share.
    shared: Shared,
}

impl Block {
    pub fn status(&self) -> Status {
        match &self.open {
            None => Status::Idle,
            Some(Open { has_failed: true, .. }) => Status::Failed,
            Some(_) => Status::InBlock,
        }
    }

    /// Opens a block. Returns false if one was already open.
    pub fn begin(&mut self, is_read_only: bool) -> bool {
        let is_new = self.open.is_none();
        let open = self.open.get_or_insert_default();
        open.is_read_only |= is_read_only;
        is_new
    }

    /// Sets whether the open block is read only. Without an open block it does nothing.
    pub fn read_only(&mut self, is_read_only: bool) {
        if let Some(open) = &mut self.open {
            open.is_read_only = is_read_only;
        }
    }

    /// Closes the block. Returns false if none was open.
    pub fn commit(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Closes the block, and undoes nothing: fails if a call in it has committed. Returns false if none was open.
    pub fn rollback(&mut self) -> PgResult<bool> {
        let Some(open) = self.open.take() else { return Ok(false) };
        open.check_undone(0)?;
        Ok(true)
    }

    pub fn savepoint(&mut self, name: String) -> PgResult<()> {
        let open = self.opened("SAVEPOINT")?;
        if open.savepoints.len() >= SAVEPOINTS_MAX {
            return Err(PgError::new(code::OVER_LIMIT, format!("there are {SAVEPOINTS_MAX} savepoints")));
        }
        open.savepoints.push((name, open.committed));
        Ok(())
    }

    pub fn release(&mut self, name: &str) -> PgResult<()> {
        let open = self.opened("RELEASE SAVEPOINT")?;
        let place = open.place(name)?;
        open.savepoints.truncate(place);
        Ok(())
    }

    /// Goes back to a savepoint, if nothing has committed since. It stays, and the block has not failed any more.
    pub fn rollback_to(&mut self, name: &str) -> PgResult<()> {
        let open = self.opened("ROLLBACK TO SAVEPOINT")?;
        let place = open.place(name)?;
        let before = open.savepoints[place].1;
        open.savepoints.truncate(place + 1);
        open.check_undone(before)?;
        open.has_failed = false;
        Ok(())
    }

    /// Returns the snapshot that the reads of the open block share; None without an open block.
    pub fn shared(&mut self) -> Option<&mut Shared> {
        self.open.as_mut().map(|open| &mut open.shared)
    }

    /// Returns the time when the shared snapshot is given up, unless a read comes before; None if there is no snapshot.
    pub fn gives_up(&self) -> Option<Instant> {
        match self.open.as_ref()?.shared {
            Shared::Held(_, until) => Some(until),
            Shared::None | Shared::GivenUp => None,
        }
    }

    /// Gives the shared snapshot up.
    pub fn give_up(&mut self) {
        if let Some(open) = &mut self.open {
            open.shared = Shared::GivenUp;
        }
    }

    /// Marks the open block as failed, after an error.
    pub fn fail(&mut self) {
        if let Some(open) = &mut self.open {
            open.has_failed = true;
            open.shared = Shared::None;
        }
    }

    /// Checks that statements may run: in a failed block only those that end it may.
    pub fn check(&self) -> PgResult<()> {
        match self.status() {
            Status::Failed => {
                let message = "the block has failed, and takes nothing but its end";
                Err(PgError::new(code::BLOCK_FAILED, message).hint("end it with ROLLBACK or COMMIT"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a call is allowed: the block, or the session outside of one, is not read only.
    pub fn check_call(&self, default_read_only: bool) -> PgResult<()> {
        let is_read_only = self.open.as_ref().map_or(default_read_only, |open| open.is_read_only);
        match is_read_only {
            true => Err(PgError::new(code::READ_ONLY, "a call is not allowed in a block that is read only")),
            false => Ok(()),
        }
    }

    /// Notes a call that has committed.
    pub fn committed(&mut self, procedure: &str, epoch: u64) {
        self.note(format!("{procedure} (epoch {epoch})"));
    }

    /// Notes a call that is not waited for, and may commit.
    pub fn may_commit(&mut self, procedure: &str) {
        self.note(format!("{procedure} (canceled, and perhaps committed)"));
    }

    fn note(&mut self, call: String) {
        let Some(open) = &mut self.open else { return };
        // A read after a call must see it, so the next read takes a new snapshot.
        open.shared = Shared::None;
        open.committed += 1;
        open.named.push(call);
        if open.named.len() > NAMED_MAX {
            open.named.remove(NAMED_MAX / 2);
        }
    }

    fn opened(&mut self, what: &str) -> PgResult<&mut Open> {
        let none = || PgError::new(code::NO_BLOCK, format!("{what} is for blocks, and none is open"));
        self.open.as_mut().ok_or_else(none)
    }
}

impl Open {
    fn place(&self, name: &str) -> PgResult<usize> {
        let none = || PgError::new(code::NO_SAVEPOINT, format!("there is no savepoint '{name}'"));
        self.savepoints.iter().rposition(|(other, _)| other == name).ok_or_else(none)
    }

    /// Checks that no call has committed since the block had `before` committed calls; the error names those that have.
    fn check_undone(&self, before: usize) -> PgResult<()> {
        let count = self.committed - before;
        if count == 0 {
            return Ok(());
        }
        let shown = &self.named[self.named.len() - count.min(self.named.len())..];
        let left_out = if count > shown.len() { format!("{} of {count}: ", shown.len()) } else { String::new() };
        let calls = if count == 1 { "a call has" } else { "calls have" };
        Err(PgError::new(code::CANNOT_ROLL_BACK, format!("nothing is rolled back: {calls} committed"))
            .detail(format!("committed: {left_out}{}", shown.join(", ")))
            .hint("a call takes effect at once; connect with autocommit, so that no block is opened"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_of_what_has_committed_names_it() {
        let mut block = Block::default();
        assert_eq!(block.rollback(), Ok(false));
        assert!(block.begin(false));
        assert!(!block.begin(false));
        assert_eq!(block.rollback(), Ok(true));
        block.begin(false);
        block.committed("deposit", 7);
        let error = block.rollback().expect_err("it has committed");
        assert_eq!((error.code, error.detail.as_deref()), ("2D000", Some("committed: deposit (epoch 7)")));
        assert_eq!(block.status(), Status::Idle);
        block.begin(false);
        (0..30).for_each(|epoch| block.committed("deposit", epoch));
        let detail = block.rollback().expect_err("it has committed").detail.expect("it names them");
        assert!(detail.starts_with("committed: 10 of 30: deposit (epoch 0)"), "{detail}");
        assert!(detail.ends_with("deposit (epoch 29)"), "{detail}");
    }

    #[test]
    fn savepoints() {
        let mut block = Block::default();
        assert_eq!(block.savepoint("a".into()).map_err(|e| e.code), Err(code::NO_BLOCK));
        block.begin(false);
        block.committed("deposit", 1);
        block.savepoint("a".into()).expect("it is open");
        block.fail();
        assert_eq!(block.check().map_err(|e| e.code), Err(code::BLOCK_FAILED));
        block.rollback_to("a").expect("nothing has committed since");
        assert_eq!(block.status(), Status::InBlock);
        block.savepoint("b".into()).expect("it is open");
        block.committed("deposit", 2);
        assert_eq!(block.rollback_to("b").map_err(|e| e.detail), Err(Some("committed: deposit (epoch 2)".into())));
        block.release("a").expect("it is there");
        assert_eq!(block.release("b").map_err(|e| e.code), Err(code::NO_SAVEPOINT));
        assert!(block.commit());
    }

    #[test]
    fn a_block_may_only_read() {
        let mut block = Block::default();
        assert!(block.check_call(true).is_err() && block.check_call(false).is_ok());
        block.begin(true);
        assert!(block.check_call(false).is_err());
        block.read_only(false);
        assert!(block.check_call(true).is_ok());
    }
}
