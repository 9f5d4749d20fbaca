//! Who may ask: a page from elsewhere that a browser shows can reach this machine, and is refused.
//!
//! Such a page is betrayed by `Origin`, which is not this server's. One that had its own name lead to this machine (DNS
//! rebinding) is betrayed by `Host`, which is that name.

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

/// The names of this machine to itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Why a request is refused, if it is. `only_loopback`: whether only this machine reaches the server.
pub fn refusal(headers: &HeaderMap, only_loopback: bool) -> Option<String> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST).unwrap_or_default();
    if only_loopback && !is_loopback(host) {
        return Some(format!("host '{host}' is not a name of this machine to itself; ask for localhost or 127.0.0.1"));
    }
    let origin = text(ORIGIN)?;
    let own = origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host));
    (!own).then(|| format!("a page of '{origin}' may not ask; only pages of this server may"))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_v4 = || name.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    LOOPBACK.iter().any(|known| name.eq_ignore_ascii_case(known)) || is_v4()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &'static str, origin: Option<&'static str>, only_loopback: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a value"));
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().expect("a value")));
        refusal(&headers, only_loopback).is_some()
    }

    #[test]
    fn pages_from_elsewhere_are_refused() {
        for host in ["localhost:8740", "127.0.0.1:1", "127.0.0.1", "[::1]:8740", "127.1.2.3:5", "LOCALHOST"] {
            assert!(!refused(host, None, true), "{host}");
        }
        for host in ["evil.example", "evil.example:8740", "localhost.evil.example", "", "10.0.0.1:8740"] {
            assert!(refused(host, None, true), "{host}");
        }
        assert!(!refused("localhost:8740", Some("http://localhost:8740"), true));
        assert!(refused("localhost:8740", Some("https://evil.example"), true));
        assert!(refused("localhost:8740", Some("null"), true));
        assert!(refused("localhost:8740", Some("http://localhost:9999"), true));
        assert!(!refused("bank.example", None, false));
        assert!(refused("bank.example", Some("http://evil.example"), false));
    }
}
