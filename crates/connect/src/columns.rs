//! Columns under construction: the typed vectors that the text decoders fill.
//!
//! Unlike Arrow's builders they can be cut back: a record that turns out bad after some of its columns
//! were appended is taken out again, and the good records around it stay. The invariant: between two
//! records every column holds exactly [`Rows::count`] values. The vectors become Arrow buffers without
//! a copy.

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Schema as ArrowSchema};
use std::mem::take;
use std::sync::Arc;
use tidemill_model::arrow::{arrow_field, arrow_schema, data_type};
use tidemill_model::{ColumnType, FieldType, Schema, Type};

/// The rows of one batch under construction.
pub(crate) struct Rows {
    pub fields: Vec<FieldColumn>,
    count: usize,
    schema: Arc<ArrowSchema>,
}

impl Rows {
    pub fn new(schema: &Schema) -> Rows {
        let fields = schema.fields.iter().map(|field| FieldColumn::new(&field.ty, arrow_field(field))).collect();
        Rows { fields, count: 0, schema: arrow_schema(schema) }
    }

    /// Returns the number of whole rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Makes a row of the values that were appended to the columns, one to each.
    #[inline]
    pub fn commit(&mut self) {
        self.commit_many(1);
    }

    /// Makes `count` rows of the values that were appended to the columns, `count` to each.
    #[inline]
    pub fn commit_many(&mut self, count: usize) {
        self.count += count;
        debug_assert!(self.fields.iter().all(|field| field.len() == self.count));
    }

    /// Takes out what was appended since the last row.
    pub fn roll_back(&mut self) {
        for field in &mut self.fields {
            field.truncate(self.count);
        }
    }

    /// Returns the rows as a batch in canonical form; empties the columns.
    pub fn finish(&mut self) -> RecordBatch {
        let columns = self.fields.iter_mut().map(FieldColumn::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(take(&mut self.count)));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .expect("columns are of the schema's types and of one length")
    }
}

/// A field's values under construction.
pub(crate) enum FieldColumn {
    Scalar(Column),
    List(ListColumn),
}

impl FieldColumn {
    fn new(ty: &FieldType, field: arrow_schema::Field) -> FieldColumn {
        match (ty, field.data_type()) {
            (FieldType::Scalar(ty), _) => FieldColumn::Scalar(Column::new(*ty)),
            (FieldType::List(item), DataType::List(item_field)) => {
                let items = item.columns().iter().map(|(_, ty)| FieldColumn::Scalar(Column::new(*ty))).collect();
                FieldColumn::List(ListColumn { ends: vec![0], length: 0, items, item: item_field.clone() })
            }
            _ => unreachable!("a list has a list type"),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            FieldColumn::Scalar(column) => column.len(),
            FieldColumn::List(list) => list.ends.len() - 1,
        }
    }

    pub fn truncate(&mut self, length: usize) {
        match self {
            FieldColumn::Scalar(column) => column.truncate(length),
            FieldColumn::List(list) => list.truncate(length),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            FieldColumn::Scalar(column) => column.finish(),
            FieldColumn::List(list) => list.finish(),
        }
    }
}

/// Lists under construction: the elements of all of them in one column per element field.
pub(crate) struct ListColumn {
    /// The end of each list among the elements, after a first 0.
    ends: Vec<i32>,
    /// Elements appended, those of the list under construction included.
    length: usize,
    /// The element's fields; one for scalar elements.
    pub items: Vec<FieldColumn>,
    item: FieldRef,
}

impl ListColumn {
    /// Elements so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Makes an element of the values that were appended to the element's fields, one to each.
    pub fn commit_element(&mut self) {
        self.length += 1;
        debug_assert!(self.items.iter().all(|item| item.len() == self.length));
    }

    /// Makes a list of the elements since the last list.
    pub fn commit(&mut self) {
        self.ends.push(offset(self.length));
    }

    fn truncate(&mut self, length: usize) {
        self.ends.truncate(length + 1);
        self.length = self.ends[length] as usize;
        for item in &mut self.items {
            item.truncate(self.length);
        }
    }

    fn finish(&mut self) -> ArrayRef {
        let length = take(&mut self.length);
        let mut arrays: Vec<ArrayRef> = self.items.iter_mut().map(FieldColumn::finish).collect();
        let elements: ArrayRef = match self.item.data_type() {
            DataType::Struct(fields) => Arc::new(
                StructArray::try_new_with_length(fields.clone(), arrays, None, length)
                    .expect("element columns are of their types and of one length"),
            ),
            _ => arrays.remove(0),
        };
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        Arc::new(ListArray::new(self.item.clone(), OffsetBuffer::new(ScalarBuffer::from(ends)), elements, None))
    }
}

/// Returns a length as an offset: batches are bounded in bytes far below its range (`text::BATCH_BYTES_MAX`).
fn offset(length: usize) -> i32 {
    i32::try_from(length).expect("a batch stays below 2 GiB")
}

/// Scalars under construction.
pub(crate) struct Column {
    pub ty: ColumnType,
    pub cells: Cells,
    /// A flag for each value: whether it is not null; only for nullable columns, empty for others.
    valid: Vec<bool>,
}

/// The values of a column; those of nulls are zero or empty.
pub(crate) enum Cells {
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Decimal { values: Vec<i128>, digits: u8, scale: u8 },
    Time(Vec<i64>),
    Str(Runs),
    Bytes(Runs),
}

/// Runs of bytes, one after the other.
pub(crate) struct Runs {
    /// The end of each run in `bytes`, after a first 0.
    ends: Vec<i32>,
    /// Appended to before [`Runs::commit`].
    pub bytes: Vec<u8>,
}

impl Runs {
    fn new() -> Runs {
        Runs { ends: vec![0], bytes: Vec::new() }
    }

    /// Makes a run of the bytes since the last run.
    pub fn commit(&mut self) {
        self.ends.push(offset(self.bytes.len()));
    }

    /// Appends a run.
    pub fn push(&mut self, run: &[u8]) {
        self.bytes.extend_from_slice(run);
        self.commit();
    }

    fn truncate(&mut self, length: usize) {
        self.ends.truncate(length + 1);
        self.bytes.truncate(self.ends[length] as usize);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let mut fresh = Runs { ends: Vec::with_capacity(self.ends.len()), bytes: Vec::with_capacity(self.bytes.len()) };
        fresh.ends.push(0);
        let Runs { ends, bytes } = std::mem::replace(self, fresh);
        (OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from_vec(bytes))
    }
}

/// Calls a method of the vector or runs inside [`Cells`].
macro_rules! each {
    ($cells:expr, $values:ident => $plain:expr, $runs:ident => $run:expr) => {
        match $cells {
            Cells::Bool($values) => $plain,
            Cells::Int($values) | Cells::Time($values) => $plain,
            Cells::Float($values) => $plain,
            Cells::Decimal { values: $values, .. } => $plain,
            Cells::Str($runs) | Cells::Bytes($runs) => $run,
        }
    };
}

impl Column {
    fn new(ty: ColumnType) -> Column {
        let cells = match ty.ty {
            Type::Bool => Cells::Bool(Vec::new()),
            Type::Int => Cells::Int(Vec::new()),
            Type::Float => Cells::Float(Vec::new()),
            Type::Decimal { digits, scale } => Cells::Decimal { values: Vec::new(), digits, scale },
            Type::Time => Cells::Time(Vec::new()),
            Type::Str => Cells::Str(Runs::new()),
            Type::Bytes => Cells::Bytes(Runs::new()),
            Type::Duration | Type::Null => panic!("{ty} is no column type"),
        };
        Column { ty, cells, valid: Vec::new() }
    }

    fn len(&self) -> usize {
        each!(&self.cells, values => values.len(), runs => runs.ends.len() - 1)
    }

    /// Counts a value that was appended to the cells.
    pub fn commit_value(&mut self) {
        if self.ty.nullable {
            self.valid.push(true);
        }
    }

    /// Appends a null. The column must be nullable.
    pub fn push_null(&mut self) {
        debug_assert!(self.ty.nullable);
        each!(&mut self.cells, values => values.push(Default::default()), runs => runs.commit());
        self.valid.push(false);
    }

    fn truncate(&mut self, length: usize) {
        each!(&mut self.cells, values => values.truncate(length), runs => {
            // Bytes of a run that was never committed go too.
            runs.truncate(length.min(runs.ends.len() - 1));
        });
        self.valid.truncate(length);
    }

    fn finish(&mut self) -> ArrayRef {
        let valid = replace(&mut self.valid);
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        match &mut self.cells {
            Cells::Bool(values) => Arc::new(BooleanArray::new(replace(values).into(), nulls)),
            Cells::Int(values) => Arc::new(Int64Array::new(replace(values).into(), nulls)),
            Cells::Float(values) => Arc::new(Float64Array::new(replace(values).into(), nulls)),
            Cells::Decimal { values, .. } => {
                Arc::new(Decimal128Array::new(replace(values).into(), nulls).with_data_type(data_type(self.ty.ty)))
            }
            Cells::Time(values) => {
                Arc::new(TimestampMicrosecondArray::new(replace(values).into(), nulls).with_timezone("UTC"))
            }
            Cells::Str(runs) => {
                let (offsets, bytes) = runs.finish();
                Arc::new(StringArray::new(offsets, bytes, nulls))
            }
            Cells::Bytes(runs) => {
                let (offsets, bytes) = runs.finish();
                Arc::new(BinaryArray::new(offsets, bytes, nulls))
            }
        }
    }
}

/// Takes a vector and leaves an empty one with room for as much again.
fn replace<T>(values: &mut Vec<T>) -> Vec<T> {
    let fresh = Vec::with_capacity(values.len());
    std::mem::replace(values, fresh)
}
