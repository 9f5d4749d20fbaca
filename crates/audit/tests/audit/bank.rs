//! A bank on a simulated machine.

use arrow_array::RecordBatch;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_connect::{SinkDurability, System, WriteJsonl};
use tidemill_durability::{Identity, OpenState, Planted, Recorded, StateDirectory, Storage};
use tidemill_io::{IoFailure, Next, Resumed, Sink, SinkConnection, Source, SourceBatch};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, aborted, cell, committed, event, late, literal, named};
use tidemill_plan::{Plan, Program, analyze};
use tidemill_runtime::{Durability, DurabilityOptions, Engine, EpochSize, Options, Request, RunError};
use tidemill_sim::SimStorage;

/// The bug of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Transfers of exactly 13 credit one less than they debit.
    Steals,
    /// Transfers of 50 and more abort.
    Refuses,
}

/// Transfers between accounts, by an engine with a fault.
pub fn plan(fault: Fault) -> Plan {
    PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Str).column_or("balance", Type::Int, Value::Int(0)))
        .source("transfers", |s| {
            s.event_time("at", Type::Int)
                .field("src", Type::Str)
                .field("dst", Type::Str)
                .field("amount", Type::Int)
                .lateness(5)
        })
        .transaction("transfer", [named("transfers")], |t| {
            t.row("src", "accounts", [event("src")]).row("dst", "accounts", [event("dst")]).body(|b| {
                b.require(cell("src", "balance").ge(event("amount")), "insufficient funds");
                b.set("src", "balance", cell("src", "balance") - event("amount"));
                b.set("dst", "balance", cell("dst", "balance") + event("amount"));
                match fault {
                    Fault::None => {}
                    Fault::Steals => b.when(event("amount").eq(13), |b| {
                        b.set("dst", "balance", cell("dst", "balance") - literal(1));
                    }),
                    Fault::Refuses => b.require(event("amount").lt(50), "insufficient funds"),
                }
                b.give([("at", event("at")), ("src", cell("src", "id")), ("amount", event("amount"))]);
            })
        })
        .sink("done", committed("transfer"))
        .sink("rejected", aborted("transfer"))
        .sink("late", late("transfers"))
        .build()
}

pub fn program(fault: Fault) -> Program {
    analyze(&plan(fault)).expect("a right plan")
}

/// Transfers: time, source, destination, amount.
pub type Transfers<'a> = &'a [(i64, &'a str, &'a str, i64)];

/// One that aborts and one that is late among them.
pub const TRANSFERS: Transfers<'_> = &[
    (1, "ada", "bob", 70),
    (2, "ada", "bob", 70),
    (20, "bob", "ada", 13),
    (3, "bob", "ada", 1),
    (21, "ada", "bob", 5),
];

/// Runs transfers through a durable engine with a fault, on the machine's state, which is told that the
/// engine is as it should be. A savepoint "start" is made where the state is new.
pub fn run(machine: &SimStorage, fault: Fault, transfers: Transfers<'_>) -> Result<(), RunError> {
    let options = DurabilityOptions { is_final: true, ..DurabilityOptions::default() };
    run_as(machine, transfers, How { fault, options, ..How::default() })
}

/// The manner of a run.
#[derive(Default)]
pub struct How {
    pub fault: Fault,
    pub options: DurabilityOptions,
    pub planted: Planted,
    /// The size of the batches of a source that can be read again; none: transfers are logged.
    pub again: Option<usize>,
}

/// Runs transfers in some manner.
pub fn run_as(machine: &SimStorage, transfers: Transfers<'_>, how: How) -> Result<(), RunError> {
    let How { fault, options, planted, again } = how;
    let honest = program(Fault::None);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    storage.create_directory(Path::new("out")).expect("no fault");
    let recorded = Recorded { plan: plan(Fault::None), sources: BTreeMap::new(), sinks: BTreeMap::new() };
    let mut directory = StateDirectory::open(OpenState {
        storage: storage.clone(),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(&honest),
        recorded: Some(recorded),
    })?;
    directory.plant(planted);
    let engine = Engine::new(program(fault)).expect("it compiles");
    if directory.is_new() {
        let schema = Schema::scalars(honest.tables.raw[0].columns.iter().map(|c| (c.name.as_str(), c.ty)));
        let account = |id: &str, balance| vec![Value::Str(id.into()), Value::Int(balance)];
        engine.preload(0.into(), &batch_of(&schema, &[account("ada", 100), account("bob", 0)])).expect("distinct keys");
    }
    let durable = SinkDurability::of(&directory, storage);
    let sink = |sink: &tidemill_plan::Sink| -> Box<dyn Sink> {
        let file = WriteJsonl { path: format!("out/{}", sink.name), compression: None };
        file.open(&honest.streams[sink.stream].schema, Some(&durable)).expect("it opens")
    };
    let options = DurabilityOptions { savepoint: Some("start".into()), ..options };
    let request = Request {
        options: Options { workers: 1, epoch: EpochSize::Events(2), ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(
            vec![source(&honest, transfers, again)],
            honest.sinks.iter().map(sink).collect(),
            Arc::new(System::new()),
        )
    };
    engine.run(request, &mut || {}).map(drop)
}

/// Returns the state, to be looked at.
pub fn open(machine: &SimStorage) -> StateDirectory {
    StateDirectory::open_as_it_is(Arc::new(machine.clone()), Path::new("state"), "an auditor").expect("it is there")
}

/// Nothing has to be read again: transfers are logged.
pub fn logged(_: &StateDirectory, _: &tidemill_plan::Stream) -> Result<Option<Box<dyn Source>>, IoFailure> {
    Ok(None)
}

struct Given(Option<RecordBatch>);

impl Given {
    fn new(program: &Program, transfers: Transfers<'_>) -> Given {
        let schema = &program.streams[program.transactions.raw[0].inputs[0]].schema;
        let text = |text: &str| Value::Str(text.into());
        let rows: Vec<Vec<Value>> = transfers
            .iter()
            .map(|(at, src, dst, amount)| vec![Value::Int(*at), text(src), text(dst), Value::Int(*amount)])
            .collect();
        Given(Some(batch_of(schema, &rows)))
    }
}

/// Returns the source of transfers.
fn source(program: &Program, transfers: Transfers<'_>, again: Option<usize>) -> Box<dyn Source> {
    match again {
        None => Box::new(Given::new(program, transfers)),
        Some(size) => read_again(program, transfers, size),
    }
}

/// Returns the source of transfers that can be read again, in batches of this size.
pub fn read_again(program: &Program, transfers: Transfers<'_>, size: usize) -> Box<dyn Source> {
    let parts = transfers.chunks(size).map(|part| Given::new(program, part).0.expect("not taken yet"));
    Box::new(Again(parts.collect()))
}

struct Again(VecDeque<RecordBatch>);

impl Source for Again {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(self.0.pop_front().map(|events| SourceBatch { events, bad: Vec::new() }).into())
    }

    fn replays(&self) -> bool {
        true
    }

    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::Anew)
    }
}

impl Source for Given {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(self.0.take().map(|events| SourceBatch { events, bad: Vec::new() }).into())
    }

    fn resume(&mut self, _token: Option<&str>) -> Result<Resumed, IoFailure> {
        Ok(Resumed::New)
    }
}
