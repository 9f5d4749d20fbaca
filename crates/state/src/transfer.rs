//! Whole tables from and to Arrow, when no transaction runs.

use crate::blob;
use crate::evicted_rows::EvictedError;
use crate::image::Image;
use crate::keys::{KeyColumn, KeyTexts, Keys};
use crate::layout::EXISTS;
use crate::order::order_of;
use crate::rows::{RowAddress, read, write};
use crate::table::Table;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BinaryArray, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use std::cmp::Ordering;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{ColumnType, Schema, Type, VIRTUAL_NODE_COUNT, Value};
use tidemill_plan::Column;

/// The reason why rows cannot be preloaded into a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreloadError {
    /// Two rows have one key.
    #[error("table '{table}' is given two rows with the key {key}")]
    Duplicate {
        /// The table.
        table: String,
        /// The key, as text.
        key: String,
    },
    /// A key holds a null.
    #[error("table '{table}' is given a row without a key (row {row} of its batch)")]
    NullKey {
        /// The table.
        table: String,
        /// The row's number, from 0.
        row: usize,
    },
    /// The bytes of a windowed column do not form a window.
    #[error("table '{table}' is given bytes for '{column}' that are no window (row {row} of its batch)")]
    Window {
        /// The table.
        table: String,
        /// The windowed column.
        column: String,
        /// The row's number, from 0.
        row: usize,
    },
}

impl Table {
    /// Returns the schema of [`Table::to_batch`]: the table's columns.
    pub fn schema(&self) -> Schema {
        Schema::scalars(self.definition().columns.iter().map(|c| (c.name.as_str(), c.ty)))
    }

    /// Adds rows: a batch in canonical form of [`Table::schema`], or of that schema without the windowed columns,
    /// which then begin empty. Call it while nothing else runs.
    pub fn preload(&self, batch: &RecordBatch) -> Result<(), PreloadError> {
        let arrays = self.arrays(batch);
        let columns: Vec<Cells> =
            self.definition().columns.iter().zip(&arrays).map(|(c, a)| Cells::new(a, c.ty)).collect();
        let name = || self.definition().name.clone();
        for (row, nulls) in (0..batch.num_rows()).map(|r| (r, self.definition().key.iter())) {
            if nulls.into_iter().any(|&c| arrays[c].is_null(row)) {
                return Err(PreloadError::NullKey { table: name(), row });
            }
        }
        for (column, cells) in self.definition().columns.iter().zip(&columns) {
            if let (Some(window), Cells::Texts { texts, .. }) = (&column.window, cells)
                && let Some(row) = texts.iter().position(|bytes| !window.holds(bytes))
            {
                return Err(PreloadError::Window { table: name(), column: column.name.clone(), row });
            }
        }
        let mut slots = vec![0; batch.num_rows()];
        self.resolve_cells(&columns, &mut slots);
        for (row, &slot) in slots.iter().enumerate() {
            self.fill(slot, row, &columns)?;
        }
        Ok(())
    }

    /// Returns the columns of a batch, with empty windows if it has none.
    fn arrays(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        let columns = &self.definition().columns;
        if batch.num_columns() == columns.len() {
            return batch.columns().to_vec();
        }
        let mut given = batch.columns().iter();
        let empty = Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(b"", batch.num_rows()))) as ArrayRef;
        let array = |column: &Column| match column.window {
            Some(_) => empty.clone(),
            None => given.next().expect("a column of the table").clone(),
        };
        columns.iter().map(array).collect()
    }

    fn resolve_cells(&self, columns: &[Cells<'_>], slots: &mut [RowAddress]) {
        let keys: Vec<KeyColumn<'_>> = self.definition().key.iter().map(|&c| columns[c].key()).collect();
        let len = slots.len();
        self.resolve(&Keys { columns: &keys, nulls: None, len }, slots);
    }

    fn fill(&self, slot: RowAddress, row: usize, columns: &[Cells<'_>]) -> Result<(), PreloadError> {
        let layout = self.layout();
        // SAFETY: (all accesses below) `slot` is a slot of this table and nothing else runs.
        if unsafe { read(slot, 0) } & EXISTS != 0 {
            let key: Vec<_> = self.definition().key.iter().map(|&c| self.cell_value(slot, c).to_string()).collect();
            return Err(PreloadError::Duplicate { table: self.definition().name.clone(), key: key.join(", ") });
        }
        let mut headers = vec![0u64; layout.header_words()];
        headers[0] = EXISTS;
        let mut text_bytes = 0;
        for (c, cells) in columns.iter().enumerate() {
            if cells.is_null(row) {
                let (offset, bit) = layout.null_bit(c);
                headers[offset / 8] |= bit;
            } else if !self.definition().key.contains(&c) {
                let word = match cells {
                    Cells::Words { words, .. } => words[row],
                    Cells::Texts { texts, .. } => {
                        text_bytes += blob::size(texts[row].len());
                        blob::new(texts[row])
                    }
                };
                // SAFETY: as above.
                unsafe { write(slot, layout.cell(c), word) };
            }
        }
        self.text_bytes().add(text_bytes);
        for (i, header) in headers.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { write(slot, 8 * i, header) };
        }
        Ok(())
    }

    fn cell_value(&self, row: RowAddress, column: usize) -> Value {
        let ty = self.definition().columns[column].ty;
        let (offset, bit) = self.layout().null_bit(column);
        // SAFETY: a slot of this table; nothing else runs.
        let (header, word) = unsafe { (read(row, offset), read(row, self.layout().cell(column))) };
        if header & bit != 0 {
            return Value::Null;
        }
        match ty.ty {
            Type::Bool => Value::Bool(word != 0),
            Type::Float => Value::Float(f64::from_bits(word)),
            // SAFETY: a text cell holds a live blob (crate invariant 4).
            Type::Str => Value::Str(String::from_utf8_lossy(unsafe { blob::bytes(word) }).into_owned()),
            // SAFETY: as above.
            Type::Bytes => Value::Bytes(unsafe { blob::bytes(word) }.to_vec()),
            word_type => Value::from_word(word_type, word as i64),
        }
    }

    /// Returns all existing rows, sorted by key. Call it while no transaction runs. Fails if evicted rows cannot be
    /// read.
    pub fn to_batch(&self) -> Result<RecordBatch, EvictedError> {
        let rows = self.image_batch(&self.copy_all()?);
        Ok(self.sorted(&[rows]))
    }

    /// Copies of all existing rows, in no order. Call it while no transaction runs; slots may be made meanwhile. Fails if
    /// evicted rows cannot be read.
    pub fn copy_all(&self) -> Result<Image, EvictedError> {
        if self.has_evicted_rows() {
            let mut all = Image::new(self.shape());
            self.each_image(&mut |rows| all.append(&rows))?;
            return Ok(all.existing());
        }
        let slots = self.nodes().read().slots();
        let mut all = Image::with_capacity(self.shape(), slots * 8 * self.shape().words);
        for node in 0..VIRTUAL_NODE_COUNT {
            let mut copy = |row| {
                // SAFETY: a slot of this table, whose maker is done with it; no transaction writes it.
                unsafe {
                    if self.exists(row) {
                        self.copy_row(row, &mut all);
                    }
                }
            };
            let chunks = (0..).find(|&chunk| !self.each_slot_of(node, chunk, &mut copy));
            debug_assert!(chunks.is_some(), "a node's chunks come to an end");
        }
        Ok(all)
    }

    /// Makes one batch, sorted by key, of batches of [`Table::schema`] with different keys.
    pub fn sorted(&self, batches: &[RecordBatch]) -> RecordBatch {
        let schema = arrow_schema(&self.schema());
        let rows = match batches {
            [one] => one.clone(),
            several => concat_batches(&schema, several).expect("batches of the schema"),
        };
        let columns = &self.definition().columns;
        let keys: Vec<Cells> =
            self.definition().key.iter().map(|&c| Cells::new(rows.column(c), columns[c].ty)).collect();
        let order = match keys.as_slice() {
            [Cells::Words { words, .. }] => {
                let words: Vec<i64> = words.iter().map(|&word| word as i64).collect();
                let Some(order) = order_of(&words) else { return rows };
                order
            }
            keys => {
                let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
                order.sort_unstable_by(|&a, &b| compare(keys, a as usize, b as usize));
                order
            }
        };
        take_record_batch(&rows, &UInt32Array::from(order)).expect("numbers of rows")
    }
}

/// A canonical column as cells.
enum Cells<'a> {
    Words { words: Vec<u64>, array: &'a ArrayRef },
    Texts { texts: Vec<&'a [u8]>, array: &'a ArrayRef },
}

impl<'a> Cells<'a> {
    fn new(array: &'a ArrayRef, ty: ColumnType) -> Self {
        let words = |words: Vec<u64>| Cells::Words { words, array };
        match ty.ty {
            Type::Bool => words(array.as_boolean().values().iter().map(u64::from).collect()),
            Type::Int => words(array.as_primitive::<Int64Type>().values().iter().map(|&v| v as u64).collect()),
            Type::Time => {
                words(array.as_primitive::<TimestampMicrosecondType>().values().iter().map(|&v| v as u64).collect())
            }
            Type::Float => words(array.as_primitive::<Float64Type>().values().iter().map(|v| v.to_bits()).collect()),
            Type::Decimal { .. } => {
                words(array.as_primitive::<Decimal128Type>().values().iter().map(|&v| v as u64).collect())
            }
            Type::Str => {
                let array_of = array.as_string::<i32>();
                Cells::Texts { texts: (0..array.len()).map(|i| array_of.value(i).as_bytes()).collect(), array }
            }
            Type::Bytes => {
                let array_of = array.as_binary::<i32>();
                Cells::Texts { texts: (0..array.len()).map(|i| array_of.value(i)).collect(), array }
            }
            Type::Duration | Type::Null => unreachable!("{} is no column type", ty.ty),
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Cells::Words { array, .. } | Cells::Texts { array, .. } => array.is_null(row),
        }
    }

    /// Returns the order of two rows: words as whole numbers, texts by their bytes.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            Cells::Words { words, .. } => (words[a] as i64).cmp(&(words[b] as i64)),
            Cells::Texts { texts, .. } => texts[a].cmp(texts[b]),
        }
    }

    fn key(&self) -> KeyColumn<'_> {
        match self {
            Cells::Words { words, .. } => KeyColumn::Words(words),
            Cells::Texts { texts, .. } => KeyColumn::Texts(KeyTexts::new(texts)),
        }
    }
}

/// Returns the order of two rows by their keys.
fn compare(keys: &[Cells<'_>], a: usize, b: usize) -> Ordering {
    keys.iter().map(|key| key.compare(a, b)).fold(Ordering::Equal, Ordering::then)
}
