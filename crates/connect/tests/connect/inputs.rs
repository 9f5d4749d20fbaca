//! Origins of text: globs, several files, compression, pipes, progress.

use crate::support::*;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tidemill_connect::{Compression, ReadCsv, ReadJsonl, WriteJsonl, standard_connectors};
use tidemill_io::{Next, SinkConnection, SourceConnection, Spec};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 3).unwrap()
}

fn numbers(range: std::ops::Range<i64>) -> Vec<u8> {
    let lines: String = range.map(|i| format!("{i}\n")).collect();
    format!("a\n{lines}").into_bytes()
}

#[test]
fn globs_are_sorted_and_files_read_in_order() {
    let files = Files::new();
    files.write("b.csv", "a\n3\n");
    files.write("a.csv", "x,a\n0,1\n0,2\n");
    files.write(".hidden.csv", "a\n9\n");
    files.write("c[1].csv", "a\n4\n");
    std::fs::create_dir(files.path("d.csv")).unwrap();
    let taken = take(&csv(files.path("*.csv")), &ints(&["a"]));
    assert_eq!(taken.firsts(), [1, 2, 3, 4].map(int));
    assert_eq!(take(&csv(files.path("c[1].csv")), &ints(&["a"])).firsts(), [int(4)]);

    let paths = vec![files.path("b.csv"), files.path("a*.csv")];
    let spec =
        ReadCsv { paths, delimiter: ',', null: String::new(), compression: None, end: tidemill_io::InputEnd::Pause }
            .spec();
    assert_eq!(take(&spec, &ints(&["a"])).firsts(), [3, 1, 2].map(int));
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let files = Files::new();
    let schema = ints(&["a"]);
    let missing = refusal(&csv(files.path("no.csv")), &schema).message;
    assert!(missing.contains("no.csv cannot be opened: No such file"), "{missing}");
    let unmatched = refusal(&jsonl(files.path("*.none")), &schema).message;
    assert!(unmatched.starts_with("no file matches '"), "{unmatched}");
    let directory = refusal(&jsonl(files.path("")), &schema).message;
    assert!(directory.contains("is a directory"), "{directory}");
    let malformed = refusal(&jsonl(files.path("[")), &schema).message;
    assert!(malformed.contains("glob"), "{malformed}");
    let none = ReadJsonl { paths: vec![], compression: None, end: tidemill_io::InputEnd::Pause }.spec();
    assert!(refusal(&none, &schema).message.contains("no path"));
    let twice =
        ReadJsonl { paths: vec!["-".into(), "-".into()], compression: None, end: tidemill_io::InputEnd::Pause }.spec();
    assert!(refusal(&twice, &schema).message.contains("only once"));
}

#[test]
fn compression_by_name_by_magic_and_by_choice() {
    let files = Files::new();
    let schema = ints(&["a"]);
    let content = numbers(0..3);
    let expected = [0, 1, 2].map(int);
    for (name, bytes) in [
        ("x.csv.gz", gzip(&content)),
        ("x.csv.zst", zstd(&content)),
        ("x.csv.ZSTD", zstd(&content)),
        ("gzip.csv", gzip(&content)),
        ("zstd.csv", zstd(&content)),
        ("two.gz", [gzip(&content), gzip(b"3\n")].concat()),
        ("two.zst", [zstd(&content), zstd(b"3\n")].concat()),
    ] {
        let taken = take(&csv(files.write(name, bytes)), &schema);
        assert_eq!(taken.firsts()[..3], expected, "{name}");
        assert_eq!(taken.rows.len(), if name.starts_with("two") { 4 } else { 3 });
    }
    let odd = files.write("plain.gz", &content);
    assert!(refusal(&csv(&odd), &schema).message.contains("plain.gz cannot be read: "));
    assert_eq!(take(&csv_as(&odd, Compression::None), &schema).firsts(), expected);
    let forced = files.write("x.bin", gzip(&content));
    assert_eq!(take(&csv_as(&forced, Compression::Gzip), &schema).firsts(), expected);
}

#[test]
fn broken_compression_fails_after_the_events_before_it() {
    let files = Files::new();
    let schema = ints(&["a"]);
    let content = numbers(0..200_000);
    for (name, bytes) in [("cut.gz", gzip(&content)), ("cut.zst", zstd(&content))] {
        let cut = &bytes[..bytes.len() * 3 / 4];
        let taken = take(&csv(files.write(name, cut)), &schema);
        assert!(taken.rows.len() > 1000 && taken.rows.len() < 200_000, "{}", taken.rows.len());
        assert_eq!(taken.firsts(), (0..taken.rows.len() as i64).map(int).collect::<Vec<_>>());
        let failure = taken.failure.unwrap();
        assert!(failure.contains(name) && failure.contains("cannot be read"), "{failure}");
        assert!(taken.bad.is_empty());

        let mut broken = bytes.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 64].fill(0xa5);
        let failure = match open_source(&csv(files.write(&format!("broken-{name}"), broken)), &schema, &options(1000)) {
            Ok(mut source) => drain(source.as_mut(), &schema).failure,
            // A block is decompressed as a whole, so the header may be lost with what follows it.
            Err(failure) => Some(failure.message),
        };
        assert!(failure.unwrap().contains(name));
    }
    for name in ["empty.gz", "empty.zst"] {
        let message = refusal(&csv(files.write(name, "")), &schema).message;
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn a_later_file_of_another_schema_is_found_before_any_event() {
    let files = Files::new();
    files.write("a.csv", "a\n1\n");
    files.write("b.csv", "b\n1\n");
    let failure = refusal(&csv(files.path("*.csv")), &ints(&["a"]));
    assert!(failure.schema && failure.message.contains("b.csv"));
}

/// A pipe hands over what is whole without waiting for a batch, and its header when it comes.
#[test]
fn live_inputs_are_not_waited_for() {
    let files = Files::new();
    let path = pipe(&files, "live.csv");
    let spec = csv(path.to_str().unwrap());
    let schema = ints(&["a"]);
    let mut source = open_source(&spec, &schema, &options(1000)).unwrap();
    let (written, seen) = (mpsc::channel(), mpsc::channel());
    let writer = std::thread::spawn(move || {
        let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        for part in ["a", "\n1\n2", "2\n3", "\n", "4"] {
            file.write_all(part.as_bytes()).unwrap();
            if part.ends_with('\n') || part.contains("2\n") {
                written.0.send(()).unwrap();
                let () = seen.1.recv().unwrap();
            }
        }
    });
    let mut batches = Vec::new();
    let mut take =
        || source.next(Duration::MAX).unwrap().batch().map(|batch| tidemill_model::arrow::rows(&batch.events, &schema));
    // "a\n1\n2" leaves 1 whole; the writer waits only after "2\n3" and "\n".
    let mut rows = Vec::new();
    while rows.len() < 2 {
        rows.extend(take().unwrap());
    }
    written.1.recv().unwrap();
    batches.push(rows);
    seen.0.send(()).unwrap();
    batches.push(take().unwrap());
    written.1.recv().unwrap();
    seen.0.send(()).unwrap();
    batches.push(take().unwrap());
    assert!(take().is_none());
    writer.join().unwrap();
    let flat: Vec<Vec<i64>> =
        batches.iter().map(|rows| rows.iter().map(|row| row[0].word().unwrap()).collect()).collect();
    assert_eq!(flat, [vec![1, 22], vec![3], vec![4]]);
}

#[test]
fn a_pipe_of_another_schema_fails_when_its_turn_comes() {
    let files = Files::new();
    let path = pipe(&files, "live.csv");
    let first = files.write("a.csv", "a\n1\n");
    let paths = vec![first, path.to_str().unwrap().to_owned()];
    let spec =
        ReadCsv { paths, delimiter: ',', null: String::new(), compression: None, end: tidemill_io::InputEnd::Pause }
            .spec();
    let schema = ints(&["a"]);
    let mut source = open_source(&spec, &schema, &options(1000)).unwrap();
    // The file's events do not wait for the pipe, which nobody has opened yet.
    assert_eq!(source.next(Duration::MAX).unwrap().batch().unwrap().events.num_rows(), 1);
    let writer = std::thread::spawn(move || std::fs::write(path, "b\n1\n").unwrap());
    assert!(source.next(Duration::MAX).unwrap_err().schema);
    writer.join().unwrap();
}

#[test]
fn progress_counts_bytes_on_the_medium() {
    let files = Files::new();
    let schema = ints(&["a"]);
    let content = numbers(0..100_000);
    let packed = gzip(&content);
    let total = (packed.len() + content.len()) as u64;
    let paths = vec![files.write("a.csv.gz", packed), files.write("b.csv", content)];
    let spec =
        ReadCsv { paths, delimiter: ',', null: String::new(), compression: None, end: tidemill_io::InputEnd::Pause }
            .spec();
    let mut source = open_source(&spec, &schema, &options(1000)).unwrap();
    assert_eq!((source.progress().done, source.progress().total), (0, Some(total)));
    let mut last = 0;
    while source.next(Duration::MAX).unwrap().batch().is_some() {
        let progress = source.progress();
        assert!(progress.done >= last && progress.done <= total);
        last = progress.done;
    }
    assert_eq!(source.progress().done, total);
}

#[test]
fn specs_are_json() {
    let spec: Spec = serde_json::from_str(r#"{"kind":"csv","paths":["a.csv"]}"#).unwrap();
    assert_eq!(standard_connectors().source(&spec).unwrap().spec(), csv("a.csv"));
    assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
}

/// Run by the next test in a process of its own, for standard streams are one per process.
#[test]
#[ignore = "reads standard input"]
fn copies_standard_input_to_standard_output() {
    let schema = ints(&["a"]);
    let mut source = open_source(&jsonl("-"), &schema, &options(1000)).unwrap();
    let mut sink = open_sink(&WriteJsonl { path: "-".into(), compression: None }.spec(), &schema).unwrap();
    while let Next::Batch(batch) = source.next(Duration::MAX).unwrap() {
        sink.write(&batch.events).unwrap();
        sink.flush().unwrap();
    }
    assert_eq!(source.progress().total, None);
    sink.finish().unwrap();
}

#[test]
fn standard_streams() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "inputs::copies_standard_input_to_standard_output"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&gzip(b"{\"a\":1}\n\n{\"a\":2}")).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("{\"a\":1}\n{\"a\":2}\n"), "{text}");
}
