//! Typing of comparisons.

use super::coerce::constant;
use super::expressions::{boolean, joined, not};
use super::fault::{Checked, Fault};
use super::scope::Scope;
use super::types::join;
use crate::program::{Expr as Typed, Node};
use crate::{CompareOp, Expr};
use tidemill_model::{ColumnType, Type, Value};

impl Scope<'_> {
    /// Types `left op right`, written as `surface`.
    pub fn compare(&mut self, surface: &Expr, op: CompareOp, left: &Expr, right: &Expr) -> Checked<Typed> {
        let (l, r) = (self.expression(left)?, self.expression(right)?);
        let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        if l.ty.ty == Type::Null || r.ty.ty == Type::Null {
            if !equality {
                return Err(Fault::new(format!("None has no order, in {surface}")));
            }
            let null = self.null_test(if l.ty.ty == Type::Null { r } else { l });
            return Ok(if op == CompareOp::Eq { null } else { not(null) });
        }
        let Some(ty) = join(l.ty, r.ty) else { return Err(refuse(&l, &r, surface, left, right)) };
        let (l, r) = if equality { (l, r) } else { (self.unwrap(l, left), self.unwrap(r, right)) };
        let l = Box::new(self.align(l, ty.ty, surface));
        let r = Box::new(self.align(r, ty.ty, surface));
        Ok(boolean(match l.ty.nullable || r.ty.nullable {
            true => Node::Equal { left: l, right: r, negated: op == CompareOp::Ne },
            false => Node::Compare { op, left: l, right: r },
        }))
    }

    /// Types `value is None`.
    pub fn is_null(&mut self, value: &Expr) -> Checked<Typed> {
        let value = self.expression(value)?;
        Ok(self.null_test(value))
    }

    /// Returns a test whether a typed value is null. One that never is still has to be evaluated: it may fail.
    fn null_test(&mut self, value: Typed) -> Typed {
        if value.ty.nullable {
            return match value.node {
                Node::Const(_) => constant(Type::Bool, Value::Bool(true)),
                _ => boolean(Node::IsNull(Box::new(value))),
            };
        }
        if matches!(value.node, Node::Field(_) | Node::Element { .. } | Node::Local(_) | Node::Const(_)) {
            return constant(Type::Bool, Value::Bool(false));
        }
        let ty = ColumnType::optional(value.ty.ty);
        let node = Node::IfElse {
            condition: Box::new(constant(Type::Bool, Value::Bool(true))),
            then: Box::new(value),
            otherwise: Box::new(constant(ty, Value::Null)),
        };
        boolean(Node::IsNull(Box::new(Typed { ty, node })))
    }

    /// Types `value in (options)`: a chain of equalities, each with its own copy of the (pure) value.
    pub fn one_of(&mut self, surface: &Expr, value: &Expr, options: &[Expr]) -> Checked<Typed> {
        let equal = |option| self.compare(surface, CompareOp::Eq, value, option);
        let parts = options.iter().map(equal).collect::<Checked<Vec<Typed>>>()?;
        joined(parts, &Node::Or).ok_or_else(|| Fault::new(format!("{surface} has nothing to be equal to")))
    }
}

fn refuse(l: &Typed, r: &Typed, surface: &Expr, left: &Expr, right: &Expr) -> Fault {
    let hint = match (l.ty.ty, r.ty.ty) {
        (Type::Decimal { .. }, Type::Float) => format!("write float({left})"),
        (Type::Float, Type::Decimal { .. }) => format!("write float({right})"),
        _ => String::new(),
    };
    Fault::new(format!("{} and {} cannot be compared, in {surface}", l.ty.ty, r.ty.ty)).hint(hint)
}
