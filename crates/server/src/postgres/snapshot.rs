//! The snapshot that the reads of a block share: the tables as they were at the first of these reads.
//!
//! A call of the block begins anew, so that the reads after it contain it. A snapshot makes epochs save rows, so it is
//! given up once nothing has read it for a while, and the next read of the block fails.

use super::backend::Status;
use super::block::Shared;
use super::catalog::Table;
use super::connection::Connection;
use super::error::{PgError, PgResult, code};
use super::statement::Asked;
use crate::asks::Snapshot;
use arrow_array::RecordBatch;
use std::sync::Arc;
use tidemill_model::arrow::value_at;
use tidemill_model::{FieldType, Value};
use tidemill_runtime::Wish;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

impl Connection {
    /// Returns the snapshot of the open block; none outside of one.
    pub async fn snapshot(&mut self) -> PgResult<Option<Arc<Snapshot>>> {
        if self.block.status() != Status::InBlock {
            return Ok(None);
        }
        match self.held()? {
            Some(held) => Ok(Some(held)),
            None => self.begin(None).await.map(|(_, snapshot)| Some(snapshot)),
        }
    }

    /// Returns the rows of a read in the open block.
    pub async fn rows_in_block(&mut self, table: usize, asked: &Asked) -> PgResult<RecordBatch> {
        let wire = self.wire.clone();
        let table = &wire.catalog.tables[table];
        let snapshot = match (self.held()?, &asked.key) {
            (Some(held), _) => held,
            (None, None) => self.begin(None).await?.1,
            // Nothing of the table is copied but this row.
            (None, Some(key)) => {
                let wish = Wish { table: table.id, keys: Some(vec![key.clone()]) };
                let (rows, _) = self.begin(Some(wish)).await?;
                return Ok(rows.expect("they were asked for"));
            }
        };
        let late = snapshot.table(table.id).expect("it has all tables").clone();
        let read = spawn_blocking(move || late.rows());
        let over = |why: String| PgError::fatal(code::RUN_OVER, why);
        let rows = self.answer(read).await?.map_err(|error| over(error.to_string()))?;
        let rows = rows.map_err(|error| over(error.to_string()))?;
        Ok(match &asked.key {
            None => rows,
            Some(key) => of_key(table, &rows, key),
        })
    }

    /// Returns the snapshot that the block has already.
    fn held(&mut self) -> PgResult<Option<Arc<Snapshot>>> {
        let until = Instant::now() + self.wire.limits.silence_max;
        let lost = || {
            let seconds = self.wire.limits.silence_max.as_secs();
            let message = format!("the block has not read for {seconds} seconds, and what it saw is not kept any more");
            PgError::new(code::SNAPSHOT_TOO_OLD, message).hint("end the block, and begin another one")
        };
        match self.block.shared() {
            Some(Shared::Held(snapshot, end)) => {
                *end = until;
                Ok(Some(snapshot.clone()))
            }
            Some(Shared::GivenUp) => Err(lost()),
            Some(Shared::None) | None => Ok(None),
        }
    }

    async fn begin(&mut self, wish: Option<Wish>) -> PgResult<(Option<RecordBatch>, Arc<Snapshot>)> {
        let wire = self.wire.clone();
        let tables = wire.catalog.tables.iter().map(|table| table.id).collect();
        let busy = || PgError::busy(format!("{} reads and pushes wait for their answers", wire.limits.asks_max));
        let over = |why: &str| PgError::fatal(code::RUN_OVER, why);
        let asked = wire.asks.snapshot(&self.turn.client, wish, tables).ok_or_else(busy)?;
        let answered = self.answer(asked).await?;
        let (rows, snapshot) = answered.map_err(|_| over("the run is over"))?.map_err(|why| over(&why))?;
        let snapshot = Arc::new(snapshot);
        if let Some(shared) = self.block.shared() {
            *shared = Shared::Held(snapshot.clone(), Instant::now() + wire.limits.silence_max);
        }
        Ok((rows, snapshot))
    }
}

/// Returns the row of a key among those of a table, if it is there.
fn of_key(table: &Table, rows: &RecordBatch, key: &[Value]) -> RecordBatch {
    let columns = table.key.iter().map(|&column| {
        let FieldType::Scalar(ty) = table.columns[column].ty else { unreachable!("a key has no lists") };
        (rows.column(column), ty.ty)
    });
    let columns: Vec<_> = columns.collect();
    let is_it = |&row: &usize| columns.iter().zip(key).all(|((array, ty), want)| value_at(array, *ty, row) == *want);
    match (0..rows.num_rows()).find(is_it) {
        Some(row) => rows.slice(row, 1),
        None => rows.slice(0, 0),
    }
}
