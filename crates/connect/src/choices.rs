//! Options of connectors that are a choice of words.

use serde::{Deserialize, Serialize};

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
    pub(crate) fn is_pause(&self) -> bool {
        *self == InputEnd::Pause
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
