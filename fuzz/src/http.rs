//! Requests: the input is what a client sends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_fuzz::{Served, answered};

fuzz_target!(|content: &[u8]| {
    let served = Served::here();
    let said = answered(served.http(), content);
    assert!(said.is_empty() || said.starts_with(b"HTTP/1."), "no response: {:?}", String::from_utf8_lossy(&said));
    served.check();
});
