//! Which transactions may run for a whole epoch before those that follow from them, though by the law an event and all
//! that follows from it come before the next event.
//!
//! **Law.** Where a transaction that follows shares no table with another that either writes, running it later cannot be
//! told from running it at its place: it finds the same rows, and what it gives stands in the same order. So the
//! transactions on sources are a first *wave*, those on what they give the next, and so on.

use crate::operators::BatchSize;
use crate::program::{Batch, Bound, Origin, Program, Role, Stream, StreamId, TableId, Transaction, TransactionId};
use typed_index_collections::TiVec;

/// The waves of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    /// The number of transactions that run before each one for the event that it follows from, by transaction.
    pub of: TiVec<TransactionId, usize>,
    /// The streams that lead to each wave but the first; they are filled by transactions of earlier waves.
    pub streams: Vec<Vec<StreamId>>,
}

impl Waves {
    /// Finds them; none where each event has to be followed through before the next: a key is read from a row, a transaction
    /// reads all rows of a table, a
    /// transaction that follows has several inputs, whose events would mix, or it shares a table that is written; and where
    /// transactions are nested, since what one of them does can end all of them.
    pub fn of(program: &Program) -> Option<Waves> {
        Waves::with(program, program.has_stretches())
    }

    /// Returns the waves of a program, given by `within` whether what is due runs in the epochs of events.
    pub(crate) fn with(program: &Program, within: bool) -> Option<Waves> {
        let transactions = &program.transactions;
        if transactions.iter().any(|t| t.is_nested() || t.roles.iter().any(Role::is_found_late)) {
            return None;
        }
        let of: TiVec<TransactionId, usize> = transactions.keys().map(|t| depth(program, t)).collect();
        for (t, transaction) in transactions.iter_enumerated().filter(|(t, _)| of[*t] > 0) {
            let mut others = transactions.iter_enumerated().filter(|(other, _)| *other != t);
            if transaction.inputs.len() > 1 || others.any(|(_, other)| conflict(program, transaction, other, within)) {
                return None;
            }
        }
        let mut streams = vec![Vec::new(); of.iter().copied().max().unwrap_or(0)];
        for (t, transaction) in transactions.iter_enumerated().filter(|(t, _)| of[*t] > 0) {
            let root = program.streams[transaction.inputs[0]].root;
            let wave: &mut Vec<StreamId> = &mut streams[of[t] - 1];
            if !wave.contains(&root) {
                wave.push(root);
            }
        }
        Some(Waves { of, streams })
    }
}

impl Program {
    /// Returns whether what is due can divide the epochs of events into stretches: it is rows that wake and sessions that end, each
    /// event that an epoch is given holds the time of its position, and no event has to be followed through before the next for it.
    pub fn has_stretches(&self) -> bool {
        self.stretches_fit() && (Waves::with(self, true).is_some() || Waves::with(self, false).is_none())
    }

    /// Returns whether nothing but rows that wake is due.
    pub fn only_wakes(&self) -> bool {
        let is_other =
            |stream: &Stream| stream.origin.bound().is_some_and(|bound| !matches!(bound, Bound::Wakes { .. }));
        !self.streams.iter().any(is_other)
    }

    fn stretches_fit(&self) -> bool {
        let is_due = self.streams.iter().any(|stream| matches!(stream.origin, Origin::Due(_)));
        let fits = |stream: &Stream| match &stream.origin {
            Origin::Source { .. } => stream.own_time().is_some(),
            Origin::Due(due) => matches!(due.bound, Bound::Wakes { .. } | Bound::After(_)),
            Origin::LateRoot(_) | Origin::Batch(_) => false,
            _ => true,
        };
        is_due && self.streams.iter().all(fits)
    }

    /// Returns whether an event of a source can lead to a transaction on a table. Others only what is due does.
    pub fn is_touched_by_events(&self, table: TableId) -> bool {
        let touches = |of: &&Transaction| of.roles.iter().any(|role| role.table == table);
        self.transactions.iter().filter(touches).any(|of| causes(self, of, false).contains(&None))
    }
}

/// Returns the longest way from a source to a transaction. There are no cycles.
fn depth(program: &Program, transaction: TransactionId) -> usize {
    let before = |input: &StreamId| match program.streams[program.streams[*input].root].origin {
        Origin::Committed(before) | Origin::Aborted(before) | Origin::Emitted(before, _) => 1 + depth(program, before),
        _ => 0,
    };
    program.transactions[transaction].inputs.iter().map(before).max().unwrap_or(0)
}

/// Returns whether they may meet in a row that one of them writes, in one epoch.
fn conflict(program: &Program, one: &Transaction, other: &Transaction, within: bool) -> bool {
    let (of_one, of_other) = (causes(program, one, within), causes(program, other, within));
    of_one.iter().any(|cause| of_other.contains(cause))
        && one.roles.iter().any(|a| other.roles.iter().any(|b| a.table == b.table && (a.written || b.written)))
}

/// Returns what a transaction follows from: none for the events of sources, which share epochs, or a stream of what is due, which
/// has epochs of its own, or runs `within` the epochs of events.
fn causes(program: &Program, transaction: &Transaction, within: bool) -> Vec<Option<StreamId>> {
    let mut causes = Vec::new();
    for &input in &transaction.inputs {
        let root = program.streams[input].root;
        match program.streams[root].origin {
            Origin::Committed(before) | Origin::Aborted(before) | Origin::Emitted(before, _) => {
                causes.extend(self::causes(program, &program.transactions[before], within));
            }
            Origin::Due(_) if within => causes.push(None),
            Origin::Due(_) | Origin::Batch(Batch { size: BatchSize::Time { .. }, .. }) => causes.push(Some(root)),
            _ => causes.push(None),
        }
    }
    causes
}
