//! The encoding of batches in the log: integer columns with as few bits as most of their values need, truth values with
//! one bit each, the rest in Arrow's format.
//!
//! ```text
//! batch  = rows, columns × (form:1), columns with a form of their own, [the other columns: message, body]
//! form   = 0 Arrow, 1 numbers, 2 truth values; plus 4 if some are null
//! column = [if some are null: a bit for each row, 0 null], numbers or a bit for each row
//! numbers = order:1 (1 ascending), base:8, width:1, rows × width bits, exceptions: n, n × (place, offset:8)
//! bits   = groups of 512 values in eight lanes: value i in lane i mod 8, word j of all lanes next to each other;
//!          the values after the last whole group likewise, in groups of 64 and one lane, padded with zeros
//! ```
//!
//! A value is its base plus an offset, modulo 2^64. The base is a value that few are below, or, if the column ascends,
//! the previous value. Offsets that need more bits than the width are exceptions, which decoding patches in (Zukowski,
//! Héman, Nes, Boncz, "Super-Scalar RAM-CPU Cache Compression", 2006). Lanes are the values that a processor shifts at
//! once (Afroozeh, Boncz, "The FastLanes Compression Layout", 2023). The log's thread shares its processor with the
//! workers, so time matters more than space: LZ4 takes many times as long.

use crate::encoding::{BatchCodec, Malformed, Reader, number, read_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Schema, SchemaRef};
use std::ops::Range;
use std::sync::Arc;
use tidemill_state::memory::prefetch;

/// The number of values that fill whole words in a lane, at any width.
const GROUP: usize = 64;
/// The number of values that are packed side by side.
const LANES: usize = 8;
/// The number of values from which a sixteenth of a column is sampled to choose base and width.
const SAMPLED_FROM: usize = 4096;
/// The number of consecutive values in a sample.
const SAMPLE: usize = 32;
/// The number of samples ahead of which memory is prefetched.
const SAMPLES_AHEAD: usize = 4;
/// The approximate cost of an exception in bits.
const EXCEPTION_BITS: usize = 80;

/// Encodes batches.
#[derive(Default)]
pub struct PackedCodec {
    rest: BatchCodec,
}

/// The form of a column that Arrow encodes.
const OTHER: u8 = 0;
/// The form of an integer column.
const NUMBERS: u8 = 1;
/// The form of a column of truth values.
const BITS: u8 = 2;
/// Flag: some values are null.
const NULLS: u8 = 4;

/// Returns the form of a column.
fn form(column: &ArrayRef) -> u8 {
    let form = match column.data_type() {
        DataType::Int64 | DataType::Timestamp(..) => NUMBERS,
        DataType::Boolean => BITS,
        _ => return OTHER,
    };
    if column.null_count() > 0 { form | NULLS } else { form }
}

impl PackedCodec {
    /// Appends a batch in canonical form, with at least one row.
    pub fn write(&mut self, batch: &RecordBatch, into: &mut Vec<u8>) {
        assert!(batch.num_rows() > 0, "a batch in the log has a row");
        number(into, batch.num_rows() as u64);
        into.extend(batch.columns().iter().map(form));
        batch.columns().iter().for_each(|column| write_column(column, into));
        let rest: Vec<usize> = (0..batch.num_columns()).filter(|&c| form(batch.column(c)) == OTHER).collect();
        if !rest.is_empty() {
            self.rest.write(&batch.project(&rest).expect("columns that are there"), into);
        }
    }
}

/// Appends a column, if it has a form of its own.
fn write_column(column: &ArrayRef, into: &mut Vec<u8>) {
    let form = form(column);
    if form & NULLS != 0 {
        put_truths(column.nulls().expect("some are null").inner(), into);
    }
    match column.data_type() {
        DataType::Int64 => pack(column.as_primitive::<Int64Type>().values(), into),
        DataType::Timestamp(..) => pack(column.as_primitive::<TimestampMicrosecondType>().values(), into),
        DataType::Boolean => put_truths(column.as_boolean().values(), into),
        _ => {}
    }
}

/// Appends a bit for each truth value; the bits after the last are zero.
fn put_truths(truths: &BooleanBuffer, into: &mut Vec<u8>) {
    let count = truths.len().div_ceil(8);
    into.extend_from_slice(&truths.sliced().as_slice()[..count]);
    if let (Some(last), rest @ 1..) = (into.last_mut(), truths.len() % 8) {
        *last &= (1 << rest) - 1;
    }
}

fn take_truths(reader: &mut Reader<'_>, count: usize) -> Result<BooleanBuffer, Malformed> {
    Ok(BooleanBuffer::new(Buffer::from(reader.run(count.div_ceil(8))?), 0, count))
}

/// Appends packed values.
fn pack(values: &[i64], into: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor supports AVX2.
        return unsafe { pack_avx2(values, into) };
    }
    Offsets::of(values).pack(into);
}

/// Packs values as `pack` does, with 256-bit registers, which saves the log's thread a sixth of its work.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_avx2(values: &[i64], into: &mut Vec<u8>) {
    Offsets::of(values).pack(into);
}

/// Integers as offsets.
struct Offsets<'a> {
    values: &'a [i64],
    /// A flag: whether offsets are relative to the previous value instead of the base.
    ascends: bool,
    base: i64,
    /// The width at which the offsets and the exceptions take the least space.
    width: u32,
}

impl<'a> Offsets<'a> {
    #[inline(always)]
    fn of(values: &'a [i64]) -> Self {
        let ascends = values.is_sorted();
        let mut offsets = Offsets { values, ascends, base: values[0], width: 0 };
        if !ascends {
            let mut ahead = sample(values.len()).skip(SAMPLES_AHEAD);
            for at in sample(values.len()) {
                ask(ahead.next().map_or(&[], |ahead| &values[ahead]));
                offsets.base = values[at].iter().copied().fold(offsets.base, i64::min);
            }
        }
        offsets.width = offsets.best_width();
        if !ascends {
            offsets.base = offsets.base.wrapping_sub((offsets.room() / 2) as i64);
        }
        offsets
    }

    /// Returns the difference between the greatest offset that is not an exception and the greatest sampled one. Half
    /// of it is reserved for values below the sampled ones.
    fn room(&self) -> u64 {
        let limit = mask(self.width);
        let seen = sample(self.values.len()).flat_map(|at| &self.values[at]);
        let offsets = seen.map(|value| value.wrapping_sub(self.base) as u64);
        limit - offsets.filter(|offset| *offset <= limit).max().unwrap_or(0)
    }

    /// Unpacks the offsets of `into.len()` values, starting at `from`.
    #[inline(always)]
    fn fill(&self, from: usize, into: &mut [u64]) {
        debug_assert!(!into.is_empty(), "a run of offsets has a first value");
        let values = &self.values[from..from + into.len()];
        if self.ascends {
            let before = from.checked_sub(1).map_or(self.base, |before| self.values[before]);
            into[0] = values[0].wrapping_sub(before) as u64;
            into[1..].iter_mut().zip(values.windows(2)).for_each(|(o, pair)| *o = pair[1].wrapping_sub(pair[0]) as u64);
        } else {
            into.iter_mut().zip(values).for_each(|(o, value)| *o = value.wrapping_sub(self.base) as u64);
        }
    }

    fn best_width(&self) -> u32 {
        // Four counters, so that neighbouring values do not wait for each other's increments.
        let (mut counts, mut group) = ([[0u32; 65]; 4], [0; SAMPLE]);
        for at in sample(self.values.len()) {
            let group = &mut group[..at.len()];
            self.fill(at.start, group);
            for (i, offset) in group.iter().enumerate() {
                counts[i % 4][(u64::BITS - offset.leading_zeros()) as usize] += 1;
            }
        }
        let counts: [usize; 65] = std::array::from_fn(|width| counts.iter().map(|counts| counts[width] as usize).sum());
        let (in_all, mut wider, mut best) = (counts.iter().sum::<usize>(), 0, (usize::MAX, 0));
        for width in (0..=64).rev() {
            best = best.min((in_all * width + wider * EXCEPTION_BITS, width));
            wider += counts[width];
        }
        best.1 as u32
    }

    #[inline(always)]
    fn pack(&self, into: &mut Vec<u8>) {
        let width = self.width;
        let limit = mask(width);
        into.push(u8::from(self.ascends));
        into.extend_from_slice(&self.base.to_le_bytes());
        into.push(width as u8);
        let mut exceptions: Vec<(usize, u64)> = Vec::new();
        for from in (0..self.values.len()).step_by(LANES * GROUP) {
            let mut block = [0; LANES * GROUP];
            let count = block.len().min(self.values.len() - from);
            let next = &self.values[from + count..];
            ask(&next[..next.len().min(LANES * GROUP)]);
            self.fill(from, &mut block[..count]);
            if block.iter().fold(0, |all, offset| all | offset) > limit {
                // Branch-free: every value is written to the list, and the next one overwrites it if it is not an
                // exception, because exceptions are unpredictable.
                let (mut wider, mut found) = ([0u16; LANES * GROUP + 1], 0);
                for (i, offset) in block.iter().enumerate() {
                    wider[found] = i as u16;
                    found += usize::from(*offset > limit);
                }
                exceptions.extend(wider[..found].iter().map(|&i| (from + usize::from(i), block[usize::from(i)])));
            }
            match count == block.len() {
                true => put_bits::<LANES>(&block, width, into),
                false => put_bits::<1>(&block[..count.next_multiple_of(GROUP)], width, into),
            }
        }
        number(into, exceptions.len() as u64);
        for (place, offset) in exceptions {
            number(into, place as u64);
            into.extend_from_slice(&offset.to_le_bytes());
        }
    }
}

/// Returns the ranges of the sample. Values that it misses become exceptions. Each range has a few consecutive values,
/// because a processor prefetches far less well if memory is not read sequentially.
fn sample(count: usize) -> impl Iterator<Item = Range<usize>> {
    let every = if count < SAMPLED_FROM { SAMPLE } else { 16 * SAMPLE };
    (0..count).step_by(every).map(move |from| from..(from + SAMPLE).min(count))
}

/// Prefetches some values.
#[inline(always)]
fn ask(values: &[i64]) {
    values.chunks(64 / size_of::<i64>()).for_each(|line| prefetch(line.as_ptr().cast()));
}

fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)
}

/// Returns the number of values that are in lanes, of `count` values.
fn in_lanes(count: usize) -> usize {
    count - count % (GROUP * LANES)
}

fn packed_bytes(count: usize, width: u32) -> usize {
    count.div_ceil(GROUP) * 8 * width as usize
}

/// Appends the low bits of values, in whole groups.
#[inline(always)]
fn put_bits<const N: usize>(values: &[u64], width: u32, into: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    debug_assert!(values.len().is_multiple_of(N * GROUP), "values are packed in whole groups");
    let (start, limit) = (into.len(), mask(width));
    into.resize(start + packed_bytes(values.len(), width), 0);
    let mut words = into[start..].as_chunks_mut::<8>().0.as_chunks_mut::<N>().0.iter_mut();
    let (mut word, mut bits) = ([0u64; N], 0);
    for value in values.as_chunks::<N>().0 {
        let value = value.map(|value| value & limit);
        (0..N).for_each(|lane| word[lane] |= value[lane] << bits);
        bits += width;
        if bits >= u64::BITS {
            *words.next().expect("room for all") = word.map(u64::to_le_bytes);
            bits -= u64::BITS;
            word = match bits {
                0 => [0; N],
                _ => value.map(|value| value >> (width - bits)),
            };
        }
    }
    debug_assert!(bits == 0 && words.next().is_none(), "whole groups fill whole words");
}

/// Reads `count` offsets of `width` bits, in whole groups.
fn take_bits<const N: usize>(bytes: &[u8], count: usize, width: u32, base: i64, into: &mut Vec<i64>) {
    if width == 0 {
        into.resize(into.len() + count, base);
        return;
    }
    debug_assert!(count.is_multiple_of(N * GROUP), "values are unpacked in whole groups");
    debug_assert_eq!(bytes.len(), packed_bytes(count, width), "there are as many words as the values take");
    let mut words = bytes.as_chunks::<8>().0.as_chunks::<N>().0.iter().map(|word| word.map(u64::from_le_bytes));
    let (limit, mut word, mut bits) = (mask(width), [0; N], u64::BITS);
    let mut group = [[0; N]; GROUP];
    for _ in 0..count / (N * GROUP) {
        for values in &mut group {
            let mut value = if bits < u64::BITS { word.map(|word| word >> bits) } else { [0; N] };
            if bits + width > u64::BITS {
                word = words.next().expect("as many as values");
                let taken = u64::BITS - bits;
                (0..N).for_each(|lane| value[lane] |= word[lane] << taken);
                bits = width - taken;
            } else {
                bits += width;
            }
            *values = value.map(|value| base.wrapping_add((value & limit) as i64));
        }
        into.extend_from_slice(group.as_flattened());
    }
}

/// Reads a batch of at most `rows_max` rows.
pub fn read_packed(reader: &mut Reader<'_>, schema: &SchemaRef, rows_max: u64) -> Result<RecordBatch, Malformed> {
    let rows = reader.number()?;
    if rows == 0 || rows > rows_max {
        return Err(Malformed(format!("a batch of {rows} events among {rows_max}")));
    }
    let rows = rows as usize;
    let forms = schema.fields().iter().map(|_| reader.byte()).collect::<Result<Vec<u8>, Malformed>>()?;
    let mut columns: Vec<Option<ArrayRef>> = Vec::new();
    for (field, form) in schema.fields().iter().zip(&forms) {
        columns.push(match *form {
            OTHER => None,
            form => Some(read_column(reader, form, field.data_type(), rows)?),
        });
    }
    let rest: Vec<usize> = (0..columns.len()).filter(|&c| forms[c] == OTHER).collect();
    if !rest.is_empty() {
        let fields: Vec<_> = rest.iter().map(|&c| schema.fields()[c].clone()).collect();
        let others = read_batch(reader, &Arc::new(Schema::new(fields)))?;
        rest.iter().zip(others.columns()).for_each(|(&c, column)| columns[c] = Some(column.clone()));
    }
    let columns = columns.into_iter().map(|column| column.expect("of a form of its own or among the others")).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
    batch.map_err(|error| Malformed(error.to_string()))
}

/// Reads a column that has a form of its own.
fn read_column(reader: &mut Reader<'_>, form: u8, ty: &DataType, rows: usize) -> Result<ArrayRef, Malformed> {
    let nulls = if form & NULLS != 0 { Some(NullBuffer::new(take_truths(reader, rows)?)) } else { None };
    match (form & !NULLS, ty) {
        (NUMBERS, DataType::Int64) => {
            Ok(Arc::new(PrimitiveArray::<Int64Type>::new(unpack(reader, rows)?.into(), nulls)))
        }
        (NUMBERS, DataType::Timestamp(..)) => {
            let values = PrimitiveArray::<TimestampMicrosecondType>::new(unpack(reader, rows)?.into(), nulls);
            Ok(Arc::new(values.with_data_type(ty.clone())))
        }
        (BITS, DataType::Boolean) => Ok(Arc::new(BooleanArray::new(take_truths(reader, rows)?, nulls))),
        _ => Err(Malformed(format!("a column of {ty} has form {form}"))),
    }
}

/// Reads packed values.
fn unpack(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<i64>, Malformed> {
    let ascends = reader.byte()? != 0;
    let base = reader.word()? as i64;
    let width = u32::from(reader.byte()?);
    if width > u64::BITS {
        return Err(Malformed(format!("a column of {width} bits")));
    }
    let (all, lanes) = (rows.next_multiple_of(GROUP), in_lanes(rows));
    let mut values: Vec<i64> = Vec::with_capacity(all);
    // If the column ascends, the differences are summed after all are decoded.
    let start = if ascends { 0 } else { base };
    take_bits::<LANES>(reader.run(packed_bytes(lanes, width))?, lanes, width, start, &mut values);
    take_bits::<1>(reader.run(packed_bytes(all - lanes, width))?, all - lanes, width, start, &mut values);
    values.truncate(rows);
    for _ in 0..reader.number()? {
        let place = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
        let value = values.get_mut(place).ok_or_else(|| Malformed("an exception is beyond its column".into()))?;
        *value = start.wrapping_add(reader.word()? as i64);
    }
    if ascends {
        let mut last = base;
        for value in &mut values {
            last = last.wrapping_add(*value);
            *value = last;
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::Field;
    use arrow_select::concat::concat;

    fn read_back(values: &[i64]) -> usize {
        let texts: StringArray = values.iter().map(|value| Some(value.to_string())).collect();
        let nulls: Int64Array = values.iter().map(|&value| (value % 2 == 0).then_some(value)).collect();
        let truths: BooleanArray = values.iter().map(|value| Some(value % 3 == 0)).collect();
        let some: BooleanArray = values.iter().map(|value| (value % 5 > 0).then_some(value % 3 == 0)).collect();
        let fields = [
            ("a", DataType::Int64, false),
            ("b", DataType::Utf8, false),
            ("c", DataType::Int64, true),
            ("d", DataType::Boolean, false),
            ("e", DataType::Boolean, true),
        ];
        let schema = Arc::new(Schema::new(fields.map(|(name, ty, null)| Field::new(name, ty, null)).to_vec()));
        let columns: [ArrayRef; 5] = [
            Arc::new(Int64Array::from(values.to_vec())),
            Arc::new(texts),
            Arc::new(nulls),
            Arc::new(truths),
            Arc::new(some),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns.to_vec()).expect("columns of the schema");
        // A slice of a larger batch has the same columns.
        let ahead = columns.map(|column| concat(&[&column.slice(0, 1), &column]).expect("of one type"));
        let larger = RecordBatch::try_new(schema.clone(), ahead.to_vec()).expect("columns of the schema");
        let batch = if values.len().is_multiple_of(2) { batch } else { larger.slice(1, values.len()) };
        let mut bytes = Vec::new();
        PackedCodec::default().write(&batch, &mut bytes);
        let mut reader = Reader(&bytes);
        assert_eq!(read_packed(&mut reader, &schema, values.len() as u64), Ok(batch));
        assert!(reader.0.is_empty());
        for end in (0..bytes.len()).step_by(if values.len() > 1_000 { 97 } else { 1 }) {
            assert!(read_packed(&mut Reader(&bytes[..end]), &schema, values.len() as u64).is_err(), "cut at {end}");
        }
        let (mut packed, mut plainly) = (Vec::new(), Vec::new());
        pack(values, &mut packed);
        Offsets::of(values).pack(&mut plainly);
        assert!(packed == plainly, "on every processor the same");
        packed.len()
    }

    #[test]
    fn values_of_every_width_come_back() {
        for width in 0..64u32 {
            let value = |i: i64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> width;
            // In one lane, truncated at every byte; and in lanes with a remainder.
            read_back(&(0..130).map(value).collect::<Vec<_>>());
            read_back(&(0..1_300).map(value).collect::<Vec<_>>());
        }
        read_back(&[i64::MIN, i64::MAX, 0, -1]);
        read_back(&[i64::MAX]);
        read_back(&[i64::MIN, i64::MAX]);
    }

    #[test]
    fn few_that_are_large_do_not_make_all_large() {
        let mut values: Vec<i64> = (0..1_000).map(|i| i * 7 % 100).collect();
        (values[3], values[997]) = (1 << 60, i64::MAX);
        assert!(read_back(&values) < 1_000);
        assert!(read_back(&(5_000..6_000).collect::<Vec<_>>()) < 200, "ascending values are their distances");
        // Not all of many values are sampled; the smallest and the greatest are not.
        let mut values: Vec<i64> = (0..9_001).map(|i| 1_000 + i * 7 % 100).collect();
        (values[63], values[8_127], values[9_000]) = (-5, i64::MIN, i64::MAX);
        assert!(read_back(&values) < 9_000);
    }
}
