//! Who a request of HTTP is from: a bearer token, which is a user's secret or a JWT, the secret as a password, which browsers
//! ask for, or the certificate of the connection.
//!
//! A secret has no dot and a JWT has two, so none is taken for the other. One who has a certificate is the user that it names: a
//! request of another one on its connection is refused.

use crate::answer::{self, Answer};
use crate::certificates::Certified;
use crate::follow::ReadsOn;
use crate::shared::Shared;
use crate::shares::Who;
use crate::users::{Evidence, Refused, Right, Rights, User, Users, UsersFile, base64_decoded};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, StatusCode};

/// One who asks.
pub struct Identity {
    name: String,
    rights: Rights,
    /// The reason why it is taken for this user.
    evidence: Evidence,
}

/// The credentials of a request.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    /// The name that is given with a password.
    name: Option<String>,
    token: String,
}

impl Identity {
    /// Returns the user of a request, or the response to one who does not say who it is.
    /// Among the extensions is the certificate of the client, if it has shown one.
    pub fn of(shared: &Shared, headers: &HeaderMap, extensions: &Extensions) -> Result<Identity, Box<Answer>> {
        let Some(file) = &shared.users else {
            return Ok(Identity { name: String::new(), rights: Rights::all(), evidence: Evidence::Secret(None) });
        };
        let users = file.current();
        let users =
            users.map_err(|error| Box::new(answer::error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())))?;
        let said = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(credentials);
        let said = said.map(|said| said.user(file, &users)).transpose().map_err(|refused| Box::new(wrong(&refused)))?;
        let (user, evidence) = match extensions.get::<Certified>() {
            None => said.ok_or_else(|| Box::new(unknown(ASKS)))?,
            Some(certified) => {
                let named = certified.user(&users).ok_or_else(|| Box::new(unknown(NO_NAME)))?;
                if said.is_some_and(|(other, _)| other.name != named.name) {
                    return Err(Box::new(unknown(TWO_NAMES)));
                }
                (named, Evidence::Certificate)
            }
        };
        Ok(Identity { name: user.name.clone(), rights: user.rights.clone(), evidence })
    }

    /// Returns its name; empty where nobody is asked.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client: a user or, if the server has no users, what is known of its connection.
    pub fn who(&self, connected: &Who) -> Who {
        if self.name.is_empty() { connected.clone() } else { Who::User(self.name.as_str().into()) }
    }

    /// Returns the names of those of the given tables that the user may read.
    pub fn readable(&self, names: impl Iterator<Item = String>) -> Vec<String> {
        names.filter(|name| self.rights.has(Right::Read, name)).collect()
    }

    /// Returns a check whether the user may still read a stream, which gives the reason if not; none if the server has
    /// no users.
    pub fn reads_on(self, shared: &Shared, stream: &str) -> Option<ReadsOn> {
        let (file, stream) = (shared.users.clone()?, stream.to_owned());
        let Identity { name, mut rights, evidence } = self;
        Some(Box::new(move || match file.rights_of(&name, &evidence, &rights) {
            Ok(now) => {
                rights = now;
                rights.refusal(&name, Right::Subscribe, &stream)
            }
            Err(why) => Some(why),
        }))
    }

    /// Returns the response to a request that may not be made.
    pub fn refusal(&self, method: &Method, path: &[&str]) -> Option<Answer> {
        self.why_not(method, path).map(|why| answer::error(StatusCode::FORBIDDEN, &why))
    }

    /// Returns the reason why a request may not be made; none if it may. Many calls in one are looked at each by
    /// itself.
    pub fn why_not(&self, method: &Method, path: &[&str]) -> Option<String> {
        match (method, path) {
            (&Method::POST, ["call", name]) => self.rights.refusal(&self.name, Right::Call, name),
            (&Method::POST, ["stream" | "streams", name]) => self.rights.refusal(&self.name, Right::Push, name),
            (_, ["tables", name, ..]) => self.rights.refusal(&self.name, Right::Read, name),
            (&Method::POST, ["query"]) => self.rights.refusal(&self.name, Right::Query, ""),
            (&Method::POST, ["savepoints", ..]) => self.rights.refusal(&self.name, Right::Savepoint, ""),
            (_, ["streams", name]) => self.rights.refusal(&self.name, Right::Subscribe, name),
            (_, ["console", ..]) if !self.rights.admin => {
                Some(format!("user '{}' is no admin, and the console is for those", self.name))
            }
            _ => None,
        }
    }
}

impl Credentials {
    /// Returns the user whose they are, and what shows it.
    fn user<'a>(&self, file: &UsersFile, users: &'a Users) -> Result<(&'a User, Evidence), Refused> {
        match &file.tokens {
            Some(tokens) if self.name.is_none() && self.token.contains('.') => {
                let named = tokens.check(&self.token)?;
                let user = users.find(&named.user).ok_or(Refused::Unknown)?;
                Ok((user, Evidence::Token { until: named.until }))
            }
            _ => {
                let user = users.of_token(&self.token);
                let user = user.filter(|user| self.name.as_ref().is_none_or(|name| *name == user.name));
                user.map(|user| (user, user.by_secret())).ok_or(Refused::Unknown)
            }
        }
    }
}

/// Returns the credentials that the header has.
fn credentials(value: &str) -> Option<Credentials> {
    let (scheme, rest) = value.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(Credentials { name: None, token: rest.trim().to_owned() }),
        "basic" => {
            let both = String::from_utf8(base64_decoded(rest.trim())?).ok()?;
            let (name, token) = both.split_once(':')?;
            Some(Credentials { name: Some(name.to_owned()), token: token.to_owned() })
        }
        _ => None,
    }
}

/// Said to one who says nothing of who it is.
const ASKS: &str = "this server asks who you are; send Authorization: Bearer TOKEN, which 'tidemill user add' gives";
/// Said to one whose certificate names nobody.
const NO_NAME: &str = "the common name of the client's certificate is that of no user";
/// Said to one that says on its connection to be another one.
const TWO_NAMES: &str = "the client's certificate names another user than Authorization";

/// Returns the response to credentials that are not taken, with the reason as RFC 6750 has it.
fn wrong(refused: &Refused) -> Answer {
    if let Refused::NoKeys(why) = refused {
        return answer::error(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    let why = refused.to_string();
    let bearer = format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
    unauthorized(&why, HeaderValue::from_str(&bearer).expect("reasons have no quotes and no control characters"))
}

fn unknown(why: &str) -> Answer {
    unauthorized(why, HeaderValue::from_static("Bearer"))
}

fn unauthorized(why: &str, bearer: HeaderValue) -> Answer {
    let mut response = answer::error(StatusCode::UNAUTHORIZED, why);
    for way in [bearer, HeaderValue::from_static("Basic realm=\"tidemill\", charset=\"UTF-8\"")] {
        response.headers_mut().append(WWW_AUTHENTICATE, way);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_headers() {
        let found = |name: Option<&str>, token: &str| {
            Some(Credentials { name: name.map(str::to_owned), token: token.to_owned() })
        };
        assert_eq!(credentials("Bearer abc"), found(None, "abc"));
        assert_eq!(credentials("bearer  abc "), found(None, "abc"));
        assert_eq!(credentials("Basic YWRhOmE6Yg=="), found(Some("ada"), "a:b"));
        for wrong in ["", "Bearer", "Basic !", "Basic YWRh", "Digest x"] {
            assert_eq!(credentials(wrong), None, "{wrong}");
        }
    }
}
