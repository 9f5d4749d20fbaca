//! A topic whose partitions are read side by side.

use crate::options::{KIND, ReadTopic, Start};
use crate::partition::{Feed, Partition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{Clock, InputEnd, IoFailure, Next, Source, SourceConnection, SourceOptions, Spec, Splits, Unit};
use tidemill_model::Schema;

/// About how many rows all partitions hold in a batch each, and the least rows of a batch.
const ROWS_AHEAD_MAX: usize = 1 << 17;
const BATCH_ROWS_MIN: usize = 64;
/// The interval at which new partitions are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl SourceConnection for ReadTopic {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    /// Its events are logged by value, so no state has to open it.
    fn is_recorded(&self) -> bool {
        false
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        open(self, schema, options)
    }

    fn end(&self) -> InputEnd {
        self.end
    }

    fn unit(&self) -> Unit {
        Unit::Events
    }

    fn shown(&self) -> String {
        match self.only {
            Some(partition) => format!("kafka {}/{partition} at {}", self.topic, self.servers),
            None => format!("kafka {} at {}", self.topic, self.servers),
        }
    }
}

/// Opens a topic: all of its partitions as splits, or one of them.
fn open(of: &ReadTopic, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
    let cluster = of.cluster();
    let reader = cluster.reader()?;
    let there = cluster.partitions(&reader, &of.topic)?.ok_or_else(|| cluster.no_topic(&of.topic))?;
    let rows = (ROWS_AHEAD_MAX / there.len()).clamp(BATCH_ROWS_MIN, options.batch_rows.max(BATCH_ROWS_MIN));
    let feed = Arc::new(Feed::new(of, reader, options.batch_rows.min(rows)));
    let topic = Topic {
        of: of.clone(),
        schema: schema.clone(),
        feed: feed.clone(),
        joined: BTreeMap::new(),
        clock: options.clock.clone(),
        looked: None,
    };
    match of.only {
        None => {
            // A field that a record cannot have is found before anything is read.
            topic.partition(there[0], of.start)?;
            Ok(Box::new(topic))
        }
        Some(number) if there.contains(&number) => Ok(Box::new(topic.partition(number, of.start)?)),
        Some(number) => {
            Err(IoFailure::new(format!("topic '{}' has no partition {number}; it has {}", of.topic, there.len())))
        }
    }
}

/// A topic whose partitions are splits.
struct Topic {
    of: ReadTopic,
    schema: Schema,
    feed: Arc<Feed>,
    /// The places at which partitions begin that were found by this run, by name.
    joined: BTreeMap<String, Start>,
    clock: Arc<dyn Clock>,
    /// The time of the last look.
    looked: Option<Duration>,
}

impl Topic {
    fn partition(&self, number: i32, begin: Start) -> Result<Partition, IoFailure> {
        Partition::new(self.feed.clone(), number, begin, &self.of, &self.schema)
    }

    fn name(&self, partition: i32) -> String {
        format!("{}/{partition}", self.of.topic)
    }
}

impl Splits for Topic {
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure> {
        let now = self.clock.now();
        let is_early = self.looked.is_some_and(|looked| now < looked + LOOK_EVERY);
        if !known.is_empty() && is_early {
            return Ok(Vec::new());
        }
        let is_first = self.looked.replace(now).is_none();
        let there: Vec<String> = self.feed.partitions()?.into_iter().map(|number| self.name(number)).collect();
        if let Some(gone) = known.iter().find(|name| is_first && !there.contains(name)) {
            return Err(IoFailure::new(format!(
                "{gone} was read before and is not there any more: the topic was made anew, or is another one"
            )));
        }
        // A partition that is added later is new from its first record on.
        let begin = if known.is_empty() { self.of.start } else { Start::Earliest };
        let new: Vec<String> = there.into_iter().filter(|name| !known.contains(name)).collect();
        self.joined.extend(new.iter().map(|name| (name.clone(), begin)));
        Ok(new)
    }

    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        let number = name.rsplit('/').next().and_then(|number| number.parse().ok());
        let number = number.filter(|number| self.name(*number) == name);
        let number = number.ok_or_else(|| IoFailure::new(format!("{name} is no partition of '{}'", self.of.topic)))?;
        let begin = self.joined.get(name).copied().unwrap_or(self.of.start);
        Ok(Box::new(self.partition(number, begin)?))
    }

    fn follows(&self) -> bool {
        self.of.end == InputEnd::Follow
    }
}

impl Source for Topic {
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }

    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Err(IoFailure::new("a topic is read in splits"))
    }

    fn is_followed(&self) -> bool {
        self.of.end == InputEnd::Follow
    }

    fn is_last(&self) -> bool {
        self.of.end == InputEnd::Last
    }
}
