//! The rights of a user.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Stands for all names.
const ALL: &str = "*";

/// One thing that may be done, to something by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Call a procedure.
    Call,
    /// Read a table.
    Read,
    /// Push events into a source.
    Push,
    /// Follow a stream.
    Subscribe,
    /// Read a table by queries, which may take long.
    Query,
    /// Make a savepoint.
    Savepoint,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Call => "call",
            Right::Read => "read",
            Right::Push => "push",
            Right::Subscribe => "subscribe",
            Right::Query => "query",
            Right::Savepoint => "savepoint",
        })
    }
}

/// The names of what may be called, read, pushed into and followed; `*` stands for all. An admin may do everything, and alone
/// sees the console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Everything.
    #[serde(default, skip_serializing_if = "is_not")]
    pub admin: bool,
    /// Procedures.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub call: BTreeSet<String>,
    /// Tables.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read: BTreeSet<String>,
    /// Sources.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub push: BTreeSet<String>,
    /// Streams.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub subscribe: BTreeSet<String>,
    /// A flag: whether the tables that may be read may be read by queries, too.
    #[serde(default, skip_serializing_if = "is_not")]
    pub query: bool,
    /// A flag: whether savepoints may be made.
    #[serde(default, skip_serializing_if = "is_not")]
    pub savepoint: bool,
}

fn is_not(value: &bool) -> bool {
    !value
}

impl Rights {
    /// Returns all that there are: those of everybody where there are no users.
    pub fn all() -> Rights {
        Rights { admin: true, ..Rights::default() }
    }

    /// Returns whether the user has a right, for the thing of this name.
    pub fn has(&self, right: Right, name: &str) -> bool {
        let names = match right {
            Right::Query => return self.admin || self.query,
            Right::Savepoint => return self.admin || self.savepoint,
            Right::Call => &self.call,
            Right::Read => &self.read,
            Right::Push => &self.push,
            Right::Subscribe => &self.subscribe,
        };
        self.admin || names.contains(ALL) || names.contains(name)
    }

    /// Returns the reason why the user may not do something; none if it may.
    pub fn refusal(&self, user: &str, right: Right, name: &str) -> Option<String> {
        let refused = || match right {
            Right::Query => format!("user '{user}' has no right to ask queries over tables"),
            Right::Savepoint => format!("user '{user}' has no right to make savepoints"),
            _ => format!("user '{user}' has no right to {right} '{name}'"),
        };
        (!self.has(right, name)).then(refused)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |what: &str, names: &BTreeSet<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
        };
        let parts = [
            self.admin.then(|| "admin".to_owned()),
            listed("call", &self.call),
            listed("read", &self.read),
            listed("push", &self.push),
            listed("subscribe", &self.subscribe),
            self.query.then(|| "query".to_owned()),
            self.savepoint.then(|| "savepoint".to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }.as_str())
    }
}
