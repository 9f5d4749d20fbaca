//! The operators of a state beside those of a program: which are the same, and what makes the others another.
//!
//! An operator goes on with its rows where its definition is the same ([`Definition`]), and where it only keeps less of events than before.
//! Else it begins anew, which it can where it has no rows.

use crate::fit::{table_changes, taken_over};
use crate::manifest::Identity;
use tidemill_plan::{Definition, DefinitionKind, Table};

/// An operator of a state that is another one in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedOperator {
    /// The operator, with the properties that the state has for it.
    pub operator: Definition,
    /// The differences, one per line.
    pub changes: Vec<String>,
}

impl ChangedOperator {
    /// Returns the differences as lines that begin with the operator's name.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.changes.iter().map(|change| format!("{}: {change}", self.operator.shown()))
    }
}

/// Returns the operators that a state and a program have both, and that are not the same.
pub fn changed_operators(state: &Identity, program: &Identity) -> Vec<ChangedOperator> {
    OperatorChanges::between(state, program).changed
}

/// The differences between the operators of a state and those of a program.
#[derive(Debug, Default)]
pub(crate) struct OperatorChanges {
    /// The operators that are others.
    pub changed: Vec<ChangedOperator>,
    /// The operators that the program does not have.
    pub gone: Vec<Definition>,
    /// The operators that the state does not have.
    pub new: Vec<Definition>,
    /// Changes of those that go on with their rows, as lines.
    pub steps: Vec<String>,
}

impl OperatorChanges {
    /// Compares those of a state with those of a program.
    pub fn between(state: &Identity, program: &Identity) -> OperatorChanges {
        let mut changes = OperatorChanges::default();
        let is_same_code = state.code == program.code;
        let (olds, is_known) = operators_of(state);
        let (news, _) = operators_of(program);
        for old in &olds {
            match news.iter().find(|new| new.name == old.name) {
                None => changes.gone.push(old.clone()),
                Some(_) if is_same_code => {}
                Some(_) if !is_known => changes.changed.push(ChangedOperator {
                    operator: old.clone(),
                    changes: vec!["the state does not have its definition".into()],
                }),
                Some(new) => changes.compare(old, new, state, program),
            }
        }
        changes.new = news.into_iter().filter(|new| !olds.iter().any(|old| old.name == new.name)).collect();
        changes
    }

    fn compare(&mut self, old: &Definition, new: &Definition, state: &Identity, program: &Identity) {
        let mut changes = differences(old, new, program);
        let goes: Vec<_> = old.keeps.iter().filter(|part| !new.keeps.iter().any(|new| new.name == part.name)).collect();
        let mut steps: Vec<String> =
            goes.iter().map(|part| format!("{}: it does not keep {} any more", old.shown(), part.text)).collect();
        if changes.is_empty() {
            let goes: Vec<&str> = goes.iter().map(|part| part.name.as_str()).collect();
            match tables_fit(old, &goes, state, program) {
                Ok(widened) => steps.extend(widened),
                Err(what) => changes.push(format!("what it keeps of events is another: {what}")),
            }
        }
        match changes.is_empty() {
            true => self.steps.append(&mut steps),
            false => self.changed.push(ChangedOperator { operator: old.clone(), changes }),
        }
    }
}

/// Returns the operators of a program, and whether their definitions are known. If they are not, they are found by their tables.
fn operators_of(identity: &Identity) -> (Vec<Definition>, bool) {
    if let Some(operators) = &identity.operators {
        return (operators.clone(), true);
    }
    let operator = |table: &Table| {
        let (name, part) = table.written_owner()?;
        let kind = DefinitionKind::of_table(part)?;
        Some(Definition { name: name.into(), kind, parts: Vec::new(), keeps: Vec::new() })
    };
    (identity.tables.iter().filter_map(operator).collect(), false)
}

/// Returns the differences between two definitions.
fn differences(old: &Definition, new: &Definition, program: &Identity) -> Vec<String> {
    if old.kind != new.kind {
        return vec![format!("it is {} in the state, and {} in the program", old.kind.noun(), new.kind.noun())];
    }
    let mut lines = Vec::new();
    for part in &old.parts {
        let (name, was) = (&part.name, &part.text);
        match new.parts.iter().find(|new| new.name == *name) {
            Some(new) if new.hash == part.hash => {}
            Some(new) if *name == Definition::ROWS && is_renamed(was, &new.text, program) => {}
            Some(new) if new.text == *was => lines.push(format!("its {name} changed: {was}")),
            Some(new) => lines.push(format!("its {name}: {was} in the state, {} in the program", new.text)),
            None => lines.push(format!("its {name}: {was} in the state, none in the program")),
        }
    }
    for part in new.parts.iter().filter(|new| !old.parts.iter().any(|old| old.name == new.name)) {
        lines.push(format!("its {}: none in the state, {} in the program", part.name, part.text));
    }
    for part in &new.keeps {
        match old.keeps.iter().find(|old| old.name == part.name) {
            Some(old) if old.hash == part.hash => {}
            Some(_) => lines.push(format!("{} changed", part.text)),
            None => lines.push(format!("it is to keep {}, which the state does not have", part.text)),
        }
    }
    lines
}

/// Returns whether a table of which each row has a result has only another name.
fn is_renamed(was: &str, is: &str, program: &Identity) -> bool {
    let text = |name: &str| format!("of table {name}");
    program.tables.iter().any(|table| text(&table.name) == is && table.was.as_deref().map(text).as_deref() == Some(was))
}

/// Checks that the tables of an operator can be taken over, without the columns that go; returns the changes of types as lines.
fn tables_fit(of: &Definition, goes: &[&str], state: &Identity, program: &Identity) -> Result<Vec<String>, String> {
    let own =
        |tables: &[Table]| -> Vec<Table> { tables.iter().filter(|table| of.owns(&table.name)).cloned().collect() };
    let (olds, news) = (own(&state.tables), own(&program.tables));
    let mut widened = Vec::new();
    if let Some(other) = news.iter().find(|new| !olds.iter().any(|old| old.name == new.name)) {
        return Err(format!("table {} is new", other.name));
    }
    for old in &olds {
        let Some(new) = news.iter().find(|new| new.name == old.name) else {
            return Err(format!("table {} is in the state, not in the program", old.name));
        };
        let from = taken_over(old, new);
        if let Some(column) = from.iter().position(Option::is_none) {
            return Err(format!("{} is new", new.columns[column].name));
        }
        let gone = (0..old.columns.len()).filter(|column| !from.contains(&Some(*column)));
        if let Some(column) = gone.map(|column| &old.columns[column].name).find(|name| !goes.contains(&name.as_str())) {
            return Err(format!("{column} is in the state, not in the program"));
        }
        let (allowed, refused) = table_changes(old, new);
        if let Some(why) = refused.into_iter().next() {
            return Err(why);
        }
        widened.extend(allowed);
    }
    Ok(widened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::{Type, Value};
    use tidemill_plan::build::{PlanBuilder, event, named};
    use tidemill_plan::{Plan, Span, WindowsDef, analyze};

    /// Returns a window over a filter.
    fn plan(filter: &str, least: i64) -> Plan {
        let windows = WindowsDef::Tumbling { length: Value::Int(10), origin: 0 };
        PlanBuilder::new("windows")
            .source("events", |s| s.event_time("at", Type::Int).field("x", Type::Int))
            .filter(filter, named("events"), event("x").gt(least))
            .window("win", named(filter), [("x", event("x"))], windows, |b| b.give([("e", event("end"))]))
            .build()
    }

    fn identity(plan: &Plan) -> Identity {
        Identity::of(&analyze(plan).unwrap_or_else(|errors| panic!("{errors:#?}")))
    }

    fn lines(state: &Identity, program: &Identity) -> Vec<String> {
        changed_operators(state, program).iter().flat_map(ChangedOperator::lines).collect()
    }

    #[test]
    fn names_of_filters_and_places_mean_nothing() {
        let state = identity(&plan("large", 1));
        let mut placed = plan("other", 1);
        for value in placed.transactions[0].over.iter_mut().flat_map(|over| &mut over.by) {
            value.1.span = Some(Span { line: 7, ..Span::default() });
        }
        assert_eq!(lines(&state, &identity(&placed)), Vec::<String>::new());
        assert_eq!(
            lines(&state, &identity(&plan("large", 2))),
            ["window win: its input: events where ev.x > 1 in the state, events where ev.x > 2 in the program"]
        );
    }

    #[test]
    fn an_unknown_definition_is_the_same_only_where_the_whole_program_is() {
        let program = identity(&plan("large", 1));
        let state = Identity { operators: None, ..program.clone() };
        assert_eq!(lines(&state, &program), Vec::<String>::new());
        let other = Identity { code: program.code ^ 1, ..state };
        assert_eq!(lines(&other, &program), ["window win: the state does not have its definition"]);
    }
}
