//! Arrow IPC, file or stream format (told by the first bytes).

use super::open::{columnar, in_files, is_last};
use crate::IpcCompression;
use crate::columnar::{ColumnarSource, IpcFiles, IpcSink};
use crate::files::places;
use serde::{Deserialize, Serialize};
use tidemill_io::{
    DurableRun, InputEnd, IoFailure, Sink, SinkConnection, Source, SourceConnection, SourceOptions, Spec,
};
use tidemill_model::Schema;

pub(super) const KIND: &str = "ipc";

/// Arrow IPC files to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadIpc {
    /// Files and globs, or `-`: as for [`crate::ReadCsv`].
    pub paths: Vec<String>,
    /// The meaning of the end of its input.
    #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
    pub end: InputEnd,
}

impl SourceConnection for ReadIpc {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        Ok(Box::new(ColumnarSource::open(IpcFiles, places(&self.paths)?, is_last(self.end)?, schema, options)?))
    }

    fn paths(&self) -> &[String] {
        &self.paths
    }

    fn end(&self) -> InputEnd {
        self.end
    }
}

/// An Arrow IPC file to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteIpc {
    /// A file, or `-`, as for [`crate::WriteCsv`]: the file format, or the stream format on standard output.
    pub path: String,
    /// The compression of the buffers.
    #[serde(default)]
    pub compression: IpcCompression,
}

impl SinkConnection for WriteIpc {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        let (compression, of) = (self.compression, schema.clone());
        columnar(&self.path, schema, in_files(durable)?, move |output| {
            Ok(Box::new(IpcSink::new(output, compression, &of)?))
        })
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }
}
