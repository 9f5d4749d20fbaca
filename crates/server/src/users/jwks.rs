//! The public keys that sign JWTs: a JWKS (RFC 7517, RFC 7518 section 6, RFC 8037 section 2).
//!
//! # Invariant
//!
//! The kind of a key decides the one algorithm that it checks. So a token cannot choose another one, neither `none` nor a MAC
//! whose secret is the public key. Keys of other kinds, for other algorithms and for other uses are left out, as the RFC asks.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// The bytes of a coordinate of P-256, and of a key of Ed25519.
const CURVE_BYTES: usize = 32;
/// The fewest and the most bytes of an RSA modulus.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// The first byte of a point of which both coordinates follow.
const UNCOMPRESSED: u8 = 4;

/// The keys of a set.
#[derive(Debug)]
pub struct Keys(Vec<Key>);

/// A key, with the name that tokens call it by.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    public: PublicKey,
}

/// A public key of one of the kinds that are known.
#[derive(Debug)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct GivenSet {
    keys: Vec<Value>,
}

/// A key as the set gives it.
#[derive(Deserialize)]
struct GivenKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Reads a set; the reason if no key of it can be used.
    pub fn parse(text: &[u8]) -> Result<Keys, String> {
        let set: GivenSet = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok().and_then(GivenKey::key));
        let keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            return Err("it has no key of RSA (2,048 to 8,192 bits), P-256 or Ed25519 for signatures".into());
        }
        Ok(Keys(keys))
    }

    /// Returns whether a key of this id signs by this algorithm and has made this signature. A token may leave the id out where
    /// the set has one key.
    pub fn have_signed(&self, id: Option<&str>, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let is_meant = |key: &&Key| match id {
            Some(_) => key.id.as_deref() == id,
            None => self.0.len() == 1,
        };
        let keys = self.0.iter().filter(is_meant).filter(|key| key.public.algorithm() == algorithm);
        keys.into_iter().any(|key| key.public.has_signed(message, signature))
    }
}

impl GivenKey {
    /// Returns the key, if it is of a kind that is known and may check signatures.
    fn key(self) -> Option<Key> {
        let is_for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|may| may.iter().any(|one| one == "verify"));
        let field = |field: &Option<String>| decoded(field.as_deref()?);
        let of_curve = |given| field(given).filter(|bytes| bytes.len() == CURVE_BYTES);
        let public = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let whole = |given| field(given).map(|bytes| bytes.into_iter().skip_while(|byte| *byte == 0).collect());
                let modulus: Vec<u8> = whole(&self.n).filter(|n: &Vec<u8>| MODULUS_BYTES.contains(&n.len()))?;
                PublicKey::Rsa { modulus, exponent: whole(&self.e)? }
            }
            ("EC", Some("P-256")) => {
                PublicKey::P256([vec![UNCOMPRESSED], of_curve(&self.x)?, of_curve(&self.y)?].concat())
            }
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(of_curve(&self.x)?),
            _ => return None,
        };
        let is_meant = is_for_signatures && self.alg.is_none_or(|algorithm| algorithm == public.algorithm());
        is_meant.then_some(Key { id: self.kid, public })
    }
}

impl PublicKey {
    /// Returns the algorithm of its signatures, as JOSE calls it.
    fn algorithm(&self) -> &'static str {
        match self {
            PublicKey::Rsa { .. } => "RS256",
            PublicKey::P256(_) => "ES256",
            PublicKey::Ed25519(_) => "EdDSA",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let checked = match self {
            PublicKey::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            PublicKey::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            PublicKey::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        checked.is_ok()
    }
}

/// Decodes base64url without padding.
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
