//! The top of each instant, as windows of one unit of time that keep their events.
//!
//! A row of `hot.windows` has the events of a group as records, each with what it is ranked by before its fields. When the
//! instant is over, `hot` goes over them once for each place of the top and emits the best that was not emitted yet. So it
//! costs the places times the events of the group in the instant, and an event is kept as long as its instant lasts.

use super::fault::{Checked, Fault};
use super::over::Lasting;
use super::scope::Scope;
use super::writing::{WINDOW, add, assign, column, stmt, when};
use crate::build::{event, local};
use crate::{ColumnDef, Expr, ExprNode, Record, Stmt, StmtNode, TopDef, WindowDef};
use tidemill_model::{ColumnType, Schema, Type, Value};

/// The column of records.
const RECORDS: &str = "records";
/// The name under which the events are emitted.
pub(super) const TOP: &str = "top";
/// A number of rounds that is more than there can be records.
const ROUNDS: i64 = 1 << 62;
/// The most places of a top.
const PLACES_MAX: i64 = 1_000;

/// The parts that a top of a stream needs.
pub(super) struct Ranking {
    pub column: ColumnDef,
    /// Keeps an event.
    pub keep: Stmt,
    /// Emits the top of what was kept.
    pub body: Vec<Stmt>,
}

/// Returns the top of events. `lasting`: what is passed on of them.
pub(super) fn ranking(
    top: &TopDef,
    schema: &Schema,
    lasting: Lasting,
    time: Type,
    scope: &mut Scope<'_>,
) -> Checked<Ranking> {
    if !(1..=PLACES_MAX).contains(&top.count) {
        return Err(Fault::new(format!("the top has {} places", top.count)).hint(format!("give 1 to {PLACES_MAX}")));
    }
    let by = scope.expression(&top.by).map_err(|fault| fault.at(top.by.span))?.ty;
    let is_ranked = matches!(by.ty, Type::Int | Type::Float | Type::Decimal { .. } | Type::Time) && !by.nullable;
    if !is_ranked || scope.reasons.first().is_some() {
        return Err(Fault::new(format!("the top is by {by}, which has no order here"))
            .hint("rank by a number or a time that is never None")
            .at(top.by.span));
    }
    let mut fields: Vec<(String, ColumnType)> = Vec::new();
    for field in &schema.fields[..lasting.width] {
        let Some(ty) = field.scalar_type() else {
            return Err(Fault::new(format!("its events have the list '{}'", field.name))
                .hint("a top keeps no lists: leave it out with a map before"));
        };
        fields.push((field.name.clone(), ty));
    }
    let span = || if time == Type::Int { Value::Int(1) } else { Value::Duration(1) };
    let window = WindowDef::Records { span: span(), slide: Some(span()) };
    let mut values = vec![top.by.clone()];
    values.extend(fields.iter().map(|(name, _)| event(name)));
    let event_time = lasting.event_time.map(|at| fields[at].0.clone());
    let body = Body { top, by, fields, event_time }.statements();
    Ok(Ranking {
        column: ColumnDef { window: Some(window), ..column(RECORDS, Type::Bytes, false, None) },
        keep: add(WINDOW, RECORDS, ExprNode::Pack(values).into()),
        body,
    })
}

struct Body<'a> {
    top: &'a TopDef,
    by: ColumnType,
    fields: Vec<(String, ColumnType)>,
    event_time: Option<String>,
}

impl Body<'_> {
    fn statements(&self) -> Vec<Stmt> {
        let mut body = vec![
            find((-1).into()),
            assign("last", self.rank("place")),
            assign("last_place", (-1).into()),
            assign("taken", 0.into()),
        ];
        let mut round = self.search();
        round.push(when(local("best").lt(0), vec![stmt(StmtNode::Break)]));
        round.push(self.emit("best"));
        round.push(assign("last", self.rank("best")));
        round.push(assign("last_place", local("best")));
        round.push(assign("taken", local("taken") + 1));
        body.push(rounds("round", self.top.count, round));
        if self.top.ties {
            let equal = self.rank("place").eq(local("last"));
            let after = vec![
                when(local("place").lt(0), vec![stmt(StmtNode::Break)]),
                when(equal, vec![self.emit("place")]),
                find(local("place")),
            ];
            let all = vec![find(local("last_place")), rounds("tie", ROUNDS, after)];
            body.push(when(local("taken").eq(self.top.count), all));
        }
        body.push(stmt(StmtNode::Return { record: None }));
        body
    }

    /// Finds the best event that was not taken, the first of equals.
    fn search(&self) -> Vec<Stmt> {
        let value = || local("value");
        let is_left = local("taken")
            .eq(0)
            .or(value().lt(local("last")))
            .or(value().eq(local("last")).and(local("place").gt(local("last_place"))));
        let is_better = local("best").lt(0).or(value().gt(local("best_value")));
        // A NaN is equal to nothing, and in no top.
        let takes = value().eq(value()).and(is_left).and(is_better);
        let step = vec![
            when(local("place").lt(0), vec![stmt(StmtNode::Break)]),
            assign("value", self.rank("place")),
            when(takes, vec![assign("best", local("place")), assign("best_value", value())]),
            find(local("place")),
        ];
        vec![
            assign("best", (-1).into()),
            assign("best_value", local("last")),
            find((-1).into()),
            rounds("step", ROUNDS, step),
        ]
    }

    fn value(&self, at: &str, field: usize, ty: ColumnType) -> Expr {
        let (role, column) = (WINDOW.into(), RECORDS.into());
        let (at, of) = (Box::new(local(at)), 1 + self.fields.len());
        ExprNode::RecordField { role, column, at, of, field, ty }.into()
    }

    fn rank(&self, at: &str) -> Expr {
        self.value(at, 0, self.by)
    }

    fn emit(&self, at: &str) -> Stmt {
        let given =
            |(number, (name, ty)): (usize, &(String, ColumnType))| (name.clone(), self.value(at, 1 + number, *ty));
        let fields = self.fields.iter().enumerate().map(given).collect();
        let record = Record { fields, schema: None, event_time: self.event_time.clone() };
        stmt(StmtNode::Emit { name: TOP.into(), record })
    }
}

/// Finds the next record.
fn find(after: Expr) -> Stmt {
    let (role, column) = (WINDOW.into(), RECORDS.into());
    assign("place", ExprNode::NextRecord { role, column, part: None, after: Box::new(after) }.into())
}

fn rounds(variable: &str, count: i64, body: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::ForRange { variable: variable.into(), start: 0.into(), stop: count.into(), step: 1, body })
}
