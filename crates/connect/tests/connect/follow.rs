//! Files that are followed: what is added is seen soon, across a rotation too.

use crate::support::*;
use std::io::Write;
use std::time::{Duration, Instant};
use tidemill_connect::ReadCsv;
use tidemill_io::{InputEnd, Next, Source, SourceConnection};
use tidemill_model::arrow::rows;

const WAIT: Duration = Duration::from_millis(20);
/// Far beyond the time in which data is seen.
const EVER: Duration = Duration::from_secs(20);

fn follow(path: &str) -> Box<dyn Source> {
    let (paths, null) = (vec![path.to_owned()], String::new());
    let spec = ReadCsv { paths, delimiter: ',', null, compression: None, end: InputEnd::Follow }.spec();
    open_source(&spec, &ints(&["a"]), &options(1000)).unwrap()
}

/// Returns the values of the next batch.
fn values(source: &mut dyn Source) -> Vec<i64> {
    let begun = Instant::now();
    loop {
        match source.next(WAIT).unwrap() {
            Next::Batch(batch) => {
                return rows(&batch.events, &ints(&["a"])).iter().map(|row| row[0].word().unwrap()).collect();
            }
            Next::Nothing => assert!(begun.elapsed() < EVER, "nothing comes"),
            Next::End => panic!("a source that follows has no end"),
        }
    }
}

/// Nothing comes, and that is said in time.
fn silent(source: &mut dyn Source) {
    assert!(matches!(source.next(WAIT).unwrap(), Next::Nothing));
}

fn append(path: &str, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn what_is_added_is_seen() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n2");
    let mut source = follow(&path);
    assert!(!source.replays(), "a file may be renamed");
    assert_eq!(values(&mut *source), [1]);
    silent(&mut *source);
    append(&path, "2\n3\n");
    assert_eq!(values(&mut *source), [22, 3]);
    let token = source.token().unwrap();
    append(&path, "4\n");
    let mut later = follow(&path);
    later.resume(Some(&token)).unwrap();
    assert_eq!(values(&mut *later), [4]);
}

/// Writes a file anew in place.
fn rewrite(path: &str, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// Returns the error with which the source fails, after it gave nothing more.
fn failure(source: &mut dyn Source) -> String {
    let begun = Instant::now();
    loop {
        match source.next(WAIT) {
            Err(failure) => return failure.message,
            Ok(Next::Nothing) => assert!(begun.elapsed() < EVER, "it does not fail"),
            Ok(_) => panic!("it goes on"),
        }
    }
}

#[test]
fn a_file_that_is_written_anew_is_refused_however_long_it_is() {
    let lines = |range: std::ops::Range<i64>| range.map(|i| format!("{i}\n")).collect::<String>();
    let cases = [
        ("a\n1\n2\n".to_owned(), "a\n3\n4\n5\n".to_owned()),
        // As long as before.
        ("a\n1\n2\n".to_owned(), "a\n3\n4\n".to_owned()),
        // Files that differ at their end, as far as it was read, or at their beginning.
        (format!("a\n1\n{}", "7\n".repeat(9000)), format!("a\n2\n{}", "7\n".repeat(9900))),
        (format!("a\n{}1\n", lines(0..9000)), format!("a\n{}2\n{}", lines(0..9000), lines(0..100))),
    ];
    for (number, (before, after)) in cases.iter().enumerate() {
        for resumes in [false, true] {
            let files = Files::new();
            let path = files.write("a.csv", before);
            let mut source = follow(&path);
            let mut count = 0;
            while count < before.lines().count() - 1 {
                count += values(&mut *source).len();
            }
            if resumes {
                let token = source.token().unwrap();
                source = follow(&path);
                source.resume(Some(&token)).unwrap();
            }
            silent(&mut *source);
            rewrite(&path, after);
            let said = failure(&mut *source);
            let wanted = format!("was written anew while it was followed, after {} bytes", before.len());
            assert!(said.contains(&wanted), "{number} {said}");
        }
    }
}

#[test]
fn a_renamed_file_is_read_to_its_end_and_then_the_new_one() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n");
    let mut source = follow(&path);
    assert_eq!(values(&mut *source), [1]);
    append(&path, "2\n");
    std::fs::rename(&path, files.path("a.csv.1")).unwrap();
    append(&files.path("a.csv.1"), "3\n4");
    assert_eq!(values(&mut *source), [2, 3]);
    silent(&mut *source);
    files.write("a.csv", "");
    // The line without an end is whole now; the new file has no header yet.
    assert_eq!(values(&mut *source), [4]);
    silent(&mut *source);
    append(&path, "b,a\n0,5\n");
    assert_eq!(values(&mut *source), [5]);
    let token = source.token().unwrap();
    append(&path, "0,6\n");
    let mut later = follow(&path);
    later.resume(Some(&token)).unwrap();
    assert_eq!(values(&mut *later), [6]);
}

#[test]
fn a_glob_takes_files_that_come() {
    let files = Files::new();
    files.write("a.csv", "a\n1");
    let mut source = follow(&files.path("*.csv"));
    silent(&mut *source);
    files.write("b.csv", "a\n2\n");
    assert_eq!(values(&mut *source), [1, 2]);
    files.write("0.csv", "a\n3\n");
    let failure = loop {
        if let Err(failure) = source.next(WAIT) {
            break failure.message;
        }
    };
    assert!(failure.contains("0.csv is new and comes before"), "{failure}");
}

#[test]
fn a_renamed_file_that_the_glob_matches_is_not_read_twice() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n");
    let mut source = follow(&files.path("a*"));
    assert_eq!(values(&mut *source), [1]);
    std::fs::rename(&path, files.path("a.csv.1")).unwrap();
    files.write("a.csv", "a\n2\n");
    let failure = loop {
        match source.next(WAIT) {
            Err(failure) => break failure.message,
            Ok(Next::Batch(batch)) => assert_eq!(rows(&batch.events, &ints(&["a"])), [[int(2)]]),
            Ok(_) => {}
        }
    };
    assert!(failure.contains("a.csv.1 was read already, under another name"), "{failure}");
}

#[test]
fn a_file_that_shrinks_while_it_is_followed_is_refused() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n2\n");
    let mut source = follow(&path);
    assert_eq!(values(&mut *source), [1, 2]);
    files.write("a.csv", "a\n");
    let failure = source.next(WAIT).unwrap_err().message;
    assert!(failure.contains("has shrunk to 2 bytes while it was followed"), "{failure}");
    assert!(source.next(WAIT).is_err(), "a failure is for ever");
}

#[test]
fn a_new_file_is_seen_where_another_one_was_removed() {
    let files = Files::new();
    let first = files.write("1.csv", "a\n1\n");
    files.write("2.csv", "a\n2\n");
    let mut source = follow(&files.path("*.csv"));
    assert_eq!((values(&mut *source)), [1, 2]);
    std::fs::remove_file(&first).unwrap();
    files.write("3.csv", "a\n3\n");
    assert_eq!(values(&mut *source), [3]);
    // The last one goes, and another one comes.
    std::fs::remove_file(files.path("3.csv")).unwrap();
    silent(&mut *source);
    files.write("4.csv", "a\n4\n");
    assert_eq!(values(&mut *source), [4]);
}

/// The rest of a renamed file is more than a batch takes.
#[test]
fn a_renamed_file_is_read_to_its_end_across_batches() {
    let files = Files::new();
    let path = files.write("a.csv", "a\n1\n");
    let (paths, null) = (vec![path.clone()], String::new());
    let spec = ReadCsv { paths, delimiter: ',', null, compression: None, end: InputEnd::Follow }.spec();
    let mut source = open_source(&spec, &ints(&["a"]), &options(2)).unwrap();
    assert_eq!(values(&mut *source), [1]);
    append(&path, "\"2\n3\n4\n5\n6\n");
    silent(&mut *source);
    std::fs::rename(&path, files.path("a.csv.1")).unwrap();
    files.write("a.csv", "a\n7\n");
    let mut all = Vec::new();
    while all.len() < 5 {
        all.extend(values(&mut *source));
    }
    assert_eq!(all, [3, 4, 5, 6, 7]);
}
