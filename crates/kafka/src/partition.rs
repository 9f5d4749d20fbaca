//! A client that reads a topic, and the partitions that are read through it.
//!
//! One client reads all partitions of a source. What it has received is handed to the partition that it is of, which gives it
//! as batches. A partition that is far ahead of what is taken of it is paused, so that one that is held back does not fill
//! the memory: the client forgets what it has fetched of it, and fetches it again later.

use crate::client::{CALL_MAX, Cluster, Reader};
use crate::options::{ReadTopic, Start};
use crate::record::Decoder;
use parking_lot::Mutex;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{Message, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{InputEnd, IoFailure, Next, Resumed, Source, SourceBatch, SourceProgress};
use tidemill_model::Schema;
use xxhash_rust::xxh3::Xxh3;

/// The number of whole batches that a partition has before it is paused.
const BATCHES_MAX: usize = 16;
/// The number of whole batches that a paused partition has when it goes on.
const BATCHES_AGAIN: usize = 4;
/// The most bytes of the records of a batch.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The place after the records that were given, as text: JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Token {
    /// The offset of the next record.
    next: i64,
    /// The offset of the last record.
    last: i64,
    /// A hash of the last record, by which a topic that was made anew is found.
    hash: u64,
}

/// The parts of a partition that were received.
struct Received {
    decoder: Decoder,
    /// The bytes of the records of the decoder.
    bytes: usize,
    /// Whole batches, with the place after each.
    batches: VecDeque<(SourceBatch, Token)>,
    /// The place after the last record that was received.
    last: Option<Token>,
    /// The last record of an earlier run, which comes first again.
    expected: Option<Token>,
    is_paused: bool,
    /// A flag: whether the end of what was there has been seen.
    is_at_end: bool,
}

impl Received {
    /// Makes a batch of the records that were decoded.
    fn seal(&mut self) {
        if self.decoder.records() > 0 {
            self.bytes = 0;
            self.batches.push_back((self.decoder.finish(), self.last.expect("there was a record")));
        }
    }

    /// Takes a record.
    fn take(&mut self, record: &BorrowedMessage<'_>, rows_max: usize) -> Result<(), IoFailure> {
        let (offset, hash) = (record.offset(), hash(record));
        if let Some(expected) = self.expected.take()
            && offset <= expected.last
        {
            if (offset, hash) == (expected.last, expected.hash) {
                return Ok(());
            }
            return Err(IoFailure::new(format!(
                "{}/{}: the record at offset {} is not the one that was taken: the topic was made anew; begin a new state, or \
                 name another topic",
                record.topic(),
                record.partition(),
                expected.last
            )));
        }
        self.decoder.push(record);
        self.bytes += record.payload().map_or(0, <[u8]>::len);
        self.last = Some(Token { next: offset + 1, last: offset, hash });
        self.is_at_end = false;
        if self.decoder.records() >= rows_max || self.bytes >= BATCH_BYTES_MAX {
            self.seal();
        }
        Ok(())
    }
}

/// A client that reads a topic, with what it has received of each partition.
pub struct Feed {
    cluster: Cluster,
    topic: String,
    reader: Reader,
    rows_max: usize,
    received: Mutex<BTreeMap<i32, Received>>,
}

impl Feed {
    /// Makes a client that reads no partition yet.
    pub fn new(of: &ReadTopic, reader: Reader, rows_max: usize) -> Feed {
        let (cluster, topic) = (of.cluster(), of.topic.clone());
        Feed { cluster, topic, reader, rows_max, received: Mutex::default() }
    }

    /// Returns the numbers of the partitions that there are.
    pub fn partitions(&self) -> Result<Vec<i32>, IoFailure> {
        self.cluster.partitions(&self.reader, &self.topic)?.ok_or_else(|| self.cluster.no_topic(&self.topic))
    }

    fn failure(&self, partition: i32, what: &str, error: &KafkaError) -> IoFailure {
        self.cluster.failure(&format!("{}/{partition}: {what}", self.topic), error)
    }

    /// Begins to read a partition from an offset.
    fn begin(
        &self,
        partition: i32,
        from: i64,
        high: i64,
        expected: Option<Token>,
        decoder: Decoder,
    ) -> Result<(), IoFailure> {
        let received = Received {
            decoder,
            bytes: 0,
            batches: VecDeque::new(),
            last: None,
            expected,
            is_paused: false,
            is_at_end: from >= high,
        };
        self.received.lock().insert(partition, received);
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(&self.topic, partition, Offset::Offset(from));
        let begun = added.and_then(|()| self.reader.incremental_assign(&list));
        begun.map_err(|error| self.failure(partition, "cannot be read", &error))
    }

    /// Returns the least offset that there is, and the one after the greatest.
    fn bounds(&self, partition: i32) -> Result<(i64, i64), IoFailure> {
        let bounds = self.reader.fetch_watermarks(&self.topic, partition, CALL_MAX);
        bounds.map_err(|error| self.failure(partition, "its offsets cannot be read", &error))
    }

    /// Returns the offset of the first record at or after a time; none if there is none.
    fn at(&self, partition: i32, micros: i64) -> Result<Option<i64>, IoFailure> {
        // To the next millisecond: no record before the time is read.
        let millis = micros.div_euclid(1_000) + i64::from(micros.rem_euclid(1_000) > 0);
        let mut asked = TopicPartitionList::new();
        let added = asked.add_partition_offset(&self.topic, partition, Offset::Offset(millis.max(0)));
        let found = added.and_then(|()| self.reader.offsets_for_times(asked, CALL_MAX));
        let found = found.map_err(|error| self.failure(partition, "its times cannot be read", &error))?;
        let element = found.find_partition(&self.topic, partition);
        Ok(element.and_then(|element| match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }))
    }

    /// Receives until a partition has a whole batch, or there is nothing more now; waits for the first record.
    fn receive(&self, partition: i32, wait_max: Duration) -> Result<(), IoFailure> {
        let mut wait = wait_max;
        let mut all = self.received.lock();
        loop {
            let has_enough = all.get(&partition).is_none_or(|of| !of.batches.is_empty());
            if has_enough {
                return Ok(());
            }
            match self.reader.poll(wait) {
                None => return Ok(()),
                Some(Ok(record)) => {
                    let Some(of) = all.get_mut(&record.partition()) else { continue };
                    of.take(&record, self.rows_max)?;
                    if of.batches.len() >= BATCHES_MAX && !of.is_paused {
                        of.is_paused = true;
                        self.let_flow(record.partition(), false)?;
                    }
                }
                Some(Err(KafkaError::PartitionEOF(at))) => {
                    if let Some(of) = all.get_mut(&at) {
                        of.is_at_end = true;
                    }
                }
                Some(Err(error)) => self.erred(&error)?,
            }
            wait = Duration::ZERO;
        }
    }

    /// Handles an error of the client: most pass by themselves.
    fn erred(&self, error: &KafkaError) -> Result<(), IoFailure> {
        let failure = || self.cluster.failure(&format!("topic '{}'", self.topic), error);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                Err(IoFailure::new(format!(
                    "{}: records that were not taken yet are gone, by retention or since the topic was made anew",
                    failure().message
                )))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Err(failure()),
            Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::Fatal) => Err(failure()),
            _ => {
                tracing::debug!(target: "kafka", "{}", failure());
                Ok(())
            }
        }
    }

    /// Pauses a partition, or lets it go on.
    fn let_flow(&self, partition: i32, flows: bool) -> Result<(), IoFailure> {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        let done = if flows { self.reader.resume(&list) } else { self.reader.pause(&list) };
        done.map_err(|error| self.failure(partition, "cannot be paused", &error))
    }

    /// Returns the next batch of a partition, with the place after it; none if there is none now. And whether the end of what
    /// was there has been seen.
    fn next(&self, partition: i32, wait_max: Duration) -> Result<(Option<(SourceBatch, Token)>, bool), IoFailure> {
        self.receive(partition, wait_max)?;
        let mut all = self.received.lock();
        let of = all.get_mut(&partition).expect("it was begun");
        if of.batches.is_empty() {
            of.seal();
        }
        let batch = of.batches.pop_front();
        if of.is_paused && of.batches.len() <= BATCHES_AGAIN {
            of.is_paused = false;
            self.let_flow(partition, true)?;
        }
        Ok((batch, of.is_at_end))
    }
}

/// Returns a hash of a record.
fn hash(record: &BorrowedMessage<'_>) -> u64 {
    let mut hash = Xxh3::new();
    for part in [record.key(), record.payload()] {
        hash.update(&[u8::from(part.is_some())]);
        hash.update(&part.map_or(0, <[u8]>::len).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    if let Timestamp::CreateTime(millis) = record.timestamp() {
        hash.update(&millis.to_le_bytes());
    }
    hash.digest()
}

/// A partition that is read.
pub struct Partition {
    feed: Arc<Feed>,
    number: i32,
    begin: Start,
    end: InputEnd,
    /// The decoder, until it is begun.
    waiting: Option<Decoder>,
    /// The place after the last batch, and that after those of earlier runs.
    token: Option<Token>,
    done: u64,
    resumed: Option<String>,
}

impl Partition {
    /// Makes a partition that is begun when it is asked for its first batch.
    pub fn new(
        feed: Arc<Feed>,
        number: i32,
        begin: Start,
        of: &ReadTopic,
        schema: &Schema,
    ) -> Result<Partition, IoFailure> {
        let waiting = Some(Decoder::new(of, schema)?);
        Ok(Partition { feed, number, begin, end: of.end, waiting, token: None, done: 0, resumed: None })
    }

    /// Begins to read, unless it has begun.
    fn begin(&mut self) -> Result<(), IoFailure> {
        let Some(decoder) = self.waiting.take() else { return Ok(()) };
        let (low, high) = self.feed.bounds(self.number)?;
        let (from, expected) = match (self.token, self.begin) {
            (Some(token), _) if token.last >= low => (token.last, Some(token)),
            (Some(token), _) => (token.next, None),
            (None, Start::Earliest) => (low, None),
            (None, Start::Latest) => (high, None),
            (None, Start::Time(micros)) => (self.feed.at(self.number, micros)?.unwrap_or(high), None),
        };
        let is_at_end = self.token.is_some_and(|token| token.next >= high);
        self.feed.begin(self.number, from, if is_at_end { from } else { high }, expected, decoder)
    }
}

impl Source for Partition {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        self.begin()?;
        match self.feed.next(self.number, wait_max)? {
            (Some((batch, token)), _) => {
                self.token = Some(token);
                self.done += (batch.events.num_rows() + batch.bad.len()) as u64;
                Ok(Next::Batch(batch))
            }
            (None, true) if self.end != InputEnd::Follow => Ok(Next::End),
            (None, _) => Ok(Next::Nothing),
        }
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress { done: self.done, total: None }
    }

    fn token(&self) -> Option<String> {
        serde_json::to_string(&self.token?).ok()
    }

    fn is_followed(&self) -> bool {
        self.end == InputEnd::Follow
    }

    fn is_last(&self) -> bool {
        self.end == InputEnd::Last
    }

    fn outlook(&self) -> Option<String> {
        self.resumed.clone()
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        let Some(token) = token else { return Ok(Resumed::New) };
        let token: Token =
            serde_json::from_str(token).map_err(|error| IoFailure::new(format!("'{token}' is no place: {error}")))?;
        let name = format!("{}/{}", self.feed.topic, self.number);
        let (low, high) = self.feed.bounds(self.number)?;
        if token.next < low {
            return Err(IoFailure::new(format!(
                "{name}: {} records are missing, from offset {} on: the first that there is is at {low}",
                low - token.next,
                token.next
            )));
        }
        if token.next > high {
            return Err(IoFailure::new(format!(
                "{name}: the records up to offset {} were taken, and it has {high}: it lost some, or the topic was made anew",
                token.next
            )));
        }
        self.token = Some(token);
        self.resumed = Some(format!("goes on with {name} at offset {}", token.next));
        Ok(Resumed::Behind)
    }
}
