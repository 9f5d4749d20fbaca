//! Functions of texts, which are lists of characters here.

use tidemill_model::Value;
use tidemill_plan::{TEXT_MAX, TextCall};

/// A function of texts and ints; none where it fails.
pub fn call(op: TextCall, arguments: &[Value]) -> Option<Value> {
    let text = |number: usize| match &arguments[number] {
        Value::Str(text) => text.chars().collect::<Vec<char>>(),
        other => panic!("{other} where a text belongs"),
    };
    let int = |number: usize| match arguments[number] {
        Value::Int(value) => value,
        ref other => panic!("{other} where an int belongs"),
    };
    let parts = || match op {
        TextCall::Part | TextCall::Parts => parts(&text(0), &text(1), int(2)),
        _ => spaced_parts(&text(0), int(1)),
    };
    match op {
        TextCall::Find => Some(Value::Int(find(&text(0), &text(1), int(2), int(3)))),
        TextCall::Replace => replace(&text(0), &text(1), &text(2), int(3)).map(|made| string(&made)),
        TextCall::Slice => {
            let text = text(0);
            let len = text.len() as i64;
            let [start, stop] = [1, 2].map(|number| place(int(number), len).min(len) as usize);
            Some(string(text.get(start..stop).unwrap_or_default()))
        }
        TextCall::At => of_place(&text(0), int(1)).map(|character| string(&[*character])),
        TextCall::Zfill => {
            let mut text = text(0);
            let sign = usize::from(matches!(text.first(), Some('+' | '-')));
            let missing = usize::try_from(int(1).saturating_sub(text.len() as i64)).unwrap_or(0);
            if missing > 0 && bytes(&text).saturating_add(missing) > TEXT_MAX {
                return None;
            }
            text.splice(sign..sign, std::iter::repeat_n('0', missing));
            Some(string(&text))
        }
        TextCall::Part => of_place(&parts(), int(3)).map(|part| string(part)),
        TextCall::SpacedPart => of_place(&parts(), int(2)).map(|part| string(part)),
        TextCall::Parts | TextCall::SpacedParts => Some(Value::Int(parts().len() as i64)),
        TextCall::Separator => Some(string(&text(0))).filter(|text| *text != Value::Str(String::new())),
    }
}

fn string(characters: &[char]) -> Value {
    Value::Str(characters.iter().collect())
}

fn bytes(text: &[char]) -> usize {
    text.iter().map(|character| character.len_utf8()).sum()
}

/// A place, counted from the end where it is negative, but not before the start.
fn place(place: i64, len: i64) -> i64 {
    if place < 0 { (place + len).max(0) } else { place }
}

/// Returns the element at a place of a list, counted from its end where it is negative.
fn of_place<T>(list: &[T], place: i64) -> Option<&T> {
    let place = if place < 0 { place + list.len() as i64 } else { place };
    list.get(usize::try_from(place).ok()?)
}

fn find(text: &[char], part: &[char], start: i64, end: i64) -> i64 {
    let len = text.len() as i64;
    let (start, end) = (place(start, len), place(end, len).min(len));
    let stands = |at: &i64| at + part.len() as i64 <= end && text[*at as usize..].starts_with(part);
    (start..=end).find(stands).unwrap_or(-1)
}

fn replace(text: &[char], old: &[char], new: &[char], count: i64) -> Option<Vec<char>> {
    let bytes_max = bytes(text).max(TEXT_MAX);
    let (mut made, mut at, mut left) = (Vec::new(), 0, count);
    while at <= text.len() {
        if left != 0 && text[at..].starts_with(old) {
            made.extend(new);
            at += old.len();
            left -= i64::from(left > 0);
            if !old.is_empty() {
                continue;
            }
        }
        made.extend(text.get(at));
        at += 1;
        // It can be no shorter than it is now.
        if made.len() > bytes_max {
            return None;
        }
    }
    (bytes(&made) <= bytes_max).then_some(made)
}

fn parts(text: &[char], separator: &[char], most: i64) -> Vec<Vec<char>> {
    let (mut parts, mut at) = (vec![vec![]], 0);
    while at < text.len() {
        if text[at..].starts_with(separator) && (most < 0 || parts.len() as i64 <= most) {
            parts.push(vec![]);
            at += separator.len();
        } else {
            parts.last_mut().expect("there is one").push(text[at]);
            at += 1;
        }
    }
    parts
}

fn spaced_parts(text: &[char], most: i64) -> Vec<Vec<char>> {
    let is_space = |c: &char| crate::arithmetic::stripped(&c.to_string()).is_empty();
    let (mut parts, mut is_between) = (Vec::<Vec<char>>::new(), true);
    for character in text {
        let is_last = most >= 0 && parts.len() as i64 > most;
        match is_space(character) {
            true if is_last && !is_between => parts.last_mut().expect("it is in one").push(*character),
            true => is_between = true,
            false if is_between => {
                parts.push(vec![*character]);
                is_between = false;
            }
            false => parts.last_mut().expect("it is in one").push(*character),
        }
    }
    parts
}
