//! Limits of the requests, connections, rows and bytes that clients may occupy.

use crate::connections::GUESTS_MAX;
use crate::listen::REFUSED_MAX;
use crate::postgres::WireLimits;
use std::time::Duration;

/// The most of each resource that clients may occupy at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls that are not answered yet.
    pub calls_max: usize,
    /// Reads and pushes that are not answered yet.
    pub asks_max: usize,
    /// Queries that run at once, each in a process of its own. Of several, one is kept for those over the catalogs alone.
    pub queries_max: usize,
    /// Queries that wait until they may run, each as long as a query may run.
    pub queries_waiting_max: usize,
    /// The longest time that a query may run.
    pub query_time_max: Duration,
    /// Rows that a query may give.
    pub query_rows_max: usize,
    /// Rows of a table that a read gives which is no query.
    pub table_rows_max: usize,
    /// Bytes of memory that all queries may have together: half for the tables that they read, which they share, and half
    /// in equal parts for each.
    pub query_memory_max: usize,
    /// Open connections of each protocol.
    pub connections_max: usize,
    /// Readers of streams.
    pub readers_max: usize,
    /// Bytes of tables that responses of both protocols hold, which their clients have not taken.
    pub responses_bytes_max: usize,
    /// Bytes of statements and portals that clients of PostgreSQL have prepared. One connection may have an eighth.
    pub prepared_bytes_max: usize,
    /// Bytes of a request's body, or of a message.
    pub body_bytes_max: usize,
    /// The longest time that a connection may be silent, that a request's body or a message may take, and that a client
    /// may read nothing of what it is sent.
    pub silence_max: Duration,
    /// The longest time that the end of the server waits for requests that are under way.
    pub drain_max: Duration,
}

/// The descriptors of the process that connections leave to the engine, for its state, its sources and its sinks.
const ENGINE_DESCRIPTORS: u64 = 200;

impl Limits {
    /// Returns the bytes that the tables of all queries may take.
    pub fn memory_of_tables(&self) -> usize {
        self.query_memory_max / 2
    }

    /// Returns the bytes that a query may take beside them.
    pub fn memory_of_query(&self) -> usize {
        (self.query_memory_max - self.memory_of_tables()) / self.queries_max.max(1)
    }

    /// Returns the connections of each protocol that a process may have which may open so many files, where so many
    /// protocols are spoken: beside those that have a place, some are heard out.
    pub fn connections_of(&self, descriptors: u64, protocols: u64) -> usize {
        let beside = (GUESTS_MAX + REFUSED_MAX) as u64;
        let each = (descriptors.saturating_sub(ENGINE_DESCRIPTORS) / protocols.max(1)).saturating_sub(beside);
        self.connections_max.min(usize::try_from(each.max(1)).unwrap_or(usize::MAX))
    }

    /// Returns the limits that concern clients of PostgreSQL.
    pub fn of_wire(&self) -> WireLimits {
        let &Limits {
            calls_max,
            asks_max,
            table_rows_max,
            readers_max,
            connections_max,
            responses_bytes_max,
            prepared_bytes_max,
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
            responses_bytes_max,
            prepared_bytes_max,
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
            queries_max: 2,
            queries_waiting_max: 16,
            query_time_max: Duration::from_secs(30),
            query_rows_max: 100_000,
            table_rows_max: 10_000_000,
            query_memory_max: 1 << 30,
            connections_max: 1_000,
            readers_max: 100,
            responses_bytes_max: 1 << 28,
            prepared_bytes_max: 1 << 29,
            body_bytes_max: 1 << 20,
            silence_max: Duration::from_secs(60),
            drain_max: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_engine() {
        let limits = Limits::default();
        let of = |descriptors, protocols| limits.connections_of(descriptors, protocols);
        assert_eq!((of(1 << 20, 2), of(u64::MAX, 2), of(1 << 20, 1)), (1_000, 1_000, 1_000));
        for (descriptors, protocols) in [(1_024, 2), (1_024, 1), (512, 2), (400, 2)] {
            let each = of(descriptors, protocols) + GUESTS_MAX + REFUSED_MAX;
            assert!(of(descriptors, protocols) < 1_000);
            assert!(each as u64 * protocols + ENGINE_DESCRIPTORS <= descriptors, "{descriptors} {protocols}");
        }
        // There is one in any case, to say what is wrong.
        assert_eq!(of(64, 2), 1);
        assert_eq!(Limits { connections_max: 5, ..limits }.connections_of(1_024, 2), 5);
    }
}
