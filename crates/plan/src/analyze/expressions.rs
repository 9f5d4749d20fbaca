//! Typing of expressions. Each comes out with every conversion and every check explicit.

use super::coerce::constant;
use super::fault::{Checked, Fault};
use super::scope::Scope;
use super::types::join;
use crate::program::{Expr as Typed, Node};
use crate::{Expr, ExprNode, UnaryOp};
use tidemill_model::{ColumnType, Field, FieldType, Type, Value};

/// Returns a typed truth value.
pub(super) fn boolean(node: Node) -> Typed {
    Typed { ty: Type::Bool.into(), node }
}

/// Most conditions that are joined one after the other.
pub(crate) const CHAIN_MAX: usize = 8;

/// Conditions joined by `and` or `or`, evaluated from left to right; none of none. Many are joined in pairs, pairs of
/// pairs and so on, which is evaluated in the same order and is not as deep as they are many.
pub(super) fn joined(parts: Vec<Typed>, operation: &dyn Fn(Box<Typed>, Box<Typed>) -> Node) -> Option<Typed> {
    let join = |left, right| boolean(operation(Box::new(left), Box::new(right)));
    let mut level = parts;
    while level.len() > CHAIN_MAX {
        let mut rest = level.into_iter();
        let mut next = Vec::new();
        while let Some(left) = rest.next() {
            next.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        level = next;
    }
    level.into_iter().reduce(join)
}

impl Scope<'_> {
    /// Types any expression. A fault is placed at the innermost expression that has a place.
    pub fn expression(&mut self, expr: &Expr) -> Checked<Typed> {
        self.node(expr).map_err(|fault| fault.at(expr.span))
    }

    fn node(&mut self, expr: &Expr) -> Checked<Typed> {
        match &expr.node {
            ExprNode::Literal(value) => literal(value),
            ExprNode::Local(name) => self.local(name),
            ExprNode::Event(name) => self.event_field(name),
            ExprNode::Element { variable, field } => self.element(variable, field),
            ExprNode::Cell { role, column } => self.cell(role, column),
            ExprNode::Window { role, column, part, aggregate } => {
                self.window(expr, role, column, part.as_ref(), *aggregate)
            }
            ExprNode::Synopsis { role, column, ask, argument } => self.synopsis(role, column, *ask, argument),
            ExprNode::NextRecord { role, column, part, after } => self.next_record(role, column, part.as_ref(), after),
            ExprNode::RecordField { role, column, at, of, field, ty } => {
                self.record_field(role, column, at, (*of, *field), *ty)
            }
            ExprNode::Pack(values) => self.pack(values),
            ExprNode::Exists(role) => self.exists(role),
            ExprNode::Rows(role) => self.rows(role),
            ExprNode::Unary { op: UnaryOp::Neg, value } => self.negate(expr, value),
            ExprNode::Unary { op: UnaryOp::Not, value } => Ok(not(self.condition(value)?)),
            ExprNode::Binary { op, left, right } => self.binary(expr, *op, left, right),
            ExprNode::Compare { op, left, right } => self.compare(expr, *op, left, right),
            ExprNode::All(parts) => self.connect(parts, true, Node::And),
            ExprNode::Any(parts) => self.connect(parts, false, Node::Or),
            ExprNode::IfElse { condition, then, otherwise } => self.if_else(condition, then, otherwise),
            ExprNode::IsNull(value) => self.is_null(value),
            ExprNode::OrZero(value) => self.or_zero(value),
            ExprNode::Period { edge, periods, time } => self.period(expr, *edge, periods, time),
            ExprNode::DatePart { part, zone, time } => self.date_part(expr, *part, zone, time),
            ExprNode::Fitted { value, ty, target } => {
                let typed = self.expression(value)?;
                self.store(typed, *ty, value, target)
            }
            ExprNode::In { value, options } => self.one_of(expr, value, options),
            ExprNode::Call { function, arguments } => self.call(expr, *function, arguments),
            ExprNode::Length(name) => self.length(name),
            ExprNode::Place if self.has_places => Ok(Typed { ty: Type::Int.into(), node: Node::Place }),
            ExprNode::Place => Err(Fault::new("the events have no places")),
            ExprNode::Aggregate { .. } => Err(Fault::new(format!("{expr} is asked for outside of a window"))
                .hint("only the function of a window can ask for aggregates of its events")),
        }
    }

    /// Returns a non-null `Bool`.
    pub fn condition(&mut self, expr: &Expr) -> Checked<Typed> {
        let value = self.expression(expr)?;
        let hint = match value.ty.ty {
            Type::Bool => return Ok(self.unwrap(value, expr)),
            _ if value.ty.nullable => format!("write `{expr} is not None`"),
            Type::Int | Type::Float | Type::Decimal { .. } => format!("write `{expr} != 0`"),
            Type::Str | Type::Bytes => format!("write `len({expr}) > 0`"),
            _ => String::new(),
        };
        Err(Fault::new(format!("{expr} is {}, not a condition", value.ty)).hint(hint).at(expr.span))
    }

    fn connect(
        &mut self,
        parts: &[Expr],
        neutral: bool,
        operation: impl Fn(Box<Typed>, Box<Typed>) -> Node,
    ) -> Checked<Typed> {
        let parts = parts.iter().map(|part| self.condition(part)).collect::<Checked<Vec<Typed>>>()?;
        Ok(joined(parts, &operation).unwrap_or_else(|| constant(Type::Bool, Value::Bool(neutral))))
    }

    fn if_else(&mut self, condition: &Expr, then: &Expr, otherwise: &Expr) -> Checked<Typed> {
        let test = self.condition(condition)?;
        let (a, b) = (self.expression(then)?, self.expression(otherwise)?);
        let Some(ty) = join(a.ty, b.ty) else {
            return Err(Fault::new(format!("{then} is {} but {otherwise} is {}", a.ty, b.ty)));
        };
        if ty.ty == Type::Null {
            return Err(Fault::new("both branches are None"));
        }
        let then = Box::new(self.align(a, ty.ty, then));
        let otherwise = Box::new(self.align(b, ty.ty, otherwise));
        Ok(Typed { ty, node: Node::IfElse { condition: Box::new(test), then, otherwise } })
    }

    /// Types `len(ev.name)` of a list, or of a text where the front end does not know the schema.
    pub fn length(&mut self, name: &str) -> Checked<Typed> {
        if let (index, Field { ty: FieldType::Scalar(ty), .. }) = self.field(name)? {
            if !ty.ty.is_bytes() {
                return Err(Fault::new(format!("ev.{name} is {ty}, which has no length")));
            }
            let field = Typed { ty: *ty, node: Node::Field(index) };
            let present = self.unwrap(field, &ExprNode::Event(name.into()).into());
            return Ok(Typed { ty: Type::Int.into(), node: Node::Len(Box::new(present)) });
        }
        let (index, _) = self.open_list(name)?;
        Ok(Typed { ty: Type::Int.into(), node: Node::Length(index) })
    }
}

/// Returns the logical negation, with double negation taken away.
pub(super) fn not(value: Typed) -> Typed {
    match value.node {
        Node::Not(inner) => *inner,
        Node::Equal { left, right, negated } => boolean(Node::Equal { left, right, negated: !negated }),
        _ => boolean(Node::Not(Box::new(value))),
    }
}

fn literal(value: &Value) -> Checked<Typed> {
    let ty = match value {
        Value::Null => ColumnType::optional(Type::Null),
        Value::Bool(_) => Type::Bool.into(),
        Value::Int(_) => Type::Int.into(),
        Value::Float(_) => Type::Float.into(),
        Value::Time(_) => Type::Time.into(),
        Value::Duration(_) => Type::Duration.into(),
        Value::Str(_) => Type::Str.into(),
        Value::Bytes(_) => Type::Bytes.into(),
        Value::Decimal(_) => {
            return Err(Fault::new("a decimal literal has no scale").hint("write Decimal('1.50')"));
        }
        Value::List(_) => return Err(Fault::new("a list is no expression")),
    };
    Ok(constant(ty, value.clone()))
}
