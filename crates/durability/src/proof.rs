//! The chain of proof: each entry of the log has a hash that covers the entry and all entries before it.
//!
//! The *head* after an entry is SHA-256 over the head before, the state's id, its course, the epoch and the payload of the
//! entry, numbers as eight bytes, little-endian. So who keeps the head of one epoch can tell later whether a state is still
//! one that came of the same entries up to that epoch. The 64-bit check of a record finds damage; it does not find a record
//! that somebody has written anew, together with its check.
//!
//! A chain begins at a checkpoint: the first one of a state, or the newest one when a state without a chain is opened. Its
//! first head has no head before it, and the text [`BEGINS`] for a payload. A return to a savepoint is an entry, too
//! ([`Restored`]). No payload of an epoch begins like the text of either.
//!
//! # Invariants
//!
//! 1. The head of an epoch is a function of the head of the epoch before and of the entry. Where records are written anew,
//!    after a crash, their heads stay.
//! 2. The manifest has the head of its checkpoint's epoch, so a state is checked from there on. No record has one: whoever can
//!    change a record can write a head, too.
//! 3. Only a head of a durable entry is shown. Another one may be of an entry that a crash takes, and another entry may then
//!    have its epoch.

use crate::place::Course;
use crate::planted::{Bug, Planted};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Bytes of a hash.
const BYTES: usize = 32;

/// The payload of the entry with which a chain begins, before the root of its checkpoint.
const BEGINS: &[u8] = b"tidemill begins";

/// The payload of the entry with which a state is put back to a savepoint, before that one's head and the epoch of the head
/// before.
const RESTORES: &[u8] = b"tidemill restores";

/// A SHA-256. As text 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hash256([u8; BYTES]);

impl Hash256 {
    /// Returns the hash of parts, one after the other.
    pub fn of(parts: &[&[u8]]) -> Hash256 {
        let mut hasher = Hasher::default();
        parts.iter().for_each(|part| hasher.add(part));
        hasher.end()
    }

    /// Makes a hash of its bytes.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Hash256 {
        Hash256(bytes)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// Computes a SHA-256 of bytes that come in parts.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Appends bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes.
    pub fn end(self) -> Hash256 {
        Hash256(self.0.finalize().into())
    }
}

impl fmt::Display for Hash256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash256, String> {
        let wrong = || format!("'{text}' is no hash of {} hexadecimal digits", 2 * BYTES);
        if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Hash256(bytes))
    }
}

impl From<Hash256> for String {
    fn from(hash: Hash256) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash256 {
    type Error = String;

    fn try_from(text: String) -> Result<Hash256, String> {
        text.parse()
    }
}

/// The head of a chain: the hash of the entry of an epoch. As text `HASH@EPOCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The epoch.
    pub epoch: u64,
    /// The hash.
    pub hash: Hash256,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.hash, self.epoch)
    }
}

impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Head, String> {
        let wrong = || format!("'{text}' is no head of a chain; give HASH@EPOCH, as 'verify' and /health show it");
        let (hash, epoch) = text.split_once('@').ok_or_else(wrong)?;
        let hash = hash.parse().map_err(|_| wrong())?;
        Ok(Head { epoch: epoch.parse().map_err(|_| wrong())?, hash })
    }
}

/// The proof that a checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The epoch after which the chain begins.
    pub begins: u64,
    /// The head at the checkpoint's epoch.
    pub head: Hash256,
    /// The hash of its runs' hashes; none if a run was not hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Hash256>,
}

/// A return to a savepoint: an entry of the chain of proof. It follows the last entry of the course that ends, and the first one
/// of the new course follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The course that begins with it.
    pub course: u64,
    /// The epoch of the savepoint, after which the new course goes on.
    pub epoch: u64,
    /// The head of the savepoint.
    pub savepoint: Hash256,
    /// The last epoch of the course that ended, as far as its log could be read.
    pub before_epoch: u64,
    /// The head after that epoch.
    pub before: Hash256,
}

impl Restored {
    /// Returns the head before it.
    pub fn before(&self) -> Head {
        Head { epoch: self.before_epoch, hash: self.before }
    }

    /// Returns the head after it, of the state of this id.
    pub fn head(&self, id: u64) -> Head {
        let course = Course { id, number: self.course };
        let mut chain = Chain::at(course, self.before_epoch, Proof { begins: 0, head: self.before, root: None });
        let payload = [RESTORES, self.savepoint.bytes(), &self.before_epoch.to_le_bytes()].concat();
        chain.link(self.epoch, &payload);
        chain.head()
    }
}

/// A chain up to some entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    course: Course,
    begins: u64,
    head: Head,
    planted: Planted,
}

impl Chain {
    /// Begins a chain after an epoch.
    pub fn begin(course: Course, epoch: u64) -> Chain {
        let before = Hash256([0; BYTES]);
        let mut chain =
            Chain { course, begins: epoch, head: Head { epoch, hash: before }, planted: Planted::default() };
        chain.link(epoch, BEGINS);
        chain
    }

    /// Returns the chain of a course at a checkpoint of an epoch.
    pub fn at(course: Course, epoch: u64, proof: Proof) -> Chain {
        let head = Head { epoch, hash: proof.head };
        Chain { course, begins: proof.begins, head, planted: Planted::default() }
    }

    /// Returns the chain that goes on from another head.
    pub fn from(self, head: Head) -> Chain {
        Chain { head, ..self }
    }

    /// Plants a bug.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// Adds the entry of an epoch.
    pub fn link(&mut self, epoch: u64, payload: &[u8]) {
        let Course { id, number } = self.course;
        let hashed = if self.planted.is(Bug::HeadLeavesOutEpoch) { 0 } else { epoch };
        let numbers = [id, number, hashed].map(u64::to_le_bytes);
        let hash = Hash256::of(&[self.head.hash.bytes(), &numbers.concat(), payload]);
        self.head = Head { epoch, hash };
    }

    /// Returns the head.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Returns the epoch after which the chain begins.
    pub fn begins(&self) -> u64 {
        self.begins
    }

    /// Returns the proof that a checkpoint of the head's epoch has.
    pub fn proof(&self) -> Proof {
        assert!(self.begins <= self.head.epoch, "a chain begins before its heads");
        Proof { begins: self.begins, head: self.head.hash, root: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: Course = Course { id: 7, number: 1 };

    fn linked(course: Course, entries: &[(u64, &[u8])]) -> Head {
        let mut chain = Chain::begin(course, 3);
        entries.iter().for_each(|&(epoch, payload)| chain.link(epoch, payload));
        chain.head()
    }

    #[test]
    fn a_head_is_the_documented_hash() {
        let numbers = |epoch: u64| [7u64, 1, epoch].map(u64::to_le_bytes).concat();
        let first = Hash256::of(&[&[0; 32], &numbers(3), b"tidemill begins"]);
        let second = Hash256::of(&[first.bytes(), &numbers(4), b"abc"]);
        assert_eq!(linked(COURSE, &[(4, b"abc")]), Head { epoch: 4, hash: second });
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash256::of(&[b"a", b"bc"]).to_string(), known, "the example of FIPS 180");
    }

    #[test]
    fn everything_changes_a_head() {
        let head = linked(COURSE, &[(4, b"abc"), (5, b"de")]).hash;
        for other in [
            linked(Course { id: 8, ..COURSE }, &[(4, b"abc"), (5, b"de")]),
            linked(Course { number: 0, ..COURSE }, &[(4, b"abc"), (5, b"de")]),
            linked(COURSE, &[(4, b"abc"), (6, b"de")]),
            linked(COURSE, &[(4, b"abd"), (5, b"de")]),
            linked(COURSE, &[(4, b"abcde")]),
            linked(COURSE, &[(4, b"abc"), (5, b"de"), (6, b"")]),
        ] {
            assert_ne!(other.hash, head);
        }
    }

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = linked(COURSE, &[(4, b"abc")]);
        assert_eq!(head.to_string().parse(), Ok(head));
        let (hash, _) = head.to_string().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("two parts");
        for wrong in [&hash[..], "", "@4", "12@4", &format!("{hash}@"), &format!("{hash}@-1"), &format!("{hash}0@4")] {
            assert!(wrong.parse::<Head>().is_err(), "{wrong}");
        }
        let wide = "é".repeat(32);
        assert!(wide.parse::<Hash256>().is_err(), "64 bytes that are no digits");
    }

    #[cfg(feature = "planted")]
    #[test]
    fn a_head_without_its_epoch_is_planted() {
        let heads = |planted| {
            [4, 5].map(|epoch| {
                let mut chain = Chain::begin(COURSE, 3);
                chain.plant(planted);
                chain.link(epoch, b"abc");
                chain.head().hash
            })
        };
        let [symptom, again] = heads(Planted::new(Bug::HeadLeavesOutEpoch));
        assert_eq!(symptom, again, "the same payload has the same head in another epoch");
        let [control, other] = heads(Planted::default());
        assert_ne!(control, other);
    }
}
