//! From the events of an input to the keys of its roles, and from keys to rows.

use crate::incoming::IncomingLists;
use crate::input::Input;
use crate::wiring::InputWiring;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use std::ops::Range;
use tidemill_compile::{FieldSource, KeySource, NativeColumn, PipelineNode, StreamLayout, resize_zeroed};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{Program, Role, TableId};
use tidemill_state::{CellValue, KeyColumn, KeyTexts, Keys, RecentKeys, RowAddress, Table};
use typed_index_collections::{TiSlice, TiVec};

/// Returns the row of the key that was captured at index `i` of these columns; created if it does not exist; 0 if a
/// part of the key is null.
pub fn resolve_captured(table: &Table, columns: &[NativeColumn], i: usize) -> RowAddress {
    if columns.iter().any(|column| column.is_null(i)) {
        return 0;
    }
    #[allow(unsafe_code)]
    // SAFETY: compiled code has just written these places; the memory that they point to belongs to a row or to the
    // epoch.
    let text = |column: &NativeColumn| unsafe { column.text(i) };
    let is_text = |column: &NativeColumn| column.ty().ty.is_bytes();
    let texts: Vec<[&[u8]; 1]> = columns.iter().map(|c| [if is_text(c) { text(c) } else { &[] }]).collect();
    let parts = columns.iter().zip(&texts).map(|(column, text)| match is_text(column) {
        true => KeyColumn::Texts(KeyTexts::new(text)),
        false => KeyColumn::Words(&column.words()[i..=i]),
    });
    let columns: Vec<KeyColumn<'_>> = parts.collect();
    let mut row = [0];
    table.resolve(&Keys { columns: &columns, nulls: None, len: 1 }, &mut row);
    row[0]
}

/// Returns the value that was captured at index `i` of this column.
pub fn captured_value(column: &NativeColumn, i: usize) -> CellValue<'_> {
    let word = column.words()[i];
    match column.ty().ty {
        _ if column.is_null(i) => CellValue::None,
        #[allow(unsafe_code)]
        // SAFETY: as in `resolve_captured`.
        Type::Str | Type::Bytes => CellValue::Text(unsafe { column.text(i) }),
        Type::Float => CellValue::Float(f64::from_bits(word)),
        _ => CellValue::Word(word as i64),
    }
}

/// The fields of an input's events, for finding keys.
pub struct Fields<'a> {
    /// The columns of the root by field: Arrow arrays of a source.
    pub arrays: Option<&'a [ArrayRef]>,
    /// The columns of the root by field, if a transaction emitted it.
    pub natives: Option<&'a [NativeColumn]>,
    /// The schema of the root.
    pub root_schema: &'a Schema,
    /// The layout of the root.
    pub root_layout: &'a StreamLayout,
    /// The node of the input's stream.
    pub node: &'a PipelineNode,
    /// The node's computed columns, fields and keys.
    pub computed: &'a [NativeColumn],
    /// The lists that transactions have passed on.
    pub passed: &'a IncomingLists,
}

/// A key column, gathered from its place of origin.
enum KeyValues<'a> {
    Words(Vec<u64>),
    Borrowed(&'a [u64]),
    Indexed(&'a [u64], &'a [u32]),
    Texts(Vec<&'a [u8]>),
}

/// Buffers that are reused from role to role.
pub struct KeyScratch {
    /// The rows of recent keys, by table, if tables are shared.
    recent: TiVec<TableId, RecentKeys>,
    nulls: Vec<bool>,
}

impl KeyScratch {
    /// Buffers for this number of tables. `shared`: other workers write their rows concurrently.
    pub fn new(tables: usize, shared: bool) -> Self {
        let tables = if shared { tables } else { 0 };
        KeyScratch { recent: (0..tables).map(|_| RecentKeys::default()).collect(), nulls: Vec::new() }
    }
}

/// Appends to `input` the rows of some events for every role.
pub fn resolve_roles(
    program: &Program,
    wiring: &InputWiring,
    tables: &TiSlice<TableId, Table>,
    fields: &Fields<'_>,
    input: &mut Input,
    events: Range<usize>,
    scratch: &mut KeyScratch,
) {
    for (r, role) in program.transactions[wiring.transaction].roles.iter().enumerate() {
        let elements = role.over.map(|list| elements_of(fields, list, input, r, events.clone()));
        let count = elements.as_ref().map_or(events.len(), Vec::len);
        let mut rows = std::mem::take(&mut input.rows[r]);
        let start = if events.start == 0 { 0 } else { rows.len() };
        resize_zeroed(&mut rows, start + count);
        if role.is_found_late() {
            // They are found when the transaction is about to run.
            rows[start..].fill(0);
            input.rows[r] = rows;
            continue;
        }
        let is_fixed = role.over.is_none() && count > 0;
        if let Some(row) = is_fixed.then(|| fixed_row(&tables[role.table], &wiring.keys.roles[r])).flatten() {
            rows[start..].fill(row);
            input.rows[r] = rows;
            continue;
        }
        let first = role.over.map_or(0, |_| input.starts[r][events.start] as usize);
        let events = events.clone();
        let mut gather = Gather { fields, input, role, events, elements, first, nulls: &mut scratch.nulls };
        gather.nulls.clear();
        let columns: Vec<KeyValues<'_>> = wiring.keys.roles[r].iter().map(|key| gather.column(key, count)).collect();
        let columns: Vec<KeyColumn<'_>> = columns.iter().map(KeyValues::column).collect();
        let nulls = (!scratch.nulls.is_empty()).then_some(scratch.nulls.as_slice());
        let (table, keys) = (&tables[role.table], Keys { columns: &columns, nulls, len: count });
        match scratch.recent.get_mut(role.table) {
            Some(recent) => recent.resolve(table, &keys, &mut rows[start..]),
            None => table.resolve(&keys, &mut rows[start..]),
        }
        drop(columns);
        input.rows[r] = rows;
    }
}

/// Returns the row of a key of constants, which all events have.
fn fixed_row(table: &Table, key: &[KeySource]) -> Option<RowAddress> {
    let mut parts = Vec::new();
    for part in key {
        let KeySource::Constant(value) = part else { return None };
        parts.push(constant(value, 1));
    }
    let columns: Vec<KeyColumn<'_>> = parts.iter().map(KeyValues::column).collect();
    let mut row = [0];
    table.resolve(&Keys { columns: &columns, nulls: None, len: 1 }, &mut row);
    Some(row[0])
}

impl KeyValues<'_> {
    fn column(&self) -> KeyColumn<'_> {
        match self {
            KeyValues::Words(words) => KeyColumn::Words(words),
            KeyValues::Borrowed(words) => KeyColumn::Words(words),
            KeyValues::Indexed(words, index) => KeyColumn::Indexed(words, index),
            KeyValues::Texts(texts) => KeyColumn::Texts(KeyTexts::new(texts)),
        }
    }
}

/// Returns the child rows of the elements of some events; extends the role's `starts`.
fn elements_of(fields: &Fields<'_>, list: usize, input: &mut Input, role: usize, events: Range<usize>) -> Vec<u32> {
    let field = list_field(fields, list);
    let of_row = |row: usize| match (fields.arrays, fields.natives) {
        (Some(arrays), _) => {
            let offsets = arrays[field].as_list::<i32>().value_offsets();
            offsets[row] as u32..offsets[row + 1] as u32
        }
        (None, Some(natives)) => fields.passed.elements(natives[field].words()[row]),
        (None, None) => unreachable!("a root has columns"),
    };
    let mut elements = Vec::new();
    let base = *input.starts[role].last().expect("starts begin with 0");
    for i in events {
        elements.extend(of_row(input.row(i)));
        input.starts[role].push(base + elements.len() as u32);
    }
    elements
}

/// Returns the field of the root that a list field of the input's stream is.
fn list_field(fields: &Fields<'_>, list: usize) -> usize {
    match &fields.node.layout.fields[list] {
        FieldSource::List { offsets: view, .. } | FieldSource::Passed { view } => {
            fields.root_layout.field_of_view(*view)
        }
        FieldSource::Scalar(_) => unreachable!("a list is no scalar"),
    }
}

struct Gather<'a, 'b> {
    fields: &'a Fields<'a>,
    input: &'a Input,
    role: &'b Role,
    events: Range<usize>,
    elements: Option<Vec<u32>>,
    /// The number of elements of the events before these.
    first: usize,
    nulls: &'b mut Vec<bool>,
}

impl<'a> Gather<'a, '_> {
    fn column(&mut self, key: &'a KeySource, count: usize) -> KeyValues<'a> {
        match key {
            KeySource::Constant(value) => constant(value, count),
            KeySource::Element(column) => self.element(*column),
            KeySource::Computed(column) => {
                let native = &self.fields.computed[*column];
                let (start, end) = match &self.elements {
                    None => (self.events.start, self.events.end),
                    Some(_) => (self.first, self.first + count),
                };
                self.native(native, start..end)
            }
            KeySource::Field(field) => self.field(*field),
        }
    }

    fn field(&mut self, field: usize) -> KeyValues<'a> {
        let FieldSource::Scalar(source) = &self.fields.node.layout.fields[field] else {
            unreachable!("a key is a scalar")
        };
        if source.by == tidemill_compile::By::Dense {
            let column = self.fields.node.layout.computed.iter().position(|&f| f == field).expect("computed");
            return self.native(&self.fields.computed[column], self.events.clone());
        }
        let root_field = self.fields.root_layout.field_of_view(source.view);
        let input = self.input;
        match (self.fields.arrays, self.fields.natives) {
            (Some(arrays), _) => {
                let ty = self.fields.root_schema.fields[root_field].scalar_type().expect("a key is a scalar").ty;
                let range = self.events.clone();
                match &input.index {
                    None => self.whole(&arrays[root_field], ty, range),
                    Some(index) => self.indexed(&arrays[root_field], ty, &index[range]),
                }
            }
            (None, Some(natives)) => self.native(&natives[root_field], (self.events.clone()).map(|i| input.row(i))),
            (None, None) => unreachable!("a root has columns"),
        }
    }

    fn element(&mut self, column: usize) -> KeyValues<'a> {
        let elements = self.elements.take().expect("an element key belongs to a role over a list");
        let list = self.role.over.expect("an element key belongs to a role over a list");
        let root_field = list_field(self.fields, list);
        let arrays = self.fields.arrays.expect("keys of lists that were passed on are computed");
        let array = arrays[root_field].as_list::<i32>().values();
        let tidemill_model::FieldType::List(item) = &self.fields.root_schema.fields[root_field].ty else {
            unreachable!("the role runs over a list")
        };
        let (child, ty) = match item {
            tidemill_model::ListItem::Scalar(ty) => (array, ty.ty),
            tidemill_model::ListItem::Struct(columns) => (&array.as_struct().columns()[column], columns[column].1.ty),
        };
        let gathered = self.arrow(child, ty, elements.iter().map(|&e| e as usize));
        self.elements = Some(elements);
        gathered
    }

    /// Returns all rows of a range of an Arrow column; borrowed if its buffer has the right form.
    fn whole(&mut self, array: &'a ArrayRef, ty: Type, range: std::ops::Range<usize>) -> KeyValues<'a> {
        match plain_words(array, ty) {
            Some(words) => KeyValues::Borrowed(&words[range]),
            None => self.arrow(array, ty, range),
        }
    }

    /// Returns the rows of an Arrow column that an index selects.
    fn indexed(&mut self, array: &'a ArrayRef, ty: Type, index: &'a [u32]) -> KeyValues<'a> {
        match plain_words(array, ty) {
            Some(words) => KeyValues::Indexed(words, index),
            None => self.arrow(array, ty, index.iter().map(|&row| row as usize)),
        }
    }

    fn arrow(&mut self, array: &'a ArrayRef, ty: Type, rows: impl Iterator<Item = usize> + Clone) -> KeyValues<'a> {
        if array.null_count() > 0 {
            self.mark_nulls(rows.clone().map(|row| array.is_null(row)));
        }
        let words = |get: &dyn Fn(usize) -> u64| KeyValues::Words(rows.clone().map(get).collect());
        match ty {
            Type::Bool => {
                let values = array.as_boolean().values();
                words(&|row| values.value(row) as u64)
            }
            Type::Int => {
                let values = array.as_primitive::<Int64Type>().values();
                KeyValues::Words(rows.map(|row| values[row] as u64).collect())
            }
            Type::Time => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                KeyValues::Words(rows.map(|row| values[row] as u64).collect())
            }
            Type::Decimal { .. } => {
                let values = array.as_primitive::<Decimal128Type>().values();
                words(&|row| values[row] as u64)
            }
            Type::Float => {
                let values = array.as_primitive::<Float64Type>().values();
                words(&|row| values[row].to_bits())
            }
            Type::Str => {
                let text = array.as_string::<i32>();
                KeyValues::Texts(rows.map(|row| text.value(row).as_bytes()).collect())
            }
            Type::Bytes => {
                let bytes = array.as_binary::<i32>();
                KeyValues::Texts(rows.map(|row| bytes.value(row)).collect())
            }
            Type::Duration | Type::Null => unreachable!("{ty} is no key type"),
        }
    }

    fn native(&mut self, column: &'a NativeColumn, places: impl Iterator<Item = usize> + Clone) -> KeyValues<'a> {
        if column.ty().nullable {
            self.mark_nulls(places.clone().map(|p| column.is_null(p)));
        }
        if column.ty().ty.is_bytes() {
            #[allow(unsafe_code)]
            // SAFETY: compiled code wrote these places in this epoch, and the memory that they point to (input buffers,
            // arenas, blobs) lives until the epoch is finished.
            KeyValues::Texts(places.map(|p| unsafe { column.text(p) }).collect())
        } else {
            KeyValues::Words(places.map(|p| column.words()[p]).collect())
        }
    }

    fn mark_nulls(&mut self, nulls: impl Iterator<Item = bool>) {
        if self.nulls.is_empty() {
            self.nulls.extend(nulls);
        } else {
            self.nulls.iter_mut().zip(nulls).for_each(|(all, one)| *all |= one);
        }
    }
}

/// Returns an Arrow column's buffer as words, if it has the right form.
fn plain_words(array: &ArrayRef, ty: Type) -> Option<&[u64]> {
    let buffer = match ty {
        _ if array.null_count() > 0 => return None,
        Type::Int => array.as_primitive::<Int64Type>().values().inner(),
        Type::Time => array.as_primitive::<TimestampMicrosecondType>().values().inner(),
        _ => return None,
    };
    Some(buffer.typed_data::<u64>())
}

fn constant(value: &Value, count: usize) -> KeyValues<'_> {
    match value {
        Value::Str(text) => KeyValues::Texts(vec![text.as_bytes(); count]),
        Value::Bytes(bytes) => KeyValues::Texts(vec![bytes; count]),
        Value::Bool(v) => KeyValues::Words(vec![*v as u64; count]),
        other => KeyValues::Words(vec![other.word().expect("a key constant is a word") as u64; count]),
    }
}
