//! File to file: the ledger read from and written to files, as `tidemill run` does it.

use crate::median::median;
use crate::workloads::ledger::{self, KeySpread, Shape};
use std::path::Path;
use std::sync::Arc;
use tidemill_connect::{SinkSpec, SourceOptions, SourceSpec, System, open_sink, open_source};
use tidemill_plan::analyze;
use tidemill_runtime::{Control, Engine, Options, Request, Summary};

/// A pair of formats.
struct Formats {
    name: &'static str,
    input: &'static str,
    output: &'static str,
}

const FORMATS: [Formats; 4] = [
    Formats { name: "CSV to JSON Lines", input: "csv", output: "jsonl" },
    Formats { name: "JSON Lines to JSON Lines", input: "jsonl", output: "jsonl" },
    Formats { name: "Parquet to Parquet", input: "parquet", output: "parquet" },
    Formats { name: "Arrow IPC to Arrow IPC", input: "ipc", output: "ipc" },
];

/// Measures every pair over so many runs in a folder that is removed afterwards.
pub fn measure(events: usize, rows: u64, runs: usize, folder: &Path) {
    let shape = Shape { rows, theta: 0.2, events, doomed: 0.01, work: 0, keys: KeySpread::Sequence };
    let batch = ledger::events(shape, 7);
    std::fs::create_dir_all(folder).expect("a folder that can be made");
    println!("{:<26} | {:>18} | {:>14}", "", "million events/s", "input MB/s");
    for formats in &FORMATS {
        let input = folder.join(format!("events.{}", formats.input)).to_string_lossy().into_owned();
        let mut sink = open_sink(&sink_spec(formats.input, &input), &ledger::event_schema()).expect("a sink");
        sink.write(&batch).expect("written");
        sink.finish().expect("finished");
        let bytes = std::fs::metadata(&input).expect("just written").len();
        let seconds: Vec<f64> = (0..runs).map(|_| run(formats, &input, folder, shape).seconds).collect();
        let seconds = median(&seconds);
        let (rate, bandwidth) = (events as f64 / seconds / 1e6, bytes as f64 / seconds / 1e6);
        println!("{:<26} | {rate:>18.2} | {bandwidth:>14.0}", formats.name);
    }
    std::fs::remove_dir_all(folder).expect("our own folder");
}

fn run(formats: &Formats, input: &str, folder: &Path, shape: Shape) -> Summary {
    let engine = Engine::new(analyze(&ledger::plan(0)).expect("a valid plan")).expect("a plan that compiles");
    for table in engine.program().tables.keys() {
        let columns = &engine.program().tables[table].columns;
        let schema = tidemill_model::Schema::scalars(columns.iter().map(|c| (c.name.as_str(), c.ty)));
        ledger::initial_rows(shape.rows, shape.keys, &schema)
            .for_each(|b| engine.preload(table, &b).expect("distinct keys"));
    }
    let source = open_source(&source_spec(formats.input, input), &ledger::event_schema(), &SourceOptions::default());
    let program = engine.program();
    let sink = |sink: &tidemill_plan::Sink| {
        let path = folder.join(format!("{}.{}", sink.name, formats.output)).to_string_lossy().into_owned();
        open_sink(&sink_spec(formats.output, &path), &program.streams[sink.stream].schema).expect("a sink")
    };
    let request = Request {
        sources: vec![source.expect("a source")],
        sinks: program.sinks.iter().map(sink).collect(),
        options: Options::default(),
        environment: Arc::new(System::new()),
        control: Arc::new(Control::default()),
        durability: None,
        records: None,
        cutter: None,
        link: None,
        idle: Vec::new(),
    };
    engine.run(request, &mut || {}).expect("a run between files")
}

fn source_spec(format: &str, path: &str) -> SourceSpec {
    serde_json::from_value(serde_json::json!({ "kind": format, "paths": [path] })).expect("a spec")
}

fn sink_spec(format: &str, path: &str) -> SinkSpec {
    serde_json::from_value(serde_json::json!({ "kind": format, "path": path })).expect("a spec")
}
