//! Tokens that keys of each kind have signed, and those that must not be taken.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

const NOW: u64 = 1_000_000;

/// A private key.
enum Signer {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    fn p256() -> Signer {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(kind, &random).expect("a key");
        Signer::P256(EcdsaKeyPair::from_pkcs8(kind, key.as_ref(), &random).expect("it is one"))
    }

    fn ed25519() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Signer::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("it is one"))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Signer::P256(_) => "ES256",
            Signer::Ed25519(_) => "EdDSA",
        }
    }

    fn public(&self, id: &str) -> Value {
        match self {
            Signer::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": base64url(x), "y": base64url(y)})
            }
            Signer::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64url(key.public_key().as_ref())})
            }
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let message =
            format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
        let signature = match self {
            Signer::P256(key) => {
                key.sign(&SystemRandom::new(), message.as_bytes()).expect("it signs").as_ref().to_vec()
            }
            Signer::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64url(&signature))
    }
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn set(keys: &[Value]) -> Keys {
    Keys::parse(json!({"keys": keys}).to_string().as_bytes()).expect("a key of it can be used")
}

fn checked(token: &str, keys: &Keys) -> Result<String, Refused> {
    let wanted = Wanted { issuer: "https://id.example".into(), audience: "bank".into() };
    check(token, keys, &wanted, NOW).map(|named| named.user)
}

/// Claims that are taken, but for those that are given.
fn claims(changed: Value) -> Value {
    let mut claims = json!({"iss": "https://id.example", "aud": "bank", "sub": "ada", "exp": NOW + 300});
    for (name, value) in changed.as_object().expect("they are named") {
        claims[name] = value.clone();
    }
    claims
}

#[test]
fn keys_of_both_curves_are_taken() {
    for signer in [Signer::p256(), Signer::ed25519()] {
        let keys = set(&[signer.public("a")]);
        let header = json!({"alg": signer.algorithm(), "kid": "a", "typ": "JWT"});
        assert_eq!(checked(&signer.token(&header, &claims(json!({}))), &keys), Ok("ada".into()));
    }
}

#[test]
fn each_claim_counts() {
    let signer = Signer::ed25519();
    let keys = set(&[signer.public("a")]);
    let of = |claims: &Value| checked(&signer.token(&json!({"alg": "EdDSA", "kid": "a"}), claims), &keys);
    let ada = || Ok("ada".to_owned());
    for (changed, result) in [
        (json!({"aud": ["shop", "bank"]}), ada()),
        (json!({"aud": "shop"}), Err(Refused::Unknown)),
        (json!({"aud": []}), Err(Refused::Unknown)),
        (json!({"iss": "https://id.example/"}), Err(Refused::Unknown)),
        (json!({"sub": 7}), Err(Refused::Unknown)),
        // The clock of the issuer may differ by a minute.
        (json!({"exp": NOW - 59}), ada()),
        (json!({"exp": NOW - 60}), Err(Refused::Expired)),
        (json!({"exp": -1}), Err(Refused::Expired)),
        (json!({"exp": NOW as f64 + 0.5}), ada()),
        (json!({"exp": "soon"}), Err(Refused::Unknown)),
        (json!({"exp": null}), Err(Refused::Unknown)),
        (json!({"nbf": NOW + 60}), ada()),
        (json!({"nbf": NOW + 61}), Err(Refused::Early)),
        (json!({"nbf": "now"}), Err(Refused::Unknown)),
        // The time of a token for somebody else is nobody's business.
        (json!({"aud": "shop", "exp": NOW - 300}), Err(Refused::Unknown)),
    ] {
        assert_eq!(of(&claims(changed.clone())), result, "{changed}");
    }
    for missing in ["iss", "aud", "sub", "exp"] {
        let mut claims = claims(json!({}));
        claims.as_object_mut().expect("they are named").remove(missing);
        assert_eq!(of(&claims), Err(Refused::Unknown), "{missing}");
    }
    let named = check(
        &signer.token(&json!({"alg": "EdDSA"}), &claims(json!({}))),
        &keys,
        &Wanted { issuer: "https://id.example".into(), audience: "bank".into() },
        NOW,
    );
    assert_eq!(named, Ok(Named { user: "ada".into(), until: NOW + 360 }));
}

#[test]
fn the_key_is_the_one_that_is_named() {
    let (first, second, other) = (Signer::ed25519(), Signer::p256(), Signer::ed25519());
    let keys = set(&[first.public("a"), second.public("b")]);
    let of = |signer: &Signer, header: Value| checked(&signer.token(&header, &claims(json!({}))), &keys);
    assert_eq!(of(&first, json!({"alg": "EdDSA", "kid": "a"})), Ok("ada".into()));
    assert_eq!(of(&second, json!({"alg": "ES256", "kid": "b"})), Ok("ada".into()));
    for (signer, header) in [
        (&first, json!({"alg": "EdDSA", "kid": "b"})),
        (&first, json!({"alg": "EdDSA", "kid": "c"})),
        // Which of the two is not said.
        (&first, json!({"alg": "EdDSA"})),
        (&other, json!({"alg": "EdDSA", "kid": "a"})),
        (&first, json!({"alg": "ES256", "kid": "a"})),
        (&first, json!({"alg": "none", "kid": "a"})),
        (&first, json!({"alg": "HS256", "kid": "a"})),
        (&first, json!({"kid": "a"})),
        (&first, json!({"alg": "EdDSA", "kid": "a", "crit": ["exp"]})),
    ] {
        assert_eq!(of(signer, header.clone()), Err(Refused::Unknown), "{header}");
    }
    // A key that the token brings along is not looked at.
    let header = json!({"alg": "EdDSA", "kid": "a", "jwk": other.public("a")});
    assert_eq!(of(&other, header), Err(Refused::Unknown));
}

#[test]
fn a_mac_with_the_public_key_is_no_signature() {
    let signer = Signer::ed25519();
    let Signer::Ed25519(pair) = &signer else { unreachable!("it is one") };
    let keys = set(&[signer.public("a")]);
    let header = base64url(json!({"alg": "HS256", "kid": "a"}).to_string().as_bytes());
    let message = format!("{header}.{}", base64url(claims(json!({})).to_string().as_bytes()));
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, pair.public_key().as_ref());
    let mac = ring::hmac::sign(&secret, message.as_bytes());
    assert_eq!(checked(&format!("{message}.{}", base64url(mac.as_ref())), &keys), Err(Refused::Unknown));
}

#[test]
fn what_is_changed_or_cut_is_refused() {
    let signer = Signer::p256();
    let keys = set(&[signer.public("a")]);
    let header = json!({"alg": "ES256", "kid": "a"});
    let token = signer.token(&header, &claims(json!({})));
    assert_eq!(checked(&token, &keys), Ok("ada".into()));
    for end in 0..token.len() {
        assert_eq!(checked(&token[..end], &keys), Err(Refused::Unknown), "{end}");
    }
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("it is ASCII");
        assert_eq!(checked(&changed, &keys), Err(Refused::Unknown), "{at}");
    }
    let parts: Vec<&str> = token.split('.').collect();
    for wrong in [format!("{token}.{}", parts[2]), format!("{}.{}.", parts[0], parts[1]), format!(" {token}")] {
        assert_eq!(checked(&wrong, &keys), Err(Refused::Unknown), "{wrong}");
    }
    let long = signer.token(&header, &claims(json!({"more": "x".repeat(TOKEN_BYTES_MAX)})));
    assert_eq!(checked(&long, &keys), Err(Refused::Unknown));
}

#[test]
fn a_set_needs_a_key_that_can_be_used() {
    let signer = Signer::p256();
    let with = |name: &str, value: Value| {
        let mut key = signer.public("a");
        key[name] = value;
        key
    };
    for key in [
        json!({"kty": "oct", "k": "AAAA", "kid": "a"}),
        json!({"kty": "RSA", "n": base64url(&[255; 128]), "e": "AQAB"}),
        json!("no key"),
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("alg", json!("ES384")),
        with("crv", json!("P-384")),
        with("x", json!("AAAA")),
        with("y", json!(null)),
    ] {
        let text = json!({"keys": [key]}).to_string();
        assert!(Keys::parse(text.as_bytes()).is_err_and(|why| why.contains("it has no key")), "{text}");
    }
    for text in ["", "{}", "[]", "{\"keys\": 7}"] {
        assert!(Keys::parse(text.as_bytes()).is_err(), "{text}");
    }
    // Those that are not known do not keep others from use.
    let keys = set(&[json!({"kty": "oct", "k": "AAAA"}), json!({"kty": "new"}), with("alg", json!("ES256"))]);
    let token = signer.token(&json!({"alg": "ES256"}), &claims(json!({})));
    assert_eq!(checked(&token, &keys), Ok("ada".into()));
}
