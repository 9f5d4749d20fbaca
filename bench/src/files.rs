//! File to file: the ledger read from and written to files, as `tidemill run` does it.

use crate::median::median;
use crate::workloads::ledger::{self, KeySpread, Shape};
use std::path::Path;
use std::sync::Arc;
use tidemill_connect::{System, source_options, standard_connectors};
use tidemill_io::{SinkConnection, SourceConnection};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Request, Summary};

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

/// Measures every pair over this number of runs in a folder that is removed afterwards.
pub fn measure(events: usize, rows: u64, runs: usize, folder: &Path) {
    let shape = Shape { rows, theta: 0.2, events, doomed: 0.01, work: 0, keys: KeySpread::Sequence };
    let batch = ledger::events(shape, 7);
    std::fs::create_dir_all(folder).expect("a folder that can be made");
    println!("{:<26} | {:>18} | {:>14}", "", "million events/s", "input MB/s");
    for formats in &FORMATS {
        let input = folder.join(format!("events.{}", formats.input)).to_string_lossy().into_owned();
        let mut sink = sink_to(formats.input, &input).open(&ledger::event_schema(), None).expect("a sink");
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
    let source = source_of(formats.input, input).open(&ledger::event_schema(), &source_options());
    let program = engine.program();
    let sink = |sink: &tidemill_plan::Sink| {
        let path = folder.join(format!("{}.{}", sink.name, formats.output)).to_string_lossy().into_owned();
        sink_to(formats.output, &path).open(&program.streams[sink.stream].schema, None).expect("a sink")
    };
    let request = Request::new(
        vec![source.expect("a source")],
        program.sinks.iter().map(sink).collect(),
        Arc::new(System::new()),
    );
    engine.run(request, &mut || {}).expect("a run between files")
}

fn source_of(format: &str, path: &str) -> Box<dyn SourceConnection> {
    let spec = serde_json::from_value(serde_json::json!({ "kind": format, "paths": [path] })).expect("a spec");
    standard_connectors().source(&spec).expect("a format")
}

fn sink_to(format: &str, path: &str) -> Box<dyn SinkConnection> {
    let spec = serde_json::from_value(serde_json::json!({ "kind": format, "path": path })).expect("a spec");
    standard_connectors().sink(&spec).expect("a format")
}
