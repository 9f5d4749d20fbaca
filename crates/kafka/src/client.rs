//! Clients of Kafka: their settings, their errors in words, and what librdkafka says beside its calls.

use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::{ClientConfig, Message};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_io::IoFailure;

/// The time in which a broker must answer when a topic is opened.
pub const REACH_MAX: Duration = Duration::from_secs(3);
/// The time that any other call may take.
pub const CALL_MAX: Duration = Duration::from_secs(60);
/// The size of a transaction coordinator's patience, milliseconds: a run that is gone holds readers of its output no longer.
const TRANSACTION_MS: &str = "60000";

/// Settings that decide about what is exact, which nobody else may set.
const OWN: [&str; 11] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "isolation.level",
    "enable.partition.eof",
    "transactional.id",
    "enable.idempotence",
    "allow.auto.create.topics",
];

/// Brokers, and how to speak with them.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub servers: String,
    pub settings: BTreeMap<String, String>,
}

/// A client that reads.
pub type Reader = BaseConsumer<Said>;
/// A client that writes.
pub type Writer = BaseProducer<Said>;

impl Cluster {
    /// Makes a client that reads what transactions have committed.
    pub fn reader(&self) -> Result<Reader, IoFailure> {
        let mut config = self.config()?;
        config
            .set("group.id", "tidemill")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("allow.auto.create.topics", "false");
        config.create_with_context(Said::default()).map_err(|error| self.failure("cannot begin to read", &error))
    }

    /// Makes a client that writes each record once, in transactions if it has an id of them.
    pub fn writer(&self, transactional: Option<&str>) -> Result<Writer, IoFailure> {
        let mut config = self.config()?;
        config.set("enable.idempotence", "true");
        for (name, value) in [("linger.ms", "5"), ("partitioner", "murmur2_random")] {
            if !self.settings.contains_key(name) {
                config.set(name, value);
            }
        }
        if let Some(id) = transactional {
            config.set("transactional.id", id).set("transaction.timeout.ms", TRANSACTION_MS);
        }
        config.create_with_context(Said::default()).map_err(|error| self.failure("cannot begin to write", &error))
    }

    /// Makes a topic that keeps the last record of each key, unless it is there.
    pub fn make_compacted(&self, topic: &str) -> Result<(), IoFailure> {
        let failed = |error: &KafkaError| self.failure(&format!("cannot make topic '{topic}'"), error);
        let admin: AdminClient<Said> = self.config()?.create_with_context(Said::default()).map_err(|e| failed(&e))?;
        let new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1)).set("cleanup.policy", "compact");
        let options = AdminOptions::new().request_timeout(Some(CALL_MAX)).operation_timeout(Some(CALL_MAX));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| IoFailure::new(format!("cannot wait for Kafka: {error}")))?;
        let made = runtime.block_on(admin.create_topics(&[new], &options)).map_err(|error| failed(&error))?;
        for one in made {
            match one {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(failed(&KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }

    /// Returns the numbers of a topic's partitions, in order. None if there is no such topic.
    pub fn partitions(&self, reader: &Reader, topic: &str) -> Result<Option<Vec<i32>>, IoFailure> {
        let unreached = |error: KafkaError| {
            let why = reader.context().last().unwrap_or_else(|| words(&error));
            IoFailure::new(format!("cannot reach Kafka at {}: {why}", self.servers))
        };
        let metadata = reader.fetch_metadata(Some(topic), REACH_MAX).map_err(unreached)?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None => {}
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => return Ok(None),
            Some(code) => return Err(self.failure(&format!("topic '{topic}'"), &KafkaError::MetadataFetch(code))),
        }
        let mut numbers: Vec<i32> = found.partitions().iter().map(|partition| partition.id()).collect();
        numbers.sort_unstable();
        Ok(Some(numbers).filter(|numbers| !numbers.is_empty()))
    }

    /// Returns the failure for a topic that is not there.
    pub fn no_topic(&self, topic: &str) -> IoFailure {
        IoFailure::new(format!(
            "there is no topic '{topic}' at {}; make it, with as many partitions as it is to have",
            self.servers
        ))
    }

    /// Returns a failure in words.
    pub fn failure(&self, what: &str, error: &KafkaError) -> IoFailure {
        IoFailure::new(format!("{what}: {} (Kafka at {})", words(error), self.servers))
    }

    fn config(&self) -> Result<ClientConfig, IoFailure> {
        let mut config = ClientConfig::new();
        config.set("client.id", "tidemill");
        for (name, value) in &self.settings {
            if OWN.contains(&name.as_str()) {
                return Err(IoFailure::new(format!(
                    "setting '{name}' of Kafka is not free: what is exact depends on it"
                )));
            }
            config.set(name, given(name, value)?);
        }
        config.set("bootstrap.servers", &self.servers);
        Ok(config)
    }
}

/// Returns the value of a setting.
fn given(name: &str, value: &str) -> Result<String, IoFailure> {
    let Some(variable) = value.strip_prefix("env:") else { return Ok(value.to_owned()) };
    std::env::var(variable)
        .map_err(|_| IoFailure::new(format!("setting '{name}' of Kafka: there is no environment variable {variable}")))
}

/// Returns an error in words.
pub fn words(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, why, name, _) => format!("setting '{name}': {why}"),
        KafkaError::ClientCreation(why) => why.clone(),
        KafkaError::Transaction(error) if !is_fencing(error.code()) => error.string(),
        other => match other.rdkafka_error_code() {
            Some(code) if is_fencing(code) => {
                "another process writes this output now, and has shut this one out".into()
            }
            Some(code) => code.to_string(),
            None => other.to_string(),
        },
    }
}

fn is_fencing(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch)
}

/// A record that was not delivered.
struct Undelivered {
    /// The reason, in words.
    why: String,
    /// The bytes of its value.
    bytes: usize,
    /// A flag: whether it was given up since another one of its transaction was refused.
    is_purged: bool,
}

/// The things that a client says beside its calls: logs, errors, records that were not delivered.
#[derive(Default)]
pub struct Said {
    /// The last error, in words.
    last: Mutex<Option<String>>,
    /// A flag: whether there was an error since somebody asked.
    has_erred: AtomicBool,
    /// The first record that was not delivered, or the first that was refused itself.
    undelivered: Mutex<Option<Undelivered>>,
}

impl Said {
    /// Returns the last error, in words.
    pub fn last(&self) -> Option<String> {
        self.last.lock().clone()
    }

    /// Returns whether there was an error since this was asked last.
    pub fn has_erred(&self) -> bool {
        self.has_erred.swap(false, Ordering::AcqRel)
    }

    /// Returns the reason why a record was not delivered, if one was not. As long as others are under way (`is_over` is false),
    /// the one that was refused may still be among them.
    pub fn undelivered(&self, is_over: bool) -> Option<String> {
        self.undelivered.lock().as_ref().filter(|one| is_over || !one.is_purged).map(|one| one.why.clone())
    }
}

impl ClientContext for Said {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::debug!(target: "kafka", "{facility}: {text}");
            }
            _ => tracing::trace!(target: "kafka", "{facility}: {text}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", "{reason}");
        // "All brokers are down" comes after what says why.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) || self.last.lock().is_none() {
            *self.last.lock() = Some(reason.to_owned());
        }
        self.has_erred.store(true, Ordering::Release);
    }
}

impl ConsumerContext for Said {}

impl ProducerContext for Said {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let Err((error, message)) = result else { return };
        let code = error.rdkafka_error_code();
        let is_purged = matches!(code, Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight));
        let bytes = message.payload().map_or(0, <[u8]>::len);
        // Records are refused by the batch: the largest one is named, which may be the reason.
        let is_worse = |known: &Undelivered| (!known.is_purged, known.bytes) < (!is_purged, bytes);
        let mut known = self.undelivered.lock();
        if known.as_ref().is_none_or(is_worse) {
            let key = message.key().map(|key| format!(" with key '{}'", String::from_utf8_lossy(key)));
            let why = format!("a record of {bytes} bytes{} was refused: {}", key.unwrap_or_default(), words(error));
            *known = Some(Undelivered { why, bytes, is_purged });
        }
    }
}
