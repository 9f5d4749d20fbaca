//! Durable sinks on the files of the operating system: what the user sees. What crashes do to them is
//! tried on simulated files (`crates/sim`).

use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use tidemill_connect::{
    Compression, Disk, IpcCompression, ParquetCompression, ReadCsv, ReadIpc, ReadJsonl, ReadParquet, SinkDurability,
    WriteCsv, WriteIpc, WriteJsonl, WriteParquet,
};
use tidemill_durability::Planted;
use tidemill_io::{Recovered, Sink, SinkConnection, SourceConnection, Spec};
use tidemill_model::Value;
use tidemill_model::arrow::batch_of;

/// Returns the durability of a sink whose state has its record in the folder of the output.
fn durable(spec: &Spec, owner: &str) -> SinkDurability {
    let path = spec.options["path"].as_str().expect("a sink of a file");
    let record = Path::new(path).parent().expect("a folder").join("sinks");
    SinkDurability::at(Arc::new(Disk), owner, Planted::default(), &record)
}

fn all(path: &str) -> Vec<(Spec, Spec)> {
    let paths = vec![path.to_owned()];
    let csv = |compression| WriteCsv { path: path.into(), delimiter: ',', null: String::new(), compression }.spec();
    let read_csv = ReadCsv {
        paths: paths.clone(),
        delimiter: ',',
        null: String::new(),
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    }
    .spec();
    let jsonl = |compression| WriteJsonl { path: path.into(), compression }.spec();
    let read_jsonl = ReadJsonl { paths: paths.clone(), compression: None, end: tidemill_io::InputEnd::Pause }.spec();
    vec![
        (csv(None), read_csv.clone()),
        (csv(Some(Compression::Gzip)), read_csv),
        (jsonl(None), read_jsonl.clone()),
        (jsonl(Some(Compression::Zstd)), read_jsonl),
        (
            WriteParquet { path: path.into(), compression: ParquetCompression::default() }.spec(),
            ReadParquet { paths: paths.clone(), end: tidemill_io::InputEnd::Pause }.spec(),
        ),
        (
            WriteIpc { path: path.into(), compression: IpcCompression::default() }.spec(),
            ReadIpc { paths, end: tidemill_io::InputEnd::Pause }.spec(),
        ),
    ]
}

fn open(spec: &Spec, owner: &str) -> (Box<dyn Sink>, Recovered) {
    let mut sink = open_durable_sink(spec, &ints(&["a"]), &durable(spec, owner)).unwrap();
    let recovered = sink.recover().unwrap();
    (sink, recovered)
}

fn write(sink: &mut dyn Sink, values: &[i64]) {
    let rows: Vec<Vec<Value>> = values.iter().map(|value| vec![int(*value)]).collect();
    sink.write(&batch_of(&ints(&["a"]), &rows)).unwrap();
}

fn commit(sink: &mut dyn Sink, epoch: u64, values: &[i64]) {
    write(sink, values);
    sink.prepare(epoch).unwrap();
    sink.commit(epoch).unwrap();
}

fn holds(source: &Spec, values: &[i64]) {
    let rows: Vec<Vec<Value>> = values.iter().map(|value| vec![int(*value)]).collect();
    assert_eq!(take(source, &ints(&["a"])).rows, rows);
}

#[test]
fn what_is_committed_is_kept_and_what_is_not_is_forgotten() {
    for index in 0..6 {
        let files = Files::new();
        let path = files.path("out");
        let (spec, source) = &all(&path)[index];
        let (mut sink, recovered) = open(spec, "one");
        assert_eq!(recovered, Recovered::Through(None));
        commit(&mut *sink, 3, &[1, 2]);
        write(&mut *sink, &[7; 100_000]);
        sink.abort(4).unwrap();
        commit(&mut *sink, 5, &[3]);
        write(&mut *sink, &[8]);
        sink.prepare(6).unwrap();
        drop(sink);
        assert!(!files.names().contains(&"out".to_owned()), "{:?}", files.names());

        let (mut sink, recovered) = open(spec, "one");
        assert_eq!(recovered, Recovered::Through(Some(5)));
        commit(&mut *sink, 5, &[9, 9]);
        commit(&mut *sink, 6, &[4]);
        write(&mut *sink, &[10]);
        sink.finish().unwrap();
        holds(source, &[1, 2, 3, 4]);

        let (mut sink, recovered) = open(spec, "one");
        assert_eq!(recovered, Recovered::Through(Some(6)));
        commit(&mut *sink, 7, &[]);
        commit(&mut *sink, 8, &[5, 6]);
        holds(source, &[1, 2, 3, 4]);
        sink.finish().unwrap();
        holds(source, &[1, 2, 3, 4, 5, 6]);
        let (sink, recovered) = open(spec, "one");
        assert_eq!(recovered, Recovered::Through(Some(8)));
        sink.finish().unwrap();
        holds(source, &[1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn an_output_without_epochs_is_whole() {
    for index in 0..6 {
        let files = Files::new();
        let (spec, source) = &all(&files.path("out"))[index];
        for _ in 0..2 {
            let (sink, recovered) = open(spec, "one");
            assert_eq!(recovered, Recovered::Through(None));
            sink.finish().unwrap();
            holds(source, &[]);
        }
        let (mut sink, _) = open(spec, "one");
        commit(&mut *sink, 0, &[1]);
        sink.finish().unwrap();
        holds(source, &[1]);
    }
}

#[test]
fn what_another_state_has_left_is_begun_anew() {
    for index in 0..6 {
        let files = Files::new();
        let (spec, source) = &all(&files.path("out"))[index];
        let (mut sink, _) = open(spec, "one");
        commit(&mut *sink, 9, &[1, 2]);
        drop(sink);
        let (mut sink, recovered) = open(spec, "another");
        assert_eq!(recovered, Recovered::Through(None));
        commit(&mut *sink, 0, &[3]);
        sink.finish().unwrap();
        holds(source, &[3]);
    }
}

fn refused(spec: &Spec) -> String {
    let sink = open_durable_sink(spec, &ints(&["a"]), &durable(spec, "one"));
    sink.and_then(|mut sink| sink.recover()).unwrap_err().message
}

#[test]
fn an_output_that_was_tampered_with_is_refused() {
    let files = Files::new();
    let path = files.path("out");
    let (spec, _) = &all(&path)[2];
    let (mut sink, _) = open(spec, "one");
    assert!(refused(spec).contains("another sink is writing it"));
    commit(&mut *sink, 0, &[1, 2]);
    drop(sink);
    let message = refused(&all(&path)[0].0);
    assert!(message.contains("was begun as JSON Lines") && message.contains("cannot go on as CSV"), "{message}");

    let part = files.path(".out.tidemill-part");
    std::fs::write(&part, "{").unwrap();
    assert!(refused(spec).contains("has 1 bytes, and 16 were released"), "{}", refused(spec));
    std::fs::remove_file(&part).unwrap();
    assert!(refused(spec).contains("with what was released, is gone"), "{}", refused(spec));

    let record = files.path("sinks");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace("\"epoch\":0", "\"epoch\":5")).unwrap();
    assert!(refused(spec).contains("cannot be used: it is damaged"), "{}", refused(spec));

    std::fs::remove_file(&record).unwrap();
    let (mut sink, _) = open(spec, "one");
    commit(&mut *sink, 0, &[1]);
    sink.finish().unwrap();
    std::fs::write(&path, "{\"a\":1}\n{\"a\":2}\n").unwrap();
    assert!(refused(spec).contains("it has 16 bytes, and 8 were released"), "{}", refused(spec));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(spec).contains("released before, and is gone"), "{}", refused(spec));
}

/// An output as earlier versions left it, with a record of its own.
#[test]
fn an_output_with_a_record_beside_it_goes_on() {
    let files = Files::new();
    let path = files.path("out");
    let (spec, source) = &all(&path)[2];
    let (mut sink, _) = open(spec, "one");
    commit(&mut *sink, 3, &[1, 2]);
    drop(sink);
    let record = std::fs::read_to_string(files.path("sinks")).unwrap();
    let mut entry =
        serde_json::from_str::<serde_json::Value>(record.lines().next().unwrap()).unwrap()["sinks"]["out"].take();
    entry["version"] = 2.into();
    let line = format!("{entry}\n");
    let beside = files.path(".out.tidemill-epoch");
    let sum = xxhash_rust::xxh3::xxh3_64(line.as_bytes());
    std::fs::write(&beside, format!("{line}{sum:016x}\n")).unwrap();
    std::fs::remove_file(files.path("sinks")).unwrap();

    let (sink, recovered) = open(spec, "another");
    assert_eq!(recovered, Recovered::Through(None), "it is another state's");
    drop(sink);
    std::fs::write(files.path(".out.tidemill-part"), "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n").unwrap();
    let (mut sink, recovered) = open(spec, "one");
    assert_eq!(recovered, Recovered::Through(Some(3)));
    assert!(!std::path::Path::new(&beside).exists(), "the state's record has it");
    drop(sink);
    (sink, _) = open(spec, "one");
    commit(&mut *sink, 4, &[4]);
    sink.finish().unwrap();
    holds(source, &[1, 2, 4]);

    std::fs::remove_file(files.path("sinks")).unwrap();
    std::fs::write(&beside, format!("{}{sum:016x}\n", line.replace(":3,", ":4,"))).unwrap();
    assert!(refused(spec).contains("cannot be used: it is damaged"), "{}", refused(spec));
}

#[test]
fn damage_to_the_part_of_a_columnar_output_is_found() {
    let files = Files::new();
    let (spec, _) = &all(&files.path("out"))[4];
    let (mut sink, _) = open(spec, "one");
    commit(&mut *sink, 0, &[1, 2]);
    drop(sink);
    let part = files.path(".out.tidemill-part");
    let whole = std::fs::read(&part).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        // While it grows, and between two runs.
        let (sink, _) = open(spec, "one");
        std::fs::write(&part, &damaged).unwrap();
        let message = sink.finish().unwrap_err().message;
        assert!(message.contains("its part cannot be read") && message.contains("damaged at byte"), "{message}");
        let message =
            open_durable_sink(spec, &ints(&["a"]), &durable(spec, "one")).unwrap().recover().unwrap_err().message;
        assert!(message.contains("is damaged: its first"), "{message}");
        std::fs::write(&part, &whole).unwrap();
    }
}

#[test]
fn what_cannot_be_undone_says_so() {
    let files = Files::new();
    let pipe = pipe(&files, "pipe");
    let path = pipe.to_str().unwrap().to_owned();
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    let (mut sink, recovered) = open(&all(&path)[2].0, "one");
    assert_eq!(recovered, Recovered::Forgets);
    commit(&mut *sink, 0, &[1]);
    sink.finish().unwrap();
    assert_eq!(reader.join().unwrap(), b"{\"a\":1}\n");
}
