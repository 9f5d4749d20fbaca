//! Numbers and values for people.

use tidemill_connect::time_text;
use tidemill_model::{Type, Value, format_decimal};

/// Returns an integer with a comma after each thousand.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its noun, which takes an s unless it is one.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns events per second, to three digits where there are many.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} million events/s", r / 1e6),
        r if r >= 1e4 => format!("{} thousand events/s", (r / 1e3).round()),
        r => format!("{} events/s", r.round()),
    }
}

/// Returns a duration, to three digits or so.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Returns a value of a column, as one would write it.
pub fn value(value: &Value, ty: Type) -> String {
    match (value, ty) {
        (Value::Decimal(unscaled), Type::Decimal { scale, .. }) => format_decimal(*unscaled, scale),
        (Value::Time(micros), _) => time_text(*micros),
        (Value::Str(text), _) => format!("{text:?}"),
        (other, _) => other.to_string(),
    }
}

/// Returns an event time, in the unit of its type.
pub fn time(time: i64, ty: Type) -> String {
    if ty == Type::Time { time_text(time) } else { time.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(2000, "event"), "2,000 events");
    }

    #[test]
    fn rates() {
        for (number, text) in
            [(12.4, "12 events/s"), (45_600.0, "46 thousand events/s"), (2.5e6, "2.50 million events/s")]
        {
            assert_eq!(rate(number), text);
        }
    }

    #[test]
    fn durations() {
        for (number, text) in [(0.0, "0 µs"), (2e-5, "20 µs"), (0.00123, "1.2 ms"), (1.5, "1.50 s"), (321.9, "322 s")]
        {
            assert_eq!(seconds(number), text);
        }
    }

    #[test]
    fn values() {
        assert_eq!(value(&Value::Decimal(-150), Type::Decimal { digits: 5, scale: 2 }), "-1.50");
        assert_eq!(value(&Value::Time(0), Type::Time), "1970-01-01T00:00:00.000000Z");
        assert_eq!(value(&Value::Str("a\"".into()), Type::Str), r#""a\"""#);
        assert_eq!(time(7, Type::Int), "7");
    }
}
