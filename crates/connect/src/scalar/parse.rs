//! Values from text. Each function either takes the whole text or says in one sentence why not.

use crate::bad::quoted;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use tidemill_model::civil::{DAY, SECOND, days_from_civil, days_in_month};

/// A value, or why the text is none.
pub(crate) type Parsed<T> = Result<T, String>;

/// Digits that always fit `i64`.
const SAFE_DIGITS: usize = 18;

/// Parses a bool: `true`, `True` or `1`; `false`, `False` or `0`.
pub(crate) fn bool(text: &str) -> Parsed<bool> {
    match text {
        "true" | "True" | "1" => Ok(true),
        "false" | "False" | "0" => Ok(false),
        _ => Err(format!("expected true or false, found {}", quoted(text))),
    }
}

/// Parses an integer: `[+-]digits`.
pub(crate) fn int(text: &str) -> Parsed<i64> {
    let (negative, digits) = sign(text.as_bytes());
    let mut magnitude = 0u64;
    let mut fits = true;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(format!("expected an integer, found {}", quoted(text)));
        }
        if digits.len() <= SAFE_DIGITS {
            magnitude = magnitude * 10 + u64::from(digit);
        } else {
            let next = magnitude.checked_mul(10).and_then(|m| m.checked_add(u64::from(digit)));
            fits &= next.is_some();
            magnitude = next.unwrap_or(0);
        }
    }
    if digits.is_empty() {
        return Err(format!("expected an integer, found {}", quoted(text)));
    }
    let value = if negative { 0i64.checked_sub_unsigned(magnitude) } else { 0i64.checked_add_unsigned(magnitude) };
    value.filter(|_| fits).ok_or_else(|| format!("integer overflow: {} does not fit 64 bits", quoted(text)))
}

/// Parses a float, written in any way that Rust reads as `f64`, which rounds to the nearest: decimal and scientific
/// notation, `inf`, `Infinity`, `NaN`.
pub(crate) fn float(text: &str) -> Parsed<f64> {
    let value: f64 = text.parse().map_err(|_| format!("expected a number, found {}", quoted(text)))?;
    if value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(format!("float overflow: {} is beyond the largest float", quoted(text)));
    }
    Ok(value)
}

/// Returns the unscaled value of `[+-]digits[.digits][e[+-]digits]`, exactly: digits that do not fit are refused, not
/// rounded; zeros at the end do not count.
pub(crate) fn decimal(text: &str, digits_max: u8, scale: u8) -> Parsed<i64> {
    let (negative, rest) = sign(text.as_bytes());
    let invalid = || format!("expected a decimal, found {}", quoted(text));
    let (mantissa, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&rest[..at], exponent(&rest[at + 1..]).ok_or_else(invalid)?),
        None => (rest, 0),
    };
    let (whole, part) = match mantissa.iter().position(|b| *b == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    let digit_count = whole.len() + part.len();
    let digits = || whole.iter().chain(part).map(|byte| byte.wrapping_sub(b'0'));
    if digit_count == 0 || digits().any(|digit| digit > 9) {
        return Err(invalid());
    }
    let overflow = || format!("decimal overflow: {} does not fit Decimal({digits_max}, {scale})", quoted(text));
    // Powers of ten that the digits, read as one integer, are short of the unscaled value.
    let shift = i64::from(scale) + exponent - part.len() as i64;
    let kept = digit_count.saturating_sub(usize::try_from(-shift).unwrap_or(0));
    if digits().skip(kept).any(|digit| digit != 0) {
        return Err(format!(
            "too many digits after the point: {} does not fit Decimal({digits_max}, {scale})",
            quoted(text)
        ));
    }
    let mut unscaled = 0i64;
    for digit in digits().take(kept) {
        unscaled = unscaled.checked_mul(10).and_then(|u| u.checked_add(i64::from(digit))).ok_or_else(overflow)?;
    }
    if unscaled != 0 && shift > 0 {
        let power = u32::try_from(shift).ok().and_then(|shift| 10i64.checked_pow(shift));
        unscaled = power.and_then(|power| unscaled.checked_mul(power)).ok_or_else(overflow)?;
    }
    if unscaled >= 10i64.pow(u32::from(digits_max)) {
        return Err(overflow());
    }
    Ok(if negative { -unscaled } else { unscaled })
}

/// Far more than any decimal needs; keeps sums of exponents and lengths within `i64`.
const EXPONENT_MAX: i64 = 1 << 40;

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |sum, byte| (sum * 10 + i64::from(byte - b'0')).min(EXPONENT_MAX));
    Some(if negative { -value } else { value })
}

/// Microseconds since 1970 UTC, from RFC 3339 (`T` or a space between date and time; seconds and
/// offset may be left out; no offset means UTC), from a date alone, or from an integer that is the
/// microseconds themselves. Digits beyond the microsecond are dropped.
pub(crate) fn time(text: &str) -> Parsed<i64> {
    let bytes = text.as_bytes();
    if bytes.get(4) != Some(&b'-') || bytes.len() < 10 {
        return match int(text) {
            Err(reason) if !reason.starts_with("integer overflow") => Err(not_a_time(text)),
            other => other,
        };
    }
    civil_time(bytes).ok_or_else(|| not_a_time(text))
}

fn not_a_time(text: &str) -> String {
    format!("expected a time like 2013-01-01T05:15:00Z, found {}", quoted(text))
}

fn civil_time(bytes: &[u8]) -> Option<i64> {
    let (year, month, day) = (digits(bytes, 0, 4)?, digits(bytes, 5, 2)?, digits(bytes, 8, 2)?);
    if bytes[7] != b'-' || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let midnight = days_from_civil(year, month, day) * DAY;
    let Some(clock) = bytes.get(11..) else {
        return (bytes.len() == 10).then_some(midnight);
    };
    if !matches!(bytes[10], b'T' | b't' | b' ') || clock.get(2) != Some(&b':') {
        return None;
    }
    let (hour, minute) = (digits(clock, 0, 2)?, digits(clock, 3, 2)?);
    let (second, rest) = match clock.get(5) {
        Some(b':') => (digits(clock, 6, 2)?, &clock[8..]),
        _ => (0, &clock[5..]),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, rest) = match rest.first() {
        Some(b'.') if clock[5] == b':' => fraction(&rest[1..])?,
        _ => (0, rest),
    };
    Some(midnight + ((hour * 60 + minute) * 60 + second - offset(rest)?) * SECOND + micros)
}

/// Returns the `length` digits from `start` on as a number.
fn digits(bytes: &[u8], start: usize, length: usize) -> Option<i64> {
    bytes.get(start..start + length)?.iter().try_fold(0, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| sum * 10 + i64::from(digit))
    })
}

/// Returns the microseconds of a fraction of a second, and what follows its digits.
fn fraction(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let kept = length.min(6);
    let micros = digits(bytes, 0, kept)? * 10i64.pow(6 - kept as u32);
    (length > 0).then(|| (micros, &bytes[length..]))
}

/// Returns the seconds that a UTC offset (`Z`, `+hh:mm`, `+hhmm`, `+hh` or nothing) is ahead.
fn offset(bytes: &[u8]) -> Option<i64> {
    let (ahead, rest) = match bytes.split_first() {
        None | Some((b'Z' | b'z', [])) => return Some(0),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        Some(_) => return None,
    };
    let minute = match rest {
        [_, _] => 0,
        [_, _, b':', _, _] => digits(rest, 3, 2)?,
        [_, _, _, _] => digits(rest, 2, 2)?,
        _ => return None,
    };
    let hour = digits(rest, 0, 2)?;
    (hour <= 23 && minute <= 59).then_some(ahead * (hour * 60 + minute) * 60)
}

/// Appends the bytes that base64 text stands for. Padding may be left out. On an error `into` may
/// hold some of them.
pub(crate) fn base64(text: &str, into: &mut Vec<u8>) -> Parsed<()> {
    let refused = |error| format!("expected base64 text: {error}");
    STANDARD_PAD_INDIFFERENT.decode_vec(text, into).map_err(refused)
}

fn sign(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        assert_eq!(int("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(int("+0009223372036854775807"), Ok(i64::MAX));
        for text in ["9223372036854775808", "-9223372036854775809", "184467440737095516150", "99999999999999999999999"]
        {
            assert!(int(text).unwrap_err().starts_with("integer overflow"), "{text}");
        }
        for text in ["", "-", "1.0", "1_000", "1e3", "--1", "99999999999999999999x"] {
            assert!(int(text).unwrap_err().starts_with("expected an integer"), "{text}");
        }
    }

    #[test]
    fn floats() {
        assert_eq!(float("-1e-3"), Ok(-0.001));
        assert_eq!(float("Infinity"), Ok(f64::INFINITY));
        assert!(float("NaN").unwrap().is_nan());
        assert!(float("1e999").unwrap_err().starts_with("float overflow"));
        assert!(float("1,5").is_err());
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(decimal("12.3", 18, 2), Ok(1230));
        assert_eq!(decimal("-.5000000000000000000000", 18, 2), Ok(-50));
        assert_eq!(decimal("1.5e2", 18, 2), Ok(15_000));
        assert_eq!(decimal("15e-1", 18, 2), Ok(150));
        assert_eq!(decimal("0e99999999999999999999", 18, 2), Ok(0));
        assert_eq!(decimal("9999999999999999.99", 18, 2), Ok(999_999_999_999_999_999));
        assert!(decimal("1.005", 18, 2).unwrap_err().starts_with("too many digits"));
        assert!(decimal("1e-99999999999999999999", 18, 2).unwrap_err().starts_with("too many digits"));
        for text in ["10000000000000000", "1e16", "1e99999999999999999999", "99999999999999999999999999"] {
            assert!(decimal(text, 18, 2).unwrap_err().starts_with("decimal overflow"), "{text}");
        }
        for text in ["", ".", "1.2.3", "1e", "e1", "NaN", "1,5"] {
            assert!(decimal(text, 18, 2).unwrap_err().starts_with("expected a decimal"), "{text}");
        }
    }

    #[test]
    fn times() {
        let morning = 1_357_017_300 * SECOND;
        for text in [
            "2013-01-01T05:15:00.000000Z",
            "2013-01-01 05:15:00",
            "2013-01-01 05:15",
            "2013-01-01t05:15:00z",
            "2013-01-01T07:15:00+02:00",
            "2013-01-01T07:15+0200",
            "2013-01-01 04:15:00.0-01",
            "1357017300000000",
        ] {
            assert_eq!(time(text), Ok(morning), "{text}");
        }
        assert_eq!(time("2013-01-01 05:15:00.1234567899"), Ok(morning + 123_456));
        assert_eq!(time("1969-12-31T23:59:59.5Z"), Ok(-500_000));
        assert_eq!(time("2012-02-29"), Ok(days_from_civil(2012, 2, 29) * DAY));
        assert_eq!(time("-1"), Ok(-1));
        for text in [
            "2013-02-29",
            "2013-13-01",
            "2013-00-01",
            "2013-01-01T24:00:00",
            "2013-01-01T05:15:60",
            "2013-01-01T05:15:00.",
            "2013-01-01T05:15:00ZZ",
            "2013-01-01T05:15:00+2:00",
            "2013-01-01T",
            "2013-01-01x",
            "2013-1-1",
            "",
            "noon",
            "2013-01-01T05:15.5",
            "2013-01-01Té:15:00",
        ] {
            assert!(time(text).unwrap_err().starts_with("expected a time"), "{text}");
        }
    }

    #[test]
    fn bytes() {
        let mut into = Vec::new();
        base64("AP8=", &mut into).unwrap();
        base64("AP8", &mut into).unwrap();
        assert_eq!(into, [0, 255, 0, 255]);
        assert!(base64("?", &mut into).is_err());
    }
}
