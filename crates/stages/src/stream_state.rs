//! An epoch's data about a stream's events beyond the input itself: the outputs of pipelines, and the events that
//! transactions emitted to streams that code reads.

use crate::incoming::IncomingLists;
use crate::input::Identity;
use crate::views::native_view;
use crate::wiring::{InputEvent, InputId};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ops::Range;
use tidemill_compile::abi::{ColumnView, InputView, NativeView, OutputView};
use tidemill_compile::{AccessContext, NativeColumn, PASSED_TYPE, PipelineCode, PipelineNode, resize_zeroed};
use tidemill_model::{Schema, Type};

/// The output of a pipeline for one node.
pub struct NodeOutput {
    /// Event of the stream → event of the root.
    pub index: Vec<u32>,
    /// Number of events.
    pub len: usize,
    /// The stream's computed columns, then computed keys.
    pub columns: Vec<NativeColumn>,
    /// Events for which the stream's expressions failed: root event in the upper half, reason in the
    /// lower.
    pub failures: Vec<u64>,
    /// Number of failures.
    pub failure_len: usize,
    element_counts: Vec<u64>,
    views: Vec<NativeView>,
}

/// The output of a root's pipeline in an epoch.
#[derive(Default)]
pub struct PipelineState {
    /// The output of each node, by node; empty for a root without code.
    pub nodes: Vec<NodeOutput>,
    outputs: Vec<OutputView>,
}

/// The end of a pipeline's output so far: by node, the numbers of events, of failures, and of elements by column.
pub struct PipelineMark(Vec<(usize, usize, Vec<u64>)>);

#[allow(unsafe_code)]
// SAFETY: the views hold addresses into the state's own buffers; compiled code uses them during a call.
unsafe impl Send for PipelineState {}
#[allow(unsafe_code)]
// SAFETY: as above; workers share it for reading only.
unsafe impl Sync for PipelineState {}

impl NodeOutput {
    fn new(node: &PipelineNode) -> Self {
        NodeOutput {
            index: Vec::new(),
            len: 0,
            columns: node.columns.iter().map(|&t| NativeColumn::new(t)).collect(),
            failures: Vec::new(),
            failure_len: 0,
            element_counts: vec![0; node.columns.len()],
            views: Vec::new(),
        }
    }

    fn ensure(&mut self, events: usize, elements: usize) {
        let len = self.len + events;
        if self.index.len() < len {
            resize_zeroed(&mut self.index, len.next_power_of_two());
        }
        let failures = self.failure_len + events;
        if self.failures.len() < failures {
            resize_zeroed(&mut self.failures, failures.next_power_of_two());
        }
        for (column, written) in self.columns.iter_mut().zip(&self.element_counts) {
            column.ensure(len.max(*written as usize + elements));
        }
        self.views.clear();
        self.views.extend(self.columns.iter_mut().map(NativeColumn::view));
    }

    fn view(&mut self) -> OutputView {
        OutputView {
            index: self.index.as_mut_ptr(),
            count: self.len as u64,
            columns: self.views.as_ptr(),
            failures: self.failures.as_mut_ptr(),
            failure_count: self.failure_len as u64,
            element_counts: self.element_counts.as_mut_ptr(),
        }
    }

    /// Returns the computed columns as input columns.
    pub fn column_views(&mut self) -> Vec<ColumnView> {
        self.columns.iter_mut().map(native_view).collect()
    }
}

impl PipelineState {
    /// Makes the state of a root's pipeline.
    pub fn new(code: Option<&PipelineCode>) -> Self {
        let nodes = code.filter(|c| c.run.is_some()).map(|c| c.plan.nodes.iter().map(NodeOutput::new).collect());
        PipelineState { nodes: nodes.unwrap_or_default(), outputs: Vec::new() }
    }

    /// Empties the state for the next epoch.
    pub fn clear(&mut self) {
        for node in &mut self.nodes {
            (node.len, node.failure_len) = (0, 0);
            node.element_counts.fill(0);
        }
    }

    /// Returns a place that it can be cut back to.
    pub fn mark(&self) -> PipelineMark {
        let lens = |node: &NodeOutput| (node.len, node.failure_len, node.element_counts.clone());
        PipelineMark(self.nodes.iter().map(lens).collect())
    }

    /// Forgets what was written since the mark.
    pub fn cut(&mut self, mark: &PipelineMark) {
        for (node, (len, failure_len, element_counts)) in self.nodes.iter_mut().zip(&mark.0) {
            assert!(*len <= node.len && *failure_len <= node.failure_len, "it was not cleared since the mark");
            (node.len, node.failure_len) = (*len, *failure_len);
            node.element_counts.clone_from(element_counts);
        }
    }

    /// Runs the pipeline on `count` events (those of `selection`, otherwise 0, 1, …) of `input`, whose lists have at
    /// most `elements` elements in all.
    pub fn run(
        &mut self,
        code: &PipelineCode,
        context: &mut AccessContext,
        input: &InputView,
        selection: Option<&[u32]>,
        count: usize,
        elements: usize,
    ) {
        let Some(run) = code.run else { return };
        self.nodes.iter_mut().for_each(|node| node.ensure(count, elements));
        self.outputs.clear();
        self.outputs.extend(self.nodes.iter_mut().map(NodeOutput::view));
        let selection = selection.map_or(std::ptr::null(), <[u32]>::as_ptr);
        #[allow(unsafe_code)]
        // SAFETY: the code was compiled for this root's columns; the lines above ensure that the views point to buffers
        // with space for `count` more events and failures and `elements` more elements.
        unsafe {
            run(context, input, selection, count as u64, self.outputs.as_mut_ptr());
        }
        for (node, output) in self.nodes.iter_mut().zip(&self.outputs) {
            node.len = output.count as usize;
            node.failure_len = output.failure_count as usize;
        }
    }
}

/// The events that transactions emitted to a stream that code reads, in order.
pub struct EventLog {
    /// The values of each field of the stream's schema, by field; of a list, which one it is ([`tidemill_compile::PassedList`]).
    pub columns: Vec<NativeColumn>,
    /// Number of events.
    pub len: usize,
    /// The input of the transaction that emitted each event, and the number of its event there.
    pub owners: Vec<InputEvent>,
}

impl EventLog {
    /// Makes an empty log for a stream of this schema.
    pub fn new(schema: &Schema) -> Self {
        let ty = |f: &tidemill_model::Field| f.scalar_type().unwrap_or(PASSED_TYPE);
        let columns = schema.fields.iter().map(|f| NativeColumn::new(ty(f))).collect();
        EventLog { columns, len: 0, owners: Vec::new() }
    }

    /// Empties the log for the next epoch.
    pub fn clear(&mut self) {
        self.len = 0;
        self.owners.clear();
    }

    /// Forgets all events but the first `len`.
    pub fn cut(&mut self, len: usize) {
        assert!(len <= self.len, "{len} events of {}", self.len);
        self.len = len;
        self.owners.truncate(len);
    }

    /// Appends an event: the values at index `at` of the captured columns; `captured` maps fields to columns.
    pub fn push(&mut self, captured: &[Option<usize>], from: &[NativeColumn], at: usize, owner: InputEvent) {
        for (column, source) in self.columns.iter_mut().zip(captured) {
            column.ensure(self.len + 1);
            if let Some(c) = source {
                column.copy_value(self.len, &from[*c], at);
            }
        }
        self.len += 1;
        self.owners.push(owner);
    }

    /// Appends the events of a batch, which must live as long as its texts are read. Returns their places.
    pub fn push_batch(&mut self, batch: &RecordBatch) -> Range<usize> {
        let places = self.len..self.len + batch.num_rows();
        for (column, from) in self.columns.iter_mut().zip(batch.columns()) {
            column.ensure(places.end);
            copy(column, places.start, from);
        }
        // Only answers to calls are looked up with their owner.
        self.owners.resize(places.end, InputEvent { input: InputId::from(0), event: 0 });
        self.len = places.end;
        places
    }

    /// Returns its columns as input columns, numbered as in the stream's layout. Those of lists have the address of the lists that
    /// came in.
    pub fn column_views(&mut self, schema: &Schema, lists: &IncomingLists) -> Vec<ColumnView> {
        let view = |(column, field): (_, &tidemill_model::Field)| match field.scalar_type() {
            Some(_) => native_view(column),
            None => ColumnView { aux: lists.addresses().cast(), ..native_view(column) },
        };
        self.columns.iter_mut().zip(&schema.fields).map(view).collect()
    }
}

/// Copies an Arrow column to places of a column, for which there is room; of texts, only where they are.
fn copy(column: &mut NativeColumn, first: usize, from: &ArrayRef) {
    let rows = || (0..from.len()).filter(|&row| !from.is_null(row));
    match column.ty().ty {
        Type::Str => {
            let texts = from.as_string::<i32>();
            rows().for_each(|row| column.set_text(first + row, texts.value(row).as_bytes()));
        }
        Type::Bytes => {
            let texts = from.as_binary::<i32>();
            rows().for_each(|row| column.set_text(first + row, texts.value(row)));
        }
        Type::Bool => {
            let values = from.as_boolean();
            rows().for_each(|row| column.set_word(first + row, u64::from(values.value(row))));
        }
        Type::Int => {
            let values = from.as_primitive::<Int64Type>().values();
            rows().for_each(|row| column.set_word(first + row, values[row] as u64));
        }
        Type::Time => {
            let values = from.as_primitive::<TimestampMicrosecondType>().values();
            rows().for_each(|row| column.set_word(first + row, values[row] as u64));
        }
        Type::Float => {
            let values = from.as_primitive::<Float64Type>().values();
            rows().for_each(|row| column.set_word(first + row, values[row].to_bits()));
        }
        Type::Decimal { .. } => {
            let values = from.as_primitive::<Decimal128Type>().values();
            rows().for_each(|row| column.set_word(first + row, values[row] as u64));
        }
        Type::Duration | Type::Null => unreachable!("no column of a table is {}", column.ty().ty),
    }
    (0..from.len()).filter(|&row| from.is_null(row)).for_each(|row| column.set_null(first + row));
}

/// Returns the input view of a root for its pipeline: columns and the identity.
pub fn root_view(columns: &[ColumnView], identity: &Identity) -> InputView {
    InputView {
        columns: columns.as_ptr(),
        index: identity.entries().as_ptr(),
        places: std::ptr::null(),
        rows: std::ptr::null(),
        starts: std::ptr::null(),
        captures: std::ptr::null(),
        seen: std::ptr::null(),
        verdicts: std::ptr::null_mut(),
    }
}
