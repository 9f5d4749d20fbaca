//! Typed builders for plans: the Rust front end.
