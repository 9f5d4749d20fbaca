//! How much clients may make pile up.

use crate::postgres::WireLimits;
use std::time::Duration;

/// How much may be on its way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls that are not answered yet.
    pub calls_max: usize,
    /// Reads and pushes that are not answered yet.
    pub asks_max: usize,
    /// Queries that run at once.
    pub queries_max: usize,
    /// Queries that wait until they may run, each as long as a query may run.
    pub queries_waiting_max: usize,
    /// How long a query may run.
    pub query_time_max: Duration,
    /// Rows that a query may give.
    pub query_rows_max: usize,
    /// Rows of a table that a read gives which is no query.
    pub table_rows_max: usize,
    /// Bytes of memory that all queries may have together, beside the tables that they read: each has an equal part.
    pub query_memory_max: usize,
    /// Open connections of each protocol.
    pub connections_max: usize,
    /// Readers of streams.
    pub readers_max: usize,
    /// Bytes of a request's body, or of a message.
    pub body_bytes_max: usize,
    /// How long a connection may be silent, and a request's body or a message may take.
    pub silence_max: Duration,
    /// How long the end waits for requests that are under way.
    pub drain_max: Duration,
}

impl Limits {
    /// Those that are about clients of PostgreSQL.
    pub fn of_wire(&self) -> WireLimits {
        let &Limits {
            calls_max,
            asks_max,
            table_rows_max,
            readers_max,
            connections_max,
            body_bytes_max,
            silence_max,
            drain_max,
            ..
        } = self;
        let message_bytes_max = body_bytes_max;
        WireLimits {
            calls_max,
            asks_max,
            table_rows_max,
            readers_max,
            connections_max,
            message_bytes_max,
            silence_max,
            drain_max,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            calls_max: 10_000,
            asks_max: 1_000,
            queries_max: 4,
            queries_waiting_max: 16,
            query_time_max: Duration::from_secs(30),
            query_rows_max: 100_000,
            table_rows_max: 10_000_000,
            query_memory_max: 1 << 30,
            connections_max: 1_000,
            readers_max: 100,
            body_bytes_max: 1 << 20,
            silence_max: Duration::from_secs(60),
            drain_max: Duration::from_secs(10),
        }
    }
}
