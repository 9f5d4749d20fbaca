//! Random plans: tables, sources, and streams and transactions level by level, so that cascades have
//! a bounded depth. Analysis of the unfinished plan says what the streams of each level look like.

use crate::ast::*;
use crate::bodies::{Task, can_make, event_view, random_item, random_record, transaction_for};
use crate::calls::{CallsShape, is_of_calls, random_calls};
use crate::expressions::column_type;
use crate::join::random_join;
use crate::over::{random_over, random_rows};
use crate::random::Random;
use crate::wakes::{random_expiry, random_wakes};
use crate::windows::random_window;
use tidemill_model::{ColumnType, Field, FieldType, Schema, Type, Value};
use tidemill_plan::{
    Ahead, BatchSizeDef, CallerFields, ColumnDef, OperatorKind, Origin, OriginDef, Plan, Program, Record, SinkDef,
    Stmt, StmtNode, StreamDef, StreamId, StreamRef, TableDef, TableId, TransactionDef, TransactionId, analyze,
};

/// The size of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanSize {
    /// One table, one transaction of a few statements: for failures to be looked at.
    Small,
    /// Some of everything.
    Medium,
    /// Everything in large numbers.
    Large,
}

/// Most steps from a source's event to the last that follows from it.
const LEVELS_MAX: usize = 3;

/// A stream that more can be built on.
pub(crate) struct Input {
    pub stream: StreamRef,
    pub schema: Schema,
    /// The field of event time.
    pub event_time: Option<usize>,
    pub level: usize,
}

/// Returns a plan that is a function of the seed, and valid. Its sources are read.
pub fn random_plan(seed: u64, size: PlanSize) -> Plan {
    plan_with(seed, size, None)
}

/// Returns a random plan with streams of calls in addition.
pub fn random_call_plan(seed: u64, size: PlanSize) -> Plan {
    plan_with(seed, size, Some(Random::new(seed ^ 0xca_115)))
}

fn plan_with(seed: u64, size: PlanSize, calls: Option<Random>) -> Plan {
    let mut random = Random::new(seed);
    let tables_max = if size == PlanSize::Small { 1 } else { 3 };
    // One clock for all sources.
    let time = *random.pick(&[None, Some(Type::Time), Some(Type::Int)]);
    let tables = (0..random.between(1, tables_max)).map(|n| random_table(&mut random, n, time)).collect();
    let mut plan = plan(&format!("random{seed}"), tables, Vec::new(), Vec::new());
    let sources_max = if size == PlanSize::Small { 1 } else { 2 };
    for number in 0..random.between(1, sources_max) {
        let source = random_source(&mut random, &plan, number, time);
        plan.streams.push(source);
    }
    if let Some(time) = time.filter(|_| random.chance(12)) {
        let period = *random.pick(&[1, 3, 10, 100]);
        let period = if time == Type::Int { Value::Int(period) } else { Value::Duration(period) };
        let origin = OriginDef::Every { period, origin: *random.pick(&[0, 0, -7, 2]) };
        plan.streams.push(StreamDef { name: "ticks".into(), origin });
    }
    // In some plans nothing is due but wakes.
    let only_wakes = time.is_some() && plan.streams.len() <= sources_max && Random::new(seed ^ 0x3a_7e).chance(25);
    // Batches have random numbers of their own, too.
    let mut batches = Random::new(seed ^ 0x0b_a7_c4);
    if size != PlanSize::Small && batches.chance(25) && !only_wakes {
        for number in 0..batches.between(1, 2) {
            let source = random_batches(&mut batches, &plan.streams, number, time);
            plan.streams.extend(source);
        }
    }
    let levels = match size {
        PlanSize::Small => 1,
        _ => random.between(1, LEVELS_MAX),
    };
    // Few plans are so daring that most of their transactions abort.
    let risk = *random.pick(&[0, 3, 5, 10, 20, 50]);
    // Late inputs have random numbers of their own, so that the other plans are the same as without.
    let late = time.is_some() && Random::new(seed ^ 0x1a_7e).chance(40) && !only_wakes;
    // Few plans read all rows of tables: their events are followed one by one.
    let scans = Random::new(seed ^ 0x05_ca_45).chance(15);
    if scans {
        random_indexes(seed, &mut plan.tables);
    }
    let mut takes = Takes { late, calls: false };
    let nests_chance = if calls.is_some() { 70 } else { 40 };
    if let Some(mut calls) = calls {
        takes.calls = calls.chance(40);
        random_calls(&mut calls, &mut plan, CallsShape { time, risk, scans, batches: !only_wakes });
    }
    for level in 0..levels {
        let built = Level { level, size, risk, takes, scans };
        built.derive(&mut random, &mut plan);
        if let Some(time) = time.filter(|_| random.chance(35) && !only_wakes) {
            // Windows of rows have random numbers of their own, so that the rest of a plan is the same with and
            // without.
            let mut rows = Random::new(seed ^ 0x20_45 ^ level as u64);
            built.window(&mut random, &mut rows, &mut plan, time);
        }
        let mut joins = Random::new(seed ^ 0x10_14 ^ level as u64);
        if let Some(time) = time.filter(|_| joins.chance(30) && !only_wakes) {
            built.join(&mut joins, &mut plan, time);
        }
        built.transact(&mut random, &mut plan);
        // Wakes have random numbers of their own, so that the rest of a plan is the same with and without.
        let mut own = Random::new(seed ^ 0x3a_4e5);
        if let Some(time) = time.filter(|_| only_wakes || level == 0 && own.chance(50)) {
            random_wakes(&mut own, &mut plan, time, risk);
        }
    }
    if random.chance(50) {
        // An event meets its transactions in another order than they were made.
        let mut shuffled = plan.clone();
        random.shuffle(&mut shuffled.transactions);
        // Windows and joins may only be over what was declared before.
        if shuffled.transactions.iter().all(|t| t.over.is_none() && t.join.is_none()) || analyze(&shuffled).is_ok() {
            plan = shuffled;
        }
    }
    let mut nests = Random::new(seed ^ 0x9e_57);
    if nests.chance(nests_chance) {
        nest(&mut nests, &mut plan);
    }
    if let Some(time) = time {
        random_expiry(seed, &mut plan, time, risk);
    }
    random_changes(seed, &mut plan);
    for number in 0..random.below(4) {
        let inputs = inputs(&plan, takes);
        let stream = random.pick(&inputs).stream.clone();
        plan.sinks.push(SinkDef { name: format!("out{number}"), stream });
    }
    plan
}

/// Returns whether a transaction wakes rows, or runs on those that are woken.
fn has_wakes(plan: &Plan) -> bool {
    fn wakes(body: &[Stmt]) -> bool {
        body.iter().any(|stmt| matches!(stmt.node, StmtNode::Wake { .. }) || stmt.blocks().into_iter().any(wakes))
    }
    let runs_on_woken = |t: &TransactionDef| t.inputs.iter().any(|input| matches!(input, StreamRef::Woken(_)));
    plan.transactions.iter().any(|t| runs_on_woken(t) || wakes(&t.body))
}

/// Wants the changes of some tables that are written.
fn random_changes(seed: u64, plan: &mut Plan) {
    let mut random = Random::new(seed ^ 0xc4_a9);
    for table in 0..plan.tables.len() {
        plan.tables[table].changes = random.chance(12);
        let has_stream = |program: &Program| {
            let name = format!("{}.changes", plan.tables[table].name);
            program.streams.iter().any(|stream| stream.name == name)
        };
        if plan.tables[table].changes && !analyze(plan).is_ok_and(|program| has_stream(&program)) {
            plan.tables[table].changes = false;
        }
    }
}

/// Nests some of the transactions that can be nested.
fn nest(random: &mut Random, plan: &mut Plan) {
    for index in 0..plan.transactions.len() {
        plan.transactions[index].nested = random.chance(80);
        if plan.transactions[index].nested && analyze(plan).is_err() {
            plan.transactions[index].nested = false;
        }
    }
}

/// Gives columns indexes.
fn random_indexes(seed: u64, tables: &mut [TableDef]) {
    let mut random = Random::new(seed ^ 0x1d_e8);
    for table in tables {
        let can_have = |column: &&ColumnDef| column.window.is_none() && column.ty.ty != Type::Float;
        let columns = table.columns.iter().filter(can_have).filter(|_| random.chance(50));
        table.indexes = columns.map(|column| vec![column.name.clone()]).collect();
        let mut several: Vec<String> = table.columns.iter().filter(can_have).map(|c| c.name.clone()).collect();
        random.shuffle(&mut several);
        several.truncate(random.between(2, 3));
        if several.len() > 1 {
            table.indexes.push(several);
        }
    }
}

fn random_table(random: &mut Random, number: usize, time: Option<Type>) -> TableDef {
    let mut columns = Vec::new();
    let keys = *random.pick(&[1, 1, 1, 2, 2, 3]);
    for index in 0..keys {
        let ty = match column_type(random) {
            Type::Float => Type::Int,
            ty => ty,
        };
        columns.push(key(&format!("k{index}"), ty));
    }
    let has_defaults = random.chance(75);
    for index in 0..random.between(1, 5) {
        let ty = ColumnType { ty: column_type(random), nullable: random.chance(25) };
        let default = (has_defaults || random.chance(50)).then(|| random_default(random, ty));
        columns.push(ColumnDef { default, ..ColumnDef::new(format!("c{index}"), ty) });
    }
    if random.chance(30) {
        for index in 0..random.between(1, 2) {
            columns.push(random_window(random, format!("w{index}"), time));
        }
    }
    if random.chance(30) {
        random.shuffle(&mut columns);
    }
    table(&format!("table{number}"), columns)
}

fn random_default(random: &mut Random, ty: ColumnType) -> Value {
    if ty.nullable && random.chance(40) {
        return Value::Null;
    }
    match ty.ty {
        Type::Bool => Value::Bool(random.chance(50)),
        Type::Int => Value::Int(*random.pick(&[0, 0, 100, -1])),
        Type::Float => Value::Float(*random.pick(&[0.0, 0.5, -0.0])),
        Type::Decimal { .. } => Value::Int(*random.pick(&[0, 1, 42])),
        Type::Time => Value::Time(*random.pick(&[0, 1_000_000])),
        Type::Str => Value::Str(random.pick(&["", "new", "Ü"]).to_string()),
        Type::Bytes => Value::Bytes(random.pick(&[&b""[..], b"\x00"]).to_vec()),
        Type::Duration | Type::Null => unreachable!("no column type"),
    }
}

/// Returns a source whose events have fields for the keys of all tables, and others.
pub(crate) fn random_source(random: &mut Random, plan: &Plan, number: usize, time: Option<Type>) -> StreamDef {
    let keys: Vec<Type> = plan.tables.iter().flat_map(|t| &t.columns).filter(|c| c.key).map(|c| c.ty.ty).collect();
    let mut fields = Vec::new();
    if let Some(ty) = time {
        fields.push(Field::scalar("at", ColumnType::required(ty)));
    }
    for (index, ty) in keys.iter().enumerate() {
        for twin in ["a", "b"].iter().take(random.between(1, 2)) {
            let nullable = random.chance(12);
            fields.push(Field::scalar(format!("{twin}{index}"), ColumnType { ty: *ty, nullable }));
        }
    }
    for index in 0..random.between(1, 4) {
        let ty = ColumnType { ty: column_type(random), nullable: random.chance(20) };
        fields.push(Field::scalar(format!("x{index}"), ty));
    }
    for index in 0..*random.pick(&[0, 0, 1, 1, 2]) {
        fields.push(list(&format!("list{index}"), random_item(random, &keys)));
    }
    if random.chance(30) {
        random.shuffle(&mut fields);
    }
    let schema = Schema { fields };
    let event_time = time.map(|_| "at".to_owned());
    let lateness = if time.is_some() { *random.pick(&[0, 0, 3, 20, -2]) } else { 0 };
    StreamDef {
        name: format!("source{number}"),
        origin: OriginDef::Source {
            schema,
            event_time,
            lateness,
            anchored: false,
            remembers: None,
            keys_max: None,
            ahead: Ahead::ByInput,
            caller: CallerFields::default(),
        },
    }
}

/// Returns batches of a random source whose events have no lists, if there is one.
pub(crate) fn random_batches(
    random: &mut Random,
    streams: &[StreamDef],
    number: usize,
    time: Option<Type>,
) -> Option<StreamDef> {
    let has_lists = |schema: &Schema| schema.fields.iter().any(|field| field.scalar_type().is_none());
    let fits = |of: &&StreamDef| matches!(&of.origin, OriginDef::Source { schema, .. } if !has_lists(schema));
    let source = random.pick_any(&streams.iter().filter(fits).collect::<Vec<_>>())?.name.clone();
    let size = match time.filter(|_| random.chance(40)) {
        Some(ty) => {
            let length = *random.pick(&[1, 2, 10, 100]);
            let length = if ty == Type::Int { Value::Int(length) } else { Value::Duration(length) };
            BatchSizeDef::Time { length, origin: *random.pick(&[0, 0, -7, 3]) }
        }
        None => BatchSizeDef::Count(*random.pick(&[1, 2, 2, 3, 7, 40])),
    };
    let origin = OriginDef::Batch { input: StreamRef::Named(source), size };
    Some(StreamDef { name: format!("batches{number}"), origin })
}

/// One step of a cascade.
struct Level {
    level: usize,
    size: PlanSize,
    risk: usize,
    takes: Takes,
    scans: bool,
}

impl Level {
    /// Adds filters and maps.
    fn derive(&self, random: &mut Random, plan: &mut Plan) {
        let most = if self.size == PlanSize::Small { 1 } else { 3 };
        for _ in 0..random.below(most + 1) {
            let inputs = inputs(plan, self.takes);
            let near: Vec<&Input> = inputs.iter().filter(|i| i.level == self.level).collect();
            let Some(input) = random.pick_any(&near) else { return };
            let origin = derived(random, input, &inputs, self.risk);
            plan.streams.push(StreamDef { name: format!("stream{}", plan.streams.len()), origin });
        }
    }

    /// Adds windows.
    fn window(&self, random: &mut Random, rows: &mut Random, plan: &mut Plan, time: Type) {
        for _ in 0..random.between(1, 2) {
            let inputs = inputs(plan, self.takes);
            let near: Vec<&Input> = inputs.iter().filter(|i| i.level == self.level).collect();
            let Some(input) = random.pick_any(&near) else { return };
            let name = format!("window{}", plan.transactions.len());
            let of = random_rows(rows, &input.schema, &plan.tables);
            let mut window = random_over(random, &name, input.stream.clone(), &input.schema, time, of);
            if self.takes.late && rows.clone().chance(60) {
                count_late(plan, &mut window);
            }
            plan.transactions.push(window);
            if analyze(plan).is_err() {
                plan.transactions.pop();
            }
        }
    }

    /// Adds joins, of streams that are near and of any others.
    fn join(&self, random: &mut Random, plan: &mut Plan, time: Type) {
        for _ in 0..random.between(1, 2) {
            let inputs = inputs(plan, self.takes);
            let near: Vec<&Input> = inputs.iter().filter(|i| i.level == self.level).collect();
            let Some(left) = random.pick_any(&near) else { return };
            let right = random.pick(&inputs);
            let mut both = [(left.stream.clone(), &left.schema), (right.stream.clone(), &right.schema)];
            if random.chance(50) {
                both.reverse();
            }
            let name = format!("join{}", plan.transactions.len());
            let Some(join) = random_join(random, &name, both, time) else { continue };
            plan.transactions.push(join);
            if analyze(plan).is_err() {
                plan.transactions.pop();
            }
        }
    }

    /// Adds transactions.
    fn transact(&self, random: &mut Random, plan: &mut Plan) {
        let most = match (self.size, self.level) {
            (PlanSize::Small, _) => 1,
            (PlanSize::Medium, _) => 2,
            (PlanSize::Large, 0) => 4,
            (PlanSize::Large, _) => 3,
        };
        for _ in 0..random.between(1, most) {
            let inputs = inputs(plan, self.takes);
            let near: Vec<&Input> = inputs.iter().filter(|i| i.level == self.level).collect();
            let Some(first) = random.pick_any(&near) else { return };
            let mut chosen = vec![*first];
            for input in &inputs {
                let equal = input.schema == first.schema && input.level <= self.level;
                if equal && input.stream != first.stream && random.chance(30) {
                    chosen.push(input);
                }
            }
            random.shuffle(&mut chosen);
            let task = Task {
                name: format!("t{}", plan.transactions.len()),
                inputs: chosen.iter().map(|i| i.stream.clone()).collect(),
                schema: &first.schema,
                time: first.event_time.filter(|_| chosen.iter().all(|i| i.event_time == first.event_time)),
                tables: &plan.tables,
                statements: if self.size == PlanSize::Large { 6 } else { 4 },
                fans_out: self.level == 0,
                risk: self.risk,
                scans: self.scans,
            };
            let transaction = transaction_for(random, &task);
            plan.transactions.push(transaction);
            // Rows that ask to be woken are not deleted as chosen ones.
            if has_wakes(plan) && analyze(plan).is_err() {
                plan.transactions.pop();
            }
        }
    }
}

/// Lets first events of a source with event times count those that are late.
fn count_late(plan: &Plan, window: &mut TransactionDef) {
    let is_of_first = window.over.as_ref().is_some_and(|over| over.first.is_some());
    let [StreamRef::Named(name)] = &window.inputs[..] else { return };
    let has_times =
        |origin: &OriginDef| matches!(origin, OriginDef::Source { event_time: Some(_), anchored: false, .. });
    let is_source = plan.streams.iter().any(|stream| stream.name == *name && has_times(&stream.origin));
    if is_of_first && is_source {
        window.inputs.push(StreamRef::Late(name.clone()));
    }
}

/// Returns a filter or a map of a stream.
pub(crate) fn derived(random: &mut Random, input: &Input, inputs: &[Input], risk: usize) -> OriginDef {
    let view = event_view(&input.schema, risk.max(5));
    let stream = input.stream.clone();
    if random.chance(50) {
        let parts = vec![view.value(random, Type::Bool, 3), view.value(random, Type::Bool, 3)];
        let predicate = expr(tidemill_plan::ExprNode::Any(parts));
        OriginDef::Filter { input: stream, predicate }
    } else {
        OriginDef::Map { input: stream, record: random_map(random, input, inputs, risk) }
    }
}

/// Returns a map to fields of its own, or to those of another stream, so that both can go one way.
fn random_map(random: &mut Random, input: &Input, inputs: &[Input], risk: usize) -> Record {
    let view = event_view(&input.schema, risk);
    let is_name = |f: &Field| !f.name.contains('.');
    let others: Vec<&Input> =
        inputs.iter().filter(|i| can_make(&input.schema, &i.schema) && i.schema.fields.iter().all(is_name)).collect();
    if let Some(other) = random.pick_any(&others).filter(|_| random.chance(50)) {
        return random_record(random, &view, &input.schema, &other.schema, true);
    }
    let mut fields = Vec::new();
    for field in &input.schema.fields {
        match &field.ty {
            FieldType::Scalar(ty) if random.chance(60) => {
                fields.push(Field::scalar(format!("m{}", fields.len()), *ty));
            }
            FieldType::List(_) if random.chance(60) => {
                fields.push(Field { name: format!("m{}", fields.len()), ty: field.ty.clone() });
            }
            _ => {}
        }
    }
    fields.push(Field::scalar("extra", ColumnType::required(column_type(random))));
    let declared = random.chance(60);
    random_record(random, &view, &input.schema, &Schema { fields }, declared)
}

/// The streams that are inputs in some plans only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Takes {
    /// A flag: whether late events are inputs.
    pub late: bool,
    /// A flag: whether streams of calls, each of which has its procedure, are inputs. With another transaction, a
    /// stream has none that can be called.
    pub calls: bool,
}

/// Returns all streams that filters, maps and transactions can have as input.
pub(crate) fn inputs(plan: &Plan, takes: Takes) -> Vec<Input> {
    let program = match analyze(plan) {
        Ok(program) => program,
        Err(errors) => panic!("the random plan '{}' is wrong: {errors:#?}", plan.name),
    };
    let mut inputs = Vec::new();
    for (id, stream) in program.streams.iter_enumerated().filter(|(id, _)| !is_hidden(&program, *id)) {
        let Some(reference) = reference(&program, id) else { continue };
        let level = level(&program, id);
        let is_late = program.late_of(id).is_some();
        if is_late && !takes.late || is_of_calls(&program.streams[stream.root]) && !takes.calls {
            continue;
        }
        let is_late = is_late || matches!(program.streams[stream.root].origin, Origin::LateRoot(_));
        // A late event has another time than its position.
        let (schema, event_time) = (stream.schema.clone(), stream.event_time.filter(|_| !is_late));
        inputs.push(Input { stream: reference, schema, event_time, level });
    }
    inputs
}

fn is_hidden(program: &Program, id: StreamId) -> bool {
    let of = |t: TransactionId| program.transactions[t].is_hidden();
    match program.streams[id].origin {
        // Refused events are no input.
        Origin::Aborted(t) => of(t) || program.gives_first(t),
        // Events that failed are none, either.
        Origin::Failed(_) => false,
        _ => !program.is_shown(id),
    }
}

/// Returns the name by which a plan refers to a stream that can be an input.
fn reference(program: &Program, id: StreamId) -> Option<StreamRef> {
    let transaction = |t: TransactionId| program.transactions[t].name.clone();
    let table_name = |table: &TableId| program.tables[*table].name.clone();
    let stream = &program.streams[id];
    let kind = stream.owner.map(|owner| &program.operators[owner.operator].kind);
    // A source without a time field has no late events.
    if let Some(source) = program.late_of(id) {
        let source = &program.streams[source];
        return source.own_time().map(|_| StreamRef::Late(source.name.clone()));
    }
    Some(match stream.origin {
        Origin::Due(_) if let Some(OperatorKind::Wakes(table)) = kind => StreamRef::Woken(table_name(table)),
        Origin::Source { .. } | Origin::Batch(_) | Origin::Due(_) | Origin::Filter { .. } | Origin::Map { .. } => {
            StreamRef::Named(stream.name.clone())
        }
        Origin::Committed(_) if let Some(OperatorKind::Changes(table)) = kind => StreamRef::Changes(table_name(table)),
        Origin::Committed(_) if let Some(OperatorKind::Expiry(table)) = kind => StreamRef::Expired(table_name(table)),
        Origin::Committed(t) => StreamRef::Committed(transaction(t)),
        Origin::Aborted(t) => StreamRef::Aborted(transaction(t)),
        Origin::Emitted(t, output) => {
            StreamRef::Emitted { transaction: transaction(t), name: program.transactions[t].emits[output].name.clone() }
        }
        Origin::Late(_) | Origin::LateRoot(_) | Origin::Bad(_) | Origin::Failed(_) => return None,
    })
}

/// Returns the number of transactions that an event went through on the longest way to a stream.
fn level(program: &Program, id: StreamId) -> usize {
    match program.streams[program.streams[id].root].origin {
        Origin::Committed(t) | Origin::Aborted(t) | Origin::Emitted(t, _) => {
            let inputs = program.transactions[t].inputs.iter();
            usize::from(!program.transactions[t].is_hidden())
                + inputs.map(|&input| level(program, input)).max().unwrap_or(0)
        }
        _ => 0,
    }
}
