//! The three choices of scheduling (MorphStream §4), each an enum of its own.

use std::fmt;
use std::str::FromStr;

/// In which order the graph is explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Explore {
    /// Any unit that is ready, by counters (MorphStream §4.1.2).
    #[default]
    Unstructured,
    /// By strata (MorphStream §4.1.1).
    Structured(Search),
}

/// In which order the strata of a graph are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// Breadth first: all workers share out one stratum after the other, with a barrier in between.
    Bfs,
    /// Depth first: each worker has its own share of every stratum, and waits only for the predecessors of its next
    /// unit.
    Dfs,
}

/// What a worker takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// The whole epoch: one worker runs one transaction after the other. Needs no graph.
    #[default]
    Epoch,
    /// Transactions, along the chains of their rows, as far as they are ready; on the rows in place (MorphStream
    /// §4.2.2).
    Transaction,
    /// Operations, on versions of the rows: reads pass each other and later writes (MorphStream §4.2.1).
    Operation,
}

/// What happens to a transaction that fails a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Abort {
    /// Its updates wait for its verdict, so there is nothing to undo.
    #[default]
    VoteFirst,
    /// Its updates do not wait. They are undone as soon as it fails, and the operations that they affected run again
    /// (MorphStream §4.3.1).
    Eager,
    /// Its updates do not wait. When all operations have run, the transactions that failed are undone, and the
    /// operations that they affected run again (MorphStream §4.3.2).
    Lazy,
}

/// How the access stage of an epoch is executed. By default serially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// In which order the graph is explored.
    pub explore: Explore,
    /// What a worker takes at once.
    pub granularity: Granularity,
    /// What happens to a transaction that fails a requirement.
    pub abort: Abort,
}

impl Policy {
    /// One worker, position order.
    pub const EPOCH: Policy =
        Policy { explore: Explore::Unstructured, granularity: Granularity::Epoch, abort: Abort::VoteFirst };
    /// All workers, along chains.
    pub const TRANSACTION: Policy = Policy { granularity: Granularity::Transaction, ..Policy::EPOCH };

    /// All policies: the serial one, and every combination of the other choices. `transaction,bfs,eager` and `transaction,bfs,lazy`
    /// run as those of `operation` do: breadth first and on versions, no worker follows a chain.
    pub fn all() -> Vec<Policy> {
        let mut all = vec![Policy::EPOCH];
        for granularity in [Granularity::Transaction, Granularity::Operation] {
            for explore in [Explore::Unstructured, Explore::Structured(Search::Bfs), Explore::Structured(Search::Dfs)] {
                for abort in [Abort::VoteFirst, Abort::Eager, Abort::Lazy] {
                    all.push(Policy { explore, granularity, abort });
                }
            }
        }
        all
    }

    /// Whether operations work on versions of the rows rather than on the rows: where they may run before their
    /// predecessors are final.
    pub fn on_versions(self) -> bool {
        self.granularity == Granularity::Operation || self.speculates()
    }

    /// Whether updates run before the verdict of their transaction.
    pub fn speculates(self) -> bool {
        self.granularity != Granularity::Epoch && self.abort != Abort::VoteFirst
    }
}

/// The words of the choices: the granularity, then those of the others that are not the default.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granularity = match self.granularity {
            // Nothing is explored: the epoch is one unit.
            Granularity::Epoch => return f.write_str("epoch"),
            Granularity::Transaction => "transaction",
            Granularity::Operation => "operation",
        };
        let explore = match self.explore {
            Explore::Unstructured => "",
            Explore::Structured(Search::Bfs) => ",bfs",
            Explore::Structured(Search::Dfs) => ",dfs",
        };
        let abort = match self.abort {
            Abort::VoteFirst => "",
            Abort::Eager => ",eager",
            Abort::Lazy => ",lazy",
        };
        write!(f, "{granularity}{explore}{abort}")
    }
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no policy: say auto; or epoch, transaction or operation, then bfs or dfs, then eager or lazy, with commas (as in 'operation,dfs,lazy')"
)]
pub struct PolicyError(String);

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let found = Policy::all().into_iter().find(|policy| policy.to_string() == text);
        found.ok_or_else(|| PolicyError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_print_as_their_choices_and_are_read_as_they_print() {
        assert_eq!(Policy::default().to_string(), "epoch");
        assert_eq!(Policy::TRANSACTION.to_string(), "transaction");
        let all = Policy::all();
        assert_eq!(all.len(), 19);
        for policy in &all {
            assert_eq!(policy.to_string().parse(), Ok(*policy));
        }
        assert!(
            "transaction,quick"
                .parse::<Policy>()
                .unwrap_err()
                .to_string()
                .starts_with("'transaction,quick' is no policy")
        );
    }
}
