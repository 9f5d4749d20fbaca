//! The counting of steps and bytes against the limits ([`crate::Limits`]) in bodies, filters and maps.
//!
//! A pass over what is typed. It puts a [`Stmt::Count`] or a [`Node::Counted`] wherever an event could make a program
//! run, read or make without bound; `docs/formalism.md` has the rules. What an event cannot inflate by more than a
//! small factor is not counted: most bodies come out as they went in.

use super::reasons::Reasons;
use crate::limits::LIMIT_MAX;
use crate::program::{Count, Expr, Measure, Node, OutputField, Stmt};
use crate::{Cast, LoopId, ReasonId, TextCall, Transaction};
use tidemill_model::{Type, Value};

/// The reason of a transaction that takes too many steps.
const TOO_MANY_STEPS: &str = "too many steps";
/// The reason of a transaction that makes too much.
pub(super) const TOO_MUCH_MEMORY: &str = "too much memory";

/// Most rounds of a range with constant bounds and no loop inside that are not counted.
const FREE_ROUNDS_MAX: i128 = 100;
/// Most rounds that are counted at once: their number is added to a sum of 64 bits.
const ROUNDS_AT_ONCE_MAX: i128 = 1 << 40;
const _: () = assert!(ROUNDS_AT_ONCE_MAX + (LIMIT_MAX as i128) < i64::MAX as i128, "a sum does not overflow");
/// Most fields and constants of a text put together outside of loops that is not counted.
const FREE_PARTS_MAX: usize = 16;
/// The bytes that an event emitted in a loop takes beside its texts and lists.
const EMISSION_BYTES: i64 = 256;
/// The bytes that a value added to a window in a loop takes beside its text: at most two entries of a slice of floats.
const WINDOW_ENTRY_BYTES: i64 = 112;

/// Counts in a transaction's body.
pub(super) fn count_body(body: &mut Vec<Stmt>, reasons: &mut Reasons) {
    Counter { reasons, around: Around::Nothing, innermost: None }.block(body);
}

/// Counts in the expression of a filter or map.
pub(super) fn count_expression(expr: &mut Expr, reasons: &mut Reasons) {
    Counter { reasons, around: Around::Nothing, innermost: None }.expression(expr);
}

/// Counts in the fields of a map.
pub(super) fn count_fields(fields: &mut [OutputField], reasons: &mut Reasons) {
    Counter { reasons, around: Around::Nothing, innermost: None }.fields(fields);
}

/// Takes the counts out of a body that must not abort.
pub(super) fn uncount(body: &mut Vec<Stmt>) {
    super::position::each_mut(body, &mut |block| {
        block.retain(|stmt| !matches!(stmt, Stmt::Count { .. }));
        for expr in block.iter_mut().flat_map(Stmt::expressions_mut) {
            expr.each_mut(&mut |expr| {
                while let Node::Counted { value, .. } = &mut expr.node {
                    *expr = std::mem::replace(&mut **value, Expr { ty: expr.ty, node: Node::Local(0) });
                }
            });
        }
    });
}

impl Transaction {
    /// Returns the number of points of the body that count texts.
    pub(crate) fn counted_points(&self) -> usize {
        let mut points = 0;
        self.body.iter().for_each(|stmt| {
            stmt.each(&mut |inner| {
                inner.expressions().into_iter().for_each(|expr| {
                    expr.each(&mut |e| points += usize::from(matches!(e.node, Node::Counted { .. })));
                });
            });
        });
        points
    }
}

/// The loops around a statement.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    Nothing,
    /// Loops whose rounds the event or the program bounds.
    Free,
    /// One whose rounds are counted, at least.
    Counted,
}

struct Counter<'a> {
    reasons: &'a mut Reasons,
    around: Around,
    /// The innermost loop, where it is over a list.
    innermost: Option<LoopId>,
}

impl Counter<'_> {
    fn count(&mut self, count: Count) -> Stmt {
        let reason = match count {
            Count::Steps(_) => self.reasons.id(TOO_MANY_STEPS),
            Count::Memory(_) | Count::Text(_) | Count::List(_) => self.reasons.id(TOO_MUCH_MEMORY),
        };
        Stmt::Count { count, reason }
    }

    fn block(&mut self, block: &mut Vec<Stmt>) {
        for mut stmt in std::mem::take(block) {
            self.before(&stmt, block);
            if self.statement(&mut stmt) {
                block.extend(at_once(&mut stmt));
            }
            block.push(stmt);
        }
    }

    /// Inserts what is counted before a statement.
    fn before(&mut self, stmt: &Stmt, block: &mut Vec<Stmt>) {
        let is_write = matches!(stmt, Stmt::Set { .. } | Stmt::Insert { .. } | Stmt::Delete { .. });
        if is_write && self.around == Around::Counted {
            block.push(self.count(Count::Steps(1)));
        }
        if self.around == Around::Nothing {
            return;
        }
        match stmt {
            Stmt::Set { value, .. } if matches!(value.node, Node::WindowAdd { .. }) => {
                block.push(self.count(Count::Memory(WINDOW_ENTRY_BYTES)));
            }
            Stmt::Emit { fields, .. } => {
                block.push(self.count(Count::Memory(EMISSION_BYTES)));
                for field in fields {
                    let count = match field {
                        OutputField::List(list) => Count::List(*list),
                        OutputField::Value(Expr { node: Node::Field(text), ty }) if ty.ty.is_bytes() => {
                            Count::Text(*text)
                        }
                        OutputField::Value(_) => continue,
                    };
                    block.push(self.count(count));
                }
            }
            _ => {}
        }
    }

    /// Counts within a statement; whether it is a loop whose rounds are counted, each first of all.
    fn statement(&mut self, stmt: &mut Stmt) -> bool {
        let is_counted = match stmt {
            Stmt::ForEach { .. } => self.around != Around::Nothing,
            Stmt::ForRange { .. } => !is_free_range(stmt),
            _ => false,
        };
        stmt.expressions_mut().into_iter().for_each(|expr| self.expression(expr));
        match stmt {
            Stmt::ForEach { loop_id, body } => self.rounds(Some(*loop_id), body, is_counted),
            Stmt::ForRange { body, .. } => self.rounds(None, body, is_counted),
            Stmt::If { then, otherwise, .. } => {
                self.block(then);
                self.block(otherwise);
            }
            _ if self.around == Around::Nothing => {}
            // A row or an emitted event keeps a copy, which is counted as made.
            Stmt::Set { value: Expr { node: Node::WindowAdd { value, .. }, .. }, .. } if value.ty.ty.is_bytes() => {
                self.made(value);
            }
            Stmt::Set { value: Expr { node: Node::WindowAdd { .. }, .. }, .. } => {}
            Stmt::Set { value, .. } if value.ty.ty.is_bytes() => self.made(value),
            Stmt::Insert { values, .. } => {
                values.iter_mut().filter(|(_, value)| value.ty.ty.is_bytes()).for_each(|(_, value)| self.made(value));
            }
            Stmt::Emit { fields, .. } => {
                for field in fields {
                    match field {
                        OutputField::Value(Expr { node: Node::Field(_), .. }) | OutputField::List(_) => {}
                        OutputField::Value(value) if value.ty.ty.is_bytes() => self.made(value),
                        OutputField::Value(_) => {}
                    }
                }
            }
            _ => {}
        }
        is_counted
    }

    /// Counts the steps of a loop's body, and a step for each round if `is_counted`.
    fn rounds(&mut self, list: Option<LoopId>, body: &mut Vec<Stmt>, is_counted: bool) {
        let (outside, outer) = (self.around, std::mem::replace(&mut self.innermost, list));
        self.around = if is_counted || outside == Around::Counted { Around::Counted } else { Around::Free };
        self.block(body);
        (self.around, self.innermost) = (outside, outer);
        if is_counted {
            body.insert(0, self.count(Count::Steps(1)));
        }
    }

    fn fields(&mut self, fields: &mut [OutputField]) {
        for field in fields {
            if let OutputField::Value(value) = field {
                self.expression(value);
            }
        }
    }

    fn expression(&mut self, expr: &mut Expr) {
        expr.children_mut().into_iter().for_each(|child| self.expression(child));
        if self.around != Around::Nothing {
            self.operands(expr);
        }
        let is_made = match &expr.node {
            Node::TextCall { op, arguments, .. } if op.may_grow(arguments) => true,
            Node::Concat(..) | Node::Text { .. } | Node::TextCall { op: TextCall::Replace | TextCall::Zfill, .. } => {
                self.around != Around::Nothing || !is_small(expr)
            }
            Node::Cast { cast: Cast::IntToStr | Cast::DecimalToStr { .. }, .. } => self.around != Around::Nothing,
            _ => false,
        };
        if is_made {
            self.made(expr);
        }
    }

    /// Counts what an operation in a loop is about to read of its operands.
    fn operands(&mut self, expr: &mut Expr) {
        let innermost = self.innermost;
        let is_bounded = |operand: &Expr| is_bounded(operand, innermost);
        let read: Vec<&mut Expr> = match &mut expr.node {
            // No more is read than the shorter one has.
            Node::Compare { left, right, .. } | Node::Equal { left, right, .. } => {
                if is_bounded(left) || is_bounded(right) { vec![] } else { vec![&mut **left] }
            }
            Node::TextTest { left, right, .. } => vec![left, right],
            Node::TextCall { arguments, .. } => arguments.iter_mut().collect(),
            Node::Len(value) if value.ty.ty == Type::Str => vec![value],
            Node::Text { value, .. } | Node::Cast { cast: Cast::StrToInt | Cast::StrToFloat, value, .. } => vec![value],
            Node::WindowAdd { cell, .. } | Node::WindowRead { cell, .. } | Node::SynopsisRead { cell, .. } => {
                vec![cell]
            }
            _ => vec![],
        };
        for operand in read.into_iter().filter(|operand| operand.ty.ty.is_bytes() && !is_bounded(operand)) {
            let reason = self.reasons.id(TOO_MANY_STEPS);
            wrap(operand, Measure::Read, reason);
        }
    }

    fn made(&mut self, expr: &mut Expr) {
        let reason = self.reasons.id(TOO_MUCH_MEMORY);
        wrap(expr, Measure::Made, reason);
    }
}

fn wrap(expr: &mut Expr, measure: Measure, reason: ReasonId) {
    let ty = expr.ty;
    let value = std::mem::replace(expr, Expr { ty, node: Node::Const(Value::Null) });
    expr.node = Node::Counted { measure, value: Box::new(value), reason };
}

/// Takes the count of a round out of a loop that has one, for all rounds to be counted at once before it. None where
/// their number is not known beforehand, as the loop is not a range with constant bounds or a round may leave it; or
/// where a round counts more than itself.
///
/// So an operation that performs a part of the transaction counts the loop without running it again.
fn at_once(stmt: &mut Stmt) -> Option<Stmt> {
    let rounds = constant_rounds(stmt).filter(|rounds| *rounds <= ROUNDS_AT_ONCE_MAX)?;
    let Stmt::ForRange { body, .. } = stmt else { return None };
    let Some(&Stmt::Count { count: Count::Steps(1), reason }) = body.first() else {
        panic!("a round that is counted begins with its count")
    };
    let mut is_plain = true;
    body[1..].iter().for_each(|inner| {
        inner.each(&mut |s| {
            is_plain &= !matches!(s, Stmt::Count { .. } | Stmt::Break | Stmt::Return { .. });
            s.expressions().into_iter().for_each(|expr| {
                expr.each(&mut |e| is_plain &= !matches!(e.node, Node::Counted { .. }));
            });
        });
    });
    is_plain.then(|| {
        body.remove(0);
        Stmt::Count { count: Count::Steps(rounds as i64), reason }
    })
}

/// Returns the rounds of a range with constant bounds, if none leaves it.
fn constant_rounds(stmt: &Stmt) -> Option<i128> {
    let Stmt::ForRange { start, stop, step, .. } = stmt else { return None };
    let (Node::Const(start), Node::Const(stop)) = (&start.node, &stop.node) else { return None };
    let distance = (i128::from(stop.word()?) - i128::from(start.word()?)) * i128::from(step.signum());
    let step = i128::from(step.unsigned_abs());
    Some((distance.max(0) + step - 1) / step)
}

/// Returns whether a range has few rounds whatever the event says, and no loop inside.
fn is_free_range(stmt: &Stmt) -> bool {
    let mut has_loop = false;
    stmt.blocks().into_iter().flatten().for_each(|inner| {
        inner.each(&mut |s| has_loop |= matches!(s, Stmt::ForEach { .. } | Stmt::ForRange { .. }));
    });
    !has_loop && constant_rounds(stmt).is_some_and(|rounds| rounds <= FREE_ROUNDS_MAX)
}

/// Returns whether all rounds of the innermost loop together read no more of it than the event or the program has: a
/// constant, or a field of the element that the round is on.
fn is_bounded(expr: &Expr, innermost: Option<LoopId>) -> bool {
    match expr.node {
        Node::Const(_) => true,
        Node::Element { loop_id, .. } => Some(loop_id) == innermost,
        _ => false,
    }
}

/// Returns whether a text is put together from few fields of the event and constants, and nothing else.
fn is_small(expr: &Expr) -> bool {
    let (mut parts, mut is_of_event) = (0, true);
    expr.each(&mut |inner| match inner.node {
        Node::Const(_) | Node::Field(_) => parts += 1,
        // They may hold a text that has grown event by event, or round by round.
        Node::Cell { .. } | Node::Local(_) => is_of_event = false,
        _ => {}
    });
    is_of_event && parts <= FREE_PARTS_MAX
}
