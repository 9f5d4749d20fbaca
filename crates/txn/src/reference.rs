//! The graph computed from its definition, with ordered maps: slow and small, to compare the fast one against.

use crate::access::{Accesses, RowId};
use crate::graph::{Graph, Slot};
use crate::summary::ChainSummary;
use std::collections::{BTreeMap, BTreeSet};

/// A graph as a list of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceGraph {
    /// The meaning of each access, by transaction, then in the order of its accesses.
    pub slots: Vec<Vec<Slot>>,
}

impl ReferenceGraph {
    /// Walks the epoch in position order and keeps the last operation of every row.
    pub fn build(accesses: Accesses<'_>) -> Self {
        let mut slots: Vec<Vec<Slot>> = Vec::new();
        let mut last: BTreeMap<RowId, (usize, usize)> = BTreeMap::new();
        let mut number = 0;
        for transaction in 0..accesses.transactions() {
            slots.push(Vec::new());
            for (index, row) in accesses.rows_of(transaction).iter().enumerate() {
                let before = last.get(row).copied();
                let slot = if before.is_some_and(|(earlier, _)| earlier == transaction) {
                    Slot::Alias
                } else {
                    if let Some((earlier, place)) = before {
                        let Slot::Operation { next, next_transaction, .. } = &mut slots[earlier][place] else {
                            unreachable!("the last operation of a row is no alias");
                        };
                        (*next, *next_transaction) = (Some(number), Some(transaction as u32));
                    }
                    last.insert(*row, (transaction, index));
                    Slot::Operation { next: None, next_transaction: None, has_predecessor: before.is_some() }
                };
                slots[transaction].push(slot);
                number += 1;
            }
        }
        ReferenceGraph { slots }
    }

    /// Copies a graph out, for comparison.
    pub fn of(graph: &Graph) -> Self {
        let slots = |transaction| graph.slots_of(transaction).map(|slot| graph.slot(slot)).collect();
        ReferenceGraph { slots: (0..graph.transactions()).map(slots).collect() }
    }
}

/// Returns the chain lengths from their definition: distinct transactions per row.
pub fn chain_summary(accesses: Accesses<'_>) -> ChainSummary {
    let mut chains: BTreeMap<RowId, BTreeSet<usize>> = BTreeMap::new();
    for transaction in 0..accesses.transactions() {
        for &row in accesses.rows_of(transaction) {
            chains.entry(row).or_default().insert(transaction);
        }
    }
    let lengths: Vec<u32> = chains.values().map(|chain| chain.len() as u32).collect();
    ChainSummary {
        operations: lengths.iter().sum(),
        longest: lengths.iter().copied().max().unwrap_or(0),
        at_least: std::array::from_fn(|k| lengths.iter().filter(|&&length| length >= 1 << k).count() as u32),
    }
}

/// Returns the strata from their definition, over all pairs of transactions that share a row: quadratic.
pub fn strata(accesses: Accesses<'_>) -> Vec<u32> {
    let rows: Vec<BTreeSet<RowId>> = (0..accesses.transactions())
        .map(|transaction| accesses.rows_of(transaction).iter().copied().collect())
        .collect();
    let mut levels: Vec<u32> = Vec::new();
    for (transaction, touched) in rows.iter().enumerate() {
        let before = (0..transaction).filter(|&earlier| !rows[earlier].is_disjoint(touched));
        levels.push(before.map(|earlier| levels[earlier] + 1).max().unwrap_or(0));
    }
    levels
}
