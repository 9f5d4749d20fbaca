//! The results of windows, of the events in them.

use super::declared::{Asked, Event, MODULUS, Over, option};
use super::operators::Seen;
use tidemill_model::Value;

/// Returns the result of a window with the bounds; none where the function gives nothing or aborts.
pub fn result(over: &Over, (start, end): (i64, i64), key: Option<i64>, events: &[&Seen]) -> Option<Event> {
    if events.len() < over.least || events.len() > over.most {
        return None;
    }
    let events: Vec<&Event> = events.iter().map(|seen| &seen.event).collect();
    let least_key = events.iter().filter_map(|event| event.key).min();
    let greatest = events.iter().filter_map(|event| event.value).max();
    let sum = events.iter().map(|event| event.number).sum();
    let mut more: Vec<Value> = [start, end].map(|time| Value::from_word(over.time, time)).to_vec();
    more.extend(over.asked.iter().map(|asked| aggregate(*asked, &events)));
    if over.own {
        let acc = events.iter().fold(0, |acc: i64, event| (acc * 31 + event.number).rem_euclid(MODULUS));
        more.push(Value::Int(acc));
    }
    let key = if over.by_key { key } else { least_key };
    let at = over.passes_time.then_some(end);
    Some(Event { at, more, ..Event::made(key, greatest, sum) })
}

fn aggregate(asked: Asked, events: &[&Event]) -> Value {
    let values: Vec<i64> = events.iter().filter_map(|event| event.value).collect();
    let number = |event: Option<&&Event>| option(event.map(|event| event.number));
    let count = |count: usize| Value::Int(count as i64);
    let ranked = || events.iter().filter(|event| event.value.is_some());
    match asked {
        Asked::Count => count(events.len()),
        Asked::CountOfValues => count(values.len()),
        Asked::Sum => Value::Int(values.iter().sum()),
        Asked::Mean if values.is_empty() => Value::Null,
        Asked::Mean => Value::Float(values.iter().sum::<i64>() as f64 / values.len() as f64),
        Asked::Least => option(values.iter().min().copied()),
        Asked::Greatest => option(values.iter().max().copied()),
        Asked::Distinct => count(by_frequency(&values).len()),
        Asked::Variance => variance(&values),
        Asked::AnyEven => Value::Bool(events.iter().any(|event| event.number % 2 == 0)),
        Asked::AllEven => Value::Bool(events.iter().all(|event| event.number % 2 == 0)),
        Asked::FirstNumber => number(events.first()),
        Asked::LastNumber => number(events.last()),
        // The first of equals.
        Asked::NumberOfLeast => number(ranked().min_by_key(|event| event.value)),
        Asked::NumberOfGreatest => number(ranked().rev().max_by_key(|event| event.value)),
        Asked::Frequent(rank) => option(by_frequency(&values).get(rank).map(|(value, _)| *value)),
        Asked::Times(rank) => count(by_frequency(&values).get(rank).map_or(0, |(_, times)| *times)),
    }
}

/// Returns values and how often they are there, the most frequent first, of those as frequent the one that came first.
fn by_frequency(values: &[i64]) -> Vec<(i64, usize)> {
    let mut counts: Vec<(i64, usize)> = Vec::new();
    for &value in values {
        match counts.iter_mut().find(|(other, _)| *other == value) {
            Some((_, times)) => *times += 1,
            None => counts.push((value, 1)),
        }
    }
    counts.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    counts
}

/// Returns the variance of a sample. Sums of so few small numbers are exact.
fn variance(values: &[i64]) -> Value {
    let count = values.len() as i64;
    if count < 2 {
        return Value::Null;
    }
    let (sum, squares) = (values.iter().sum::<i64>(), values.iter().map(|value| value * value).sum::<i64>());
    Value::Float((count * squares - sum * sum) as f64 / (count * (count - 1)) as f64)
}
