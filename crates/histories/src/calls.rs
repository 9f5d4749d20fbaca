//! Random streams of calls, each with the transaction that is called.

use crate::bodies::{Task, reading_for, transaction_for};
use crate::plans::{Input, Takes, derived, inputs, random_batches, random_source};
use crate::random::Random;
use tidemill_model::{ColumnType, Field, Schema, Type};
use tidemill_plan::{Origin, OriginDef, Plan, Stream, StreamDef, StreamRef};

/// The first field of each call: an int, by which a call can be told from all others of its stream.
pub const CALL: &str = "call";

/// The time for which answers are kept, microseconds: longer than any history takes.
const REMEMBERS: i64 = 3_600_000_000;

/// Returns whether the events of a source are calls.
pub fn is_of_calls(stream: &Stream) -> bool {
    matches!(stream.origin, Origin::Source { .. }) && stream.schema.fields[0].name == CALL
}

/// The properties of a plan's streams of calls.
pub struct CallsShape {
    /// The type of event times, if the plan has any.
    pub time: Option<Type>,
    /// The readiness to take operations that may fail, in percent, as [`Task::risk`].
    pub risk: usize,
    /// A flag: whether transactions may read all rows of tables.
    pub scans: bool,
    /// A flag: whether there may be batches of calls.
    pub batches: bool,
}

/// Adds streams of calls to a plan, each with its procedure, and to some batches of their calls.
pub fn random_calls(random: &mut Random, plan: &mut Plan, shape: CallsShape) {
    for number in 0..random.between(1, 2) {
        let stream = random_stream(random, plan, number, shape.time);
        // A copy of the random numbers is used, so that the rest of a plan is the same with and without.
        let mut between = random.clone();
        let (name, has_time) = (stream.name.clone(), stream_has_time(&stream));
        let time = shape.time.filter(|_| has_time);
        let batches = |random: &mut Random| random_batches(random, std::slice::from_ref(&stream), 8 + number, time);
        plan.streams.push(stream.clone());
        let input = before_procedure(&mut between, plan, &name, shape.risk);
        let task = Task {
            name: format!("t{}", plan.transactions.len()),
            inputs: vec![input.stream.clone()],
            schema: &input.schema,
            time: input.event_time,
            tables: &plan.tables,
            statements: 4,
            fans_out: true,
            risk: shape.risk,
            scans: shape.scans,
        };
        let procedure = transaction_for(random, &task);
        let batches = batches(random).filter(|_| shape.batches && random.chance(30));
        plan.streams.extend(batches);
        plan.transactions.push(procedure);
        while random.chance(55) && follow(random, plan, &shape) {}
    }
}

fn stream_has_time(stream: &StreamDef) -> bool {
    matches!(&stream.origin, OriginDef::Source { event_time: Some(_), .. })
}

/// Returns the input of the procedure of a stream of calls: in some plans, a filter or a map is between, or two, and some read rows.
fn before_procedure(random: &mut Random, plan: &mut Plan, calls: &str, risk: usize) -> Input {
    let takes = Takes { calls: true, ..Takes::default() };
    let of = |inputs: Vec<Input>, stream: StreamRef| {
        inputs.into_iter().find(|input| input.stream == stream).expect("it was added")
    };
    let mut input = of(inputs(plan, takes), StreamRef::Named(calls.to_owned()));
    for step in 0..*random.pick(&[0, 0, 0, 1, 1, 2]) {
        let name = format!("{calls}_{step}");
        if random.chance(40) && !plan.tables.is_empty() {
            let task = Task {
                name: name.clone(),
                inputs: vec![input.stream.clone()],
                schema: &input.schema,
                time: input.event_time,
                tables: &plan.tables,
                statements: 0,
                fans_out: false,
                risk,
                scans: false,
            };
            let time = input.event_time.map(|field| input.schema.fields[field].name.clone());
            let reading = reading_for(random, &task, time);
            plan.transactions.push(reading);
            input = of(inputs(plan, takes), StreamRef::Committed(name));
            continue;
        }
        plan.streams.push(StreamDef { name: name.clone(), origin: derived(random, &input, &[], risk) });
        input = of(inputs(plan, takes), StreamRef::Named(name));
    }
    input
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

/// Returns a stream of calls. In some, each has the time of its position.
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
