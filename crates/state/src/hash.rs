//! The hash of a key. It is part of the storage format, because it decides a key's virtual node. So it must not
//! depend on the machine, the process or a library's version (XXH3 is a fixed specification).

use tidemill_model::VIRTUAL_NODE_COUNT;
use xxhash_rust::xxh3::xxh3_64;

const _: () = assert!(VIRTUAL_NODE_COUNT == 256, "the top eight bits of the hash name the node");

/// Returns the hash of a one-word key: a folded 128-bit product (as in wyhash and foldhash).
#[inline(always)]
pub fn hash_word(word: u64) -> u64 {
    let product = (word ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93_u128;
    (product >> 64) as u64 ^ product as u64
}

/// Returns the hash of a text or bytes key.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Returns the hash of a composite key, folded from the hashes of its parts in order.
#[inline]
pub fn combine(hash: u64, part: u64) -> u64 {
    hash_word(hash.rotate_left(23) ^ part)
}

/// Returns the hash of a key from the hashes of its parts: that of a single part, or all of them combined.
#[inline]
pub fn hash_parts(mut parts: impl ExactSizeIterator<Item = u64>) -> u64 {
    match parts.len() {
        1 => parts.next().expect("one part"),
        _ => parts.fold(0, combine),
    }
}

/// Returns the hash of a composite key of words.
#[inline]
pub fn hash_of_words(words: impl ExactSizeIterator<Item = u64>) -> u64 {
    hash_parts(words.map(hash_word))
}

/// Returns the virtual node of a hash: its top bits.
#[inline(always)]
pub fn virtual_node_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

/// Returns the sixteen bits of a hash that an index keeps as a tag. Other bits choose the node and the bucket. Never 0.
#[inline(always)]
pub fn tag_of(hash: u64) -> u16 {
    (hash >> 40) as u16 | 1
}
