//! A record of each epoch, for analysis of the scheduling: sizes, policy and reason, times.
//!
//! Records go to a [`Sink`] in batches, like events; at most one batch is in memory.

use tidemill_io::{IoFailure, Sink};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::Groups;
use tidemill_schedule::Breakdown;
use tidemill_stages::access::grouping::Scheduled;
use tidemill_stages::environment::Environment;
use tidemill_stages::epoch::Epoch;
use tidemill_txn::Survey;

/// The number of records in a batch.
const BATCH: usize = 1024;

/// Returns the columns of a record. Times are nanoseconds.
///
/// | | |
/// |---|---|
/// | `epoch`, `finished_ns` | its number, and when the record was made, on the run's clock |
/// | `arrived_ns`, `opened_ns` | when its oldest event arrived, and when the gate had room for it, on the same clock |
/// | `events`, `transactions`, `operations`, `aborted`, `redone` | counts; an operation is an access to a row |
/// | `policy`, `reason` | how access was scheduled, and why; if groups were scheduled separately, for each group, with its name |
/// | `workers` | how many were chosen to take part in access, at most; if groups were scheduled separately, the largest number |
/// | `accessor`, `handed_over` | the worker that accessed it, alone or with others, and why another one did than before; none if it is the same |
/// | `expected_ns`, `measured_ns` | wall time of access as the model expected it (the sum over groups), and as measured, without the sampling prefix; none if nothing was expected |
/// | `prepare_ns`, `access_ns`, `finish_ns` | time in its stages; access as wall time |
/// | `listed_ns` | the part of prepare that listed its accesses for the method that it then ran under; 0 if access listed them itself |
/// | `decide_ns` | the part of access that surveys the epoch and chooses its policy |
/// | `idle_ns` | idle time of the workers since the previous epoch |
/// | `useful_ns` … `other_ns` | time of workers in access, by kind ([`Breakdown`]); `construct_ns` with `listed_ns` |
/// | `temporal_edges`, `parametric_edges`, `logical_edges`, `longest_chain`, `is_cyclic`, `critical_path` | per transaction, from the most recent survey ([`Survey`]); the longest chain as a share of the operations, the critical path as a share of the work, none if only edges were counted; none if there was no survey |
pub fn epoch_record_schema() -> Schema {
    let required = |name: &'static str, ty| (name, ColumnType::required(ty));
    let optional = |name: &'static str, ty| (name, ColumnType::optional(ty));
    let int = |name: &'static str| required(name, Type::Int);
    let float = |name: &'static str| optional(name, Type::Float);
    Schema::scalars([
        int("epoch"),
        int("finished_ns"),
        int("arrived_ns"),
        int("opened_ns"),
        int("events"),
        int("transactions"),
        int("operations"),
        int("aborted"),
        int("redone"),
        required("policy", Type::Str),
        required("reason", Type::Str),
        int("workers"),
        int("accessor"),
        optional("handed_over", Type::Str),
        float("expected_ns"),
        int("measured_ns"),
        int("prepare_ns"),
        int("access_ns"),
        int("finish_ns"),
        int("listed_ns"),
        int("decide_ns"),
        int("idle_ns"),
        int("useful_ns"),
        int("sync_ns"),
        int("lock_ns"),
        int("construct_ns"),
        int("explore_ns"),
        int("abort_ns"),
        int("other_ns"),
        float("temporal_edges"),
        float("parametric_edges"),
        float("logical_edges"),
        float("longest_chain"),
        optional("is_cyclic", Type::Bool),
        float("critical_path"),
    ])
}

/// Returns a finished epoch as a row.
fn record(epoch: &Epoch, groups: &Groups, now: u64) -> Vec<Value> {
    // A single group, or all groups together, is shown without a name.
    let by_group = |text: &dyn Fn(&Scheduled) -> String| {
        let named = |s: &Scheduled| match s.group {
            Some(group) if groups.names.len() > 1 => format!("{} ({})", text(s), groups.names[group]),
            _ => text(s),
        };
        Value::Str(epoch.accessed.scheduled.iter().map(named).collect::<Vec<_>>().join("; "))
    };
    let int = |number: u64| Value::Int(number as i64);
    let float = |number: Option<f64>| number.map_or(Value::Null, Value::Float);
    let Breakdown { useful, sync, lock, construct, explore, abort, other } = epoch.accessed.breakdown;
    let survey = epoch.accessed.survey.as_ref();
    let each = |count: fn(&Survey) -> u32| {
        float(survey.map(|survey| f64::from(count(survey)) / f64::from(survey.transactions.max(1))))
    };
    let in_place = survey.map(|survey| survey.paths(tidemill_txn::Cut::InPlace));
    let longest = |s: &Survey| f64::from(s.chains.longest) / f64::from(s.chains.operations.max(1));
    vec![
        int(epoch.number),
        int(now),
        int(epoch.input.arrivals.iter().map(|(arrived, _)| *arrived).min().unwrap_or(epoch.input.opened)),
        int(epoch.input.opened),
        int(epoch.input.events as u64),
        int(epoch.transactions() as u64),
        int(epoch.operations() as u64),
        int(epoch.aborted()),
        int(epoch.accessed.scheduled.iter().map(|s| u64::from(s.redone)).sum()),
        by_group(&|s| s.choice.method.to_string()),
        by_group(&|s| s.choice.reason.to_string()),
        int(epoch.accessed.scheduled.iter().map(|s| u64::from(s.choice.workers)).max().unwrap_or(1)),
        int(epoch.accessed.accessor as u64),
        epoch.accessed.handed_over.map_or(Value::Null, |reason| Value::Str(reason.to_string())),
        float(epoch.accessed.scheduled.iter().map(|s| s.choice.expected_ns).sum()),
        int(epoch.accessed.access_after_sampling),
        int(epoch.times.prepare),
        int(epoch.times.access),
        int(epoch.times.finish),
        int(epoch.accessed.listed),
        int(epoch.times.decide),
        int(epoch.finished.idle),
        int(useful),
        int(sync),
        int(lock),
        int(construct),
        int(explore),
        int(abort),
        int(other),
        each(|survey| survey.edges.temporal),
        each(|survey| survey.edges.parametric),
        each(|survey| survey.edges.logical),
        float(survey.map(longest)),
        survey.map_or(Value::Null, |survey| Value::Bool(survey.edges.is_cyclic)),
        float(in_place.filter(|paths| paths.units > 0).map(|paths| paths.critical)),
    ]
}

/// Collects records and passes them to the sink.
pub struct Records {
    sink: Box<dyn Sink>,
    schema: Schema,
    rows: Vec<Vec<Value>>,
}

impl Records {
    /// Makes records for a sink that takes events of [`epoch_record_schema`].
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Records { sink, schema: epoch_record_schema(), rows: Vec::new() }
    }

    /// Adds a finished epoch.
    pub fn add(&mut self, epoch: &Epoch, groups: &Groups, environment: &dyn Environment) -> Result<(), IoFailure> {
        self.rows.push(record(epoch, groups, environment.now()));
        if self.rows.len() == BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        let batch = batch_of(&self.schema, &self.rows);
        self.rows.clear();
        self.sink.write(&batch)
    }

    /// Writes the remaining records and finishes the sink.
    pub fn finish(mut self) -> Result<(), IoFailure> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        self.sink.finish()
    }
}
