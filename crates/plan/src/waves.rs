//! Which transactions may run for a whole epoch before those that follow from them, though by the law an event and all
//! that follows from it come before the next event.
//!
//! **Law.** Where a transaction that follows shares no table with another that either writes, running it later cannot be
//! told from running it at its place: it finds the same rows, and what it gives stands in the same order. So the
//! transactions on sources are a first *wave*, those on what they give the next, and so on.

use crate::program::{Batch, BatchSize, Origin, Program, Role, StreamId, TableId, Transaction, TransactionId};
use typed_index_collections::TiVec;

/// The waves of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    /// By transaction: how many run before it for the event that it follows from.
    pub of: TiVec<TransactionId, usize>,
    /// Of each wave but the first: the streams, filled by transactions of earlier waves, that lead to it.
    pub streams: Vec<Vec<StreamId>>,
}

impl Waves {
    /// Finds them; none where each event has to be followed through before the next: a key is read from a row, a transaction
    /// reads all rows of a table, a
    /// transaction that follows has several inputs, whose events would mix, or it shares a table that is written; and where
    /// transactions are nested, since what one of them does can end all of them.
    pub fn of(program: &Program) -> Option<Waves> {
        let transactions = &program.transactions;
        if transactions.iter().any(|t| t.is_nested() || t.roles.iter().any(Role::is_found_late)) {
            return None;
        }
        let of: TiVec<TransactionId, usize> = transactions.keys().map(|t| depth(program, t)).collect();
        for (t, transaction) in transactions.iter_enumerated().filter(|(t, _)| of[*t] > 0) {
            let mut others = transactions.iter_enumerated().filter(|(other, _)| *other != t);
            if transaction.inputs.len() > 1 || others.any(|(_, other)| conflict(program, transaction, other)) {
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
    /// Whether an event of a source can lead to a transaction on a table. Others only what is due does.
    pub fn is_touched_by_events(&self, table: TableId) -> bool {
        let touches = |of: &&Transaction| of.roles.iter().any(|role| role.table == table);
        self.transactions.iter().filter(touches).any(|of| causes(self, of).contains(&None))
    }
}

/// The longest way from a source to a transaction. There are no cycles.
fn depth(program: &Program, transaction: TransactionId) -> usize {
    let before = |input: &StreamId| match program.streams[program.streams[*input].root].origin {
        Origin::Committed(before) | Origin::Aborted(before) | Origin::Emitted(before, _) => 1 + depth(program, before),
        _ => 0,
    };
    program.transactions[transaction].inputs.iter().map(before).max().unwrap_or(0)
}

/// Whether they may meet in a row that one of them writes, in one epoch.
fn conflict(program: &Program, one: &Transaction, other: &Transaction) -> bool {
    let (of_one, of_other) = (causes(program, one), causes(program, other));
    of_one.iter().any(|cause| of_other.contains(cause))
        && one.roles.iter().any(|a| other.roles.iter().any(|b| a.table == b.table && (a.written || b.written)))
}

/// What a transaction follows from: none for the events of sources, which share epochs, or a stream of what is due, which
/// has epochs of its own.
fn causes(program: &Program, transaction: &Transaction) -> Vec<Option<StreamId>> {
    let mut causes = Vec::new();
    for &input in &transaction.inputs {
        let root = program.streams[input].root;
        match program.streams[root].origin {
            Origin::Committed(before) | Origin::Aborted(before) | Origin::Emitted(before, _) => {
                causes.extend(self::causes(program, &program.transactions[before]));
            }
            Origin::Due(_) | Origin::Batch(Batch { size: BatchSize::Time { .. }, .. }) => causes.push(Some(root)),
            _ => causes.push(None),
        }
    }
    causes
}
