//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, with verifiers as PostgreSQL writes them.

use super::random;
use ring::digest::{SHA256, digest};
use ring::{hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;

const NAME: &str = "SCRAM-SHA-256";
const ITERATIONS: u32 = 4_096;
/// The most that a file may ask for.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

type Hash = [u8; 32];

/// What a secret is checked by. The secret cannot be made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Hash,
    server_key: Hash,
}

impl Verifier {
    /// That of a secret.
    pub fn of(secret: &str) -> Verifier {
        Verifier::with(secret, &random::<SALT_BYTES>(), ITERATIONS)
    }

    fn with(secret: &str, salt: &[u8], iterations: u32) -> Verifier {
        let mut salted = [0; 32];
        let count = NonZeroU32::new(iterations).expect("there are some");
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, count, salt, secret.as_bytes(), &mut salted);
        let stored_key = sha256(&signed(&salted, b"Client Key"));
        Verifier { iterations, salt: salt.to_vec(), stored_key, server_key: signed(&salted, b"Server Key") }
    }

    /// One that no secret has, for those whose name is not known: they hear that at the end, as those with a wrong secret
    /// do. The same name has the same salt.
    pub fn of_nobody(name: &str, server: &[u8; 32]) -> Verifier {
        let salt = signed(server, name.as_bytes())[..SALT_BYTES].to_vec();
        Verifier { iterations: ITERATIONS, salt, stored_key: random(), server_key: random() }
    }

    /// Reads `SCRAM-SHA-256$iterations:salt$stored:server`.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (iterations, rest) = text.strip_prefix(NAME)?.strip_prefix('$')?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored, server) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|count| (1..=ITERATIONS_MAX).contains(count))?;
        let key = |text: &str| base64_decoded(text)?.try_into().ok();
        Some(Verifier { iterations, salt: base64_decoded(salt)?, stored_key: key(stored)?, server_key: key(server)? })
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verifier { iterations, salt, stored_key, server_key } = self;
        write!(f, "{NAME}${iterations}:{}${}:{}", base64(salt), base64(stored_key), base64(server_key))
    }
}

/// A conversation with a client after its first message.
pub struct Exchange {
    verifier: Verifier,
    /// How the client says that it uses no binding to a channel: `n,,` or `y,,`.
    binding: String,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl Exchange {
    /// Begins with the first message of a client; none if it is no such message.
    pub fn begin(message: &str, verifier: Verifier) -> Option<Exchange> {
        Exchange::with(message, verifier, &base64(&random::<NONCE_BYTES>()))
    }

    fn with(message: &str, verifier: Verifier, own: &str) -> Option<Exchange> {
        let (binding, client_first) = message.split_at_checked(3)?;
        if !matches!(binding, "n,," | "y,,") {
            return None;
        }
        // The name is that of the connection; what stands here is nothing.
        let (_, client) = client_first.strip_prefix("n=")?.split_once(",r=")?;
        let is_nonce = !client.is_empty() && client.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !is_nonce {
            return None;
        }
        let nonce = format!("{client}{own}");
        let server_first = format!("r={nonce},s={},i={}", base64(&verifier.salt), verifier.iterations);
        let (binding, client_first) = (binding.to_owned(), client_first.to_owned());
        Some(Exchange { verifier, binding, client_first, server_first, nonce })
    }

    /// What the server says to that.
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// What the server says to the last message of a client that knows the secret; none if it does not.
    pub fn finish(&self, message: &str) -> Option<String> {
        let (unproven, proof) = message.rsplit_once(",p=")?;
        if unproven != format!("c={},r={}", base64(self.binding.as_bytes()), self.nonce) {
            return None;
        }
        let all = format!("{},{},{unproven}", self.client_first, self.server_first);
        let signature = signed(&self.verifier.stored_key, all.as_bytes());
        let proof: Hash = base64_decoded(proof)?.try_into().ok()?;
        let mut key = [0; 32];
        key.iter_mut().zip(proof.iter().zip(&signature)).for_each(|(key, (proof, signature))| *key = proof ^ signature);
        let is_it = sha256(&key).iter().zip(&self.verifier.stored_key).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
        is_it.then(|| format!("v={}", base64(&signed(&self.verifier.server_key, all.as_bytes()))))
    }
}

fn signed(key: &[u8], message: &[u8]) -> Hash {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    tag.as_ref().try_into().expect("it has 32 bytes")
}

fn sha256(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().expect("it has 32 bytes")
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { digit as char } else { '=' });
        }
    }
    out
}

/// The bytes of base64; none if it is none.
pub fn base64_decoded(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.as_bytes().chunks(4) {
        let mut word = 0u32;
        for at in 0..4 {
            let digit = four.get(at).map_or(Some(0), |byte| DIGITS.iter().position(|digit| digit == byte))?;
            word = word << 6 | digit as u32;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..four.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_conversation_of_the_rfc() {
        let salt = base64_decoded("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let verifier = Verifier::with("pencil", &salt, 4096);
        assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier.clone()));
        let first = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let exchange = Exchange::with(first, verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").expect("a first message");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(exchange.server_first(), format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let last = format!("c=biws,r={nonce},p={proof}");
        assert_eq!(exchange.finish(&last).as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        for wrong in [
            last.replace("dHzb", "dHzc"),
            last.replace("biws", "eSws"),
            last.replace("rOpr", "rOps"),
            format!("c=biws,r={nonce}"),
            format!("c=biws,r={nonce},p="),
            format!("c=biws,r={nonce},p=AAAA"),
            String::new(),
        ] {
            assert_eq!(exchange.finish(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_first_message_is_refused() {
        for wrong in [
            "",
            "n",
            "n,,",
            "p=tls-server-end-point,,n=,r=x",
            "n,,n=,r=",
            "n,,r=x",
            "n,a=b,n=,r=x",
            "n,,n=,r=a b",
            "äöü",
        ] {
            assert!(Exchange::begin(wrong, Verifier::of("x")).is_none(), "{wrong}");
        }
        for text in ["", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "SCRAM-SHA-256$0:AAAA$", "md5abc"] {
            assert_eq!(Verifier::parse(text), None);
        }
        for bytes in [&b""[..], b"a", b"ab", b"abc", b"\xff\x00\xfe\x01"] {
            assert_eq!(base64_decoded(&base64(bytes)).as_deref(), Some(bytes));
        }
        for wrong in ["a", "====", "a===", "ab!=", "ab=c"] {
            assert_eq!(base64_decoded(wrong), None, "{wrong}");
        }
    }
}
