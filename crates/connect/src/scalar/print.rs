//! Values to text, appended to a buffer. What is written here, `parse` reads back equal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
pub(crate) use tidemill_model::civil::{is_civil, push_time as time};

/// Appends an integer in decimal.
pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the shortest text that reads back as the same float; `NaN`, `Infinity`, `-Infinity`.
pub(crate) fn float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
}

/// Appends a decimal with all digits of its scale, zeros included.
pub(crate) fn decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(unscaled.unsigned_abs()).as_bytes();
    let scale = usize::from(scale);
    if unscaled < 0 {
        out.push(b'-');
    }
    let whole = digits.len().saturating_sub(scale);
    if whole == 0 {
        out.push(b'0');
    }
    out.extend_from_slice(&digits[..whole]);
    if scale > 0 {
        out.push(b'.');
        out.resize(out.len() + scale.saturating_sub(digits.len()), b'0');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// Appends bytes in Base64 with padding.
pub(crate) fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("the buffer was sized for it");
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use proptest::prelude::*;
    use tidemill_model::civil::{SECOND, TIME_MAX, TIME_MIN};

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts() {
        assert_eq!(text(|out| time(out, 1_357_017_300 * SECOND)), "2013-01-01T05:15:00.000000Z");
        assert_eq!(text(|out| time(out, -1)), "1969-12-31T23:59:59.999999Z");
        assert_eq!(text(|out| time(out, TIME_MIN)), "0000-01-01T00:00:00.000000Z");
        assert_eq!(text(|out| time(out, TIME_MAX - 1)), "9999-12-31T23:59:59.999999Z");
        assert_eq!(text(|out| time(out, TIME_MAX)), "253402300800000000");
        assert_eq!(text(|out| decimal(out, -5, 2)), "-0.05");
        assert_eq!(text(|out| decimal(out, 1200, 2)), "12.00");
        assert_eq!(text(|out| decimal(out, 7, 0)), "7");
        assert_eq!(text(|out| float(out, 1e300)), "1e+300");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(word: i64, bits: u64, bytes: Vec<u8>, scale in 0u8..=18) {
            prop_assert_eq!(parse::int(&text(|out| int(out, word))), Ok(word));
            for micros in [word, word % TIME_MAX] {
                prop_assert_eq!(parse::time(&text(|out| time(out, micros))), Ok(micros));
            }
            let value = f64::from_bits(bits);
            let back = parse::float(&text(|out| float(out, value))).unwrap();
            prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
            let unscaled = word % 10i64.pow(18);
            prop_assert_eq!(parse::decimal(&text(|out| decimal(out, unscaled.into(), scale)), 18, scale), Ok(unscaled));
            let mut decoded = Vec::new();
            parse::base64(&text(|out| base64(out, &bytes)), &mut decoded).unwrap();
            prop_assert_eq!(decoded, bytes);
        }
    }
}
