//! Reads that are answered whatever the run waits for.

use crate::session::error::SessionError;
use crate::session::link::{AsItStands, now};
use crate::session::{Asked, ReadsAt, Session};
use crossbeam_channel::bounded;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_durability::Head;
use tidemill_recovery::HeldTime;
use tidemill_stages::access::read::Wish;

/// The time for which a run may be about to answer before it is checked whether it waits for something.
const LOOKS: Duration = Duration::from_millis(100);
/// The time that executed epochs may take to become durable while the run waits.
const SETTLES: Duration = Duration::from_secs(2);

impl Session {
    /// Says in words what is wrong with the run, if anything is: what it waits for (room on the disk, a file descriptor), or
    /// that it has failed and is about to end.
    pub fn ailment(&self) -> Option<String> {
        self.control().ailment().map(str::to_owned)
    }

    /// Returns the split that keeps time from going on, in a run that goes on with clocks.
    pub fn held_time(&self) -> Option<HeldTime> {
        self.control().held_time.lock().clone()
    }

    /// Returns the head of the chain of proof after the last epoch that is durable; none if no chain is kept.
    pub fn head(&self) -> Option<Head> {
        *self.control().head.lock()
    }

    /// Returns tables, of which nothing is copied yet, as they are after the last epoch that is executed and durable.
    /// It contains every call that was answered and everything that an answered question was about. Unlike
    /// [`Session::read`] it may lack what was sent before and is not answered: while the log waits for room, no epoch
    /// can have it.
    pub fn reads_latest(&self, wishes: &[Wish], deadline: Option<Instant>) -> Result<ReadsAt, SessionError> {
        let mut asked: Option<Asked> = None;
        loop {
            if self.control().waits() {
                asked = None;
                if let Some(reads) = self.reads_as_it_stands(wishes, deadline)? {
                    return Ok(reads);
                }
            }
            let until = soon(deadline);
            let waited = match &asked {
                Some(asked) => asked.reads(Some(until)).map(Some),
                None => self.ask_to_read(wishes.to_vec(), Some(until)).map(|new| {
                    asked = Some(new);
                    None
                }),
            };
            match waited {
                Ok(Some(reads)) => return Ok(reads),
                Ok(None) => {}
                Err(SessionError::Timeout) if deadline.is_none_or(|deadline| now() < deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the state as it stands, without an epoch for it; none if the run goes on meanwhile.
    fn reads_as_it_stands(&self, wishes: &[Wish], deadline: Option<Instant>) -> Result<Option<ReadsAt>, SessionError> {
        let ((answer, answered), is_wanted) = (bounded(1), Arc::new(()));
        let tables = wishes.iter().map(|wish| wish.table).collect();
        let asked = Asked { engine: self.engine().clone(), tables, answered };
        let wanted = Arc::downgrade(&is_wanted);
        self.link.ask_as_it_stands(AsItStands { tables: wishes.to_vec(), answer, wanted });
        let settled = now() + SETTLES;
        loop {
            match asked.reads(Some(soon(deadline))) {
                Ok(reads) => return Ok(Some(reads)),
                Err(SessionError::Timeout) if self.is_over() => return Err(SessionError::Over),
                Err(SessionError::Timeout) if deadline.is_none_or(|deadline| now() < deadline) => {}
                Err(error) => return Err(error),
            }
            match self.control().shortage() {
                None => return Ok(None),
                Some(shortage) if now() >= settled => return Err(SessionError::Waits(shortage.into())),
                Some(_) => self.link.remind(),
            }
        }
    }
}

/// Returns the time of the next look whether the run waits.
fn soon(deadline: Option<Instant>) -> Instant {
    let soon = now() + LOOKS;
    deadline.map_or(soon, |deadline| deadline.min(soon))
}
