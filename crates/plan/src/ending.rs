//! The streams and transactions that follow from operators which are ended before their time: the results come at ends
//! that have not been reached. So nothing that goes by the time of these results may follow from them, unless it is
//! ended too.

use crate::{Definition, OperatorKind, Program, Transaction, TransactionId};

impl Program {
    /// Checks that operators of these names can be ended; says why not.
    pub fn check_ended(&self, names: &[String]) -> Result<(), String> {
        let mut seen = vec![false; self.transactions.len()];
        let mut next: Vec<TransactionId> = Vec::new();
        for (id, transaction) in self.transactions.iter_enumerated() {
            if self.operator_of(transaction).is_some_and(|operator| names.contains(&operator.name)) {
                next.push(id);
            }
        }
        for stream in self.streams.iter().filter(|stream| names.contains(&stream.name)) {
            next.extend(stream.deliveries.iter().map(|delivery| delivery.transaction));
        }
        while let Some(id) = next.pop() {
            if std::mem::replace(&mut seen[usize::from(id)], true) {
                continue;
            }
            let transaction = &self.transactions[id];
            match self.operator_of(transaction) {
                Some(operator) if names.contains(&operator.name) => {}
                Some(operator) => {
                    let name = &operator.name;
                    return Err(format!(
                        "{} takes what it gives, and goes by its time: end {name}, too",
                        operator.shown()
                    ));
                }
                None => self.check_timeless(transaction)?,
            }
            let emitted = transaction.emits.iter().map(|emit| emit.stream);
            for stream in emitted.chain([transaction.committed.stream, transaction.aborted]) {
                next.extend(self.streams[stream].deliveries.iter().map(|delivery| delivery.transaction));
            }
        }
        Ok(())
    }

    /// Returns the operator that a transaction is a part of.
    fn operator_of(&self, transaction: &Transaction) -> Option<&Definition> {
        self.operators[transaction.owner?.operator].definition.as_ref()
    }

    /// Checks that a transaction does not use the time of its position.
    fn check_timeless(&self, transaction: &Transaction) -> Result<(), String> {
        let name = &transaction.name;
        for role in &transaction.roles {
            let table = &self.tables[role.table];
            if let Some(column) = table.columns.iter().find(|column| column.window.is_some()) {
                return Err(format!(
                    "transaction {name} takes what it gives, and the windowed column {}.{} goes by its time",
                    table.name, column.name
                ));
            }
            if table.expire.is_some() && role.written {
                return Err(format!(
                    "transaction {name} takes what it gives, and has rows of {} expire by its time",
                    table.name
                ));
            }
            let operator = table.owner.map(|owner| &self.operators[owner.operator]);
            if let Some(OperatorKind::Wakes(table)) = operator.map(|operator| &operator.kind) {
                return Err(format!(
                    "transaction {name} takes what it gives, and has rows of {} woken by its time",
                    self.tables[*table].name
                ));
            }
        }
        Ok(())
    }
}
