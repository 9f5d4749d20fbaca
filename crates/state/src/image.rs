//! Copies of rows as they were at one instant, with the texts that they own: what checkpoints are made
//! from while the rows themselves go on changing.

use crate::blob;
use crate::layout::{EXISTS, RowLayout};
use crate::rows::RowAddress;
use crate::table::{Table, read};
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_model::arrow::{arrow_schema, data_type};

/// Rows of one table that were copied. Those that did not exist are left out.
#[derive(Default)]
pub struct Image {
    /// Header words and cells, row by row. The cell of a text is 0 where it is empty, else one more than
    /// the place of its length in `texts`.
    words: Vec<u64>,
    /// The length of a text as eight bytes, and its bytes.
    texts: Vec<u8>,
    rows: usize,
}

impl Image {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn text(&self, cell: u64) -> &[u8] {
        let Some(at) = cell.checked_sub(1).map(|at| at as usize) else { return &[] };
        let length = u64::from_le_bytes(self.texts[at..at + 8].try_into().expect("eight bytes"));
        &self.texts[at + 8..at + 8 + length as usize]
    }
}

impl Table {
    /// Adds copies of the rows in these virtual nodes.
    ///
    /// # Safety
    /// Nobody writes rows of these nodes meanwhile. Slots may be made.
    pub unsafe fn copy_nodes(&self, nodes: Range<usize>, image: &mut Image) {
        self.each_slot(nodes, |row| {
            // SAFETY: a slot of this table, which by the caller nobody writes.
            unsafe { self.copy_row(row, image) }
        });
    }

    /// Adds a copy of a row, if it exists.
    ///
    /// # Safety
    /// `row` is a slot of this table, and nobody writes it meanwhile.
    pub unsafe fn copy_row(&self, row: RowAddress, image: &mut Image) {
        // SAFETY: by the caller; the words lie inside the row's layout.
        unsafe {
            if read(row, 0) & EXISTS == 0 {
                return;
            }
            let start = image.words.len();
            let words = self.layout().header_words() + self.definition().columns.len();
            image.words.extend((0..words).map(|word| read(row, 8 * word)));
            for &column in self.text_columns() {
                let at = start + self.layout().cell(column) / 8;
                // A text cell holds a live blob or 0 (crate invariant 4); of a null one nobody looks.
                let text = blob::bytes(image.words[at]);
                image.words[at] = 0;
                if !text.is_empty() {
                    image.words[at] = image.texts.len() as u64 + 1;
                    image.texts.extend_from_slice(&(text.len() as u64).to_le_bytes());
                    image.texts.extend_from_slice(text);
                }
            }
        }
        image.rows += 1;
    }

    /// Copied rows as a batch of [`Table::schema`].
    pub fn image_batch(&self, image: &Image) -> RecordBatch {
        let schema = self.schema();
        let columns = (0..schema.fields.len()).map(|column| self.image_column(image, column)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(image.rows));
        RecordBatch::try_new_with_options(arrow_schema(&schema), columns, &options).expect("columns of the schema")
    }

    fn image_column(&self, image: &Image, column: usize) -> ArrayRef {
        let ty = self.definition().columns[column].ty;
        let layout: &RowLayout = self.layout();
        let row_words = layout.header_words() + self.definition().columns.len();
        let (header, bit) = layout.null_bit(column);
        let rows = || image.words.chunks_exact(row_words);
        let is_null = |row: &[u64]| row[header / 8] & bit != 0;
        let nulls =
            (ty.nullable && rows().any(is_null)).then(|| rows().map(|row| !is_null(row)).collect::<NullBuffer>());
        let at = layout.cell(column) / 8;
        let words = || rows().map(|row| row[at]);
        let texts = || rows().map(|row| (!is_null(row)).then(|| image.text(row[at])));
        match ty.ty {
            Type::Int => {
                let values: ScalarBuffer<i64> = words().map(|word| word as i64).collect();
                Arc::new(PrimitiveArray::<Int64Type>::new(values, nulls))
            }
            Type::Time => {
                let values: ScalarBuffer<i64> = words().map(|word| word as i64).collect();
                Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls).with_timezone("UTC"))
            }
            Type::Float => {
                let values: ScalarBuffer<f64> = words().map(f64::from_bits).collect();
                Arc::new(PrimitiveArray::<Float64Type>::new(values, nulls))
            }
            Type::Decimal { .. } => {
                let values: ScalarBuffer<i128> = words().map(|word| word as i64 as i128).collect();
                Arc::new(PrimitiveArray::<Decimal128Type>::new(values, nulls).with_data_type(data_type(ty.ty)))
            }
            Type::Bool => Arc::new(BooleanArray::new(words().map(|word| word != 0).collect(), nulls)),
            Type::Str => {
                let text = |bytes| str::from_utf8(bytes).expect("a str is UTF-8");
                Arc::new(texts().map(|bytes| bytes.map(text)).collect::<StringArray>())
            }
            Type::Bytes => Arc::new(texts().collect::<BinaryArray>()),
            Type::Duration | Type::Null => unreachable!("{} is no column type", ty.ty),
        }
    }
}
