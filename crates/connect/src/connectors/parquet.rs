//! Apache Parquet; not from standard input, for it is read from its end.

use super::open::{columnar, in_files, is_last};
use crate::ParquetCompression;
use crate::columnar::{ColumnarSource, ParquetFiles, ParquetSink};
use crate::files::places;
use serde::{Deserialize, Serialize};
use tidemill_io::{
    DurableRun, InputEnd, IoFailure, Sink, SinkConnection, Source, SourceConnection, SourceOptions, Spec,
};
use tidemill_model::Schema;

pub(super) const KIND: &str = "parquet";

/// Parquet files to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadParquet {
    /// Files and globs, as for [`crate::ReadCsv`].
    pub paths: Vec<String>,
    /// The meaning of the end of its input.
    #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
    pub end: InputEnd,
}

impl SourceConnection for ReadParquet {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        let format = ParquetFiles { batch_rows: options.batch_rows.max(1) };
        Ok(Box::new(ColumnarSource::open(format, places(&self.paths)?, is_last(self.end)?, schema, options)?))
    }

    fn paths(&self) -> &[String] {
        &self.paths
    }

    fn end(&self) -> InputEnd {
        self.end
    }
}

/// A Parquet file to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteParquet {
    /// A file, or `-`: as for [`crate::WriteCsv`].
    pub path: String,
    /// The compression of the pages.
    #[serde(default)]
    pub compression: ParquetCompression,
}

impl SinkConnection for WriteParquet {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        let (compression, of) = (self.compression, schema.clone());
        columnar(&self.path, schema, in_files(durable)?, move |output| {
            Ok(Box::new(ParquetSink::new(output, compression, &of)?))
        })
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }
}
