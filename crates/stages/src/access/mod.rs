//! The access stage: the transactions of an epoch run against the tables.
//!
//! [`stage`] chooses the policy and runs the epoch under it. [`serial`] runs transactions in order on one worker;
//! `merge` merges what was folded in prepare; [`cascade`] follows one event at a time if a transaction feeds
//! another that shares tables with it, and `nest` runs those that commit or abort as one; `stretches` runs what is due
//! between the events of an epoch; `waves` runs transactions that follow others without sharing a table. A parallel policy begins with a [`listing`] of the accesses; the
//! workers run the epoch [`together`], in one [`part`], or in one part for each [group](grouping) of transactions
//! that share no row; [`versions`] holds the values of operations that run apart from their transactions, whose code
//! `unit` calls. The [`indexes`] of columns are told which rows may change. After an epoch the rows that it [`touched`] are noted, a
//! [`snapshot`] for a checkpoint may begin, and snapshots to [`read`]; a sample of its accesses may be taken, to
//! find [`hot`] rows.

pub mod cascade;
pub mod costs;
pub mod grouping;
pub mod hot;
pub mod indexes;
mod key_hashes;
pub mod listing;
mod merge;
mod nest;
mod parameters;
pub mod part;
pub mod read;
pub mod scheduling;
pub mod serial;
pub mod shape;
pub mod snapshot;
pub mod stage;
pub mod stretches;
pub mod together;
pub mod touched;
mod unit;
pub mod versions;
mod waves;
