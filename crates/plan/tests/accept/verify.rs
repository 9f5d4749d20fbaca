//! The contract of `program.rs`, checked node by node: operand types, indices, nullability. It shares
//! nothing with the analysis that it checks.

use tidemill_model::{ColumnType, FieldType, Schema, Type, Value};
use tidemill_plan::typed::{Expr, Node, Stmt};
use tidemill_plan::{Cast, Keep, MathOp, Origin, OutputField, Program, TextCall, TextOp, Transaction, WordOp};

/// Panics where the program breaks a promise.
pub fn verify(program: &Program) {
    for (id, stream) in program.streams.iter_enumerated() {
        let input = match &stream.origin {
            Origin::Filter { input, predicate, reasons, .. } => {
                let check = Check { event: &program.streams[*input].schema, reasons, body: None };
                check.expr(predicate, Type::Bool.into());
                *input
            }
            Origin::Map { input, fields, reasons, .. } => {
                let check = Check { event: &program.streams[*input].schema, reasons, body: None };
                check.record(fields, &stream.schema);
                *input
            }
            Origin::Late(input) | Origin::Bad(input) | Origin::Failed(input) => *input,
            _ => {
                assert_eq!(stream.root, id, "{} is a root", stream.name);
                continue;
            }
        };
        assert!(input < id, "{} comes after its input", stream.name);
    }
    for transaction in &program.transactions {
        verify_transaction(program, transaction);
    }
}

fn verify_transaction(program: &Program, transaction: &Transaction) {
    let body = Some((program, transaction));
    let check = Check { event: &transaction.schema, reasons: &transaction.reasons, body };
    for role in &transaction.roles {
        let table = &program.tables[role.table];
        for (key, column) in role.key.iter().zip(&table.key) {
            assert_eq!(key.ty.ty, table.columns[*column].ty.ty);
            check.node(key);
        }
        for reason in [role.no_row, role.no_key, role.row_exists] {
            check.reason(reason);
        }
    }
    for input in &transaction.inputs {
        assert_eq!(program.streams[*input].schema, transaction.schema);
    }
    transaction.locals.iter().for_each(|l| assert_ne!(l.ty.ty, Type::Null));
    check.block(&transaction.body);
    let aborted = &program.streams[transaction.aborted].schema;
    assert_eq!(aborted.fields.len(), transaction.schema.fields.len() + 1 + transaction.seen.len());
}

struct Check<'a> {
    event: &'a Schema,
    reasons: &'a [String],
    body: Option<(&'a Program, &'a Transaction)>,
}

impl Check<'_> {
    fn reason(&self, id: u32) {
        assert!((id as usize) < self.reasons.len(), "reason {id} of {:?}", self.reasons);
    }

    /// A value that may stand where `to` is wanted: of that type, null only if that may be.
    fn expr(&self, expr: &Expr, to: ColumnType) {
        assert_eq!(expr.ty.ty, to.ty, "{expr:?}");
        assert!(to.nullable || !expr.ty.nullable, "{expr:?} may be null");
        self.node(expr);
    }

    fn same(&self, left: &Expr, right: &Expr) {
        assert_eq!(left.ty.ty, right.ty.ty, "{left:?} and {right:?}");
        self.node(left);
        self.node(right);
    }

    fn present(&self, exprs: &[&Expr]) {
        for expr in exprs {
            assert!(!expr.ty.nullable, "{expr:?} may be null");
            self.node(expr);
        }
    }

    fn record(&self, fields: &[OutputField], schema: &Schema) {
        assert_eq!(fields.len(), schema.fields.len());
        for (field, declared) in fields.iter().zip(&schema.fields) {
            match (field, &declared.ty) {
                (OutputField::Value(value), FieldType::Scalar(ty)) => self.expr(value, *ty),
                (OutputField::List(list), ty) => assert_eq!(self.event.fields[*list].ty, *ty),
                _ => panic!("{field:?} where {} belongs", declared.ty),
            }
        }
    }

    fn block(&self, block: &[Stmt]) {
        let (program, transaction) = self.body.expect("statements stand in bodies");
        let column = |role: usize, column: usize| &program.tables[transaction.roles[role].table].columns[column];
        for statement in block {
            match statement {
                Stmt::Assign { local, value } => self.expr(value, transaction.locals[*local].ty),
                Stmt::Set { role, column: c, value, element } => {
                    self.expr(value, column(*role, *c).ty);
                    self.element(*role, *element);
                }
                Stmt::Insert { role, values, element } => {
                    let table = &program.tables[transaction.roles[*role].table];
                    assert_eq!(values.len(), table.columns.len() - table.key.len());
                    values.iter().for_each(|(c, value)| self.expr(value, column(*role, *c).ty));
                    self.element(*role, *element);
                }
                Stmt::Delete { role, element } => self.element(*role, *element),
                Stmt::If { condition, .. } => self.expr(condition, Type::Bool.into()),
                Stmt::ForRange { local, start, stop, .. } => {
                    assert_eq!(transaction.locals[*local].ty, Type::Int.into());
                    self.expr(start, Type::Int.into());
                    self.expr(stop, Type::Int.into());
                }
                Stmt::Require { condition, reason } => {
                    self.expr(condition, Type::Bool.into());
                    self.reason(*reason);
                }
                Stmt::Abort { reason } | Stmt::Count { reason, .. } => self.reason(*reason),
                Stmt::Emit { output, fields } => {
                    self.record(fields, &program.streams[transaction.emits[*output].stream].schema);
                }
                Stmt::Return { fields: Some(fields) } => {
                    self.record(fields, &program.streams[transaction.committed.stream].schema);
                }
                Stmt::ForEach { .. } | Stmt::Break | Stmt::Continue | Stmt::Return { fields: None } => {}
            }
            statement.blocks().into_iter().for_each(|inner| self.block(inner));
        }
    }

    fn element(&self, role: usize, element: Option<usize>) {
        let transaction = self.body.expect("roles are used in bodies").1;
        assert_eq!(transaction.roles[role].over, element.map(|l| transaction.loops[l]));
    }

    fn node(&self, expr: &Expr) {
        let ty = expr.ty;
        match &expr.node {
            Node::Const(value) => assert_eq!(value.is_null(), ty.nullable, "{expr:?}"),
            Node::Field(field) => assert_eq!(self.event.fields[*field].scalar_type(), Some(ty)),
            Node::Element { .. } | Node::Length(_) => {}
            Node::Place => assert_eq!(ty, Type::Int.into()),
            Node::Local(local) => assert_eq!(self.body.expect("a body").1.locals[*local].ty, ty),
            Node::Cell { role, element, column } => {
                let (program, transaction) = self.body.expect("a body");
                assert_eq!(program.tables[transaction.roles[*role].table].columns[*column].ty, ty);
                self.element(*role, *element);
            }
            Node::Exists { role, element } => self.element(*role, *element),
            Node::Rows { role } => assert!(self.body.expect("a body").1.roles[*role].is_chosen()),
            Node::Unwrap { value, reason } => {
                assert!(value.ty.nullable && !ty.nullable && value.ty.ty == ty.ty, "{expr:?}");
                self.reason(*reason);
                self.node(value);
            }
            Node::Counted { value, reason, .. } => {
                assert!(ty.ty.is_bytes() && value.ty == ty, "{expr:?}");
                self.reason(*reason);
                self.node(value);
            }
            Node::IsNull(value) => {
                assert!(value.ty.nullable);
                self.node(value);
            }
            Node::Word { op, left, right, reason } => self.word(op, left, right, *reason),
            Node::Float { left, right, reason, .. } => {
                self.expr(left, Type::Float.into());
                self.expr(right, Type::Float.into());
                self.reason(*reason);
            }
            Node::WordNeg { value, reason } | Node::WordAbs { value, reason } => {
                assert!(value.ty.ty.is_word());
                self.expr(value, ty);
                self.reason(*reason);
            }
            Node::Math { op, arguments, reason } => {
                let count =
                    if matches!(op, MathOp::Fmod | MathOp::Pow | MathOp::Atan2 | MathOp::Hypot) { 2 } else { 1 };
                assert_eq!((arguments.len(), ty), (count, Type::Float.into()));
                arguments.iter().for_each(|argument| self.expr(argument, ty));
                self.reason(*reason);
            }
            Node::FloatNeg(value) | Node::FloatAbs(value) => self.expr(value, Type::Float.into()),
            Node::Compare { left, right, .. } => {
                self.same(left, right);
                self.present(&[left, right]);
            }
            Node::Equal { left, right, .. } => self.same(left, right),
            Node::And(left, right) | Node::Or(left, right) => {
                self.expr(left, Type::Bool.into());
                self.expr(right, Type::Bool.into());
            }
            Node::Not(value) => self.expr(value, Type::Bool.into()),
            Node::IfElse { condition, then, otherwise } => {
                self.expr(condition, Type::Bool.into());
                self.expr(then, ty);
                self.expr(otherwise, ty);
            }
            Node::Cast { cast, value, reason } => {
                self.present(&[value]);
                self.reason(*reason);
                assert!(cast_fits(*cast, value.ty.ty, ty.ty), "{expr:?}");
            }
            Node::Concat(left, right) => {
                self.same(left, right);
                self.present(&[left, right]);
                assert!(ty.ty.is_bytes() && left.ty == ty);
            }
            Node::Text { op: TextOp::Lower | TextOp::Upper | TextOp::Strip, value } => {
                self.expr(value, Type::Str.into());
            }
            Node::TextCall { op, arguments, reason } => {
                let (texts, ints) = match op {
                    TextCall::Find => (2, 2),
                    TextCall::Part => (2, 2),
                    TextCall::Parts => (2, 1),
                    TextCall::Replace => (3, 1),
                    TextCall::Slice | TextCall::SpacedPart => (1, 2),
                    TextCall::At | TextCall::Zfill | TextCall::SpacedParts => (1, 1),
                    TextCall::Separator => (1, 0),
                };
                assert_eq!(arguments.len(), texts + ints);
                for (number, argument) in arguments.iter().enumerate() {
                    self.expr(argument, if number < texts { Type::Str } else { Type::Int }.into());
                }
                let is_int = matches!(op, TextCall::Find | TextCall::Parts | TextCall::SpacedParts);
                assert_eq!(ty, if is_int { Type::Int } else { Type::Str }.into());
                self.reason(*reason);
            }
            Node::TextTest { left, right, .. } => {
                self.same(left, right);
                self.present(&[left, right]);
            }
            Node::WindowAdd { window, cell, time, value } => {
                assert_eq!((cell.ty, ty), (Type::Bytes.into(), Type::Bytes.into()));
                assert_eq!(time.ty, window.slices().map_or(Type::Int, |slices| slices.time).into());
                self.expr(value, window.value.into());
                assert!(matches!(cell.node, Node::Cell { .. }));
            }
            Node::WindowRead { cell, within, reason, .. } => {
                assert!(*within > 0 && matches!(cell.node, Node::Cell { .. }));
                self.reason(*reason);
            }
            Node::SynopsisRead { window, cell, time, within, ask, argument } => {
                assert!(matches!(window.keep, Keep::Synopsis(of, _) if of == ask.of()) && *within > 0);
                assert_eq!(time.ty, window.slices().map_or(Type::Int, |slices| slices.time).into());
                assert!(matches!(cell.node, Node::Cell { .. }) && !argument.ty.nullable);
                self.node(argument);
            }
            Node::WindowNext { window, cell, time, within, after } => {
                assert!(window.is_of_records() && *within > 0 && matches!(cell.node, Node::Cell { .. }));
                assert_eq!((Some(time.ty), ty), (window.slices().map(|s| s.time.into()), Type::Int.into()));
                self.expr(after, Type::Int.into());
            }
            Node::WindowField { cell, at, of, field } => {
                assert!(field < of && matches!(cell.node, Node::Cell { .. }));
                self.expr(at, Type::Int.into());
            }
            Node::Period { time, reason, .. } => {
                assert!(matches!(ty.ty, Type::Int | Type::Time) && !ty.nullable);
                self.expr(time, ty);
                self.reason(*reason);
            }
            Node::DatePart { time, .. } => {
                assert_eq!(ty, Type::Int.into());
                self.expr(time, Type::Time.into());
            }
            Node::Pack(values) => {
                assert_eq!(ty, Type::Bytes.into());
                values.iter().for_each(|value| self.node(value));
            }
            Node::Len(value) => {
                assert!(value.ty.ty.is_bytes());
                self.present(&[value]);
            }
        }
    }

    fn word(&self, op: &WordOp, left: &Expr, right: &Expr, reason: u32) {
        self.present(&[left, right]);
        self.reason(reason);
        assert!(left.ty.ty.is_word() && right.ty.ty.is_word());
        let scale = |e: &Expr| if let Type::Decimal { scale, .. } = e.ty.ty { scale } else { 0 };
        match op {
            WordOp::Mul => {}
            WordOp::DecimalDiv { shift, zero } => {
                assert!(*shift <= 18);
                self.reason(*zero);
            }
            WordOp::FloorDiv { zero } | WordOp::Mod { zero } => {
                assert_eq!(scale(left), scale(right));
                self.reason(*zero);
            }
            _ => assert_eq!(scale(left), scale(right)),
        }
    }
}

fn cast_fits(cast: Cast, from: Type, to: Type) -> bool {
    let scale = |ty: Type| match ty {
        Type::Decimal { scale, .. } => Some(scale),
        Type::Int => Some(0),
        _ => None,
    };
    match cast {
        Cast::Relabel => {
            from.is_word() && to.is_word() && (scale(from) == scale(to) || scale(from).is_none() || scale(to).is_none())
        }
        Cast::BoolToInt => (from, to) == (Type::Bool, Type::Int),
        Cast::IntToFloat => (from, to) == (Type::Int, Type::Float),
        Cast::WordToFloat { .. } => from.is_word() && to == Type::Float,
        Cast::FloatToInt | Cast::FloatRound | Cast::FloatFloor | Cast::FloatCeil => {
            (from, to) == (Type::Float, Type::Int)
        }
        Cast::ScaleUp { by } => scale(to) == scale(from).map(|s| s + by),
        Cast::ScaleRound { by } | Cast::ScaleTruncate { by } | Cast::ScaleFloor { by } | Cast::ScaleCeil { by } => {
            scale(from) == scale(to).map(|s| s + by)
        }
        Cast::FitDigits { digits } => {
            scale(from) == scale(to) && matches!(to, Type::Decimal { digits: d, .. } if d == digits)
        }
        Cast::StrToInt => (from, to) == (Type::Str, Type::Int),
        Cast::StrToFloat => (from, to) == (Type::Str, Type::Float),
        Cast::IntToStr => (from, to) == (Type::Int, Type::Str),
        Cast::BoolToStr => (from, to) == (Type::Bool, Type::Str),
        Cast::DecimalToStr { scale: s } => scale(from) == Some(s) && to == Type::Str,
    }
}

/// Returns whether a value is of a type; for defaults.
pub fn is_of(value: &Value, ty: ColumnType) -> bool {
    match (value, ty.ty) {
        (Value::Null, _) => ty.nullable,
        (Value::Bool(_), Type::Bool) | (Value::Float(_), Type::Float) | (Value::Str(_), Type::Str) => true,
        (Value::Int(_), Type::Int) | (Value::Decimal(_), Type::Decimal { .. }) | (Value::Time(_), Type::Time) => true,
        (Value::Bytes(_), Type::Bytes) => true,
        _ => false,
    }
}
