//! Aggregates that users write, of windows over streams.
//!
//! The state of an aggregate is columns of the group's row. Where a row stands for one window, they hold the state of that. In
//! sliding windows they hold that of the newest slice, and the row has the state of each slice as a record
//! ([`crate::Keep::Latest`]). When a window closes, the states of its slices are merged in locals, the oldest first.
//!
//! A state that is merged must not depend on how events fall into slices, so it has no sums of floats: they round.

use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::picks::ROUNDS;
use super::rewrite;
use super::writing::{WINDOW, add, assign, column, set, stmt, when};
use crate::build::{cell, if_else, local};
use crate::{ColumnDef, Expr, ExprNode, Function, OwnDef, Stmt, StmtNode, WindowDef, WindowPart};
use tidemill_model::{ColumnType, Type, Value, format_decimal};

/// The name of the later state in the body of a merge.
const LATER: &str = "later";

/// The aggregates of a window.
pub(super) struct Owns<'a> {
    list: &'a [OwnDef],
    /// Length and slide of sliding windows.
    slices: Option<(Value, Value)>,
    /// A flag: whether a window may be without events.
    may_be_empty: bool,
}

impl<'a> Owns<'a> {
    pub fn of(list: &'a [OwnDef], slices: Option<(Value, Value)>, may_be_empty: bool) -> Checked<Owns<'a>> {
        check_unique("aggregate", list.iter().map(|def| def.name.as_str()))?;
        list.iter().try_for_each(|def| check(def, slices.is_some()))?;
        Ok(Owns { list, slices, may_be_empty })
    }

    /// Returns the columns of the states, and of their records.
    pub fn columns(&self) -> Vec<ColumnDef> {
        let mut columns = Vec::new();
        for def in self.list {
            columns.extend(def.state.iter().map(|of| ColumnDef { name: column_of(def, &of.name), ..of.clone() }));
            columns.extend(self.slices.as_ref().map(|(span, slide)| ColumnDef {
                window: Some(WindowDef::Latest { span: span.clone(), slide: Some(slide.clone()) }),
                ..column(&records(def), Type::Bytes, false, None)
            }));
        }
        columns
    }

    /// Returns the statements that add an event.
    pub fn adds(&self) -> Checked<Vec<Stmt>> {
        let mut body = Vec::new();
        for (number, def) in self.list.iter().enumerate() {
            if let Some((_, slide)) = &self.slices {
                let place = format!("__slice{number}");
                body.push(assign(&place, next(def, Some(WindowPart::Span(slide.clone())), -1)));
                let reset = def.state.iter().map(|of| set(WINDOW, &column_of(def, &of.name), default(of)));
                body.push(when(local(&place).lt(0), reset.collect()));
            }
            let own = |name: &str| Some(cell(WINDOW, column_of(def, name)).node);
            let put = |name: &str, value| StmtNode::Set { role: WINDOW.into(), column: column_of(def, name), value };
            body.extend(placed(&def.add, &|role, name| (role == def.name).then(|| own(name))?, &put, def)?);
            if self.slices.is_some() {
                let state = def.state.iter().map(|of| cell(WINDOW, column_of(def, &of.name)));
                body.push(add(WINDOW, &records(def), ExprNode::Pack(state.collect()).into()));
            }
        }
        Ok(body)
    }

    /// Returns the statements before those of the function: they merge the states of the slices of sliding windows.
    pub fn merges(&self) -> Checked<Vec<Stmt>> {
        let mut body = Vec::new();
        if self.slices.is_none() {
            return Ok(body);
        }
        for (number, def) in self.list.iter().enumerate() {
            let place = format!("__slice{number}");
            let fields = || def.state.iter().enumerate();
            let field = |at: usize, ty: ColumnType| {
                let (role, column, of) = (WINDOW.into(), records(def), def.state.len());
                ExprNode::RecordField { role, column, at: Box::new(local(&place)), of, field: at, ty }
            };
            body.push(assign(&place, next(def, None, -1)));
            let oldest = |(at, of): (usize, &ColumnDef)| match self.may_be_empty {
                true => if_else(local(&place).lt(0), default(of), Expr::from(field(at, of.ty))),
                false => field(at, of.ty).into(),
            };
            body.extend(fields().map(|(at, of)| assign(&state_of(number, &of.name), oldest((at, of)))));
            let of = |role: &str, name: &str| {
                let at = def.state.iter().position(|of| of.name == name)?;
                match role {
                    LATER => Some(field(at, def.state[at].ty)),
                    _ if role == def.name => Some(ExprNode::Local(state_of(number, name))),
                    _ => None,
                }
            };
            let put = |name: &str, value: Expr| {
                let of = def.state.iter().find(|of| of.name == *name).expect("it is known");
                let (span, target) = (value.span, format!("{}.{name}", def.name));
                let node = ExprNode::Fitted { value: Box::new(value), ty: of.ty, target };
                StmtNode::Assign { name: state_of(number, name), value: Expr { node, span } }
            };
            let mut round = vec![
                assign(
                    &place,
                    ExprNode::NextRecord {
                        role: WINDOW.into(),
                        column: records(def),
                        part: None,
                        after: Box::new(local(&place)),
                    }
                    .into(),
                ),
                when(local(&place).lt(0), vec![stmt(StmtNode::Break)]),
            ];
            round.extend(placed(def.merge.as_deref().unwrap_or_default(), &of, &put, def)?);
            let variable = format!("{place}_round");
            body.push(stmt(StmtNode::ForRange {
                variable,
                start: 0.into(),
                stop: ROUNDS.into(),
                step: 1,
                body: round,
            }));
        }
        Ok(body)
    }

    /// Returns the names of the states in generated statements, with the names that users have for them.
    pub fn words(&self) -> Words {
        let mut list = Vec::new();
        for (number, def) in self.list.iter().enumerate() {
            for (at, of) in def.state.iter().enumerate() {
                let own = format!("{}.{}", def.name, of.name);
                let later = format!("{WINDOW}.{}[__slice{number}].{at}", records(def));
                list.push((format!("{WINDOW}.{}", column_of(def, &of.name)), own.clone()));
                list.push((state_of(number, &of.name), own));
                list.push((later, format!("{LATER}.{}", of.name)));
            }
        }
        Words(list)
    }

    /// Returns the function, which reads states as the columns of roles.
    pub fn read(&self, function: &[Stmt]) -> Vec<Stmt> {
        rewrite::block(function, &mut |expr| {
            let ExprNode::Cell { role, column } = &expr.node else { return None };
            let number = self.list.iter().position(|def| def.name == *role)?;
            Some(match self.slices {
                Some(_) => ExprNode::Local(state_of(number, column)),
                None => cell(WINDOW, column_of(&self.list[number], column)).node,
            })
        })
    }
}

/// Names of states, as they are and as users know them.
#[derive(Default)]
pub(super) struct Words(Vec<(String, String)>);

impl Words {
    /// Returns a text with the names that users know.
    pub fn say(&self, text: &str) -> String {
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut said = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let begins = !said.ends_with(|c: char| is_of_name(c) || c == '.');
            let found =
                self.0.iter().filter(|_| begins).find(|(name, _)| {
                    rest.strip_prefix(name.as_str()).is_some_and(|after| !after.starts_with(is_of_name))
                });
            match found {
                Some((name, word)) => {
                    said.push_str(word);
                    rest = &rest[name.len()..];
                }
                None => {
                    said.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        said
    }
}

fn check(def: &OwnDef, slides: bool) -> Checked<()> {
    let name = &def.name;
    check_identifier("aggregate", name)?;
    if name == LATER {
        return Err(Fault::new(format!("an aggregate is called '{LATER}'")).hint("give it another name"));
    }
    check_unique("state", def.state.iter().map(|of| of.name.as_str()))?;
    for of in &def.state {
        if of.key || of.window.is_some() || of.default.is_none() && !of.ty.nullable {
            return Err(Fault::new(format!("{name}.{} has no value to begin with", of.name))
                .hint(format!("write {}: int = 0", of.name)));
        }
    }
    if slides && def.merge.is_none() {
        return Err(Fault::new(format!(
            "windows that slide share their slices, but {name} does not say how they are merged"
        ))
        .hint("give it a merge(self, later), or take tumbling windows"));
    }
    if let Some(merge) = &def.merge {
        let mut floats = Floats { def, locals: Vec::new(), wrong: None };
        // Until no local is new that depends on one.
        loop {
            let known = floats.locals.len();
            floats.block(&def.add);
            floats.block(merge);
            if floats.locals.len() == known {
                break;
            }
        }
        if let Some(fault) = floats.wrong {
            return Err(fault);
        }
    }
    Ok(())
}

/// Looks for arithmetic on the floats of a state.
struct Floats<'a> {
    def: &'a OwnDef,
    /// The locals whose value depends on such floats.
    locals: Vec<&'a str>,
    wrong: Option<Fault>,
}

impl<'a> Floats<'a> {
    fn block(&mut self, block: &'a [Stmt]) {
        for statement in block {
            for expr in statement.expressions() {
                self.expression(expr);
            }
            if let StmtNode::Assign { name, value } = &statement.node
                && self.depends(value)
                && !self.locals.contains(&name.as_str())
            {
                self.locals.push(name);
            }
            statement.blocks().into_iter().for_each(|inner| self.block(inner));
        }
    }

    fn expression(&mut self, expr: &'a Expr) {
        let computes = matches!(expr.node, ExprNode::Binary { .. });
        if computes && expr.children().into_iter().any(|operand| self.depends(operand)) {
            let name = &self.def.name;
            self.wrong = self.wrong.take().or(Some(
                Fault::new(format!("{name} computes with a float of its state: merged, it would round otherwise"))
                    .hint("ask the window for the sum or mean, which are exact; or use a Decimal; or leave out merge")
                    .at(expr.span),
            ));
        }
        expr.children().into_iter().for_each(|operand| self.expression(operand));
    }

    fn depends(&self, expr: &Expr) -> bool {
        match &expr.node {
            ExprNode::Cell { role, column } => {
                let is_float = |of: &ColumnDef| of.name == *column && of.ty.ty == Type::Float;
                (*role == self.def.name || role == LATER) && self.def.state.iter().any(is_float)
            }
            ExprNode::Local(name) => self.locals.contains(&name.as_str()),
            // A comparison tells of it, and does not round.
            ExprNode::Compare { .. } | ExprNode::IsNull(_) => false,
            _ => expr.children().into_iter().any(|operand| self.depends(operand)),
        }
    }
}

/// Returns a body of an aggregate, with what stands for its states.
fn placed(
    body: &[Stmt],
    of: &dyn Fn(&str, &str) -> Option<ExprNode>,
    put: &dyn Fn(&str, Expr) -> StmtNode,
    def: &OwnDef,
) -> Checked<Vec<Stmt>> {
    let mut unknown = None;
    let body = rewrite::block(body, &mut |expr| {
        let ExprNode::Cell { role, column } = &expr.node else { return None };
        let is_state = def.state.iter().any(|of| of.name == *column);
        if !is_state && unknown.is_none() {
            unknown = Some(no_state(def, column).at(expr.span));
        }
        of(role, column)
    });
    unknown.map_or(Ok(()), Err)?;
    statements(body, put, def)
}

fn no_state(def: &OwnDef, name: &str) -> Fault {
    Fault::unknown("state", name, def.state.iter().map(|of| of.name.as_str()))
}

fn statements(body: Vec<Stmt>, put: &dyn Fn(&str, Expr) -> StmtNode, def: &OwnDef) -> Checked<Vec<Stmt>> {
    body.into_iter().map(|stmt| statement(stmt, put, def)).collect()
}

fn statement(of: Stmt, put: &dyn Fn(&str, Expr) -> StmtNode, def: &OwnDef) -> Checked<Stmt> {
    let Stmt { node, span } = of;
    let inner = |body| statements(body, put, def);
    let node = match node {
        StmtNode::Set { role, column, value } if role == def.name => match def.state.iter().any(|of| of.name == column)
        {
            true => put(&column, value),
            false => return Err(no_state(def, &column).at(span)),
        },
        StmtNode::If { condition, then, otherwise } => {
            StmtNode::If { condition, then: inner(then)?, otherwise: inner(otherwise)? }
        }
        StmtNode::ForEach { variable, list, body } => StmtNode::ForEach { variable, list, body: inner(body)? },
        StmtNode::ForRange { variable, start, stop, step, body } => {
            StmtNode::ForRange { variable, start, stop, step, body: inner(body)? }
        }
        node @ (StmtNode::Assign { .. }
        | StmtNode::Break
        | StmtNode::Continue
        | StmtNode::Require { .. }
        | StmtNode::Abort { .. }) => node,
        _ => {
            return Err(Fault::new(format!("{} does something else than to set its state", def.name))
                .hint("set what it has: self.total = ...")
                .at(span));
        }
    };
    Ok(Stmt { node, span })
}

fn next(def: &OwnDef, part: Option<WindowPart>, after: i64) -> Expr {
    let (role, column) = (WINDOW.into(), records(def));
    ExprNode::NextRecord { role, column, part, after: Box::new(after.into()) }.into()
}

fn column_of(def: &OwnDef, name: &str) -> String {
    format!("{}__{name}", def.name)
}

/// Returns the column of records. Its name says what they hold, so that a state does not fit a program which keeps
/// something else.
fn records(def: &OwnDef) -> String {
    let mut name = format!("{}__of", def.name);
    for of in &def.state {
        let text = format!("_{} {}", of.name, of.ty);
        name.extend(text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }));
    }
    name
}

fn state_of(number: usize, name: &str) -> String {
    format!("__own{number}_{name}")
}

/// Returns the value that a state begins with.
fn default(of: &ColumnDef) -> Expr {
    let value = of.default.clone().unwrap_or(Value::Null);
    let text = match (of.ty.ty, value) {
        (Type::Decimal { .. }, Value::Str(text)) => text,
        (Type::Decimal { scale, .. }, Value::Decimal(units)) => format_decimal(units, scale),
        (_, value) => return value.into(),
    };
    Expr::from(Value::Str(text)).call(Function::Decimal, [])
}
