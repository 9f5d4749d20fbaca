//! Sources that can be read again, in each of the three ways.

use arrow_array::RecordBatch;
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{IoFailure, Next, Resumed, Source, SourceBatch};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Value};
use tidemill_runtime::Control;

/// The place from which a source continues in another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It goes on from any token that it returned: its records are not logged.
    Replays,
    /// It goes on from where the last run left it: its records are logged.
    Resumes,
    /// It begins from its start in each run: its records are logged.
    Restarts,
}

impl Again {
    /// Returns the way of the source with a number.
    pub fn of(number: usize) -> Again {
        [Again::Replays, Again::Resumes, Again::Restarts][number % 3]
    }
}

/// Records in memory, cut into batches.
pub struct Records {
    batch: RecordBatch,
    next: usize,
    size: usize,
    again: Again,
    /// Asks the run to stop after this number of records.
    stop: Option<(usize, Arc<Control>)>,
}

impl Records {
    pub fn new(schema: &Schema, records: &[Vec<Value>], size: usize, again: Again) -> Records {
        Records { batch: batch_of(schema, records), next: 0, size, again, stop: None }
    }

    pub fn stop_at(self, records: usize, control: Arc<Control>) -> Records {
        Records { stop: Some((records, control)), ..self }
    }
}

impl Source for Records {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let length = self.size.min(self.batch.num_rows() - self.next);
        if length == 0 {
            return Ok(Next::End);
        }
        let events = self.batch.slice(self.next, length);
        self.next += length;
        if let Some((_, control)) = self.stop.as_ref().filter(|(records, _)| self.next >= *records) {
            control.stop();
        }
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn token(&self) -> Option<String> {
        (self.again != Again::Restarts).then(|| self.next.to_string())
    }

    fn replays(&self) -> bool {
        self.again == Again::Replays
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        match (self.again, token) {
            (Again::Restarts, _) | (_, None) => Ok(Resumed::Anew),
            (_, Some(token)) => {
                self.next = token.parse().map_err(|_| IoFailure::new(format!("{token} is not a position in it")))?;
                Ok(Resumed::Behind)
            }
        }
    }
}
