//! A sink never writes a file that the same run reads, however the two are named.

use std::fs;
use std::os::unix::fs::symlink;
use tempfile::tempdir;
use tidemill_connect::{Named, ReadJsonl, WriteJsonl, check_overlap};
use tidemill_io::{SinkConnection, SourceConnection};

fn refused(read: &str, written: &str) -> Option<String> {
    let source = ReadJsonl {
        paths: vec!["other.jsonl".into(), read.into()],
        compression: None,
        end: tidemill_io::InputEnd::Pause,
    };
    let sink = WriteJsonl { path: written.into(), compression: None };
    let inputs = [Named { name: "source 'a'".into(), connection: &source as &dyn SourceConnection }];
    let sinks = [Named { name: "sink 'b'".into(), connection: &sink as &dyn SinkConnection }];
    check_overlap(&inputs, &sinks).err()
}

#[test]
fn one_file_under_several_names_is_recognized() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("in")).unwrap();
    fs::write(at("in/a.jsonl"), "").unwrap();
    symlink(at("in/a.jsonl"), at("link.jsonl")).unwrap();
    symlink(at("in"), at("way")).unwrap();
    let written = at("in/a.jsonl");
    for read in ["in/a.jsonl", "in/../in/./a.jsonl", "link.jsonl", "way/a.jsonl", "in/*.jsonl", "*/a.jsonl", "l*.jsonl"]
    {
        let said = refused(&at(read), &written);
        let wanted = format!("sink 'b' would overwrite {written}, which source 'a' reads; give the sink another file");
        assert_eq!(said, Some(wanted), "{read}");
    }
    for written in ["in/../in/a.jsonl", "link.jsonl", "way/a.jsonl"] {
        assert!(refused(&at("in/a.jsonl"), &at(written)).is_some(), "{written}");
    }
    for read in ["in/b.jsonl", "in/b*.jsonl", "*.csv", "*/*/a.jsonl"] {
        assert_eq!(refused(&at(read), &written), None, "{read}");
    }
}

#[test]
fn a_file_that_is_not_there_yet_is_matched_by_globs() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("in")).unwrap();
    symlink(at("in"), at("way")).unwrap();
    for read in ["in/new.jsonl", "in/n*.jsonl", "way/*", "*/new.jsonl", "**/new.jsonl"] {
        assert!(refused(&at(read), &at("in/new.jsonl")).is_some(), "{read}");
    }
    for read in ["*", "in/*.csv", "in/*/new.jsonl"] {
        assert_eq!(refused(&at(read), &at("in/new.jsonl")), None, "{read}");
    }
    // Hidden files must be asked for.
    assert_eq!(refused(&at("in/*"), &at("in/.new.jsonl")), None);
}

#[test]
fn what_is_no_file_may_be_both() {
    assert_eq!(refused("/dev/null", "/dev/null"), None);
    assert_eq!(refused("-", "-"), None);
}
