//! Random streams of calls, each with the transaction that is called.

use crate::bodies::{Task, transaction_for};
use crate::plans::{Takes, inputs, random_batches, random_source};
use crate::random::Random;
use tidemill_model::{ColumnType, Field, Schema, Type};
use tidemill_plan::{Origin, OriginDef, Plan, Stream, StreamDef, StreamRef};

/// The first field of each call: an int, by which a call can be told from all others of its stream.
pub const CALL: &str = "call";

/// For how long answers are kept, microseconds: longer than any history takes.
const REMEMBERS: i64 = 3_600_000_000;

/// Whether the events of a source are calls.
pub fn is_of_calls(stream: &Stream) -> bool {
    matches!(stream.origin, Origin::Source { .. }) && stream.schema.fields[0].name == CALL
}

/// What the streams of calls of a plan are like.
pub struct CallsShape {
    /// The type of event times, if the plan has any.
    pub time: Option<Type>,
    /// See [`Task::risk`].
    pub risk: usize,
    /// Whether transactions may read all rows of tables.
    pub scans: bool,
    /// Whether there may be batches of calls.
    pub batches: bool,
}

/// Adds streams of calls to a plan, each with its procedure, and to some batches of their calls.
pub fn random_calls(random: &mut Random, plan: &mut Plan, shape: CallsShape) {
    for number in 0..random.between(1, 2) {
        let stream = random_stream(random, plan, number, shape.time);
        let OriginDef::Source { schema, event_time, .. } = &stream.origin else { unreachable!("made as a source") };
        let task = Task {
            name: format!("t{}", plan.transactions.len()),
            inputs: vec![StreamRef::Named(stream.name.clone())],
            schema,
            lists_open: true,
            time: event_time.as_ref().and_then(|name| schema.index_of(name)),
            tables: &plan.tables,
            statements: 4,
            fans_out: true,
            risk: shape.risk,
            scans: shape.scans,
        };
        let procedure = transaction_for(random, &task);
        let time = shape.time.filter(|_| event_time.is_some());
        let batches = random_batches(random, std::slice::from_ref(&stream), 8 + number, time);
        let batches = batches.filter(|_| shape.batches && random.chance(30));
        plan.streams.push(stream);
        plan.streams.extend(batches);
        plan.transactions.push(procedure);
        while random.chance(55) && follow(random, plan, &shape) {}
    }
}

/// Adds a transaction on something that the last one gives, if it gives anything.
fn follow(random: &mut Random, plan: &mut Plan, shape: &CallsShape) -> bool {
    let last = plan.transactions.last().expect("a procedure").name.clone();
    let is_given = |stream: &StreamRef| match stream {
        StreamRef::Committed(of) | StreamRef::Emitted { transaction: of, .. } => *of == last,
        _ => false,
    };
    let given: Vec<_> = inputs(plan, Takes::default()).into_iter().filter(|input| is_given(&input.stream)).collect();
    let Some(input) = random.pick_any(&given) else { return false };
    let task = Task {
        name: format!("t{}", plan.transactions.len()),
        inputs: vec![input.stream.clone()],
        schema: &input.schema,
        lists_open: input.lists_open,
        time: input.event_time,
        tables: &plan.tables,
        statements: 3,
        fans_out: false,
        risk: shape.risk,
        scans: shape.scans,
    };
    let transaction = transaction_for(random, &task);
    plan.transactions.push(transaction);
    true
}

/// A stream of calls. In some, each has the time of its position.
fn random_stream(random: &mut Random, plan: &Plan, number: usize, time: Option<Type>) -> StreamDef {
    let mut stream = random_source(random, plan, number, None);
    stream.name = format!("calls{number}");
    let OriginDef::Source { schema: Schema { fields }, event_time, anchored, remembers, .. } = &mut stream.origin
    else {
        unreachable!("made as a source")
    };
    if let Some(time) = time.filter(|_| random.chance(60)) {
        fields.insert(0, Field::scalar("at", ColumnType::required(time)));
        (*event_time, *anchored) = (Some("at".into()), true);
    }
    fields.insert(0, Field::scalar(CALL, ColumnType::required(Type::Int)));
    *remembers = random.chance(60).then_some(REMEMBERS);
    stream
}
