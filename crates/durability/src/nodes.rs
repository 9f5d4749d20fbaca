//! Ranges of virtual nodes: the nodes that a checkpoint or a run covers, if it does not cover all.
//!
//! The upper bits of a key's hash are its virtual node, and a run stores its rows in the order of hashes. So the rows
//! of a range of nodes are contiguous in each file, and a part of a checkpoint is the same files with a smaller
//! range.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use tidemill_model::VIRTUAL_NODE_COUNT;
use tidemill_state::virtual_node_of;

/// Consecutive virtual nodes, at least one. Written as `[first, end]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u32; 2]", try_from = "[u32; 2]")]
pub struct NodeRange {
    first: u32,
    end: u32,
}

/// All virtual nodes.
impl Default for NodeRange {
    fn default() -> Self {
        NodeRange { first: 0, end: VIRTUAL_NODE_COUNT as u32 }
    }
}

impl NodeRange {
    /// Makes the range of these nodes; none if it would be empty or beyond the last node.
    pub fn new(nodes: Range<usize>) -> Option<NodeRange> {
        let is_some = nodes.start < nodes.end && nodes.end <= VIRTUAL_NODE_COUNT;
        is_some.then_some(NodeRange { first: nodes.start as u32, end: nodes.end as u32 })
    }

    /// Returns the nodes.
    pub fn nodes(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Returns whether the range has all nodes.
    pub fn is_whole(&self) -> bool {
        *self == NodeRange::default()
    }

    /// Returns whether the node of a hash is in the range.
    pub fn has_hash(self, hash: u64) -> bool {
        self.nodes().contains(&virtual_node_of(hash))
    }

    /// Returns the smallest and the greatest hash of these nodes.
    pub fn hashes(self) -> (u64, u64) {
        const SHIFT: u32 = u64::BITS - VIRTUAL_NODE_COUNT.ilog2();
        ((u64::from(self.first)) << SHIFT, (u64::from(self.end) - 1) << SHIFT | (u64::MAX >> (u64::BITS - SHIFT)))
    }

    /// Returns the nodes in both ranges.
    pub fn and(self, other: NodeRange) -> Option<NodeRange> {
        NodeRange::new(self.first.max(other.first) as usize..self.end.min(other.end) as usize)
    }

    /// Returns the smallest range that contains both.
    pub fn hull(self, other: NodeRange) -> NodeRange {
        NodeRange { first: self.first.min(other.first), end: self.end.max(other.end) }
    }
}

impl fmt::Display for NodeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtual nodes {} to {}", self.first, self.end - 1)
    }
}

impl From<NodeRange> for [u32; 2] {
    fn from(range: NodeRange) -> Self {
        [range.first, range.end]
    }
}

impl TryFrom<[u32; 2]> for NodeRange {
    type Error = String;

    fn try_from([first, end]: [u32; 2]) -> Result<Self, String> {
        let range = NodeRange::new(first as usize..end as usize);
        range.ok_or_else(|| format!("{first} to {end} is no range of virtual nodes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_a_range_are_those_of_its_nodes() {
        for (first, end) in [(0, 1), (0, 256), (7, 9), (255, 256)] {
            let range = NodeRange::new(first..end).expect("a range");
            let (least, most) = range.hashes();
            assert_eq!((virtual_node_of(least), virtual_node_of(most)), (first, end - 1));
            assert!(first == 0 || !range.has_hash(least - 1));
            assert!(end == 256 || !range.has_hash(most + 1));
        }
        assert_eq!(NodeRange::new(3..3), None);
        assert_eq!(NodeRange::new(250..257), None);
    }

    #[test]
    fn a_range_that_is_none_does_not_read() {
        assert!(serde_json::from_str::<NodeRange>("[4, 4]").is_err());
        assert!(serde_json::from_str::<NodeRange>("[0, 257]").is_err());
        assert_eq!(serde_json::from_str::<NodeRange>("[4, 5]").expect("a range"), NodeRange::new(4..5).expect("one"));
    }
}
