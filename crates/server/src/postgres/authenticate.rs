//! Who a client is: by the certificate that it has shown, by a JWT, or by SCRAM-SHA-256 and the verifiers of the users' file.
//!
//! 1. A client with a certificate is the user whom it names, and no other. It is asked for nothing.
//! 2. A user without a secret is asked for a JWT, where these are taken and the connection is encrypted.
//! 3. All others have the conversation of SCRAM.
//!
//! A client whose name is not known has the same conversation as one with a wrong password, and hears the same. On an
//! encrypted connection a client may bind the conversation to the server's certificate (SCRAM-SHA-256-PLUS), so that
//! nobody in between can pass it on.

use super::backend;
use super::connection::{Stop, read, write_all};
use super::error::{PgError, code};
use super::wire::Wire;
use crate::socket::Socket;
use crate::users::{Binding, Evidence, Exchange, Refused, Tokens, User, Users, UsersFile, Verifier};

/// The longest message of a client within the conversation.
const BYTES_MAX: usize = 10_000;
/// The mechanism without a binding, and the one with.
const PLAIN: &str = "SCRAM-SHA-256";
const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// Finds out whether a client is the user of this name, without which it is not served; the user, and what shows it.
pub async fn authenticate(
    stream: &mut Socket,
    input: &mut Vec<u8>,
    wire: &Wire,
    file: &UsersFile,
    name: &str,
) -> Result<(User, Evidence), Stop> {
    let users = file.current().map_err(|error| PgError::fatal(code::WRONG_PASSWORD, error.to_string()))?;
    if let Some(certified) = stream.certified() {
        let user = certified.user(&users).filter(|user| user.name == name).cloned();
        let refused = format!("certificate authentication failed for user '{name}'");
        let user = user.ok_or_else(|| PgError::fatal(code::NOT_ALLOWED, refused))?;
        return Ok((user, Evidence::Certificate));
    }
    match &file.tokens {
        Some(tokens) if stream.is_encrypted() && users.is_asked_for_token(name) => {
            by_token(stream, input, wire, &users, tokens, name).await
        }
        _ => by_secret(stream, input, wire, &users, name).await,
    }
}

/// Says that the password is wrong, or the name: not which.
fn wrong(name: &str) -> PgError {
    PgError::fatal(code::WRONG_PASSWORD, format!("password authentication failed for user '{name}'"))
}

/// Asks a client for a JWT that names this user.
async fn by_token(
    stream: &mut Socket,
    input: &mut Vec<u8>,
    wire: &Wire,
    users: &Users,
    tokens: &Tokens,
    name: &str,
) -> Result<(User, Evidence), Stop> {
    let mut out = Vec::new();
    backend::ask_token(&mut out);
    write_all(stream, &out, wire.limits.silence_max).await?;
    let given = message(stream, input).await?;
    let token =
        given.strip_suffix(&[0]).and_then(|token| std::str::from_utf8(token).ok()).ok_or_else(|| wrong(name))?;
    let named = tokens.check(token).map_err(|refused| match refused {
        Refused::Unknown => wrong(name),
        refused => PgError::fatal(code::WRONG_PASSWORD, refused.to_string()),
    })?;
    let user = users.find(name).filter(|user| user.name == named.user).ok_or_else(|| wrong(name))?;
    Ok((user.clone(), Evidence::Token { until: named.until }))
}

/// Asks a client for proof that it knows the secret of this user.
async fn by_secret(
    stream: &mut Socket,
    input: &mut Vec<u8>,
    wire: &Wire,
    users: &Users,
    name: &str,
) -> Result<(User, Evidence), Stop> {
    let broken = || PgError::fatal(code::PROTOCOL_VIOLATION, "this is no message of a mechanism that was offered");
    let user = users.find(name);
    let verifier = user.and_then(User::verifier).unwrap_or_else(|| Verifier::of_nobody(name, &users.salts()));
    let end_point = stream.end_point().cloned();
    let offered: &[&str] = if end_point.is_some() { &[BOUND, PLAIN] } else { &[PLAIN] };
    let mut out = Vec::new();
    backend::ask_scram(&mut out, offered);
    write_all(stream, &out, wire.limits.silence_max).await?;
    let first = message(stream, input).await?;
    let (mechanism, first) = initial(&first).ok_or_else(broken)?;
    let binding = match (mechanism, &end_point) {
        (PLAIN, None) => Binding::None,
        (PLAIN, Some(_)) => Binding::Offered,
        (BOUND, Some(end_point)) => Binding::Used(end_point),
        _ => return Err(broken().into()),
    };
    let exchange = Exchange::begin(first, verifier, binding).ok_or_else(broken)?;
    out.clear();
    backend::scram(&mut out, exchange.server_first(), false);
    write_all(stream, &out, wire.limits.silence_max).await?;
    let last = message(stream, input).await?;
    let last = std::str::from_utf8(&last).map_err(|_| broken())?;
    let (Some(user), Some(proof)) = (user, exchange.finish(last)) else { return Err(wrong(name).into()) };
    out.clear();
    backend::scram(&mut out, &proof, true);
    write_all(stream, &out, wire.limits.silence_max).await?;
    Ok((user.clone(), user.by_secret()))
}

/// Returns the mechanism that a client has chosen, and the text of SCRAM in its first message of it.
fn initial(body: &[u8]) -> Option<(&str, &str)> {
    let end = body.iter().position(|&byte| byte == 0)?;
    let (mechanism, rest) = (&body[..end], &body[end + 1..]);
    let (length, text) = rest.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*length) as usize == text.len()).then_some(())?;
    Some((std::str::from_utf8(mechanism).ok()?, std::str::from_utf8(text).ok()?))
}

/// Returns the body of the next message, which must be one with a password.
async fn message(stream: &mut Socket, input: &mut Vec<u8>) -> Result<Vec<u8>, Stop> {
    loop {
        if let Some(&[tag, a, b, c, d]) = input.first_chunk::<5>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if tag == b'X' {
                return Err(Stop::Terminated);
            }
            if tag != b'p' || !(4..=BYTES_MAX).contains(&length) {
                let message = "a message with a password is expected";
                return Err(PgError::fatal(code::PROTOCOL_VIOLATION, message).into());
            }
            if input.len() > length {
                let body = input[5..=length].to_vec();
                input.drain(..=length);
                return Ok(body);
            }
        }
        if read(stream, input).await? == 0 {
            return Err(Stop::Gone);
        }
    }
}
