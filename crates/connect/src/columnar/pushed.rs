//! Events that a client sends as an Arrow stream.
//!
//! # Invariant
//!
//! Whatever is sent is taken or refused, in memory of a few times the bytes that were sent. The decoder trusts types, lengths
//! and places of buffers, so these are looked at before ([`check`]); where it panics all the same, as at offsets that are cut
//! off, the stream is refused. Types whose values may share bytes, compressed buffers among them, are refused, too: a few
//! bytes would stand for many.

use super::conform::conform;
use crate::bad::Fault;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{DateUnit, Endianness, Field, MessageHeader, Precision, RecordBatch as Header, TimeUnit, Type};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, FieldRef, Schema as ArrowSchema, SchemaRef};
use arrow_select::concat::concat_batches;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidemill_io::BadRecord;
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// The word before the length of a message.
const CONTINUATION: u32 = u32::MAX;
/// The least that a record of a batch takes.
const RECORDS_A_BYTE: usize = 8;

/// Returns the events in an Arrow stream, in canonical form; or what is wrong with the stream, a field or a record,
/// which `line` numbers.
pub fn arrow_events(stream: &[u8], schema: &Schema) -> Result<RecordBatch, BadRecord> {
    let bad = |reason: String| fault(Fault::whole(format!("not an Arrow stream: {reason}")), None);
    let stream = Buffer::from(stream);
    check(&stream).map_err(|wrong| match wrong.column {
        None => bad(wrong.reason),
        Some(_) => fault(wrong, None),
    })?;
    let decoded = catch_unwind(AssertUnwindSafe(|| decoded(stream)));
    let (found, batches) =
        decoded.map_err(|_| bad("it is damaged".to_owned()))?.map_err(|error| bad(error.to_string()))?;
    for (place, field) in found.fields().iter().enumerate() {
        if schema.fields.iter().all(|known| known.name != *field.name()) {
            return Err(fault(Fault::at(field.name(), "the event has no such field"), None));
        }
        if found.fields()[..place].iter().any(|other| other.name() == field.name()) {
            return Err(fault(Fault::at(field.name(), "it is there twice"), None));
        }
    }
    for field in &schema.fields {
        if found.column_with_name(&field.name).is_none() {
            return Err(fault(Fault::at(&field.name, "it is missing"), None));
        }
    }
    let mut first = 1;
    let mut events = Vec::with_capacity(batches.len());
    for batch in &batches {
        events.push(fitted(batch, schema, first)?);
        first += batch.num_rows() as u64;
    }
    concat_batches(&arrow_schema(schema), &events).map_err(|error| bad(error.to_string()))
}

fn fault(Fault { column, reason }: Fault, line: Option<u64>) -> BadRecord {
    BadRecord { origin: None, line, column, reason, record: None, after: 0 }
}

fn decoded(mut stream: Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let (mut decoder, mut batches) = (StreamDecoder::new(), Vec::new());
    while !stream.is_empty() {
        batches.extend(decoder.decode(&mut stream)?);
    }
    decoder.finish()?;
    let none = || ArrowError::ParseError("it has no schema".to_owned());
    Ok((decoder.schema().ok_or_else(none)?, batches))
}

/// Returns a batch in canonical form, or its first record that does not fit; `first` is the number of the first of all.
fn fitted(batch: &RecordBatch, schema: &Schema, first: u64) -> Result<RecordBatch, BadRecord> {
    let whole = match conform(batch, schema) {
        Ok(events) => return Ok(events),
        Err(whole) => whole,
    };
    if conform(&batch.slice(0, 0), schema).is_err() {
        return Err(fault(whole, None));
    }
    let (mut rest, mut line) = (batch.clone(), first);
    while rest.num_rows() > 1 {
        let half = rest.num_rows() / 2;
        let (one, other) = (rest.slice(0, half), rest.slice(half, rest.num_rows() - half));
        rest = if conform(&one, schema).is_err() {
            one
        } else {
            line += half as u64;
            other
        };
    }
    Err(fault(conform(&rest, schema).err().unwrap_or(whole), Some(line)))
}

type Checked = Result<(), Fault>;

fn wrong(reason: impl Into<String>) -> Fault {
    Fault::whole(reason)
}

/// Looks at all that the decoder trusts.
fn check(stream: &[u8]) -> Checked {
    let mut rest = stream;
    // The number of buffers of each column of a batch, in the batch's order.
    let mut buffers: Option<Vec<usize>> = None;
    while !rest.is_empty() {
        let size = match word(&mut rest)? {
            CONTINUATION => word(&mut rest)?,
            size => size,
        };
        if size == 0 {
            // The end, which may be left out.
            break;
        }
        let message = take(&mut rest, size as usize)?;
        let message = arrow_ipc::root_as_message(message).map_err(|error| wrong(error.to_string()))?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| wrong("a message has a negative length"))?;
        take(&mut rest, body)?;
        match message.header_type() {
            MessageHeader::Schema if buffers.is_none() => {
                let schema = message.header_as_schema().ok_or_else(|| wrong("a schema is empty"))?;
                if schema.endianness() != Endianness::Little {
                    return Err(wrong("its numbers are big-endian"));
                }
                let fields = schema.fields().ok_or_else(|| wrong("the schema has no fields"))?;
                let mut found = Vec::new();
                for field in fields {
                    check_field(field, field.name().unwrap_or_default(), &mut found)?;
                }
                buffers = Some(found);
            }
            MessageHeader::RecordBatch if buffers.is_some() => {
                let batch = message.header_as_record_batch().ok_or_else(|| wrong("a batch is empty"))?;
                check_batch(batch, body, buffers.as_deref().unwrap_or_default())?;
            }
            other => return Err(wrong(format!("a message of kind {other:?} is not taken there"))),
        }
    }
    if buffers.is_some() { Ok(()) } else { Err(wrong("it has no schema")) }
}

fn word(rest: &mut &[u8]) -> Result<u32, Fault> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Fault> {
    let (taken, others) = rest.split_at_checked(count).ok_or_else(|| wrong("it ends early"))?;
    *rest = others;
    Ok(taken)
}

/// Checks that a field's type is one that the decoder knows, and that its values share no bytes. `column`: where it is
/// in. Appends the numbers of buffers of the field and of those within, in the order of a batch.
fn check_field(field: Field<'_>, column: &str, buffers: &mut Vec<usize>) -> Checked {
    let refused = |what: &str| Err(Fault::at(column, format!("{what} is not taken; cast it")));
    if field.dictionary().is_some() {
        return refused("a dictionary");
    }
    // The first one has a bit for each value, which says whether it is there.
    buffers.push(match field.type_type() {
        Type::Null => 0,
        Type::Struct_ => 1,
        Type::Utf8 | Type::LargeUtf8 | Type::Binary | Type::LargeBinary => 3,
        _ => 2,
    });
    let children = field.children();
    let of = |count: Option<usize>, buffers: &mut Vec<usize>| {
        let children = children.ok_or_else(|| wrong("a nested type has no fields"))?;
        if count.is_some_and(|count| count != children.len()) {
            return Err(wrong("a list is of several types"));
        }
        children.iter().try_for_each(|child| check_field(child, column, buffers))
    };
    let is_known = match field.type_type() {
        Type::Null | Type::Bool | Type::Utf8 | Type::LargeUtf8 | Type::Binary | Type::LargeBinary => true,
        Type::Int => field.type_as_int().is_some_and(|int| [8, 16, 32, 64].contains(&int.bitWidth())),
        Type::FloatingPoint => field
            .type_as_floating_point()
            .is_some_and(|float| [Precision::HALF, Precision::SINGLE, Precision::DOUBLE].contains(&float.precision())),
        Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let digits = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&decimal.precision()) && (-digits..=digits).contains(&decimal.scale())
        }),
        Type::Date => {
            field.type_as_date().is_some_and(|date| [DateUnit::DAY, DateUnit::MILLISECOND].contains(&date.unit()))
        }
        Type::Timestamp => field.type_as_timestamp().is_some_and(|time| {
            [TimeUnit::SECOND, TimeUnit::MILLISECOND, TimeUnit::MICROSECOND, TimeUnit::NANOSECOND]
                .contains(&time.unit())
        }),
        Type::List | Type::LargeList => return of(Some(1), buffers),
        Type::Struct_ => return of(None, buffers),
        other => return refused(&format!("{other:?}")),
    };
    if is_known { Ok(()) } else { Err(Fault::at(column, "it is of no such type")) }
}

/// Checks that the parts of a batch are in its body, and no longer than it allows.
fn check_batch(batch: Header<'_>, body: usize, counts: &[usize]) -> Checked {
    if batch.compression().is_some() {
        return Err(wrong("a batch is compressed; send it as it is"));
    }
    let most = body.saturating_mul(RECORDS_A_BYTE);
    let fits = |count: i64| usize::try_from(count).is_ok_and(|count| count <= most);
    if !fits(batch.length()) {
        return Err(wrong("a batch has more records than bits"));
    }
    let mut nodes = batch.nodes().into_iter().flatten();
    if nodes.any(|node| !fits(node.length()) || !(0..=node.length()).contains(&node.null_count())) {
        return Err(wrong("a column has more values than bits"));
    }
    let is_within = |offset: i64, length: i64| {
        let end = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        end.and_then(|(offset, length)| offset.checked_add(length)).is_some_and(|end| end <= body)
    };
    let mut buffers = batch.buffers().into_iter().flatten();
    if buffers.any(|buffer| !is_within(buffer.offset(), buffer.length())) {
        return Err(wrong("a buffer is not within its batch"));
    }
    let mut buffers = batch.buffers().into_iter().flatten();
    let mut nodes = batch.nodes().into_iter().flatten();
    for &count in counts {
        let node = nodes.next().ok_or_else(|| wrong("a batch has too few columns"))?;
        for number in 0..count {
            let buffer = buffers.next().ok_or_else(|| wrong("a batch has too few buffers"))?;
            let bits = buffer.length().saturating_mul(8);
            if number == 0 && node.null_count() > 0 && bits < node.length() {
                return Err(wrong("a column has more values than bits that say which are there"));
            }
        }
    }
    Ok(())
}

/// Returns an Arrow stream as [`arrow_events`] takes it: dictionaries and views become plain values.
pub fn arrow_stream(
    schema: &ArrowSchema,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<Vec<u8>, ArrowError> {
    let schema = Arc::new(ArrowSchema::new(schema.fields().iter().map(plain_field).collect::<Vec<_>>()));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    for batch in batches {
        let batch = batch?;
        let columns =
            batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        writer.write(&RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)?;
    }
    writer.into_inner()
}

fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(ArrowField::new(field.name(), plain(field.data_type()), true))
}

fn plain(ty: &DataType) -> DataType {
    match ty {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(item) | DataType::ListView(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, _) => DataType::List(plain_field(item)),
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{
        ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, NullArray, StringArray, StringViewArray,
    };
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::IpcWriteOptions;
    use tidemill_model::{ColumnType, Type as Scalar};
    use tidemill_random::Random;

    fn schema() -> Schema {
        let note = ColumnType { nullable: true, ..Scalar::Str.into() };
        Schema::scalars([("account", Scalar::Str.into()), ("amount", Scalar::Int.into()), ("note", note)])
    }

    fn texts(texts: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    fn batch(columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .expect("columns of one length")
    }

    fn good() -> RecordBatch {
        let notes: ArrayRef = Arc::new(StringArray::from(vec![None, Some("hi"), None]));
        batch([
            ("note", notes),
            ("account", texts(&["ada", "bob", "eve"])),
            ("amount", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ])
    }

    fn stream_with(batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
        let mut writer =
            StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).expect("a writer");
        batches.iter().for_each(|batch| writer.write(batch).expect("memory takes everything"));
        writer.into_inner().expect("memory takes everything")
    }

    fn stream(batches: &[RecordBatch]) -> Vec<u8> {
        stream_with(batches, IpcWriteOptions::default())
    }

    #[test]
    fn events_are_in_canonical_form_whatever_the_order_of_columns() {
        let events = arrow_events(&stream(&[good(), good()]), &schema()).expect("events");
        assert_eq!((events.num_rows(), events.schema()), (6, arrow_schema(&schema())));
        assert_eq!(events.column(1).as_ref(), &Int64Array::from(vec![1, 2, 3, 1, 2, 3]) as &dyn arrow_array::Array);
        let none = arrow_events(&stream(&[good().slice(0, 0)]), &schema()).expect("no events");
        assert_eq!(none.num_rows(), 0);
        // The end may be left out.
        let whole = stream(&[good()]);
        assert_eq!(arrow_events(&whole[..whole.len() - 8], &schema()).expect("events").num_rows(), 3);
    }

    #[test]
    fn what_is_wrong_is_said_by_field_and_record() {
        let said = |columns: Vec<(&'static str, ArrayRef)>| {
            let bad = arrow_events(&stream(&[batch(columns)]), &schema()).expect_err("it is wrong");
            (bad.column.unwrap_or_default(), bad.line, bad.reason)
        };
        let amounts = |amounts: &[Option<i64>]| Arc::new(Int64Array::from(amounts.to_vec())) as ArrayRef;
        let (account, note) = (("account", texts(&["a", "b", "c"])), ("note", texts(&["", "", ""])));
        let (column, line, reason) =
            said(vec![account.clone(), note.clone(), ("amount", amounts(&[Some(1), None, None]))]);
        assert_eq!((&*column, line, &*reason), ("amount", Some(2), "a value is missing, and the column has no None"));
        let (column, line, reason) = said(vec![account.clone(), note.clone(), ("amount", texts(&["1", "2", "x"]))]);
        assert_eq!((&*column, line, reason.contains("cannot be read as")), ("amount", None, true), "{reason}");
        let (column, line, reason) = said(vec![account.clone(), ("amount", amounts(&[Some(1); 3]))]);
        assert_eq!((&*column, line, &*reason), ("note", None, "it is missing"));
        let other = ("colour", texts(&["", "", ""]));
        let (column, line, reason) =
            said(vec![account.clone(), note.clone(), ("amount", amounts(&[Some(1); 3])), other]);
        assert_eq!((&*column, line, &*reason), ("colour", None, "the event has no such field"));
        let many: DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
        let (column, _, reason) = said(vec![account, note, ("amount", Arc::new(many))]);
        assert_eq!((&*column, &*reason), ("amount", "a dictionary is not taken; cast it"));
    }

    #[test]
    fn what_a_few_bytes_could_stand_for_is_refused() {
        let said = |stream: &[u8]| arrow_events(stream, &schema()).expect_err("it is refused").reason;
        let packed = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).expect("it is there");
        assert!(said(&stream_with(&[good()], packed)).contains("compressed"));
        let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a"; 3]));
        assert!(said(&stream(&[batch([("account", views)])])).contains("Utf8View is not taken"));
        // Nothing but a length.
        let nothing: ArrayRef = Arc::new(NullArray::new(1 << 40));
        assert!(said(&stream(&[batch([("note", nothing)])])).contains("more records than bits"));
    }

    #[test]
    fn a_stream_is_made_of_what_shares_bytes() {
        let many: DictionaryArray<Int32Type> = vec!["ada", "bob", "ada"].into_iter().collect();
        let notes: ArrayRef = Arc::new(StringViewArray::from(vec![None, Some("a note that is not short"), None]));
        let given = batch([
            ("account", Arc::new(many) as ArrayRef),
            ("note", notes),
            ("amount", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ]);
        let sent = arrow_stream(&given.schema(), [Ok(given.clone())].into_iter()).expect("a stream");
        let events = arrow_events(&sent, &schema()).expect("events");
        assert_eq!(events.column(0).as_ref(), &StringArray::from(vec!["ada", "bob", "ada"]) as &dyn arrow_array::Array);
    }

    /// Streams of many types with bytes changed, cut, repeated and put elsewhere are decoded or refused.
    #[test]
    fn damage_is_refused_and_never_panics() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let seeds = [
            stream(&[good()]),
            stream(&[good(), good()]),
            stream(&[batch([("account", texts(&["a"; 3])), ("amount", Arc::new(lists)), ("note", texts(&["n"; 3]))])]),
        ];
        let mut random = Random::new(7);
        let mut below = |count: usize| random.below(count.max(1) as u64) as usize;
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..30_000 {
            let mut bytes = seeds[below(seeds.len())].clone();
            for _ in 0..=below(3) {
                let at = below(bytes.len());
                match below(5) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes[at] ^= 1 << below(8),
                    2 => bytes.truncate(at),
                    3 => {
                        let number = [0, 1, -1, i64::MAX, i64::MIN, 1 << 40, 255][below(7)];
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
                    }
                    _ => {
                        let from = below(bytes.len());
                        let piece = bytes[from..(from + below(64)).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            match arrow_events(&bytes, &schema()) {
                Ok(events) => taken += usize::from(events.num_rows() < 100),
                Err(bad) => refused += usize::from(!bad.reason.is_empty()),
            }
        }
        assert!(taken > 1_000 && refused > 10_000 && taken + refused == 30_000, "{taken} {refused}");
    }
}
