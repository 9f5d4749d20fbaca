//! Files that grow between two runs over a state: what is read on, what is kept back, and what is refused.

use crate::support::*;
use std::io::Write;
use tidemill_connect::{IpcCompression, ReadCsv, ReadIpc, ReadJsonl, ReadParquet, WriteIpc, standard_connectors};
use tidemill_io::{InputEnd, IoFailure, Next, Resumed, SinkConnection, Source, SourceConnection, Spec};
use tidemill_model::Value;
use tidemill_model::arrow::{batch_of, rows};

/// The records and tokens that a run with a state took of a source.
#[derive(Debug, Default)]
struct Run {
    values: Vec<i64>,
    bad: usize,
    /// The last token.
    token: Option<String>,
    /// The values that the source kept back.
    rest: Vec<i64>,
    resumed: Option<Resumed>,
    outlook: String,
}

fn open(spec: &Spec) -> Box<dyn Source> {
    open_source(spec, &ints(&["a"]), &options(3)).unwrap()
}

/// A run whose end is a pause, after the run that left `token`; none: the first.
fn run(spec: &Spec, before: Option<&Run>) -> Result<Run, IoFailure> {
    let mut source = open(spec);
    source.pauses();
    let mut run = Run { token: before.and_then(|run| run.token.clone()), ..Run::default() };
    if before.is_some() {
        run.resumed = Some(source.resume(run.token.as_deref())?);
    }
    run.outlook = source.outlook().unwrap();
    let values = |batch: &arrow_array::RecordBatch| {
        rows(batch, &ints(&["a"])).iter().map(|row| row[0].word().unwrap()).collect::<Vec<i64>>()
    };
    while let Next::Batch(batch) = source.next(std::time::Duration::MAX)? {
        run.values.extend(values(&batch.events));
        run.bad += batch.bad.len();
        run.token = source.token();
    }
    if let Some(batch) = source.rest()? {
        run.rest.extend(values(&batch.events));
    }
    assert!(source.rest()?.is_none(), "it is given once");
    assert!(matches!(source.next(std::time::Duration::MAX)?, Next::End), "nothing follows what is kept back");
    Ok(run)
}

fn refused(spec: &Spec, before: &Run) -> String {
    run(spec, Some(before)).unwrap_err().message
}

fn append(path: &str, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_grown_file_is_read_on_and_an_incomplete_line_is_waited_for() {
    let files = Files::new();
    let csv_path = files.write("a.csv", "x,a\n0,1\n0,2\n0,3\n0,4\n0,5");
    let jsonl_path = files.write("a.jsonl", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n{\"a\":4}\n{\"a\":5}");
    let parts =
        [(csv(&csv_path), &csv_path, ["1\n0,6\n", "0,7\n"]), (jsonl(&jsonl_path), &jsonl_path, ["\n", "{\"a\":7}\n"])];
    for (spec, path, [first, second]) in parts {
        let monday = run(&spec, None).unwrap();
        assert_eq!((monday.values.as_slice(), monday.rest.as_slice()), ([1, 2, 3, 4].as_slice(), [5].as_slice()));
        let nothing = run(&spec, Some(&monday)).unwrap();
        assert_eq!((nothing.values.len(), nothing.rest.as_slice()), (0, [5].as_slice()), "{path}");
        append(path, first);
        let tuesday = run(&spec, Some(&monday)).unwrap();
        let expected: &[i64] = if path.ends_with("csv") { &[51, 6] } else { &[5] };
        assert_eq!((tuesday.values.as_slice(), tuesday.rest.len()), (expected, 0));
        assert_eq!(tuesday.resumed, Some(Resumed::Behind));
        append(path, second);
        let wednesday = run(&spec, Some(&tuesday)).unwrap();
        assert_eq!(wednesday.values, [7]);
        assert!(wednesday.outlook.starts_with(&format!("continues {path} at byte ")), "{}", wednesday.outlook);
        assert!(wednesday.outlook.ends_with(&format!("{} new bytes", second.len())), "{}", wednesday.outlook);
    }
}

/// A quote that is open at the end may be closed tomorrow.
#[test]
fn an_open_quote_is_waited_for() {
    let files = Files::new();
    let path = files.write("a.csv", "a,b\n1,x\n2,\"y\n");
    let monday = run(&csv(&path), None).unwrap();
    assert_eq!((monday.values.as_slice(), monday.bad), ([1].as_slice(), 0));
    append(&path, "z\"\n3,w\n");
    assert_eq!(run(&csv(&path), Some(&monday)).unwrap().values, [2, 3]);
}

/// More lines than a batch takes.
#[test]
fn all_lines_after_an_open_quote_are_kept_back() {
    let files = Files::new();
    let lines: String = (3..14).map(|i| format!("{i}\n")).collect();
    let path = files.write("a.csv", format!("a\n1\n\"2\n{lines}"));
    let monday = run(&csv(&path), None).unwrap();
    assert_eq!((monday.values.as_slice(), monday.bad), ([1].as_slice(), 0));
    assert_eq!(monday.rest, (3..14).collect::<Vec<_>>());
    let tuesday = run(&csv(&path), Some(&monday)).unwrap();
    assert_eq!((tuesday.values.len(), tuesday.rest), (0, monday.rest));
}

/// The last bytes that were read are known however the file was read.
#[test]
fn a_large_file_is_known_by_its_last_bytes() {
    let files = Files::new();
    let whole: String = std::iter::once("a\n".to_owned()).chain((0..50_000).map(|i| format!("{i:05}\n"))).collect();
    let path = files.write("a.csv", &whole);
    let monday = run(&csv(&path), None).unwrap();
    assert_eq!(monday.values.len(), 50_000);
    files.write("a.csv", whole.replace("\n49999\n", "\n49998\n"));
    let refusal = refused(&csv(&path), &monday);
    assert!(refusal.contains("were read and were changed since"), "{refusal}");
}

#[test]
fn a_file_that_is_not_what_it_was_is_refused() {
    let files = Files::new();
    let lines: String = (0..2000).map(|i| format!("{i}\n")).collect();
    let whole = format!("a\n{lines}");
    let path = files.write("a.csv", &whole);
    let spec = csv(&path);
    let monday = run(&spec, None).unwrap();
    assert_eq!(monday.values.len(), 2000);
    let bytes = whole.len();

    files.write("a.csv", &whole[..bytes - 5]);
    let shrunk = refused(&spec, &monday);
    assert!(shrunk.contains(&format!("{bytes} bytes of it were read, and it has only {} now", bytes - 5)), "{shrunk}");
    files.write("a.csv", whole.replacen("\n7\n", "\n8\n", 1));
    let head = refused(&spec, &monday);
    assert!(head.contains("a.csv is not the file that it was") && head.contains("begins otherwise"), "{head}");
    files.write("a.csv", whole.replace("\n1999\n", "\n1998\n"));
    let tail = refused(&spec, &monday);
    assert!(tail.contains(&format!("before byte {bytes} were read and were changed since")), "{tail}");
    files.write("a.csv", format!("{whole}5\n"));
    assert_eq!(run(&spec, Some(&monday)).unwrap().values, [5]);
}

/// A run that ended time took the last line as it was.
#[test]
fn a_line_that_was_taken_without_its_end_cannot_grow() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n2");
    let spec = csv(&path);
    let mut source = open(&spec);
    assert_eq!(source.next(std::time::Duration::MAX).unwrap().batch().unwrap().events.num_rows(), 2);
    let last = Run { token: source.token(), ..Run::default() };
    assert!(run(&spec, Some(&last)).unwrap().values.is_empty());
    append(&path, "\n3\n");
    assert_eq!(run(&spec, Some(&last)).unwrap().values, [3]);
    files.write("a.csv", "a\n1\n23\n");
    let failure = refused(&spec, &last);
    assert!(failure.contains("its last line was taken without a line end, up to byte 5"), "{failure}");
}

#[test]
fn a_glob_takes_new_files_that_sort_after_those_that_were_read() {
    let files = Files::new();
    let spec = csv(files.path("*.csv"));
    files.write("b.csv", "a\n1\n");
    files.write("c.csv", "a\n2\n3");
    let monday = run(&spec, None).unwrap();
    assert_eq!((monday.values.as_slice(), monday.rest.as_slice()), ([1, 2].as_slice(), [3].as_slice()));
    // A file that others follow is whole.
    files.write("d.csv", "a\n4\n");
    let tuesday = run(&spec, Some(&monday)).unwrap();
    assert_eq!(tuesday.values, [3, 4]);
    assert!(
        tuesday.outlook.contains("; then reads ") && tuesday.outlook.contains("d.csv (4 bytes)"),
        "{}",
        tuesday.outlook
    );

    let early = files.write("a.csv", "a\n9\n");
    let failure = refused(&spec, &tuesday);
    assert!(
        failure.contains("a.csv is new and comes before") && failure.contains("name that sorts after"),
        "{failure}"
    );
    std::fs::remove_file(early).unwrap();
    append(&files.path("b.csv"), "9\n");
    let failure = refused(&spec, &tuesday);
    assert!(failure.contains("b.csv had 4 bytes when it was read, and has 6 now"), "{failure}");
    files.write("b.csv", "a\n7\n");
    let failure = refused(&spec, &tuesday);
    assert!(failure.contains("b.csv was read and is not as it was, though it has as many bytes"), "{failure}");
    std::fs::remove_file(files.path("b.csv")).unwrap();
    assert!(refused(&spec, &tuesday).contains("b.csv was read before and is not there any more"));
}

/// A token names the last files only, and has a hash of those before.
#[test]
fn many_files() {
    let files = Files::new();
    let spec = csv(files.path("*.csv"));
    (100..200).for_each(|i| _ = files.write(&format!("{i}.csv"), format!("a\n{i}\n")));
    let monday = run(&spec, None).unwrap();
    assert_eq!(monday.values, (100..200).collect::<Vec<i64>>());
    assert!(monday.token.as_ref().unwrap().len() < 5_000);
    files.write("200.csv", "a\n200\n");
    assert_eq!(run(&spec, Some(&monday)).unwrap().values, [200]);
    files.write("105.csv", "a\n1050\n");
    let failure = refused(&spec, &monday);
    assert!(failure.contains("one of the first 67 files is not as it was"), "{failure}");
    files.write("105.csv", "a\n105\n");
    files.write("0.csv", "a\n0\n");
    let failure = refused(&spec, &monday);
    assert!(failure.contains("comes before"), "{failure}");
}

fn gzip(content: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A compressed file that was read to its end is not read again; one that has grown is read from its beginning.
#[test]
fn compressed_files() {
    let files = Files::new();
    let spec = csv(files.path("*.gz"));
    files.write("a.csv.gz", gzip("a\n1\n"));
    files.write("b.csv.gz", gzip("a\n2\n"));
    let monday = run(&spec, None).unwrap();
    assert_eq!(monday.values, [1, 2]);
    let nothing = run(&spec, Some(&monday)).unwrap();
    assert_eq!((nothing.resumed, nothing.values.len()), (Some(Resumed::Behind), 0));
    assert!(nothing.outlook.starts_with("has nothing new"), "{}", nothing.outlook);
    files.write("c.csv.gz", gzip("a\n3\n"));
    let tuesday = run(&spec, Some(&monday)).unwrap();
    assert_eq!((tuesday.resumed, tuesday.values.as_slice()), (Some(Resumed::Behind), [3].as_slice()));
    files.write("c.csv.gz", [gzip("a\n3\n"), gzip("4\n")].concat());
    let wednesday = run(&spec, Some(&tuesday)).unwrap();
    assert_eq!((wednesday.resumed, wednesday.values.as_slice()), (Some(Resumed::Anew), [1, 2, 3, 4].as_slice()));
}

fn ipc(files: &Files, name: &str, values: &[i64]) {
    let spec = WriteIpc { path: files.path(name), compression: IpcCompression::None }.spec();
    let mut sink = open_sink(&spec, &ints(&["a"])).unwrap();
    let rows: Vec<Vec<Value>> = values.iter().map(|&value| vec![int(value)]).collect();
    sink.write(&batch_of(&ints(&["a"]), &rows)).unwrap();
    sink.finish().unwrap();
}

#[test]
fn columnar_files() {
    let files = Files::new();
    let spec = ReadIpc { paths: vec![files.path("*.arrow")], end: InputEnd::Pause }.spec();
    ipc(&files, "a.arrow", &[1, 2, 3, 4, 5]);
    let monday = run(&spec, None).unwrap();
    assert_eq!(monday.values, [1, 2, 3, 4, 5]);
    ipc(&files, "b.arrow", &[6, 7]);
    let tuesday = run(&spec, Some(&monday)).unwrap();
    assert_eq!((tuesday.resumed, tuesday.values.as_slice()), (Some(Resumed::Behind), [6, 7].as_slice()));

    // From the middle of a file.
    let mut source = open(&spec);
    source.next(std::time::Duration::MAX).unwrap();
    let middle = Run { token: source.token(), ..Run::default() };
    assert_eq!(run(&spec, Some(&middle)).unwrap().values, [4, 5, 6, 7]);

    ipc(&files, "b.arrow", &[6, 8]);
    let failure = refused(&spec, &tuesday);
    assert!(failure.contains("b.arrow was read and is not as it was"), "{failure}");
    ipc(&files, "b.arrow", &(0..1000).collect::<Vec<i64>>());
    let failure = refused(&spec, &tuesday);
    assert!(failure.contains("b.arrow had") && failure.contains("put new events into a new file"), "{failure}");
    ipc(&files, "0.arrow", &[9]);
    assert!(refused(&spec, &tuesday).contains("0.arrow is new and comes before"));
}

#[test]
fn the_last_of_a_source_and_what_cannot_be_followed() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n");
    let with =
        |end| ReadCsv { paths: vec![path.clone()], delimiter: ',', null: String::new(), compression: None, end }.spec();
    assert!(open(&with(InputEnd::Last)).is_last() && !open(&with(InputEnd::Pause)).is_last());
    let schema = ints(&["a"]);
    let parquet = ReadParquet { paths: vec![path.clone()], end: InputEnd::Follow }.spec();
    assert!(refusal(&parquet, &schema).message.contains("only CSV and JSON Lines can be followed"));
    let packed =
        ReadJsonl { paths: vec![files.write("a.gz", gzip("{}"))], compression: None, end: InputEnd::Follow }.spec();
    assert!(refusal(&packed, &schema).message.contains("is compressed, and cannot be followed"));
    let spec: Spec = serde_json::from_str(r#"{"kind":"csv","paths":["a.csv"],"end":"follow"}"#).unwrap();
    assert_eq!(standard_connectors().source(&spec).unwrap().end(), InputEnd::Follow);
}
