//! The flow of one event: through filters and maps to transactions, and on to what these emit.

use crate::expression::{Scope, evaluate, output_fields};
use crate::limits::Sums;
use crate::transaction::{self, Outcome};
use crate::{Record, Reference};
use std::collections::BTreeMap;
use tidemill_model::Value;
use tidemill_plan::{Limits, Origin, Program, ReasonId, StreamId, TransactionId};

/// An event on its root stream and on each stream derived from that which it reached.
struct Arrivals {
    root: StreamId,
    events: BTreeMap<StreamId, Record>,
}

impl Arrivals {
    /// Returns the transactions that the event arrives at, in order, each with the event as it is there.
    fn at<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = (TransactionId, &'a Record)> {
        program.streams[self.root].deliveries.iter().filter_map(|delivery| {
            let stream = program.transactions[delivery.transaction].inputs[delivery.input];
            Some((delivery.transaction, self.events.get(&stream)?))
        })
    }
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
        self.place = self.next_place(root);
        let arrivals = self.emit(root, event);
        self.follow(&arrivals);
    }

    /// Returns the place of the next event of a root that has places: its number among the events of all sources.
    fn next_place(&mut self, root: StreamId) -> Option<i64> {
        let (Origin::Source { .. } | Origin::LateRoot(_)) = self.program.streams[root].origin else { return None };
        self.passed += 1;
        Some(self.passed as i64)
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
    /// they emitted. Nested transactions have run already.
    fn follow(&mut self, arrivals: &Arrivals) {
        let program = self.program;
        let mut emitted = Vec::new();
        for (id, event) in arrivals.at(program).filter(|(id, _)| !program.transactions[*id].is_nested()) {
            if program.transactions[id].is_root() {
                emitted.extend(self.nest(id, event));
            } else {
                emitted.extend(self.run_one(id, event).0);
            }
        }
        for arrivals in emitted {
            self.follow(&arrivals);
        }
    }

    /// Runs one transaction; gives what is to be followed, and why it aborted, if it did.
    fn run_one(&mut self, id: TransactionId, event: &Record) -> (Vec<Arrivals>, Option<ReasonId>) {
        let program = self.program;
        let outcome = transaction::run(program, id, &mut self.tables, (event, self.place), self.traces.as_mut());
        let (events, reason) = match outcome {
            Outcome::Committed(events) => {
                self.counts[id].committed += 1;
                (events, None)
            }
            Outcome::Aborted(reason, event) => {
                self.counts[id].aborted[reason as usize] += 1;
                (vec![(program.transactions[id].aborted, event)], Some(reason))
            }
        };
        (events.into_iter().map(|(root, event)| self.emit(root, event)).collect(), reason)
    }

    /// Runs a root with all that is nested in it, or, where one of these aborts, nothing but an abort of the root. Gives
    /// what is to be followed when that is over.
    fn nest(&mut self, root: TransactionId, event: &Record) -> Vec<Arrivals> {
        let program = self.program;
        let before = (self.tables.clone(), self.outputs.iter().map(Vec::len).collect::<Vec<_>>(), self.counts.clone());
        let trace = self.traces.as_ref().map(Vec::len);
        let (emitted, reason) = self.run_one(root, event);
        if reason.is_some() {
            return emitted;
        }
        let mut given = Vec::new();
        let Err((nested, reason)) = self.follow_nested(emitted, &mut given) else { return given };
        let (tables, lengths, counts) = before;
        (self.tables, self.counts) = (tables, counts);
        for (output, length) in self.outputs.iter_mut().zip(lengths) {
            output.truncate(length);
        }
        let reason = program.transactions[root].reason_of(nested, reason);
        self.counts[root].aborted[reason as usize] += 1;
        if let (Some(traces), Some(at)) = (&mut self.traces, trace) {
            traces[at].aborted = Some(reason);
            let committed = traces[at..].iter_mut().filter(|trace| trace.aborted.is_none());
            committed.for_each(|trace| trace.undone_with = Some(root));
        }
        let event = transaction::refuse(program, root, &mut self.tables, event, reason);
        vec![self.emit(program.transactions[root].aborted, event)]
    }

    /// Follows events of a nest, each with all that follows from it before the next, as far as transactions of the nest
    /// go; they are in `given` in that order.
    fn follow_nested(
        &mut self,
        events: Vec<Arrivals>,
        given: &mut Vec<Arrivals>,
    ) -> Result<(), (TransactionId, ReasonId)> {
        let program = self.program;
        for arrivals in events {
            let mut emitted = Vec::new();
            for (id, event) in arrivals.at(program).filter(|(id, _)| program.transactions[*id].is_nested()) {
                let (events, reason) = self.run_one(id, event);
                if let Some(reason) = reason {
                    return Err((id, reason));
                }
                emitted.extend(events);
            }
            given.push(arrivals);
            self.follow_nested(emitted, given)?;
        }
        Ok(())
    }
}

/// Returns the event that a filter or map makes of an event; none if the filter leaves it out.
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
