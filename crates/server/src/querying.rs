//! `POST /query`: SQL over HTTP.

use crate::answer::{self, Answer};
use crate::http::{CLOSING, accepts_arrow, after, body, has_content, held};
use crate::identity::Identity;
use crate::pieces::NoBody;
use crate::queries::{NotAsked, Query, QueryError, QueryForm};
use crate::shared::Shared;
use crate::shares::Client;
use crate::{index, pieces, rows, unique};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::value::RawValue;
use std::sync::atomic::Ordering;

/// The body of a query's request, as JSON.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    sql: String,
    /// The parameters as they were written: numbers keep all their digits.
    parameters: Option<Box<RawValue>>,
}

impl Asked {
    /// Reads a query from JSON; the error says in words what is wrong.
    fn of_json(text: &[u8]) -> Result<Asked, String> {
        unique::check(text)?;
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }
}

/// Returns the rows of a query.
pub async fn query(shared: &Shared, identity: &Identity, client: &Client, request: Request<Incoming>) -> Answer {
    if shared.stopping.load(Ordering::Acquire) {
        return answer::later(CLOSING);
    }
    let (is_arrow, is_json) = (accepts_arrow(&request), has_content(&request, answer::JSON));
    let text = match body(shared, request).await {
        Ok(text) => text,
        Err(refused) => return refused,
    };
    let asked = if is_json {
        Asked::of_json(&text).map_err(|why| format!("{why}; give {{\"sql\": \"...\", \"parameters\": [...]}}"))
    } else {
        let text = String::from_utf8(text.into()).map_err(|_| "the query is not UTF-8".to_owned());
        text.map(|sql| Asked { sql, parameters: None })
    };
    let Asked { sql, parameters } = match asked {
        Ok(asked) => asked,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let parameters = parameters.map(|parameters| Box::<str>::from(parameters).into_string());
    if parameters.as_ref().is_some_and(|parameters| !parameters.starts_with(['[', '{'])) {
        return answer::error(StatusCode::BAD_REQUEST, "the parameters are neither a list nor an object");
    }
    let program = shared.session.engine().program();
    let tables = identity.readable(index::tables(program).map(|table| table.name.clone()));
    let form = if is_arrow { QueryForm::Own } else { QueryForm::Plain };
    let query = Query { sql, parameters, form, tables, setup: None };
    match shared.queries.ask(client, query, None).await {
        Ok(queried) => {
            let (epoch, content) = (queried.epoch, if is_arrow { answer::ARROW } else { answer::JSON_LINES });
            let types = if is_arrow { None } else { rows::types_of(&queried) };
            let begin = move || if is_arrow { Ok(rows::arrow_of(queried)) } else { rows::lines_of(queried) };
            match pieces::body((&shared.held, client), begin).await {
                Ok(body) => {
                    let mut response = answer::rows(after(shared, epoch), content, body);
                    types.map(|types| response.headers_mut().insert(answer::TYPES, types));
                    response
                }
                Err(NoBody::Busy) => held(shared),
                Err(NoBody::Failed(why)) => answer::error(StatusCode::BAD_REQUEST, &why),
            }
        }
        Err(why) => not_asked(shared, why),
    }
}

/// Says why a query is not answered.
fn not_asked(shared: &Shared, why: NotAsked) -> Answer {
    match why {
        NotAsked::Busy => {
            let (running, waiting) = (shared.limits.queries_max, shared.limits.queries_waiting_max);
            answer::later(&format!("{running} queries may run at once while {waiting} others wait; try again"))
        }
        NotAsked::Failed(error) => {
            let (status, why) = match error {
                QueryError::Refused(why) => (StatusCode::BAD_REQUEST, why),
                QueryError::NoEngine(why) => (StatusCode::NOT_IMPLEMENTED, why),
                QueryError::Over(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
            };
            answer::error(status, &why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_or_refused() {
        let parameters = |text: &str| {
            Asked::of_json(text.as_bytes()).map(|asked| asked.parameters.map(|parameters| parameters.get().to_owned()))
        };
        assert_eq!(parameters(r#"{"sql":"select 1"}"#), Ok(None));
        assert_eq!(parameters(r#"{"sql":"select 1","parameters":null}"#), Ok(None));
        let digits = "[12345678901234567890123456789012345678901]";
        assert_eq!(parameters(&format!(r#"{{"sql":"","parameters":{digits}}}"#)), Ok(Some(digits.into())));
        assert_eq!(parameters(r#"{"sql":"","parameters":[1e400]}"#), Ok(Some("[1e400]".into())));
        for wrong in [
            r#"{"sql":"select 1","sql":"select 2"}"#,
            r#"{"sql":"select 1","parameters":[1],"parameters":[2]}"#,
            r#"{"sql":"select 1","parameters":{"x":1,"x":2}}"#,
            r#"{"sql":"select 1","parameters":[[{"a":{"x":1,"\u0078":2}}]]}"#,
        ] {
            assert!(parameters(wrong).is_err_and(|why| why.contains("twice") || why.contains("duplicate")), "{wrong}");
        }
    }
}
