//! Joins of streams, as tables and transactions.
//!
//! A join `sellers` of two streams becomes
//!
//! | what | of |
//! |---|---|
//! | streams `sellers.left`, `sellers.right` | the inputs as events of one schema: the side, the time of the position, the key, and of each side the fields that the function names |
//! | table `sellers.rows` | a row per key: of each side the records that later events of the other may meet |
//! | table `sellers.waits` | a row per key with events that have no partner and go out alone if they find none |
//! | table `sellers.order` | one row, which numbers these events: where they have no places ([`body::Numbering`]) |
//! | stream `sellers.unmatched` | the rows of `sellers.waits` whose first event has waited for long enough ([`crate::Due`]) |
//! | transaction `sellers.add` | `sellers.left`, `sellers.right`, `sellers.unmatched`: emits the pairs and what is unmatched, and keeps the event |
//! | transaction `sellers` | what that emits: the user's function |
//! | stream `sellers.freed` | the rows of `sellers.rows` in which nothing can find a partner any more |
//! | transaction `sellers.free` | `sellers.freed`: deletes the row |
//!
//! The tables of events that wait are there only if such go out, and `sellers.rows` keeps no left events if no pair goes
//! out. So whatever holds for tables (undo, log, checkpoints, eviction, audits) holds for joins.
//!
//! **Who waits.** An event that comes meets all that is kept of the other side at once. So the events of a key that have no
//! partner are those of one side that came after the last of the other, and a single event of that other side ends the wait
//! of all of them. Events without a key wait, and meet nobody.
//!
//! **Costs.** An event searches its key's row only. It moves what is kept of its own side there when old records leave: a
//! copy of memory. The row of a key is looked at once more when it is freed, within two times the bound after its last event.

mod body;
mod reach;
mod sides;

use super::carry;
use super::definition::{self, OfJoin};
use super::fault::{Checked, Fault};
use super::over::Clock;
use super::parts::Lowered;
use super::position::{self, PositionTime};
use super::streams::{NewStream, Streams, Unresolved};
use super::tables::enter_hidden;
use super::writing::{column, stmt};
use crate::build::event;
use crate::program::Stmt;
use crate::{
    AccessDef, Bound, ColumnDef, Due, DueField, JoinDef, JoinHow, Operator, OperatorKind, Origin, OriginDef, Reach,
    Record, RoleDef, StmtNode, StreamDef, StreamId, StreamPart, StreamRef, Table, TableId, TablePart, Transaction,
    TransactionDef, TransactionId, TransactionPart,
};
use body::{Body, Numbering};
use reach::{AT, LEFT, ORDER, PAIRS, RIGHT, ROWS, WAITING, WAITS};
use sides::Sides;
use tidemill_model::{Field, Schema, Type, Value};
use typed_index_collections::{TiSlice, TiVec};

/// Types a join, and enters its tables and streams.
pub(super) fn join(
    def: &TransactionDef,
    of: &JoinDef,
    first: TransactionId,
    streams: &mut Streams<'_>,
    tables: &mut TiVec<TableId, Table>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
) -> Result<Vec<Transaction>, Unresolved> {
    super::check_operator(def, "join", streams)?;
    let [left, right] = &def.inputs[..] else {
        return Err(Fault::new(format!("it is of {} streams", def.inputs.len())).hint("a join is of two").into());
    };
    let (lowered, mut inputs, mut carried) = (streams.lower(&def.name), Vec::new(), Vec::new());
    for input in [left, right] {
        let input = streams.input(input)?;
        inputs.push(input);
        position::check_declared(&streams.list, &streams.operators, transactions, input, first, "joins")?;
        let name = streams.list[input].name.clone();
        carried.push(carry::carry(streams, transactions, input, lowered).ok_or_else(|| {
            Fault::new(format!("the events of '{name}' do not hold the time of their position"))
                .hint("a join is over event time: declare the event time of the source")
        })?);
    }
    let clocks: Vec<Clock> = carried.iter().map(|(s, time)| Clock::of(Some(*time), &streams.list[*s].schema)).collect();
    let time = clocks[0].ty.expect("a position has a time");
    let reach = Reach::of(&of.bound, time)?;
    let schemas = [carried[0].0, carried[1].0].map(|stream| streams.list[stream].schema.clone());
    let sides = Sides::of(def, of, &schemas, time)?;
    let definition = definition::join(OfJoin {
        plan: streams.plan(),
        name: &def.name,
        inputs: [left, right],
        on: &of.on,
        key: sides.key_fields(),
        how: of.how,
        reach: (reach.text(time), format!("{} {time:?}", reach.due_column())),
        fields: [&sides.left.fields, &sides.right.fields],
    });
    let kind = OperatorKind::Join { how: of.how, reach, key: sides.key_names(), fields: sides.kept() };
    let (name, definition) = (def.name.clone(), Some(definition));
    streams.operators.push(Operator { name, kind, inputs, time: Some(time), definition });
    let [left, right] = [0, 1].map(|side| streams.list[carried[side].0].root);
    let has_places = |root: StreamId| streams.list[root].origin.has_places();
    let numbering = match [sides.left.waits, sides.right.waits] {
        [false, false] => Numbering::None,
        [true, false] if has_places(left) => Numbering::Places,
        [true, true] if left == right && has_places(left) => Numbering::PlacesOfSides,
        [true, true] if has_places(left) && has_places(right) => Numbering::Places,
        _ => Numbering::Counted,
    };
    Lowering { def, of, sides, reach, time, numbering, first, lowered }.enter(&carried, &clocks, streams, tables)
}

struct Lowering<'a> {
    def: &'a TransactionDef,
    of: &'a JoinDef,
    sides: Sides,
    reach: Reach,
    time: Type,
    numbering: Numbering,
    first: TransactionId,
    lowered: Lowered<'a>,
}

impl Lowering<'_> {
    fn named(&self, part: &str) -> String {
        format!("{}.{part}", self.def.name)
    }

    fn enter(
        self,
        inputs: &[(StreamId, PositionTime)],
        clocks: &[Clock],
        streams: &mut Streams<'_>,
        tables: &mut TiVec<TableId, Table>,
    ) -> Result<Vec<Transaction>, Unresolved> {
        let mut given = Vec::new();
        for (side, name, part) in [(LEFT, "left", StreamPart::Left), (RIGHT, "right", StreamPart::Right)] {
            let record = self.sides.arrival(self.of, side, clocks[side as usize].now());
            given.push(self.map((name, part), inputs[side as usize].0, record, streams)?);
        }
        let rows = self.enter_rows(tables)?;
        self.due(("freed", StreamPart::Freed), rows, self.reach.grid(), streams);
        if self.sides.somebody_waits(self.of.how) {
            let waits = self.enter_waits(tables)?;
            let due = self.due(("unmatched", StreamPart::Unmatched), waits, self.reach.bound(), streams);
            let one = if self.time == Type::Int { Value::Int(-1) } else { Value::Duration(-1) };
            let record = self.sides.nobody(event("end") + crate::Expr::from(one));
            given.push(self.map(("waited", StreamPart::Waited), due, record, streams)?);
        }
        let at = streams.list[given[0]].schema.index_of(AT).expect("it has the time");
        let time = Some(PositionTime { field: at, shift: self.reach.shift() });
        let add = self.add();
        let mut add = super::transaction_on(&add, given, self.first, streams, tables, time)?;
        uncount(&mut add);
        self.name_pairs(&mut add, streams);
        let mut on = |def: &TransactionDef, at: usize| {
            super::transaction(def, (usize::from(self.first) + at).into(), streams, tables, None)
        };
        let pairs = StreamRef::Emitted { transaction: self.named("add"), name: PAIRS.into() };
        let function = TransactionDef { inputs: vec![pairs], join: None, ..self.def.clone() };
        let function = on(&function, 1)?;
        let free = on(&self.free(), 2)?;
        streams.list[function.committed.stream].name = self.named("joined");
        streams.list[function.aborted].name = self.named("failed");
        Ok(vec![
            streams.own(add, self.lowered, TransactionPart::Add),
            streams.own(function, self.lowered, TransactionPart::Function),
            streams.own(free, self.lowered, TransactionPart::Free),
        ])
    }

    /// Returns a map to the events that the join's transaction takes.
    fn map(
        &self,
        (name, part): (&str, StreamPart),
        input: StreamId,
        record: Record,
        streams: &mut Streams<'_>,
    ) -> Result<StreamId, Unresolved> {
        let id = streams.id_after(0);
        let origin = OriginDef::Map { input: StreamRef::Named(String::new()), record: record.clone() };
        streams.map(&StreamDef { name: self.named(name), origin }, input, &record)?;
        // The events, and those on which the map fails.
        streams.list.iter_mut().skip(id.into()).for_each(|stream| stream.owner = self.lowered.owner(part));
        Ok(id)
    }

    fn enter_rows(&self, tables: &mut TiVec<TableId, Table>) -> Checked<TableId> {
        let mut columns = self.due_columns();
        if self.of.how != JoinHow::Anti {
            columns.push(self.reach.records(&self.sides.left.column, self.time));
        }
        columns.push(self.reach.records(&self.sides.right.column, self.time));
        enter_hidden(columns, self.lowered, TablePart::Rows, tables)
    }

    fn enter_waits(&self, tables: &mut TiVec<TableId, Table>) -> Checked<TableId> {
        let mut columns = self.due_columns();
        columns.push(column("first", Type::Int, false, Some(Value::Int(0))));
        columns.push(self.reach.records(WAITING, self.time));
        let table = enter_hidden(columns, self.lowered, TablePart::Waits, tables)?;
        if self.numbering == Numbering::Counted {
            let columns = [column("one", Type::Int, true, None), column("n", Type::Int, false, Some(Value::Int(0)))];
            enter_hidden(columns.to_vec(), self.lowered, TablePart::Order, tables)?;
        }
        Ok(table)
    }

    /// Returns the key, and when a row is due.
    fn due_columns(&self) -> Vec<ColumnDef> {
        let mut columns: Vec<_> =
            self.sides.key_fields().into_iter().map(|(name, ty)| column(&name, ty, true, None)).collect();
        columns.push(column(&self.reach.due_column(), Type::Int, false, Some(Value::Int(0))));
        columns
    }

    /// Returns a stream of the rows of a table that are due: the key, and the boundary.
    fn due(
        &self,
        (name, part): (&str, StreamPart),
        table: TableId,
        bound: Bound,
        streams: &mut Streams<'_>,
    ) -> StreamId {
        let keys = self.sides.key_fields();
        let count = keys.len();
        // Waiting events are due in their order; freed rows show nothing, so that any order will do.
        let first = if part == StreamPart::Freed { count } else { count + 1 };
        let mut fields: Vec<_> = (0..count).map(|column| DueField::Part { column, none: None }).collect();
        fields.push(DueField::End);
        let mut schema = Schema { fields: keys.into_iter().map(|(name, ty)| Field::scalar(name, ty.into())).collect() };
        schema.fields.push(Field::scalar("end", self.time.into()));
        let due = Due { table, due: count, first, fields, bound, time: self.time };
        let (name, origin, owner) = (self.named(name), Origin::Due(due), self.lowered.owner(part));
        let new = NewStream { name: name.clone(), schema, event_time: Some(count), origin, root: None, owner };
        streams.add(StreamRef::Named(name), new)
    }

    /// Returns the role of the row of an event's key.
    fn role(&self, name: &str, table: TablePart, access: AccessDef) -> RoleDef {
        let key = self.sides.key_fields().iter().map(|(name, _)| event(name)).collect();
        RoleDef::row(name, table.named(&self.def.name), key, access)
    }

    fn add(&self) -> TransactionDef {
        let mut roles = vec![self.role(ROWS, TablePart::Rows, AccessDef::Create)];
        if self.sides.somebody_waits(self.of.how) {
            roles.push(self.role(WAITS, TablePart::Waits, AccessDef::Create));
        }
        if self.numbering == Numbering::Counted {
            roles.push(RoleDef::row(ORDER, TablePart::Order.named(&self.def.name), vec![0.into()], AccessDef::Create));
        }
        let Lowering { sides, reach, time, numbering, .. } = self;
        let body = Body { sides, how: self.of.how, reach: *reach, time: *time, numbering: *numbering }.statements();
        // The inputs are given beside it.
        TransactionDef {
            name: self.named("add"),
            inputs: Vec::new(),
            over: None,
            join: None,
            nested: false,
            derives: false,
            roles,
            body,
        }
    }

    fn free(&self) -> TransactionDef {
        let freed = StreamRef::Named(self.named("freed"));
        let roles = vec![self.role(ROWS, TablePart::Rows, AccessDef::Row)];
        let body = vec![stmt(StmtNode::Delete { role: ROWS.into() })];
        TransactionDef {
            name: self.named("free"),
            inputs: vec![freed],
            over: None,
            join: None,
            nested: false,
            derives: false,
            roles,
            body,
        }
    }

    /// Gives the stream of pairs, and its fields, names that those of users cannot have.
    fn name_pairs(&self, add: &mut Transaction, streams: &mut Streams<'_>) {
        let [pairs] = &mut add.emits[..] else { unreachable!("it emits pairs") };
        pairs.name = self.named(PAIRS);
        let stream = &mut streams.list[pairs.stream];
        stream.name = self.named(PAIRS);
        stream.owner = self.lowered.owner(StreamPart::Pairs);
        let names = self.sides.pair_names();
        assert_eq!(stream.schema.fields.len(), names.len(), "every field of a pair has a name");
        stream.schema.fields.iter_mut().zip(names).for_each(|(field, name)| field.name = name);
    }
}

/// Takes the counts out of what runs when events have waited for long enough: it must not abort, and does no more than
/// those events did when they came.
fn uncount(add: &mut Transaction) {
    let Some(Stmt::If { then, .. }) = add.body.first_mut() else { return };
    super::limits::uncount(then);
}
