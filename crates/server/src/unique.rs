//! A check that no object of a JSON text has a key twice. Of two values readers take one or the other, so neither is
//! meant.
//!
//! Nothing is made of the values, so numbers of any size and any nesting pass.

use serde::de::IgnoredAny;
use std::collections::HashSet;

/// Checks a text; the error says what is wrong if it is no JSON, or has an object with a key twice.
pub fn check(text: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<IgnoredAny>(text).map_err(|error| error.to_string())?;
    // The open arrays and objects, from the outermost: the keys so far if it is an object.
    let mut open: Vec<Option<HashSet<String>>> = Vec::new();
    let (mut at, mut is_key) = (0, false);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'{' => open.push(Some(HashSet::new())),
            b'[' => open.push(None),
            b'}' | b']' => _ = open.pop(),
            b'"' => {
                let end = end_of_string(text, at);
                if let Some(Some(keys)) = open.last_mut().filter(|_| is_key) {
                    let key: String = serde_json::from_slice(&text[at..end]).map_err(|error| error.to_string())?;
                    if let Some(twice) = keys.replace(key) {
                        return Err(format!("the key '{twice}' is there twice"));
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        is_key = match byte {
            b'{' | b',' => true,
            b':' | b'[' => false,
            _ => is_key,
        };
        at += 1;
    }
    Ok(())
}

/// Returns the end of the string that begins here.
fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_there_once() {
        for right in [
            "1",
            "-1",
            "1e400",
            "null",
            "true",
            "\"a\"",
            "[]",
            r#"["a","a",{"a":"a"},"a"]"#,
            r#"{"a":["a","a"],"b":"a","c":"b"}"#,
            r#"{"a":{"a":1},"b":[{"a":1},{"a":2}], "c" : "{\"a\":1,\"a\":1}"}"#,
        ] {
            assert_eq!(check(right.as_bytes()), Ok(()), "{right}");
        }
        for wrong in [
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"c":2,"a":3}}]"#,
            r#"{"a":[1,{"b":[]},2] , "a":1}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#"{"\"":1,"\"":1}"#,
        ] {
            assert!(check(wrong.as_bytes()).is_err_and(|why| why.contains("twice")), "{wrong}");
        }
        for wrong in ["{", "", "[1", "\"a", "{\"a\"}"] {
            assert!(check(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(check(&[vec![b'['; 100_000], vec![b']'; 100_000]].concat()), Ok(()));
    }
}
