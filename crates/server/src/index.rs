//! The index of what can be asked: procedures with their fields, tables with their columns, streams, sources.

use crate::caller::SentEvents;
use crate::calls::Calls;
use tidemill_connect::json_string;
use tidemill_model::Schema;
use tidemill_plan::{Program, Stream, Table, shown_streams};
use tidemill_runtime::Session;

/// Returns the tables that users declared.
pub fn tables(program: &Program) -> impl Iterator<Item = &Table> {
    program.tables.iter().filter(|table| !table.is_hidden)
}

/// Returns the streams that may be read: those that users declared, and what transactions put out.
pub fn streams(program: &Program) -> impl Iterator<Item = &Stream> {
    shown_streams(program).map(|id| &program.streams[id])
}

/// Returns the sources that events can be pushed into.
pub fn pushed(session: &Session) -> impl Iterator<Item = &str> {
    session.source_names().filter(|name| session.source(name).is_ok())
}

/// Returns the description of the application (its streams, tables and procedures) as one JSON object.
pub fn text(session: &Session, calls: &Calls) -> Vec<u8> {
    let program = session.engine().program();
    let mut out = b"{\"application\":".to_vec();
    json_string(&mut out, &program.name);
    let procedures = calls.procedures().map(|(name, schema)| (name.to_owned(), fields(&schema)));
    object(&mut out, "POST /call/NAME", procedures);
    out.extend_from_slice(b",\"POST /calls\":\"{\\\"call\\\": NAME, \\\"fields\\\": {...}}, a line for each call\"");
    let columns = |table: &Table| table.columns.iter().map(|c| (c.name.clone(), c.ty.to_string())).collect();
    object(&mut out, "GET /tables/NAME[/KEY]", tables(program).map(|table| (table.name.clone(), columns(table))));
    let of_streams = streams(program).map(|stream| (stream.name.clone(), fields(&stream.schema)));
    object(&mut out, "GET /streams/NAME", of_streams);
    let sources = pushed(session).map(|name| {
        let source = session.source(name).expect("it is sent to");
        (name.to_owned(), fields(&SentEvents::of(session, source).given()))
    });
    object(&mut out, "POST /stream/NAME", sources);
    out.extend_from_slice(b"}\n");
    out
}

fn fields(schema: &Schema) -> Vec<(String, String)> {
    schema.fields.iter().map(|field| (field.name.clone(), field.ty.to_string())).collect()
}

/// Appends `"KEY": {"NAME": {"FIELD": "TYPE"}}`.
fn object(out: &mut Vec<u8>, key: &str, entries: impl Iterator<Item = (String, Vec<(String, String)>)>) {
    out.push(b',');
    json_string(out, key);
    out.extend_from_slice(b":{");
    for (place, (name, fields)) in entries.enumerate() {
        entry(out, place, &name);
        out.push(b'{');
        for (place, (field, ty)) in fields.iter().enumerate() {
            entry(out, place, field);
            json_string(out, ty);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

fn entry(out: &mut Vec<u8>, place: usize, name: &str) {
    if place > 0 {
        out.push(b',');
    }
    json_string(out, name);
    out.push(b':');
}
