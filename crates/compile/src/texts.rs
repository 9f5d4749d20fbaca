//! Functions of texts. What they are is said in `tidemill_plan`'s [`tidemill_plan::TextCall`].

use memchr::memmem;
use tidemill_plan::TEXT_MAX;

/// Returns the first place of a part within `text[start:end]`, in characters; −1 if it is not there.
pub fn find(text: &str, part: &str, start: i64, end: i64) -> i64 {
    let len = characters(text);
    let (start, end) = (from_end(start, len), from_end(end, len).min(len));
    if start > end {
        return -1;
    }
    let (first, last) = (byte_at(text, start), byte_at(text, end));
    let found = memmem::find(&text.as_bytes()[first..last], part.as_bytes());
    found.map_or(-1, |at| start + characters(&text[first..first + at]))
}

/// The text with so many places of a part replaced; none where it would be too long.
pub fn replace(text: &str, old: &str, new: &str, count: i64) -> Option<String> {
    let places = if old.is_empty() {
        text.chars().count() + 1
    } else {
        memmem::find_iter(text.as_bytes(), old.as_bytes()).count()
    };
    let places = usize::try_from(count).map_or(places, |count| places.min(count));
    let bytes = text.len() as u128 + places as u128 * new.len() as u128 - places as u128 * old.len() as u128;
    (bytes <= text.len().max(TEXT_MAX) as u128).then(|| text.replacen(old, new, places))
}

/// The characters from one place to before another.
pub fn slice(text: &str, start: i64, stop: i64) -> &str {
    let len = characters(text);
    let (start, stop) = (from_end(start, len).min(len), from_end(stop, len).min(len));
    if start >= stop {
        return &text[..0];
    }
    let first = byte_at(text, start);
    let rest = &text[first..];
    &rest[..byte_at(rest, stop - start)]
}

/// The character at a place, if there is one.
pub fn at(text: &str, place: i64) -> Option<&str> {
    let len = characters(text);
    let place = if place < 0 { place + len } else { place };
    (0..len).contains(&place).then(|| slice(text, place, place + 1))
}

/// The text with zeros up to a width, after its sign; none where it would be too long.
pub fn zfill(text: &str, width: i64) -> Option<String> {
    let missing = usize::try_from(width.saturating_sub(characters(text))).unwrap_or(0);
    if missing > 0 && text.len().saturating_add(missing) > TEXT_MAX {
        return None;
    }
    let (sign, digits) = text.split_at(text.starts_with(['+', '-']).into());
    Some([sign, &"0".repeat(missing), digits].concat())
}

/// The parts between separators.
pub fn parts<'a>(text: &'a str, separator: &'a str, most: i64) -> impl Iterator<Item = &'a str> {
    text.splitn(usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1)), separator)
}

/// The parts between white space. The last of as many as there may be has what is left, with the white space behind it.
pub fn spaced_parts(text: &str, most: i64) -> impl Iterator<Item = &str> {
    let (mut rest, mut left) = (text, if most < 0 { i64::MAX } else { most });
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(is_space);
        let end = if left == 0 { rest.len() } else { rest.find(is_space).unwrap_or(rest.len()) };
        let (part, after) = rest.split_at(end);
        (rest, left) = (after, left - 1);
        (!part.is_empty()).then_some(part)
    })
}

/// One of these parts, by its place.
pub fn part_at<'a, I: Iterator<Item = &'a str>>(parts: impl Fn() -> I, place: i64) -> Option<&'a str> {
    let place = if place < 0 { place + parts().count() as i64 } else { place };
    parts().nth(usize::try_from(place).ok()?)
}

/// Returns whether Python's texts take a character for white space: four more than its numbers and Unicode do.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn characters(text: &str) -> i64 {
    text.chars().count() as i64
}

/// A place that is not negative.
fn from_end(place: i64, len: i64) -> i64 {
    if place < 0 { (place + len).max(0) } else { place }
}

/// The byte at which a character begins, or the end of the text.
fn byte_at(text: &str, character: i64) -> usize {
    text.char_indices().nth(character as usize).map_or(text.len(), |(at, _)| at)
}
