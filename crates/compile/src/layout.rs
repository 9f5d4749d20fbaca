//! Which column holds which field: decided before any code is made, followed by code and engine.

use tidemill_model::{ColumnType, FieldType, Schema, Type};
use tidemill_plan::typed::{Expr, Node, Stmt};
use tidemill_plan::{Origin, OutputField, Program, StreamId, Transaction, TransactionId};

/// The format in which a column's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Canonical Arrow buffers.
    Arrow,
    /// Words, lengths and null bytes, as compiled code writes them.
    Native,
}

/// The index by which a column is addressed from event `i` of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// At `index[i]`: a column of the root stream.
    Row,
    /// At `i`: a column computed for this stream.
    Dense,
}

/// A column of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSource {
    /// Its number among the input's [`crate::abi::ColumnView`]s.
    pub view: usize,
    /// The format in which its values are stored.
    pub format: Format,
    /// The index by which it is addressed.
    pub by: By,
}

/// The place of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// The field is in a column.
    Scalar(ColumnSource),
    /// The list is in Arrow offsets, addressed by row, and child columns, addressed by offset.
    List {
        /// Its number among all lists that come in ([`incoming_lists`]).
        number: usize,
        /// The view of the offsets. Those of the children follow.
        offsets: usize,
    },
    /// A list that a transaction passed on: a column, addressed by row, says which one it is ([`PassedList`]).
    Passed {
        /// The view of that column.
        view: usize,
    },
}

/// A list that came in, as a transaction that passes it on names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedList {
    /// The number among all lists that come in ([`incoming_lists`]).
    pub number: usize,
    /// The row of its root.
    pub row: usize,
}

impl PassedList {
    /// The bits of a word that hold the row; the others hold the number.
    pub(crate) const ROW_BITS: u32 = 32;

    /// Returns the list of a word.
    pub fn of_word(word: u64) -> PassedList {
        PassedList { number: (word >> Self::ROW_BITS) as usize, row: word as u32 as usize }
    }
}

/// Returns all lists that come in with events, in the order of their numbers: the root stream and the field.
pub fn incoming_lists(program: &Program) -> impl Iterator<Item = (StreamId, usize)> {
    let roots = program.streams.iter_enumerated().filter(|&(stream, _)| is_arrow_root(program, stream));
    roots.flat_map(|(id, stream)| {
        let is_list = |f: &usize| stream.schema.fields[*f].scalar_type().is_none();
        (0..stream.schema.fields.len()).filter(is_list).map(move |f| (id, f))
    })
}

/// Returns whether the events of a stream come in as Arrow columns.
fn is_arrow_root(program: &Program, stream: StreamId) -> bool {
    match &program.streams[stream].origin {
        Origin::Filter { .. } | Origin::Map { .. } => false,
        Origin::Due(_) if program.has_stretches() => false,
        given => given.is_given(),
    }
}

/// The places of a stream's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLayout {
    /// The places of the fields, in schema order.
    pub fields: Vec<FieldSource>,
    /// The number of views of the root stream; the views after them are the stream's own computed columns.
    pub root_views: usize,
    /// The fields that are computed for this stream, in the order of their columns.
    pub computed: Vec<usize>,
}

impl StreamLayout {
    /// Returns the layout of any stream of a program that code reads: a root or what derives from it.
    pub fn of(program: &Program, stream: StreamId) -> StreamLayout {
        match &program.streams[stream].origin {
            Origin::Filter { input, .. } => {
                let parent = StreamLayout::of(program, *input);
                parent.derive(parent.fields.clone())
            }
            Origin::Map { input, fields, .. } => {
                let parent = StreamLayout::of(program, *input);
                let sources = fields.iter().map(|field| match field {
                    OutputField::Value(Expr { node: Node::Field(f), .. }) => parent.fields[*f].clone(),
                    OutputField::List(f) => parent.fields[*f].clone(),
                    OutputField::Value(_) => computed_source(),
                });
                parent.derive(sources.collect())
            }
            _ if is_arrow_root(program, stream) => {
                let before = incoming_lists(program).take_while(|&(root, _)| root != stream).count();
                StreamLayout::root(&program.streams[stream].schema, Some(before))
            }
            _ => StreamLayout::root(&program.streams[stream].schema, None),
        }
    }

    /// Returns the field of this root whose first view has this number.
    pub fn field_of_view(&self, view: usize) -> usize {
        let first = |source: &FieldSource| match source {
            FieldSource::Scalar(column) => column.view == view,
            FieldSource::List { offsets, .. } => *offsets == view,
            FieldSource::Passed { view: column } => *column == view,
        };
        self.fields.iter().position(first).expect("a view belongs to a field")
    }

    /// Returns the layout of a root; `lists`: the number of its first list, where its events come in as Arrow columns.
    fn root(schema: &Schema, mut lists: Option<usize>) -> StreamLayout {
        let format = if lists.is_some() { Format::Arrow } else { Format::Native };
        let mut views = 0;
        let mut take = |count: usize| {
            views += count;
            views - count
        };
        let fields = schema
            .fields
            .iter()
            .map(|field| match (&field.ty, &mut lists) {
                (FieldType::Scalar(_), _) => FieldSource::Scalar(ColumnSource { view: take(1), format, by: By::Row }),
                (FieldType::List(item), Some(number)) => {
                    *number += 1;
                    FieldSource::List { number: *number - 1, offsets: take(1 + item.columns().len()) }
                }
                (FieldType::List(_), None) => FieldSource::Passed { view: take(1) },
            })
            .collect();
        StreamLayout { fields, root_views: views, computed: Vec::new() }
    }

    /// Returns the layout of a stream with these sources, of which the computed ones get columns of its own.
    fn derive(&self, mut fields: Vec<FieldSource>) -> StreamLayout {
        let mut computed = Vec::new();
        for (f, source) in fields.iter_mut().enumerate() {
            if let FieldSource::Scalar(column) = source
                && column.by == By::Dense
            {
                column.view = self.root_views + computed.len();
                computed.push(f);
            }
        }
        StreamLayout { fields, root_views: self.root_views, computed }
    }
}

fn computed_source() -> FieldSource {
    FieldSource::Scalar(ColumnSource { view: 0, format: Format::Native, by: By::Dense })
}

/// The origin of a column of a transaction's output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputColumn {
    /// The input's scalar field, unchanged.
    Field(usize),
    /// The input's list field, unchanged.
    List(usize),
    /// The input's list field, unchanged, for code that reads it: a captured column says which list it is.
    Passed(usize),
    /// A captured column.
    Captured(usize),
    /// The reason of the abort, from the verdict.
    Reason,
}

/// The type of a column that says which lists are passed on.
pub const PASSED_TYPE: ColumnType = ColumnType { ty: Type::Int, nullable: false };

/// The composition of a transaction's output stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPlan {
    /// The origins of the columns, in schema order.
    pub columns: Vec<OutputColumn>,
    /// The types of the captured columns.
    pub captured: Vec<ColumnType>,
    /// A flag: whether anything reads the stream. If not, nothing is captured.
    pub wanted: bool,
}

impl OutputPlan {
    fn capture(&mut self, ty: ColumnType) -> OutputColumn {
        self.captured.push(ty);
        OutputColumn::Captured(self.captured.len() - 1)
    }

    /// Returns the column of a list that is passed on; `full`: whether code reads it.
    fn pass(&mut self, list: usize, full: bool) -> OutputColumn {
        if !full {
            return OutputColumn::List(list);
        }
        self.captured.push(PASSED_TYPE);
        OutputColumn::Passed(self.captured.len() - 1)
    }
}

/// Returns whether code reads a root stream's events as they are emitted (filters, maps, transactions), so that all of
/// its scalar fields must be captured.
pub fn feeds_code(program: &Program, root: StreamId) -> bool {
    program.streams.iter_enumerated().any(|(s, stream)| {
        let derived = matches!(stream.origin, Origin::Filter { .. } | Origin::Map { .. });
        stream.root == root && (derived && s != root || !stream.deliveries.is_empty())
    })
}

/// Returns the composition of `txn.committed`.
pub fn committed_plan(program: &Program, id: TransactionId, wanted: bool) -> OutputPlan {
    let transaction = &program.transactions[id];
    let stream = transaction.committed.stream;
    let full = feeds_code(program, stream);
    let mut plan = OutputPlan { wanted: wanted || full, ..OutputPlan::default() };
    let returns = returned_records(&transaction.body);
    for (f, field) in program.streams[stream].schema.fields.iter().enumerate() {
        let passed = if transaction.committed.passes_event { Some(f) } else { passed_field(&returns, f) };
        let column = match (field.scalar_type(), passed) {
            (None, Some(list)) => plan.pass(list, full),
            (Some(_), Some(same)) if !full => OutputColumn::Field(same),
            (Some(ty), _) => plan.capture(ty),
            (None, None) => unreachable!("analysis makes every returned list a list of the input"),
        };
        plan.columns.push(column);
    }
    plan
}

/// Returns the composition of `txn.aborted`: the input's fields, the reason, the values seen.
pub fn aborted_plan(program: &Program, id: TransactionId, wanted: bool) -> OutputPlan {
    let transaction = &program.transactions[id];
    let full = feeds_code(program, transaction.aborted);
    let mut plan = OutputPlan { wanted: wanted || full, ..OutputPlan::default() };
    let width = transaction.schema.fields.len();
    for (f, field) in program.streams[transaction.aborted].schema.fields.iter().enumerate() {
        let column = match field.scalar_type() {
            None => plan.pass(f, full),
            Some(_) if f < width && !full => OutputColumn::Field(f),
            Some(_) if f == width && !full => OutputColumn::Reason,
            Some(ty) => plan.capture(ty),
        };
        plan.columns.push(column);
    }
    plan
}

/// Returns the composition of `txn.emitted(name)`: scalars are always captured.
pub fn emitted_plan(program: &Program, transaction: &Transaction, emit: usize, wanted: bool) -> OutputPlan {
    let stream = transaction.emits[emit].stream;
    let full = feeds_code(program, stream);
    let mut plan = OutputPlan { wanted: wanted || full, ..OutputPlan::default() };
    let emits = emitted_records(&transaction.body, emit);
    for (f, field) in program.streams[stream].schema.fields.iter().enumerate() {
        let column = match field.scalar_type() {
            Some(ty) => plan.capture(ty),
            None => plan.pass(passed_list(&emits, f), full),
        };
        plan.columns.push(column);
    }
    plan
}

/// Returns the input field that every record gives unchanged as field `f`, if there is one.
fn passed_field(records: &[&[OutputField]], f: usize) -> Option<usize> {
    let of = |record: &&[OutputField]| match &record[f] {
        OutputField::Value(Expr { node: Node::Field(field), .. }) | OutputField::List(field) => Some(*field),
        OutputField::Value(_) => None,
    };
    let first = of(records.first()?)?;
    records.iter().all(|r| of(r) == Some(first)).then_some(first)
}

fn passed_list(records: &[&[OutputField]], f: usize) -> usize {
    passed_field(records, f).expect("analysis makes every emitted list one list of the input")
}

fn returned_records(body: &[Stmt]) -> Vec<&[OutputField]> {
    let mut records = Vec::new();
    visit(body, &mut |stmt| {
        if let Stmt::Return { fields: Some(fields) } = stmt {
            records.push(fields.as_slice());
        }
    });
    records
}

fn emitted_records(body: &[Stmt], emit: usize) -> Vec<&[OutputField]> {
    let mut records = Vec::new();
    visit(body, &mut |stmt| match stmt {
        Stmt::Emit { output, fields } if *output == emit => records.push(fields.as_slice()),
        _ => {}
    });
    records
}

/// Calls `see` on every statement, nested ones included.
pub fn visit<'a>(body: &'a [Stmt], see: &mut impl FnMut(&'a Stmt)) {
    for stmt in body {
        see(stmt);
        match stmt {
            Stmt::If { then, otherwise, .. } => {
                visit(then, see);
                visit(otherwise, see);
            }
            Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => visit(body, see),
            _ => {}
        }
    }
}
