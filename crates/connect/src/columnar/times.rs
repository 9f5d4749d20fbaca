//! Foreign times as microseconds since 1970 in UTC: exact, but for what is below a microsecond, which is dropped downwards
//! as text formats do, before 1970 too. What does not fit is an error.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, TimestampMicrosecondType as Micros, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use std::sync::Arc;
use tidemill_model::civil::DAY;

/// Returns an array of timestamps or dates in canonical form. A timestamp without a time zone is one of UTC.
pub(super) fn instants(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    const MILLI: i64 = 1_000;
    const SECOND: i64 = 1_000_000;
    let micros = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            whole::<TimestampSecondType>(array.as_primitive(), SECOND, "seconds")?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            whole::<TimestampMillisecondType>(array.as_primitive(), MILLI, "milliseconds")?
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => array.as_primitive::<Micros>().clone(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().unary(|nanos| nanos.div_euclid(1_000))
        }
        DataType::Date32 => whole::<Date32Type>(array.as_primitive(), DAY, "days")?,
        DataType::Date64 => whole::<Date64Type>(array.as_primitive(), MILLI, "milliseconds")?,
        other => unreachable!("{other} is no type of times"),
    };
    Ok(Arc::new(micros.with_timezone("UTC")))
}

/// Converts times in a unit of whole microseconds to microseconds.
fn whole<T: ArrowPrimitiveType<Native: Into<i64>>>(
    array: &PrimitiveArray<T>,
    micros: i64,
    units: &str,
) -> Result<PrimitiveArray<Micros>, ArrowError> {
    array.try_unary(|value| {
        let value: i64 = value.into();
        value.checked_mul(micros).ok_or_else(|| beyond(value, units))
    })
}

fn beyond(value: i64, units: &str) -> ArrowError {
    ArrowError::CastError(format!("a time out of range: {value} {units} since 1970"))
}
