//! The transaction of a join: its steps for an event, and the time for which events wait.

use super::super::over::Clock;
use super::super::writing::{add, assign, set, stmt, when};
use super::reach::{AT, LEFT, ORDER, PAIRS, ROWS, SIDE, UNMATCHED, WAITING, WAITS};
use super::sides::{Side, Sides};
use crate::build::{cell, event, exists, local};
use crate::{Expr, ExprNode, JoinHow, Reach, Stmt, StmtNode};
use tidemill_model::{ColumnType, Type, Value};

/// The local that says where a record stands.
const PLACE: &str = "place";
/// The local of the number of an event that waits.
const NUMBER: &str = "number";
/// Values before those of the fields in the record of an event that waits: its number, when it has waited for long enough,
/// and its side.
const BEFORE: usize = 3;
/// A number of rounds that is more than there can be records.
const ROUNDS: i64 = 1 << 62;

/// The body of the transaction that joins.
pub(super) struct Body<'a> {
    pub sides: &'a Sides,
    pub how: JoinHow,
    pub reach: Reach,
    pub time: Type,
    pub numbering: Numbering,
}

/// The numbers by which the keys whose events have waited for long enough are in the order of their first events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    /// Nothing waits.
    None,
    /// The places of these events ([`ExprNode::Place`]): an event is on one side at most.
    Places,
    /// Twice the places of these events, and one more on the right: both sides are of the same events.
    PlacesOfSides,
    /// Numbers by the row that counts: for what transactions and windows give.
    Counted,
}

impl Body<'_> {
    /// Returns all statements: first what runs when events have waited for long enough, where there are such.
    pub fn statements(&self) -> Vec<Stmt> {
        let Sides { left, right, .. } = self.sides;
        let arrives = branch(is_side(LEFT), self.arrives(left, right), self.arrives(right, left));
        if self.how == JoinHow::Inner {
            return vec![arrives];
        }
        vec![branch(is_side(UNMATCHED), self.expire(), vec![arrives])]
    }

    fn clock(&self) -> Clock {
        Clock { ty: Some(self.time), field: AT.into(), shift: 0 }
    }

    /// Returns the time at which an event has waited for long enough.
    fn expiry(&self) -> Expr {
        match self.reach {
            Reach::Within(length) => self.clock().units() + length,
            Reach::Over { length, origin } => self.clock().boundary(length, origin),
        }
    }

    /// Returns the time at which the row of an event can be freed: not before any event has become too old, and at few
    /// times.
    fn freeing(&self) -> Expr {
        match self.reach {
            Reach::Within(length) => (self.clock().units() - 1).floor_div(length) * length + 2 * length,
            Reach::Over { length, origin } => self.clock().boundary(length, origin),
        }
    }

    /// Returns the statements for an event of a side.
    fn arrives(&self, own: &Side, other: &Side) -> Vec<Stmt> {
        let alone = if own.waits { self.wait() } else { Vec::new() };
        let with_key = match self.how {
            JoinHow::Anti if own.number == LEFT => {
                vec![find(other, -1), when(is_none(), alone.clone())]
            }
            JoinHow::Anti => {
                // One record says when the last event came.
                let last = vec![set(ROWS, &own.column, no_records()), add(ROWS, &own.column, pack(Vec::new()))];
                let mut statements = vec![end_wait(), set(ROWS, &self.reach.due_column(), self.freeing())];
                statements.extend(last);
                statements
            }
            _ => self.meets(own, other, &alone),
        };
        match self.sides.has_key() {
            None => with_key,
            Some(has_key) => vec![branch(has_key, with_key, alone)],
        }
    }

    /// Returns the statements by which the event meets what is kept of the other side, and is kept itself. Nothing that
    /// comes last can abort, so records are added where they are.
    fn meets(&self, own: &Side, other: &Side, alone: &[Stmt]) -> Vec<Stmt> {
        let mut found = vec![stmt(StmtNode::ForRange {
            variable: "round".into(),
            start: 0.into(),
            stop: ROUNDS.into(),
            step: 1,
            body: vec![
                self.emit_pair(own, other),
                find(other, local(PLACE)),
                when(is_none(), vec![stmt(StmtNode::Break)]),
            ],
        })];
        if other.waits {
            found.push(end_wait());
        }
        let mut none = vec![set(ROWS, &other.column, no_records())];
        none.extend(alone.iter().cloned());
        let fields = (0..own.fields.len()).map(|field| event(own.field(field))).collect();
        vec![
            set(ROWS, &self.reach.due_column(), self.freeing()),
            find(other, -1),
            branch(is_none(), none, found),
            add(ROWS, &own.column, pack(fields)),
        ]
    }

    fn emit_pair(&self, own: &Side, other: &Side) -> Stmt {
        let value = |side: &Side, field: usize| {
            let ty = side.fields[field].1;
            if side.number == own.number {
                let given = event(side.field(field));
                let is_optional = ty.nullable || side.may_miss;
                return if is_optional { given } else { ExprNode::OrZero(Box::new(given)).into() };
            }
            record_field(ROWS, &other.column, side.fields.len(), field, ty)
        };
        emit(self.sides.pair(value, |_| true.into()))
    }

    /// Returns the statements by which the event waits for a partner.
    fn wait(&self) -> Vec<Stmt> {
        let fresh = vec![set(WAITS, "first", local(NUMBER)), set(WAITS, &self.reach.due_column(), self.expiry())];
        let mut values = vec![local(NUMBER), self.expiry(), event(SIDE)];
        values.extend(self.waiting_fields().map(|(side, field)| event(side.field(field))));
        let mut statements = match self.numbering {
            Numbering::None => unreachable!("an event waits"),
            Numbering::Places => vec![assign(NUMBER, ExprNode::Place.into())],
            Numbering::PlacesOfSides => vec![assign(NUMBER, Expr::from(ExprNode::Place) * 2 + event(SIDE))],
            Numbering::Counted => vec![assign(NUMBER, cell(ORDER, "n")), set(ORDER, "n", local(NUMBER) + 1)],
        };
        statements.extend([when(!exists(WAITS), fresh), add(WAITS, WAITING, pack(values))]);
        statements
    }

    /// Returns the fields in the record of an event that waits: those of the sides that do.
    fn waiting_fields(&self) -> impl Iterator<Item = (&Side, usize)> {
        let waiting = [&self.sides.left, &self.sides.right].into_iter().filter(|side| side.waits);
        waiting.flat_map(|side| (0..side.fields.len()).map(move |field| (side, field)))
    }

    /// Returns the statements for events of a key that have waited for long enough: they go out. The row then waits for
    /// the next, if there is one.
    fn expire(&self) -> Vec<Stmt> {
        let due = self.reach.due_column();
        let is_later = self.waiting(1, Type::Int.into()).gt(cell(WAITS, due.as_str()));
        let out = stmt(StmtNode::ForRange {
            variable: "round".into(),
            start: 0.into(),
            stop: ROUNDS.into(),
            step: 1,
            body: vec![
                when(is_none(), vec![stmt(StmtNode::Break)]),
                when(is_later, vec![stmt(StmtNode::Break)]),
                self.emit_alone(),
                find_waiting(local(PLACE)),
            ],
        });
        let rest = vec![
            set(WAITS, "first", self.waiting(0, Type::Int.into())),
            set(WAITS, &due, self.waiting(1, Type::Int.into())),
        ];
        let delete = vec![stmt(StmtNode::Delete { role: WAITS.into() })];
        vec![find_waiting((-1).into()), out, branch(is_none(), delete, rest)]
    }

    fn emit_alone(&self) -> Stmt {
        let value = |side: &Side, field: usize| {
            let place = self.waiting_fields().position(|(of, at)| of.number == side.number && at == field);
            let ty = side.fields[field].1;
            let ty = ColumnType { ty: ty.ty, nullable: ty.nullable || side.may_miss };
            place.map_or(Value::Null.into(), |place| self.waiting(BEFORE + place, ty))
        };
        let is_there = |side: &Side| match side.waits {
            true => self.waiting(2, Type::Int.into()).eq(side.number),
            false => false.into(),
        };
        emit(self.sides.pair(value, is_there))
    }

    /// Returns a value of the record of an event that waits.
    fn waiting(&self, field: usize, ty: ColumnType) -> Expr {
        record_field(WAITS, WAITING, BEFORE + self.waiting_fields().count(), field, ty)
    }
}

fn branch(condition: Expr, then: Vec<Stmt>, otherwise: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::If { condition, then, otherwise })
}

fn pack(values: Vec<Expr>) -> Expr {
    ExprNode::Pack(values).into()
}

/// Returns a test whether no record was found.
fn is_none() -> Expr {
    local(PLACE).lt(0)
}

/// Finds the next record of a side.
fn find(side: &Side, after: impl Into<Expr>) -> Stmt {
    find_in(ROWS, &side.column, after.into())
}

fn find_waiting(after: Expr) -> Stmt {
    find_in(WAITS, WAITING, after)
}

fn find_in(role: &str, column: &str, after: Expr) -> Stmt {
    let next = ExprNode::NextRecord { role: role.into(), column: column.into(), part: None, after: Box::new(after) };
    assign(PLACE, next.into())
}

/// Returns a value of the record that was found.
fn record_field(role: &str, column: &str, of: usize, field: usize, ty: ColumnType) -> Expr {
    let at = Box::new(local(PLACE));
    ExprNode::RecordField { role: role.into(), column: column.into(), at, of, field, ty }.into()
}

/// Returns the statements after all events of the key that wait have found a partner.
fn end_wait() -> Stmt {
    when(exists(WAITS), vec![stmt(StmtNode::Delete { role: WAITS.into() })])
}

fn emit(record: crate::Record) -> Stmt {
    stmt(StmtNode::Emit { name: PAIRS.into(), record })
}

/// Returns a test whether an event is of a side.
fn is_side(side: i64) -> Expr {
    event(SIDE).eq(side)
}

/// Returns the bytes of no record.
fn no_records() -> Expr {
    ExprNode::Literal(Value::Bytes(Vec::new())).into()
}
