//! The chain of proof of a state: its heads, hashed again from the log, against those that checkpoints have and one that was
//! noted elsewhere.

use crate::error::AuditError;
use serde::{Serialize, Serializer};
use tidemill_durability::{Chain, Course, Head, LogReader, Restored, StateDirectory, StateError};

/// The part of a chain that was hashed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proven {
    /// The epoch after which the chain begins.
    pub begins: u64,
    /// The epoch after which entries were hashed again.
    pub from: u64,
    /// The number of entries that were hashed again.
    pub entries: u64,
    /// The head of the last epoch that is known to be durable.
    #[serde(serialize_with = "as_text")]
    pub head: Head,
    /// The hash of the runs of the newest checkpoint; none if some were not hashed when they were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The number of these runs, and how many of them were compared with their hashes.
    pub runs: (usize, usize),
    /// The relation to the anchor that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchored>,
}

/// The relation of a state to an anchor: a head that was noted elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anchored {
    /// The anchor.
    #[serde(serialize_with = "as_text")]
    pub head: Head,
    /// The epoch of the newest checkpoint, if the anchor is before it: then the checkpoint follows the anchor, and what it
    /// has was not run again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// The epoch of the savepoint, if the anchor is the head before a return to one, or that of the savepoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
}

fn as_text<S: Serializer>(head: &Head, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(head)
}

/// Hashes the entries of a state's log again, from the newest checkpoint or from a savepoint on, and compares the heads with
/// those that the checkpoint and the anchor have. None if the state has no chain. An anchor before the start begins the
/// chain itself, if the log still has all entries after it.
pub fn prove(
    directory: &StateDirectory,
    savepoint: Option<&StateDirectory>,
    anchor: Option<Head>,
) -> Result<Option<Proven>, AuditError> {
    let newest = directory.chain();
    if let Some(savepoint) = savepoint {
        savepoint.check_runs()?;
    }
    let (hashed, runs) = directory.check_runs()?;
    let Some(start) = savepoint.unwrap_or(directory).chain() else {
        return match anchor {
            Some(anchor) => Err(no_chain(directory, anchor)),
            None => Ok(None),
        };
    };
    let given = anchor;
    let restored = directory.manifest().map(|manifest| manifest.restored.as_slice()).unwrap_or_default();
    let (anchor, put_back) = after_returns(directory.course().id, restored, anchor);
    let is_before = anchor.is_some_and(|anchor| anchor.epoch < start.head().epoch);
    let chain = match anchor.filter(|_| is_before) {
        Some(anchor) if anchor.epoch < start.begins() => return Err(before_the_chain(anchor, start.begins())),
        Some(anchor) if !directory.has_log_from(anchor.epoch)? => return Err(gone(anchor, start.head().epoch)),
        Some(anchor) => start.from(anchor),
        None => start,
    };
    let course = directory.course();
    let entry = restored.last().filter(|entry| entry.course == course.number).map(|entry| entry.head(course.id));
    let anew = newest.map(|newest| newest.begins()).filter(|begins| *begins != start.begins());
    let newest_head = newest.map(|newest| newest.head());
    let mut proving = Proving { course, newest: newest_head, anew, entry, anchor, last: chain.head() };
    let mut log = directory.log_behind(chain.head().epoch)?;
    log.prove(Some(chain));
    let entries = proving.run(&mut log)?;
    let head = log.durable_head().expect("a chain is kept");
    let before = newest.map(|newest| newest.head().epoch).filter(|newest| is_before && proving.last.epoch >= *newest);
    let anchor = given.map(|head| Anchored { head, before, restored: put_back });
    let root = directory.checkpoint().and_then(|checkpoint| checkpoint.proof?.root).map(|root| root.to_string());
    let (begins, from, runs) = (start.begins(), chain.head().epoch, (runs, hashed));
    Ok(Some(Proven { begins, from, entries, head, root, runs, anchor }))
}

/// Returns the anchor; where it is the head before a return to a savepoint, or that savepoint's, the head after the return, and
/// the savepoint's epoch. Such an entry covers both.
fn after_returns(id: u64, restored: &[Restored], anchor: Option<Head>) -> (Option<Head>, Option<u64>) {
    restored.iter().fold((anchor, None), |(anchor, put_back), entry| {
        let savepoint = Head { epoch: entry.epoch, hash: entry.savepoint };
        match [entry.before(), savepoint].map(Some).contains(&anchor) {
            true => (Some(entry.head(id)), Some(entry.epoch)),
            false => (anchor, put_back),
        }
    })
}

/// Returns the head of an epoch after a checkpoint or a savepoint; none if the state has no chain, or if it is not known that
/// the epoch is durable.
pub fn head_of(
    directory: &StateDirectory,
    savepoint: Option<&StateDirectory>,
    epoch: u64,
) -> Result<Option<Head>, AuditError> {
    let Some(chain) = savepoint.unwrap_or(directory).chain() else { return Ok(None) };
    let mut log = directory.log_behind(chain.head().epoch)?;
    log.prove(Some(chain));
    let mut found = None;
    while log.durable_epoch() < epoch && log.next_epoch()?.is_some() {
        found = found.or(head(&log).filter(|head| head.epoch == epoch));
    }
    Ok(found.filter(|_| log.durable_epoch() >= epoch))
}

fn head(log: &LogReader) -> Option<Head> {
    log.proof().as_ref().map(Chain::head)
}

/// The comparison of heads.
struct Proving {
    course: Course,
    /// The head that the newest checkpoint has.
    newest: Option<Head>,
    /// The epoch after which its chain begins, as long as that is another one than the chain that is followed: a run kept none
    /// between them.
    anew: Option<u64>,
    /// The head after the return to a savepoint with which the course began.
    entry: Option<Head>,
    anchor: Option<Head>,
    /// The last head that was compared.
    last: Head,
}

impl Proving {
    /// Reads the log to its end; returns the number of entries.
    fn run(&mut self, log: &mut LogReader) -> Result<u64, AuditError> {
        let mut entries = 0;
        self.compare(log)?;
        while log.next_epoch()?.is_some() {
            self.last = head(log).expect("a chain is kept");
            self.compare(log)?;
            entries += 1;
        }
        match self.anchor.filter(|anchor| anchor.epoch > self.last.epoch) {
            Some(anchor) => Err(AuditError::Differs(format!(
                "the state ends with epoch {}, and the anchor is of epoch {}: the epochs after {0} are missing",
                self.last.epoch, anchor.epoch
            ))),
            None => Ok(entries),
        }
    }

    /// Compares the last head, and follows the chain of the newest checkpoint where that begins.
    fn compare(&mut self, log: &mut LogReader) -> Result<(), AuditError> {
        let before = self.last;
        if self.anew == Some(before.epoch) {
            let chain = Chain::begin(self.course, before.epoch);
            (self.anew, self.last) = (None, chain.head());
            log.prove(Some(chain));
        }
        let last = self.last;
        let other = |head: &Head| head.epoch == last.epoch && ![before, last].contains(head);
        if let Some(newest) = self.newest.filter(|head| other(head) && self.anew.is_none()) {
            return Err(AuditError::Differs(format!(
                "the checkpoint of epoch {} has the head {}, and {} follows from the entries before it: it is not a \
                 checkpoint of these entries",
                last.epoch, newest.hash, last.hash
            )));
        }
        if let Some(entry) = self.entry.filter(other) {
            return Err(AuditError::Differs(format!(
                "the head of epoch {} is {}, and {} follows from the return to the savepoint of that epoch",
                last.epoch, last.hash, entry.hash
            )));
        }
        if let Some(anchor) = self.anchor.filter(other) {
            return Err(AuditError::Differs(format!(
                "the head of epoch {} is {}, and the anchor says {}: an entry up to this epoch is not the one that was \
                 written then",
                last.epoch, last.hash, anchor.hash
            )));
        }
        Ok(())
    }
}

fn no_chain(directory: &StateDirectory, anchor: Head) -> AuditError {
    AuditError::State(StateError::Refused(format!(
        "the state {} has no chain of proof, so nothing can be compared with the anchor of epoch {}: its last run was \
         with --proof off, or with an earlier version",
        directory.path().display(),
        anchor.epoch
    )))
}

fn before_the_chain(anchor: Head, begins: u64) -> AuditError {
    AuditError::State(StateError::Refused(format!(
        "the chain of proof begins after epoch {begins}, and the anchor is of epoch {}: it is not shown that the state \
         follows it",
        anchor.epoch
    )))
}

fn gone(anchor: Head, checkpoint: u64) -> AuditError {
    AuditError::State(StateError::Refused(format!(
        "the anchor is of epoch {}, before the checkpoint of epoch {checkpoint}, and the log between them is gone: it is \
         not shown that the state follows the anchor; a savepoint keeps the log after it, and anchors of epoch \
         {checkpoint} or later can be compared",
        anchor.epoch
    )))
}
