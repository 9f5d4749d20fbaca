//! A short digest of each epoch's results, so that a replay, another run or the reference interpreter can be compared
//! with the released results.
//!
//! 1. The worker that finishes an epoch digests its outputs, concurrently with other epochs.
//! 2. The committer, which processes epochs in order, passes the digest on and adds it to the total.
//! 3. The logger writes waiting digests with an entry of the same or a later epoch; the rest go into a note at the end
//!    of the run. So the log contains all but the last few digests before a crash.
//! 4. A replay must reproduce the digests that it finds in the log; it logs those that it does not find.
//! 5. A checkpoint contains the total up to its epoch.
//!
//! Tables have no digest: it would cost a few instructions for every write while transactions run. An audit compares
//! the rows of the newest checkpoint with rows that it computes itself.

use crate::encoding::{Malformed, Reader, number};
use crate::packed::{PackedCodec, read_packed};
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tidemill_durability::StateError;
use tidemill_model::StreamDigest;
use tidemill_plan::Program;
use tidemill_stages::digest::EpochDigest;

/// Digests by epoch.
pub type EpochDigests = Vec<(u64, EpochDigest)>;

/// Appends digests as bytes.
pub fn write_digests(digests: &EpochDigests, codec: &mut PackedCodec, into: &mut Vec<u8>) {
    number(into, digests.len() as u64);
    for (epoch, digest) in digests {
        number(into, *epoch);
        write_digest(digest, codec, into);
    }
}

/// Reads digests back, given the schemas of the transactions' outputs.
pub fn read_digests(reader: &mut Reader<'_>, schemas: &[SchemaRef]) -> Result<EpochDigests, Malformed> {
    (0..reader.number()?).map(|_| Ok((reader.number()?, read_digest(reader, schemas)?))).collect()
}

fn write_digest(digest: &EpochDigest, codec: &mut PackedCodec, into: &mut Vec<u8>) {
    let results = digest.committed.len();
    assert!(results == 0 || results == digest.transactions.len(), "a digest has all transactions' results or none");
    number(into, digest.sinks.len() as u64);
    for sink in &digest.sinks {
        number(into, sink.events);
        if sink.events > 0 {
            into.extend_from_slice(&sink.hash.to_le_bytes());
        }
    }
    number(into, digest.transactions.len() as u64);
    for (committed, aborted) in &digest.transactions {
        number(into, *committed);
        number(into, *aborted);
    }
    number(into, digest.committed.len() as u64);
    for batch in &digest.committed {
        into.push(u8::from(batch.is_some()));
        if let Some(batch) = batch {
            codec.write(batch, into);
        }
    }
}

fn read_digest(reader: &mut Reader<'_>, schemas: &[SchemaRef]) -> Result<EpochDigest, Malformed> {
    let mut digest = EpochDigest::default();
    for _ in 0..reader.number()? {
        let events = reader.number()?;
        let hash = if events > 0 { reader.word()? } else { 0 };
        digest.sinks.push(StreamDigest { events, hash });
    }
    for _ in 0..reader.number()? {
        digest.transactions.push((reader.number()?, reader.number()?));
    }
    let count = reader.number()?;
    if count != 0 && (count != schemas.len() as u64 || schemas.len() != digest.transactions.len()) {
        return Err(Malformed("it is of another number of transactions".into()));
    }
    for (schema, (committed, _)) in schemas.iter().zip(&digest.transactions).take(count as usize) {
        let batch = if reader.byte()? == 0 { None } else { Some(read_packed(reader, schema, *committed)?) };
        digest.committed.push(batch);
    }
    Ok(digest)
}

/// Digests by the names of the sinks.
pub fn outputs_by_name(program: &Program, total: Vec<StreamDigest>) -> BTreeMap<String, StreamDigest> {
    assert_eq!(total.len(), program.sinks.len(), "the total has a digest of each sink");
    program.sinks.iter().map(|sink| sink.name.clone()).zip(total).collect()
}

/// The digests of a run. The committer adds them, the logger takes them, and the gate compares them during a replay.
#[derive(Default)]
pub struct Digests(Mutex<State>);

#[derive(Default)]
struct State {
    /// The digest of each sink's output since the beginning of the state, by sink.
    total: Vec<StreamDigest>,
    /// The digests that are not yet in the log.
    unlogged: EpochDigests,
    /// Found in the log; their epochs are not yet finished.
    logged: BTreeMap<u64, EpochDigest>,
    /// The digests of replayed epochs that were not yet found in the log.
    replayed: BTreeMap<u64, EpochDigest>,
    /// A flag: whether the log was read to its end.
    read: bool,
}

impl State {
    /// Adds a digest that has to be logged.
    fn push(&mut self, epoch: u64, digest: EpochDigest) {
        let last = self.unlogged.last().map(|(last, _)| *last);
        assert!(last < Some(epoch), "digests wait for the log in the order of epochs");
        self.unlogged.push((epoch, digest));
    }
}

impl Digests {
    /// Continues from a total.
    pub fn new(total: Vec<StreamDigest>) -> Digests {
        Digests(Mutex::new(State { total, ..State::default() }))
    }

    /// Adds the digest of a finished epoch, the next in order.
    pub fn finished(
        &self,
        epoch: u64,
        digest: EpochDigest,
        replayed: bool,
        program: &Program,
    ) -> Result<(), StateError> {
        let state = &mut *self.0.lock();
        assert_eq!(state.total.len(), digest.sinks.len(), "an epoch has a digest of each sink");
        for (total, sink) in state.total.iter_mut().zip(&digest.sinks) {
            *total = total.then(*sink);
        }
        if !replayed {
            state.push(epoch, digest);
        } else if let Some(logged) = state.logged.remove(&epoch) {
            return agree(epoch, &logged, &digest, program);
        } else if state.read {
            state.push(epoch, digest);
        } else {
            state.replayed.insert(epoch, digest);
        }
        Ok(())
    }

    /// Adds a digest that the log has of an epoch that is replayed.
    pub fn found(&self, epoch: u64, digest: EpochDigest, program: &Program) -> Result<(), StateError> {
        let state = &mut *self.0.lock();
        assert!(!state.read, "the log has no more digests after its end");
        match state.replayed.remove(&epoch) {
            Some(replayed) => agree(epoch, &digest, &replayed, program),
            None => {
                state.logged.insert(epoch, digest);
                Ok(())
            }
        }
    }

    /// Takes note that the log was read to its end: digests that were not found there have to be logged.
    pub fn read(&self) {
        let state = &mut *self.0.lock();
        assert!(state.unlogged.is_empty(), "no new epoch is finished before the log was read");
        state.read = true;
        let replayed = std::mem::take(&mut state.replayed);
        state.unlogged.splice(..0, replayed);
    }

    /// Takes the digests to be logged with, or after, the entry of an epoch; never a digest of a later epoch. If a
    /// crash removed that epoch from the log and another epoch got its number, the digest would remain for the wrong
    /// epoch.
    pub fn take_unlogged(&self, through: u64) -> EpochDigests {
        let unlogged = &mut self.0.lock().unlogged;
        let count = unlogged.partition_point(|(epoch, _)| *epoch <= through);
        unlogged.drain(..count).collect()
    }

    /// Returns the total of all epochs so far, by sink.
    pub fn total(&self) -> Vec<StreamDigest> {
        self.0.lock().total.clone()
    }
}

fn agree(epoch: u64, logged: &EpochDigest, replayed: &EpochDigest, program: &Program) -> Result<(), StateError> {
    match logged.difference(replayed, program, ["the run that logged it", "the replay"]) {
        None => Ok(()),
        Some(difference) => Err(StateError::Refused(format!(
            "epoch {epoch} comes to other results now than when it was logged: {difference}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use std::sync::Arc;

    /// A logger that lags the workers must not log a digest before its epoch: a crash could lose the epoch and keep the
    /// digest.
    #[test]
    fn a_digest_waits_for_its_entry() {
        let program = tidemill_plan::analyze(&tidemill_plan::build::PlanBuilder::new("none").build()).expect("a plan");
        let digests = Digests::new(Vec::new());
        for epoch in 1..=3 {
            digests.finished(epoch, EpochDigest::default(), false, &program).expect("nothing to compare with");
        }
        let epochs = |through| digests.take_unlogged(through).iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>();
        assert_eq!([epochs(0), epochs(2), epochs(2), epochs(9)], [vec![], vec![1, 2], vec![], vec![3]]);
    }

    #[test]
    fn digests_read_back() {
        let digest = |events| EpochDigest {
            sinks: vec![StreamDigest { events, hash: if events > 0 { 77 } else { 0 } }, StreamDigest::default()],
            transactions: vec![(events, 300)].into(),
            committed: Default::default(),
        };
        let batch = RecordBatch::try_from_iter([("amount", Arc::new(Int64Array::from(vec![4, -4])) as ArrayRef)]);
        let batch = batch.expect("a column");
        let full = EpochDigest { committed: vec![Some(batch.clone())].into(), ..digest(2) };
        let schemas = [batch.schema()];
        let digests = vec![(5, digest(0)), (6, digest(1_000_000)), (7, full)];
        let mut bytes = Vec::new();
        write_digests(&digests, &mut PackedCodec::default(), &mut bytes);
        assert_eq!(read_digests(&mut Reader(&bytes), &schemas), Ok(digests));
        assert!(read_digests(&mut Reader(&bytes[..bytes.len() - 1]), &schemas).is_err());
        assert!(read_digests(&mut Reader(&bytes), &[]).is_err());
    }
}
