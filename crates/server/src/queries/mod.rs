//! SQL over the tables, by an engine that the server is given: one that answers in processes of its own (`pool`), whose end
//! is not the server's. `process` is such a process as the server sees it, `child` as it sees itself; they speak by
//! `message`, and share tables in memory (`tables`, `mapped`). `seal` closes it off.

mod asking;
mod child;
mod mapped;
mod message;
mod pool;
mod process;
mod query;
mod running;
mod seal;
mod tables;

pub use asking::{Asking, NotAsked};
pub use child::{Engine as ProcessEngine, IsWanted, ProcessFailure, ProcessQuery, SharedTable, answer_queries};
pub use pool::Processes;
pub use process::Launch;
pub use query::{Queried, Queries, Query, QueryError, QueryForm, QueryLimits};
pub use seal::{Sealed, seal};
