//! The catalogs of PostgreSQL for queries that the engine answers: what psql's `\d` and reflection look at.
//!
//! They are tables and functions of the engine, made of the application's tables and procedures (`script`), and queries are
//! put into the words of the engine where these differ (`rewrite`): names of catalogs, casts to `regclass` and its like,
//! operators that are spelled out, `numeric` without digits (`numeric`), and what a connection says of itself.
//!
//! # Invariant
//!
//! No text of a query is compared with another. A query that names neither a catalog nor a function of them, and asks
//! nothing about its connection, nor casts to `numeric` without digits, reaches the engine as it was sent.

mod numeric;
mod rewrite;
mod script;

pub use rewrite::{Rewritten, rewritten};
pub use script::{Seen, script};
