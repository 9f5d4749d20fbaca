//! The rule by which a planted bug counts as found.
//!
//! A run that fails with the bug is a find only if it fails as this bug must: its text names the output, the table,
//! the promise or the refusal in question. And the same run without the bug must pass, or else it is the machine or
//! the test that fails, whatever is planted: then the search panics. A failure of another kind is remembered, and
//! reported if there is no find.

use std::fmt::Debug;

/// Failures of another kind that are reported.
const OTHERS_MAX: usize = 5;

/// The search for one bug.
pub struct Search<'a> {
    bug: String,
    /// Any of these texts shows that it is this bug that was found.
    shows: &'a [&'a str],
    runs: usize,
    others: Vec<String>,
}

impl<'a> Search<'a> {
    pub fn new(bug: impl Debug, shows: &'a [&'a str]) -> Search<'a> {
        Search { bug: format!("{bug:?}"), shows, runs: 0, others: Vec::new() }
    }

    /// Returns whether a run has found the bug: `with` is its error, if it failed, and `without` makes the same run
    /// without the bug.
    pub fn finds(
        &mut self,
        run: impl Debug,
        with: Result<(), String>,
        without: impl FnOnce() -> Result<(), String>,
    ) -> bool {
        self.runs += 1;
        let Err(wrong) = with else { return false };
        let is_expected = self.shows.iter().any(|text| wrong.contains(text));
        if let Err(same) = without() {
            panic!("{}: {run:?} fails without the bug, too: {same}\nwith it: {wrong}", self.bug);
        }
        match is_expected {
            true => println!("{}: found by run {} ({run:?}): {wrong}", self.bug, self.runs),
            false if self.others.len() < OTHERS_MAX => self.others.push(format!("{run:?}: {wrong}")),
            false => {}
        }
        is_expected
    }

    /// Returns the message for the case that no run has found it.
    pub fn missed(self) -> String {
        let Search { bug, shows, runs, others } = self;
        format!("{bug} was not found by {runs} runs: none shows {shows:?}. Other failures: {others:#?}")
    }
}
