//! A JWT (RFC 7519), signed as a JWS in its compact form (RFC 7515): who it is from, whom it names, and until when.
//!
//! # Invariant
//!
//! Nothing of a token is believed before its signature has been checked. One that is refused hears the reason only where a key
//! of ours has signed it for us and the time alone is wrong. All others hear the same.

use super::jwks::{Keys, decoded};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest token.
const TOKEN_BYTES_MAX: usize = 8_192;
/// The seconds by which the clock of the issuer may differ from ours.
const LEEWAY_SECONDS: u64 = 60;

/// The issuer and the audience that a token must name.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub issuer: String,
    pub audience: String,
}

/// The user that a token names.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name, which the file of users may have or not.
    pub user: String,
    /// The second since 1970 from which on the token is worth nothing.
    pub until: u64,
}

/// The reason why a token is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is none, or of somebody else, or for somebody else.
    #[error("no user has this token")]
    Unknown,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not begun.
    #[error("the token is not valid yet")]
    Early,
    /// The keys cannot be read at present.
    #[error("{0}")]
    NoKeys(String),
}

/// The header of a token.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions without which it must not be understood: none is known here.
    crit: Option<IgnoredAny>,
}

/// The content of a token, as far as it is looked at.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn has(&self, audience: &str) -> bool {
        match self {
            Audience::One(one) => one == audience,
            Audience::Several(several) => several.iter().any(|one| one == audience),
        }
    }
}

/// Returns the user that a token names at this second since 1970.
pub fn check(token: &str, keys: &Keys, wanted: &Wanted, now: u64) -> Result<Named, Refused> {
    let claims = signed(token, keys).ok_or(Refused::Unknown)?;
    if claims.iss != wanted.issuer || !claims.aud.has(&wanted.audience) {
        return Err(Refused::Unknown);
    }
    // A time before 1970 becomes 0, one beyond all times the last.
    let until = (claims.exp as u64).saturating_add(LEEWAY_SECONDS);
    if now >= until {
        return Err(Refused::Expired);
    }
    if claims.nbf.is_some_and(|begin| begin as u64 > now.saturating_add(LEEWAY_SECONDS)) {
        return Err(Refused::Early);
    }
    Ok(Named { user: claims.sub, until })
}

/// Returns the content of a token that one of the keys has signed.
fn signed(token: &str, keys: &Keys) -> Option<Claims> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let (message, signature) = token.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let header: Header = serde_json::from_slice(&decoded(header)?).ok()?;
    let signature = decoded(signature)?;
    let is_ours =
        header.crit.is_none() && keys.have_signed(header.kid.as_deref(), &header.alg, message.as_bytes(), &signature);
    is_ours.then(|| serde_json::from_slice(&decoded(claims)?).ok())?
}

#[cfg(test)]
mod tests;
