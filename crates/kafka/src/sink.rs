//! A topic that is written: each commit of a durable run is a transaction of Kafka.
//!
//! # Invariant
//!
//! A transaction has the records of the epochs since the last commit, and the mark of the last of them: they are visible
//! together, or not at all. There is at most one client that can write an output: one that is opened later ends what its
//! predecessor left open, and shuts it out.
//!
//! After a commit that was in doubt on the way (it took long, or the client has spoken of an error), the next transaction has a
//! client of its own: what Kafka does late with the end of the one before cannot touch it (KIP-890 tells how that happens).

use crate::client::{CALL_MAX, Cluster, Said, Writer};
use crate::encode::{Encoded, Encoder};
use crate::options::{KIND, WriteTopic};
use crate::progress::{Mark, PROGRESS_TOPIC, last_mark};
use arrow_array::RecordBatch;
use parking_lot::Mutex;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tidemill_io::{DurableRun, IoFailure, Recovered, Sink, SinkConnection, Spec};
use tidemill_model::Schema;

/// The time after which a commit is in doubt.
const DOUBT: Duration = Duration::from_secs(1);
/// The wait for room, or for what is acknowledged.
const POLL: Duration = Duration::from_millis(1);

/// The outputs that sinks of this process write.
static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl SinkConnection for WriteTopic {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        let owner = durable.map(DurableRun::owner).filter(|_| self.exactly_once);
        Ok(Box::new(TopicSink::open(self, schema, owner)?))
    }

    fn shown(&self) -> String {
        format!("kafka {} at {}", self.topic, self.servers)
    }
}

/// An output of a state, which no other sink of this process writes as long as there is this.
struct Output(String);

impl Output {
    fn take(name: String, topic: &str) -> Result<Output, IoFailure> {
        if !WRITTEN.lock().insert(name.clone()) {
            return Err(IoFailure::new(format!(
                "two sinks of this state write topic '{topic}' under one name; give one of them an id"
            )));
        }
        Ok(Output(name))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        WRITTEN.lock().remove(&self.0);
    }
}

/// The transactions of a sink.
struct Transactions {
    output: Output,
    /// A flag: whether one is open.
    is_open: bool,
    prepared: Option<u64>,
    committed: Option<u64>,
    /// The last epoch that is marked.
    marked: Option<u64>,
}

/// A topic that is written.
pub struct TopicSink {
    cluster: Cluster,
    topic: String,
    encoder: Encoder,
    /// None while no client may write.
    writer: Option<Writer>,
    /// None without transactions.
    transactions: Option<Transactions>,
    bytes: u64,
    has_failed: bool,
}

impl TopicSink {
    /// Opens a topic; with an owner it is written in transactions.
    pub fn open(of: &WriteTopic, schema: &Schema, owner: Option<&str>) -> Result<TopicSink, IoFailure> {
        let (cluster, encoder) = (of.cluster(), Encoder::new(of, schema)?);
        if cluster.partitions(&cluster.reader()?, &of.topic)?.is_none() {
            return Err(cluster.no_topic(&of.topic));
        }
        let name = |owner: &str| format!("{owner}/{}", of.id.as_deref().unwrap_or(&of.topic));
        let output = owner.map(|owner| Output::take(name(owner), &of.topic)).transpose()?;
        let transactions =
            output.map(|output| Transactions { output, is_open: false, prepared: None, committed: None, marked: None });
        // A writer with transactions is made by `recover`, which shuts out those of before.
        let writer = if transactions.is_some() { None } else { Some(cluster.writer(None)?) };
        Ok(TopicSink { cluster, topic: of.topic.clone(), encoder, writer, transactions, bytes: 0, has_failed: false })
    }

    /// Returns a failure in words.
    fn failure(&self, what: &str, error: &KafkaError) -> IoFailure {
        let fatal = self.fatal();
        self.cluster.failure(&format!("topic '{}' {what}", self.topic), fatal.as_ref().unwrap_or(error))
    }

    /// Returns the error after which the client cannot go on, if there was one: others follow from it.
    fn fatal(&self) -> Option<KafkaError> {
        let fatal = self.writer.as_ref()?.client().fatal_error();
        fatal.map(|(code, _)| KafkaError::Global(code))
    }

    /// Does something, after which nothing is done any more if it fails.
    fn attempt<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, IoFailure>) -> Result<T, IoFailure> {
        if self.has_failed {
            return Err(IoFailure::new(format!("topic '{}' has failed before", self.topic)));
        }
        let done = act(self);
        self.has_failed = done.is_err();
        done
    }

    /// Makes a client that may write in transactions, and shuts out all others.
    fn enter(&mut self) -> Result<(), IoFailure> {
        let Some(of) = &self.transactions else { return Ok(()) };
        let writer = self.cluster.writer(Some(&format!("tidemill-{}", of.output.0)))?;
        writer
            .init_transactions(CALL_MAX)
            .map_err(|error| self.failure("cannot be written in transactions", &error))?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Begins a transaction, unless one is open.
    fn begin(&mut self) -> Result<(), IoFailure> {
        if self.transactions.as_ref().is_none_or(|of| of.is_open) {
            return Ok(());
        }
        if self.writer.is_none() {
            self.enter()?;
        }
        let begun = self.writer().begin_transaction();
        begun.map_err(|error| self.failure("cannot begin a transaction", &error))?;
        self.transactions.iter_mut().for_each(|of| of.is_open = true);
        Ok(())
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().expect("a sink writes after it has recovered")
    }

    fn said(&self) -> &Said {
        self.writer().client().context()
    }

    /// Hands a record to the client, which waits for room.
    fn send(&self, topic: &str, record: &mut Encoded) -> Result<(), IoFailure> {
        let mut next = BaseRecord::<[u8], [u8]>::to(topic);
        next.key = record.key.as_deref();
        next.payload = record.value.as_deref();
        next.timestamp = record.timestamp;
        next.headers = record.headers.take();
        let begun = Instant::now();
        loop {
            match self.writer().send(next) {
                Ok(()) => return Ok(()),
                Err((error, again)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                    self.check()?;
                    if begun.elapsed() > CALL_MAX {
                        return Err(self.failure("takes nothing", &error));
                    }
                    next = again;
                    self.writer().poll(POLL);
                }
                Err((error, _)) => {
                    let key = record.key.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    let bytes = record.value.as_ref().map_or(0, Vec::len);
                    return Err(self.failure(&format!("refuses a record of {bytes} bytes with key '{key}'"), &error));
                }
            }
        }
    }

    /// Fails if a record was not delivered.
    fn check(&self) -> Result<(), IoFailure> {
        let undelivered = self.said().undelivered(self.writer().in_flight_count() == 0);
        match (self.fatal(), undelivered) {
            (Some(fatal), _) => Err(self.failure("cannot be written", &fatal)),
            (None, Some(why)) => {
                Err(IoFailure::new(format!("topic '{}': {why} (Kafka at {})", self.topic, self.cluster.servers)))
            }
            (None, None) => Ok(()),
        }
    }

    /// Waits until all records are acknowledged.
    fn settle(&self) -> Result<(), IoFailure> {
        let begun = Instant::now();
        while self.writer().in_flight_count() > 0 {
            self.writer().poll(POLL);
            self.check()?;
            if begun.elapsed() > CALL_MAX {
                let why = self.said().last().unwrap_or_else(|| "nothing is acknowledged".into());
                let servers = &self.cluster.servers;
                return Err(IoFailure::new(format!("topic '{}': {why} (Kafka at {servers})", self.topic)));
            }
        }
        self.check()
    }

    /// Writes the mark of an epoch into the open transaction.
    fn mark(&self, epoch: u64) -> Result<(), IoFailure> {
        let Some(of) = &self.transactions else { return Ok(()) };
        let mark = Mark { epoch, topic: self.topic.clone() };
        let value = serde_json::to_vec(&mark).expect("plain data");
        let key = Some(of.output.0.clone().into_bytes());
        self.send(PROGRESS_TOPIC, &mut Encoded { value: Some(value), key, ..Encoded::default() })
    }

    /// Commits the open transaction.
    fn end_transaction(&mut self, epoch: u64) -> Result<(), IoFailure> {
        let begun = Instant::now();
        let done = self.writer().commit_transaction(CALL_MAX);
        done.map_err(|error| self.failure("cannot commit", &error))?;
        let is_in_doubt = begun.elapsed() > DOUBT || self.said().has_erred();
        if let Some(of) = &mut self.transactions {
            (of.is_open, of.marked) = (false, Some(epoch));
        }
        if is_in_doubt {
            self.writer = None;
        }
        Ok(())
    }

    /// Gives up the open transaction, if there is one.
    fn give_up(&mut self) -> Result<(), IoFailure> {
        if let Some(of) = self.transactions.as_mut().filter(|of| of.is_open) {
            of.is_open = false;
            let done = self.writer().abort_transaction(CALL_MAX);
            done.map_err(|error| self.failure("cannot give up a transaction", &error))?;
        }
        Ok(())
    }

    /// Returns whether an epoch is at or before the last that was committed.
    fn has(&self, epoch: u64) -> bool {
        self.transactions.as_ref().is_some_and(|of| of.committed.is_some_and(|committed| epoch <= committed))
    }
}

impl Sink for TopicSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            sink.begin()?;
            let mut bytes = 0;
            sink.encoder.each(batch, |record| {
                bytes += record.value.as_ref().map_or(0, Vec::len) as u64;
                sink.send(&sink.topic, record)
            })?;
            sink.bytes += bytes;
            sink.writer().poll(Duration::ZERO);
            sink.check()
        })
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        self.attempt(|sink| if sink.transactions.is_some() { Ok(()) } else { sink.settle() })
    }

    fn recover(&mut self) -> Result<Recovered, IoFailure> {
        self.attempt(|sink| {
            if sink.transactions.is_none() {
                return Ok(Recovered::Forgets);
            }
            // Before the mark is read: what a run of before has left under way is decided then.
            sink.enter()?;
            let name = sink.transactions.as_ref().map(|of| of.output.0.clone()).unwrap_or_default();
            let last = last_mark(&sink.cluster, &name)?;
            if let Some(mark) = last.as_ref().filter(|mark| mark.topic != sink.topic) {
                return Err(IoFailure::new(format!(
                    "the output '{name}' is in topic '{}', and is to go on in '{}'; give the sink another id",
                    mark.topic, sink.topic
                )));
            }
            let epoch = last.map(|mark| mark.epoch);
            sink.transactions.iter_mut().for_each(|of| (of.committed, of.marked) = (epoch, epoch));
            Ok(Recovered::Through(epoch))
        })
    }

    fn prepare(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            if sink.has(epoch) {
                return sink.give_up();
            }
            let is_open = sink.transactions.as_ref().is_some_and(|of| of.is_open);
            if is_open {
                sink.mark(epoch)?;
            }
            if sink.writer.is_some() {
                sink.settle()?;
            }
            sink.transactions.iter_mut().for_each(|of| of.prepared = Some(epoch));
            Ok(())
        })
    }

    fn commit(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            let Some(of) = sink.transactions.as_ref().filter(|_| !sink.has(epoch)) else { return Ok(()) };
            if of.prepared != Some(epoch) {
                return Err(IoFailure::new(format!("epoch {epoch} of topic '{}' was not prepared", sink.topic)));
            }
            if of.is_open {
                sink.end_transaction(epoch)?;
            }
            sink.transactions.iter_mut().for_each(|of| (of.committed, of.prepared) = (Some(epoch), None));
            Ok(())
        })
    }

    fn bytes(&mut self) -> Option<u64> {
        Some(self.bytes)
    }

    fn keep(&mut self) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            let Some(of) = &sink.transactions else { return Ok(()) };
            let Some(epoch) = of.committed.filter(|epoch| of.marked != Some(*epoch) && !of.is_open) else {
                return Ok(());
            };
            sink.begin()?;
            sink.mark(epoch)?;
            sink.settle()?;
            sink.end_transaction(epoch)
        })
    }

    fn abort(&mut self, epoch: u64) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            if sink.has(epoch) {
                return Ok(());
            }
            sink.transactions.iter_mut().for_each(|of| of.prepared = None);
            sink.give_up()
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
        self.attempt(|sink| {
            sink.give_up()?;
            if sink.transactions.is_none() { sink.settle() } else { Ok(()) }
        })
    }
}
