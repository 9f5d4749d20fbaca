//! Transactions that only fold events into a row of their group: late merging.
//!
//! Events may be folded apart into *partial* rows, one for each group among them, that begin as rows that are missing.
//! Merging the partial rows into the rows of the table, in the order in which their groups came first, then gives what
//! the transactions give one after the other.
//!
//! **Law.** Let a transaction have a [`Fold`]. Then its rows after any sequence of events are the rows before it, into
//! which the partial rows of the sequence are merged; and what becomes of each event is the same.

use crate::program::{Fold, Origin, Program, Role, StreamId, TableId, Transaction, TransactionId};
use crate::waves::Waves;

impl Program {
    /// Returns the fold by which a transaction's events may be folded apart, if they may: nothing else touches its
    /// tables in the epochs of its events, and it does not follow from another transaction.
    pub fn fold(&self, id: TransactionId) -> Option<&Fold> {
        let transaction = &self.transactions[id];
        let fold = transaction.fold.as_ref()?;
        let origin = |input: StreamId| &self.streams[self.streams[input].root].origin;
        let ([input], [role]) = (&transaction.inputs[..], &transaction.roles[..]) else { return None };
        let alone = |table: TableId| {
            let touches = |of: &Transaction| of.roles.iter().any(|role: &Role| role.table == table);
            let mut others = self.transactions.iter_enumerated().filter(|(other, of)| *other != id && touches(of));
            others.all(|(_, of)| of.inputs.iter().all(|&input| matches!(origin(input), Origin::Due(_))))
        };
        let may = origin(*input).is_of_source() && self.tables[role.table].is_hidden && alone(role.table);
        (may && Waves::of(self).is_some()).then_some(fold)
    }
}
