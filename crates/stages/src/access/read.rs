//! Tables, or some of their rows, as they were after an epoch, which readers copy while later epochs run.

use crate::machine::Machine;
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::sync::Arc;
use tidemill_model::Value;
use tidemill_plan::{Program, TableId};
use tidemill_state::{PointRead, ReadSnapshot};
use typed_index_collections::TiVec;

/// The values of a key, by key column.
pub type Key = Vec<Value>;

/// A request to read a table: the rows of these keys, or all.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The table.
    pub table: TableId,
    /// The keys; none for all rows. Their values have the types of the key columns, and are no floats.
    pub keys: Option<Vec<Key>>,
}

impl Wish {
    /// Returns all rows.
    pub fn whole(table: TableId) -> Wish {
        Wish { table, keys: None }
    }
}

/// A table, or some of its rows, as it was after an epoch. Several readers may have a whole one; the first one that asks for
/// the rows copies them on its own thread. As long as it is held and not copied, epochs copy the rows that they are about to
/// change. Rows of keys were copied when it began, unless they were evicted. A whole copy is kept until the table changes, and
/// whoever reads the table meanwhile is given it.
pub struct TableRead {
    machine: Arc<Machine>,
    table: TableId,
    content: Content,
    copy: Arc<Mutex<Copied>>,
}

enum Content {
    Whole(Arc<ReadSnapshot>),
    OfKeys(PointRead),
    /// An earlier reader's copy.
    Kept,
}

/// The copied rows of a table.
#[derive(Clone, Default)]
enum Copied {
    #[default]
    None,
    /// All rows, in no order.
    Batches(Vec<RecordBatch>),
    /// All rows in one batch, sorted by key.
    Sorted(RecordBatch),
    /// The reason why evicted rows cannot be read.
    Failed(String),
}

/// The last copy of each table, while it holds the table's rows as they are.
pub struct Kept {
    last: TiVec<TableId, Mutex<Option<Arc<Mutex<Copied>>>>>,
    /// The tables that transactions write.
    written: Vec<TableId>,
}

impl Kept {
    /// Makes an empty set of copies.
    pub fn of(program: &Program) -> Kept {
        let roles = || program.transactions.iter().flat_map(|transaction| &transaction.roles);
        let is_written = |&table: &TableId| roles().any(|role| role.table == table && role.written);
        Kept {
            last: program.tables.iter().map(|_| Mutex::new(None)).collect(),
            written: program.tables.keys().filter(is_written).collect(),
        }
    }

    /// Returns whether there are copies of tables that may change.
    pub fn is_some(&self) -> bool {
        self.written.iter().any(|&table| self.last[table].lock().is_some())
    }

    /// Forgets the copy of a table that is about to change.
    pub fn forget(&self, table: TableId) {
        *self.last[table].lock() = None;
    }

    /// Returns the copy of a table, if it was made.
    fn copied(&self, table: TableId) -> Option<Arc<Mutex<Copied>>> {
        // Who copies it now has it locked: an epoch does not wait for that.
        let is_there = |copy: &Arc<Mutex<Copied>>| {
            copy.try_lock().is_some_and(|copy| matches!(*copy, Copied::Batches(_) | Copied::Sorted(_)))
        };
        self.last[table].lock().clone().filter(is_there)
    }
}

impl TableRead {
    /// Returns the rows, sorted by key. An error says why evicted rows cannot be read.
    pub fn rows(&self) -> Result<RecordBatch, String> {
        let mut copy = self.copy.lock();
        let batches = match self.copied(&mut copy) {
            Copied::Sorted(rows) => return Ok(rows.clone()),
            Copied::Failed(reason) => return Err(reason.clone()),
            Copied::Batches(batches) => batches.clone(),
            Copied::None => unreachable!("it is copied"),
        };
        let rows = self.machine.tables[self.table].sorted(&batches);
        *copy = Copied::Sorted(rows.clone());
        Ok(rows)
    }

    /// Returns the rows in no order, which is faster: those of a large table come as they lie.
    pub fn batches(&self) -> Result<Vec<RecordBatch>, String> {
        match self.copied(&mut self.copy.lock()) {
            Copied::Sorted(rows) => Ok(vec![rows.clone()]),
            Copied::Batches(batches) => Ok(batches.clone()),
            Copied::Failed(reason) => Err(reason.clone()),
            Copied::None => unreachable!("it is copied"),
        }
    }

    /// Returns the copy, which is made if it is not there.
    fn copied<'a>(&self, copy: &'a mut Copied) -> &'a mut Copied {
        if !matches!(copy, Copied::None) {
            return copy;
        }
        let table = &self.machine.tables[self.table];
        let mut batches = Vec::new();
        let copied = match &self.content {
            Content::OfKeys(read) => read.rows().map(|rows| batches.push(table.image_batch(&rows))),
            Content::Kept => unreachable!("it was copied"),
            Content::Whole(snapshot) => {
                let copied = table.read(snapshot, &mut |rows| batches.push(table.image_batch(rows)));
                table.end_read(snapshot);
                copied
            }
        };
        *copy = match (copied, batches.len()) {
            (Err(error), _) => Copied::Failed(error.to_string()),
            // People like to see a small table in the order of its keys.
            (Ok(()), 0 | 1) => Copied::Sorted(table.sorted(&batches)),
            (Ok(()), _) => Copied::Batches(batches),
        };
        copy
    }
}

impl Drop for TableRead {
    fn drop(&mut self) {
        if let Content::Whole(snapshot) = &self.content
            && matches!(*self.copy.lock(), Copied::None)
        {
            self.machine.tables[self.table].end_read(snapshot);
        }
    }
}

/// Begins to read tables as they are now. Call it while no transaction runs: between the access of an epoch and that of
/// the next. Later epochs save the rows that they are about to change ([`changes`](crate::prepare::changes)). A table
/// that is wanted several times is read once.
pub fn begin_reads(machine: &Arc<Machine>, wishes: &[Wish]) -> Vec<Arc<TableRead>> {
    let mut reads: Vec<Arc<TableRead>> = Vec::with_capacity(wishes.len());
    for wish in wishes {
        let is_whole = |read: &TableRead| !matches!(read.content, Content::OfKeys(_));
        let is_it = |read: &&Arc<TableRead>| read.table == wish.table && is_whole(read);
        let shared = reads.iter().find(is_it).filter(|_| wish.keys.is_none()).cloned();
        reads.push(shared.unwrap_or_else(|| Arc::new(begin(machine, wish))));
    }
    reads
}

fn begin(machine: &Arc<Machine>, wish: &Wish) -> TableRead {
    let table = &machine.tables[wish.table];
    let read = |content, copy| TableRead { machine: machine.clone(), table: wish.table, content, copy };
    #[allow(unsafe_code)]
    match &wish.keys {
        None => {
            if let Some(copied) = machine.kept.copied(wish.table) {
                return read(Content::Kept, copied);
            }
            let copy = Arc::<Mutex<Copied>>::default();
            // Copies are not kept for later reads if memory is limited.
            if !table.has_evicted_rows() {
                *machine.kept.last[wish.table].lock() = Some(copy.clone());
            }
            // SAFETY: by the contract of `begin_reads`.
            read(Content::Whole(unsafe { table.begin_read() }), copy)
        }
        Some(keys) => {
            let keys = table.key_image(keys.iter().map(Vec::as_slice));
            // SAFETY: by the contract of `begin_reads`.
            read(Content::OfKeys(unsafe { table.read_keys(&keys) }), Arc::default())
        }
    }
}
