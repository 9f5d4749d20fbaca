//! Comma-separated values with a header line (the grammar: [`crate`]).

use super::open::{comma, in_files, output, planted};
use crate::Compression;
use crate::compression::chosen;
use crate::text::csv::{Csv as Format, check_schema, delimiter_byte};
use crate::text::{CsvRows, Input, TextSink, TextSource};
use serde::{Deserialize, Serialize};
use tidemill_io::{
    DurableRun, InputEnd, IoFailure, Sink, SinkConnection, Source, SourceConnection, SourceOptions, Spec,
};
use tidemill_model::Schema;

pub(super) const KIND: &str = "csv";

/// CSV files to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCsv {
    /// Files and globs, read in order, or `-` for standard input. The files of a glob are sorted by name; one without
    /// files is refused.
    pub paths: Vec<String>,
    /// The delimiter between two fields: one ASCII character.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// The unquoted text that stands for `None`.
    #[serde(default)]
    pub null: String,
    /// Told by name and first bytes unless given.
    #[serde(default)]
    pub compression: Option<Compression>,
    /// The meaning of the end of its input.
    #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
    pub end: InputEnd,
}

impl SourceConnection for ReadCsv {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        check_schema(schema)?;
        let format = Format::new(schema, delimiter_byte(self.delimiter)?, &self.null);
        let input = Input { paths: &self.paths, compression: self.compression, end: self.end };
        Ok(Box::new(TextSource::open(format, &input, schema, options)?))
    }

    fn paths(&self) -> &[String] {
        &self.paths
    }

    fn end(&self) -> InputEnd {
        self.end
    }
}

/// A CSV file to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCsv {
    /// A file, or `-` for standard output. A file is written under a temporary name beside it and renamed at the end.
    pub path: String,
    /// The delimiter between two fields: one ASCII character.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// The text written for `None`. While it is empty, an empty `str | None` reads back as `None`.
    #[serde(default)]
    pub null: String,
    /// The compression; that of the path's ending unless given.
    #[serde(default)]
    pub compression: Option<Compression>,
}

impl SinkConnection for WriteCsv {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        let (delimiter, null, compression) = (self.delimiter, &self.null, chosen(&self.path, self.compression));
        let form =
            || format!("CSV ({compression:?} compression, {delimiter:?} between, {null:?} for None) of {schema}");
        let rows = CsvRows::new(delimiter, null, schema)?;
        let durable = in_files(durable)?;
        let output = output(&self.path, durable, form)?;
        Ok(Box::new(TextSink::new(output, compression, rows, planted(durable))?))
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }
}
