//! Random expressions of a wanted type, over what can be seen at a point of a plan.

use crate::ast::*;
use crate::over::random_periods;
use crate::random::Random;
use tidemill_model::{ColumnType, Type, Value, format_decimal};
use tidemill_plan::{BinaryOp, CompareOp, DatePart, Expr, ExprNode, Function, UnaryOp};

/// Something that an expression can read.
#[derive(Clone, Debug)]
pub struct Visible {
    pub expr: Expr,
    pub ty: ColumnType,
    /// A flag: whether its length is bounded by that of the input, so that texts made of it cannot grow from event to
    /// event. Cells and locals can.
    pub bounded: bool,
}

/// The values that expressions can use at a point.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub values: Vec<Visible>,
    /// Roles whose existence can be asked.
    pub roles: Vec<String>,
    /// Lists whose length can be asked.
    pub lists: Vec<String>,
    /// A flag: whether expressions must not be able to fail, as in keys.
    pub strict: bool,
    /// The readiness to take an operation that fails for common values, in percent.
    pub risk: usize,
}

const COLUMN_TYPES: [Type; 7] = [Type::Int, Type::Str, Type::Int, Type::Float, Type::Bool, Type::Time, Type::Bytes];

const COMPARISONS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// Functions of one float.
pub const FUNCTIONS: [Function; 8] = [
    Function::Sqrt,
    Function::Exp,
    Function::Log,
    Function::Log2,
    Function::Log10,
    Function::Sin,
    Function::Cos,
    Function::Tan,
];

/// Functions of two floats.
pub const FUNCTIONS_OF_TWO: [Function; 4] = [Function::Fmod, Function::Pow, Function::Atan2, Function::Hypot];

/// Returns a type that a column can have.
pub fn column_type(random: &mut Random) -> Type {
    if random.chance(20) {
        let scale = *random.pick(&[0, 1, 2, 2, 4, 7]);
        let digits = *random.pick(&[scale + 2, scale + 5, 18]);
        return Type::Decimal { digits, scale };
    }
    *random.pick(&COLUMN_TYPES)
}

/// Returns whether values of one type need no conversion to be of the other, digits aside.
pub fn same(left: Type, right: Type) -> bool {
    match (left, right) {
        (Type::Decimal { scale: l, .. }, Type::Decimal { scale: r, .. }) => l == r,
        _ => left == right,
    }
}

impl View {
    /// Returns a value for a column, local or field of a type, now and then `None` or one that is converted.
    pub fn storable(&self, random: &mut Random, ty: ColumnType, depth: usize) -> Expr {
        if ty.nullable && random.chance(15) {
            return literal(Value::Null);
        }
        let optional: Vec<&Visible> = self.values.iter().filter(|v| v.ty == ty && v.ty.nullable).collect();
        if let Some(value) = random.pick_any(&optional)
            && random.chance(60)
        {
            return value.expr.clone();
        }
        match ty.ty {
            Type::Float if random.chance(15) => self.value(random, Type::Int, depth),
            Type::Decimal { scale, .. } if random.chance(15) => {
                let lower = random.below(scale as usize + 1) as u8;
                self.value(random, decimal(lower), depth)
            }
            ty => self.value(random, ty, depth),
        }
    }

    /// Returns a value of a type, possibly nullable. The scale of a decimal is kept, its digits are not.
    pub fn value(&self, random: &mut Random, want: Type, depth: usize) -> Expr {
        if depth == 0 || random.chance(25) {
            return self.leaf(random, want);
        }
        let depth = depth - 1;
        if random.chance(8) {
            let condition = self.value(random, Type::Bool, depth);
            return if_else(condition, self.value(random, want, depth), self.value(random, want, depth));
        }
        match want {
            Type::Bool => self.bool(random, depth),
            Type::Int => self.int(random, depth),
            Type::Float => self.float(random, depth),
            Type::Decimal { scale, .. } => self.decimal(random, scale, depth),
            Type::Time => self.time(random, depth),
            Type::Duration => self.duration(random, depth),
            Type::Str => self.str(random, depth),
            Type::Bytes => self.joined(random, Type::Bytes),
            Type::Null => literal(Value::Null),
        }
    }

    /// Returns a value of one of some types.
    fn one_of(&self, random: &mut Random, types: &[Type], depth: usize) -> Expr {
        let ty = *random.pick(types);
        self.value(random, ty, depth)
    }

    /// Returns a random value that is in scope, or a literal.
    fn leaf(&self, random: &mut Random, want: Type) -> Expr {
        self.leaf_among(random, want, |_| true)
    }

    fn leaf_among(&self, random: &mut Random, want: Type, admit: impl Fn(&Visible) -> bool) -> Expr {
        let nullable = !self.strict && random.chance(10 + self.risk / 2);
        let fits = |v: &&Visible| same(v.ty.ty, want) && (nullable || !v.ty.nullable) && admit(v);
        let values: Vec<&Visible> = self.values.iter().filter(fits).collect();
        match random.pick_any(&values) {
            Some(value) if random.chance(85) => value.expr.clone(),
            _ => constant(random, want),
        }
    }

    /// Draws whether to take a risk.
    fn dares(&self, random: &mut Random) -> bool {
        !self.strict && random.chance(self.risk)
    }

    fn bool(&self, random: &mut Random, depth: usize) -> Expr {
        match random.below(16) {
            0..5 => self.comparison(random, depth),
            5 | 6 => {
                let mut parts = Vec::new();
                for _ in 0..random.between(2, 3) {
                    parts.push(self.value(random, Type::Bool, depth));
                }
                expr(if random.chance(50) { ExprNode::All(parts) } else { ExprNode::Any(parts) })
            }
            7 => not(self.value(random, Type::Bool, depth)),
            8 => match random.pick_any(&self.values) {
                Some(value) => is_null(value.expr.clone()),
                None => self.comparison(random, depth),
            },
            9 => {
                let ty = *random.pick(&COLUMN_TYPES);
                let mut options = Vec::new();
                for _ in 0..random.between(1, 3) {
                    options.push(self.value(random, ty, depth.min(1)));
                }
                let value = Box::new(self.value(random, ty, depth));
                expr(ExprNode::In { value, options })
            }
            10 | 11 => match random.pick_any(&self.roles) {
                Some(role) => exists(role),
                None => self.comparison(random, depth),
            },
            _ => {
                let test = *random.pick(&[Function::StartsWith, Function::EndsWith, Function::Contains]);
                let ty = if random.chance(75) { Type::Str } else { Type::Bytes };
                call(test, [self.value(random, ty, depth), self.value(random, ty, depth)])
            }
        }
    }

    fn comparison(&self, random: &mut Random, depth: usize) -> Expr {
        let op = *random.pick(&COMPARISONS);
        let ty = match random.pick_any(&self.values) {
            Some(value) if random.chance(70) => value.ty.ty,
            _ if random.chance(10) => Type::Duration,
            _ => column_type(random),
        };
        let left = self.value(random, ty, depth);
        let other = match ty {
            ty if self.strict => ty,
            Type::Float if random.chance(20) => Type::Int,
            Type::Decimal { .. } if random.chance(20) => *random.pick(&[Type::Int, decimal(1)]),
            ty => ty,
        };
        let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        if equality && !self.strict && random.chance(10) {
            return compare(op, left, literal(Value::Null));
        }
        if equality && random.chance(30) {
            let all: Vec<&Visible> = self.values.iter().filter(|v| v.ty.nullable && same(v.ty.ty, other)).collect();
            if let Some(value) = random.pick_any(&all) {
                return compare(op, left, value.expr.clone());
            }
        }
        compare(op, left, self.value(random, other, depth))
    }

    fn int(&self, random: &mut Random, depth: usize) -> Expr {
        let of = |random: &mut Random, ty| self.value(random, ty, depth);
        match random.below(25) {
            0..6 if !self.strict => {
                let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub]);
                binary(op, of(random, Type::Int), of(random, Type::Int))
            }
            6 if !self.strict => binary(BinaryOp::Mul, of(random, Type::Int), constant(random, Type::Int)),
            7 if self.dares(random) => binary(BinaryOp::Mul, of(random, Type::Int), of(random, Type::Int)),
            8 if self.dares(random) => {
                let op = *random.pick(&[BinaryOp::FloorDiv, BinaryOp::Mod]);
                let ty = if random.chance(70) { Type::Int } else { decimal(2) };
                let right = of(random, ty);
                let quotient = binary(op, of(random, ty), right);
                if ty == Type::Int || op == BinaryOp::FloorDiv { quotient } else { call(Function::Round, [quotient]) }
            }
            9 | 10 => {
                let op = *random.pick(&[BinaryOp::FloorDiv, BinaryOp::Mod]);
                let divisor = *random.pick(&[2, 3, 5, 7, 10, 10, -4]);
                binary(op, of(random, Type::Int), int(divisor))
            }
            12 if !self.strict => unary(UnaryOp::Neg, of(random, Type::Int)),
            13 if !self.strict => call(Function::Abs, [of(random, Type::Int)]),
            14 => self.extreme(random, Type::Int, depth),
            15 => call(Function::Len, [self.one_of(random, &[Type::Str, Type::Str, Type::Bytes], depth)]),
            16 => call(Function::Int, [self.one_of(random, &[Type::Bool, decimal(2), decimal(0)], depth)]),
            11 | 17 if !self.strict => {
                let function = *random.pick(&[Function::Int, Function::Round]);
                call(function, [of(random, Type::Float)])
            }
            18 if self.dares(random) => call(Function::Int, [of(random, Type::Str)]),
            19 if random.chance(50) => {
                let function = *random.pick(&[Function::Floor, Function::Ceil, Function::Trunc]);
                let of_float = !self.strict && random.chance(50);
                let types = if of_float { [Type::Float, Type::Int] } else { [decimal(2), decimal(1)] };
                call(function, [self.one_of(random, &types, depth)])
            }
            19 => call(Function::Round, [self.one_of(random, &[decimal(2), decimal(1), Type::Int], depth)]),
            22 => {
                let (start, end) = (*random.pick(&[0, 0, 1, -2]), *random.pick(&[i64::MAX, i64::MAX, 2, -1]));
                call(Function::Find, [of(random, Type::Str), of(random, Type::Str), int(start), int(end)])
            }
            23 => {
                let separator = self.separator(random);
                call(Function::SplitCount, [of(random, Type::Str), separator, int(*random.pick(&[-1, -1, 1]))])
            }
            24 => {
                let (part, zone) = (*random.pick(&DatePart::ALL), random_periods(random).zone);
                let time = self.moment(random, depth);
                expr(ExprNode::DatePart { part, zone, time: Box::new(time) })
            }
            20 if !self.strict => {
                let ty = *random.pick(&[Type::Duration, Type::Time]);
                call(Function::TotalMicroseconds, [of(random, ty)])
            }
            21 if self.dares(random) => {
                binary(BinaryOp::FloorDiv, of(random, Type::Duration), of(random, Type::Duration))
            }
            _ => match random.pick_any(&self.lists) {
                Some(list) => expr(ExprNode::Length(list.clone())),
                None => self.leaf(random, Type::Int),
            },
        }
    }

    fn float(&self, random: &mut Random, depth: usize) -> Expr {
        let of = |random: &mut Random, ty| self.value(random, ty, depth);
        match random.below(18) {
            0..4 => {
                let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
                let right = *random.pick(&[Type::Float, Type::Float, Type::Int]);
                binary(op, of(random, Type::Float), of(random, right))
            }
            4 if self.dares(random) => {
                let op = *random.pick(&[BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod]);
                binary(op, of(random, Type::Float), of(random, Type::Float))
            }
            5 | 6 => {
                let op = *random.pick(&[BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod]);
                let divisor = *random.pick(&[0.5, 2.0, 3.0, -0.7, 1e9, -1e-9]);
                binary(op, of(random, Type::Float), literal(Value::Float(divisor)))
            }
            7 => {
                let divisor = *random.pick(&[2, 3, -7, 10]);
                binary(BinaryOp::Div, of(random, Type::Int), int(divisor))
            }
            8 if self.dares(random) => match random.below(2) {
                0 => binary(BinaryOp::Div, of(random, Type::Int), of(random, Type::Int)),
                _ => binary(BinaryOp::Div, of(random, Type::Duration), of(random, Type::Duration)),
            },
            9 => call(Function::Float, [self.one_of(random, &[Type::Int, decimal(2), decimal(4)], depth)]),
            10 if !self.strict => {
                call(Function::TotalSeconds, [self.one_of(random, &[Type::Duration, Type::Time], depth)])
            }
            11 => unary(UnaryOp::Neg, of(random, Type::Float)),
            12 => call(Function::Abs, [of(random, Type::Float)]),
            13 | 14 if self.dares(random) => call(Function::Float, [of(random, Type::Str)]),
            15 if !self.strict => {
                let ty = *random.pick(&[Type::Float, Type::Float, Type::Int]);
                call(*random.pick(&FUNCTIONS), [of(random, ty)])
            }
            16 => {
                let function = *random.pick(if self.strict { &FUNCTIONS_OF_TWO[2..] } else { &FUNCTIONS_OF_TWO });
                call(function, [of(random, Type::Float), of(random, Type::Float)])
            }
            _ => self.extreme(random, Type::Float, depth),
        }
    }

    fn decimal(&self, random: &mut Random, scale: u8, depth: usize) -> Expr {
        let of = |random: &mut Random, scale| self.value(random, decimal(scale), depth);
        if self.strict {
            return self.leaf(random, decimal(scale));
        }
        match random.below(12) {
            0..4 => {
                let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub]);
                let other = if random.chance(70) { scale } else { random.below(scale as usize + 1) as u8 };
                binary(op, of(random, scale), of(random, other))
            }
            4 => binary(BinaryOp::Mul, of(random, scale), constant(random, Type::Int)),
            5 if self.dares(random) => {
                let left = random.below(scale as usize + 1) as u8;
                binary(BinaryOp::Mul, of(random, left), of(random, scale - left))
            }
            6 => {
                let right = if self.dares(random) { of(random, 1) } else { constant(random, decimal(1)) };
                call(Function::Round, [binary(BinaryOp::Div, of(random, scale), right), int(scale.into())])
            }
            7 if self.dares(random) => binary(BinaryOp::Mod, of(random, scale), of(random, scale)),
            8 => {
                let other = random.below(5) as u8;
                call(Function::Round, [of(random, other), int(scale.into())])
            }
            9 => call(Function::Decimal, [self.value(random, Type::Int, depth), int(scale.into())]),
            10 => {
                let value = of(random, scale);
                if random.chance(50) { unary(UnaryOp::Neg, value) } else { call(Function::Abs, [value]) }
            }
            _ => self.extreme(random, decimal(scale), depth),
        }
    }

    /// A time of any year.
    fn moment(&self, random: &mut Random, depth: usize) -> Expr {
        let time = self.value(random, Type::Time, depth);
        if self.strict {
            return time;
        }
        let days = int(*random.pick(&[0, 58, 365, 10_957, 19_782, -719_163, -1, 100_000_000]));
        binary(BinaryOp::Add, time, call(Function::Days, [days]))
    }

    fn time(&self, random: &mut Random, depth: usize) -> Expr {
        match random.below(4) {
            0 | 1 if !self.strict => {
                let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub]);
                binary(op, self.value(random, Type::Time, depth), self.value(random, Type::Duration, depth))
            }
            2 if !self.strict => add(self.value(random, Type::Duration, depth), self.value(random, Type::Time, depth)),
            _ => self.extreme(random, Type::Time, depth),
        }
    }

    fn duration(&self, random: &mut Random, depth: usize) -> Expr {
        let of = |random: &mut Random, ty| self.value(random, ty, depth);
        if self.strict {
            return constant(random, Type::Duration);
        }
        match random.below(10) {
            0 | 1 => sub(of(random, Type::Time), of(random, Type::Time)),
            2 | 3 => {
                use Function::*;
                let unit = *random.pick(&[Microseconds, Milliseconds, Seconds, Minutes, Hours, Days]);
                call(unit, [self.value(random, Type::Int, depth.min(1))])
            }
            4 => {
                let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub]);
                binary(op, of(random, Type::Duration), of(random, Type::Duration))
            }
            5 => binary(BinaryOp::Mul, of(random, Type::Duration), constant(random, Type::Int)),
            6 => {
                let divisor = *random.pick(&[2, 3, -5]);
                binary(BinaryOp::FloorDiv, of(random, Type::Duration), int(divisor))
            }
            7 if self.dares(random) => binary(BinaryOp::Mod, of(random, Type::Duration), of(random, Type::Duration)),
            8 => {
                let value = of(random, Type::Duration);
                if random.chance(50) { unary(UnaryOp::Neg, value) } else { call(Function::Abs, [value]) }
            }
            _ => self.extreme(random, Type::Duration, depth),
        }
    }

    fn str(&self, random: &mut Random, depth: usize) -> Expr {
        match random.below(14) {
            8 => {
                let [start, stop] = [0; 2].map(|_| int(*random.pick(&[0, 1, 2, 5, -1, -2, i64::MAX])));
                call(Function::Slice, [self.value(random, Type::Str, depth), start, stop])
            }
            9 if self.dares(random) => {
                let place = *random.pick(&[0, 0, 1, -1, 2]);
                call(Function::At, [self.value(random, Type::Str, depth), int(place)])
            }
            10 => {
                let (old, new) = (*random.pick(&["a", "b", "ab", " "]), *random.pick(&["", "a", "b"]));
                let count = *random.pick(&[-1, -1, 0, 1, 2]);
                call(Function::Replace, [self.value(random, Type::Str, depth), text(old), text(new), int(count)])
            }
            // One that grows, so that it is made of something short.
            11 if !self.strict => {
                let of = |random: &mut Random| self.leaf_among(random, Type::Str, |v| v.bounded);
                let new = *random.pick(&["xyz", "-", "ß"]);
                call(Function::Replace, [of(random), constant(random, Type::Str), text(new), int(-1)])
            }
            12 => call(Function::Zfill, [self.value(random, Type::Str, depth), int(*random.pick(&[3, 6]))]),
            13 if self.dares(random) => {
                let separator = self.separator(random);
                let (most, index) = (*random.pick(&[-1, -1, 1]), *random.pick(&[0, 0, 1, -1]));
                let arguments = [self.value(random, Type::Str, depth), separator, int(most), int(index)];
                call(Function::SplitPart, arguments)
            }
            0..3 => self.joined(random, Type::Str),
            3..6 => {
                let function = *random.pick(&[Function::Lower, Function::Upper, Function::Strip]);
                call(function, [self.value(random, Type::Str, depth)])
            }
            _ => {
                let ty = *random.pick(&[Type::Int, Type::Int, Type::Bool, decimal(2), Type::Str]);
                call(Function::Str, [self.value(random, ty, depth)])
            }
        }
    }

    /// Returns a random separator of texts.
    fn separator(&self, random: &mut Random) -> Expr {
        match random.below(4) {
            0 => literal(Value::Null),
            // A constant one that is empty is refused.
            1 if self.dares(random) => match self.leaf(random, Type::Str) {
                Expr { node: ExprNode::Literal(_), .. } => text("ab"),
                separator => separator,
            },
            _ => text(random.pick::<&str>(&["a", "b", " "])),
        }
    }

    /// Returns two texts (or bytes) joined, in a way that nothing can grow without end: of the event alone, or of
    /// anything short.
    fn joined(&self, random: &mut Random, ty: Type) -> Expr {
        let bounded = |random: &mut Random| self.leaf_among(random, ty, |v| v.bounded);
        if self.strict || random.chance(50) {
            return add(bounded(random), bounded(random));
        }
        let (left, right) = (self.leaf(random, ty), bounded(random));
        let short = compare(CompareOp::Lt, call(Function::Len, [left.clone()]), int(150));
        if_else(short, add(left, right.clone()), right)
    }

    /// Returns the `min` or `max` of some random expressions.
    fn extreme(&self, random: &mut Random, ty: Type, depth: usize) -> Expr {
        let function = *random.pick(&[Function::Min, Function::Max]);
        let mut arguments = Vec::new();
        for _ in 0..random.between(2, 3) {
            arguments.push(self.value(random, ty, depth));
        }
        call(function, arguments)
    }
}

/// Returns a literal of a type; small, so that it fits wherever it is put.
pub fn constant(random: &mut Random, ty: Type) -> Expr {
    match ty {
        Type::Bool => literal(Value::Bool(random.chance(50))),
        Type::Int => int(*random.pick(&[0, 1, 1, 2, 3, 5, 8, -1, -2])),
        Type::Float => literal(Value::Float(*random.pick(&[0.0, 1.0, 0.1, -2.5, 1e300, -0.0]))),
        Type::Decimal { scale, .. } => {
            let digits = *random.pick(&[1, 1, 2, 3, 15, -3]);
            call(Function::Decimal, [text(&format_decimal(digits, scale))])
        }
        Type::Time => literal(Value::Time(random.int(0, 5))),
        Type::Duration => literal(Value::Duration(random.int(-3, 20))),
        Type::Str => text(random.pick::<&str>(&["", "a", "a", "b", "A", "ab", "7", " x ", "ß", "Ω"])),
        Type::Bytes => literal(Value::Bytes(random.pick(&[&b""[..], b"a", b"b", b"\x00\xff"]).to_vec())),
        Type::Null => literal(Value::Null),
    }
}
