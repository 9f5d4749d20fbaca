//! Parquet files. Only the schema's columns are read.

use super::{Batches, Columnar, int96};
use crate::ParquetCompression;
use crate::files::{ByteCount, Place, open_file};
use crate::output::{Output, write_failed};
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Fields, Schema as ArrowSchema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression as Codec, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use tidemill_io::{IoFailure, Sink};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// Parquet for reading.
pub(crate) struct ParquetFiles {
    /// Rows decoded at once.
    pub batch_rows: usize,
}

impl Columnar for ParquetFiles {
    const LIVE: bool = false;

    fn open(&self, place: &Place, schema: &Schema, _count: &ByteCount) -> Result<Batches, ArrowError> {
        let Place::File(path) = place else { unreachable!("refused when the source was opened") };
        let file = open_file(path).map_err(|failure| ArrowError::ExternalError(failure.into()))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let is_wanted = |field: &Field| schema.index_of(field.name()).is_some();
        let unit = |unit| int96::with_unit(builder.schema(), builder.parquet_schema(), unit);
        let (nanos, seconds) = (unit(TimeUnit::Nanosecond), unit(TimeUnit::Second));
        let with_times: Vec<&str> = (nanos.fields().iter().zip(seconds.fields()))
            .filter(|(one, other)| one != other && is_wanted(one))
            .map(|(field, _)| field.name().as_str())
            .collect();
        if with_times.is_empty() {
            return self.batches(builder, rows, is_wanted);
        }
        let batches = |schema: &SchemaRef, is_wanted: &dyn Fn(&Field) -> bool| {
            let file = open_file(path).map_err(|failure| ArrowError::ExternalError(failure.into()))?;
            let options = ArrowReaderOptions::new().with_schema(schema.clone());
            let metadata = ArrowReaderMetadata::try_new(builder.metadata().clone(), options)?;
            self.batches(ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata), rows, is_wanted)
        };
        let has_times = |field: &Field| with_times.contains(&field.name().as_str());
        let micros: Fields = unit(TimeUnit::Microsecond).fields().iter().filter(|f| is_wanted(f)).cloned().collect();
        let micros = Arc::new(ArrowSchema::new(micros));
        Ok(int96::joined(batches(&nanos, &is_wanted)?, batches(&seconds, &has_times)?, micros))
    }
}

impl ParquetFiles {
    /// Returns the batches of the columns that are wanted.
    fn batches(
        &self,
        builder: ParquetRecordBatchReaderBuilder<File>,
        rows: u64,
        is_wanted: impl Fn(&Field) -> bool,
    ) -> Result<Batches, ArrowError> {
        let roots = builder.schema().fields().iter().enumerate().filter(|(_, field)| is_wanted(field));
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.map(|(index, _)| index));
        let reader = builder.with_projection(mask).with_batch_size(self.batch_rows).build()?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        Ok(Batches { schema, reader: Box::new(reader), rows: Some(rows) })
    }
}

/// A row group is written when it holds this much, so that memory stays bounded.
const ROW_GROUP_BYTES_MAX: usize = 128 << 20;

/// A sink of Parquet.
pub(crate) struct ParquetSink {
    name: String,
    writer: ArrowWriter<Output>,
}

impl ParquetSink {
    pub fn new(output: Output, compression: ParquetCompression, schema: &Schema) -> Result<ParquetSink, IoFailure> {
        let name = output.name().to_owned();
        let codec = match compression {
            ParquetCompression::None => Codec::UNCOMPRESSED,
            ParquetCompression::Snappy => Codec::SNAPPY,
            ParquetCompression::Lz4 => Codec::LZ4_RAW,
            ParquetCompression::Gzip => Codec::GZIP(GzipLevel::default()),
            ParquetCompression::Zstd => Codec::ZSTD(ZstdLevel::default()),
        };
        let properties = WriterProperties::builder().set_compression(codec).build();
        let writer = ArrowWriter::try_new(output, arrow_schema(schema), Some(properties));
        let writer = writer.map_err(|error| write_failed(&name, &error))?;
        Ok(ParquetSink { name, writer })
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        let failed = |error| write_failed(&self.name, &error);
        self.writer.write(batch).map_err(failed)?;
        if self.writer.memory_size() > ROW_GROUP_BYTES_MAX {
            self.writer.flush().map_err(failed)?;
        }
        Ok(())
    }

    fn bytes(&mut self) -> Option<u64> {
        Some(self.writer.bytes_written() as u64)
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        let mut output = self.writer.into_inner().map_err(|error| write_failed(&self.name, &error))?;
        output.flush().map_err(|error| write_failed(&self.name, &error))?;
        output.finish()
    }
}
