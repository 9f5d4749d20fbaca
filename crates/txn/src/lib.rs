//! The theory of scheduling: operations, chains, the task precedence graph. Pure: no threads, no payloads.
