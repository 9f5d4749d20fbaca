//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, with verifiers as PostgreSQL writes them.

use super::random;
use ring::digest::{SHA256, digest};
use ring::{hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;

const NAME: &str = "SCRAM-SHA-256";
/// The header by which a client binds the exchange to the server's certificate (RFC 5929, section 4).
const END_POINT: &str = "p=tls-server-end-point,,";
const ITERATIONS: u32 = 4_096;
/// The most that a file may ask for.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

type Hash = [u8; 32];

/// The data that a secret is checked with. The secret cannot be made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Hash,
    server_key: Hash,
}

impl Verifier {
    /// Makes the verifier of a secret.
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

    /// Makes a verifier that no secret has, for those whose name is not known: they hear that at the end, as those with
    /// a wrong secret do. The same name has the same salt.
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

/// A way in which a conversation is bound to the encrypted channel that it is on.
#[derive(Clone, Copy, Debug)]
pub enum Binding<'a> {
    /// The server offers no binding.
    None,
    /// It offers one, and the client has chosen a mechanism without.
    Offered,
    /// The client has chosen the mechanism with a binding: the hash of the server's certificate.
    Used(&'a [u8]),
}

/// A conversation with a client after its first message.
pub struct Exchange {
    verifier: Verifier,
    /// The client's channel binding: its header, and the data that it binds to.
    bound: Vec<u8>,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl Exchange {
    /// Begins with the first message of a client; none if it is no such message.
    pub fn begin(message: &str, verifier: Verifier, binding: Binding<'_>) -> Option<Exchange> {
        Exchange::with(message, verifier, binding, &base64(&random::<NONCE_BYTES>()))
    }

    fn with(message: &str, verifier: Verifier, binding: Binding<'_>, own: &str) -> Option<Exchange> {
        let (head, client_first) = message.split_at_checked(message.find(",,")? + 2)?;
        let data: &[u8] = match (head, binding) {
            ("n,,", Binding::None | Binding::Offered) | ("y,,", Binding::None) => &[],
            (END_POINT, Binding::Used(data)) => data,
            // With `y,,` it says that the server offers no binding, which it does: somebody in between has taken it out.
            _ => return None,
        };
        let bound = [head.as_bytes(), data].concat();
        // The name is that of the connection; what stands here is nothing.
        let (_, client) = client_first.strip_prefix("n=")?.split_once(",r=")?;
        let is_nonce = !client.is_empty() && client.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !is_nonce {
            return None;
        }
        let nonce = format!("{client}{own}");
        let server_first = format!("r={nonce},s={},i={}", base64(&verifier.salt), verifier.iterations);
        Some(Exchange { verifier, bound, client_first: client_first.to_owned(), server_first, nonce })
    }

    /// Returns the server's first message.
    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Returns the server's last message to a client that has proven the secret; none if the proof is wrong.
    pub fn finish(&self, message: &str) -> Option<String> {
        let (unproven, proof) = message.rsplit_once(",p=")?;
        if unproven != format!("c={},r={}", base64(&self.bound), self.nonce) {
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

/// Returns the bytes of base64; none if it is none.
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
        let own = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let exchange = Exchange::with(first, verifier, Binding::None, own).expect("a first message");
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

    /// Returns the last message of a client that knows the secret.
    fn last(exchange: &Exchange, secret: &str, bound: &[u8]) -> String {
        let Verifier { iterations, salt, .. } = &exchange.verifier;
        let mut salted = [0; 32];
        let count = NonZeroU32::new(*iterations).expect("there are some");
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, count, salt, secret.as_bytes(), &mut salted);
        let key = signed(&salted, b"Client Key");
        let unproven = format!("c={},r={}", base64(bound), exchange.nonce);
        let all = format!("{},{},{unproven}", exchange.client_first, exchange.server_first);
        let signature = signed(&sha256(&key), all.as_bytes());
        let proof: Vec<u8> = key.iter().zip(&signature).map(|(key, signature)| key ^ signature).collect();
        format!("{unproven},p={}", base64(&proof))
    }

    #[test]
    fn a_conversation_is_bound_to_the_certificate() {
        let (own, other) = ([7u8; 32], [8u8; 32]);
        let begin = |head: &str, binding| Exchange::begin(&format!("{head}n=,r=abc"), Verifier::of("s"), binding);
        let exchange = begin(END_POINT, Binding::Used(&own)).expect("a first message");
        let with = |data: &[u8]| [END_POINT.as_bytes(), data].concat();
        assert!(exchange.finish(&last(&exchange, "s", &with(&own))).is_some());
        for wrong in [with(&other), with(&[]), b"n,,".to_vec(), own.to_vec()] {
            assert!(exchange.finish(&last(&exchange, "s", &wrong)).is_none());
        }
        assert!(exchange.finish(&last(&exchange, "other", &with(&own))).is_none());
        // Without a binding where one is offered; but a client that believes that none is, is told a lie by somebody.
        let exchange = begin("n,,", Binding::Offered).expect("a first message");
        assert!(exchange.finish(&last(&exchange, "s", b"n,,")).is_some());
        assert!(begin("y,,", Binding::Offered).is_none());
        assert!(begin("y,,", Binding::None).is_some());
        for (head, binding) in [
            ("n,,", Binding::Used(&own[..])),
            ("y,,", Binding::Used(&own)),
            (END_POINT, Binding::Offered),
            (END_POINT, Binding::None),
            ("p=tls-unique,,", Binding::Used(&own)),
        ] {
            assert!(begin(head, binding).is_none(), "{head} {binding:?}");
        }
    }

    #[test]
    fn names_without_a_user_have_salts_of_their_own() {
        let salt = |name, secret: &[u8; 32]| Verifier::of_nobody(name, secret).salt;
        assert_eq!(salt("eve", &[1; 32]), salt("eve", &[1; 32]));
        assert_ne!(salt("eve", &[1; 32]), salt("eva", &[1; 32]));
        assert_ne!(salt("eve", &[1; 32]), salt("eve", &[2; 32]));
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
            assert!(Exchange::begin(wrong, Verifier::of("x"), Binding::None).is_none(), "{wrong}");
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
