//! Typed expressions as text. Conversions that the user did not write are left out.

use crate::print::{Level, in_zone, literal};
use crate::program::{Cast, Expr, FloatOp, Node, TextCall, TextOp, TextTest, WordOp};
use crate::{Keep, Program, Transaction, Window};
use tidemill_model::{ListItem, Schema, Type, Value, format_decimal};

/// Returns the name that a body has for a field of its event; one of a join's sides has the name of the side.
fn field_name(field: &str) -> String {
    if field.contains('.') { field.to_owned() } else { format!("ev.{field}") }
}

/// The names that stand for the indices of an expression.
pub(super) struct Names<'a> {
    event: &'a Schema,
    transaction: Option<(&'a Program, &'a Transaction)>,
    /// The list of a role's key, where loop 0 stands for the element.
    over: Option<usize>,
}

impl<'a> Names<'a> {
    /// Returns the names for expressions over events alone.
    pub fn event(event: &'a Schema) -> Self {
        Names { event, transaction: None, over: None }
    }

    /// Returns the names for the body of a transaction.
    pub fn body(program: &'a Program, transaction: &'a Transaction) -> Self {
        Names { event: &transaction.schema, transaction: Some((program, transaction)), over: None }
    }

    /// Returns the names for the key of a role.
    pub fn key(event: &'a Schema, over: Option<usize>) -> Self {
        Names { event, transaction: None, over }
    }

    /// Returns the text of `role.column`.
    pub fn cell(&self, role: usize, column: usize) -> String {
        let (program, transaction) = self.transaction.expect("cells are read in bodies");
        let role = &transaction.roles[role];
        format!("{}.{}", role.name, program.tables[role.table].columns[column].name)
    }

    /// Returns the expression as text.
    pub fn expression(&self, expr: &Expr) -> String {
        self.text(expr).0
    }

    fn text(&self, expr: &Expr) -> (String, Level) {
        let atom = |text: String| (text, Level::Atom);
        match &expr.node {
            Node::Const(v) => atom(value(v, expr.ty.ty)),
            Node::Field(field) => atom(field_name(&self.event.fields[*field].name)),
            Node::Element { loop_id, column } => atom(self.element(*loop_id, *column)),
            Node::Local(id) => atom(self.body_of().locals[*id].name.clone()),
            Node::Cell { role, column, .. } => atom(self.cell(*role, *column)),
            Node::Exists { role, .. } => atom(format!("{}.exists", self.body_of().roles[*role].name)),
            Node::Rows { role } => atom(format!("len({})", self.body_of().roles[*role].name)),
            Node::Place => atom("place".into()),
            Node::Length(list) => atom(format!("len(ev.{})", self.event.fields[*list].name)),
            Node::Unwrap { value, .. } | Node::Counted { value, .. } => self.text(value),
            Node::Word { op, left, right, .. } => self.word(op, left, right),
            Node::Float { op, left, right, .. } => self.float(*op, left, right),
            Node::Math { op, arguments, .. } => atom(self.call(&op.to_string(), &Vec::from_iter(arguments))),
            Node::WordNeg { value, .. } | Node::FloatNeg(value) => {
                (format!("-{}", self.at(value, Level::Sign)), Level::Sign)
            }
            Node::WordAbs { value, .. } | Node::FloatAbs(value) => atom(self.call("abs", &[value])),
            Node::Compare { op, left, right } => self.infix(&op.to_string(), Level::Comparison, left, right),
            Node::Equal { left, right, negated } => {
                self.infix(if *negated { "!=" } else { "==" }, Level::Comparison, left, right)
            }
            // Nothing depends on how several of one kind are put together.
            Node::And(left, right) => {
                (format!("{} and {}", self.at(left, Level::And), self.at(right, Level::And)), Level::And)
            }
            Node::Or(left, right) => {
                (format!("{} or {}", self.at(left, Level::Or), self.at(right, Level::Or)), Level::Or)
            }
            Node::Concat(left, right) => self.infix("+", Level::Sum, left, right),
            Node::Not(inner) => match &inner.node {
                Node::IsNull(value) => (format!("{} is not None", self.at(value, Level::Sum)), Level::Comparison),
                _ => (format!("not {}", self.at(inner, Level::Not)), Level::Not),
            },
            Node::IsNull(value) => (format!("{} is None", self.at(value, Level::Sum)), Level::Comparison),
            Node::IfElse { condition, then, otherwise } => {
                let parts = [then, condition, otherwise].map(|e| self.at(e, Level::Or));
                (format!("{} if {} else {}", parts[0], parts[1], parts[2]), Level::Conditional)
            }
            Node::Cast { cast, value, .. } => self.cast(*cast, value),
            Node::Text { op, value } => {
                let name = match op {
                    TextOp::Lower => "lower",
                    TextOp::Upper => "upper",
                    TextOp::Strip => "strip",
                };
                atom(format!("{}.{name}()", self.at(value, Level::Atom)))
            }
            Node::TextCall { op: TextCall::Separator, arguments, .. } => self.text(&arguments[0]),
            Node::TextCall { op, arguments, .. } => atom(self.call(&op.to_string(), &Vec::from_iter(arguments))),
            Node::TextTest { op, left, right } => self.text_test(*op, left, right),
            Node::Len(value) => atom(self.call("len", &[value])),
            Node::WindowAdd { cell, value, .. } => {
                atom(format!("{}.add({})", self.expression(cell), self.expression(value)))
            }
            Node::SynopsisRead { window, cell, within, ask, argument, .. } => {
                let (cell, argument) = (self.expression(cell), self.expression(argument));
                atom(format!("{cell}{}.{ask}({argument})", part(window, *within)))
            }
            Node::WindowNext { window, cell, within, after, .. } => {
                atom(format!("{}{}.next({})", self.expression(cell), part(window, *within), self.expression(after)))
            }
            Node::WindowField { cell, at, field, .. } => {
                atom(format!("{}[{}].{field}", self.expression(cell), self.expression(at)))
            }
            Node::Period { edge, time, .. } => atom(format!("{}.{edge}", self.call("period", &[time]))),
            Node::DatePart { part, zone, time } => {
                atom(format!("{}{}.{part}", self.at(time, Level::Atom), in_zone(zone)))
            }
            Node::Pack(values) => atom(self.call("pack", &Vec::from_iter(values))),
            Node::WindowRead { window, cell, within, aggregate, .. } => {
                atom(format!("{}{}.{aggregate}()", self.expression(cell), part(window, *within)))
            }
        }
    }

    fn body_of(&self) -> &'a Transaction {
        self.transaction.expect("locals and rows are seen in bodies only").1
    }

    fn element(&self, loop_id: usize, column: usize) -> String {
        let list = self.over.unwrap_or_else(|| self.body_of().loops[loop_id]);
        let field = &self.event.fields[list];
        match &field.ty {
            tidemill_model::FieldType::List(ListItem::Struct(columns)) => {
                format!("ev.{}[].{}", field.name, columns[column].0)
            }
            _ => format!("ev.{}[]", field.name),
        }
    }

    fn at(&self, expr: &Expr, least: Level) -> String {
        let (text, level) = self.text(expr);
        if level >= least { text } else { format!("({text})") }
    }

    /// Prints a left-associative operation; comparisons do not chain.
    fn infix(&self, op: &str, level: Level, left: &Expr, right: &Expr) -> (String, Level) {
        let (l, own) = self.text(left);
        let fits = own > level || (own == level && level != Level::Comparison);
        let l = if fits { l } else { format!("({l})") };
        let (r, own) = self.text(right);
        let r = if own > level { r } else { format!("({r})") };
        (format!("{l} {op} {r}"), level)
    }

    fn call(&self, name: &str, arguments: &[&Expr]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|a| self.expression(a)).collect();
        format!("{name}({})", arguments.join(", "))
    }

    fn word(&self, op: &WordOp, left: &Expr, right: &Expr) -> (String, Level) {
        match op {
            WordOp::Add => self.infix("+", Level::Sum, left, right),
            WordOp::Sub => self.infix("-", Level::Sum, left, right),
            WordOp::Mul => self.infix("*", Level::Product, left, right),
            WordOp::FloorDiv { .. } => self.infix("//", Level::Product, left, right),
            WordOp::Mod { .. } => self.infix("%", Level::Product, left, right),
            WordOp::DecimalDiv { .. } => self.infix("/", Level::Product, left, right),
            WordOp::Min => (self.call("min", &[left, right]), Level::Atom),
            WordOp::Max => (self.call("max", &[left, right]), Level::Atom),
        }
    }

    fn float(&self, op: FloatOp, left: &Expr, right: &Expr) -> (String, Level) {
        match op {
            FloatOp::Add => self.infix("+", Level::Sum, left, right),
            FloatOp::Sub => self.infix("-", Level::Sum, left, right),
            FloatOp::Mul => self.infix("*", Level::Product, left, right),
            FloatOp::Div => self.infix("/", Level::Product, left, right),
            FloatOp::FloorDiv => self.infix("//", Level::Product, left, right),
            FloatOp::Mod => self.infix("%", Level::Product, left, right),
            FloatOp::Min => (self.call("min", &[left, right]), Level::Atom),
            FloatOp::Max => (self.call("max", &[left, right]), Level::Atom),
        }
    }

    fn cast(&self, cast: Cast, value: &Expr) -> (String, Level) {
        let name = match cast {
            Cast::Relabel | Cast::IntToFloat | Cast::ScaleUp { .. } | Cast::FitDigits { .. } => {
                return self.text(value);
            }
            Cast::BoolToInt | Cast::FloatToInt | Cast::ScaleTruncate { .. } | Cast::StrToInt => "int",
            Cast::WordToFloat { .. } | Cast::StrToFloat => "float",
            Cast::FloatRound | Cast::ScaleRound { .. } => "round",
            Cast::FloatFloor | Cast::ScaleFloor { .. } => "floor",
            Cast::FloatCeil | Cast::ScaleCeil { .. } => "ceil",
            Cast::IntToStr | Cast::BoolToStr | Cast::DecimalToStr { .. } => "str",
        };
        (self.call(name, &[value]), Level::Atom)
    }

    fn text_test(&self, op: TextTest, left: &Expr, right: &Expr) -> (String, Level) {
        let name = match op {
            TextTest::StartsWith => "startswith",
            TextTest::EndsWith => "endswith",
            TextTest::Contains => return self.infix("in", Level::Comparison, right, left),
        };
        (format!("{}.{name}({})", self.at(left, Level::Atom), self.expression(right)), Level::Atom)
    }
}

/// Returns the part of a window, where it is not the whole.
fn part(window: &Window, within: i64) -> String {
    match window.keep {
        Keep::Last(count) if within < count => format!(".last({within})"),
        _ => match window.slices().filter(|slices| within < slices.count) {
            Some(slices) => format!(".window({})", slices.span(within)),
            None => String::new(),
        },
    }
}

/// Returns a constant of a known type.
pub(super) fn value(value: &Value, ty: Type) -> String {
    match (value, ty) {
        (Value::Decimal(unscaled), Type::Decimal { scale, .. }) => format_decimal(*unscaled, scale),
        (other, _) => literal(other),
    }
}
