//! Messages: the input is what a client sends. If it begins with a zero, as a startup message does, it is sent as it is;
//! else a startup message goes before it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_fuzz::{Served, answered};

/// Protocol 3.0, of the user ada.
const STARTUP: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0ada\0\0";

/// The types of messages that a server sends.
const TAGS: &[u8] = b"1234CDEGIKNRSTVZAnstvWH";

fuzz_target!(|content: &[u8]| {
    let served = Served::here();
    let begins = content.first().is_some_and(|&first| first > 0);
    let content = if begins { [STARTUP, content].concat() } else { content.to_vec() };
    let said = answered(served.postgres(), &content);
    check_messages(&said, begins);
    served.check();
});

/// Every message has a tag and a length; only the end of the connection cuts one. An encryption that is asked for is
/// refused with a byte alone.
fn check_messages(said: &[u8], begins: bool) {
    let mut rest = said;
    while !begins && rest.first() == Some(&b'N') && rest.get(1).is_none_or(|next| b"NRE".contains(next)) {
        rest = &rest[1..];
    }
    while let Some((&[tag, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        assert!(TAGS.contains(&tag) && (4..1 << 28).contains(&length), "no message: {rest:?}");
        rest = after.get(length - 4..).unwrap_or_default();
    }
}
