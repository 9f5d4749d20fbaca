//! Streams: the named ones, those that come with sources, filters, maps and transactions, and how
//! they are found again.

use super::batches::batches;
use super::fault::{Checked, Fault, check_identifier};
use super::flow::base;
use super::limits;
use super::parts::{Lowered, early};
use super::position::POSITION_TIME;
use super::records::Outputs;
use super::scope::{Scope, Site};
use super::transactions::with_reason;
use super::types::{check_schema, event_time};
use super::{changes, expire};
use crate::program::{self, KEYS_MAX_MAX, Node};
use crate::{
    Ahead, CallerAt, CallerFields, Expr, Operator, OperatorId, OperatorKind, Origin, OriginDef, OutputField, Owner,
    Plan, Record, Stream, StreamDef, StreamId, StreamPart, StreamRef, Transaction, TransactionPart, bad_schema,
};
use std::collections::HashMap;
use tidemill_model::civil::span_text;
use tidemill_model::{Field, Schema, SourceId, Type};
use typed_index_collections::TiVec;

/// The reason why a reference leads to no stream.
pub(super) enum Unresolved {
    /// The stream that it refers to was itself refused, and said so.
    Broken,
    /// The reference is wrong.
    Wrong(Fault),
}

impl From<Fault> for Unresolved {
    fn from(fault: Fault) -> Self {
        Unresolved::Wrong(fault)
    }
}

/// The streams found so far, and the operators that some of them are parts of.
pub(super) struct Streams<'a> {
    plan: &'a Plan,
    pub list: TiVec<StreamId, Stream>,
    pub operators: TiVec<OperatorId, Operator>,
    /// The ids by reference, for look-ups only; the order is never seen.
    ids: HashMap<StreamRef, StreamId>,
}

/// A new stream, apart from its number.
pub(super) struct NewStream {
    pub name: String,
    pub schema: Schema,
    pub event_time: Option<usize>,
    pub origin: Origin,
    /// None for a root.
    pub root: Option<StreamId>,
    /// The operator that it is a part of.
    pub owner: Option<Owner<StreamPart>>,
}

impl<'a> Streams<'a> {
    /// Makes an empty set of streams.
    pub fn new(plan: &'a Plan) -> Self {
        Streams { plan, list: TiVec::new(), operators: TiVec::new(), ids: HashMap::new() }
    }

    /// Returns the plan that they are of.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Returns the id of the stream that comes after the next `others` streams.
    pub fn id_after(&self, others: usize) -> StreamId {
        (self.list.len() + others).into()
    }

    /// Enters a stream.
    pub fn add(&mut self, reference: StreamRef, new: NewStream) -> StreamId {
        let id = self.list.next_key();
        let NewStream { name, schema, event_time, origin, root, owner } = new;
        let root = root.unwrap_or(id);
        self.list.push(Stream { name, schema, event_time, origin, root, deliveries: Vec::new(), owner });
        self.ids.insert(reference, id);
        id
    }

    /// Returns the number of the operator that is entered next, with its name.
    pub fn lower<'n>(&self, name: &'n str) -> Lowered<'n> {
        Lowered { id: self.operators.next_key(), name }
    }

    /// Makes a transaction and its outputs parts of an operator.
    pub fn own(&mut self, mut transaction: Transaction, of: Lowered<'_>, part: TransactionPart) -> Transaction {
        transaction.owner = of.owner(part);
        let [committed, aborted] = part.outputs();
        self.list[transaction.committed.stream].owner = of.owner(committed);
        self.list[transaction.aborted].owner = of.owner(aborted);
        transaction
    }

    /// Returns the owner of what a transaction emits under a name: changes of a table belong to these.
    pub fn emission(&self, name: &str) -> Option<Owner<StreamPart>> {
        let is_it = |of: &Operator| matches!(of.kind, OperatorKind::Changes(_)) && changes::name(&of.name) == name;
        self.operators.position(is_it).map(|operator| Owner { operator, part: StreamPart::Emission })
    }

    /// Forgets a stream that cannot be referred to.
    pub fn hide(&mut self, reference: &StreamRef) {
        self.ids.remove(reference);
    }

    /// Returns the stream that a reference means.
    pub fn resolve(&self, reference: &StreamRef) -> Result<StreamId, Unresolved> {
        use StreamRef::*;
        let of_table = match reference {
            Changes(table) => Some(Committed(changes::name(table))),
            Expired(table) => Some(Committed(expire::name(table))),
            _ => None,
        };
        if let Some(&id) = self.ids.get(of_table.as_ref().unwrap_or(reference)) {
            return Ok(id);
        }
        let (plan, ids) = (self.plan, &self.ids);
        if base(plan, reference).is_none() {
            return Err(Unresolved::Wrong(match reference {
                Named(name) | Late(name) | Bad(name) | Failed(name) => {
                    Fault::unknown("stream", name, plan.streams.iter().map(|s| s.name.as_str()))
                }
                Woken(table) => Fault::new(format!("no row of '{table}' is ever woken"))
                    .hint("declare a transaction with role.wake(at) before"),
                Changes(table) => Fault::new(format!("the changes of '{table}' are no stream"))
                    .hint("declare the table with changes=True, and before it is used a transaction that writes it"),
                Expired(table) => Fault::new(format!("the rows of '{table}' do not expire"))
                    .hint("declare the table with expire=, such as expire=\"15m\""),
                Committed(name) | Aborted(name) | Emitted { transaction: name, .. } => {
                    Fault::unknown("transaction", name, plan.transactions.iter().map(|t| t.name.as_str()))
                }
            }));
        }
        let wrong = |message: String| Err(Unresolved::Wrong(Fault::new(message)));
        if let Committed(name) | Aborted(name) = reference
            && let Some(window) = plan.transactions.iter().find(|of| early(&of.name) == *name)
        {
            return match ids.contains_key(&Committed(window.name.clone())) {
                true => wrong(format!("'{}' has no early results; give it windows with early=", window.name)),
                false => Err(Unresolved::Broken),
            };
        }
        match reference {
            Late(name) if ids.contains_key(&Named(name.clone())) => {
                wrong(format!("stream '{name}' is no source and has no late events"))
            }
            Aborted(name) if ids.contains_key(&Committed(name.clone())) => {
                wrong(format!("'{name}' gives the first events of a stream, and has no stream of aborts"))
            }
            Bad(name) if ids.contains_key(&Named(name.clone())) => {
                wrong(format!("stream '{name}' is no source and has no bad records"))
            }
            Failed(name) if ids.contains_key(&Named(name.clone())) => {
                wrong(format!("stream '{name}' is a source, where nothing is computed that could fail"))
            }
            Emitted { transaction, name } => match ids.get(&Committed(transaction.clone())) {
                Some(_) => Err(Unresolved::Wrong(Fault::unknown(
                    format_args!("emission of transaction '{transaction}' called"),
                    name,
                    self.emits(transaction),
                ))),
                None => Err(Unresolved::Broken),
            },
            _ => Err(Unresolved::Broken),
        }
    }

    fn emits<'s>(&'s self, transaction: &'s str) -> impl Iterator<Item = &'s str> {
        let prefix = format!("{transaction}.emitted.");
        self.list.iter().filter_map(move |s| s.name.strip_prefix(&prefix))
    }

    /// Returns the stream that something other than a sink takes its events from.
    pub fn input(&self, reference: &StreamRef) -> Result<StreamId, Unresolved> {
        let id = self.resolve(reference)?;
        match self.list[id].origin {
            Origin::Late(source) => {
                let name = &self.list[source].name;
                let fault = match self.list[source].is_anchored() {
                    true => {
                        Fault::new(format!("the events of '{name}' get the time of their position, so none is late"))
                    }
                    false => Fault::new(format!("the events of '{name}' bring no event time, so none is late")),
                };
                Err(Unresolved::Wrong(fault.hint(format!("take '{name}' itself"))))
            }
            Origin::Bad(_) | Origin::Failed(_) => Err(Unresolved::Wrong(
                Fault::new(format!("stream '{}' can only feed a sink", self.list[id].name))
                    .hint("these events have left the order of the others"),
            )),
            _ => Ok(id),
        }
    }

    /// Types and enters a named stream, with the streams that come with it.
    pub fn named(&mut self, index: usize, source: Option<SourceId>) -> Result<(), Unresolved> {
        let def = &self.plan.streams[index];
        check_identifier("stream", &def.name)?;
        match &def.origin {
            OriginDef::Source { .. } => self.source(def, source.expect("sources have numbers"))?,
            OriginDef::Every { .. } => unreachable!("ticks come with a table"),
            OriginDef::Batch { input, size } => {
                let input = self.derived_input(index, input)?;
                batches(&def.name, input, size, self)?;
            }
            OriginDef::Filter { input, predicate } => {
                let input = self.derived_input(index, input)?;
                self.filter(def, input, predicate)?;
            }
            OriginDef::Map { input, record } => {
                let input = self.derived_input(index, input)?;
                self.map(def, input, record)?;
            }
        }
        Ok(())
    }

    fn derived_input(&self, index: usize, reference: &StreamRef) -> Result<StreamId, Unresolved> {
        if let StreamRef::Named(name) = reference
            && self.plan.streams.iter().position(|s| s.name == *name).is_some_and(|other| other >= index)
        {
            return Err(Unresolved::Wrong(Fault::new(format!("its input '{name}' is not declared before it"))));
        }
        self.input(reference)
    }

    fn source(&mut self, def: &StreamDef, source: SourceId) -> Checked<()> {
        let OriginDef::Source { schema, event_time: time, lateness, anchored, remembers, keys_max, ahead, caller } =
            &def.origin
        else {
            unreachable!("a source")
        };
        let (lateness, anchored) = (*lateness, *anchored);
        check_schema(schema)?;
        let time = time.as_ref().map(|name| event_time(schema, name)).transpose()?;
        if lateness == i64::MIN {
            return Err(Fault::new(format!("its lateness is {lateness}")).hint("give a greater one"));
        }
        if lateness != 0 && time.is_none() {
            return Err(Fault::new("it has a lateness but no event time")
                .hint("declare the event-time field; without one no event is late"));
        }
        if anchored && (time.is_none() || lateness != 0) {
            return Err(Fault::new("its events are anchored, but it has a lateness, or no field for their time").hint(
                "declare the field of event time, and no lateness: events with anchored positions are never late",
            ));
        }
        if let Some(remembers) = *remembers {
            if remembers <= 0 {
                return Err(Fault::new("it keeps the answers of its calls for no time")
                    .hint("give a duration above zero, or take remember= away"));
            }
            if schema.fields.iter().any(|field| field.name == "idempotency_key") {
                return Err(Fault::new("it has a field 'idempotency_key', and its calls have keys of this name")
                    .hint("rename the field"));
            }
        }
        if let Some(most) = *keys_max {
            if remembers.is_none() {
                return Err(Fault::new("it has a number of keys, but keeps no answers").hint("give remember= too"));
            }
            if !(1..=KEYS_MAX_MAX).contains(&most) {
                return Err(
                    Fault::new(format!("it keeps {most} keys")).hint(format!("give a number from 1 to {KEYS_MAX_MAX}"))
                );
            }
        }
        check_ahead(*ahead, schema, time.filter(|_| !anchored))?;
        let caller = caller_at(caller, schema)?;
        if !caller.is_none() && time.is_some() && !anchored {
            return Err(Fault::new("it has a field for the caller, but its events bring a time, as no calls do")
                .hint("declare it with app.requests(...)"));
        }
        let id = self.list.next_key();
        let name = &def.name;
        let own_time = time.filter(|_| !anchored && self.takes_late(name));
        let late = self.id_after(if own_time.is_some() { 3 } else { 1 });
        let bad = self.id_after(if own_time.is_some() { 1 } else { 2 });
        let (remembers, keys_max, ahead) = (*remembers, *keys_max, *ahead);
        let origin = Origin::Source { source, lateness, anchored, remembers, keys_max, ahead, caller, late, bad };
        let main =
            NewStream { name: name.clone(), schema: schema.clone(), event_time: time, origin, root: None, owner: None };
        self.add(StreamRef::Named(name.clone()), main);
        if own_time.is_none() {
            let late = NewStream {
                name: format!("{name}.late"),
                schema: schema.clone(),
                event_time: time,
                origin: Origin::Late(id),
                root: Some(id),
                owner: None,
            };
            self.add(StreamRef::Late(name.clone()), late);
        }
        let bad = NewStream {
            name: format!("{name}.bad"),
            schema: bad_schema(),
            event_time: None,
            origin: Origin::Bad(id),
            root: Some(id),
            owner: None,
        };
        self.add(StreamRef::Bad(name.clone()), bad);
        if let Some(time) = own_time {
            self.late_root(id, name, schema, time);
        }
        Ok(())
    }

    /// Returns whether the late events of a source are an input.
    fn takes_late(&self, source: &str) -> bool {
        let is_late = |input: &StreamRef| matches!(input, StreamRef::Late(name) if name == source);
        let derives = |stream: &StreamDef| match &stream.origin {
            OriginDef::Filter { input, .. } | OriginDef::Map { input, .. } => is_late(input),
            OriginDef::Source { .. } | OriginDef::Every { .. } | OriginDef::Batch { .. } => false,
        };
        self.plan.streams.iter().any(derives) || self.plan.transactions.iter().any(|t| t.inputs.iter().any(is_late))
    }

    /// Enters the late events of a source as a root, and as the stream that users know, without the time of the position.
    /// That has no event time: the field of the source's holds another time than the position's.
    fn late_root(&mut self, source: StreamId, name: &str, schema: &Schema, time: usize) {
        let ty = schema.fields[time].scalar_type().expect("an event time is a scalar");
        let fields = schema.fields.iter().enumerate().map(|(field, of)| match of.scalar_type() {
            Some(ty) => OutputField::Value(program::Expr { ty, node: Node::Field(field) }),
            None => OutputField::List(field),
        });
        let mut timed = schema.clone();
        timed.fields.push(Field::scalar(POSITION_TIME, ty));
        let (own, root) = (format!("{name}.late"), format!("{name}.late.root"));
        let new = NewStream {
            name: root.clone(),
            event_time: Some(timed.fields.len() - 1),
            schema: timed,
            origin: Origin::LateRoot(source),
            root: None,
            owner: None,
        };
        let input = self.add(StreamRef::Named(root), new);
        let origin = Origin::Map { input, fields: fields.collect(), reasons: Vec::new(), failed: self.id_after(1) };
        let new =
            NewStream { name: own, schema: schema.clone(), event_time: None, origin, root: Some(input), owner: None };
        let late = self.add(StreamRef::Late(name.to_owned()), new);
        let failed = NewStream {
            name: format!("{name}.late.failed"),
            schema: with_reason(&self.list[input].schema, vec![]),
            event_time: None,
            origin: Origin::Failed(late),
            root: Some(input),
            owner: None,
        };
        self.add(StreamRef::Failed(format!("{name}.late")), failed);
    }

    fn filter(&mut self, def: &StreamDef, input: StreamId, predicate: &Expr) -> Checked<()> {
        let stream = &self.list[input];
        let mut scope = Scope::new(Site::Derived, &stream.schema);
        let mut predicate = scope.condition(predicate)?;
        limits::count_expression(&mut predicate, &mut scope.reasons);
        let reasons = scope.reasons.finish();
        let origin = Origin::Filter { input, predicate, reasons, failed: self.id_after(1) };
        let (schema, time) = (stream.schema.clone(), stream.event_time);
        self.derived(def, input, schema, time, origin);
        Ok(())
    }

    /// Types and enters a map.
    pub fn map(&mut self, def: &StreamDef, input: StreamId, record: &Record) -> Checked<()> {
        let stream = &self.list[input];
        let mut scope = Scope::new(Site::Derived, &stream.schema);
        let mut outputs = Outputs::default();
        outputs.record(&mut scope, None, record)?;
        outputs.settle()?;
        scope.restart();
        let mut fields = outputs.record(&mut scope, None, record)?;
        limits::count_fields(&mut fields, &mut scope.reasons);
        let reasons = scope.reasons.finish();
        let settled = outputs.finish().remove(0);
        let origin = Origin::Map { input, fields, reasons, failed: self.id_after(1) };
        self.derived(def, input, settled.schema, settled.event_time, origin);
        Ok(())
    }

    fn derived(&mut self, def: &StreamDef, input: StreamId, schema: Schema, time: Option<usize>, origin: Origin) {
        let name = &def.name;
        let root = Some(self.list[input].root);
        let failed_schema = with_reason(&self.list[input].schema, vec![]);
        let failed_time = self.list[input].event_time;
        let id = self.add(
            StreamRef::Named(name.clone()),
            NewStream { name: name.clone(), schema, event_time: time, origin, root, owner: None },
        );
        let failed = NewStream {
            name: format!("{name}.failed"),
            schema: failed_schema,
            event_time: failed_time,
            origin: Origin::Failed(id),
            root,
            owner: None,
        };
        self.add(StreamRef::Failed(name.clone()), failed);
    }
}

/// Finds the fields that say who makes a call.
fn caller_at(fields: &CallerFields, schema: &Schema) -> Checked<CallerAt> {
    let find = |name: &Option<String>| -> Checked<Option<usize>> {
        let Some(name) = name else { return Ok(None) };
        let Some(at) = schema.fields.iter().position(|field| field.name == *name) else {
            return Err(Fault::new(format!("it has no field '{name}' for the caller")).hint("declare the field"));
        };
        match schema.fields[at].scalar_type() {
            Some(scalar) if scalar.ty == Type::Str => Ok(Some(at)),
            _ => Err(Fault::new(format!("its field '{name}' says who calls, and is no text"))
                .hint("declare it as a str, or as str | None where calls of nobody known are taken")),
        }
    };
    let at = CallerAt { user: find(&fields.user)?, protocol: find(&fields.protocol)? };
    if at.user.is_some() && at.user == at.protocol {
        return Err(Fault::new("one field has both the name of the caller and the protocol").hint("declare two"));
    }
    Ok(at)
}

/// Checks that a stream whose events may only be this far ahead of the clock has an event time to compare with it.
fn check_ahead(ahead: Ahead, schema: &Schema, time: Option<usize>) -> Checked<()> {
    let Ahead::Most(most) = ahead else { return Ok(()) };
    let wrong = |what: &str| {
        Err(Fault::new(format!("its events may be {} ahead of the clock, {what}", span_text(most)))
            .hint("leave ahead out: only an event time that is a Time is compared with the clock"))
    };
    match time.and_then(|field| schema.fields[field].scalar_type()).map(|scalar| scalar.ty) {
        _ if most < 0 => {
            Err(Fault::new(format!("its bound ahead of the clock is {}", span_text(most))).hint("give one from 0"))
        }
        None => wrong("but they bring no event time"),
        Some(Type::Time) => Ok(()),
        Some(_) => wrong("but their event time is an int"),
    }
}
