//! What stands between a state and a program that wants it, for people.

use crate::manifest::{Identity, SourceIdentity};
use tidemill_plan::Table;

/// How a state's program differs from the one at hand so that it cannot go on; none where it can.
pub fn difference(state: &Identity, program: &Identity) -> Option<String> {
    if state.application != program.application {
        let (theirs, ours) = (&state.application, &program.application);
        return Some(format!("belongs to the application '{theirs}'; this is '{ours}'"));
    }
    let mut lines = Vec::new();
    pair(&state.tables, &program.tables, |t| &t.name, "table", &mut lines, table);
    pair(&state.sources, &program.sources, |s| &s.name, "source", &mut lines, source);
    let order = |identity: &Identity| {
        let tables = identity.tables.iter().map(|t| t.name.clone());
        tables.chain(identity.sources.iter().map(|s| s.name.clone())).collect::<Vec<_>>()
    };
    if lines.is_empty() && order(state) != order(program) {
        lines.push("its tables or sources are declared in another order".into());
    }
    (!lines.is_empty()).then(|| format!("is of another schema:\n  {}", lines.join("\n  ")))
}

/// Compares things with names.
fn pair<T>(
    state: &[T],
    program: &[T],
    name: impl Fn(&T) -> &String,
    kind: &str,
    lines: &mut Vec<String>,
    compare: impl Fn(&T, &T, &mut Vec<String>),
) {
    for old in state {
        match program.iter().find(|new| name(new) == name(old)) {
            Some(new) => compare(old, new, lines),
            None => lines.push(format!("{kind} {} is in the state, not in the program", name(old))),
        }
    }
    for new in program.iter().filter(|new| !state.iter().any(|old| name(old) == name(new))) {
        lines.push(format!("{kind} {} is in the program, not in the state", name(new)));
    }
}

fn table(old: &Table, new: &Table, lines: &mut Vec<String>) {
    let text = |table: &Table| {
        let column = |(i, c): (usize, &tidemill_plan::Column)| {
            let key = if table.key.contains(&i) { " (key)" } else { "" };
            format!("{}: {}{key}", c.name, c.ty)
        };
        table.columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
    };
    let (was, is) = (text(old), text(new));
    if was != is {
        lines.push(format!("table {} has the columns {was} in the state, and {is} in the program", old.name));
    }
}

fn source(old: &SourceIdentity, new: &SourceIdentity, lines: &mut Vec<String>) {
    if old.schema != new.schema {
        let (was, is) = (&old.schema, &new.schema);
        lines.push(format!("source {} has the fields {was} in the state, and {is} in the program", old.name));
    }
    let time = |source: &SourceIdentity| source.event_time.map(|field| source.schema.fields[field].name.clone());
    if old.schema == new.schema && (time(old), old.lateness) != (time(new), new.lateness) {
        let text = |source: &SourceIdentity| match time(source) {
            Some(field) => format!("'{field}' with a lateness of {}", source.lateness),
            None => "the order of arrival".into(),
        };
        lines.push(format!(
            "source {} has as event time {} in the state, and {} in the program",
            old.name,
            text(old),
            text(new)
        ));
    }
}
