//! Tables, or some of their rows, as they were after an epoch, which readers copy while later epochs run.

use crate::machine::Machine;
use arrow_array::RecordBatch;
use std::sync::{Arc, OnceLock};
use tidemill_model::Value;
use tidemill_plan::TableId;
use tidemill_state::{PointRead, ReadSnapshot};

/// The values of a key, by key column.
pub type Key = Vec<Value>;

/// What to read of a table: the rows of these keys, or all.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The table.
    pub table: TableId,
    /// The keys; none for all rows. Their values have the types of the key columns, and are no floats.
    pub keys: Option<Vec<Key>>,
}

impl Wish {
    /// All rows.
    pub fn whole(table: TableId) -> Wish {
        Wish { table, keys: None }
    }
}

/// A table, or some of its rows, as it was after an epoch. Several readers may have a whole one; the first one that asks for
/// the rows copies them on its own thread. As long as it is held and not copied, epochs copy the rows that they are about to
/// change. Rows of keys were copied when it began, unless they were evicted.
pub struct TableRead {
    machine: Arc<Machine>,
    table: TableId,
    content: Content,
    rows: OnceLock<Result<RecordBatch, String>>,
}

enum Content {
    Whole(Arc<ReadSnapshot>),
    OfKeys(PointRead),
}

impl TableRead {
    /// The rows, sorted by key. An error says why evicted rows cannot be read.
    pub fn rows(&self) -> Result<RecordBatch, String> {
        let copy = || {
            let table = &self.machine.tables[self.table];
            let copied = match &self.content {
                Content::OfKeys(read) => read.rows(),
                Content::Whole(snapshot) => {
                    let copied = table.read(snapshot);
                    table.end_read(snapshot);
                    copied
                }
            };
            copied.map(|rows| table.sorted_batch(&rows)).map_err(|error| error.to_string())
        };
        self.rows.get_or_init(copy).clone()
    }
}

impl Drop for TableRead {
    fn drop(&mut self) {
        if let Content::Whole(snapshot) = &self.content
            && self.rows.get().is_none()
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
        let is_it = |read: &&Arc<TableRead>| read.table == wish.table && matches!(read.content, Content::Whole(_));
        let shared = reads.iter().find(is_it).filter(|_| wish.keys.is_none()).cloned();
        reads.push(shared.unwrap_or_else(|| Arc::new(begin(machine, wish))));
    }
    reads
}

fn begin(machine: &Arc<Machine>, wish: &Wish) -> TableRead {
    let table = &machine.tables[wish.table];
    #[allow(unsafe_code)]
    let content = match &wish.keys {
        // SAFETY: by the contract of `begin_reads`.
        None => Content::Whole(unsafe { table.begin_read() }),
        Some(keys) => {
            let keys = table.key_image(keys.iter().map(Vec::as_slice));
            // SAFETY: by the contract of `begin_reads`.
            Content::OfKeys(unsafe { table.read_keys(&keys) })
        }
    };
    TableRead { machine: machine.clone(), table: wish.table, content, rows: OnceLock::new() }
}
