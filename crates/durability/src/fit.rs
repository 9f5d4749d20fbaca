//! Whether a state fits a program: as it is, after a migration, or not at all; with reasons as text for users.
//!
//! The lateness of a source may change freely: its mark stays ([`Fit::Changed`]).
//!
//! The other permitted changes depend on the version of the schema, which the program states explicitly. Under the same
//! version, tables and sources must be identical. Under a raised version these may differ:
//!
//! - a table: new columns that have a default or may be `None`; wider types; another order of columns;
//! - a source: new fields that may be `None`; wider types; removed fields; another order;
//! - new tables and new sources, and another order of tables and sources.
//!
//! A type is wider if it holds every value of the other: `T | None`, a decimal with more digits before or after the
//! point. An int may become a float; an int beyond 2^53, which a float cannot hold, is refused when the migration
//! meets it. Keys keep their columns and types. A change that would lose rows or events is always refused.

use crate::manifest::{Identity, SourceIdentity};
use tidemill_model::{ColumnType, Field, FieldType, Type};
use tidemill_plan::{Column, Table};

/// How a state fits a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The state is of this program.
    Same,
    /// The schemas are equal; the program's code was changed. What else was, of what may change under one version: one
    /// per line.
    Changed(Vec<String>),
    /// The schema was changed compatibly, under a new version. The steps of the migration, one per line.
    Migrates(Vec<String>),
    /// The state does not fit, and why.
    Refused(String),
}

impl Fit {
    /// How a state of one program fits another.
    pub fn of(state: &Identity, program: &Identity) -> Fit {
        if state.application != program.application {
            let (theirs, ours) = (&state.application, &program.application);
            return Fit::Refused(format!("belongs to the application '{theirs}'; this is '{ours}'"));
        }
        let (was, is) = (state.version, program.version);
        let changes = Changes::between(state, program);
        if was > is {
            let all = match changes.none() {
                true => String::new(),
                false => format!("; to go back to it would mean:{}", changes.lines(true)),
            };
            return Fit::Refused(format!("is of version {was} of the schema; this program is version {is}{all}"));
        }
        if changes.none() {
            return if state.code == program.code { Fit::Same } else { Fit::Changed(changes.free) };
        }
        let all = changes.lines(true);
        if was == is {
            let hint = match changes.refused.is_empty() {
                true => format!("\nraise the version of the application to {}, and the state will be changed", was + 1),
                false => String::new(),
            };
            return Fit::Refused(format!("is of another schema, under the same version {was}:{all}{hint}"));
        }
        match changes.refused.is_empty() {
            true => Fit::Migrates([changes.allowed, changes.free].concat()),
            false => Fit::Refused(format!(
                "is of version {was} of the schema and cannot become version {is}:{}",
                changes.lines(false)
            )),
        }
    }
}

/// Whether the rows of one table can become those of another, unchanged or widened; if not, why.
pub fn table_fits(rows: &Table, table: &Table) -> Result<(), String> {
    let mut changes = Changes::default();
    changes.table(rows, table);
    if changes.refused.is_empty() { Ok(()) } else { Err(changes.refused.join("; ")) }
}

/// The differences.
#[derive(Default)]
struct Changes {
    allowed: Vec<String>,
    refused: Vec<String>,
    /// Those that need no other version.
    free: Vec<String>,
}

impl Changes {
    fn between(state: &Identity, program: &Identity) -> Changes {
        let mut changes = Changes::default();
        for old in &state.tables {
            match program.tables.iter().find(|new| new.name == old.name) {
                Some(new) => changes.table(old, new),
                None => changes.refuse(format!("table {} is in the state, not in the program", old.name)),
            }
        }
        for new in program.tables.iter().filter(|new| !state.tables.iter().any(|old| old.name == new.name)) {
            changes.allow(format!("table {} is new", new.name));
        }
        for old in &state.sources {
            match program.sources.iter().find(|new| new.name == old.name) {
                Some(new) => changes.source(old, new),
                None => changes.refuse(format!("source {} is in the state, not in the program", old.name)),
            }
        }
        for new in program.sources.iter().filter(|new| !state.sources.iter().any(|old| old.name == new.name)) {
            changes.allow(format!("source {} is new", new.name));
        }
        let names = |identity: &Identity| {
            let tables = identity.tables.iter().map(|t| t.name.clone());
            tables.chain(identity.sources.iter().map(|s| s.name.clone())).collect::<Vec<_>>()
        };
        if changes.none() && names(state) != names(program) {
            changes.allow("tables or sources are declared in another order".into());
        }
        changes
    }

    fn none(&self) -> bool {
        self.allowed.is_empty() && self.refused.is_empty()
    }

    fn allow(&mut self, line: String) {
        self.allowed.push(line);
    }

    fn refuse(&mut self, line: String) {
        self.refused.push(line);
    }

    fn lines(&self, allowed: bool) -> String {
        let allowed = self.allowed.iter().filter(|_| allowed);
        self.refused.iter().chain(allowed).map(|line| format!("\n  {line}")).collect()
    }

    fn table(&mut self, old: &Table, new: &Table) {
        let name = &old.name;
        let key = |table: &Table| {
            let columns = table.key.iter().map(|&c| format!("{}: {}", table.columns[c].name, table.columns[c].ty));
            columns.collect::<Vec<_>>().join(", ")
        };
        if key(old) != key(new) {
            self.refuse(format!("table {name} has the key {} in the state, and {} in the program", key(old), key(new)));
        }
        let others = |table: &Table| -> Vec<(String, ColumnType)> {
            let column = |(i, c): (usize, &Column)| (!table.key.contains(&i)).then(|| (c.name.clone(), c.ty));
            table.columns.iter().enumerate().filter_map(column).collect()
        };
        let (before, after) = (others(old), others(new));
        self.columns(&format!("table {name}"), &before, &after, false, |column| {
            new.columns.iter().any(|c| c.name == column && c.default.is_some())
        });
        for column in &new.columns {
            let before = old.columns.iter().find(|c| c.name == column.name);
            let Some(before) = before.filter(|before| before.window != column.window) else { continue };
            let text = |column: &Column| column.window.map_or("no window".into(), |window| window.to_string());
            let (was, is) = (text(before), text(column));
            self.refuse(format!("table {name}: {} is {was} in the state, and {is} in the program", column.name));
        }
        let order = |table: &Table| table.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let same = |a: &[String], b: &[String]| a.len() == b.len() && a != b && a.iter().all(|name| b.contains(name));
        if same(&order(old), &order(new)) {
            self.allow(format!("table {name} has its columns in another order"));
        }
    }

    fn source(&mut self, old: &SourceIdentity, new: &SourceIdentity) {
        let name = &old.name;
        let scalars = |source: &SourceIdentity| -> Vec<(String, ColumnType)> {
            let of = |field: &Field| field.scalar_type().map(|ty| (field.name.clone(), ty));
            source.schema.fields.iter().filter_map(of).collect()
        };
        let lists = |source: &SourceIdentity| -> Vec<String> {
            let of = |field: &&Field| matches!(field.ty, FieldType::List(_));
            source.schema.fields.iter().filter(of).map(|field| format!("{}: {}", field.name, field.ty)).collect()
        };
        self.columns(&format!("source {name}"), &scalars(old), &scalars(new), true, |_| false);
        let (was, is) = (lists(old), lists(new));
        if was != is {
            let text = |lists: Vec<String>| if lists.is_empty() { "none".into() } else { lists.join(", ") };
            self.refuse(format!(
                "source {name} has the lists {} in the state, and {} in the program",
                text(was),
                text(is)
            ));
        }
        let time = |source: &SourceIdentity| match source.event_time {
            Some(field) => {
                let field = &source.schema.fields[field];
                format!("'{}' ({})", field.name, field.ty)
            }
            None => "the order of arrival".into(),
        };
        if time(old) != time(new) {
            self.refuse(format!(
                "source {name} has as event time {} in the state, and {} in the program",
                time(old),
                time(new)
            ));
        }
        if old.lateness != new.lateness {
            let ty = old.event_time.and_then(|field| old.schema.fields[field].scalar_type()).map(|scalar| scalar.ty);
            let text = |lateness| match ty {
                Some(Type::Time) => span(lateness),
                _ => lateness.to_string(),
            };
            let (was, is) = (text(old.lateness), text(new.lateness));
            self.free.push(format!("source {name}: its lateness of {was} becomes {is}"));
        }
        let order = |source: &SourceIdentity| source.schema.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        let (was, is) = (order(old), order(new));
        if was != is && was.len() == is.len() && was.iter().all(|name| is.contains(name)) {
            self.allow(format!("source {name} has its fields in another order"));
        }
    }

    /// Compares the columns of a table except its key, or the scalar fields of a source.
    fn columns(
        &mut self,
        of: &str,
        old: &[(String, ColumnType)],
        new: &[(String, ColumnType)],
        may_go: bool,
        has_default: impl Fn(&str) -> bool,
    ) {
        for (name, was) in old {
            match new.iter().find(|(other, _)| other == name) {
                Some((_, is)) if was == is => {}
                Some((_, is)) if widens(*was, *is) => self.allow(format!("{of}: {name}: {was} becomes {is}")),
                Some((_, is)) => self.refuse(format!("{of}: {name} is {was} in the state, and {is} in the program")),
                None if may_go => self.allow(format!("{of}: {name}: {was} goes")),
                None => self.refuse(format!("{of}: {name}: {was} is in the state, not in the program")),
            }
        }
        for (name, is) in new.iter().filter(|(name, _)| !old.iter().any(|(other, _)| other == name)) {
            match (has_default(name), is.nullable) {
                (true, _) => self.allow(format!("{of}: new {name}: {is}, its default in every row")),
                (_, true) => self.allow(format!("{of}: new {name}: {is}, None where it is missing")),
                _ => self.refuse(format!("{of}: {name}: {is} is in the program, not in the state, and has no default")),
            }
        }
    }
}

/// Microseconds in the largest unit of which they are a whole number, as a program says them.
fn span(us: i64) -> String {
    const UNITS: [(&str, i64); 5] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];
    let whole = UNITS.into_iter().find(|(_, unit)| us != 0 && us % unit == 0);
    let (unit, microseconds) = whole.unwrap_or(("us", 1));
    format!("{}{unit}", us / microseconds)
}

/// Whether every value of one type is also a value of the other.
fn widens(was: ColumnType, is: ColumnType) -> bool {
    if was.nullable && !is.nullable {
        return false;
    }
    match (was.ty, is.ty) {
        (Type::Int, Type::Float) => true,
        (Type::Decimal { digits, scale }, Type::Decimal { digits: more, scale: finer }) => {
            finer >= scale && more - finer >= digits - scale
        }
        (was, is) => was == is,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stay_as_they_are() {
        use tidemill_model::Value;
        use tidemill_plan::{Keep, Slices, Window};
        let table = |slide| {
            let keep = Keep::Slices(Slices { count: 5, slide, time: Type::Int });
            let window = Some(Window { value: Type::Int, keep });
            let key = Column { name: "id".into(), ty: Type::Int.into(), default: None, window: None };
            let default = Some(Value::Bytes(Vec::new()));
            let column = Column { name: "w".into(), ty: Type::Bytes.into(), default, window };
            Table { name: "t".into(), columns: vec![key, column], key: vec![0], groups: None }
        };
        assert_eq!(table_fits(&table(2), &table(2)), Ok(()));
        let why = "table t: w is window of int over 10 in slides of 2 in the state, and window of int over 15 in slides \
                   of 3 in the program";
        assert_eq!(table_fits(&table(2), &table(3)), Err(why.into()));
    }

    #[test]
    fn types_widen() {
        let decimal = |digits, scale| ColumnType::required(Type::Decimal { digits, scale });
        let (int, float) = (ColumnType::required(Type::Int), ColumnType::required(Type::Float));
        assert!(widens(int, float) && !widens(float, int));
        assert!(widens(int, ColumnType::optional(Type::Int)) && !widens(ColumnType::optional(Type::Int), int));
        assert!(widens(decimal(9, 2), decimal(10, 2)) && widens(decimal(9, 2), decimal(10, 3)));
        assert!(!widens(decimal(9, 2), decimal(9, 3)) && !widens(decimal(9, 2), decimal(12, 1)));
        assert!(!widens(ColumnType::required(Type::Str), ColumnType::required(Type::Bytes)));
    }
}
