//! A mistake on its way to becoming a [`PlanError`]: the caller that knows the place adds it.

use crate::{Periods, PlanError, Span, Zone};
use std::fmt::Display;

/// A fault of a plan, without its place.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    message: String,
    hint: String,
    span: Option<Span>,
}

impl From<PlanError> for Fault {
    /// Returns the fault of a plan that stands for a part of another.
    fn from(PlanError { message, hint, span, .. }: PlanError) -> Self {
        Fault { message, hint, span }
    }
}

impl Periods {
    /// Checks that there are such periods.
    pub(super) fn check(&self) -> Checked<()> {
        self.fault().map_or(Ok(()), |(message, hint)| Err(Fault::new(message).hint(hint)))
    }
}

impl Zone {
    /// Checks that the changes of the zone's clock are in order, and the clock within a week of UTC.
    pub(super) fn check(&self) -> Checked<()> {
        self.fault().map_or(Ok(()), |(message, hint)| Err(Fault::new(message).hint(hint)))
    }
}

/// A result of a check.
pub(super) type Checked<T> = Result<T, Fault>;

impl Fault {
    /// Makes a lowercase fact.
    pub fn new(message: impl Into<String>) -> Self {
        Fault { message: message.into(), hint: String::new(), span: None }
    }

    /// Adds a hint: what to write instead.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds a place in the source text, unless a narrower one is known already.
    pub fn at(mut self, span: Option<Span>) -> Self {
        self.span = self.span.or(span);
        self
    }

    /// Puts it in other words.
    pub fn said(mut self, say: impl Fn(&str) -> String) -> Self {
        (self.message, self.hint) = (say(&self.message), say(&self.hint));
        self
    }

    /// Returns it as an error of a `kind` (table, stream, …) called `name`.
    pub fn of(self, kind: &str, name: &str) -> PlanError {
        PlanError { place: format!("{kind} '{name}'"), message: self.message, hint: self.hint, span: self.span }
    }

    /// Returns a name that means nothing, with the one that was probably meant or all there are.
    pub fn unknown<'a>(what: impl Display, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let close = known.iter().map(|k| (distance(k, name), *k)).min().filter(|(far, near)| {
            let longer = name.chars().count().max(near.chars().count());
            *far <= longer.div_ceil(3) && *far < longer
        });
        let hint = match close {
            Some((_, near)) => format!("did you mean '{near}'?"),
            None if known.is_empty() => String::new(),
            None => format!("known: {}", known.join(", ")),
        };
        Fault::new(format!("no {what} '{name}'")).hint(hint)
    }
}

/// Refuses names that could not be written as `x.name`.
pub(super) fn check_identifier(what: &str, name: &str) -> Checked<()> {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    if starts && chars.all(|c| c.is_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(Fault::new(format!("'{name}' is no name for a {what}")).hint("use letters, digits and '_', a letter first"))
}

/// Returns the first name that occurs twice.
pub(super) fn check_unique<'a>(what: &str, names: impl IntoIterator<Item = &'a str>) -> Checked<()> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Fault::new(format!("{what} '{name}' is declared twice")));
        }
        seen.push(name);
    }
    Ok(())
}

/// Returns Levenshtein's distance of two texts, case ignored.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
