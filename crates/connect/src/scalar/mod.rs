//! Single values as text: how each type is read and written. CSV and JSON Lines share it.

pub(crate) mod parse;
pub(crate) mod print;
