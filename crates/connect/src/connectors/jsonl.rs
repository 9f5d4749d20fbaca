//! One JSON object per line.

use super::open::{in_files, output, planted};
use crate::Compression;
use crate::compression::chosen;
use crate::text::jsonl::Jsonl as Format;
use crate::text::{Input, JsonlRows, TextSink, TextSource};
use serde::{Deserialize, Serialize};
use tidemill_io::{
    DurableRun, InputEnd, IoFailure, Sink, SinkConnection, Source, SourceConnection, SourceOptions, Spec,
};
use tidemill_model::Schema;

pub(super) const KIND: &str = "jsonl";

/// JSON Lines files to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadJsonl {
    /// Files and globs, or `-`: as for [`crate::ReadCsv`].
    pub paths: Vec<String>,
    /// Told by name and first bytes unless given.
    #[serde(default)]
    pub compression: Option<Compression>,
    /// The meaning of the end of its input.
    #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
    pub end: InputEnd,
}

impl SourceConnection for ReadJsonl {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        let input = Input { paths: &self.paths, compression: self.compression, end: self.end };
        Ok(Box::new(TextSource::open(Format::new(schema), &input, schema, options)?))
    }

    fn paths(&self) -> &[String] {
        &self.paths
    }

    fn end(&self) -> InputEnd {
        self.end
    }
}

/// A JSON Lines file to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteJsonl {
    /// A file, or `-`: as for [`crate::WriteCsv`].
    pub path: String,
    /// The compression; that of the path's ending unless given.
    #[serde(default)]
    pub compression: Option<Compression>,
}

impl SinkConnection for WriteJsonl {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        let compression = chosen(&self.path, self.compression);
        let form = || format!("JSON Lines ({compression:?} compression) of {schema}");
        let durable = in_files(durable)?;
        let output = output(&self.path, durable, form)?;
        Ok(Box::new(TextSink::new(output, compression, JsonlRows::new(schema), planted(durable))?))
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }
}
