//! The description of the server's requests in the terms of OpenAPI 3.1, made from the program.
//!
//! Each procedure, table, stream and pushed source has a path of its own, with its fields and their types, so that clients in other
//! languages can be generated. Where values have several forms in JSON, what is sent may have each, and what comes back has the
//! one that the server writes.

use crate::caller::SentEvents;
use crate::calls::Calls;
use crate::index::{pushed, streams, tables};
use serde_json::{Map, Value as Json, json};
use tidemill_model::{ColumnType, FieldType, ListItem, Schema, Type};
use tidemill_plan::{Program, Stream, Table};
use tidemill_runtime::Session;

/// The direction of values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From clients.
    In,
    /// To clients.
    Out,
}

/// Returns the whole document.
pub fn text(session: &Session, calls: &Calls) -> Vec<u8> {
    let program = session.engine().program();
    let mut paths = Map::new();
    for procedure in session.procedures() {
        let transaction = &program.transactions[procedure.transaction];
        let fields = SentEvents::of(session, procedure.source).given();
        let of_key = session.remembers(procedure.source);
        paths.insert(
            format!("/call/{}", transaction.name),
            json!({"post": call(program, transaction, &fields, of_key)}),
        );
    }
    if calls.procedures().next().is_some() {
        paths.insert("/calls".into(), json!({"post": many_calls()}));
    }
    for table in tables(program) {
        paths.insert(format!("/tables/{}", table.name), json!({"get": rows(table)}));
        let key: String = table.key.iter().map(|&column| format!("/{{{}}}", table.columns[column].name)).collect();
        paths.insert(format!("/tables/{}{key}", table.name), json!({"get": row(table)}));
    }
    for stream in streams(program) {
        paths.insert(format!("/streams/{}", stream.name), json!({"get": follow(stream)}));
    }
    for name in pushed(session) {
        let source = session.source(name).expect("it is sent to");
        let fields = SentEvents::of(session, source).given();
        paths.insert(format!("/stream/{name}"), json!({"post": push(name, &fields, session.remembers_pushes(source))}));
    }
    paths.insert("/query".into(), json!({"post": query()}));
    paths.insert("/savepoints".into(), json!({"post": savepoint("savepoint", None)}));
    paths.insert("/savepoints/{name}".into(), json!({"post": savepoint("savepoint_named", Some("name"))}));
    for name in ["health", "readyz", "healthz"] {
        paths.insert(format!("/{name}"), json!({"get": health(name)}));
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": program.name, "version": program.schema_version.to_string()},
        "paths": paths,
        "components": {
            "schemas": {"Error": error_schema()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    });
    let mut out = serde_json::to_vec(&document).expect("a document is plain data");
    out.push(b'\n');
    out
}

fn call(program: &Program, transaction: &tidemill_plan::Transaction, fields: &Schema, of_key: bool) -> Json {
    let committed = object(&program.streams[transaction.committed.stream].schema, Way::Out);
    let aborted = &program.streams[transaction.aborted].schema.fields;
    let seen = Schema { fields: aborted[aborted.len() - transaction.seen.len()..].to_vec() };
    let reasons = json!({"type": "string", "examples": transaction.reasons});
    let durable = json!({
        "name": "durable", "in": "query", "schema": {"type": "boolean", "default": true},
        "description": "Whether the reply comes when no crash can take the call back.",
    });
    let parameters: Vec<Json> = std::iter::once(durable).chain(of_key.then(key)).collect();
    let mut responses = errors(&[400, 401, 403, 404, 422, 503]);
    responses["200"] = answer(
        "It committed.",
        json!({
            "type": "object",
            "properties": {"committed": {"anyOf": [committed, {"type": "null"}]}, "epoch": epoch()},
            "required": ["committed", "epoch"],
        }),
    );
    responses["409"] = answer(
        "It aborted, and changed nothing.",
        json!({
            "type": "object",
            "properties": {"aborted": reasons, "seen": object(&seen, Way::Out), "epoch": epoch()},
            "required": ["aborted", "seen", "epoch"],
        }),
    );
    json!({
        "operationId": format!("call_{}", transaction.name),
        "tags": ["calls"],
        "parameters": parameters,
        "requestBody": {"required": true, "content": {"application/json": {"schema": object(fields, Way::In)}}},
        "responses": responses,
    })
}

fn key() -> Json {
    json!({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}})
}

fn epoch() -> Json {
    json!({"type": "integer", "format": "int64"})
}

fn many_calls() -> Json {
    let mut responses = errors(&[400, 401, 503]);
    responses["200"] = json!({"description": "A line for each call.", "content": {"application/x-ndjson": {"schema": {
        "type": "object",
        "properties": {"status": {"type": "integer"}, "reply": {"type": "object"}},
        "required": ["status", "reply"],
    }}}});
    let line = json!({
        "type": "object",
        "properties": {
            "call": {"type": "string"},
            "fields": {"type": "object"},
            "idempotency_key": {"type": "string"},
            "durable": {"type": "boolean"},
            "traceparent": {"type": "string"},
        },
        "required": ["call", "fields"],
    });
    json!({
        "operationId": "calls",
        "tags": ["calls"],
        "requestBody": {"required": true, "content": {"application/x-ndjson": {"schema": line}}},
        "responses": responses,
    })
}

/// Returns the columns of a table that a read shows.
fn columns(table: &Table) -> Schema {
    let columns = table.columns.iter();
    Schema { fields: columns.map(|column| tidemill_model::Field::scalar(&column.name, column.ty)).collect() }
}

fn rows(table: &Table) -> Json {
    let number = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0}});
    let mut responses = errors(&[400, 401, 403, 503]);
    responses["200"] = json!({
        "description": "A line for each row, sorted by key.",
        "headers": {
            "Tidemill-Epoch": {"schema": {"type": "string"}},
            "Tidemill-Rows": {"schema": {"type": "integer"}},
        },
        "content": {
            "application/x-ndjson": {"schema": object(&columns(table), Way::Out)},
            "application/vnd.apache.arrow.stream": {},
        },
    });
    json!({
        "operationId": format!("rows_{}", table.name),
        "tags": ["tables"],
        "parameters": [number("offset"), number("limit")],
        "responses": responses,
    })
}

fn row(table: &Table) -> Json {
    let part = |&column: &usize| {
        let column = &table.columns[column];
        json!({"name": column.name, "in": "path", "required": true, "schema": scalar(column.ty, Way::In)})
    };
    let mut responses = errors(&[400, 401, 403, 404, 503]);
    responses["200"] = answer("The row.", object(&columns(table), Way::Out));
    json!({
        "operationId": format!("row_{}", table.name),
        "tags": ["tables"],
        "parameters": table.key.iter().map(part).collect::<Vec<Json>>(),
        "responses": responses,
    })
}

fn follow(stream: &Stream) -> Json {
    let mut responses = errors(&[400, 401, 403, 410, 503]);
    responses["200"] = json!({
        "description": "Events as they are released; the data of each is an object.",
        "content": {"text/event-stream": {"schema": object(&stream.schema, Way::Out)}},
    });
    json!({
        "operationId": format!("follow_{}", stream.name.replace('.', "__")),
        "tags": ["streams"],
        "parameters": [{"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}],
        "responses": responses,
    })
}

fn push(name: &str, schema: &Schema, of_key: bool) -> Json {
    let mut responses = errors(&[400, 401, 403, 422, 503]);
    responses["200"] = answer(
        "All events are in the history.",
        json!({
            "type": "object",
            "properties": {"events": {"type": "integer"}, "epoch": epoch()},
            "required": ["events", "epoch"],
        }),
    );
    json!({
        "operationId": format!("push_{name}"),
        "tags": ["streams"],
        "parameters": Vec::from_iter(of_key.then(key)),
        "requestBody": {"required": true, "content": {
            "application/x-ndjson": {"schema": object(schema, Way::In)},
            "application/vnd.apache.arrow.stream": {},
        }},
        "responses": responses,
    })
}

fn query() -> Json {
    let mut responses = errors(&[400, 401, 403, 503]);
    responses["200"] = json!({
        "description": "A line for each row.",
        "headers": {
            "Tidemill-Epoch": {"schema": {"type": "string"}},
            "Tidemill-Types": {"schema": {"type": "string"}},
        },
        "content": {
            "application/x-ndjson": {"schema": {"type": "object"}},
            "application/vnd.apache.arrow.stream": {},
        },
    });
    let asked = json!({
        "type": "object",
        "properties": {"sql": {"type": "string"}, "parameters": {"type": "array"}},
        "required": ["sql"],
    });
    json!({
        "operationId": "query",
        "tags": ["tables"],
        "requestBody": {"required": true, "content": {
            "application/json": {"schema": asked},
            "text/plain": {"schema": {"type": "string"}},
        }},
        "responses": responses,
    })
}

fn savepoint(operation: &str, named: Option<&str>) -> Json {
    let named = named.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let mut responses = errors(&[401, 403, 409, 503]);
    responses["200"] = answer(
        "It is kept.",
        json!({
            "type": "object",
            "properties": {"savepoint": {"type": "string"}, "epoch": epoch()},
            "required": ["savepoint", "epoch"],
        }),
    );
    json!({
        "operationId": operation,
        "tags": ["operation"],
        "parameters": Vec::from_iter(named),
        "responses": responses,
    })
}

fn health(name: &str) -> Json {
    let said = json!({
        "type": "object",
        "properties": {"status": {"type": "string"}, "time": {"type": "string"}, "head": {"type": "string"}},
        "required": ["status"],
    });
    json!({
        "operationId": name,
        "tags": ["operation"],
        "security": [],
        "responses": {"200": answer("It is.", said.clone()), "503": answer("It is not, and why.", said)},
    })
}

fn answer(description: &str, schema: Json) -> Json {
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

/// Returns the answers of requests that are refused.
fn errors(statuses: &[u16]) -> Json {
    let described = |status: &u16| {
        let why = match status {
            400 => "The request is wrong.",
            401 => "The server asks who you are.",
            403 => "The user has not the right.",
            404 => "There is no such thing.",
            409 => "It cannot be done now.",
            410 => "The events are not kept any more.",
            422 => "A field is wrong.",
            _ => "Nothing was done; it may be asked again.",
        };
        let refers = json!({"$ref": "#/components/schemas/Error"});
        (status.to_string(), answer(why, refers))
    };
    Json::Object(statuses.iter().map(described).collect())
}

fn error_schema() -> Json {
    json!({
        "type": "object",
        "properties": {
            "error": {"type": "string"},
            "field": {"type": "string"},
            "line": {"type": "integer"},
            "retry_after": {"type": "integer"},
            "idempotency_key": {"type": "boolean"},
            "kept": {"type": "string"},
        },
        "required": ["error"],
    })
}

/// Returns the schema of an object. What is sent may leave out what can be None.
fn object(schema: &Schema, way: Way) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in &schema.fields {
        let (value, is_needed) = match &field.ty {
            FieldType::Scalar(ty) => (scalar(*ty, way), way == Way::Out || !ty.nullable),
            FieldType::List(ListItem::Scalar(ty)) => (json!({"type": "array", "items": scalar(*ty, way)}), true),
            FieldType::List(ListItem::Struct(columns)) => {
                let columns = columns.iter().map(|(name, ty)| tidemill_model::Field::scalar(name, *ty));
                let items = object(&Schema { fields: columns.collect() }, way);
                (json!({"type": "array", "items": items}), true)
            }
        };
        if is_needed {
            required.push(field.name.clone());
        }
        properties.insert(field.name.clone(), value);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn scalar(column: ColumnType, way: Way) -> Json {
    let own = match column.ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int | Type::Duration => json!({"type": "integer", "format": "int64"}),
        Type::Float => {
            json!({"anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]})
        }
        Type::Decimal { .. } if way == Way::In => json!({"type": ["number", "string"]}),
        Type::Decimal { .. } => json!({"type": "number"}),
        Type::Time => json!({"type": "string", "format": "date-time"}),
        Type::Str => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        Type::Null => json!({"type": "null"}),
    };
    if column.nullable { json!({"anyOf": [own, {"type": "null"}]}) } else { own }
}
