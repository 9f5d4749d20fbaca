//! The encoding of one record.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before a record's payload.
pub const HEADER: usize = 48;
/// Records begin at multiples of this.
pub const ALIGNMENT: usize = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"TMR1");

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The payload is an epoch's.
    Epoch,
    /// States how far the log is durable; may also hold a note that belongs to no epoch.
    Mark,
}

/// A record without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub kind: Kind,
    /// Bytes of payload.
    pub length: u64,
    /// The epoch; of a mark, the epoch of the record before.
    pub epoch: u64,
    /// The check of the record before.
    pub chain: u64,
    /// Everything before this position was durable when the record was written.
    pub durable: u64,
}

/// Returns the bytes of a record with a payload of this length, including padding.
pub fn size(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(ALIGNMENT)
}

/// Returns the seed of a record's check, so that the same bytes have another check in another place.
fn seed(log: u64, position: u64) -> u64 {
    log ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Appends a record for `position`; returns its check.
pub fn write(into: &mut Vec<u8>, log: u64, position: u64, header: &Header, payload: &[u8]) -> u64 {
    assert_eq!(header.length, payload.len() as u64, "a header counts its payload");
    assert!(header.durable <= position, "a record states only what is before it");
    let start = into.len();
    let kind: u32 = match header.kind {
        Kind::Epoch => 1,
        Kind::Mark => 2,
    };
    into.extend_from_slice(&[0; 8]);
    into.extend_from_slice(&MAGIC.to_le_bytes());
    into.extend_from_slice(&kind.to_le_bytes());
    for word in [header.length, header.epoch, header.chain, header.durable] {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(payload);
    into.resize(start + size(payload.len()), 0);
    let check = xxh3_64_with_seed(&into[start + 8..], seed(log, position));
    into[start..start + 8].copy_from_slice(&check.to_le_bytes());
    check
}

/// A record that was read.
pub struct Read<'a> {
    /// Its header.
    pub header: Header,
    /// Its check.
    pub check: u64,
    /// Its payload.
    pub payload: &'a [u8],
    /// Its size in bytes.
    pub size: usize,
}

/// Returns the record at the start of `bytes`, which lie at `position`; otherwise its fault.
pub fn read(bytes: &[u8], log: u64, position: u64) -> Result<Read<'_>, &'static str> {
    read_checked(bytes, log, position, true)
}

/// Reads a record as [`read`] does; verifies the check only if `checked`.
pub fn read_checked(bytes: &[u8], log: u64, position: u64, checked: bool) -> Result<Read<'_>, &'static str> {
    let word = |at: usize| -> Result<u64, &'static str> {
        let bytes = bytes.get(at..at + 8).ok_or("the file ends inside a record")?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let (check, tag, length) = (word(0)?, word(8)?, word(16)?);
    let kind = match (tag as u32, tag >> 32) {
        (MAGIC, 1) => Kind::Epoch,
        (MAGIC, 2) => Kind::Mark,
        _ => return Err("no record begins here"),
    };
    let header = Header { kind, length, epoch: word(24)?, chain: word(32)?, durable: word(40)? };
    let payload = usize::try_from(length).ok().filter(|&length| length <= bytes.len());
    let payload = payload.ok_or("the file ends inside a record")?;
    let size = size(payload);
    let all = bytes.get(8..size).ok_or("the file ends inside a record")?;
    if checked && xxh3_64_with_seed(all, seed(log, position)) != check {
        return Err("a record does not have the check that it was written with");
    }
    // No hash covers it, so it has one form.
    if checked && bytes[HEADER + payload..size].iter().any(|&byte| byte != 0) {
        return Err("a record is not padded with zeros");
    }
    Ok(Read { header, check, payload: &bytes[HEADER..HEADER + payload], size })
}
