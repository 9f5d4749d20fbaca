//! Windows over streams, as tables and transactions.
//!
//! A window `heat` over a stream becomes
//!
//! | what | of |
//! |---|---|
//! | table `heat.windows` | the open windows: a row per group. For sliding windows a row holds what the group has in all of them, by slices |
//! | table `heat.order` | one row, which counts: where events have no places ([`Numbering`]). Groups are numbered as their windows begin |
//! | transaction `heat.add` | the input: adds an event to its group's row |
//! | stream `heat.due` | the windows that close, in order ([`crate::Due`]); by count, what `heat.add` returns |
//! | transaction `heat` | `heat.due`: the user's function, which reads the row |
//! | transaction `heat.next` | `heat.due`: deletes the row, or has it stand for the next of sliding windows |
//! | stream `heat.partial` | the windows that have an early result, where such are asked for |
//! | transaction `heat.early` | `heat.partial`: the user's function |
//! | transaction `heat.later` | `heat.partial`: has the row wait for its next early result |
//!
//! With a result for each row of a table it has further parts ([`super::rows`]).
//!
//! So whatever holds for tables (undo, log, checkpoints, eviction, audits) holds for windows.

use super::cells::{Cells, Kind, Merges, units};
use super::definition::{self, OverStream};
use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::first;
use super::own::{Owns, Words};
use super::parts as named;
use super::position::PositionTime;
use super::rewrite;
use super::rows::{self, Rows};
use super::scope::{Scope, Site};
use super::streams::{Streams, Unresolved};
use super::top;
use super::types::{check_column_type, zero};
use super::writing::{FRESH, ORDER, WINDOW, assign, column, set, stmt, when};
use crate::build::{event, exists};
use crate::{
    AccessDef, Bound, ColumnDef, Due, DueField, Edge, Expr, ExprNode, Function, Merge, Operator, OperatorKind, OverDef,
    Periods, Record, RoleDef, Stmt, StmtNode, StreamId, StreamRef, Table, TableId, TablePart, TransactionDef,
    WindowsDef,
};
use tidemill_model::{ColumnType, Field, Schema, Type, Value};
use typed_index_collections::TiSlice;

/// A part of a group.
pub(super) struct Part {
    pub name: String,
    pub ty: ColumnType,
    /// The value, over the fields of the input.
    pub value: Expr,
}

/// The tables, transactions and streams that a window over a stream becomes.
pub(super) struct Lowered {
    /// The columns of the table of open windows.
    pub windows: Vec<ColumnDef>,
    /// The columns of the table with the row that counts, if one does.
    pub order: Option<Vec<ColumnDef>>,
    pub add: TransactionDef,
    /// The fields of a close.
    pub schema: Schema,
    /// The stream of due rows: the closes, except those by count, which `add` returns.
    pub due: DueDraft,
    /// The user's function, and what follows it; on closes.
    pub close: Option<TransactionDef>,
    pub next: TransactionDef,
    pub early: Option<Early>,
    /// The parts that open windows for rows without events.
    pub rows: Option<Rows>,
    /// The names that users have for the states of their aggregates.
    pub words: Words,
    /// Added to the event time of the input for the slices of windowed columns.
    pub shift_in: i64,
    /// The number added to the event time of a close, which is its end.
    pub shift_due: i64,
    /// If the rows of events that were folded apart can be merged: how.
    pub merges: Option<Merges>,
}

/// Early results of tumbling and sliding windows: of the window of a group that closes next.
pub(super) struct Early {
    /// The fields of a close, and when the result stands.
    pub schema: Schema,
    /// The column that says when a row has the next one.
    pub column: String,
    pub fields: Vec<DueField>,
    pub bound: Bound,
    /// The user's function, and what follows it; on such windows.
    pub result: TransactionDef,
    pub later: TransactionDef,
}

/// The field that holds when an early result stands.
const STANDS: &str = "stands";

/// [`Due`], without the number of its table.
pub(super) struct DueDraft {
    pub fields: Vec<DueField>,
    pub bound: Bound,
}

impl DueDraft {
    /// Returns the due rows of its table; its first columns are `due` and `first`, after the key.
    pub fn of(self, table: crate::TableId, keys: usize, time: Type) -> Due {
        Due { table, due: keys, first: keys + 1, fields: self.fields, bound: self.bound, time }
    }
}

/// The declared part of an input's events, which may carry more.
#[derive(Clone, Copy)]
pub(super) struct Lasting {
    /// The number of fields, which come first.
    pub width: usize,
    /// The field of event time.
    pub event_time: Option<usize>,
}

/// Takes a window over a stream apart. `inputs`: as declared.
pub(super) fn lower(
    def: &TransactionDef,
    over: &OverDef,
    (input, inputs): (StreamId, Vec<StreamId>),
    lasting: Lasting,
    time: Option<PositionTime>,
    streams: &Streams<'_>,
    tables: &TiSlice<TableId, Table>,
) -> Result<(Lowered, Operator), Unresolved> {
    let stream = &streams.list[input];
    let time = match (time, &over.windows) {
        (None, windows) if over.first.is_some() || !matches!(windows, WindowsDef::Counting { .. }) => {
            return Err(Fault::new(format!("the events of '{}' do not hold the time of their position", stream.name))
                .hint("pass the event time on as it is, or `w.end` of a window")
                .into());
        }
        (time, _) => time,
    };
    let clock = Clock::of(time, &stream.schema);
    if over.top.is_some() && over.first.is_some() {
        return Err(Fault::new("it is a top and first events").hint("make two of it").into());
    }
    let first = over.first.as_ref().map(|within| units("time of first events", within, clock.ty)).transpose()?;
    let kind = match (&over.top, first) {
        // An instant.
        (Some(_), _) => Kind::Tumbling { length: 1, origin: 0 },
        (None, Some(within)) => first::kind(within),
        (None, None) => Kind::of(&over.windows, clock.ty)?,
    };
    let early = kind.early(over.early.as_ref(), clock.ty)?;
    if early.is_some() && over.by.iter().any(|(name, _)| name == STANDS) {
        return Err(Fault::new("a part of the group is called 'stands', as the time at which an early result stands")
            .hint("give it another name")
            .into());
    }
    let mut scope = Scope::new(Site::Derived, &stream.schema);
    let parts = parts(over, &mut scope)?;
    let rows = rows::of(over, &parts, kind, tables)?;
    let mut cells = Cells::new(kind, clock.ty, rows.is_some());
    rewrite::block(&def.body, &mut |expr| cells.replace(expr, &mut scope));
    let function = rewrite::block(&def.body, &mut |expr| cells.replace(expr, &mut scope));
    cells.finish()?;
    check_fields(&def.body, &parts, clock.ty.is_some())?;
    let time = clock.ty.unwrap_or(Type::Int);
    let top = over.top.as_ref().map(|top| top::ranking(top, &stream.schema, lasting, time, &mut scope)).transpose()?;
    let (name, input) = (&def.name, def.inputs[0].clone());
    let (top, body) = top.map_or((None, function), |top| (Some((top.column, top.keep)), top.body));
    let owns = Owns::of(&over.own, kind.slices(clock.ty), rows.is_some())?;
    let body = owns.read(&body);
    let definition = definition::over(OverStream {
        plan: streams.plan(),
        name,
        input: &input,
        over,
        kind,
        time: clock.ty,
        parts: &parts,
        keeps: cells.keeps(),
        schema: &stream.schema,
        lasting,
    });
    let by = parts.iter().map(|part| part.name.clone()).collect();
    let of_kind = match (&over.top, first) {
        (Some(top), _) => OperatorKind::Top { count: top.count, by },
        (None, Some(within)) => OperatorKind::First { within, by },
        (None, None) => {
            let rows = rows.as_ref().map(rows::Of::table);
            OperatorKind::Window { windows: kind.windows(), by, early, rows }
        }
    };
    let operator = Operator { name: name.clone(), kind: of_kind, inputs, time: clock.ty, definition: Some(definition) };
    let numbering = match &streams.list[stream.root].origin {
        _ if parts.is_empty() => Numbering::None,
        origin if origin.has_places() => Numbering::Places,
        _ => Numbering::Counted,
    };
    let lowering = Lowering { name, input, parts, cells, kind, clock, early, rows, top, owns, numbering };
    let lowered = match first {
        Some(within) => lowering.first(within, &stream.schema, lasting),
        None => lowering.lowered(body)?,
    };
    Ok((lowered, operator))
}

/// The time of the input's positions.
#[derive(Clone)]
pub(super) struct Clock {
    /// `Time` or `Int`; none in programs without event times.
    pub ty: Option<Type>,
    pub field: String,
    pub shift: i64,
}

impl Clock {
    pub fn of(time: Option<PositionTime>, schema: &Schema) -> Clock {
        let Some(PositionTime { field, shift }) = time else {
            return Clock { ty: None, field: String::new(), shift: 0 };
        };
        let of = &schema.fields[field];
        Clock { ty: of.scalar_type().map(|ty| ty.ty), field: of.name.clone(), shift }
    }

    /// Returns the time of the event's position, of its own type.
    pub fn now(&self) -> Expr {
        let shift = if self.ty == Some(Type::Int) { Value::Int(self.shift) } else { Value::Duration(self.shift) };
        if self.shift == 0 { event(&self.field) } else { event(&self.field) + Expr::from(shift) }
    }

    /// Returns the time as an int.
    pub fn units(&self) -> Expr {
        match self.ty {
            Some(Type::Time) => event(&self.field).call(Function::TotalMicroseconds, []) + self.shift,
            _ if self.shift == 0 => event(&self.field),
            _ => event(&self.field) + self.shift,
        }
    }

    /// Returns the first boundary after the event of a grid.
    pub fn boundary(&self, every: i64, origin: i64) -> Expr {
        let now = self.units();
        if origin == 0 {
            return now.floor_div(every) * every + every;
        }
        (now - origin).floor_div(every) * every + (every + origin)
    }
}

/// The numbers by which the windows that close in one instant are in the order of their first events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    /// There is one group.
    None,
    /// The places of these events ([`ExprNode::Place`]): an event begins one window of one group at most.
    Places,
    /// Numbers by the row that counts: for the results of transactions and windows, of which several have the place of one
    /// event.
    Counted,
}

/// Returns the parts of a group.
fn parts(over: &OverDef, scope: &mut Scope<'_>) -> Checked<Vec<Part>> {
    check_unique("part of the group", over.by.iter().map(|(name, _)| name.as_str()))?;
    over.by.iter().map(|(name, value)| part(name, value, scope).map_err(|fault| fault.at(value.span))).collect()
}

fn part(name: &str, value: &Expr, scope: &mut Scope<'_>) -> Checked<Part> {
    check_identifier("part of the group", name)?;
    if matches!(name, "start" | "end") {
        return Err(Fault::new(format!("a part of the group is called '{name}', as the {name} of the window"))
            .hint("give it another name"));
    }
    let typed = scope.expression(value)?;
    check_column_type(name, typed.ty.ty)?;
    if typed.ty.ty == Type::Float {
        return Err(Fault::new(format!("the group '{name}' is a float")).hint("use an int, a Decimal or a str"));
    }
    if let Some(reason) = scope.reasons.first() {
        return Err(Fault::new(format!("the group '{name}' could fail: {reason}"))
            .hint("compute it in a map, and take windows of the mapped stream"));
    }
    Ok(Part { name: name.to_owned(), ty: typed.ty, value: value.clone() })
}

/// Refuses what is no field of a close, with words for windows.
fn check_fields(body: &[Stmt], parts: &[Part], has_time: bool) -> Checked<()> {
    let mut wrong = None;
    rewrite::block(body, &mut |expr| {
        match &expr.node {
            // Its operands are fields of the input's events.
            ExprNode::Aggregate { .. } => return Some(expr.node.clone()),
            ExprNode::Event(name) if (name == "start" || name == "end") && has_time => {}
            ExprNode::Event(name) if parts.iter().any(|part| part.name == *name) => {}
            ExprNode::Event(name) => {
                let fault = Fault::new(format!("w.{name} is one value of many: a window holds events"));
                wrong = wrong.take().or(Some(
                    fault.hint(format!("ask for an aggregate, as in w.{name}.max(), or group by it")).at(expr.span),
                ));
            }
            _ => {}
        }
        None
    });
    wrong.map_or(Ok(()), Err)
}

pub(super) struct Lowering<'a> {
    pub name: &'a str,
    pub input: StreamRef,
    pub parts: Vec<Part>,
    cells: Cells<'a>,
    pub kind: Kind<'a>,
    pub clock: Clock,
    /// The distance of early results.
    early: Option<i64>,
    /// The table of which each row has a result.
    rows: Option<rows::Of>,
    /// Keeps the events for a top: a column, and what adds an event to it.
    top: Option<(ColumnDef, Stmt)>,
    /// The aggregates that users write.
    owns: Owns<'a>,
    pub numbering: Numbering,
}

impl Lowering<'_> {
    fn lowered(self, function: Vec<Stmt>) -> Checked<Lowered> {
        let body: Vec<Stmt> = self.cells.choices().into_iter().chain(self.owns.merges()?).chain(function).collect();
        let due_time = self.clock.ty.unwrap_or(Type::Int);
        let schema = self.close_schema();
        let origin = self.kind.origin();
        let is_counting = matches!(self.kind, Kind::Counting { .. });
        let mut inputs = vec![StreamRef::Named(named::due(self.name))];
        if is_counting {
            inputs.insert(0, StreamRef::Committed(named::add(self.name)));
        }
        let on_due = |name: String, access, body| self.on(inputs.clone(), name, access, body);
        let early = self.early.map(|every| self.early_results(every, &schema, body.clone()));
        Ok(Lowered {
            early,
            rows: self.rows.as_ref().map(|of| self.rows(of)),
            words: self.owns.words(),
            windows: self.windows(due_time),
            order: (self.numbering == Numbering::Counted).then(|| {
                let columns =
                    [column("one", Type::Int, true, None), column("n", Type::Int, false, Some(Value::Int(0)))];
                columns.to_vec()
            }),
            add: self.add()?,
            merges: self.merges(),
            close: Some(on_due(self.name.to_owned(), AccessDef::ReadDefault, body)),
            next: on_due(format!("{}.next", self.name), AccessDef::Row, self.next()),
            due: self.due(),
            schema,
            shift_in: self.clock.shift - origin,
            shift_due: if is_counting { 0 } else { -1 - origin },
        })
    }

    /// Returns the fields of a close.
    pub(super) fn close_schema(&self) -> Schema {
        let mut schema = Schema { fields: self.parts.iter().map(|p| Field::scalar(&p.name, p.ty)).collect() };
        if let Some(time) = self.clock.ty {
            schema.fields.extend(["start", "end"].map(|name| Field::scalar(name, time.into())));
        } else if schema.fields.is_empty() {
            schema.fields.push(Field::scalar("one", Type::Int.into()));
        }
        schema
    }

    /// Returns a transaction on windows that are due.
    pub(super) fn on(
        &self,
        inputs: Vec<StreamRef>,
        name: String,
        access: AccessDef,
        body: Vec<Stmt>,
    ) -> TransactionDef {
        let roles = vec![self.role(WINDOW, access, |part| event(&part.name))];
        TransactionDef { name, inputs, over: None, join: None, nested: false, derives: false, roles, body }
    }

    fn early_results(&self, every: i64, closed: &Schema, mut body: Vec<Stmt>) -> Early {
        let names: Vec<String> = closed.fields.iter().map(|field| field.name.clone()).collect();
        if !returns(&body) {
            let fields = names.into_iter().map(|name| (name.clone(), event(name))).collect();
            let record = Record { fields, schema: None, event_time: Some("end".into()) };
            body.push(stmt(StmtNode::Return { record: None }));
            give(&mut body, &record);
        }
        let mut schema = closed.clone();
        schema.fields.push(Field::scalar(STANDS, self.clock.ty.unwrap_or(Type::Int).into()));
        let length = match self.kind {
            Kind::Tumbling { length, .. } | Kind::Sliding { length, .. } => length,
            Kind::Calendar(_) | Kind::Session { .. } | Kind::Counting { .. } => {
                unreachable!("these have no early results")
            }
        };
        let mut fields = self.part_fields();
        let due = self.key_columns();
        fields.extend([DueField::Time { column: due, less: length }, DueField::Time { column: due, less: 0 }]);
        fields.push(DueField::End);
        let inputs = vec![StreamRef::Named(format!("{}.partial", self.name))];
        let column = early_column(every);
        let mut later = vec![set(WINDOW, &column, crate::build::cell(WINDOW, column.as_str()) + every)];
        later.push(self.last_is_close(&column));
        Early {
            schema,
            fields,
            bound: Bound::Grid { every, origin: self.kind.origin().rem_euclid(every) },
            result: self.on(inputs.clone(), named::early(self.name), AccessDef::ReadDefault, body),
            later: self.on(inputs, format!("{}.later", self.name), AccessDef::Row, later),
            column,
        }
    }

    /// A window without events has no early result.
    pub(super) fn never_early(&self) -> Option<Stmt> {
        self.early.map(|every| set(WINDOW, &early_column(every), i64::MAX))
    }

    /// No early result stands where the window closes.
    fn last_is_close(&self, column: &str) -> Stmt {
        let closes = crate::build::cell(WINDOW, column).eq(crate::build::cell(WINDOW, self.kind.due_column()));
        when(closes, vec![set(WINDOW, column, i64::MAX)])
    }

    /// Returns the columns of the table of open windows: the key, when the row is due, `first`, `start` and `end`, and what is
    /// aggregated.
    pub(super) fn windows(&self, time: Type) -> Vec<ColumnDef> {
        let mut columns = Vec::new();
        for part in &self.parts {
            if part.ty.nullable {
                columns.push(column(&format!("none_{}", part.name), Type::Bool, true, None));
            }
            columns.push(column(&format!("by_{}", part.name), part.ty.ty, true, None));
        }
        if columns.is_empty() {
            columns.push(column("one", Type::Int, true, None));
        }
        columns.push(column(&self.kind.due_column(), Type::Int, false, Some(Value::Int(0))));
        columns.push(column("first", Type::Int, false, Some(Value::Int(0))));
        let bounds: &[&str] = match self.kind {
            Kind::Calendar(_) => &["start"],
            _ if self.has_bounds() => &["start", "end"],
            _ => &[],
        };
        columns.extend(bounds.iter().map(|bound| column(bound, time, false, Some(zero(time)))));
        columns.extend(self.early.map(|every| column(&early_column(every), Type::Int, false, Some(Value::Int(0)))));
        columns.extend(self.cells.columns());
        columns.extend(self.owns.columns());
        columns.extend(self.top.iter().map(|(column, _)| column.clone()));
        columns
    }

    /// Returns whether a row holds the times of its first and last event.
    fn has_bounds(&self) -> bool {
        self.clock.ty.is_some() && matches!(self.kind, Kind::Session { .. } | Kind::Counting { .. })
    }

    fn key_columns(&self) -> usize {
        let of = |part: &Part| 1 + usize::from(part.ty.nullable);
        self.parts.iter().map(of).sum::<usize>().max(1)
    }

    /// Returns the role of a group's row.
    pub(super) fn role(&self, name: &str, access: AccessDef, value: impl Fn(&Part) -> Expr) -> RoleDef {
        let mut key: Vec<Expr> = Vec::new();
        for part in &self.parts {
            let value = value(part);
            if part.ty.nullable {
                key.push(value.clone().is_null());
                key.push(ExprNode::OrZero(Box::new(value)).into());
            } else {
                key.push(value);
            }
        }
        if key.is_empty() {
            key.push(0.into());
        }
        RoleDef::row(name, TablePart::Windows.named(self.name), key, access)
    }

    fn add(&self) -> Checked<TransactionDef> {
        let mut body = vec![assign(FRESH, !exists(WINDOW))];
        let (due, mut begin) = (self.kind.due_column(), Vec::new());
        let number: Expr = match self.numbering {
            Numbering::None => 0.into(),
            Numbering::Places => ExprNode::Place.into(),
            Numbering::Counted => crate::build::cell(ORDER, "n"),
        };
        let count = set(ORDER, "n", crate::build::cell(ORDER, "n") + 1);
        if self.numbering == Numbering::Counted {
            // Sliding windows number each event: the first of a later window may be any of them.
            if matches!(self.kind, Kind::Sliding { .. }) { body.push(count) } else { begin.push(count) }
        }
        begin.push(set(WINDOW, "first", number.clone()));
        match self.kind {
            Kind::Tumbling { length, origin } => begin.push(set(WINDOW, &due, self.clock.boundary(length, origin))),
            Kind::Sliding { every, origin, .. } => begin.push(set(WINDOW, &due, self.clock.boundary(every, origin))),
            Kind::Calendar(periods) => {
                begin.push(set(WINDOW, &due, period(Edge::End, periods, self.clock.units())));
                begin.push(set(WINDOW, "start", period(Edge::Start, periods, self.clock.now())));
            }
            // It is full before, or closes at the end of time.
            Kind::Counting { .. } => begin.push(set(WINDOW, &due, i64::MAX)),
            Kind::Session { .. } => {}
        }
        if self.has_bounds() {
            begin.push(set(WINDOW, "start", self.clock.now()));
        }
        if let Some(every) = self.early {
            let column = early_column(every);
            begin.push(set(WINDOW, &column, self.clock.boundary(every, self.kind.origin().rem_euclid(every))));
            begin.push(self.last_is_close(&column));
        }
        body.push(when(crate::build::local(FRESH), begin));
        if let Kind::Session { gap } = self.kind {
            body.push(set(WINDOW, &due, self.clock.units() + gap));
        } else if self.has_bounds() {
            body.push(set(WINDOW, "end", self.clock.now()));
        }
        body.extend(self.cells.adds(number));
        body.extend(self.owns.adds()?);
        body.extend(self.top.iter().map(|(_, keep)| keep.clone()));
        if let Kind::Counting { count } = self.kind {
            let mut fields: Vec<_> = self.parts.iter().map(|part| (part.name.clone(), part.value.clone())).collect();
            if self.clock.ty.is_some() {
                fields.push(("start".into(), crate::build::cell(WINDOW, "start")));
                fields.push(("end".into(), self.clock.now()));
            }
            if fields.is_empty() {
                fields.push(("one".into(), 0.into()));
            }
            let record = Record { fields, schema: None, event_time: self.clock.ty.map(|_| "end".into()) };
            let full = self.cells.count().eq(count);
            body.push(when(full, vec![stmt(StmtNode::Return { record: Some(record) })]));
        }
        body.push(stmt(StmtNode::Return { record: None }));
        let mut roles = vec![self.role(WINDOW, AccessDef::Create, |part| part.value.clone())];
        if self.numbering == Numbering::Counted {
            roles.push(RoleDef::row(ORDER, TablePart::Order.named(self.name), vec![0.into()], AccessDef::Create));
        }
        Ok(TransactionDef {
            name: named::add(self.name),
            inputs: vec![self.input.clone()],
            over: None,
            join: None,
            nested: false,
            derives: false,
            roles,
            body,
        })
    }

    /// Returns the merges of rows, if all events of a group in an epoch are of the same windows: between two boundaries
    /// of sliding windows there is one slice, and before the earliest end of a session no other begins.
    fn merges(&self) -> Option<Merges> {
        let is_counted = self.numbering == Numbering::Counted;
        let is_plain = !is_counted && self.rows.is_none() && self.top.is_none() && self.owns.columns().is_empty();
        let has_texts = self.parts.iter().any(|part| part.ty.ty.is_bytes());
        let merges = self.cells.merges().filter(|_| is_plain && !has_texts)?;
        match self.kind {
            Kind::Tumbling { .. } | Kind::Calendar(_) => Some(merges),
            Kind::Sliding { .. } => Some(merges.with_places()),
            Kind::Session { .. } => Some(merges.with(&self.kind.due_column(), Merge::Last)),
            // An event may fill its window, and the next one begins another.
            Kind::Counting { .. } => None,
        }
    }

    /// Returns the statements for a row whose window has closed.
    fn next(&self) -> Vec<Stmt> {
        let delete = stmt(StmtNode::Delete { role: WINDOW.into() });
        let Kind::Sliding { length, every, .. } = self.kind else { return vec![delete] };
        let (count, first) = self.cells.rest(length - every);
        let due = self.kind.due_column();
        let mut stays = vec![set(WINDOW, "first", ExprNode::OrZero(Box::new(first)))];
        // Its next early result is of the window that closes next.
        let early = |part: i64| set(WINDOW, &early_column(part), crate::build::cell(WINDOW, due.as_str()) + part);
        stays.extend(self.early.map(early));
        stays.push(set(WINDOW, &due, crate::build::cell(WINDOW, due.as_str()) + every));
        vec![stmt(StmtNode::If { condition: count.eq(0), then: vec![delete], otherwise: stays })]
    }

    fn part_fields(&self) -> Vec<DueField> {
        let mut at = 0;
        let field = |part: &Part| {
            let none = part.ty.nullable.then_some(at);
            let column = at + usize::from(part.ty.nullable);
            at = column + 1;
            DueField::Part { column, none }
        };
        self.parts.iter().map(field).collect()
    }

    pub(super) fn due(&self) -> DueDraft {
        let mut fields = self.part_fields();
        let start = self.key_columns() + 2;
        let part = |column| DueField::Part { column, none: None };
        fields.extend(match self.kind {
            Kind::Tumbling { length, .. } | Kind::Sliding { length, .. } => {
                vec![DueField::Start { length }, DueField::End]
            }
            Kind::Calendar(_) | Kind::Session { .. } => vec![part(start), DueField::End],
            Kind::Counting { .. } if self.has_bounds() => vec![part(start), part(start + 1)],
            Kind::Counting { .. } if self.parts.is_empty() => vec![part(0)],
            Kind::Counting { .. } => vec![],
        });
        let bound = match self.kind {
            Kind::Tumbling { length: every, origin } | Kind::Sliding { every, origin, .. } => {
                Bound::Grid { every, origin }
            }
            Kind::Calendar(periods) => Bound::Periods(periods.clone()),
            Kind::Session { gap } => Bound::After(gap),
            Kind::Counting { .. } => Bound::Never,
        };
        DueDraft { fields, bound }
    }
}

fn period(edge: Edge, periods: &Periods, time: Expr) -> Expr {
    ExprNode::Period { edge, periods: periods.clone(), time: Box::new(time) }.into()
}

fn early_column(every: i64) -> String {
    format!("early_{every}")
}

/// Returns whether a body gives an event somewhere.
fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.node {
        StmtNode::Return { record } => record.is_some(),
        StmtNode::If { then, otherwise, .. } => returns(then) || returns(otherwise),
        StmtNode::ForEach { body, .. } | StmtNode::ForRange { body, .. } | StmtNode::ForRows { body, .. } => {
            returns(body)
        }
        _ => false,
    })
}

/// Has each end of a body give the event.
fn give(body: &mut [Stmt], given: &Record) {
    for stmt in body {
        match &mut stmt.node {
            StmtNode::Return { record } => *record = Some(given.clone()),
            StmtNode::If { then, otherwise, .. } => {
                give(then, given);
                give(otherwise, given);
            }
            StmtNode::ForEach { body, .. } | StmtNode::ForRange { body, .. } | StmtNode::ForRows { body, .. } => {
                give(body, given);
            }
            _ => {}
        }
    }
}
