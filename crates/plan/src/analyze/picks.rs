//! `first`, `last`, `argmin` and `argmax` of sliding windows.
//!
//! A row holds what its group has in all windows, by slices. Of each slice it keeps one record ([`crate::Keep::Latest`]): what is
//! asked of the event that would be picked if the slice were the window. When a window closes, the event is picked among
//! those of its slices, the oldest first. So an event is compared with one other, and a close with as many as there are slices.

use super::content;
use super::writing::{WINDOW, add, assign, column, stmt, when};
use crate::build::{any, if_else, local, none};
use crate::{ColumnDef, DefinitionPart, Expr, ExprNode, Stmt, StmtNode, WindowDef, WindowPart};
use tidemill_model::{ColumnType, Type, Value};

/// A number of rounds that is more than there can be slices.
pub(super) const ROUNDS: i64 = 1 << 62;

/// The event that is picked.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Which {
    First,
    Last,
    /// The first of those with the least `by`.
    Least,
    /// The first of those with the greatest `by`.
    Greatest,
}

/// An expression over the fields of an event, and its type.
type Given = (Expr, ColumnType);

/// An event that a window's function picks, and the values that are asked of it.
struct Pick {
    which: Which,
    /// The value by which events are compared.
    by: Option<Given>,
    values: Vec<Given>,
}

/// The events that one function picks of its window.
pub(super) struct Picks {
    list: Vec<Pick>,
    /// A flag: whether a window may be without events.
    may_be_empty: bool,
}

impl Picks {
    pub fn new(may_be_empty: bool) -> Picks {
        Picks { list: Vec::new(), may_be_empty }
    }

    /// Returns whether no event is asked for.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns a value of an event. What it stands for is known once all that is asked is.
    pub fn value(&mut self, which: Which, by: Option<Given>, value: Given) -> Expr {
        let known = self.list.iter().position(|pick| pick.which == which && pick.by == by);
        let number = known.unwrap_or_else(|| {
            self.list.push(Pick { which, by, values: Vec::new() });
            self.list.len() - 1
        });
        let pick = &mut self.list[number];
        let known = pick.values.iter().position(|other| *other == value);
        let at = known.unwrap_or_else(|| {
            pick.values.push(value);
            pick.values.len() - 1
        });
        let (at, ty) = (pick.before() + at, pick.values[at].1);
        let found = pick.field(&place(number), at, ty);
        // There is none if no event has a `by`.
        if pick.may_be_none() || self.may_be_empty { if_else(local(place(number)).lt(0), none(), found) } else { found }
    }

    /// Returns the columns of the records; `definition` is that of records by slices.
    pub fn columns(&self, definition: &WindowDef) -> Vec<ColumnDef> {
        let of = |pick: &Pick| ColumnDef {
            window: Some(definition.clone()),
            ..column(&pick.column(), Type::Bytes, false, None)
        };
        self.list.iter().map(of).collect()
    }

    /// Returns the definition of each column that keeps events.
    pub fn keeps(&self) -> impl Iterator<Item = DefinitionPart> {
        self.list.iter().map(|pick| {
            let values = || pick.by.iter().chain(&pick.values);
            let text: Vec<String> = values().map(|(value, _)| value.to_string().replace("ev.", "")).collect();
            let of = |(value, ty): &Given| format!("{ty} {}", content::expression(value));
            let content = values().map(of).collect::<Vec<_>>().join("\n");
            let name = pick.column();
            let content = format!("{name} {} {content}", pick.by.is_some());
            DefinitionPart::new(name, format!("{} of an event of each slice", text.join(", ")), &content)
        })
    }

    /// Returns the statements that add an event; `slide` is the length of a slice.
    pub fn adds(&self, slide: &Value) -> Vec<Stmt> {
        self.list.iter().enumerate().flat_map(|(number, pick)| pick.add(&place(number), slide)).collect()
    }

    /// Returns the statements that pick, before those of the function.
    pub fn choose(&self) -> Vec<Stmt> {
        self.list.iter().enumerate().flat_map(|(number, pick)| pick.choose(number)).collect()
    }
}

/// Returns the local that says where the record of an event stands.
fn place(number: usize) -> String {
    format!("__pick{number}")
}

impl Pick {
    /// Values of a record before those that are asked for.
    fn before(&self) -> usize {
        usize::from(self.by.is_some())
    }

    fn may_be_none(&self) -> bool {
        self.by.as_ref().is_some_and(|(_, ty)| ty.nullable)
    }

    /// Returns the name of its column. It says what records hold, so that a state does not fit a program which keeps
    /// something else.
    fn column(&self) -> String {
        let mut name = match self.which {
            Which::First => "first",
            Which::Last => "last",
            Which::Least => "least",
            Which::Greatest => "greatest",
        }
        .to_owned();
        for (value, ty) in self.by.iter().chain(&self.values) {
            let text = format!("_{} {ty}", value.to_string().replace("ev.", ""));
            name.extend(text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }));
        }
        name
    }

    /// Returns a value of the record at a place.
    fn field(&self, place: &str, field: usize, ty: ColumnType) -> Expr {
        let (at, of) = (Box::new(local(place)), self.before() + self.values.len());
        ExprNode::RecordField { role: WINDOW.into(), column: self.column(), at, of, field, ty }.into()
    }

    /// Returns the place of the next record, among those of a part of the window.
    fn next(&self, part: Option<WindowPart>, after: impl Into<Expr>) -> Expr {
        let (role, column) = (WINDOW.into(), self.column());
        ExprNode::NextRecord { role, column, part, after: Box::new(after.into()) }.into()
    }

    /// Returns a test whether a `by` is better than that of the record at a place, if the events are compared.
    fn is_better(&self, by: Expr, place: &str) -> Option<Expr> {
        let ty = ColumnType::required(self.by.as_ref()?.1.ty);
        let best = || self.field(place, 0, ty);
        let better = if self.which == Which::Least { by.lt(best()) } else { by.gt(best()) };
        // A NaN is better than nothing only.
        Some(if ty.ty == Type::Float { best().ne(best()).or(better) } else { better })
    }

    fn add(&self, place: &str, slide: &Value) -> Vec<Stmt> {
        let values = self.by.iter().chain(&self.values).map(|(value, _)| value.clone()).collect();
        let put = add(WINDOW, &self.column(), ExprNode::Pack(values).into());
        if self.which == Which::Last {
            return vec![put];
        }
        let of_slice = assign(place, self.next(Some(WindowPart::Span(slide.clone())), -1));
        let is_first = local(place).lt(0);
        let Some((by, ty)) = &self.by else { return vec![of_slice, when(is_first, vec![put])] };
        let better = self.is_better(by.clone(), place).expect("it is compared");
        let compared = vec![of_slice, when(any([is_first, better]), vec![put])];
        if ty.nullable { vec![when(!by.clone().is_null(), compared)] } else { compared }
    }

    fn choose(&self, number: usize) -> Vec<Stmt> {
        let place = place(number);
        let oldest = assign(&place, self.next(None, -1));
        if self.which == Which::First {
            return vec![oldest];
        }
        let other = format!("{place}_other");
        let take = assign(&place, local(&other));
        let ty = self.by.as_ref().map_or(Type::Null.into(), |(_, ty)| ColumnType::required(ty.ty));
        let take = match self.is_better(self.field(&other, 0, ty), &place) {
            Some(better) => when(better, vec![take]),
            None => take,
        };
        let round = vec![
            assign(&other, self.next(None, local(&other))),
            when(local(&other).lt(0), vec![stmt(StmtNode::Break)]),
            take,
        ];
        let variable = format!("{place}_round");
        let rounds = StmtNode::ForRange { variable, start: 0.into(), stop: ROUNDS.into(), step: 1, body: round };
        vec![oldest, assign(&other, local(&place)), stmt(rounds)]
    }
}
