//! Context of a trace that a client is in: the header `traceparent` of W3C Trace Context, and where clients of PostgreSQL say it.

use crate::percent::decoded;
use hyper::HeaderMap;

/// The longest `tracestate` that is passed on.
const STATE_BYTES_MAX: usize = 512;
/// Bytes of a `traceparent` of version 0.
const PARENT_BYTES: usize = 55;

/// A span of a client, in which a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// A flag: whether the client keeps the trace.
    pub is_sampled: bool,
    /// The `tracestate`, if there is one.
    pub state: String,
}

impl Parent {
    /// Reads a `traceparent`; none if it is not one. Of a later version the fields of this one are read.
    pub fn read(text: &str) -> Option<Parent> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = bytes::<1>(version)?[0];
        let has_more = parts.next().is_some();
        if version == u8::MAX || version == 0 && (has_more || text.len() != PARENT_BYTES) {
            return None;
        }
        let (trace, span, flags) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?[0]);
        let is_sampled = flags & 1 == 1;
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then(|| Parent { trace, span, is_sampled, state: String::new() })
    }

    /// Reads the headers of a request. Several `traceparent` are none.
    pub fn of_headers(headers: &HeaderMap) -> Option<Parent> {
        let mut given = headers.get_all("traceparent").iter();
        let (Some(first), None) = (given.next(), given.next()) else { return None };
        let mut parent = Parent::read(first.to_str().ok()?.trim())?;
        let states: Vec<&str> = headers.get_all("tracestate").iter().filter_map(|state| state.to_str().ok()).collect();
        let state = states.join(",");
        if state.len() <= STATE_BYTES_MAX {
            parent.state = state;
        }
        Some(parent)
    }

    /// Reads the comment at the end of a statement as `sqlcommenter` writes it, `/*...,traceparent='...',...*/`; gives the
    /// statement without it. None if there is no such comment.
    pub fn of_comment(text: &str) -> Option<(&str, Parent)> {
        let trimmed = text.trim_end().trim_end_matches(';').trim_end();
        let (statement, comment) = trimmed.strip_suffix("*/")?.rsplit_once("/*")?;
        let value = |name: &str| {
            let pairs = comment.split(',').filter_map(|pair| pair.trim().split_once('='));
            let mut found = pairs.filter(|(key, _)| *key == name);
            found.next()?.1.strip_prefix('\'')?.strip_suffix('\'')
        };
        let mut parent = Parent::read(value("traceparent")?)?;
        if let Some(state) = value("tracestate").filter(|state| state.len() <= STATE_BYTES_MAX) {
            parent.state = unescaped(state);
        }
        Some((statement, parent))
    }

    /// Reads a name of an application: a `traceparent`, alone or among other words.
    pub fn of_application(name: &str) -> Option<Parent> {
        let words = name.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '=' | '\'' | '/'));
        words.filter(|word| word.len() >= PARENT_BYTES).find_map(Parent::read)
    }
}

/// Returns the bytes that lower-case hexadecimal digits stand for; none if others are there, or another number of them.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Returns a value of a comment, whose signs are percent-encoded; one that is not rightly so stays as it is.
fn unescaped(text: &str) -> String {
    decoded(text).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_and_what_is_none_is_not() {
        let parent = Parent::read(GOOD).expect("it is one");
        assert_eq!(parent.trace[..4], [0x0a, 0xf7, 0x65, 0x19]);
        assert_eq!(parent.span[..2], [0xb7, 0xad]);
        assert!(parent.is_sampled);
        assert!(!Parent::read(&GOOD.replace("-01", "-00")).expect("it is one").is_sampled);
        // A later version may have more, and flags that mean something else.
        assert!(Parent::read(&format!("cc{}-what", &GOOD[2..].replace("-01", "-ff"))).expect("it is one").is_sampled);
        let zeros = |from: usize, to: usize| format!("{}{}{}", &GOOD[..from], "0".repeat(to - from), &GOOD[to..]);
        let wrong = [
            zeros(3, 35),
            zeros(36, 52),
            format!("{GOOD}-more"),
            format!("ff{}", &GOOD[2..]),
            GOOD.to_uppercase(),
            GOOD[..54].to_owned(),
            GOOD.replace('-', "_"),
            GOOD.replace("0af7", "0ag7"),
            String::new(),
            "---".to_owned(),
            "00-äf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        ];
        wrong.iter().for_each(|wrong| assert_eq!(Parent::read(wrong), None, "{wrong}"));
    }

    #[test]
    fn a_comment_is_taken_off_if_it_has_a_parent() {
        let text = format!("select * from pay(1) /*route='a%2Fb',traceparent='{GOOD}',tracestate='a%3D1%2Cb%3D2'*/;");
        let (statement, parent) = Parent::of_comment(&text).expect("there is one");
        assert_eq!(statement, "select * from pay(1) ");
        assert_eq!((parent.state.as_str(), parent.is_sampled), ("a=1,b=2", true));
        for text in [
            "select 1".to_owned(),
            "select 1 /*traceparent='00'*/".to_owned(),
            format!("select 1 /*traceparent={GOOD}*/"),
            format!("/*traceparent='{GOOD}'*/ select 1"),
            format!("select '/*traceparent=''{GOOD}''*/'"),
        ] {
            assert_eq!(Parent::of_comment(&text), None, "{text}");
        }
    }

    #[test]
    fn an_application_may_have_it_in_its_name() {
        for name in [GOOD.to_owned(), format!("web {GOOD}"), format!("web,traceparent='{GOOD}'")] {
            assert_eq!(Parent::of_application(&name), Parent::read(GOOD), "{name}");
        }
        assert_eq!(Parent::of_application("psql"), None);
    }

    #[test]
    fn headers_have_one_parent_or_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(Parent::of_headers(&headers), None);
        headers.append("traceparent", GOOD.parse().expect("visible"));
        headers.append("tracestate", "a=1".parse().expect("visible"));
        headers.append("tracestate", "b=2".parse().expect("visible"));
        assert_eq!(Parent::of_headers(&headers).expect("one").state, "a=1,b=2");
        headers.append("traceparent", GOOD.parse().expect("visible"));
        assert_eq!(Parent::of_headers(&headers), None);
    }
}
