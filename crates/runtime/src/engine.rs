//! An application (program, code and tables) and its runs.

use crate::agenda::unread;
use crate::convert::converts;
use crate::cutter::{Cutter, LocalCutter};
use crate::options::Options;
use crate::run::{Run, workers};
use crate::summary::Summary;
use crate::watched::Watched;
use arrow_array::{RecordBatch, new_null_array};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tidemill_compile::{Code, CompileError};
use tidemill_durability::StateDirectory;
use tidemill_io::{Sink, Source};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Expire, Groups, Program, StreamId, TableId};
use tidemill_recovery::{Control, Durability, RunError, migrate, seed};
use tidemill_stages::access::indexes;
use tidemill_stages::access::read::Kept;
use tidemill_stages::access::shape::EpochShape;
use tidemill_stages::digest::committed_streams;
use tidemill_stages::due;
use tidemill_stages::environment::Environment;
use tidemill_stages::machine::{Logging, Machine};
use tidemill_stages::wiring::Wiring;
use tidemill_state::{Homes, PreloadError, Table, TableStats};
use typed_index_collections::{TiVec, ti_vec};

/// The inputs of a run: one source and one sink for each of the program's, in its order.
pub struct Request {
    /// The sources, by source number.
    pub sources: Vec<Box<dyn Source>>,
    /// The sinks, by sink number.
    pub sinks: Vec<Box<dyn Sink>>,
    /// The options of the run.
    pub options: Options,
    /// Clock and threads.
    pub environment: Arc<dyn Environment>,
    /// Shared with the watcher of the run.
    pub control: Arc<Control>,
    /// The durability of a durable run.
    pub durability: Option<Durability>,
    /// The sink for a record of each epoch ([`crate::epoch_record_schema`]).
    pub records: Option<Box<dyn Sink>>,
    /// Decides where epochs are cut; none: by input and load ([`LocalCutter`]).
    pub cutter: Option<Box<dyn Cutter>>,
    /// The time without input after which each source with event time holds no other source back until its next input,
    /// by source. Empty, or none for a source: never. What it gives then may be late.
    pub idle: Vec<Option<Duration>>,
    /// Shows the run to those who watch it, once it has begun.
    pub watched: Watched,
}

impl Request {
    /// Makes a run in memory that nobody watches, with the default options.
    pub fn new(sources: Vec<Box<dyn Source>>, sinks: Vec<Box<dyn Sink>>, environment: Arc<dyn Environment>) -> Request {
        Request {
            sources,
            sinks,
            options: Options::default(),
            environment,
            control: Arc::default(),
            durability: None,
            records: None,
            cutter: None,
            idle: Vec::new(),
            watched: Watched::default(),
        }
    }

    /// Returns the given cutter, or one that follows the options.
    pub(crate) fn take_cutter(&mut self) -> Box<dyn Cutter> {
        self.cutter.take().unwrap_or_else(|| Box::new(LocalCutter::new(self.options)))
    }
}

/// An application: program, code and tables.
pub struct Engine {
    pub(crate) machine: Arc<Machine>,
}

impl Engine {
    /// Compiles a program; its tables are empty.
    pub fn new(program: Program) -> Result<Engine, CompileError> {
        Engine::with_logging(program, Logging::default())
    }

    /// Compiles a program as [`Engine::new`] does, with the logging of durable runs.
    pub fn with_logging(program: Program, logging: Logging) -> Result<Engine, CompileError> {
        let wanted = ti_vec![false; program.streams.len()];
        Engine::compile(program, logging, wanted)
    }

    /// Compiles a program with the logging of durable runs, for a [`Session`](crate::Session): every stream can be
    /// followed.
    pub fn for_session(program: Program, logging: Logging) -> Result<Engine, CompileError> {
        let wanted = ti_vec![true; program.streams.len()];
        Engine::compile(program, logging, wanted)
    }

    /// Compiles a program. `wanted`: the streams whose events are needed in any case.
    fn compile(program: Program, logging: Logging, mut wanted: TiVec<StreamId, bool>) -> Result<Engine, CompileError> {
        program.sinks.iter().for_each(|sink| wanted[sink.stream] = true);
        if logging == Logging::Full {
            committed_streams(&program).for_each(|stream| wanted[stream] = true);
        }
        // The answers of calls with keys are kept, whoever looks.
        for transaction in program.transactions.iter().filter(|transaction| !transaction.is_hidden()) {
            if transaction.inputs.iter().any(|&stream| program.streams[stream].remembers().is_some()) {
                (wanted[transaction.committed.stream], wanted[transaction.aborted]) = (true, true);
            }
        }
        let code = Code::compile(&program, &wanted)?;
        let wiring = Wiring::of(&program, &code);
        let tables = program.tables.iter().map(Table::new).collect();
        let due_rows = due::indexes(&program, &wiring, &tables);
        let groups = Groups::of(&program);
        let kept = Kept::of(&program);
        let column_indexes = indexes::of(&program);
        let homes = Homes::default();
        let passed_before = AtomicU64::default();
        let machine = Machine {
            program,
            code,
            wiring,
            groups,
            tables,
            homes,
            due_rows,
            column_indexes,
            kept,
            logging,
            passed_before,
        };
        Ok(Engine { machine: Arc::new(machine) })
    }

    /// Returns the same application with empty tables. Panics during a run.
    pub fn with_empty_tables(self) -> Engine {
        let homes = self.machine.homes.clone();
        self.with_homes(homes)
    }

    /// Returns the same application with empty tables, whose rows are on the sockets of the workers that a run with
    /// these options has. Where these are on one, nothing is different. Panics during a run.
    pub fn on_sockets_of(self, environment: &Arc<dyn Environment>, options: &Options) -> Engine {
        let workers = workers(options, environment.parallelism());
        let sockets = (0..workers).map(|worker| environment.socket(worker, workers));
        let environment = environment.clone();
        let bind = move |memory: Range<usize>, socket| environment.bind(memory, socket);
        self.with_homes(Homes::of(sockets, Arc::new(bind)))
    }

    fn with_homes(self, homes: Homes) -> Engine {
        let machine = Arc::into_inner(self.machine).expect("no run goes on");
        let tables = machine.program.tables.iter().map(|table| Table::with_homes(table, &homes)).collect();
        let due_rows = due::indexes(&machine.program, &machine.wiring, &tables);
        let kept = Kept::of(&machine.program);
        let column_indexes = indexes::of(&machine.program);
        let passed_before = AtomicU64::default();
        Engine {
            machine: Arc::new(Machine { tables, homes, due_rows, column_indexes, kept, passed_before, ..machine }),
        }
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.machine.program
    }

    /// Returns the number of compiled functions and their size in bytes.
    pub fn code_size(&self) -> (usize, usize) {
        (self.machine.code.function_count, self.machine.code.code_bytes)
    }

    /// Returns the number of rows and entries of indexes that were looked at to find due rows.
    pub fn looked_at(&self) -> u64 {
        self.machine.due_rows.iter().flatten().map(|rows| rows.lock().looked_at()).sum()
    }

    /// Inserts rows into a table: a batch in canonical form. Call it between runs only.
    pub fn preload(&self, table: TableId, batch: &RecordBatch) -> Result<(), PreloadError> {
        self.machine.tables[table].preload(batch)
    }

    /// Inserts rows that a table begins with: a batch of the columns that users declared, without windows. Where rows expire by a
    /// column they are gone at its time; others stay until they are written. Call it between runs only.
    pub fn preload_declared(&self, table: TableId, batch: &RecordBatch) -> Result<(), PreloadError> {
        let of = &self.program().tables[table];
        let Some(expire) = &of.expire else { return self.preload(table, batch) };
        let plain = of.columns.iter().filter(|column| column.window.is_none());
        let schema = arrow_schema(&Schema::scalars(plain.map(|column| (column.name.as_str(), column.ty))));
        // The time is in the last column.
        let gone_at = match expire {
            Expire::At(name) => batch.column_by_name(name).expect("a column of the table").clone(),
            Expire::After(_) => new_null_array(schema.field(batch.num_columns()).data_type(), batch.num_rows()),
        };
        let columns = batch.columns().iter().cloned().chain([gone_at]).collect();
        self.preload(table, &RecordBatch::try_new(schema, columns).expect("the columns of the table"))
    }

    /// Migrates a state of an earlier version of the program to this version. New tables get the rows that these tables
    /// have; the log must have no entries after the state's checkpoint. Afterwards the tables contain the rows of the
    /// state. Fails, and leaves the state as it was, if a column has a function that refuses one of its values.
    pub fn migrate(&self, directory: &mut StateDirectory, old: &Program) -> Result<(), RunError> {
        migrate(directory, old, &self.machine, converts)
    }

    /// Loads the rows of a state or savepoint of the program `of` into the tables of the same names; returns the names
    /// and the numbers of rows. Fails if columns do not fit.
    pub fn seed(&self, from: &StateDirectory, of: &Program) -> Result<Vec<(String, usize)>, RunError> {
        seed(from, of, &self.machine, converts)
    }

    /// Returns the rows of a table, sorted by key. Call it between runs only. Fails if evicted rows cannot be read.
    pub fn table(&self, table: TableId) -> Result<RecordBatch, RunError> {
        self.machine.tables[table].to_batch().map_err(unread)
    }

    /// Returns the accesses of an epoch of these events of the first source. Call it between runs only, and not for
    /// programs that cascade.
    pub fn shape(&self, events: &RecordBatch) -> EpochShape {
        EpochShape::of(&self.machine, events)
    }

    /// Returns the contents of a table in numbers.
    pub fn table_stats(&self, table: TableId) -> TableStats {
        self.machine.tables[table].stats()
    }

    /// Runs until the sources end or the run is stopped, with a thread for each actor. `tick` is called from time to
    /// time on this thread.
    ///
    /// A durable run of an existing state needs empty tables: it fills them. With a memory limit it reads rows as they
    /// are needed, and [`Engine::table`] still does so after the run has ended.
    pub fn run(&self, request: Request, tick: &mut dyn FnMut()) -> Result<Summary, RunError> {
        Run::begin(self, request, None, tick)?.on_threads(tick)
    }

    /// Begins a run that the caller drives, step by step, on its own thread ([`Run::step`]). `tick` is called from time
    /// to time while rows are loaded.
    pub fn begin(&self, request: Request, tick: &mut dyn FnMut()) -> Result<Run, RunError> {
        Run::begin(self, request, None, tick)
    }
}
