//! The choices of scheduling, each an enum of its own: three of MorphStream (§4), one of TStream (2020, §IV-E).

use std::fmt;
use std::str::FromStr;
use tidemill_txn::Verdicts;

/// The order in which the graph is explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Explore {
    /// Any unit that is ready, by counters (MorphStream §4.1.2).
    #[default]
    Unstructured,
    /// Stratum after stratum (MorphStream §4.1.1).
    Structured(Search),
}

/// The order in which the strata of a graph are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// Breadth first: all workers share out one stratum after the other, with a barrier in between.
    Bfs,
    /// Depth first: each worker has its own share of every stratum, and waits only for the predecessors of its next
    /// unit.
    Dfs,
}

/// The unit of work that a worker takes at once.
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

/// The place where a transaction that runs whole finds its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// The rows in place: the transaction waits for all that touched them before.
    InPlace,
    /// The versions of the rows: the transaction waits for the last writes before it, so reads pass each other and
    /// later writes.
    Versions,
}

/// The treatment of a transaction that fails a requirement.
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

/// The workers that run a unit that is ready (TStream 2020, §IV-E). A choice where exploration is unstructured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All workers: shared-everything. What a worker has to spare goes to workers on its socket first.
    #[default]
    Everything,
    /// The workers on the socket that its first row belongs to: shared-per-socket.
    Socket(Stealing),
    /// The worker that its first row belongs to: shared-nothing.
    Nothing(Stealing),
}

/// The moment at which a worker takes units that belong to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stealing {
    /// As soon as it has none of its own.
    AtOnce,
    /// After it has waited for its own in vain. So they are not stolen while those they belong to take part; but an
    /// epoch waits for no worker, which may be in another stage or not have a processor.
    AtLast,
}

/// The policy by which the access stage of an epoch is executed. By default serially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The order in which the graph is explored.
    pub explore: Explore,
    /// The unit of work that a worker takes at once.
    pub granularity: Granularity,
    /// The treatment of a transaction that fails a requirement.
    pub abort: Abort,
    /// The workers that run a unit that is ready.
    pub sharing: Sharing,
}

impl Policy {
    /// The policy of one worker that runs transactions in position order.
    pub const EPOCH: Policy = Policy {
        explore: Explore::Unstructured,
        granularity: Granularity::Epoch,
        abort: Abort::VoteFirst,
        sharing: Sharing::Everything,
    };
    /// All workers, transaction by transaction.
    pub const TRANSACTION: Policy = Policy { granularity: Granularity::Transaction(Rows::InPlace), ..Policy::EPOCH };

    /// Returns all policies that share everything: the serial one, and every combination of the other choices. A
    /// transaction that runs whole votes as it runs, so it has no choice of when.
    pub fn all() -> Vec<Policy> {
        let mut all = vec![Policy::EPOCH];
        let whole = [Rows::InPlace, Rows::Versions].map(Granularity::Transaction);
        for granularity in whole.into_iter().chain([Granularity::Chain, Granularity::Operation]) {
            for explore in [Explore::Unstructured, Explore::Structured(Search::Bfs), Explore::Structured(Search::Dfs)] {
                for abort in [Abort::VoteFirst, Abort::Eager, Abort::Lazy] {
                    let policy = Policy { explore, granularity, abort, ..Policy::EPOCH };
                    if policy.takes_apart() || abort == Abort::VoteFirst {
                        all.push(policy);
                    }
                }
            }
        }
        all
    }

    /// Returns the policy in every way to share that it has.
    pub fn in_ways_to_share(self) -> Vec<Policy> {
        let is_shared = self.granularity != Granularity::Epoch && self.explore == Explore::Unstructured;
        let all = Sharing::ALL.into_iter().filter(|&sharing| is_shared || sharing == Sharing::Everything);
        all.map(|sharing| Policy { sharing, ..self }).collect()
    }

    /// Returns whether operations work on versions of the rows rather than on the rows.
    pub fn on_versions(self) -> bool {
        self.takes_apart() || self.granularity == Granularity::Transaction(Rows::Versions)
    }

    /// Returns whether transactions are taken apart into operations.
    pub fn takes_apart(self) -> bool {
        matches!(self.granularity, Granularity::Chain | Granularity::Operation)
    }

    /// Returns whether other transactions see updates before there is a verdict on them.
    pub fn speculates(self) -> bool {
        self.takes_apart() && self.abort != Abort::VoteFirst
    }

    /// Returns the time at which transactions in parts are judged.
    pub fn verdicts(self) -> Verdicts {
        match self.abort {
            Abort::VoteFirst => Verdicts::First,
            Abort::Eager => Verdicts::Beside,
            Abort::Lazy => Verdicts::After,
        }
    }
}

impl Sharing {
    /// All ways to share.
    pub const ALL: [Sharing; 5] = [
        Sharing::Everything,
        Sharing::Socket(Stealing::AtOnce),
        Sharing::Socket(Stealing::AtLast),
        Sharing::Nothing(Stealing::AtOnce),
        Sharing::Nothing(Stealing::AtLast),
    ];

    /// Returns whether a unit belongs to some of the workers.
    pub fn has_owners(self) -> bool {
        self != Sharing::Everything
    }

    /// Returns the moment at which units of others are taken.
    pub fn stealing(self) -> Stealing {
        match self {
            Sharing::Everything => Stealing::AtOnce,
            Sharing::Socket(stealing) | Sharing::Nothing(stealing) => stealing,
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
        let shared = match self.sharing {
            Sharing::Everything => "",
            Sharing::Socket(_) => ",shared-per-socket",
            Sharing::Nothing(_) => ",shared-nothing",
        };
        let stealing = match self.sharing.stealing() {
            Stealing::AtOnce => "",
            Stealing::AtLast => ",patient",
        };
        write!(f, "{granularity}{explore}{abort}{shared}{stealing}")
    }
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no policy: say auto; epoch; transaction, then versions, then bfs or dfs; or chain or operation, then bfs or dfs, then eager or lazy, with commas (as in 'operation,dfs,lazy'); without bfs and dfs also shared-per-socket or shared-nothing, then patient"
)]
pub struct PolicyError(String);

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let mut all = Policy::all().into_iter().flat_map(Policy::in_ways_to_share);
        let found = all.find(|policy| policy.to_string() == text);
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
        let shared: Vec<Policy> = all.iter().flat_map(|policy| policy.in_ways_to_share()).collect();
        assert_eq!(shared.len(), 25 + 4 * 8);
        for policy in &shared {
            assert_eq!(policy.to_string().parse(), Ok(*policy));
        }
        let patient = Policy { sharing: Sharing::Nothing(Stealing::AtLast), ..Policy::TRANSACTION };
        assert_eq!(patient.to_string(), "transaction,shared-nothing,patient");
        assert!(
            "transaction,quick"
                .parse::<Policy>()
                .unwrap_err()
                .to_string()
                .starts_with("'transaction,quick' is no policy")
        );
    }
}
