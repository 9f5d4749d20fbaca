//! A run with a memory limit uses no more than the limit, by the engine's own count and by a counting allocator.
//!
//! The texts and windows of these rows are many times larger than the limit, and all of them are created during the
//! run, so their sizes are not known beforehand. This is a test binary of its own, because it replaces the allocator of
//! the process.

use arrow_array::RecordBatch;
use std::alloc::{GlobalAlloc, Layout, System as Allocator};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidemill_connect::{Disk, System};
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_io::{IoFailure, Next, Source, SourceBatch};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{PlanBuilder, event, named};
use tidemill_plan::{Plan, WindowDef, analyze};
use tidemill_runtime::{Durability, DurabilityOptions, Engine, EpochSize, MemorySummary, Options, Request};

/// Counts the bytes that are allocated. Rows and indexes are not included: they are in memory mappings.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { Allocator.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 32 << 20;
/// The run's other allocations: batches of the source, epochs in flight, blocks that are written.
const BESIDE: usize = 24 << 20;
const BATCH: i64 = 256;
/// Events of an epoch: few, because epochs in flight are not counted.
const EPOCH: usize = 512;

/// Events with a key and a text, generated on demand.
struct Texts {
    schema: Schema,
    next: i64,
    end: i64,
    /// Bytes of each text.
    bytes: usize,
    /// The key of an event, by its number.
    key: fn(i64) -> i64,
}

impl Texts {
    fn batch(&mut self) -> RecordBatch {
        let last = (self.next + BATCH).min(self.end);
        let record = |number: i64| {
            let text = char::from(b'a' + (number % 26) as u8).to_string().repeat(self.bytes);
            vec![Value::Int((self.key)(number)), Value::Str(text)]
        };
        let records: Vec<Vec<Value>> = (self.next..last).map(record).collect();
        self.next = last;
        batch_of(&self.schema, &records)
    }
}

impl Source for Texts {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok((self.next < self.end).then(|| SourceBatch { events: self.batch(), bad: Vec::new() }).into())
    }

    fn token(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    fn replays(&self) -> bool {
        true
    }
}

/// Each event writes its text into a row of its own.
fn notes() -> Plan {
    PlanBuilder::new("notes")
        .table("notes", |t| t.key("number", Type::Int).column_or("text", Type::Str, Value::Str(String::new())))
        .source("events", |s| s.field("key", Type::Int).field("text", Type::Str))
        .transaction("write", [named("events")], |t| {
            t.create("note", "notes", [event("key")]).body(|b| b.set("note", "text", event("text")))
        })
        .build()
}

/// Each event adds its text to a window.
fn last_words() -> Plan {
    PlanBuilder::new("words")
        .table("speakers", |t| t.key("number", Type::Int).window("words", Type::Str, WindowDef::Last(8)))
        .source("events", |s| s.field("key", Type::Int).field("text", Type::Str))
        .transaction("speak", [named("events")], |t| {
            t.create("speaker", "speakers", [event("key")]).body(|b| b.add("speaker", "words", event("text")))
        })
        .build()
}

/// Runs a plan on `events` events with texts of `bytes` bytes; returns the maximum number of bytes allocated during the
/// run, and the engine's count.
fn run(plan: &Plan, events: i64, bytes: usize, key: fn(i64) -> i64) -> (usize, MemorySummary) {
    let program = analyze(plan).expect("a valid plan");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-limit-{}", plan.name));
    let _ = std::fs::remove_dir_all(&path);
    let directory = StateDirectory::open(OpenState {
        storage: Arc::new(Disk),
        path: &path,
        holder: "a test",
        id: 1,
        program: Identity::of(&program),
        recorded: None,
    })
    .expect("a new state");
    let schema = program.streams.raw[0].schema.clone();
    let engine = Engine::new(program).expect("it compiles");
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let request = Request {
        options: Options { workers: 2, memory: Some(LIMIT), epoch: EpochSize::Events(EPOCH), ..Options::default() },
        durability: Some(Durability { directory, options: DurabilityOptions::default() }),
        ..Request::new(
            vec![Box::new(Texts { schema, next: 0, end: events, bytes, key })],
            Vec::new(),
            Arc::new(System::new()),
        )
    };
    let summary = engine.run(request, &mut || {}).expect("it runs");
    let peak = PEAK.load(Ordering::Relaxed) - before;
    std::fs::remove_dir_all(&path).expect("the state is there");
    (peak, summary.durability.and_then(|durability| durability.memory).expect("a run with a limit"))
}

fn check(plan: &Plan, events: i64, bytes: usize, key: fn(i64) -> i64) {
    let (allocated, memory) = run(plan, events, bytes, key);
    let mib = |bytes: usize| bytes >> 20;
    println!("{}: {} MiB allocated at most; {memory:?}", plan.name, mib(allocated));
    assert!(allocated <= LIMIT + BESIDE, "{} MiB were allocated, {} allowed", mib(allocated), mib(LIMIT));
    assert!(memory.peak as usize <= LIMIT + LIMIT / 8, "{memory:?}");
    assert!(memory.peak as usize >= LIMIT / 2, "the limit is used: {memory:?}");
    assert!(memory.evicted > 0 && memory.spilled > 0, "{memory:?}");
}

#[test]
fn texts_and_windows_that_a_run_makes_count() {
    // 128 MiB of texts, then 60 MiB of windows: each row's window is written eight times.
    check(&notes(), 64 << 10, 2 << 10, |number| number);
    check(&last_words(), 240_000, 256, |number| number % 30_000);
}
