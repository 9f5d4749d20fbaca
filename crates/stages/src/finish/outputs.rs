//! The columns of output streams, wherever their values are: in the source's batch, in columns that code captured or
//! computed, or, for a list, in the source of a chain of transactions that passed it on.

use crate::epoch::Epoch;
use crate::finish::gather_columns::gather;
use crate::given::{Picked, pick};
use crate::machine::{InputContext, Machine};
use crate::wiring::{InputEvent, InputId, Outlet, outlet_of};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use std::sync::Arc;
use tidemill_compile::abi::Verdict;
use tidemill_compile::{By, FieldSource, Format, OutputColumn};
use tidemill_model::arrow::{arrow_schema, batch_of};
use tidemill_model::{Field, Value};
use tidemill_plan::{Origin, StreamId, bad_schema};

/// Builds output batches of an epoch.
#[derive(Clone, Copy)]
pub struct OutputBuilder<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The epoch.
    pub epoch: &'a Epoch,
}

/// Returns the node of a derived stream (or root) in its root's pipeline.
pub fn node_of(machine: &Machine, stream: StreamId) -> usize {
    let root = machine.program.streams[stream].root;
    let plan = &machine.code.pipelines[root].as_ref().expect("a root has a plan").plan;
    plan.nodes.iter().position(|n| n.stream == stream).expect("a derived stream is a node of its root")
}

impl<'a> OutputBuilder<'a> {
    /// Returns a stream's events of this epoch; no batch if there are none.
    pub fn batches(self, stream: StreamId) -> Vec<RecordBatch> {
        match &self.machine.program.streams[stream].origin {
            Origin::Due(_) if self.machine.wiring.is_logged_root(stream) => self.logged(stream),
            Origin::Source { .. } | Origin::LateRoot(_) | Origin::Batch(_) | Origin::Due(_) => {
                let given = &self.epoch.input.sources[self.source_number(stream)];
                given.events.iter().filter(|b| b.num_rows() > 0).cloned().collect()
            }
            Origin::Late(of) => self.epoch.input.sources[self.source_number(*of)].late.clone(),
            Origin::Bad(of) => self.bad(self.source_number(*of)),
            Origin::Filter { .. } | Origin::Map { .. } => self.derived(stream),
            Origin::Failed(of) => self.failed(*of, stream),
            Origin::Committed(_) | Origin::Aborted(_) | Origin::Emitted(..) => self.outlet(stream),
        }
    }

    fn source_number(self, stream: StreamId) -> usize {
        self.machine.wiring.given.iter().position(|&s| s == stream).expect("late and bad belong to a source")
    }

    fn batch(self, stream: StreamId, len: usize, columns: Vec<ArrayRef>) -> Vec<RecordBatch> {
        if len == 0 {
            return Vec::new();
        }
        let schema = arrow_schema(&self.machine.program.streams[stream].schema);
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        vec![batch.unwrap_or_else(|e| panic!("columns of '{}': {e}", self.machine.program.streams[stream].name))]
    }

    fn bad(self, source: usize) -> Vec<RecordBatch> {
        let text = |t: &Option<String>| t.clone().map_or(Value::Null, Value::Str);
        let rows: Vec<Vec<Value>> = self.epoch.input.sources[source]
            .bad
            .iter()
            .map(|bad| {
                let line = bad.line.map_or(Value::Null, |l| Value::Int(l as i64));
                let reason = Value::Str(bad.reason.clone());
                vec![text(&bad.origin), line, text(&bad.column), reason, text(&bad.record)]
            })
            .collect();
        if rows.is_empty() { Vec::new() } else { vec![batch_of(&bad_schema(), &rows)] }
    }

    /// Returns all events of a root that is logged, though no transaction feeds it.
    fn logged(self, stream: StreamId) -> Vec<RecordBatch> {
        let len = self.epoch.work.logs[stream].as_ref().map_or(0, |log| log.len);
        let columns = if len == 0 { Vec::new() } else { self.stream_columns(stream, &Vec::from_iter(0..len as u32)) };
        self.batch(stream, len, columns)
    }

    /// Returns all events of a filter or map.
    fn derived(self, stream: StreamId) -> Vec<RecordBatch> {
        let root = self.machine.program.streams[stream].root;
        let node = &self.epoch.work.pipelines[root].nodes[node_of(self.machine, stream)];
        let len = node.len;
        let mut all: Vec<u32> = (0..len as u32).collect();
        // A cascade follows events in an order other than the order of emission if one transaction runs on an event and
        // again on one of its consequences.
        if !node.index[..len].is_sorted() {
            all.sort_by_key(|&k| node.index[k as usize]);
        }
        let columns = if len == 0 { Vec::new() } else { self.stream_columns(stream, &all) };
        self.batch(stream, len, columns)
    }

    /// Returns the events that failed in `of`: the fields of its input, and the reason.
    fn failed(self, of: StreamId, stream: StreamId) -> Vec<RecordBatch> {
        let (Origin::Filter { input, reasons, .. } | Origin::Map { input, reasons, .. }) =
            &self.machine.program.streams[of].origin
        else {
            unreachable!("only filters and maps have failures")
        };
        let root = self.machine.program.streams[of].root;
        let nodes = &self.epoch.work.pipelines[root].nodes;
        let node = &nodes[node_of(self.machine, of)];
        let mut failures = node.failures[..node.failure_len].to_vec();
        failures.sort_by_key(|failure| failure >> 32);
        if failures.is_empty() {
            return Vec::new();
        }
        let roots = failures.iter().map(|f| (f >> 32) as u32);
        let events: Vec<u32> = if *input == root {
            roots.collect()
        } else {
            let parent = &nodes[node_of(self.machine, *input)];
            let mut index: Vec<(u32, u32)> = parent.index[..parent.len].iter().copied().zip(0..).collect();
            index.sort_unstable();
            let place = |r| index.binary_search_by_key(&r, |&(root, _)| root).expect("it was offered by its input");
            roots.map(|r| index[place(r)].1).collect()
        };
        let mut columns = self.stream_columns(*input, &events);
        let texts = failures.iter().map(|f| reasons[*f as u32 as usize].as_str());
        columns.push(Arc::new(StringArray::from_iter_values(texts)));
        self.batch(stream, failures.len(), columns)
    }

    /// Returns the columns of a root or derived stream at the given events (numbered within the stream).
    fn stream_columns(self, stream: StreamId, events: &[u32]) -> Vec<ArrayRef> {
        let definition = &self.machine.program.streams[stream];
        let root = definition.root;
        let node = node_of(self.machine, stream);
        let layout = &self.machine.code.pipelines[root].as_ref().expect("a root has a plan").plan.nodes[node].layout;
        let rows: Vec<u32> = if stream == root {
            events.to_vec()
        } else {
            let index = &self.epoch.work.pipelines[root].nodes[node].index;
            events.iter().map(|&e| index[e as usize]).collect()
        };
        let mut computed = 0;
        let column = |(field, source): (&Field, &FieldSource)| match source {
            FieldSource::Scalar(c) if c.by == By::Dense => {
                let native = &self.epoch.work.pipelines[root].nodes[node].columns[computed];
                computed += 1;
                let ty = field.scalar_type().expect("computed fields are scalars");
                gather(ty, events.iter().map(|&e| (native, e as usize)))
            }
            source => self.root_column(root, field, source, &rows),
        };
        definition.schema.fields.iter().zip(&layout.fields).map(column).collect()
    }

    /// Returns a column of a root at the given rows.
    fn root_column(self, root: StreamId, field: &Field, source: &FieldSource, rows: &[u32]) -> ArrayRef {
        match source {
            FieldSource::Scalar(c) if c.format == Format::Native => {
                let log = self.epoch.work.logs[root].as_ref().expect("a native root has a log");
                let column = &log.columns[self.field_of_view(root, c.view)];
                let ty = field.scalar_type().expect("a scalar source");
                gather(ty, rows.iter().map(|&r| (column, r as usize)))
            }
            FieldSource::Scalar(c) => self.source_column(root, c.view, rows),
            FieldSource::List { offsets, .. } => self.source_column(root, *offsets, rows),
            FieldSource::Passed { view } => {
                let origins: Vec<_> = rows.iter().map(|&r| self.passed_list(root, *view, r as usize)).collect();
                interleave_origins(&origins)
            }
        }
    }

    fn source_column(self, root: StreamId, view: usize, rows: &[u32]) -> ArrayRef {
        let batch = self.source_batch(root);
        let column = batch.column(self.field_of_view(root, view));
        take_rows(column, rows)
    }

    fn source_batch(self, root: StreamId) -> &'a RecordBatch {
        let source = self.source_number(root);
        self.epoch.input.sources[source].events.as_ref().expect("events of a source come from its batch")
    }

    /// Returns the field of a root whose first view has this number.
    fn field_of_view(self, root: StreamId, view: usize) -> usize {
        let layout = &self.machine.code.pipelines[root].as_ref().expect("a root has a plan").plan.nodes[0].layout;
        layout.field_of_view(view)
    }

    /// Returns the place in its source of a list that transactions passed on: the array and the row.
    fn passed_list(self, root: StreamId, view: usize, place: usize) -> (&'a ArrayRef, usize) {
        let log = self.epoch.work.logs[root].as_ref().expect("a stream with passed lists has a log");
        self.epoch.work.lists.of(log.columns[self.field_of_view(root, view)].words()[place])
    }

    /// Returns the place in its source of a list field of an input's event.
    fn input_list(self, input: InputId, field: usize, event: u32) -> (&'a ArrayRef, usize) {
        let InputContext { wiring, code, .. } = self.machine.input(input);
        let row = self.epoch.work.inputs[input].row(event as usize);
        match &code.layout.fields[field] {
            FieldSource::List { offsets, .. } => {
                let batch = self.source_batch(wiring.root);
                (batch.column(self.field_of_view(wiring.root, *offsets)), row)
            }
            FieldSource::Passed { view } => self.passed_list(wiring.root, *view, row),
            FieldSource::Scalar(_) => unreachable!("a list is no scalar"),
        }
    }

    /// Returns the events of a stream that a transaction feeds.
    fn outlet(self, stream: StreamId) -> Vec<RecordBatch> {
        let (transaction, outlet) = outlet_of(&self.machine.program, stream).expect("fed by a transaction");
        let runs = |id: &InputId| {
            self.machine.wiring.inputs[*id].transaction == transaction && self.epoch.work.inputs[*id].len > 0
        };
        let ran: Vec<InputId> = self.epoch.work.inputs.keys().filter(runs).collect();
        if let (&[input], Outlet::Committed | Outlet::Aborted) = (ran.as_slice(), outlet) {
            return self.sole(stream, input, outlet);
        }
        let picked = pick(self.machine, self.epoch, transaction, outlet);
        if picked.is_empty() {
            return Vec::new();
        }
        let schema = &self.machine.program.streams[stream].schema;
        let columns =
            schema.fields.iter().enumerate().map(|(f, field)| self.outlet_column(outlet, f, field, &picked)).collect();
        self.batch(stream, picked.len(), columns)
    }

    /// Returns the events of a transaction's outlet that one of its inputs gave, in order.
    pub fn of_input(self, stream: StreamId, input: InputId, outlet: Outlet) -> Vec<RecordBatch> {
        assert!(!matches!(outlet, Outlet::Emitted(_)), "emissions are not by input");
        self.sole(stream, input, outlet)
    }

    /// Builds the output of events that all belong to one input: by far the most frequent case, and the fast one.
    fn sole(self, stream: StreamId, input: InputId, outlet: Outlet) -> Vec<RecordBatch> {
        let prepared = &self.epoch.work.inputs[input];
        let mut events = matching(&prepared.verdicts[..prepared.len], outlet);
        let in_order = prepared.ran_in_order();
        if !in_order {
            events.sort_by_key(|&event| prepared.rank(event));
        }
        if events.is_empty() {
            return Vec::new();
        }
        let plan = outlet.plan(self.machine.input(input).code);
        let fields = &self.machine.program.streams[stream].schema.fields;
        let mut rows = None;
        let column = |(field, column): (&Field, &OutputColumn)| match *column {
            OutputColumn::Captured(c) => {
                let columns = prepared.given(outlet);
                let ty = field.scalar_type().expect("captured columns are scalars");
                gather(ty, events.iter().map(|&e| (&columns[c], e as usize)))
            }
            OutputColumn::Field(same) if self.is_arrow(input, same) => {
                let column = self.arrow_field(input, same);
                if prepared.index.is_none() && in_order && events.len() == prepared.len {
                    // Every event of the source, in order: the result is the column itself.
                    return column.clone();
                }
                let rows = rows.get_or_insert_with(|| match &prepared.index {
                    None => UInt32Array::from(events.clone()),
                    Some(index) if in_order && events.len() == prepared.len => {
                        UInt32Array::from(index[..events.len()].to_vec())
                    }
                    Some(index) => UInt32Array::from_iter_values(events.iter().map(|&e| index[e as usize])),
                });
                take(column, rows, None).expect("rows of the batch that the index was made for")
            }
            _ => {
                let picked = |&event: &u32| Picked { at: InputEvent { input, event }, context: 0, place: event };
                let picked: Vec<Picked> = events.iter().map(picked).collect();
                let f = fields.iter().position(|other| std::ptr::eq(other, field)).expect("a field of the schema");
                self.outlet_column(outlet, f, field, &picked)
            }
        };
        let columns = fields.iter().zip(&plan.columns).map(column).collect();
        self.batch(stream, events.len(), columns)
    }

    /// Returns whether a field of an input is an unchanged column of its source's batch.
    fn is_arrow(self, input: InputId, field: usize) -> bool {
        let layout = &self.machine.input(input).code.layout;
        matches!(layout.fields[field], FieldSource::Scalar(c) if c.format == Format::Arrow)
    }

    /// Returns the column of such a field.
    fn arrow_field(self, input: InputId, field: usize) -> &'a ArrayRef {
        let InputContext { wiring, code, .. } = self.machine.input(input);
        let FieldSource::Scalar(c) = code.layout.fields[field] else { unreachable!("just asked for") };
        self.source_batch(wiring.root).column(self.field_of_view(wiring.root, c.view))
    }

    fn outlet_column(self, outlet: Outlet, f: usize, field: &Field, picked: &[Picked]) -> ArrayRef {
        let first = picked[0].at.input;
        if picked.iter().any(|p| p.at.input != first) {
            return self.mixed_column(outlet, f, field, picked);
        }
        match outlet.plan(self.machine.input(first).code).columns[f] {
            OutputColumn::Field(same) => self.input_field(first, same, field, picked),
            OutputColumn::List(same) => {
                let origins: Vec<_> = picked.iter().map(|p| self.input_list(p.at.input, same, p.at.event)).collect();
                interleave_origins(&origins)
            }
            OutputColumn::Passed(c) => {
                let word = |p: &Picked| p.columns(self.machine, self.epoch, outlet)[c].words()[p.place as usize];
                let origins: Vec<_> = picked.iter().map(|p| self.epoch.work.lists.of(word(p))).collect();
                interleave_origins(&origins)
            }
            OutputColumn::Captured(c) => self.captured(outlet, c, field, picked),
            OutputColumn::Reason => {
                let reasons = &self.machine.input(first).transaction.reasons;
                let verdicts = &self.epoch.work.inputs[first].verdicts;
                let text = |p: &Picked| {
                    let reason = verdicts[p.at.event as usize].reason().expect("an abort has a reason");
                    reasons[reason as usize].as_str()
                };
                Arc::new(StringArray::from_iter_values(picked.iter().map(text)))
            }
        }
    }

    fn captured(self, outlet: Outlet, column: usize, field: &Field, picked: &[Picked]) -> ArrayRef {
        let ty = field.scalar_type().expect("captured columns are scalars");
        let given = |p: &Picked| (&p.columns(self.machine, self.epoch, outlet)[column], p.place as usize);
        gather(ty, picked.iter().map(given))
    }

    /// Returns a scalar field of an input's events, unchanged.
    fn input_field(self, input: InputId, same: usize, field: &Field, picked: &[Picked]) -> ArrayRef {
        let InputContext { wiring, code, .. } = self.machine.input(input);
        let source = &code.layout.fields[same];
        if let FieldSource::Scalar(c) = source
            && c.by == By::Dense
        {
            let native =
                &self.epoch.work.pipelines[wiring.root].nodes[wiring.node].columns[c.view - code.layout.root_views];
            let ty = field.scalar_type().expect("a scalar source");
            return gather(ty, picked.iter().map(|p| (native, p.at.event as usize)));
        }
        let prepared = &self.epoch.work.inputs[input];
        let rows: Vec<u32> = picked.iter().map(|p| prepared.row(p.at.event as usize) as u32).collect();
        self.root_column(wiring.root, field, source, &rows)
    }

    /// Returns a column of events of several inputs: the columns of the inputs, put in order.
    fn mixed_column(self, outlet: Outlet, f: usize, field: &Field, picked: &[Picked]) -> ArrayRef {
        let mut inputs: Vec<InputId> = picked.iter().map(|p| p.at.input).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let parts: Vec<ArrayRef> = inputs
            .iter()
            .map(|&input| {
                let own: Vec<Picked> = picked.iter().copied().filter(|p| p.at.input == input).collect();
                self.outlet_column(outlet, f, field, &own)
            })
            .collect();
        let mut next = vec![0usize; inputs.len()];
        let order: Vec<(usize, usize)> = picked
            .iter()
            .map(|p| {
                let part = inputs.iter().position(|&i| i == p.at.input).expect("collected above");
                next[part] += 1;
                (part, next[part] - 1)
            })
            .collect();
        let parts: Vec<&dyn arrow_array::Array> = parts.iter().map(|p| p.as_ref()).collect();
        interleave(&parts, &order).expect("parts of one column have one type")
    }
}

/// Returns the events whose verdict goes to an outlet. Most transactions commit, so the code for commits has no branch
/// per event; few abort.
fn matching(verdicts: &[Verdict], outlet: Outlet) -> Vec<u32> {
    let numbered = verdicts.iter().zip(0u32..);
    if outlet != Outlet::Committed {
        return numbered.filter(|(verdict, _)| !verdict.is_committed()).map(|(_, e)| e).collect();
    }
    if verdicts.iter().all(|verdict| verdict.passes_record()) {
        return (0..verdicts.len() as u32).collect();
    }
    let mut events = vec![0; verdicts.len() + 1];
    let mut count = 0;
    for (verdict, e) in numbered {
        events[count] = e;
        count += usize::from(verdict.passes_record());
    }
    events.truncate(count);
    events
}

fn take_rows(column: &ArrayRef, rows: &[u32]) -> ArrayRef {
    take(column, &UInt32Array::from(rows.to_vec()), None).expect("rows of the batch that the index was made for")
}

/// Makes one array of values from several arrays of one type.
fn interleave_origins(origins: &[(&ArrayRef, usize)]) -> ArrayRef {
    let mut arrays: Vec<&ArrayRef> = Vec::new();
    let places: Vec<(usize, usize)> = origins
        .iter()
        .map(|(array, row)| {
            let known = arrays.iter().position(|a| Arc::ptr_eq(a, array));
            let number = known.unwrap_or_else(|| {
                arrays.push(array);
                arrays.len() - 1
            });
            (number, *row)
        })
        .collect();
    let arrays: Vec<&dyn arrow_array::Array> = arrays.iter().map(|a| a.as_ref()).collect();
    interleave(&arrays, &places).expect("one list field has one type")
}
