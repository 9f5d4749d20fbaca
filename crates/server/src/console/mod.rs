//! The console: a page about the running application, and what the page asks for.
//!
//! The files of the page are a part of the binary, and nothing else is loaded. The page asks once for what the program
//! is (`describe`), and then again and again for one document about how it runs (`live`). So a page that nobody looks at
//! costs nothing, and one that somebody looks at a summary a second.
//!
//! All text from outside is put into the page as text: the page has no way to make markup of it, and the headers forbid
//! what could.

mod describe;
mod live;
mod recall;
pub mod refused;

use crate::answer::{self, Answer};
use crate::shared::Shared;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Method, StatusCode, Uri};

/// Nothing but the files of this server, no inline script or style, no markup from text, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files of the page, by name.
const FILES: [(&str, &str, &[u8]); 12] = [
    ("index.html", HTML, include_bytes!("page/index.html")),
    ("style.css", STYLE, include_bytes!("page/style.css")),
    ("icon.svg", SVG, include_bytes!("page/icon.svg")),
    ("main.js", SCRIPT, include_bytes!("page/main.js")),
    ("page.js", SCRIPT, include_bytes!("page/page.js")),
    ("rates.js", SCRIPT, include_bytes!("page/rates.js")),
    ("layout.js", SCRIPT, include_bytes!("page/layout.js")),
    ("flow.js", SCRIPT, include_bytes!("page/flow.js")),
    ("epochs.js", SCRIPT, include_bytes!("page/epochs.js")),
    ("refused.js", SCRIPT, include_bytes!("page/refused.js")),
    ("tables.js", SCRIPT, include_bytes!("page/tables.js")),
    ("calls.js", SCRIPT, include_bytes!("page/calls.js")),
];

/// Returns the page.
pub fn page() -> Answer {
    file("index.html").expect("it is there")
}

/// Returns the response to a request below `/console`.
pub async fn respond(shared: &Shared, path: &[&str], method: &Method, uri: &Uri) -> Answer {
    match path {
        ["savepoint"] if method == Method::POST => shared.savepoints.respond(None).await,
        ["savepoint"] => answer::method("POST"),
        _ if method != Method::GET => answer::method("GET"),
        [] => page(),
        ["program.json"] => json(describe::text(shared)),
        ["live.json"] => match number(uri, "after") {
            Ok(after) => json(live::text(shared, after.unwrap_or(0))),
            Err(why) => answer::error(StatusCode::BAD_REQUEST, &why),
        },
        ["transaction", position] => recall::transaction(shared, position).await,
        [name] => file(name).unwrap_or_else(|| answer::error(StatusCode::NOT_FOUND, "the console has no such file")),
        _ => answer::error(StatusCode::NOT_FOUND, "the console has no such file"),
    }
}

/// Returns whether the client is a browser that wants to show a page.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(hyper::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|accept| accept.split(',').any(|one| one.trim_start().starts_with("text/html")))
}

/// Returns a number in the query of an address, if it is there; or what is wrong.
pub fn number(uri: &Uri, name: &str) -> Result<Option<u64>, String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.into_iter().find(|(key, _)| *key == name) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| format!("'{value}' is not a number for '{name}'"))
}

fn json(body: impl Into<Bytes>) -> Answer {
    let mut response = answer::whole(StatusCode::OK, answer::JSON, body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn file(name: &str) -> Option<Answer> {
    let (_, content, bytes) = FILES.iter().find(|(known, ..)| *known == name)?;
    let mut response = answer::whole(StatusCode::OK, content, *bytes);
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept"),
    ];
    headers
        .into_iter()
        .for_each(|(name, value)| _ = response.headers_mut().insert(name, HeaderValue::from_static(value)));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_queries() {
        let of = |uri: &str| number(&uri.parse().expect("an address"), "after");
        assert_eq!(of("/console/live.json"), Ok(None));
        assert_eq!(of("/console/live.json?x=1&after=17"), Ok(Some(17)));
        assert_eq!(of("/console/live.json?after=-1"), Err("'-1' is not a number for 'after'".into()));
    }

    #[test]
    fn files_are_named_once_and_only_plain_ones() {
        for (place, (name, content, bytes)) in FILES.iter().enumerate() {
            assert!(FILES[..place].iter().all(|(other, ..)| other != name), "{name}");
            assert!(!bytes.is_empty() && (content.contains("charset") || *content == SVG), "{name}");
        }
        assert!(file("../Cargo.toml").is_none());
    }

    #[test]
    fn scripts_name_files_that_are_there_and_make_no_markup() {
        for (name, _, bytes) in FILES.iter().filter(|(_, content, _)| *content == SCRIPT) {
            let text = std::str::from_utf8(bytes).expect("text");
            for import in text.split("from \"./").skip(1) {
                let import = import.split('"').next().expect("a name");
                assert!(FILES.iter().any(|(known, ..)| *known == import), "{name} imports {import}");
            }
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(forbidden), "{name} has {forbidden}");
            }
        }
    }
}
