//! Why sessions refuse.

use tidemill_durability::{Position, StateError};

/// The reason why a session cannot do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No source of that name is sent to.
    #[error("'{0}' is not a source that can be sent to: it has a connector, or there is no such source")]
    NotSent(String),
    /// It was said before that nothing more is sent to the source.
    #[error("nothing more can be sent to source '{0}': its end was said before")]
    Ended(String),
    /// The batch has other columns than the source.
    #[error("the batch does not have the columns of source '{source_name}': {difference}")]
    Schema {
        /// The source.
        source_name: String,
        /// The difference.
        difference: String,
    },
    /// An event is too far ahead of the clock.
    #[error("source '{source_name}': {time} is too far ahead of the clock: times up to {until} are taken")]
    TooFar {
        /// The source.
        source_name: String,
        /// The time of the event.
        time: String,
        /// The last time that is not too far ahead.
        until: String,
    },
    /// The program has no such stream.
    #[error("there is no stream '{0}' to follow")]
    NoStream(String),
    /// A stream cannot be followed from a place.
    #[error("no events of stream '{0}' are kept, so it cannot be followed from an earlier place")]
    NotKept(String),
    /// A stream cannot be followed from a place any more.
    #[error("stream '{stream}' cannot be followed from {after}: events are kept after {kept} only")]
    Gone {
        /// The stream.
        stream: String,
        /// The position that was asked for.
        after: Position,
        /// The position after which all events are kept.
        kept: Position,
    },
    /// A position is of another history.
    #[error(
        "stream '{stream}' cannot be followed from {after}: that is a position of another state, or of this one before it \
         was put back to a savepoint; events are kept after {kept}"
    )]
    OtherCourse {
        /// The stream.
        stream: String,
        /// The position that was asked for.
        after: Position,
        /// The position after which all events are kept.
        kept: Position,
    },
    /// The program has no such table.
    #[error("there is no table '{0}'")]
    NoTable(String),
    /// A table cannot be read.
    #[error("table '{table}': {reason}")]
    Table {
        /// The table.
        table: String,
        /// The reason.
        reason: String,
    },
    /// A source has no event time.
    #[error("source '{0}' has no event time: nothing waits for it")]
    NoTime(String),
    /// No transaction of that name can be called.
    #[error("there is no procedure '{name}'; {known}")]
    NoProcedure {
        /// The name.
        name: String,
        /// The names that there are, for users.
        known: String,
    },
    /// A transaction cannot be called.
    #[error("transaction '{name}' cannot be called: {reason}")]
    NotCallable {
        /// The transaction.
        name: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The answers of a source's calls are not kept.
    #[error("calls of '{0}' have no keys: declare it with app.requests(..., remember=\"1h\")")]
    NoKeys(String),
    /// The keys of what is pushed to a source are not kept.
    #[error("what is pushed to '{0}' has no key: declare it with app.source(..., remember=\"1h\")")]
    NoPushKeys(String),
    /// The keys of a source are those of its calls.
    #[error("the keys of '{0}' are those of its calls: call its transaction with the key, or push without one")]
    KeysOfCalls(String),
    /// There are not as many keys as calls.
    #[error("{keys} keys for {calls} calls: give a key or none for each")]
    KeyCount {
        /// The keys.
        keys: usize,
        /// The calls.
        calls: usize,
    },
    /// A key is empty or too long.
    #[error("a key of {bytes} bytes: give one of 1 to {most}")]
    Key {
        /// Its bytes.
        bytes: usize,
        /// The bytes that a key has at most.
        most: usize,
    },
    /// The run has no state, of which a savepoint would be.
    #[error("the run has no state to make a savepoint of: begin it with one")]
    NoState,
    /// A savepoint cannot be made.
    #[error(transparent)]
    Savepoint(#[from] StateError),
    /// The run waits, and has executed epochs that are not durable: what it holds is nobody's to read yet.
    #[error("{0}; reads are answered again when it goes on")]
    Waits(String),
    /// There was no room, or no answer, within the given time.
    #[error("the engine had no room within the given time")]
    Timeout,
    /// The run has ended, or is about to.
    #[error("the run is over")]
    Over,
}
