//! The messages between a server and a process that answers its queries: a header in JSON, and bytes.
//!
//! # Invariant
//!
//! A message is its length and that of its header (4 bytes each, big-endian), the header, and the bytes. Both sides are of
//! one build, so a message that is not understood is a fault, after which the connection is not used any more.

use super::query::{Query, QueryForm, QueryLimits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 1 << 28;
/// The bytes of the two lengths.
const LENGTHS: usize = 8;
/// The bytes that are read at once.
const READ_BYTES: usize = 1 << 16;

/// A message from the server to the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToProcess {
    /// The tables of the application, by name. The bytes are a stream of no rows for each, which has its columns.
    Tables(Vec<Described>),
    /// A query to answer.
    Query(Asked),
    /// A table that was wanted lies in this part of the file.
    Table {
        /// Its place among [`ToProcess::Tables`].
        table: usize,
        offset: u64,
        length: usize,
    },
    /// A table that was wanted cannot be read: why.
    NoTable { table: usize, why: String },
    /// Nobody waits for the answer any more.
    Cancel,
}

/// A table, and the bytes that its columns take.
#[derive(Debug, Serialize, Deserialize)]
pub struct Described {
    pub name: String,
    pub bytes: usize,
}

/// A query, in the form in which a process gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Its text.
    pub sql: String,
    /// The values of its parameters: a JSON array or object, or none.
    pub parameters: Option<String>,
    /// The form of the answer.
    pub form: QueryForm,
    /// The indices of the tables that the query may read, among `ToProcess::Tables`.
    pub tables: Vec<usize>,
    /// Statements that make other tables and functions that it needs.
    pub setup: Option<String>,
    /// The epoch after which the tables are read.
    pub epoch: u64,
    /// The longest time that the query may run, in seconds.
    pub seconds_max: f64,
    /// The most rows that the query may return.
    pub rows_max: usize,
    /// The bytes of memory that it may take at most, beside the tables that it reads.
    pub memory_max: usize,
}

impl Asked {
    /// Returns a query of these tables.
    pub fn of(query: &Query, tables: Vec<usize>, epoch: u64, limits: QueryLimits) -> Asked {
        Asked {
            sql: query.sql.clone(),
            parameters: query.parameters.clone(),
            form: query.form,
            tables,
            setup: query.setup.as_deref().map(str::to_owned),
            epoch,
            seconds_max: limits.time_max.as_secs_f64(),
            rows_max: limits.rows_max,
            memory_max: limits.memory_max,
        }
    }
}

/// A message from the process to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromProcess {
    /// The process is ready to answer queries.
    Ready,
    /// A table that the process needs, by its index among [`ToProcess::Tables`].
    Wants(usize),
    /// The bytes are a part of the answer, an Arrow stream.
    Part,
    /// The answer is whole. The process is worn if it has not enough left for another query.
    Done { worn: bool },
    /// The query has no answer. `worn`: as for [`FromProcess::Done`].
    Failed { failure: Failure, worn: bool },
}

/// The reason why a process has no answer, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The query is wrong, or would take too much.
    Refused(String),
    /// There is no engine.
    NoEngine(String),
    /// Something else has failed, and the process is not to be asked again.
    Over(String),
}

/// Writes a message.
pub fn send(to: &mut impl Write, header: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let header = serde_json::to_vec(header).expect("headers are plain data");
    let all = header.len() + bytes.len();
    if all > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a message is too large"));
    }
    let mut out = Vec::with_capacity(LENGTHS + all);
    out.extend_from_slice(&(all as u32).to_be_bytes());
    out.extend_from_slice(&(header.len() as u32).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(bytes);
    to.write_all(&out)
}

/// The bytes received so far that are not handled yet.
#[derive(Default)]
pub struct Incoming(Vec<u8>);

impl Incoming {
    /// Returns the next message, once it is there as a whole; none if reading times out before. An error at the end of the
    /// connection.
    pub fn next<H: DeserializeOwned>(&mut self, from: &mut impl Read) -> io::Result<Option<(H, Vec<u8>)>> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            let start = self.0.len();
            self.0.resize(start + READ_BYTES, 0);
            let read = from.read(&mut self.0[start..]);
            self.0.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn whole<H: DeserializeOwned>(&mut self) -> io::Result<Option<(H, Vec<u8>)>> {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes")) as usize;
        let Some(lengths) = self.0.get(..LENGTHS) else { return Ok(None) };
        let (all, header) = (word(&lengths[..4]), word(&lengths[4..]));
        if header > all || all > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "the lengths of a message are none"));
        }
        let Some(message) = self.0.get(LENGTHS..LENGTHS + all) else { return Ok(None) };
        let (header, bytes) = message.split_at(header);
        let message = (serde_json::from_slice(header).map_err(io::Error::other)?, bytes.to_vec());
        self.0.drain(..LENGTHS + all);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_and_in_order() {
        let mut sent = Vec::new();
        send(&mut sent, &FromProcess::Wants(3), b"").expect("memory takes everything");
        send(&mut sent, &FromProcess::Part, &[7; 100_000]).expect("memory takes everything");
        let mut incoming = Incoming::default();
        let mut from = &sent[..];
        let first: Option<(FromProcess, Vec<u8>)> = incoming.next(&mut from).expect("a message");
        assert!(matches!(first, Some((FromProcess::Wants(3), bytes)) if bytes.is_empty()));
        let second: Option<(FromProcess, Vec<u8>)> = incoming.next(&mut from).expect("a message");
        assert!(matches!(second, Some((FromProcess::Part, bytes)) if bytes == [7; 100_000]));
        let end = incoming.next::<FromProcess>(&mut from).expect_err("it has ended");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        for wrong in [&[255; 8][..], &[0, 0, 0, 1, 0, 0, 0, 2, 0][..], &[0, 0, 0, 1, 0, 0, 0, 1, b'?'][..]] {
            assert!(Incoming::default().next::<FromProcess>(&mut &wrong[..]).is_err());
        }
    }
}
