//! Queries of NEXMark (P. Tucker, K. Tufte, V. Papadimos, D. Maier, "NEXMark: a benchmark for queries over data streams",
//! 2002; q0 and from q9 on as in Apache Beam and in github.com/nexmark/nexmark). `docs/benchmarks.md` says how they differ,
//! and which are missing.
//!
//! q5, q7 and q11 are over `bids`, with the groups and the skew that are asked for. The others are over `events`, where
//! `groups` is the number of auctions in flight, and hot keys are NEXMark's.

mod bids;
mod events;
pub mod highest;
pub mod hot_items;
pub mod latest;
pub mod lookups;
pub mod new_sellers;
pub mod sessions;
pub mod stateless;
pub mod statistics;
pub mod winning;
