//! The marks of outputs: the last epoch that each has, in a compacted topic.

use crate::client::{CALL_MAX, Cluster};
use rdkafka::Message;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tidemill_io::IoFailure;

/// The topic of the marks of all outputs. It is made by the first sink that is opened, with one partition.
pub const PROGRESS_TOPIC: &str = "tidemill-progress";

/// The wait for the next mark.
const WAIT: Duration = Duration::from_millis(100);

/// The mark of an output, as JSON; its key is the name of the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The last epoch that the output has.
    pub epoch: u64,
    /// The topic of the output.
    pub topic: String,
}

/// Returns the last mark of an output; none if it has none.
pub fn last_mark(cluster: &Cluster, output: &str) -> Result<Option<Mark>, IoFailure> {
    let failed = |error: &KafkaError| cluster.failure(&format!("topic '{PROGRESS_TOPIC}' cannot be read"), error);
    let reader = cluster.reader()?;
    match cluster.partitions(&reader, PROGRESS_TOPIC)?.as_deref() {
        None => {
            cluster.make_compacted(PROGRESS_TOPIC)?;
            return Ok(None);
        }
        Some([_]) => {}
        Some(several) => {
            let message = format!("topic '{PROGRESS_TOPIC}' has {} partitions, and marks are in one", several.len());
            return Err(IoFailure::new(message));
        }
    }
    let (low, high) = reader.fetch_watermarks(PROGRESS_TOPIC, 0, CALL_MAX).map_err(|error| failed(&error))?;
    if low >= high {
        return Ok(None);
    }
    let mut list = TopicPartitionList::new();
    let begun = list.add_partition_offset(PROGRESS_TOPIC, 0, Offset::Offset(low)).and_then(|()| reader.assign(&list));
    begun.map_err(|error| failed(&error))?;
    let (mut last, begun) = (None, Instant::now());
    loop {
        match reader.poll(WAIT) {
            Some(Ok(record)) if record.key() == Some(output.as_bytes()) => {
                last = Some(mark_of(output, record.payload())?)
            }
            Some(Ok(_)) | None => {}
            // Behind the last mark there are transactions that are over, and marks of other outputs.
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(last),
            Some(Err(error)) => tracing::debug!(target: "kafka", "{}", failed(&error)),
        }
        if begun.elapsed() > CALL_MAX {
            let seconds = CALL_MAX.as_secs();
            return Err(IoFailure::new(format!(
                "topic '{PROGRESS_TOPIC}' at {} could not be read to its end in {seconds} s",
                cluster.servers
            )));
        }
    }
}

fn mark_of(output: &str, value: Option<&[u8]>) -> Result<Mark, IoFailure> {
    let wrong = |why: String| IoFailure::new(format!("topic '{PROGRESS_TOPIC}': the mark of '{output}' is {why}"));
    let value = value.ok_or_else(|| wrong("gone".into()))?;
    serde_json::from_slice(value).map_err(|error| wrong(format!("not understood: {error}")))
}
