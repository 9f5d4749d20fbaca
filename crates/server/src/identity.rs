//! Who a request of HTTP is from: a bearer token, or the same as a password, which browsers ask for.

use crate::answer::{self, Answer};
use crate::follow::ReadsOn;
use crate::shared::Shared;
use crate::shares::Who;
use crate::users::{Right, Rights, base64_decoded};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, StatusCode};

/// One who asks.
pub struct Identity {
    name: String,
    rights: Rights,
    /// The SCRAM verifier that its secret was checked with.
    scram: String,
}

impl Identity {
    /// Returns the user of a request, or the response to one who does not say who it is.
    pub fn of(shared: &Shared, headers: &HeaderMap) -> Result<Identity, Box<Answer>> {
        let Some(file) = &shared.users else {
            return Ok(Identity { name: String::new(), rights: Rights::all(), scram: String::new() });
        };
        let users = file.current();
        let users =
            users.map_err(|error| Box::new(answer::error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())))?;
        let said = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(token);
        let found = said.as_ref().and_then(|(name, token)| {
            users.of_token(token).filter(|user| name.as_ref().is_none_or(|name| *name == user.name))
        });
        match found {
            Some(user) => {
                let (name, scram) = (user.name.clone(), user.scram().to_owned());
                Ok(Identity { name, rights: user.rights.clone(), scram })
            }
            None => Err(Box::new(unknown(said.is_some()))),
        }
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
        let Identity { name, mut rights, scram } = self;
        Some(Box::new(move || match file.rights_of(&name, &scram, &rights) {
            Some(now) => {
                rights = now;
                rights.refusal(&name, Right::Subscribe, &stream)
            }
            None => Some(format!("user '{name}' was removed")),
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

/// Returns the name, if it is given, and the token.
fn token(value: &str) -> Option<(Option<String>, String)> {
    let (scheme, rest) = value.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some((None, rest.trim().to_owned())),
        "basic" => {
            let both = String::from_utf8(base64_decoded(rest.trim())?).ok()?;
            let (name, token) = both.split_once(':')?;
            Some((Some(name.to_owned()), token.to_owned()))
        }
        _ => None,
    }
}

fn unknown(is_wrong: bool) -> Answer {
    let why = match is_wrong {
        true => "no user has this token",
        false => "this server asks who you are; send Authorization: Bearer TOKEN, which 'tidemill user add' gives",
    };
    let mut response = answer::error(StatusCode::UNAUTHORIZED, why);
    for way in ["Bearer", "Basic realm=\"tidemill\", charset=\"UTF-8\""] {
        response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(way));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_headers() {
        assert_eq!(token("Bearer abc"), Some((None, "abc".into())));
        assert_eq!(token("bearer  abc "), Some((None, "abc".into())));
        assert_eq!(token("Basic YWRhOmE6Yg=="), Some((Some("ada".into()), "a:b".into())));
        for wrong in ["", "Bearer", "Basic !", "Basic YWRh", "Digest x"] {
            assert_eq!(token(wrong), None, "{wrong}");
        }
    }
}
