//! The first event of each group, and each that comes long enough after the one that was passed on last.
//!
//! `once`, the first events by a key within a time, becomes
//!
//! | what | of |
//! |---|---|
//! | table `once.windows` | a row for each group that has repeats: the last time of a repeat |
//! | transaction `once` | the input: commits the events that are no repeats |
//! | stream `once.due` | the groups whose time is over |
//! | transaction `once.next` | `once.due`: deletes the row |
//!
//! An event is a repeat if its time is not after that last time. So a row may stay longer than it must. Rows are deleted
//! together, at the points of a grid, since each deletion ends an epoch.

use super::cells::Kind;
use super::over::{Lasting, Lowered, Lowering};
use super::own::Words;
use super::parts;
use super::writing::{WINDOW, set, stmt, when};
use crate::build::{cell, event, exists};
use crate::{AccessDef, Record, StmtNode, StreamRef, TransactionDef};
use tidemill_model::{Schema, Type, Value};

/// The number of points of the grid within the time.
const POINTS: i64 = 8;

/// Returns the grid, as windows.
pub(super) fn kind(within: i64) -> Kind<'static> {
    Kind::Tumbling { length: (within - 1) / POINTS + 1, origin: 0 }
}

/// Returns the name of the column with the last time of a repeat. It has `within` in it, so that a state does not fit a
/// program with another one.
fn until_column(within: i64) -> String {
    format!("until_{within}")
}

impl Lowering<'_> {
    /// Returns the table and transactions of first events. `lasting`: what is passed on of an event.
    pub(super) fn first(self, within: i64, input: &Schema, lasting: Lasting) -> Lowered {
        let time = self.clock.ty.unwrap_or(Type::Int);
        let (until, due) = (until_column(within), self.kind.due_column());
        let mut windows = self.windows(time);
        windows.push(super::writing::column(&until, Type::Int, false, Some(Value::Int(0))));

        let length = match self.kind {
            Kind::Tumbling { length, .. } => length,
            _ => unreachable!("a grid is tumbling windows"),
        };
        // So near the end of time that this overflows, the event aborts, as one of a window does.
        let last = || self.clock.units() + (within - 1);
        let freed = last().floor_div(length) * length + length;
        let repeats = exists(WINDOW).and(self.clock.units().le(cell(WINDOW, until.as_str())));
        let fields = &input.fields[..lasting.width];
        let record = Record {
            fields: fields.iter().map(|field| (field.name.clone(), event(&field.name))).collect(),
            schema: None,
            event_time: lasting.event_time.map(|at| fields[at].name.clone()),
        };
        let body = vec![
            when(repeats, vec![stmt(StmtNode::Return { record: None })]),
            set(WINDOW, &until, last()),
            set(WINDOW, &due, freed),
            stmt(StmtNode::Return { record: Some(record) }),
        ];
        let pass = TransactionDef {
            name: self.name.to_owned(),
            inputs: vec![self.input.clone()],
            over: None,
            join: None,
            nested: false,
            derives: false,
            roles: vec![self.role(WINDOW, AccessDef::Create, |part| part.value.clone())],
            body,
        };
        let inputs = vec![StreamRef::Named(parts::due(self.name))];
        let delete = vec![stmt(StmtNode::Delete { role: WINDOW.into() })];
        let next = self.on(inputs, format!("{}.next", self.name), AccessDef::Row, delete);
        Lowered {
            merges: None,
            windows,
            order: None,
            add: pass,
            due: self.due(),
            close: None,
            next,
            early: None,
            rows: None,
            words: Words::default(),
            shift_in: self.clock.shift,
            shift_due: -1,
            schema: self.close_schema(),
        }
    }
}
