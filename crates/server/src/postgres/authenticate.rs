//! Who a client is: SCRAM-SHA-256, by the verifiers of the users' file.
//!
//! A client whose name is not known has the same conversation as one with a wrong password, and hears the same.

use super::backend;
use super::connection::{Stop, read, write_all};
use super::error::{PgError, code};
use super::wire::Wire;
use crate::socket::Socket;
use crate::users::{Exchange, User, UsersFile, Verifier};

/// The longest message of a client within the conversation.
const BYTES_MAX: usize = 10_000;
const MECHANISM: &[u8] = b"SCRAM-SHA-256\0";

/// Asks a client for its password, without which it is not served; the user.
pub async fn authenticate(
    stream: &mut Socket,
    input: &mut Vec<u8>,
    wire: &Wire,
    users: &UsersFile,
    name: &str,
) -> Result<User, Stop> {
    let wrong = || PgError::fatal(code::WRONG_PASSWORD, format!("password authentication failed for user '{name}'"));
    let broken =
        || PgError::fatal(code::PROTOCOL_VIOLATION, "this is no message of SCRAM-SHA-256 without channel binding");
    let users = users.current().map_err(|error| PgError::fatal(code::WRONG_PASSWORD, error.to_string()))?;
    let user = users.find(name);
    let verifier = user.map_or_else(|| Verifier::of_nobody(name, &wire.own), |user| user.verifier());
    let mut out = Vec::new();
    backend::ask_scram(&mut out);
    write_all(stream, &out, wire.limits.silence_max).await?;
    let first = message(stream, input).await?;
    let first = initial(&first).ok_or_else(broken)?;
    let exchange = Exchange::begin(first, verifier).ok_or_else(broken)?;
    out.clear();
    backend::scram(&mut out, exchange.server_first(), false);
    write_all(stream, &out, wire.limits.silence_max).await?;
    let last = message(stream, input).await?;
    let last = std::str::from_utf8(&last).map_err(|_| broken())?;
    let (Some(user), Some(proof)) = (user, exchange.finish(last)) else { return Err(wrong().into()) };
    out.clear();
    backend::scram(&mut out, &proof, true);
    write_all(stream, &out, wire.limits.silence_max).await?;
    Ok(user.clone())
}

/// The text of SCRAM in a client's first message of it.
fn initial(body: &[u8]) -> Option<&str> {
    let rest = body.strip_prefix(MECHANISM)?;
    let (length, text) = rest.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*length) as usize == text.len()).then_some(())?;
    std::str::from_utf8(text).ok()
}

/// The body of the next message, which must be one with a password.
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
