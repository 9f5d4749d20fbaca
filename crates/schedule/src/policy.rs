//! The three choices of scheduling (MorphStream §4), each an enum of its own.

use std::fmt;
use std::str::FromStr;
use tidemill_txn::Verdicts;

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
    /// Transactions, along the chains of their rows, as far as they are ready.
    Transaction(Rows),
    /// All operations on a row, on versions; where such chains wait for each other in a cycle, these together
    /// (MorphStream §4.2.2).
    Chain,
    /// Operations, on versions of the rows (MorphStream §4.2.1).
    Operation,
}

/// Where a transaction that runs whole finds its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// In place: it waits for all that touched them before.
    InPlace,
    /// In versions: it waits for the last writes before it, so reads pass each other and later writes.
    Versions,
}

/// What happens to a transaction that fails a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Abort {
    /// No other transaction sees its updates before its verdict, so it alone has something to undo.
    #[default]
    VoteFirst,
    /// Others see its updates at once. They are undone as soon as it fails, and the operations that they affected run
    /// again (MorphStream §4.3.1).
    Eager,
    /// Others see its updates at once. When all operations have run, the transactions that failed are undone, and the
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
    /// All workers, transaction by transaction.
    pub const TRANSACTION: Policy = Policy { granularity: Granularity::Transaction(Rows::InPlace), ..Policy::EPOCH };

    /// All policies: the serial one, and every combination of the other choices. A transaction that runs whole votes as
    /// it runs, so it has no choice of when.
    pub fn all() -> Vec<Policy> {
        let mut all = vec![Policy::EPOCH];
        let whole = [Rows::InPlace, Rows::Versions].map(Granularity::Transaction);
        for granularity in whole.into_iter().chain([Granularity::Chain, Granularity::Operation]) {
            for explore in [Explore::Unstructured, Explore::Structured(Search::Bfs), Explore::Structured(Search::Dfs)] {
                for abort in [Abort::VoteFirst, Abort::Eager, Abort::Lazy] {
                    let policy = Policy { explore, granularity, abort };
                    if policy.takes_apart() || abort == Abort::VoteFirst {
                        all.push(policy);
                    }
                }
            }
        }
        all
    }

    /// Whether operations work on versions of the rows rather than on the rows.
    pub fn on_versions(self) -> bool {
        self.takes_apart() || self.granularity == Granularity::Transaction(Rows::Versions)
    }

    /// Whether transactions are taken apart into operations.
    pub fn takes_apart(self) -> bool {
        matches!(self.granularity, Granularity::Chain | Granularity::Operation)
    }

    /// Whether other transactions see updates before there is a verdict on them.
    pub fn speculates(self) -> bool {
        self.takes_apart() && self.abort != Abort::VoteFirst
    }

    /// When transactions in parts are judged.
    pub fn verdicts(self) -> Verdicts {
        match self.abort {
            Abort::VoteFirst => Verdicts::First,
            Abort::Eager => Verdicts::Beside,
            Abort::Lazy => Verdicts::After,
        }
    }
}

/// The words of the choices: the granularity, then those of the others that are not the default.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granularity = match self.granularity {
            // Nothing is explored: the epoch is one unit.
            Granularity::Epoch => return f.write_str("epoch"),
            Granularity::Transaction(Rows::InPlace) => "transaction",
            Granularity::Transaction(Rows::Versions) => "transaction,versions",
            Granularity::Chain => "chain",
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
    "'{0}' is no policy: say auto; epoch; transaction, then versions, then bfs or dfs; or chain or operation, then bfs or dfs, then eager or lazy, with commas (as in 'operation,dfs,lazy')"
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
        assert_eq!(all.len(), 25);
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
