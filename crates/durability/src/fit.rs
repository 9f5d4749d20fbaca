//! The fit of a state to a program: as it is, after a migration, or not at all; with reasons as text for users.
//!
//! The lateness of a source may change freely: its mark stays ([`Fit::Changed`]).
//!
//! The other permitted changes depend on the version of the schema, which the program states explicitly. Under the same
//! version, tables and sources must be identical. Under a raised version these may differ:
//!
//! - a table: new columns that have a default or may be `None`; wider types; other types, of columns that say how values
//!   are converted; another order of columns; columns that say what they were called before; fewer columns;
//! - a source: new fields that may be `None`; wider types; removed fields; another order;
//! - the time after which rows of a table expire;
//! - new tables and new sources, fewer tables, tables that say what they were called before, sources that are retired, and another order
//!   of tables and sources.
//!
//! A type is wider if it holds every value of the other: `T | None`, a decimal with more digits before or after the
//! point. An int may become a float; an int beyond 2^53, which a float cannot hold, is refused when the migration
//! meets it. Keys keep their columns and types; key columns may change their names. A column or table that the program does not have
//! is dropped with what is in it. Any other change that would lose rows or events is always refused.
//!
//! Operators (`operators.rs`) need no other version where they are changed. One with another definition begins anew, for which nothing
//! of it may be open: whoever migrates looks.

use crate::manifest::{Identity, SourceIdentity};
use crate::operators::{ChangedOperator, OperatorChanges};
use tidemill_model::civil::span_text;
use tidemill_model::{ColumnType, Field, FieldType, Type, Value};
use tidemill_plan::{Column, Conversion, Definition, DefinitionKind, Expire, Table, TablePart};

/// The fit of a state to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The state is of this program.
    Same,
    /// The schemas are equal; the program's code was changed. What else was, of what may change under one version: one
    /// per line.
    Changed(Vec<String>),
    /// The schema was changed compatibly, under a new version; or operators were changed.
    Migrates(Migration),
    /// The state does not fit, and why.
    Refused(String),
}

/// The migration of a state to another schema, one step per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Steps after which all that was in the state is still there.
    pub steps: Vec<String>,
    /// Columns and tables that go, with what is in them.
    pub drops: Vec<String>,
    /// Operators that are others, and begin anew. None of them may have anything open.
    pub changed: Vec<ChangedOperator>,
    /// Operators that go, with what they have open.
    pub gone: Vec<Definition>,
}

impl Migration {
    /// Returns all steps.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.steps.iter().chain(&self.drops)
    }

    /// Returns whether a table of the state that has this name is of an operator that begins anew.
    pub fn begins_anew(&self, table: &str) -> bool {
        self.changed.iter().any(|changed| changed.operator.owns(table))
    }
}

impl Fit {
    /// Compares the program of a state with another.
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
        if changes.none() && changes.operators.is_empty() {
            return if state.code == program.code { Fit::Same } else { Fit::Changed(changes.free) };
        }
        let all = changes.lines(true);
        if was == is && !changes.none() {
            let hint = match (changes.refused.is_empty(), changes.dropped.is_empty()) {
                (false, _) => String::new(),
                (true, true) => {
                    format!("\nraise the version of the application to {}, and the state will be changed", was + 1)
                }
                (true, false) => format!(
                    "\nraise the version of the application to {}, and the state will be changed: what is not in the \
                     program is dropped",
                    was + 1
                ),
            };
            return Fit::Refused(format!("is of another schema, under the same version {was}:{all}{hint}"));
        }
        match changes.refused.is_empty() {
            true => {
                let dropped = changes.dropped.iter().map(|line| format!("{line}: it is dropped with what is in it"));
                let steps = [changes.allowed, changes.operators, changes.free].concat();
                let (drops, changed, gone) = (dropped.collect(), changes.changed, changes.gone);
                Fit::Migrates(Migration { steps, drops, changed, gone })
            }
            false => Fit::Refused(format!(
                "is of version {was} of the schema and cannot become version {is}:{}",
                changes.lines(false)
            )),
        }
    }
}

/// Checks that the rows of one table can become those of another, unchanged or widened; the error says why not.
pub fn table_fits(rows: &Table, table: &Table) -> Result<(), String> {
    let mut changes = Changes::default();
    changes.table(rows, table);
    let lost = [changes.refused, changes.dropped].concat();
    if lost.is_empty() { Ok(()) } else { Err(lost.join("; ")) }
}

/// Returns the changes of a table that lose nothing, and those that cannot be made.
pub(crate) fn table_changes(old: &Table, new: &Table) -> (Vec<String>, Vec<String>) {
    let mut changes = Changes::default();
    changes.table(old, new);
    (changes.allowed, changes.refused)
}

/// Returns the table of a state whose rows a table of the program takes over, if there is one: that of the same name; where there is
/// none, the one that it was by the program. Hidden tables that are no operator's follow the table that they are of.
pub fn table_taken_over<'a>(state: &'a [Table], program: &[Table], table: &Table) -> Option<&'a Table> {
    let of_name = |name: &str| state.iter().find(|old| old.name == name);
    let earlier = || match table.written_owner() {
        Some((owner, part)) => {
            let was = program.iter().find(|other| other.name == owner)?.was.as_ref()?;
            Some(part.named(was))
        }
        None => table.was.clone(),
    };
    // A name that the program has is another table's.
    let is_free = |name: &String| !program.iter().any(|other| other.name == *name);
    of_name(&table.name).or_else(|| of_name(&earlier().filter(is_free)?))
}

/// Returns the column of the state's rows whose values each column of a table takes over, by column, if there is one.
/// That is the column of the same name; where there is none, or where it has become another column, the one that it was
/// by the program.
pub fn taken_over(rows: &Table, table: &Table) -> Vec<Option<usize>> {
    let position = |name: &str| rows.columns.iter().position(|column| column.name == name);
    let mut from: Vec<Option<usize>> = table.columns.iter().map(|column| position(&column.name)).collect();
    // Each round renames a column for good: no two columns were the same one.
    while let Some((renamed, was)) = table.columns.iter().enumerate().find_map(|(c, column)| {
        let was = column.was.as_ref().filter(|_| from[c].is_none()).and_then(|was| position(was));
        Some((c, was?))
    }) {
        from.iter_mut().filter(|other| **other == Some(was)).for_each(|other| *other = None);
        from[renamed] = Some(was);
    }
    from
}

/// Returns the function that converts the values of a column that another one takes over, if a function does it: where
/// the type is another, or where the function says what became of the values under the new name.
pub fn conversion_of<'a>(before: &Column, column: &'a Column) -> Option<&'a Conversion> {
    column
        .convert
        .as_ref()
        .filter(|_| before.window.is_none() && (before.ty != column.ty || before.name != column.name))
}

/// The differences.
#[derive(Default)]
struct Changes {
    allowed: Vec<String>,
    refused: Vec<String>,
    /// The changes that lose columns and tables, with what was in them.
    dropped: Vec<String>,
    /// The changes that need no other version.
    free: Vec<String>,
    /// The changes of operators, which need no other version, either.
    operators: Vec<String>,
    /// Operators that are others.
    changed: Vec<ChangedOperator>,
    /// Operators that go.
    gone: Vec<Definition>,
}

impl Changes {
    fn between(state: &Identity, program: &Identity) -> Changes {
        let mut changes = Changes::default();
        changes.tables(state, program);
        changes.operators(OperatorChanges::between(state, program));
        for old in &state.sources {
            match program.sources.iter().find(|new| new.name == old.name) {
                Some(new) => changes.source(old, new),
                None if program.retired.contains(&old.name) => {
                    changes.drop(format!("source {} is retired", old.name));
                }
                None => changes.refuse(format!(
                    "source {} is in the state, not in the program, which does not retire it",
                    old.name
                )),
            }
        }
        for new in program.sources.iter().filter(|new| !state.sources.iter().any(|old| old.name == new.name)) {
            changes.allow(format!("source {} is new", new.name));
        }
        let names = |identity: &Identity| {
            let tables = identity.tables.iter().filter(|table| !is_operators(table)).map(|t| t.name.clone());
            tables.chain(identity.sources.iter().map(|s| s.name.clone())).collect::<Vec<_>>()
        };
        if changes.none() && names(state) != names(program) {
            changes.allow("tables or sources are declared in another order".into());
        }
        let tables = |identity: &Identity| identity.tables.iter().map(|table| table.name.clone()).collect::<Vec<_>>();
        if changes.none() && changes.operators.is_empty() && tables(state) != tables(program) {
            changes.operators.push("windows, joins or ticks are declared in another order".into());
        }
        changes
    }

    fn tables(&mut self, state: &Identity, program: &Identity) {
        let (olds, news) = (&state.tables, &program.tables);
        let mut known = Vec::new();
        for new in news.iter().filter(|table| !is_operators(table)) {
            let Some(old) = table_taken_over(olds, news, new) else {
                match &new.was {
                    Some(was) => {
                        self.refuse(format!("table {} was {was} by the program; the state has neither", new.name))
                    }
                    None => self.allow(format!("table {} is new", new.name)),
                }
                continue;
            };
            if old.name != new.name {
                self.allow(format!("table {} becomes {}", old.name, new.name));
            }
            known.push(&old.name);
            self.table(old, new);
        }
        for old in olds.iter().filter(|old| !is_operators(old) && !known.contains(&&old.name)) {
            self.drop(format!("table {} is in the state, not in the program", old.name));
        }
    }

    fn operators(&mut self, changes: OperatorChanges) {
        let OperatorChanges { changed, gone, new, steps } = changes;
        for operator in &gone {
            let line = format!("{} is in the state, not in the program", operator.shown());
            match operator.kind {
                DefinitionKind::Ticks => self.allow(line),
                _ => self.drop(line),
            }
        }
        // Batches are kept by the gate, in no table.
        for operator in new.iter().filter(|operator| operator.kind != DefinitionKind::Batch) {
            self.allow(format!("{} is new", operator.shown()));
        }
        self.operators.extend(steps);
        self.operators.extend(changed.iter().flat_map(ChangedOperator::lines));
        (self.changed, self.gone) = (changed, gone);
    }

    fn none(&self) -> bool {
        self.allowed.is_empty() && self.refused.is_empty() && self.dropped.is_empty()
    }

    fn allow(&mut self, line: String) {
        self.allowed.push(line);
    }

    fn refuse(&mut self, line: String) {
        self.refused.push(line);
    }

    fn drop(&mut self, line: String) {
        self.dropped.push(line);
    }

    fn lines(&self, allowed: bool) -> String {
        let allowed = self.dropped.iter().chain(&self.allowed).chain(&self.operators).filter(|_| allowed);
        self.refused.iter().chain(allowed).map(|line| format!("\n  {line}")).collect()
    }

    fn table(&mut self, old: &Table, new: &Table) {
        let name = &old.name;
        let from = taken_over(old, new);
        let key = |table: &Table| {
            let columns = table.key.iter().map(|&c| format!("{}: {}", table.columns[c].name, table.columns[c].ty));
            columns.collect::<Vec<_>>().join(", ")
        };
        let types = |table: &Table| table.key.iter().map(|&c| table.columns[c].ty).collect::<Vec<_>>();
        if !new.key.iter().map(|&c| from[c]).eq(old.key.iter().map(|&c| Some(c))) || types(old) != types(new) {
            self.refuse(format!("table {name} has the key {} in the state, and {} in the program", key(old), key(new)));
        }
        for (c, column) in new.columns.iter().enumerate() {
            let Some(before) = from[c].map(|c| &old.columns[c]) else {
                self.new_column(name, column, new.key.contains(&c));
                continue;
            };
            if before.name != column.name {
                self.allow(format!("table {name}: {} becomes {}", before.name, column.name));
            }
            match conversion_of(before, column) {
                _ if new.key.contains(&c) => {}
                Some(conversion) => self.conversion(name, before, column, conversion),
                None => {
                    let is_plain = before.window.is_none() && column.window.is_none();
                    let hint = if is_plain { "; a function given as convert= can convert it" } else { "" };
                    self.ty(&format!("table {name}"), &column.name, before.ty, column.ty, hint);
                }
            }
            if before.window != column.window {
                let text = |column: &Column| column.window.map_or("no window".into(), |window| window.to_string());
                let (was, is) = (text(before), text(column));
                self.refuse(format!("table {name}: {} is {was} in the state, and {is} in the program", column.name));
            }
        }
        self.expiry(old, new, &from);
        let goes = |c: usize| !from.contains(&Some(c)) && !old.key.contains(&c);
        for column in (0..old.columns.len()).filter(|&c| goes(c)).map(|c| &old.columns[c]) {
            self.drop(format!("table {name}: {}: {} is in the state, not in the program", column.name, column.ty));
        }
        if old.columns.len() == new.columns.len() && from.iter().all(Option::is_some) && !from.is_sorted() {
            self.allow(format!("table {name} has its columns in another order"));
        }
    }

    /// The time at which rows expire. Rows of a state keep the time that their last write has given them; those that were never given
    /// one have none. `from`: the column that each column takes over.
    fn expiry(&mut self, old: &Table, new: &Table, from: &[Option<usize>]) {
        let name = &old.name;
        let position = |table: &Table, name: &str| table.columns.iter().position(|column| column.name == name);
        match (&old.expire, &new.expire) {
            (Some(Expire::At(was)), Some(Expire::At(is))) if let Some(column) = position(new, is) => {
                let before = from[column].filter(|before| position(old, was) == Some(*before));
                match before.map(|before| conversion_of(&old.columns[before], &new.columns[column])) {
                    Some(None) => {}
                    Some(Some(_)) => self.refuse(format!(
                        "table {name}: rows expire by {is}, which a function converts, and those in the state keep the \
                         time of before: convert it in a column of another name"
                    )),
                    None => self.refuse(format!(
                        "table {name}: rows expire by {was} in the state, and by {is} in the program, which is not that \
                         column: those in the state are not looked up by it"
                    )),
                }
            }
            (was, is) if was == is => {}
            (_, Some(Expire::At(column))) => self.refuse(format!(
                "table {name}: rows expire by {column} in the program, and those in the state are not looked up by it"
            )),
            (_, Some(is)) => self.allow(format!(
                "table {name}: rows expire {} after their next write; until then, as before",
                expiry_text(is)
            )),
            (_, None) => self.allow(format!("table {name}: rows do not expire any more")),
        }
    }

    /// Checks a column that has no values in the state.
    fn new_column(&mut self, table: &str, column: &Column, is_key: bool) {
        let (name, ty) = (&column.name, column.ty);
        match (&column.was, &column.default) {
            _ if is_key => {} // The keys differ.
            (Some(was), _) => {
                self.refuse(format!("table {table}: {name} was {was} by the program; the state has neither"))
            }
            (None, Some(Value::Null)) => {
                self.allow(format!("table {table}: new {name}: {ty}, None where it is missing"))
            }
            (None, Some(_)) => self.allow(format!("table {table}: new {name}: {ty}, its default in every row")),
            (None, None) => self
                .refuse(format!("table {table}: {name}: {ty} is in the program, not in the state, and has no default")),
        }
    }

    /// Checks a column whose values a function converts.
    fn conversion(&mut self, table: &str, before: &Column, column: &Column, conversion: &Conversion) {
        let (name, was, from, is) = (&column.name, before.ty, conversion.from, column.ty);
        let takes = format!("table {table}: {name} is {was} in the state, and its function takes {from}");
        match was.nullable && !from.nullable {
            _ if !widens(ColumnType { nullable: false, ..was }, ColumnType { nullable: false, ..from }) => {
                self.refuse(takes);
            }
            true if !is.nullable => self.refuse(format!("{takes}: None stays None, which {is} cannot be")),
            _ => self.allow(format!("table {table}: {name}: {was} is converted to {is} by its function, row by row")),
        }
    }

    /// Checks the type of a column or field that is in both the state and the program.
    fn ty(&mut self, of: &str, name: &str, was: ColumnType, is: ColumnType, hint: &str) {
        match was == is {
            true => {}
            false if widens(was, is) => self.allow(format!("{of}: {name}: {was} becomes {is}")),
            false => self.refuse(format!("{of}: {name} is {was} in the state, and {is} in the program{hint}")),
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
        self.fields(&format!("source {name}"), &scalars(old), &scalars(new));
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
                let filled = if source.anchored { ", filled with the time of the position" } else { "" };
                format!("'{}' ({}{filled})", field.name, field.ty)
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
                Some(Type::Time) => span_text(lateness),
                _ => lateness.to_string(),
            };
            self.free.push(match (old.lateness, new.lateness) {
                (was @ ..0, is @ ..0) => {
                    format!("source {name}: its period of {} becomes {}", text(-was), text(-is))
                }
                (was, is) => format!("source {name}: its lateness of {} becomes {}", text(was), text(is)),
            });
        }
        let order = |source: &SourceIdentity| source.schema.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        let (was, is) = (order(old), order(new));
        if was != is && was.len() == is.len() && was.iter().all(|name| is.contains(name)) {
            self.allow(format!("source {name} has its fields in another order"));
        }
    }

    /// Compares the scalar fields of a source.
    fn fields(&mut self, of: &str, old: &[(String, ColumnType)], new: &[(String, ColumnType)]) {
        for (name, was) in old {
            match new.iter().find(|(other, _)| other == name) {
                Some((_, is)) => self.ty(of, name, *was, *is, ""),
                None => self.allow(format!("{of}: {name}: {was} goes")),
            }
        }
        for (name, is) in new.iter().filter(|(name, _)| !old.iter().any(|(other, _)| other == name)) {
            match is.nullable {
                true => self.allow(format!("{of}: new {name}: {is}, None where it is missing")),
                false => {
                    self.refuse(format!("{of}: {name}: {is} is in the program, not in the state, and has no default"))
                }
            }
        }
    }
}

/// Returns whether a table is one of an operator's. Those of rows that wake are of the table whose rows these are.
fn is_operators(table: &Table) -> bool {
    table.written_owner().is_some_and(|(_, part)| part != TablePart::Wakes)
}

/// Returns the length of time after which rows expire.
fn expiry_text(expire: &Expire) -> String {
    match expire {
        Expire::After(Value::Duration(length)) => span_text(*length),
        Expire::After(Value::Int(length)) => length.to_string(),
        Expire::After(other) => other.to_string(),
        Expire::At(column) => column.clone(),
    }
}

/// Returns whether every value of one type is also a value of the other.
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

    /// Returns a table of columns, the first of which is the key.
    fn table_of(columns: Vec<Column>) -> Table {
        Table {
            name: "t".into(),
            columns,
            key: vec![0],
            indexes: vec![],
            groups: None,
            was: None,
            expire: None,
            is_hidden: false,
            owner: None,
        }
    }

    #[test]
    fn windows_stay_as_they_are() {
        use tidemill_model::Value;
        use tidemill_plan::{Keep, Slices, Window};
        let table = |slide| {
            let keep = Keep::Slices(Slices { count: 5, slide, time: Type::Int });
            let window = Some(Window { value: Type::Int, keep });
            let key = Column::new("id", Type::Int);
            let default = Some(Value::Bytes(Vec::new()));
            let column = Column { default, window, ..Column::new("w", Type::Bytes) };
            table_of(vec![key, column])
        };
        assert_eq!(table_fits(&table(2), &table(2)), Ok(()));
        let why = "table t: w is window of int over 10 in slides of 2 in the state, and window of int over 15 in slides \
                   of 3 in the program";
        assert_eq!(table_fits(&table(2), &table(3)), Err(why.into()));
    }

    /// Returns a table of ints, the first of which is the key: names, and names that they had. All but the key have a
    /// default.
    fn ints<const N: usize>(columns: [(&str, Option<&str>); N]) -> Table {
        let column = |(c, (name, was)): (usize, (&str, Option<&str>))| Column {
            default: (c > 0).then_some(Value::Int(0)),
            was: was.map(Into::into),
            ..Column::new(name, Type::Int)
        };
        table_of(columns.into_iter().enumerate().map(column).collect())
    }

    #[test]
    fn a_column_takes_over_one_of_another_name_where_its_own_is_not_there() {
        let was = ints([("id", None), ("a", None), ("b", None)]);
        let from = |columns: [(&str, Option<&str>); 3]| taken_over(&was, &ints(columns));
        assert_eq!(from([("key", Some("id")), ("b", None), ("c", Some("a"))]), [Some(0), Some(2), Some(1)]);
        // It was renamed already.
        assert_eq!(from([("id", None), ("b", Some("a")), ("c", None)]), [Some(0), Some(2), None]);
        // A new column has the old name.
        assert_eq!(from([("id", None), ("a", None), ("c", Some("a"))]), [Some(0), None, Some(1)]);
        // They move on, one to the name of the next.
        assert_eq!(from([("id", None), ("c", Some("b")), ("b", Some("a"))]), [Some(0), Some(2), Some(1)]);
        // Both names are there: nothing says that they were exchanged since.
        assert_eq!(from([("id", None), ("a", Some("b")), ("b", Some("a"))]), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn rows_expire_by_the_column_by_which_they_did() {
        use tidemill_plan::build::{PlanBuilder, literal};
        let table = |names: [(&str, Option<&str>); 2], by: &str, converts: bool| {
            let plan = PlanBuilder::new("p").source("s", |s| s.event_time("at", Type::Int)).table("t", |t| {
                let t = names.iter().fold(t.key("id", Type::Int), |t, (name, was)| {
                    let t = t.column_or(*name, Type::Int, Value::Int(0));
                    let t = was.iter().fold(t, |t, was| t.was(*was));
                    if converts && *name == by { t.convert(Type::Int, Vec::new(), literal(1)) } else { t }
                });
                t.expire(Expire::At(by.into()))
            });
            tidemill_plan::analyze(&plan.build()).expect("it is sound").tables.raw.remove(0)
        };
        let refused = |new: &Table| {
            let mut changes = Changes::default();
            changes.table(&table([("until", None), ("other", None)], "until", false), new);
            changes.refused
        };
        // Under another name it is the same column.
        assert!(refused(&table([("till", Some("until")), ("other", None)], "till", false)).is_empty());
        assert!(refused(&table([("until", None), ("other", None)], "until", false)).is_empty());
        let another = |was: &str, is: &str| {
            vec![format!(
                "table t: rows expire by {was} in the state, and by {is} in the program, which is not that column: those \
                 in the state are not looked up by it"
            )]
        };
        assert_eq!(refused(&table([("until", None), ("other", None)], "other", false)), another("until", "other"));
        // The name is another column's now.
        let moved = table([("till", Some("until")), ("until", Some("other"))], "until", false);
        assert_eq!(refused(&moved), another("until", "until"));
        assert_eq!(
            refused(&table([("till", Some("until")), ("other", None)], "till", true)),
            [
                "table t: rows expire by till, which a function converts, and those in the state keep the time of before: \
                 convert it in a column of another name"
            ]
        );
    }

    #[test]
    fn only_a_raised_version_drops_and_renames() {
        let identity = |version, tables| Identity {
            application: "shop".into(),
            version,
            tables,
            sources: Vec::new(),
            code: version,
            operators: Some(Vec::new()),
            retired: Vec::new(),
        };
        let other = Table { name: "other".into(), ..ints([("id", None)]) };
        let state = identity(1, vec![ints([("id", None), ("a", None), ("b", None)]), other]);
        let tables = || vec![ints([("key", Some("id")), ("c", Some("a"))])];
        let Fit::Migrates(changes) = Fit::of(&state, &identity(2, tables())) else { panic!("it migrates") };
        assert_eq!(changes.drops.len(), 2);
        assert_eq!(
            changes.lines().collect::<Vec<_>>(),
            [
                "table t: id becomes key",
                "table t: a becomes c",
                "table t: b: int is in the state, not in the program: it is dropped with what is in it",
                "table other is in the state, not in the program: it is dropped with what is in it",
            ]
        );
        let Fit::Refused(why) = Fit::of(&state, &identity(1, tables())) else { panic!("the version is the same") };
        assert!(why.contains("table t: a becomes c") && why.contains("what is not in the program is dropped"), "{why}");
        let typo = identity(2, vec![ints([("id", None), ("c", Some("aa")), ("b", None)])]);
        let Fit::Refused(why) = Fit::of(&state, &typo) else { panic!("it was never there") };
        assert!(why.contains("table t: c was aa by the program; the state has neither"), "{why}");
        let rows = table_fits(&state.tables[0], &tables()[0]);
        assert_eq!(rows, Err("table t: b: int is in the state, not in the program".into()), "a seed loses nothing");
    }

    #[test]
    fn a_function_converts_what_it_takes() {
        use tidemill_plan::build::{PlanBuilder, literal};
        let table = |name: &str, ty: ColumnType, from: Option<ColumnType>| {
            let plan = PlanBuilder::new("p").table("t", |t| {
                let t = t.key("id", Type::Int).column(name, ty);
                match from {
                    Some(from) if name != "a" => t.was("a").convert(from, Vec::new(), literal(1)),
                    Some(from) => t.convert(from, Vec::new(), literal(1)),
                    None => t,
                }
            });
            tidemill_plan::analyze(&plan.build()).expect("it is sound").tables.raw.remove(0)
        };
        let (int, float, text) = (Type::Int.into(), Type::Float.into(), Type::Str.into());
        let optional = ColumnType::optional;
        let lines = |old: &Table, new: &Table| {
            let mut changes = Changes::default();
            changes.table(old, new);
            (changes.allowed, [changes.refused, changes.dropped].concat())
        };
        let becomes = "table t: a becomes b".to_owned();
        let converted = |name: &str, was: &str, is: &str| {
            format!("table t: {name}: {was} is converted to {is} by its function, row by row")
        };
        let old = table("a", text, None);
        let (allowed, refused) = lines(&old, &table("b", int, Some(text)));
        assert_eq!((allowed, refused.len()), (vec![becomes.clone(), converted("b", "str", "int")], 0));
        // Under its own name, and where None is given to it.
        assert_eq!(lines(&old, &table("a", int, Some(text))).0, [converted("a", "str", "int")]);
        assert_eq!(lines(&old, &table("a", int, Some(optional(Type::Str)))).0, [converted("a", "str", "int")]);
        // A function of a renamed column runs where the types are equal, too.
        assert_eq!(lines(&table("a", int, None), &table("b", int, Some(int))).0[1], converted("b", "int", "int"));
        // A column that was converted stays as it is.
        let new = table("b", int, Some(text));
        assert_eq!(lines(&new, &new), (vec![], vec![]));
        let (_, refused) = lines(&old, &table("b", int, Some(float)));
        assert_eq!(refused, ["table t: b is str in the state, and its function takes float"]);
        let maybe = table("a", optional(Type::Str), None);
        let (_, refused) = lines(&maybe, &table("b", int, Some(text)));
        assert_eq!(
            refused,
            ["table t: b is str | None in the state, and its function takes str: None stays None, which int cannot be"]
        );
        assert!(lines(&maybe, &table("b", optional(Type::Int), Some(text))).1.is_empty());
        let (_, refused) = lines(&old, &table("a", int, None));
        assert_eq!(
            refused,
            ["table t: a is str in the state, and int in the program; a function given as convert= can convert it"]
        );
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
