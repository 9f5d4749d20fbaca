//! Who may ask: a page from elsewhere that a browser shows can reach this machine, and is refused.
//!
//! Such a page is betrayed by `Origin`, which is not this server's, or by `Sec-Fetch-Site`, where it sends no `Origin`.
//! One that had its own name lead to this machine (DNS rebinding) is betrayed by `Host`, which is that name. A request
//! that names two hosts may be one for a program in front of this server and another one here, so it is refused.

use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::{HeaderMap, Method, StatusCode, Uri};

/// The names of this machine to itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// The header in which a browser says from which site a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The header in which a browser says for what a request is: to show a page, to load an image, from a script.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The scheme by which a program in front of this server was asked. No page of another site can send it: a browser asks
/// this server first whether it may, and hears no.
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The server that is asked.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// A flag: whether only this machine reaches it.
    pub only_loopback: bool,
    /// A flag: whether its connections are encrypted.
    pub is_encrypted: bool,
}

/// A request, as far as it says where it comes from and where it goes.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

impl<'a> Request<'a> {
    /// Returns the value of a header that may be there once; an error if it is there twice.
    fn once(&self, name: &HeaderName) -> Result<Option<&'a str>, (StatusCode, String)> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or("?"));
        match values.next() {
            None => Ok(first),
            Some(_) => Err((StatusCode::BAD_REQUEST, format!("the header '{name}' is there twice"))),
        }
    }

    /// Returns whether a browser shows the page of this server, as after a click on a link.
    fn is_visit(&self) -> bool {
        let is_shown = self.headers.get(FETCH_MODE).is_some_and(|mode| mode == "navigate");
        is_shown && self.method == Method::GET && self.uri.path() == "/"
    }
}

/// Returns the reason for which a request is refused, with its status; none if it is not.
pub fn refusal(request: Request<'_>, place: Place) -> Option<(StatusCode, String)> {
    checked(request, place).err()
}

fn checked(request: Request<'_>, place: Place) -> Result<(), (StatusCode, String)> {
    let forbidden = |why: String| Err((StatusCode::FORBIDDEN, why));
    let host = request.once(&HOST)?.unwrap_or_default();
    if let Some(named) = request.uri.authority()
        && !named.as_str().eq_ignore_ascii_case(host)
    {
        let why = format!("the request is for '{named}', and its header 'host' says '{host}'");
        return Err((StatusCode::BAD_REQUEST, why));
    }
    if place.only_loopback && !is_loopback(host) {
        return forbidden(format!(
            "host '{host}' is not a name of this machine to itself; ask for localhost or 127.0.0.1"
        ));
    }
    let site = request.once(&FETCH_SITE)?;
    if site.is_some_and(|site| site.eq_ignore_ascii_case("cross-site")) && !request.is_visit() {
        return forbidden("a page of another site may not ask; only pages of this server may".into());
    }
    let Some(origin) = request.once(&ORIGIN)? else { return Ok(()) };
    let own = if place.is_encrypted { "https" } else { "http" };
    let scheme = request.once(&FORWARDED_SCHEME)?.unwrap_or(own);
    let is_own = origin
        .split_once("://")
        .is_some_and(|(by, from)| by.eq_ignore_ascii_case(scheme) && from.eq_ignore_ascii_case(host));
    if is_own { Ok(()) } else { forbidden(format!("a page of '{origin}' may not ask; only pages of this server may")) }
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

    const LOCAL: Place = Place { only_loopback: true, is_encrypted: false };
    const ENCRYPTED: Place = Place { only_loopback: true, is_encrypted: true };
    const OPEN: Place = Place { only_loopback: false, is_encrypted: false };

    fn status(path: &str, headers: &[(&'static str, &str)], place: Place) -> Option<u16> {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| _ = map.append(*name, value.parse().expect("a value")));
        let uri = path.parse().expect("an address");
        refusal(Request { method: &Method::GET, uri: &uri, headers: &map }, place).map(|(status, _)| status.as_u16())
    }

    fn refused(host: &'static str, origin: Option<&'static str>, place: Place) -> bool {
        let headers: Vec<_> = [("host", host)].into_iter().chain(origin.map(|origin| ("origin", origin))).collect();
        status("/health", &headers, place).is_some()
    }

    #[test]
    fn pages_from_elsewhere_are_refused() {
        for host in ["localhost:8740", "127.0.0.1:1", "127.0.0.1", "[::1]:8740", "127.1.2.3:5", "LOCALHOST"] {
            assert!(!refused(host, None, LOCAL), "{host}");
        }
        for host in ["evil.example", "evil.example:8740", "localhost.evil.example", "", "10.0.0.1:8740"] {
            assert!(refused(host, None, LOCAL), "{host}");
        }
        assert!(!refused("localhost:8740", Some("http://localhost:8740"), LOCAL));
        assert!(refused("localhost:8740", Some("https://evil.example"), LOCAL));
        assert!(refused("localhost:8740", Some("null"), LOCAL));
        assert!(refused("localhost:8740", Some("http://localhost:9999"), LOCAL));
        assert!(!refused("bank.example", None, OPEN));
        assert!(refused("bank.example", Some("http://evil.example"), OPEN));
    }

    #[test]
    fn an_origin_has_the_scheme_of_the_server() {
        assert!(refused("localhost:8740", Some("https://localhost:8740"), LOCAL));
        assert!(!refused("localhost:8740", Some("https://localhost:8740"), ENCRYPTED));
        assert!(refused("localhost:8740", Some("http://localhost:8740"), ENCRYPTED));
        assert!(refused("localhost:8740", Some("chrome-extension://localhost:8740"), LOCAL));
        // A program in front of it encrypts.
        let headers = |origin| [("host", "bank.example"), ("x-forwarded-proto", "https"), ("origin", origin)];
        assert_eq!(status("/", &headers("https://bank.example"), OPEN), None);
        assert_eq!(status("/", &headers("http://bank.example"), OPEN), Some(403));
    }

    #[test]
    fn what_another_site_asks_without_an_origin_is_refused() {
        let from = |site, mode| [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
        for site in ["same-origin", "same-site", "none"] {
            assert_eq!(status("/tables/a", &from(site, "cors"), LOCAL), None, "{site}");
        }
        for place in [LOCAL, ENCRYPTED, OPEN] {
            assert_eq!(status("/tables/a", &from("cross-site", "no-cors"), place), Some(403));
            assert_eq!(status("/tables/a", &from("Cross-Site", "navigate"), place), Some(403));
            assert_eq!(status("/", &from("cross-site", "no-cors"), place), Some(403));
            // A click on a link to the console.
            assert_eq!(status("/", &from("cross-site", "navigate"), place), None);
        }
    }

    #[test]
    fn a_header_that_is_there_twice_is_refused() {
        for place in [LOCAL, OPEN] {
            for hosts in [["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]] {
                assert_eq!(status("/", &hosts.map(|host| ("host", host)), place), Some(400), "{hosts:?}");
            }
            let origin = ("origin", "http://localhost");
            assert_eq!(status("/", &[("host", "localhost"), origin, origin], place), Some(400));
            assert_eq!(status("http://evil.example/", &[("host", "localhost")], place), Some(400));
            assert_eq!(status("http://localhost/", &[("host", "localhost")], place), None);
        }
    }
}
