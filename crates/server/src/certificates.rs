//! The hash of a server's certificate, and the user whom a client's certificate names.
//!
//! # The hash
//!
//! A client binds its password to it: `tls-server-end-point` (RFC 5929, section 4.1). It is the hash that the certificate is signed with, but SHA-256 for those that are weaker. Of the certificate only the
//! name of that algorithm is read. One that is not known here has no hash, and then no binding is offered: a client that
//! insists on one does not connect, and one that does not loses nothing.
//!
//! # The user
//!
//! It is the common name (CN) of the subject, as PostgreSQL has it. A certificate with no common name or with several names nobody.

use crate::users::{User, Users};
use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use std::sync::Arc;

/// The hash of a certificate.
pub type EndPoint = Arc<[u8]>;

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
/// The tag of the version of a certificate, which those of version 1 leave out.
const VERSION: u8 = 0xa0;
/// The kinds of text that a name may have here: UTF-8, and two that are parts of ASCII (`PrintableString`, `IA5String`).
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// The name of the attribute that is the common name (2.5.4.3).
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// The names of algorithms of signatures, as DER has them, with what the certificate is hashed with.
const ALGORITHMS: [(&[u8], &Algorithm); 9] = [
    // RSA with MD5, SHA-1, SHA-256, SHA-384 and SHA-512 (1.2.840.113549.1.1).
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], &SHA384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], &SHA512),
    // ECDSA with SHA-1, SHA-256, SHA-384 and SHA-512 (1.2.840.10045.4).
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], &SHA384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], &SHA512),
];

/// Returns the hash of a certificate in DER, if the algorithm of its signature is known.
pub fn end_point(certificate: &[u8]) -> Option<EndPoint> {
    let name = algorithm(certificate)?;
    let (_, hash) = ALGORITHMS.iter().find(|(known, _)| *known == name)?;
    Some(digest(hash, certificate).as_ref().into())
}

/// The certificate that a client has shown, signed by an authority that the server trusts for that.
#[derive(Clone, Debug)]
pub struct Certified {
    name: Option<Arc<str>>,
}

impl Certified {
    /// Reads a certificate in DER.
    pub fn of(certificate: &[u8]) -> Certified {
        Certified { name: common_name(certificate).map(Arc::from) }
    }

    /// Returns the user that the certificate names.
    pub fn user<'a>(&self, users: &'a Users) -> Option<&'a User> {
        users.find(self.name.as_deref()?)
    }
}

/// Returns the one common name of the subject of a certificate.
fn common_name(certificate: &[u8]) -> Option<&str> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(whole, SEQUENCE)?;
    let rest = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = element(rest, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (_validity, rest) = element(rest, SEQUENCE)?;
    let (mut subject, _) = element(rest, SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let (mut attributes, others) = element(subject, SET)?;
        subject = others;
        while !attributes.is_empty() {
            let (attribute, others) = element(attributes, SEQUENCE)?;
            attributes = others;
            let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME {
                let text = TEXTS.iter().find_map(|text| element(value, *text))?.0;
                if found.replace(std::str::from_utf8(text).ok()?).is_some() {
                    return None;
                }
            }
        }
    }
    found
}

/// Returns the name of the algorithm that a certificate is signed with: it follows what is signed.
fn algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_signed, rest) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    Some(element(algorithm, OBJECT_IDENTIFIER)?.0)
}

/// Returns the content of the element that begins here, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    if found == tag { rest.split_at_checked(length) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let head = match length {
            0..0x80 => vec![tag, length as u8],
            0x80..0x100 => vec![tag, 0x81, length as u8],
            _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        [head, content.to_vec()].concat()
    }

    fn certificate(algorithm: &[u8], bytes: usize) -> Vec<u8> {
        let signed = wrapped(SEQUENCE, &vec![5; bytes]);
        let algorithm = wrapped(SEQUENCE, &[wrapped(OBJECT_IDENTIFIER, algorithm), vec![5, 0]].concat());
        wrapped(SEQUENCE, &[signed, algorithm, wrapped(3, &[0; 64])].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (name, hash) in ALGORITHMS {
            for bytes in [10, 200, 1_000] {
                let certificate = certificate(name, bytes);
                let wanted = digest(hash, &certificate);
                assert_eq!(end_point(&certificate).as_deref(), Some(wanted.as_ref()));
            }
        }
        // Ed25519 has no hash of its own.
        assert_eq!(end_point(&certificate(&[0x2b, 0x65, 0x70], 100)), None);
    }

    /// A certificate whose subject has these attributes.
    fn named(attributes: &[(&[u8], u8, &[u8])], version: &[u8]) -> Vec<u8> {
        let name = |attributes: &[(&[u8], u8, &[u8])]| {
            let one = |&(kind, tag, text): &(&[u8], u8, &[u8])| {
                wrapped(SET, &wrapped(SEQUENCE, &[wrapped(OBJECT_IDENTIFIER, kind), wrapped(tag, text)].concat()))
            };
            wrapped(SEQUENCE, &attributes.iter().flat_map(one).collect::<Vec<u8>>())
        };
        let issuer = name(&[(COMMON_NAME, 0x0c, b"authority")]);
        let (serial, filler) = (wrapped(INTEGER, &[7]), wrapped(SEQUENCE, &[5, 0]));
        let signed =
            [version.to_vec(), serial, filler.clone(), issuer, filler.clone(), name(attributes), filler.clone()];
        wrapped(SEQUENCE, &[wrapped(SEQUENCE, &signed.concat()), filler, wrapped(3, &[0; 8])].concat())
    }

    #[test]
    fn the_subject_names_the_user() {
        let version = wrapped(VERSION, &[2, 1, 2]);
        let organization: (&[u8], u8, &[u8]) = (&[0x55, 4, 10], 0x0c, b"eve");
        let ada: (&[u8], u8, &[u8]) = (COMMON_NAME, 0x0c, b"ada");
        for version in [&version[..], &[]] {
            assert_eq!(common_name(&named(&[organization, ada], version)), Some("ada"));
            assert_eq!(common_name(&named(&[(COMMON_NAME, 0x13, b"bob")], version)), Some("bob"));
        }
        assert_eq!(common_name(&named(&[organization], &version)), None);
        assert_eq!(common_name(&named(&[ada, (COMMON_NAME, 0x0c, b"eve")], &version)), None, "two names");
        assert_eq!(common_name(&named(&[(COMMON_NAME, 0x1e, b"\0a")], &version)), None, "UTF-16");
        assert_eq!(common_name(&named(&[(COMMON_NAME, 0x0c, b"\xff")], &version)), None, "no UTF-8");
        let whole = named(&[organization, ada], &version);
        for end in 0..whole.len() {
            assert_eq!(common_name(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn what_is_cut_has_no_hash() {
        let whole = certificate(ALGORITHMS[2].0, 300);
        for end in 0..whole.len() {
            assert_eq!(end_point(&whole[..end]), None, "{end}");
        }
    }
}
