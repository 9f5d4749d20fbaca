//! The three choices of scheduling (MorphStream §4), each an enum of its own.
//!
//! The enums name what works. `Structured` exploration, `Operation` granularity, `Eager` and `Lazy`
//! aborts become variants when the executor interprets them, and every `match` will say where.

use std::fmt;

/// In which order the graph is explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Explore {
    /// Whatever is ready, by counters (MorphStream §4.1.2).
    #[default]
    Unstructured,
}

/// What a worker takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// The whole epoch, one transaction after the other, on one worker. Needs no graph.
    #[default]
    Epoch,
    /// Transactions along the chains of their rows, as far as they are ready (MorphStream §4.2.2).
    Chain,
}

/// What happens to a transaction that fails a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Abort {
    /// Nothing: its updates wait for its verdict, so there is nothing to undo.
    #[default]
    VoteFirst,
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
    pub const CHAIN: Policy = Policy { granularity: Granularity::Chain, ..Policy::EPOCH };
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granularity = match self.granularity {
            // There is nothing to explore in one unit.
            Granularity::Epoch => return f.write_str("epoch"),
            Granularity::Chain => "chain",
        };
        let explore = match self.explore {
            Explore::Unstructured => "unstructured",
        };
        let abort = match self.abort {
            Abort::VoteFirst => "vote first",
        };
        write!(f, "{granularity}, {explore}, {abort}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_print_as_their_choices() {
        assert_eq!(Policy::default().to_string(), "epoch");
        assert_eq!(Policy::CHAIN.to_string(), "chain, unstructured, vote first");
    }
}
