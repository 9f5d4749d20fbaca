//! The parts of operators, looked up in a program: from a table, stream or transaction to its part, and back.

use crate::definitions::Definition;
use crate::operators::{Owner, StreamPart, TablePart, TransactionPart};
use crate::program::{Origin, Program, Stream, Table, Transaction};
use crate::{OperatorId, StreamId, TableId, TransactionId};

impl Program {
    /// Returns the definitions of its operators, to be compared with those of a state.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.operators.iter().filter_map(|operator| operator.definition.as_ref())
    }

    /// Returns a part of an operator that is a table, if it has it.
    pub fn table_of(&self, operator: OperatorId, part: TablePart) -> Option<TableId> {
        let owner = Some(Owner { operator, part });
        self.tables.iter_enumerated().find(|(_, table)| table.owner == owner).map(|(id, _)| id)
    }

    /// Returns a part of an operator that is a stream, if it has it: the first one.
    pub fn stream_of(&self, operator: OperatorId, part: StreamPart) -> Option<StreamId> {
        let owner = Some(Owner { operator, part });
        self.streams.iter_enumerated().find(|(_, stream)| stream.owner == owner).map(|(id, _)| id)
    }

    /// Returns a part of an operator that is a transaction, if it has it.
    pub fn transaction_of(&self, operator: OperatorId, part: TransactionPart) -> Option<TransactionId> {
        let owner = Some(Owner { operator, part });
        self.transactions.iter_enumerated().find(|(_, transaction)| transaction.owner == owner).map(|(id, _)| id)
    }

    /// Returns whether users know a stream: it is declared, or comes with what is; it is not one of those that an operator, or
    /// late events as inputs, are made of.
    pub fn is_shown(&self, id: StreamId) -> bool {
        match self.streams[id].origin {
            Origin::LateRoot(_) => false,
            Origin::Failed(of) if self.late_of(of).is_some() => false,
            _ => self.streams[id].owner.is_none_or(|owner| owner.part.is_shown()),
        }
    }

    /// Returns whether a transaction passes on the first events of a stream. It has no stream of aborts.
    pub fn gives_first(&self, transaction: TransactionId) -> bool {
        self.transactions[transaction].part() == Some(TransactionPart::Pass)
    }
}

impl Transaction {
    /// Returns the part that it is of an operator, if it is one.
    pub fn part(&self) -> Option<TransactionPart> {
        self.owner.map(|owner| owner.part)
    }

    /// Returns whether it is a part of an operator that users do not know.
    pub fn is_hidden(&self) -> bool {
        self.part().is_some_and(|part| !part.is_shown())
    }
}

impl Stream {
    /// Returns the part that it is of an operator, if it is one.
    pub fn part(&self) -> Option<StreamPart> {
        self.owner.map(|owner| owner.part)
    }
}

impl Table {
    /// Returns the part that it is of an operator, if it is one.
    pub fn part(&self) -> Option<TablePart> {
        self.owner.map(|owner| owner.part)
    }

    /// Returns the name of the operator that a hidden table of a state is a part of, and the part. A state has them in the table's
    /// name only.
    pub fn written_owner(&self) -> Option<(&str, TablePart)> {
        let (operator, part) = self.name.rsplit_once('.').filter(|_| self.is_hidden)?;
        TablePart::ALL.into_iter().find(|of| of.name() == part).map(|part| (operator, part))
    }
}
