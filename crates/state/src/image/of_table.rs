//! Copies of a table's rows, and copies as columns.

use super::Image;
use crate::blob;
use crate::layout::{EXISTS, RowLayout};
use crate::rows::{RowAddress, read};
use crate::sync;
use crate::table::Table;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_model::arrow::{arrow_schema, data_type};

/// The rows whose words become columns together.
const TOGETHER: usize = 256;

impl Table {
    /// Adds a copy of a row; if the row does not exist, only its key.
    ///
    /// # Safety
    /// `row` is a slot of this table, and no thread writes it meanwhile.
    pub unsafe fn copy_row(&self, row: RowAddress, image: &mut Image) {
        let shape = self.shape();
        sync::reads_key(row);
        sync::reads_row(row);
        // SAFETY: by the caller; the words lie inside the row.
        let word = |word: usize| unsafe { read(row, 8 * word) };
        // SAFETY: a text cell holds a live blob or 0 (crate invariant 4).
        let text = |at: usize| unsafe { blob::bytes(word(at)) };
        if word(0) & EXISTS != 0 {
            image.push((0..shape.words).map(word), text);
        } else {
            let is_key = |at: &usize| shape.key.contains(at);
            let key = |at: usize| if is_key(&at) { word(at) } else { 0 };
            image.push((0..shape.words).map(key), |at| if is_key(&at) { text(at) } else { &[] });
        }
    }

    /// Copies a row that exists, without the texts outside of its key: they seem to be empty.
    ///
    /// # Safety
    /// As for [`Table::copy_row`].
    pub(crate) unsafe fn copy_without_texts(&self, row: RowAddress, image: &mut Image) {
        let shape = self.shape();
        sync::reads_key(row);
        sync::reads_row(row);
        // SAFETY: by the caller; the words lie inside the row.
        let word = |word: usize| unsafe { read(row, 8 * word) };
        image.push((0..shape.words).map(word), |at| match shape.key.contains(&at) {
            // SAFETY: a text cell holds a live blob or 0 (crate invariant 4).
            true => unsafe { blob::bytes(word(at)) },
            false => &[],
        });
    }

    /// Makes a batch of [`Table::schema`] of copied rows, none of them a deletion.
    pub fn image_batch(&self, image: &Image) -> RecordBatch {
        let schema = self.schema();
        let cells: Vec<usize> = (0..schema.fields.len()).map(|column| self.layout().cell(column) / 8).collect();
        let columns = gathered(image, &cells)
            .into_iter()
            .enumerate()
            .map(|(column, words)| self.image_column(image, column, words))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(image.len()));
        RecordBatch::try_new_with_options(arrow_schema(&schema), columns, &options).expect("columns of the schema")
    }

    /// Returns a column of these rows, whose words are given.
    fn image_column(&self, image: &Image, column: usize, words: Vec<u64>) -> ArrayRef {
        let ty = self.definition().columns[column].ty;
        let layout: &RowLayout = self.layout();
        let (header, bit) = layout.null_bit(column);
        let is_null = |row: usize| image.row(row)[header / 8] & bit != 0;
        let rows = 0..image.len();
        let nulls = (ty.nullable && rows.clone().any(is_null))
            .then(|| rows.clone().map(|row| !is_null(row)).collect::<NullBuffer>());
        let at = layout.cell(column) / 8;
        let texts = || rows.clone().map(|row| (!is_null(row)).then(|| image.text(row, at)));
        match ty.ty {
            Type::Int => Arc::new(PrimitiveArray::<Int64Type>::new(scalars(words), nulls)),
            Type::Time => {
                Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(scalars(words), nulls).with_timezone("UTC"))
            }
            Type::Float => Arc::new(PrimitiveArray::<Float64Type>::new(scalars(words), nulls)),
            Type::Decimal { .. } => {
                let values: ScalarBuffer<i128> = words.into_iter().map(|word| word as i64 as i128).collect();
                Arc::new(PrimitiveArray::<Decimal128Type>::new(values, nulls).with_data_type(data_type(ty.ty)))
            }
            Type::Bool => Arc::new(BooleanArray::new(words.into_iter().map(|word| word != 0).collect(), nulls)),
            Type::Str => {
                let text = |bytes| str::from_utf8(bytes).expect("a str is UTF-8");
                Arc::new(texts().map(|bytes| bytes.map(text)).collect::<StringArray>())
            }
            Type::Bytes => Arc::new(texts().collect::<BinaryArray>()),
            Type::Duration | Type::Null => unreachable!("{} is no column type", ty.ty),
        }
    }
}

/// Returns the words with these numbers of all rows, by word. All of a few rows at once, so that each row comes into
/// the caches once.
fn gathered(image: &Image, words: &[usize]) -> Vec<Vec<u64>> {
    let mut columns: Vec<Vec<u64>> = words.iter().map(|_| Vec::with_capacity(image.len())).collect();
    for first in (0..image.len()).step_by(TOGETHER) {
        let rows = first..image.len().min(first + TOGETHER);
        for (column, &word) in columns.iter_mut().zip(words) {
            column.extend(rows.clone().map(|row| image.row(row)[word]));
        }
    }
    columns
}

/// Returns the words as the values that their bits stand for.
fn scalars<T: ArrowNativeType>(words: Vec<u64>) -> ScalarBuffer<T> {
    let rows = words.len();
    ScalarBuffer::new(Buffer::from_vec(words), 0, rows)
}
