//! How one event flows: through filters and maps to transactions, and on to what these emit.

use crate::expression::{Scope, evaluate, output_fields};
use crate::limits::Sums;
use crate::transaction::{self, Outcome};
use crate::{Record, Reference};
use std::collections::BTreeMap;
use tidemill_model::Value;
use tidemill_plan::{Limits, Origin, ReasonId, StreamId};

/// An event on its root stream and on each stream derived from that which it reached.
struct Arrivals {
    root: StreamId,
    events: BTreeMap<StreamId, Record>,
}

/// An event outside any transaction.
struct EventScope<'a> {
    event: &'a Record,
    sums: Sums,
}

impl Scope for EventScope<'_> {
    fn field(&self, index: usize) -> &Value {
        &self.event[index]
    }

    fn sums(&self) -> &Sums {
        &self.sums
    }
}

impl Reference<'_> {
    /// Processes an event of a root stream and its whole cascade.
    pub(crate) fn process_root(&mut self, root: StreamId, event: Record) {
        let arrivals = self.emit(root, event);
        self.follow(arrivals);
    }

    /// Puts an event on its root stream and on the streams derived from it.
    fn emit(&mut self, root: StreamId, event: Record) -> Arrivals {
        let program = self.program;
        self.outputs[root].push(event.clone());
        let mut events = BTreeMap::from([(root, event)]);
        for (id, stream) in program.streams.iter_enumerated() {
            let (Origin::Filter { input, reasons, failed, .. } | Origin::Map { input, reasons, failed, .. }) =
                &stream.origin
            else {
                continue;
            };
            let Some(event) = events.get(input) else { continue };
            match derive(&stream.origin, event, program.limits) {
                Ok(Some(derived)) => {
                    self.outputs[id].push(derived.clone());
                    events.insert(id, derived);
                }
                Ok(None) => {}
                Err(reason) => {
                    let mut failure = event.clone();
                    failure.push(Value::Str(reasons[reason as usize].clone()));
                    self.outputs[*failed].push(failure);
                }
            }
        }
        Arrivals { root, events }
    }

    /// Runs the transactions that an event arrives at, then all that follows from each event that
    /// they emitted.
    fn follow(&mut self, arrivals: Arrivals) {
        let program = self.program;
        let mut emitted = Vec::new();
        for delivery in &program.streams[arrivals.root].deliveries {
            let stream = program.transactions[delivery.transaction].inputs[delivery.input];
            let Some(event) = arrivals.events.get(&stream) else { continue };
            let events =
                match transaction::run(program, delivery.transaction, &mut self.tables, event, self.traces.as_mut()) {
                    Outcome::Committed(events) => {
                        self.counts[delivery.transaction].committed += 1;
                        events
                    }
                    Outcome::Aborted(reason, event) => {
                        self.counts[delivery.transaction].aborted[reason as usize] += 1;
                        vec![(program.transactions[delivery.transaction].aborted, event)]
                    }
                };
            for (root, event) in events {
                emitted.push(self.emit(root, event));
            }
        }
        for arrivals in emitted {
            self.follow(arrivals);
        }
    }
}

/// What a filter or map makes of an event.
fn derive(origin: &Origin, event: &Record, limits: Limits) -> Result<Option<Record>, ReasonId> {
    let scope = EventScope { event, sums: Sums::new(limits) };
    match origin {
        Origin::Filter { predicate, .. } => {
            let holds = evaluate(predicate, &scope)? == Value::Bool(true);
            Ok(holds.then(|| event.clone()))
        }
        Origin::Map { fields, .. } => output_fields(fields, &scope).map(Some),
        _ => unreachable!("only filters and maps derive"),
    }
}
