//! Tables in a file of memory that the processes of queries map: each is written once, as long as it does not change.
//!
//! # Invariant
//!
//! The memory that a [`Region`] covers is written before it is given away, and never after; it is given back to the system once nobody
//! has the region any more. All regions together take no more bytes than are allowed.
//!
//! Offsets in the file only grow: the file has holes where regions were, and a hole takes no memory. Processes have the
//! file opened for reading alone.

use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Regions begin at multiples of it: no page has two.
const PAGE: u64 = 1 << 16;
/// The bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A file of memory.
struct Shared {
    file: File,
    /// The bytes of all regions.
    taken: AtomicU64,
}

/// A table in the file, as a stream of Arrow.
pub struct Region {
    shared: Arc<Shared>,
    pub offset: u64,
    pub length: usize,
}

impl Drop for Region {
    fn drop(&mut self) {
        let length = whole_pages(self.length as u64);
        // Without it the memory stays, and is counted as free: there is nothing better to be done.
        let _ =
            fallocate(&self.shared.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, self.offset, length);
        self.shared.taken.fetch_sub(length, Ordering::AcqRel);
    }
}

/// The columns of a copy of a table, by which it is known again. They are not kept alive.
struct Known(Vec<Weak<dyn Array>>);

impl Known {
    fn of(batches: &[RecordBatch]) -> Known {
        Known(batches.iter().flat_map(RecordBatch::columns).map(Arc::downgrade).collect())
    }

    fn is(&self, batches: &[RecordBatch]) -> bool {
        let columns = || batches.iter().flat_map(RecordBatch::columns);
        let are_same = |(known, column): (&Weak<dyn Array>, _)| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(column));
        self.0.len() == columns().count() && self.0.iter().zip(columns()).all(are_same)
    }
}

/// The regions that there are.
pub struct Tables {
    shared: Arc<Shared>,
    bytes_max: u64,
    next: Mutex<Next>,
}

#[derive(Default)]
struct Next {
    offset: u64,
    /// The rows of each table that were written last, by table.
    last: HashMap<usize, (Known, Arc<Region>)>,
}

/// The reason why a table is not shared.
#[derive(Debug)]
pub enum NotShared {
    /// The table is larger than the free part of the shared memory.
    TooLarge {
        bytes: u64,
    },
    Io(io::Error),
}

impl Tables {
    /// Makes the file.
    pub fn new(bytes_max: usize) -> io::Result<Tables> {
        let file = File::from(memfd_create("tidemill-tables", MemfdFlags::CLOEXEC)?);
        let shared = Arc::new(Shared { file, taken: AtomicU64::new(0) });
        Ok(Tables { shared, bytes_max: bytes_max as u64, next: Mutex::default() })
    }

    /// Opens the file for a process, which can read it alone.
    pub fn open(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.shared.file.as_raw_fd()))
    }

    /// Returns the number of bytes that tables take.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that the shared tables may take.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns a table of these rows: what was written before, if they are the same.
    pub fn region(&self, table: usize, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Arc<Region>, NotShared> {
        let mut next = self.next.lock();
        if let Some((_, region)) = next.last.get(&table).filter(|(known, _)| known.is(batches)) {
            return Ok(region.clone());
        }
        next.last.remove(&table);
        let needed: u64 = batches.iter().map(|batch| batch.get_array_memory_size() as u64).sum();
        if self.taken() + needed > self.bytes_max {
            // Those that a query reads stay until it ends.
            next.last.clear();
        }
        let taken = self.taken();
        if taken + needed > self.bytes_max {
            return Err(NotShared::TooLarge { bytes: taken + needed });
        }
        let offset = next.offset;
        let to = At { file: &self.shared.file, offset };
        let length = write(to, schema, batches).map_err(NotShared::Io)?;
        next.offset = offset + whole_pages(length as u64);
        self.shared.file.set_len(next.offset).map_err(NotShared::Io)?;
        self.shared.taken.fetch_add(whole_pages(length as u64), Ordering::AcqRel);
        let region = Arc::new(Region { shared: self.shared.clone(), offset, length });
        next.last.insert(table, (Known::of(batches), region.clone()));
        Ok(region)
    }
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

/// Writes a stream; its length.
fn write(to: At<'_>, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<usize> {
    let failed = |error: ArrowError| match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    };
    let start = to.offset;
    let mut writer = StreamWriter::try_new(BufWriter::with_capacity(WRITE_BYTES, to), schema).map_err(failed)?;
    batches.iter().try_for_each(|batch| writer.write(batch)).map_err(failed)?;
    writer.finish().map_err(failed)?;
    let to = writer.into_inner().map_err(failed)?.into_inner()?;
    Ok((to.offset - start) as usize)
}

/// A place in a file.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapped::batches_of;
    use super::*;
    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field, Schema};
    use std::os::unix::fs::MetadataExt;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
    }

    fn batch(first: i64, rows: i64) -> RecordBatch {
        let ids: Int64Array = (first..first + rows).collect();
        RecordBatch::try_new(schema(), vec![Arc::new(ids)]).expect("it fits")
    }

    #[test]
    fn a_table_is_written_once_as_long_as_it_is_the_same() {
        let tables = Tables::new(1 << 20).expect("a file");
        let rows = [batch(0, 1000), batch(1000, 10)];
        let one = tables.region(0, &schema(), &rows).expect("there is room");
        let again = tables.region(0, &schema(), &rows.clone()).expect("there is room");
        assert_eq!(one.offset, again.offset);
        let other = tables.region(0, &schema(), &[batch(0, 1000), batch(1000, 10)]).expect("there is room");
        assert_ne!(one.offset, other.offset);
        let file = tables.open().expect("the file");
        for region in [&one, &other] {
            let read = batches_of(&file, region.offset, region.length).expect("a stream");
            assert_eq!(read, rows);
        }
    }

    #[test]
    fn a_process_cannot_write() {
        let tables = Tables::new(1 << 20).expect("a file");
        let region = tables.region(0, &schema(), &[batch(0, 10)]).expect("there is room");
        let file = tables.open().expect("the file");
        assert!(file.write_at(b"x", region.offset).is_err());
        assert!(file.set_len(0).is_err());
    }

    #[test]
    fn tables_take_no_more_than_they_may_and_give_it_back() {
        let tables = Tables::new(1 << 20).expect("a file");
        let held = tables.region(0, &schema(), &[batch(0, 80_000)]).expect("there is room");
        let refused = tables.region(1, &schema(), &[batch(0, 80_000)]);
        assert!(matches!(refused, Err(NotShared::TooLarge { .. })));
        drop(held);
        let held = tables.region(1, &schema(), &[batch(0, 80_000)]).expect("the other one has gone");
        assert!(tables.taken() < 1 << 20);
        let blocks = |tables: &Tables| tables.shared.file.metadata().expect("its size").blocks() * 512;
        assert!(blocks(&tables) < 1 << 20, "{}", blocks(&tables));
        drop(held);
        drop(tables.region(1, &schema(), &[batch(1, 10)]));
        assert!(blocks(&tables) <= PAGE, "{}", blocks(&tables));
        assert_eq!(tables.taken(), PAGE);
    }
}
