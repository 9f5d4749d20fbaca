//! Options of connectors that are a choice of words.

use serde::{Deserialize, Serialize};

/// The compression of a text file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// No compression, whatever name and first bytes say.
    None,
    /// gzip (RFC 1952), any number of members.
    Gzip,
    /// Zstandard (RFC 8878), any number of frames.
    Zstd,
}

/// The compression of the pages of a Parquet file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParquetCompression {
    /// No compression.
    None,
    /// Quick and light.
    Snappy,
    /// Quick and light.
    Lz4,
    /// An old format, for readers that know nothing newer.
    Gzip,
    /// Small and quick.
    #[default]
    Zstd,
}

/// The compression of the buffers of an Arrow IPC file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpcCompression {
    /// No compression: readers can map the file into memory.
    #[default]
    None,
    /// Quick and light.
    Lz4,
    /// Small.
    Zstd,
}
