//! The bytes of the statements and portals of a connection.
//!
//! They are counted about: what was understood of a statement takes more than its text. What is small and has no name is not
//! counted, since there is one of it.

use super::error::{PgError, PgResult};
use super::frontend::Target;
use super::statement::{Prepared, Statement};
use crate::shares::{Client, Share, Shares};
use std::collections::HashMap;

/// About the bytes of what was understood of a word or sign.
const PART_BYTES: usize = 64;
/// About the bytes of a statement or portal beside its text and its values.
const OWN_BYTES: usize = 512;
/// The size below which an unnamed statement or portal is not counted, bytes.
const SMALL_BYTES: usize = 1 << 14;
/// The part of the limit that one connection may have.
const OF_CONNECTION: usize = 8;

/// The memory that the statements and portals of a connection take.
pub struct Memory {
    all: Share,
    most: usize,
    parts: HashMap<(Target, String), usize>,
}

impl Memory {
    /// Counts those of a client, who has its part of all.
    pub fn new(shares: &Shares, client: &Client, bytes_max: usize) -> Memory {
        Memory { all: shares.nothing(client), most: bytes_max / OF_CONNECTION, parts: HashMap::new() }
    }

    /// Counts a statement or portal; one of the same name goes.
    pub fn keep(&mut self, target: Target, name: &str, bytes: usize) -> PgResult<()> {
        self.forget(target, name);
        if name.is_empty() && bytes < SMALL_BYTES {
            return Ok(());
        }
        let (own, most) = (self.all.amount(), self.most);
        if own > 0 && own + bytes > most {
            let message = format!("statements and portals of this connection take {own} bytes of {most}; close some");
            return Err(PgError::new(super::error::code::OVER_LIMIT, message));
        }
        if !self.all.grow(bytes) {
            return Err(PgError::busy("statements and portals of all connections take too much memory"));
        }
        self.parts.insert((target, name.to_owned()), bytes);
        Ok(())
    }

    /// Stops counting a statement or portal.
    pub fn forget(&mut self, target: Target, name: &str) {
        if self.parts.is_empty() {
            return;
        }
        if let Some(bytes) = self.parts.remove(&(target, name.to_owned())) {
            self.all.shrink(bytes);
        }
    }

    /// Stops counting all statements, or all portals.
    pub fn forget_all(&mut self, target: Target) {
        let of = |(other, _): &(Target, String)| *other == target;
        let bytes: usize = self.parts.iter().filter(|(key, _)| of(key)).map(|(_, bytes)| bytes).sum();
        self.parts.retain(|key, _| !of(key));
        self.all.shrink(bytes);
    }
}

/// Returns the approximate number of bytes that a prepared statement with this text takes.
pub fn of_statement(prepared: &Prepared, text: &str) -> usize {
    let understood = match prepared.statement {
        // The text is all that is stored of a query for the engine.
        Statement::Query(_) => 0,
        _ => parts(text) * PART_BYTES,
    };
    OWN_BYTES + 2 * text.len() + understood
}

/// Returns the approximate number of bytes that a portal takes, given the bytes of its parameter values.
pub fn of_portal(values: usize) -> usize {
    OWN_BYTES + values
}

/// Returns the number of words and signs of a text.
fn parts(text: &str) -> usize {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut in_word = false;
    let begins = |byte: u8| {
        let is_part = if is_word(byte) { !in_word } else { !byte.is_ascii_whitespace() };
        in_word = is_word(byte);
        is_part
    };
    text.bytes().map(begins).filter(|&is_part| is_part).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Who;
    use tidemill_durability::Planted;

    fn memory(shares: &Shares, name: &str) -> Memory {
        Memory::new(shares, &Client::postgres(Who::User(name.into())), 800_000)
    }

    #[test]
    fn what_is_kept_is_counted_until_it_goes() {
        let shares = Shares::bytes(800_000, Planted::default());
        let mut of = memory(&shares, "ada");
        of.keep(Target::Statement, "a", 40_000).expect("there is room");
        of.keep(Target::Portal, "a", 40_000).expect("there is room");
        of.keep(Target::Statement, "a", 50_000).expect("in its own place");
        assert_eq!(shares.taken(), 90_000);
        assert!(of.keep(Target::Portal, "b", 20_000).is_err());
        of.forget(Target::Statement, "a");
        of.keep(Target::Portal, "b", 20_000).expect("there is room again");
        of.keep(Target::Statement, "", 100).expect("it is small");
        assert_eq!(shares.taken(), 60_000);
        of.forget_all(Target::Portal);
        assert_eq!(shares.taken(), 0);
        of.keep(Target::Portal, "large", 700_000).expect("it is the first");
        drop(of);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn all_connections_have_an_end_and_each_user_a_part() {
        let shares = Shares::bytes(800_000, Planted::default());
        let connections = |name| {
            let one = || {
                let mut of = memory(&shares, name);
                of.keep(Target::Statement, "a", 90_000).is_ok().then_some(of)
            };
            (0..20).map_while(|_| one()).collect::<Vec<Memory>>()
        };
        let ada = connections("ada");
        assert_eq!(ada.len(), 8);
        assert_eq!(connections("bob").len(), 4);
    }

    #[test]
    fn parts_are_words_and_signs() {
        assert_eq!(parts("select 1+1, äöü from \"a b\""), 11);
        assert_eq!((parts(""), parts("  "), parts("a")), (0, 0, 1));
    }
}
