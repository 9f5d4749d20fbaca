//! The filters, maps and key expressions of one root stream, fused into one function: each event
//! is read once, goes as far as it goes, and what is computed of it stays in registers until it is
//! stored for a stream that it reached.

use crate::abi::OutputView;
use crate::body::{Body, Element, Event, FieldValue, INPUT_COLUMNS, List};
use crate::layout::{FieldSource, StreamLayout};
use crate::limits::{Sums, expression_counts, fields_count};
use crate::lower::{Constants, Lower, Val, constant, trusted};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, TrapCode, Value};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, Variable};
use std::mem::{offset_of, size_of};
use tidemill_model::ColumnType;
use tidemill_plan::typed::{Expr, Node};
use tidemill_plan::{Origin, OutputField, Program, StreamId};

/// The origin of one key column of a role.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySource {
    /// A scalar field of the stream.
    Field(usize),
    /// A column of the list that the role runs over.
    Element(usize),
    /// A constant.
    Constant(tidemill_model::Value),
    /// A column that the pipeline computes: by event, or by element for a role over a list.
    Computed(usize),
}

/// The keys of a transaction's roles for one of its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryKeys {
    /// The origins of each role's key columns, by role; none for a role whose key is read from a row.
    pub roles: Vec<Vec<KeySource>>,
}

/// A stream that derives from a root, and what the pipeline writes for it.
#[derive(Clone, Debug)]
pub struct PipelineNode {
    /// The stream; the root itself comes first.
    pub stream: StreamId,
    /// Its layout.
    pub layout: StreamLayout,
    /// The types of the columns written for it: its computed fields, then computed keys.
    pub columns: Vec<ColumnType>,
    /// The computed keys, whose columns come after the fields, as (expression, the list that its role runs over).
    keys: Vec<(Expr, Option<usize>)>,
    /// The nodes whose streams derive from this one's stream.
    children: Vec<usize>,
}

/// A root stream, and all streams that derive from it.
pub struct PipelinePlan {
    /// The root first, then its derived streams, inputs before what derives from them.
    pub nodes: Vec<PipelineNode>,
    /// The deliveries, each with the node of the input's stream, and the keys.
    pub deliveries: Vec<(tidemill_plan::Delivery, usize, DeliveryKeys)>,
}

impl PipelinePlan {
    /// Plans what derives from a root.
    pub fn of(program: &Program, root: StreamId) -> PipelinePlan {
        let mut plan = PipelinePlan { nodes: vec![PipelineNode::of(program, root)], deliveries: Vec::new() };
        for (s, stream) in program.streams.iter_enumerated() {
            if let Origin::Filter { input, .. } | Origin::Map { input, .. } = &stream.origin
                && stream.root == root
            {
                let parent = plan.node_of(*input);
                let child = plan.nodes.len();
                plan.nodes[parent].children.push(child);
                plan.nodes.push(PipelineNode::of(program, s));
            }
        }
        for &delivery in &program.streams[root].deliveries {
            let transaction = &program.transactions[delivery.transaction];
            let node = plan.node_of(transaction.inputs[delivery.input]);
            let target = &mut plan.nodes[node];
            let roles = transaction.roles.iter().map(|role| match role.is_found_late() {
                true => Vec::new(),
                false => role.key.iter().map(|key| target.key_source(key, role.over)).collect(),
            });
            let keys = DeliveryKeys { roles: roles.collect() };
            plan.deliveries.push((delivery, node, keys));
        }
        plan
    }

    fn node_of(&self, stream: StreamId) -> usize {
        self.nodes.iter().position(|n| n.stream == stream).expect("streams come after what they derive from")
    }

    /// Returns whether there is anything to compute.
    pub fn needs_code(&self) -> bool {
        self.nodes.len() > 1 || !self.nodes[0].keys.is_empty()
    }
}

impl PipelineNode {
    fn of(program: &Program, stream: StreamId) -> Self {
        let layout = StreamLayout::of(program, stream);
        let field_type = |&f: &usize| program.streams[stream].schema.fields[f].scalar_type().expect("computed");
        let columns = layout.computed.iter().map(field_type).collect();
        PipelineNode { stream, layout, columns, keys: Vec::new(), children: Vec::new() }
    }

    /// Returns whether the node is no more than the list of its events, so that one may be written in vain.
    fn is_list_of_events(&self) -> bool {
        self.columns.is_empty() && self.children.is_empty()
    }

    /// Returns whether the list that a role runs over is one that came in with the event.
    fn has_incoming(&self, over: Option<usize>) -> bool {
        over.is_some_and(|list| matches!(self.layout.fields[list], FieldSource::List { .. }))
    }

    fn key_source(&mut self, key: &Expr, over: Option<usize>) -> KeySource {
        match &key.node {
            Node::Field(field) if over.is_none() => KeySource::Field(*field),
            Node::Element { column, .. } if self.has_incoming(over) => KeySource::Element(*column),
            Node::Const(value) if over.is_none() => KeySource::Constant(value.clone()),
            _ => {
                self.keys.push((key.clone(), over));
                self.columns.push(key.ty);
                KeySource::Computed(self.columns.len() - 1)
            }
        }
    }
}

/// Returns whether a filter or map counts anything.
fn derivation_counts(origin: &Origin) -> bool {
    match origin {
        Origin::Filter { predicate, .. } => expression_counts(predicate),
        Origin::Map { fields, .. } => fields_count(fields),
        _ => false,
    }
}

/// The node of the root.
const ROOT: usize = 0;

/// The function under construction.
struct Pipeline<'a, 'f> {
    body: Body<'a, 'f>,
    program: &'a Program,
    plan: &'a PipelinePlan,
    outputs: Value,
    /// The number of events written to each node. They are in registers as long as the function runs.
    counts: Vec<Variable>,
    /// A flag: whether the root's own events are listed. Those of a source arrive all at once, and each is at its own
    /// place.
    lists_root: bool,
}

/// Fills in a function of the type [`crate::context::PipelineFn`].
pub fn build(
    program: &Program,
    plan: &PipelinePlan,
    mut builder: FunctionBuilder<'_>,
    constants: &mut Constants,
    config: TargetFrontendConfig,
) {
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let &[context, input, selection, count, outputs] = builder.block_params(entry) else {
        unreachable!("a pipeline function has five parameters")
    };
    let mut l = Lower { b: &mut builder, constants, context };
    let columns = l.load_constant(input, INPUT_COLUMNS);
    let at = l.b.declare_var(I64);
    let zero = l.int(0);
    l.b.def_var(at, zero);
    let counts = (0..plan.nodes.len()).map(|node| {
        let (count, variable) = (l.load(outputs, count_of(node)), l.b.declare_var(I64));
        l.b.def_var(variable, count);
        variable
    });
    let counts = counts.collect();
    let [header, start, next, leave, unreached] = std::array::from_fn(|_| l.b.create_block());
    l.b.append_block_param(unreached, I64);
    l.b.ins().jump(header, &[]);

    l.b.switch_to_block(header);
    let place = l.b.use_var(at);
    let more = l.compare(IntCC::UnsignedLessThan, place, count);
    l.b.ins().brif(more, start, &[], leave, &[]);

    l.b.switch_to_block(start);
    // An event of a root is its own row.
    let dense = selected(&mut l, selection, place);
    let root = &plan.nodes[0];
    let fields = root.layout.fields.iter().cloned().map(FieldValue::Source).collect();
    let event = Event { schema: &program.streams[root.stream].schema, fields, columns, dense, row: dense, input };
    let body = Body {
        l,
        event,
        elements: vec![None],
        locals: Vec::new(),
        roles: Vec::new(),
        failure: unreached,
        undo_top: None,
        sums: None,
    };
    let lists_root = !matches!(program.streams[root.stream].origin, Origin::Source { .. });
    let mut pipeline = Pipeline { body, program, plan, outputs, counts, lists_root };
    pipeline.arrive(ROOT);
    let Pipeline { body: Body { mut l, .. }, counts, .. } = pipeline;
    l.b.ins().jump(next, &[]);

    // Keys of the root's own events cannot fail; code for it may have been made all the same.
    l.b.switch_to_block(unreached);
    l.b.ins().trap(TrapCode::unwrap_user(1));

    l.b.switch_to_block(next);
    let following = l.b.ins().iadd_imm_s(place, 1);
    l.b.def_var(at, following);
    l.b.ins().jump(header, &[]);
    l.b.switch_to_block(leave);
    for (node, count) in counts.into_iter().enumerate() {
        let count = l.b.use_var(count);
        l.store(count, outputs, count_of(node));
    }
    l.b.ins().return_(&[]);
    l.b.seal_all_blocks();
    builder.finalize(config);
}

/// Returns the place in the outputs of a node's number of events.
fn count_of(node: usize) -> usize {
    node * size_of::<OutputView>() + offset_of!(OutputView, count)
}

/// Returns the number of the event at a place of the selection; the place itself where there is none.
fn selected(l: &mut Lower<'_, '_>, selection: Value, place: Value) -> Value {
    let (listed, done) = (l.b.create_block(), l.b.create_block());
    l.b.append_block_param(done, I64);
    l.b.ins().brif(selection, listed, &[], done, &[place.into()]);
    l.b.switch_to_block(listed);
    let address = l.at(selection, place, 2);
    let i = l.b.ins().uload32(constant(), address, 0);
    l.b.ins().jump(done, &[i.into()]);
    l.b.switch_to_block(done);
    l.b.block_params(done)[0]
}

impl<'a> Pipeline<'a, '_> {
    /// Compiles the arrival of an event at a node, with its fields in `self.body.event`: store it, then go on to what
    /// derives from it.
    fn arrive(&mut self, node: usize) {
        let here = &self.plan.nodes[node];
        let output = self.output(node);
        let k = self.body.l.b.use_var(self.counts[node]);
        if node != ROOT || self.lists_root {
            self.list(output, k);
        }
        for (column, &field) in here.layout.computed.iter().enumerate() {
            let value = self.body.field(field, here.columns[column]);
            self.store(output, column, k, value, here.columns[column]);
        }
        let first_key = here.layout.computed.len();
        for (c, (key, over)) in here.keys.iter().enumerate() {
            match over {
                None => {
                    let value = self.body.expr(key);
                    self.store(output, first_key + c, k, value, key.ty);
                }
                Some(list) => self.element_keys(output, first_key + c, key, *list),
            }
        }
        let more = self.body.l.b.ins().iadd_imm_s(k, 1);
        self.body.l.b.def_var(self.counts[node], more);
        for &child in &here.children {
            self.offer(child);
        }
    }

    /// Compiles an arrival like [`Pipeline::arrive`], without a branch: the event is listed in any case, and counted if
    /// `holds`.
    fn arrive_if(&mut self, node: usize, holds: Value) {
        let output = self.output(node);
        let k = self.body.l.b.use_var(self.counts[node]);
        self.list(output, k);
        let one = self.body.l.b.ins().uextend(I64, holds);
        let more = self.body.l.b.ins().iadd(k, one);
        self.body.l.b.def_var(self.counts[node], more);
    }

    /// Writes which event of the root the event at hand is.
    fn list(&mut self, output: Value, k: Value) {
        let index = self.body.l.load_constant(output, offset_of!(OutputView, index));
        let address = self.body.l.at(index, k, 2);
        let i = self.body.event.dense;
        self.body.l.b.ins().istore32(trusted(), i, address, 0);
    }

    fn output(&mut self, node: usize) -> Value {
        self.body.l.b.ins().iadd_imm_s(self.outputs, (node * size_of::<OutputView>()) as i64)
    }

    fn store(&mut self, output: Value, column: usize, at: Value, value: Val, ty: ColumnType) {
        let views = self.body.l.load(output, offset_of!(OutputView, columns));
        let view = self.body.l.b.ins().iadd_imm_s(views, (column * size_of::<crate::abi::NativeView>()) as i64);
        self.body.l.store_native(view, at, value, ty);
    }

    /// Computes a key for each element, after those of earlier events.
    fn element_keys(&mut self, output: Value, column: usize, key: &Expr, list: usize) {
        let counts = self.body.l.load(output, offset_of!(OutputView, element_counts));
        let base = self.body.l.load(counts, 8 * column);
        let List { first, end, children } = self.body.list(list);
        let number = self.body.l.b.declare_var(I64);
        let zero = self.body.l.int(0);
        self.body.l.b.def_var(number, zero);
        let [header, start, leave]: [Block; 3] = std::array::from_fn(|_| self.body.l.b.create_block());
        self.body.l.b.ins().jump(header, &[]);
        self.body.l.b.switch_to_block(header);
        let at = self.body.l.b.use_var(number);
        let child = self.body.l.b.ins().iadd(first, at);
        let more = self.body.l.compare(IntCC::SignedLessThan, child, end);
        self.body.l.b.ins().brif(more, start, &[], leave, &[]);
        self.body.l.b.switch_to_block(start);
        self.body.elements[0] = Some(Element { children, child, number: at });
        let value = self.body.expr(key);
        self.body.elements[0] = None;
        let place = self.body.l.b.ins().iadd(base, at);
        self.store(output, column, place, value, key.ty);
        let next = self.body.l.b.ins().iadd_imm_s(at, 1);
        self.body.l.b.def_var(number, next);
        self.body.l.b.ins().jump(header, &[]);
        self.body.l.b.switch_to_block(leave);
        let len = self.body.l.b.ins().isub(end, first);
        let sum = self.body.l.b.ins().iadd(base, len);
        self.body.l.store(sum, counts, 8 * column);
    }

    /// Offers the event to a derived stream; falls through whether or not it gets there.
    fn offer(&mut self, node: usize) {
        let stream = self.plan.nodes[node].stream;
        let [failed, done] = std::array::from_fn(|_| self.body.l.b.create_block());
        self.body.l.b.append_block_param(failed, I64);
        let outer_failure = std::mem::replace(&mut self.body.failure, failed);
        let program: &'a Program = self.program;
        let outer_schema = self.body.event.schema;
        let outer_fields = self.body.event.fields.clone();
        let origin = &program.streams[stream].origin;
        let outer_sums = self.body.sums;
        let sums = derivation_counts(origin).then(|| Sums::start(&mut self.body.l, program.limits));
        self.body.sums = sums;
        match origin {
            Origin::Filter { predicate, .. } => {
                let holds = self.body.expr(predicate).word;
                if self.plan.nodes[node].is_list_of_events() {
                    self.arrive_if(node, holds);
                    self.body.l.b.ins().jump(done, &[]);
                    self.body.failure = outer_failure;
                    self.failed(node, failed, done);
                    self.body.sums = outer_sums;
                    self.body.l.b.switch_to_block(done);
                    return;
                }
                self.body.l.unless(holds, done, &[]);
            }
            Origin::Map { fields, .. } => {
                let values = fields.iter().map(|field| self.mapped(field)).collect();
                self.body.event.fields = values;
                self.body.event.schema = &program.streams[stream].schema;
            }
            _ => unreachable!("only filters and maps derive"),
        }
        self.arrive(node);
        self.body.l.b.ins().jump(done, &[]);
        self.body.event.fields = outer_fields;
        self.body.event.schema = outer_schema;
        self.body.failure = outer_failure;
        // Those of what derives from this stream have been put back.
        self.failed(node, failed, done);
        self.body.sums = outer_sums;
        self.body.l.b.switch_to_block(done);
    }

    fn mapped(&mut self, field: &OutputField) -> FieldValue {
        match field {
            OutputField::Value(Expr { node: Node::Field(f), .. }) | OutputField::List(f) => {
                self.body.event.fields[*f].clone()
            }
            OutputField::Value(expr) => FieldValue::Known(self.body.expr(expr)),
        }
    }

    fn failed(&mut self, node: usize, failed: Block, done: Block) {
        self.body.l.b.switch_to_block(failed);
        let reason = self.body.l.b.block_params(failed)[0];
        self.body.release_texts();
        let output = self.output(node);
        let count = self.body.l.load(output, offset_of!(OutputView, failure_count));
        let failures = self.body.l.load(output, offset_of!(OutputView, failures));
        let address = self.body.l.at(failures, count, 3);
        let event = self.body.l.b.ins().ishl_imm_s(self.body.event.dense, 32);
        let entry = self.body.l.b.ins().bor(event, reason);
        self.body.l.store(entry, address, 0);
        let more = self.body.l.b.ins().iadd_imm_s(count, 1);
        self.body.l.store(more, output, offset_of!(OutputView, failure_count));
        self.body.l.b.ins().jump(done, &[]);
    }
}
