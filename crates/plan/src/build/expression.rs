//! Expressions by operators and methods. Plain Rust values stand for constants: `event("n") + 1`.

use crate::{Aggregate, BinaryOp, CompareOp, Expr, ExprNode, Function, Span, UnaryOp, WindowPart};
use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};
use tidemill_model::Value;

/// Returns a field of the event.
pub fn event(field: impl Into<String>) -> Expr {
    ExprNode::Event(field.into()).into()
}

/// Returns a column of a role's row, as of now.
pub fn cell(role: impl Into<String>, column: impl Into<String>) -> Expr {
    ExprNode::Cell { role: role.into(), column: column.into() }.into()
}

/// Returns an aggregate of a windowed column, or of a part of it, as of now.
pub fn window(role: &str, column: &str, part: Option<WindowPart>, aggregate: Aggregate) -> Expr {
    ExprNode::Window { role: role.into(), column: column.into(), part, aggregate }.into()
}

/// Tests whether a role's row exists, as of now.
pub fn exists(role: impl Into<String>) -> Expr {
    ExprNode::Exists(role.into()).into()
}

/// Makes `len(role)`, of a role that is all rows of its table.
pub fn rows(role: &str) -> Expr {
    ExprNode::Rows(role.into()).into()
}

/// Returns a field of the element of a list; `field` is empty for a list of plain values.
pub fn element(variable: impl Into<String>, field: impl Into<String>) -> Expr {
    ExprNode::Element { variable: variable.into(), field: field.into() }.into()
}

/// Returns a local variable.
pub fn local(name: impl Into<String>) -> Expr {
    ExprNode::Local(name.into()).into()
}

/// Returns the number of elements of a list field.
pub fn length(list: impl Into<String>) -> Expr {
    ExprNode::Length(list.into()).into()
}

/// Returns a constant.
pub fn literal(value: impl Into<Expr>) -> Expr {
    value.into()
}

/// Makes `None`.
pub fn none() -> Expr {
    Value::Null.into()
}

/// Returns an instant, in microseconds since 1970 UTC.
pub fn time(microseconds: i64) -> Expr {
    Value::Time(microseconds).into()
}

/// Returns a distance of instants, in microseconds.
pub fn duration(microseconds: i64) -> Expr {
    Value::Duration(microseconds).into()
}

/// Returns an exact decimal with the scale that its text has, such as `decimal("1.50")`.
pub fn decimal(text: &str) -> Expr {
    call(Function::Decimal, vec![text.into()])
}

/// Makes an expression that is `then` where the condition holds, else `otherwise`.
pub fn if_else(condition: impl Into<Expr>, then: impl Into<Expr>, otherwise: impl Into<Expr>) -> Expr {
    let (condition, then, otherwise) = (condition.into(), then.into(), otherwise.into());
    ExprNode::IfElse { condition: condition.into(), then: then.into(), otherwise: otherwise.into() }.into()
}

/// Tests whether all hold; stops at the first that does not.
pub fn all(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    ExprNode::All(conditions.into_iter().collect()).into()
}

/// Tests whether one holds; stops at the first that does.
pub fn any(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    ExprNode::Any(conditions.into_iter().collect()).into()
}

/// Returns the least of two values or more.
pub fn min(values: impl IntoIterator<Item = Expr>) -> Expr {
    call(Function::Min, values.into_iter().collect())
}

/// Returns the greatest of two values or more.
pub fn max(values: impl IntoIterator<Item = Expr>) -> Expr {
    call(Function::Max, values.into_iter().collect())
}

fn call(function: Function, arguments: Vec<Expr>) -> Expr {
    ExprNode::Call { function, arguments }.into()
}

impl Expr {
    /// Gives the expression a place in the source text.
    pub fn at(mut self, span: Span) -> Expr {
        self.span = Some(span);
        self
    }

    /// Returns a built-in function of this and further arguments, such as `x.call(Function::Round, [2.into()])`.
    pub fn call(self, function: Function, more: impl IntoIterator<Item = Expr>) -> Expr {
        call(function, std::iter::once(self).chain(more).collect())
    }

    /// Returns the quotient rounded towards minus infinity.
    pub fn floor_div(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOp::FloorDiv, other)
    }

    /// Makes `self == other`.
    pub fn eq(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Eq, other)
    }

    /// Makes `self != other`.
    pub fn ne(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Ne, other)
    }

    /// Makes `self < other`.
    pub fn lt(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Lt, other)
    }

    /// Makes `self <= other`.
    pub fn le(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Le, other)
    }

    /// Makes `self > other`.
    pub fn gt(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Gt, other)
    }

    /// Makes `self >= other`.
    pub fn ge(self, other: impl Into<Expr>) -> Expr {
        self.compare(CompareOp::Ge, other)
    }

    /// Tests whether both hold.
    pub fn and(self, other: impl Into<Expr>) -> Expr {
        all([self, other.into()])
    }

    /// Tests whether one holds.
    pub fn or(self, other: impl Into<Expr>) -> Expr {
        any([self, other.into()])
    }

    /// Tests whether this is `None`.
    pub fn is_null(self) -> Expr {
        ExprNode::IsNull(self.into()).into()
    }

    /// Tests whether this equals one of `options`.
    pub fn is_in<T: Into<Expr>>(self, options: impl IntoIterator<Item = T>) -> Expr {
        ExprNode::In { value: self.into(), options: options.into_iter().map(T::into).collect() }.into()
    }

    fn binary(self, op: BinaryOp, other: impl Into<Expr>) -> Expr {
        ExprNode::Binary { op, left: self.into(), right: Box::new(other.into()) }.into()
    }

    fn compare(self, op: CompareOp, other: impl Into<Expr>) -> Expr {
        ExprNode::Compare { op, left: self.into(), right: Box::new(other.into()) }.into()
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $op:ident,)*) => {$(
        impl<T: Into<Expr>> $operator<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                self.binary(BinaryOp::$op, other)
            }
        }
    )*};
}

operators! { Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Mod, }

impl Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        ExprNode::Unary { op: UnaryOp::Neg, value: self.into() }.into()
    }
}

impl Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        ExprNode::Unary { op: UnaryOp::Not, value: self.into() }.into()
    }
}

macro_rules! constants {
    ($($from:ty => $value:expr,)*) => {$(
        impl From<$from> for Expr {
            fn from(value: $from) -> Expr {
                let constant: fn($from) -> Value = $value;
                constant(value).into()
            }
        }
    )*};
}

constants! {
    bool => Value::Bool,
    i32 => |v| Value::Int(v.into()),
    i64 => Value::Int,
    f64 => Value::Float,
    &str => |v| Value::Str(v.to_owned()),
    String => Value::Str,
    &[u8] => |v| Value::Bytes(v.to_vec()),
}

impl From<Value> for Expr {
    fn from(value: Value) -> Expr {
        ExprNode::Literal(value).into()
    }
}

impl From<ExprNode> for Expr {
    /// Returns an expression without a place.
    fn from(node: ExprNode) -> Expr {
        Expr { node, span: None }
    }
}
