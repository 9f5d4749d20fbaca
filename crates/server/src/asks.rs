//! Reads of tables, and events that are pushed: one thread asks the session for all that has come in the meantime.
//!
//! What is asked together is answered with one epoch, which contains what was pushed together, and each call that was
//! answered before.

use crate::slots::{Slot, Slots};
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tidemill_model::Value;
use tidemill_plan::TableId;
use tidemill_runtime::{LateTable, ReadsAt, Session, SessionError, Wish};
use tokio::sync::oneshot;

/// Rows of a table after an epoch.
pub struct TableAt {
    /// The epoch.
    pub epoch: u64,
    /// All rows, sorted by key, or the one that was asked for, if it is there.
    pub rows: RecordBatch,
}

/// Tables as they were after one epoch, which several reads share. A table is copied when it is first read; until then epochs
/// save the rows that they are about to change.
pub struct Snapshot {
    /// The epoch.
    pub epoch: u64,
    complete: Option<i64>,
    tables: BTreeMap<TableId, LateTable>,
}

impl Snapshot {
    fn of(at: ReadsAt, tables: &[TableId]) -> Snapshot {
        let ReadsAt { epoch, complete, tables: late } = at;
        Snapshot { epoch, complete, tables: tables.iter().copied().zip(late).collect() }
    }

    /// A table of it.
    pub fn table(&self, table: TableId) -> Option<&LateTable> {
        self.tables.get(&table)
    }

    /// These tables of it, as a session gives them.
    pub fn reads(&self, tables: &[TableId]) -> ReadsAt {
        let tables = tables.iter().map(|table| self.tables[table].clone()).collect();
        ReadsAt { epoch: self.epoch, complete: self.complete, tables }
    }
}

/// Rows that were asked for together with a snapshot, if there are any.
pub type WithSnapshot = (Option<RecordBatch>, Snapshot);

/// Something to ask the session for, and who waits for it. An error says in words why it cannot be done.
enum Ask {
    Read(Wish, oneshot::Sender<Result<TableAt, String>>, Slot),
    Snapshot(Option<Wish>, Vec<TableId>, oneshot::Sender<Result<WithSnapshot, String>>, Slot),
    Push(usize, RecordBatch, oneshot::Sender<Result<u64, String>>, Slot),
    /// No more: the thread ends.
    End,
}

/// Asks a session.
pub struct Asks {
    asks: Sender<Ask>,
    slots: Slots,
}

impl Asks {
    /// Begins; also the thread.
    pub fn start(session: Arc<Session>, asks_max: usize) -> io::Result<(Arc<Asks>, JoinHandle<()>)> {
        let (asks, asked) = unbounded();
        let asks = Arc::new(Asks { asks, slots: Slots::new(asks_max) });
        let run = move || run(&session, &asked);
        Ok((asks, thread::Builder::new().name("asks".into()).spawn(run)?))
    }

    /// The rows of a table after the next epoch; none if too much is asked at once.
    pub fn table(&self, table: TableId) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        self.read(Wish::whole(table))
    }

    /// The row of a key after the next epoch, if there is one; the table is not copied. None as above.
    pub fn row(&self, table: TableId, key: Vec<Value>) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        self.read(Wish { table, keys: Some(vec![key]) })
    }

    /// Tables after the next epoch, of which nothing is copied yet, and rows of the same epoch. None as above.
    pub fn snapshot(
        &self,
        rows: Option<Wish>,
        tables: Vec<TableId>,
    ) -> Option<oneshot::Receiver<Result<WithSnapshot, String>>> {
        let (to, answer) = oneshot::channel();
        let _ = self.asks.send(Ask::Snapshot(rows, tables, to, self.slots.take()?));
        Some(answer)
    }

    fn read(&self, wish: Wish) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        let (to, answer) = oneshot::channel();
        let ask = Ask::Read(wish, to, self.slots.take()?);
        // Without the thread the channel is closed without an answer.
        let _ = self.asks.send(ask);
        Some(answer)
    }

    /// Sends events to a source; the answer is the epoch by whose release they are in the history. None as above.
    pub fn push(&self, source: usize, events: RecordBatch) -> Option<oneshot::Receiver<Result<u64, String>>> {
        let (to, answer) = oneshot::channel();
        let ask = Ask::Push(source, events, to, self.slots.take()?);
        let _ = self.asks.send(ask);
        Some(answer)
    }

    /// Ends the thread, once nothing is under way.
    pub fn stop(&self) {
        let _ = self.asks.send(Ask::End);
    }
}

fn run(session: &Session, asked: &Receiver<Ask>) {
    while let Ok(first) = asked.recv() {
        if answer(session, std::iter::once(first).chain(asked.try_iter())) {
            return;
        }
    }
}

/// Sends what is pushed, and answers with one epoch after that. Whether it is the end.
fn answer(session: &Session, asks: impl Iterator<Item = Ask>) -> bool {
    let mut is_end = false;
    let (mut reads, mut pushes, mut wishes) = (Vec::new(), Vec::new(), Vec::<Wish>::new());
    let mut snapshots = Vec::new();
    for ask in asks {
        match ask {
            Ask::End => is_end = true,
            Ask::Snapshot(rows, tables, to, slot) => snapshots.push((rows, tables, to, slot)),
            Ask::Read(wish, to, slot) => {
                // Those who read a whole table share it.
                let shared = wishes.iter().position(|other| wish.keys.is_none() && *other == wish);
                reads.push((shared.unwrap_or(wishes.len()), to, slot));
                if shared.is_none() {
                    wishes.push(wish);
                }
            }
            Ask::Push(source, events, to, slot) => match session.send(source, &events, None) {
                Ok(_) => pushes.push((to, slot)),
                Err(error) => _ = to.send(Err(error.to_string())),
            },
        }
    }
    for (rows, tables, to, _slot) in snapshots {
        let _ = to.send(snapshot(session, rows, &tables).map_err(|error| error.to_string()));
    }
    if reads.is_empty() && pushes.is_empty() {
        return is_end;
    }
    match session.read(wishes, None) {
        Ok(at) => {
            for (place, to, _slot) in reads {
                let _ = to.send(Ok(TableAt { epoch: at.epoch, rows: at.tables[place].clone() }));
            }
            pushes.into_iter().for_each(|(to, _slot)| _ = to.send(Ok(at.epoch)));
        }
        Err(error) => {
            reads.into_iter().for_each(|(_, to, _slot)| _ = to.send(Err(error.to_string())));
            pushes.into_iter().for_each(|(to, _slot)| _ = to.send(Err(error.to_string())));
        }
    }
    is_end
}

fn snapshot(session: &Session, rows: Option<Wish>, tables: &[TableId]) -> Result<WithSnapshot, SessionError> {
    let mut wishes: Vec<Wish> = tables.iter().copied().map(Wish::whole).collect();
    let wants_rows = rows.is_some();
    wishes.extend(rows);
    let mut at = session.ask_to_read(wishes, None)?.reads(None)?;
    let rows = if wants_rows { at.tables.pop() } else { None };
    Ok((rows.map(|rows| rows.rows()).transpose()?, Snapshot::of(at, tables)))
}
