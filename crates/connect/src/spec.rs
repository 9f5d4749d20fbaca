//! What a source or sink is to be: plain data, written by the front ends as JSON. What it means is
//! decided once, when it is opened.

use crate::generator::ColumnSpec;
use serde::{Deserialize, Serialize};

/// A place events come from.
///
/// `paths` are read in order. Each is a file, a glob (its matches sorted by name; a glob that matches
/// nothing is refused), or `-` for standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceSpec {
    /// Comma-separated values with a header line (the grammar: [`crate`]).
    Csv {
        /// Files, globs, or `-`.
        paths: Vec<String>,
        /// What stands between two fields: one ASCII character.
        #[serde(default = "comma")]
        delimiter: char,
        /// The unquoted text that stands for `None`.
        #[serde(default)]
        null: String,
        /// Told by name and first bytes unless given.
        #[serde(default)]
        compression: Option<Compression>,
        /// What its end is.
        #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
        end: InputEnd,
    },
    /// One JSON object per line.
    Jsonl {
        /// Files, globs, or `-`.
        paths: Vec<String>,
        /// Told by name and first bytes unless given.
        #[serde(default)]
        compression: Option<Compression>,
        /// What its end is.
        #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
        end: InputEnd,
    },
    /// Apache Parquet; not from standard input, for it is read from its end.
    Parquet {
        /// Files or globs.
        paths: Vec<String>,
        /// What its end is.
        #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
        end: InputEnd,
    },
    /// Arrow IPC, file or stream format (told by the first bytes).
    Ipc {
        /// Files, globs, or `-`.
        paths: Vec<String>,
        /// What its end is.
        #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
        end: InputEnd,
    },
    /// Made-up events, the same for the same seed.
    Generator {
        /// How many; none for no end.
        #[serde(default)]
        events: Option<u64>,
        /// Events per second; none for as fast as they are taken.
        #[serde(default)]
        rate: Option<f64>,
        /// Every value is a function of the seed, the column and the event's ordinal.
        #[serde(default)]
        seed: u64,
        /// One per field of the schema, by name.
        columns: Vec<(String, ColumnSpec)>,
        /// What its end is.
        #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
        end: InputEnd,
    },
}

impl SourceSpec {
    /// The paths that it reads; none for a generator.
    pub fn paths(&self) -> &[String] {
        match self {
            SourceSpec::Csv { paths, .. }
            | SourceSpec::Jsonl { paths, .. }
            | SourceSpec::Parquet { paths, .. }
            | SourceSpec::Ipc { paths, .. } => paths,
            SourceSpec::Generator { .. } => &[],
        }
    }

    /// What the end of its input is.
    pub fn end(&self) -> InputEnd {
        match self {
            SourceSpec::Csv { end, .. }
            | SourceSpec::Jsonl { end, .. }
            | SourceSpec::Parquet { end, .. }
            | SourceSpec::Ipc { end, .. }
            | SourceSpec::Generator { end, .. } => *end,
        }
    }
}

/// What the end of a source's input is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputEnd {
    /// In a run with a state a pause: a later run continues with what was added. Without a state, the end.
    #[default]
    Pause,
    /// The end for good.
    Last,
    /// None: the run waits for what is added, until it is stopped. For text files that are not compressed.
    Follow,
}

impl InputEnd {
    fn is_pause(&self) -> bool {
        *self == InputEnd::Pause
    }
}

/// A place results go to. `-` is standard output; any other path is written under a temporary name
/// beside it and renamed when finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SinkSpec {
    /// Comma-separated values with a header line.
    Csv {
        /// A file, or `-`.
        path: String,
        /// What stands between two fields: one ASCII character.
        #[serde(default = "comma")]
        delimiter: char,
        /// The text written for `None`. While it is empty, an empty `str | None` reads back as `None`.
        #[serde(default)]
        null: String,
        /// By the path's ending unless given.
        #[serde(default)]
        compression: Option<Compression>,
    },
    /// One JSON object per line.
    Jsonl {
        /// A file, or `-`.
        path: String,
        /// By the path's ending unless given.
        #[serde(default)]
        compression: Option<Compression>,
    },
    /// Apache Parquet.
    Parquet {
        /// A file, or `-`.
        path: String,
        /// Of the pages.
        #[serde(default)]
        compression: ParquetCompression,
    },
    /// Arrow IPC: the file format, or the stream format on standard output.
    Ipc {
        /// A file, or `-`.
        path: String,
        /// Of the buffers.
        #[serde(default)]
        compression: IpcCompression,
    },
    /// Nowhere.
    Null,
}

impl SinkSpec {
    /// The path that it writes, if it writes one.
    pub fn path(&self) -> Option<&str> {
        match self {
            SinkSpec::Csv { path, .. }
            | SinkSpec::Jsonl { path, .. }
            | SinkSpec::Parquet { path, .. }
            | SinkSpec::Ipc { path, .. } => Some(path),
            SinkSpec::Null => None,
        }
    }
}

/// How a text file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all, whatever name and first bytes say.
    None,
    /// gzip (RFC 1952), any number of members.
    Gzip,
    /// Zstandard (RFC 8878), any number of frames.
    Zstd,
}

/// How the pages of a Parquet file are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// Not at all.
    None,
    /// Quick and light.
    Snappy,
    /// Quick and light.
    Lz4,
    /// For readers that know nothing newer.
    Gzip,
    /// Small and quick.
    #[default]
    Zstd,
}

/// How the buffers of an Arrow IPC file are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpcCompression {
    /// Not at all: readers can map the file into memory.
    #[default]
    None,
    /// Quick and light.
    Lz4,
    /// Small.
    Zstd,
}

fn comma() -> char {
    ','
}
