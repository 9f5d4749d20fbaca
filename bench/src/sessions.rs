//! Sessions: how long it takes from `send` to a follower, what sending costs beside a source, and what reading a table
//! costs the run that goes on.

use crate::median::median;
use crate::run::Slices;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::{System, open_state};
use tidemill_io::{Sink, Source};
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::analyze;
use tidemill_plan::build::{PlanBuilder, cell, committed, event, named};
use tidemill_random::Random;
use tidemill_runtime::{Durability, DurabilityOptions, Engine, Followed, Logging, Request, SentSource, Session, Slow};

/// Events of a batch.
const BATCH: usize = 1 << 13;

/// Sessions: latency, the rate of what is sent, and reads of a table beside it.
#[derive(Parser)]
#[command(after_help = "Example:\n  tidemill-bench sessions --events 20000000 --rows 5000000")]
pub struct Sessions {
    /// Events of the runs that measure rates.
    #[arg(long, default_value_t = 20_000_000)]
    events: usize,
    /// Rows of the table that is read.
    #[arg(long, default_value_t = 5_000_000)]
    rows: u64,
    /// The number of times that they are sent, so that the table is read several times meanwhile.
    #[arg(long, default_value_t = 30)]
    times: usize,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds of sending 1,000 events a second.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The folder for a state, which is removed.
    #[arg(long, default_value = "target/bench-sessions")]
    folder: PathBuf,
}

fn engine(rows: u64) -> Engine {
    let plan = PlanBuilder::new("sessions")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("events", |s| s.field("key", Type::Int).field("n", Type::Int))
        .transaction("add", [named("events")], |t| {
            t.row("row", "rows", [event("key")]).body(|b| {
                b.set("row", "value", cell("row", "value") + 1);
                b.give([("n", event("n"))]);
            })
        })
        .sink("done", committed("add"))
        .build();
    let program = analyze(&plan).expect("a right plan");
    let engine = Engine::for_session(program, Logging::default()).expect("it compiles");
    let (id, table) = engine.program().tables.iter_enumerated().next().expect("a table");
    let schema = Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)));
    let columns = vec![
        Arc::new(Int64Array::from_iter_values(0..rows as i64)) as _,
        Arc::new(Int64Array::from_value(0, rows as usize)) as _,
    ];
    let first = RecordBatch::try_new(arrow_schema(&schema), columns).expect("columns of the schema");
    engine.preload(id, &first).expect("distinct keys");
    engine
}

fn batch(engine: &Engine, keys: Vec<i64>, numbers: Vec<i64>) -> RecordBatch {
    let schema = arrow_schema(&engine.program().sources().next().expect("a source").schema);
    let columns = vec![Arc::new(Int64Array::from(keys)) as _, Arc::new(Int64Array::from(numbers)) as _];
    RecordBatch::try_new(schema, columns).expect("columns of the schema")
}

fn events(engine: &Engine, rows: u64, count: usize) -> RecordBatch {
    let mut random = Random::new(11);
    let keys = (0..count).map(|_| random.below(rows) as i64).collect();
    batch(engine, keys, (0..count as i64).collect())
}

fn request(source: Box<dyn Source>, sinks: Vec<Box<dyn Sink>>, durability: Option<Durability>) -> Request {
    Request { durability, ..Request::new(vec![source], sinks, Arc::new(System::new())) }
}

fn sinks() -> Vec<Box<dyn Sink>> {
    vec![Box::new(crate::run::Counted(Arc::default()))]
}

fn start(engine: Engine, durability: Option<Durability>) -> Session {
    Session::start(engine, request(Box::new(SentSource), sinks(), durability), &mut || {}, Box::new(|| {}))
        .expect("it starts")
}

fn close(session: &Session) {
    session.close(&mut || {}).expect("closed once").expect("a good run");
}

impl Sessions {
    /// Prints the report.
    pub fn report(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        println!("send to follow, 1,000 events/s for {} s, ms      p50      p99", self.seconds);
        self.latency("without a state", None);
        let state = self.folder.join("state");
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let sync = sync_ms(&self.folder);
        self.latency(&format!("with one (a sync takes {sync:.2} ms)"), Some(&state));
        let _ = std::fs::remove_dir_all(&self.folder);
        self.rates();
    }

    fn latency(&self, name: &str, state: Option<&Path>) {
        let engine = engine(10_000);
        let durability = state.map(|state| {
            let directory = open_state(state, engine.program(), None).expect("a state");
            Durability { directory, options: DurabilityOptions::default() }
        });
        let batches: Vec<_> =
            (0..(self.seconds * 1_000.0) as i64).map(|n| batch(&engine, vec![n % 100], vec![n])).collect();
        let session = start(engine, durability);
        let stream = session.stream("add.committed").expect("a stream");
        let following = session.follow(stream, Slow::Waits, 1 << 20).expect("it runs");
        let began = Instant::now();
        let due = |n: usize| began + Duration::from_secs_f64(n as f64 / 1_000.0);
        let mut took: Vec<f64> = thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut took = Vec::new();
                while let Followed::Events(released) = following.next(None) {
                    let now = Instant::now();
                    let numbers = released.batch.column(0).as_primitive::<Int64Type>().values();
                    took.extend(
                        numbers.iter().map(|&n| now.saturating_duration_since(due(n as usize)).as_secs_f64() * 1e3),
                    );
                }
                took
            });
            for (n, batch) in batches.iter().enumerate() {
                thread::sleep(due(n).saturating_duration_since(Instant::now()));
                session.send(0, batch, None).expect("it runs");
            }
            close(&session);
            reader.join().expect("no panic")
        });
        took.sort_by(f64::total_cmp);
        assert_eq!(took.len(), batches.len(), "every event came");
        println!("{name:<46} {:>8.2} {:>8.2}", took[took.len() / 2], took[took.len() * 99 / 100]);
    }

    /// Rates of one source, sent, and sent while the table is read once a second; in turn.
    fn rates(&self) {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        let mut reads = Vec::new();
        for _ in 0..self.runs {
            rates[0].push(self.read_from_source());
            rates[1].push(self.sent(None));
            rates[2].push(self.sent(Some(&mut reads)));
        }
        let [source, sent, read] = rates.map(|rates| median(&rates) / 1e6);
        println!("million events/s over {} rows, medians of {}", self.rows, self.runs);
        println!("  from a source {source:.2}, sent {sent:.2} ({:.2} of it)", sent / source);
        println!("  sent, the table read once a second {read:.2} ({:.2} of what is sent)", read / sent);
        if !reads.is_empty() {
            println!("  a read took {:.2} s at the median of {}", median(&reads), reads.len());
        }
    }

    fn read_from_source(&self) -> f64 {
        let engine = engine(self.rows);
        let source = Slices::new(events(&engine, self.rows, self.events), BATCH);
        let began = Instant::now();
        engine.run(request(Box::new(source), sinks(), None), &mut || {}).expect("a run in memory");
        self.events as f64 / began.elapsed().as_secs_f64()
    }

    /// `reads`: the table is read once a second, and the seconds of each read are added.
    fn sent(&self, reads: Option<&mut Vec<f64>>) -> f64 {
        let engine = engine(self.rows);
        let events = events(&engine, self.rows, self.events);
        let session = start(engine, None);
        let table = session.table("rows").expect("a table");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            if let Some(reads) = reads {
                let (session, is_over) = (&session, &is_over);
                scope.spawn(move || {
                    let mut next = Instant::now() + Duration::from_millis(200);
                    while !is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(5));
                        if Instant::now() < next {
                            continue;
                        }
                        let began = Instant::now();
                        if session.tables(&[table], None).is_err() {
                            return;
                        }
                        reads.push(began.elapsed().as_secs_f64());
                        next = began + Duration::from_secs(1);
                    }
                });
            }
            let began = Instant::now();
            for _ in 0..self.times {
                for from in (0..self.events).step_by(BATCH) {
                    let some = events.slice(from, BATCH.min(self.events - from));
                    session.send(0, &some, None).expect("it runs");
                }
            }
            session.flush(None).expect("it runs");
            let rate = (self.times * self.events) as f64 / began.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            close(&session);
            rate
        })
    }
}

/// Returns the median time to write some bytes to a file and sync it, ms.
fn sync_ms(folder: &Path) -> f64 {
    use std::io::Write;
    let path = folder.join("sync");
    let mut file = std::fs::File::create(&path).expect("a file");
    let once = || {
        let began = Instant::now();
        file.write_all(&[7; 200]).expect("room");
        file.sync_data().expect("it syncs");
        began.elapsed().as_secs_f64() * 1e3
    };
    let took: Vec<f64> = std::iter::repeat_with(once).take(50).collect();
    let _ = std::fs::remove_file(path);
    median(&took)
}
