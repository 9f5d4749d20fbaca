//! The texts with which a transaction (or a derived stream) can fail.
//!
//! A text is entered when the first point that can fail with it is built, so where there is none
//! nothing can fail. Operations that have a reason in their form but cannot fail here (a division by
//! a constant, say) name [`Reasons::never`].

use crate::ReasonId;

/// The text that stands in where an id was given out but nothing can fail.
pub(crate) const CANNOT_FAIL: &str = "cannot fail";

/// Returns the text for a role that has no row.
pub(crate) fn no_row(table: &str, role: &str) -> String {
    format!("no row in {table} for {role}")
}

/// Texts, each once, in the order of first use.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    texts: Vec<String>,
    never: bool,
    /// A flag: whether no reason is told, so that all ids are that of [`Reasons::never`].
    untold: bool,
}

impl Reasons {
    /// Reasons of which none is told: each id is that of [`Reasons::never`].
    pub fn untold() -> Reasons {
        Reasons { untold: true, ..Reasons::default() }
    }

    /// Returns the id of a text.
    pub fn id(&mut self, text: impl Into<String>) -> ReasonId {
        let text = text.into();
        let index = self.texts.iter().position(|t| *t == text).unwrap_or_else(|| {
            self.texts.push(text);
            self.texts.len() - 1
        });
        if self.untold { self.never() } else { index as ReasonId }
    }

    /// Returns the id for a point that cannot fail: some valid one.
    pub fn never(&mut self) -> ReasonId {
        self.never = true;
        0
    }

    /// Returns the first text.
    pub fn first(&self) -> Option<&str> {
        self.texts.first().map(String::as_str)
    }

    /// Returns all texts. Never empty where an id was given out, so that every id is an index.
    pub fn finish(mut self) -> Vec<String> {
        if self.texts.is_empty() && self.never {
            self.texts.push(CANNOT_FAIL.into());
        }
        self.texts
    }
}
