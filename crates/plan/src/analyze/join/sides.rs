//! The two sides of a join: their keys, and the fields of them that the function names.

use super::super::fault::{Checked, Fault, check_identifier};
use super::super::rewrite;
use super::super::scope::{Scope, Site};
use super::super::types::check_column_type;
use super::reach::{AT, LEFT, RIGHT, SIDE, UNMATCHED};
use crate::build::event;
use crate::visit::each_statement;
use crate::{Expr, ExprNode, JoinDef, JoinHow, Record, Span, Stmt, StmtNode, TransactionDef};
use tidemill_model::{ColumnType, Field, FieldType, Schema, Type, Value};

/// The name under which the function asks whether a side that can be missing is there.
const EXISTS: &str = "exists";

/// A side of a join: one of its two streams.
pub(super) struct Side {
    /// [`LEFT`] or [`RIGHT`].
    pub number: i64,
    /// The name of the side in the function.
    name: String,
    /// The fields that the function names, in the order of the stream.
    pub fields: Vec<(String, ColumnType)>,
    /// A flag: whether a pair may lack an event of this side.
    pub may_miss: bool,
    /// A flag: whether an event of this side goes out alone if it finds no partner.
    pub waits: bool,
    /// The column that holds the records of this side.
    pub column: String,
}

impl Side {
    /// Returns the name of a field of it in the events that the join's transaction takes and gives.
    pub fn field(&self, index: usize) -> String {
        format!("{}{index}", if self.number == LEFT { "l" } else { "r" })
    }

    /// Returns the name of the field that says whether it is there.
    fn exists(&self) -> String {
        self.field_prefix().to_owned() + "_exists"
    }

    fn field_prefix(&self) -> &'static str {
        if self.number == LEFT { "l" } else { "r" }
    }
}

/// A part of the key.
struct Part {
    name: String,
    ty: Type,
    /// A flag: whether it may be None on one of the sides.
    nullable: bool,
}

impl Part {
    /// Returns the name of its field, and of its column.
    fn field(&self) -> String {
        format!("by_{}", self.name)
    }
}

/// Both sides.
pub(super) struct Sides {
    pub left: Side,
    pub right: Side,
    key: Vec<Part>,
    time: Type,
}

/// A field of a side that the function names, and where.
struct Named {
    side: String,
    field: String,
    span: Option<Span>,
    is_list: bool,
}

impl Sides {
    /// Checks what is declared, given the schema of each side.
    pub fn of(def: &TransactionDef, of: &JoinDef, inputs: &[Schema; 2], time: Type) -> Checked<Sides> {
        let right = of.right.clone().unwrap_or_default();
        check_identifier("side of a join", &of.left)?;
        match (&of.right, of.how) {
            (None, JoinHow::Anti) => {}
            (None, _) => return Err(Fault::new("the right side of the join has no name")),
            (Some(name), JoinHow::Anti) => {
                return Err(Fault::new(format!("the function of an anti join never has an event '{name}'"))
                    .hint(format!("leave it out: it runs on events of '{}' without a partner", of.left)));
            }
            (Some(name), _) => check_identifier("side of a join", name)?,
        }
        if of.left == right {
            return Err(Fault::new(format!("both sides are called '{right}'")).hint("give them two names"));
        }
        let key = key(of, inputs)?;
        let is_outer = of.how == JoinHow::Outer;
        let waits = matches!(of.how, JoinHow::Left | JoinHow::Anti) || is_outer;
        let mut left = side(LEFT, &of.left, is_outer, waits);
        let mut right = side(RIGHT, &right, is_outer || of.how == JoinHow::Left, is_outer);
        for named in named(&def.body) {
            let (side, schema) =
                if named.side == left.name { (&mut left, &inputs[0]) } else { (&mut right, &inputs[1]) };
            side.use_field(&named, schema).map_err(|fault| fault.at(named.span))?;
        }
        for (side, schema) in [&mut left, &mut right].into_iter().zip(inputs) {
            side.fields.sort_by_key(|(name, _)| schema.index_of(name));
            side.name_column();
        }
        check_returns(&def.body)?;
        Ok(Sides { left, right, key, time })
    }

    /// Returns whether events wait for partners.
    pub fn somebody_waits(&self, how: JoinHow) -> bool {
        how != JoinHow::Inner
    }

    /// Returns the columns of a key: of a part that may be None, first whether it is.
    pub fn key_fields(&self) -> Vec<(String, Type)> {
        let mut fields = Vec::new();
        for part in &self.key {
            if part.nullable {
                fields.push((format!("none_{}", part.name), Type::Bool));
            }
            fields.push((part.field(), part.ty));
        }
        fields
    }

    /// Returns the names of the fields of a key, without those that say whether a part is None.
    pub fn key_names(&self) -> Vec<String> {
        self.key.iter().map(Part::field).collect()
    }

    /// Returns a test whether no part of an event's key is None; none if none can be.
    pub fn has_key(&self) -> Option<Expr> {
        let parts = self.key.iter().filter(|part| part.nullable);
        let there: Vec<Expr> = parts.map(|part| !event(format!("none_{}", part.name))).collect();
        (!there.is_empty()).then(|| crate::build::all(there))
    }

    fn both(&self) -> [&Side; 2] {
        [&self.left, &self.right]
    }

    /// Returns an event of a side as the join's transaction takes it; `now` is the time of its position.
    pub fn arrival(&self, of: &JoinDef, number: i64, now: Expr) -> Record {
        let mut key = Vec::new();
        for (part, (left, right)) in self.key.iter().zip(&of.on) {
            let value = if number == LEFT { left } else { right };
            if part.nullable {
                key.push(value.clone().is_null());
            }
            key.push(ExprNode::OrZero(Box::new(value.clone())).into());
        }
        let value = |side: &Side, name: &str| if side.number == number { event(name) } else { Value::Null.into() };
        self.input(number, now, key, value)
    }

    /// Returns a key whose events have waited for long enough.
    pub fn nobody(&self, now: Expr) -> Record {
        let key = self.key_fields().into_iter().map(|(name, _)| event(name)).collect();
        self.input(UNMATCHED, now, key, |_, _| Value::Null.into())
    }

    fn input(&self, side: i64, now: Expr, key: Vec<Expr>, value: impl Fn(&Side, &str) -> Expr) -> Record {
        let mut fields = vec![(SIDE.to_owned(), side.into()), (AT.to_owned(), now)];
        let mut schema = vec![Field::scalar(SIDE, Type::Int.into()), Field::scalar(AT, self.time.into())];
        for ((name, ty), given) in self.key_fields().into_iter().zip(key) {
            schema.push(Field::scalar(&name, ty.into()));
            fields.push((name, given));
        }
        for side in self.both() {
            for (index, (name, ty)) in side.fields.iter().enumerate() {
                schema.push(Field::scalar(side.field(index), ColumnType::optional(ty.ty)));
                fields.push((side.field(index), value(side, name)));
            }
        }
        Record { fields, schema: Some(Schema { fields: schema }), event_time: None }
    }

    /// Returns a pair, made of a value for each field, and for each side that may be missing of whether it is there.
    pub fn pair(&self, value: impl Fn(&Side, usize) -> Expr, exists: impl Fn(&Side) -> Expr) -> Record {
        let (mut fields, mut schema) = (Vec::new(), Vec::new());
        for side in self.both() {
            for (index, (_, ty)) in side.fields.iter().enumerate() {
                let ty = ColumnType { ty: ty.ty, nullable: ty.nullable || side.may_miss };
                schema.push(Field::scalar(side.field(index), ty));
                fields.push((side.field(index), value(side, index)));
            }
            if side.may_miss {
                schema.push(Field::scalar(side.exists(), Type::Bool.into()));
                fields.push((side.exists(), exists(side)));
            }
        }
        schema.push(Field::scalar(AT, self.time.into()));
        fields.push((AT.to_owned(), event(AT)));
        Record { fields, schema: Some(Schema { fields: schema }), event_time: Some(AT.to_owned()) }
    }

    /// Returns the fields that are kept of events, as the function names them.
    pub fn kept(&self) -> Vec<String> {
        let of = |side: &Side| -> Vec<String> {
            side.fields.iter().map(|(name, _)| format!("{}.{name}", side.name)).collect()
        };
        self.both().into_iter().flat_map(of).collect()
    }

    /// Returns the fields of a pair as the function names them.
    pub fn pair_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for side in self.both() {
            names.extend(side.fields.iter().map(|(name, _)| format!("{}.{name}", side.name)));
            names.extend(side.may_miss.then(|| format!("{}.{EXISTS}", side.name)));
        }
        names.push(AT.to_owned());
        names
    }
}

fn side(number: i64, name: &str, may_miss: bool, waits: bool) -> Side {
    Side { number, name: name.to_owned(), fields: Vec::new(), may_miss, waits, column: String::new() }
}

impl Side {
    /// Notes a field that the function names.
    fn use_field(&mut self, named: &Named, schema: &Schema) -> Checked<()> {
        let (name, field) = (&self.name, &named.field);
        if named.side != *name {
            return Err(Fault::new(format!("'{}' is no side of the join", named.side)));
        }
        let known = schema.index_of(field).map(|index| &schema.fields[index]);
        if field == EXISTS && self.may_miss {
            return match known {
                None => Ok(()),
                Some(_) => {
                    Err(Fault::new(format!("'{name}.exists' has two meanings: its events have a field 'exists'"))
                        .hint("rename the field in a map"))
                }
            };
        }
        let Some(known) = known else {
            if field == EXISTS {
                let hows = if self.number == LEFT { "how=\"outer\"" } else { "how=\"left\" or how=\"outer\"" };
                let hint = format!("leave '{name}.exists' out; it can be missing with {hows}");
                return Err(Fault::new(format!("'{name}' is there in every pair of this join")).hint(hint));
            }
            let names = schema.fields.iter().map(|field| field.name.as_str()).filter(|name| !name.contains(' '));
            return Err(Fault::unknown(format_args!("field of '{name}' called"), field, names));
        };
        match known.ty {
            FieldType::Scalar(ty) if !named.is_list => {
                if !self.fields.iter().any(|(known, _)| known == field) {
                    self.fields.push((field.clone(), ty));
                }
                Ok(())
            }
            FieldType::Scalar(ty) if ty.ty.is_bytes() => {
                // Its length, which is asked of a value here.
                self.use_field(
                    &Named { side: named.side.clone(), field: field.clone(), span: None, is_list: false },
                    schema,
                )
            }
            FieldType::Scalar(ty) => Err(Fault::new(format!("{name}.{field} is {ty}, not a list"))),
            FieldType::List(_) => Err(Fault::new(format!("{name}.{field} is a list, which a join does not keep"))
                .hint("open it in a transaction before, and join what that emits")),
        }
    }

    /// Names the column of its records by what they hold, so that a state does not fit a program which keeps something else.
    fn name_column(&mut self) {
        let mut name = if self.number == LEFT { "left" } else { "right" }.to_owned();
        for (field, ty) in &self.fields {
            name.push('_');
            name.extend(plain(&format!("{field} {ty}")));
        }
        self.column = name;
    }
}

/// Returns a text as a part of a name.
fn plain(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' })
}

/// Returns the parts of the key.
fn key(of: &JoinDef, inputs: &[Schema; 2]) -> Checked<Vec<Part>> {
    if of.on.is_empty() {
        return Err(Fault::new("the join has no key").hint("say on=\"id\", or on=(\"id\", \"seller\")"));
    }
    let mut parts: Vec<Part> = Vec::new();
    for (left, right) in &of.on {
        let (a, b) = (key_part(left, &inputs[0], "left")?, key_part(right, &inputs[1], "right")?);
        if a.ty != b.ty {
            return Err(Fault::new(format!(
                "the key is {left} on the left, which is {}, and {right} on the right, which is {}",
                a.ty, b.ty
            ))
            .hint("give both one type, in a map of one of the streams")
            .at(left.span));
        }
        let text = |expr: &Expr| expr.to_string().replace("ev.", "");
        let mut name: String = plain(&format!("{}_{}", text(left), text(right))).collect();
        while parts.iter().any(|part| part.name == name) {
            name.push('_');
        }
        parts.push(Part { name, ty: a.ty, nullable: a.nullable || b.nullable });
    }
    Ok(parts)
}

fn key_part(value: &Expr, schema: &Schema, side: &str) -> Checked<ColumnType> {
    let mut scope = Scope::new(Site::Derived, schema);
    let typed = scope.expression(value)?.ty;
    let at = |fault: Fault| fault.at(value.span);
    check_column_type("the key", typed.ty).map_err(at)?;
    if typed.ty == Type::Float {
        return Err(at(Fault::new(format!("the key {value} of the {side} side is a float"))
            .hint("floats that are nearly equal are different; use an int, a Decimal or a str")));
    }
    if let Some(reason) = scope.reasons.first() {
        return Err(at(Fault::new(format!("the key {value} of the {side} side could fail: {reason}"))
            .hint("compute it in a map, and join the mapped stream")));
    }
    Ok(typed)
}

/// Refuses a function that gives nothing.
fn check_returns(body: &[Stmt]) -> Checked<()> {
    let mut returns = false;
    each_statement(body, &mut |stmt| returns |= matches!(stmt.node, StmtNode::Return { record: Some(_) }));
    let hint = "return an event: a dict, or an instance of an event class";
    if returns { Ok(()) } else { Err(Fault::new("the function of the join returns nothing").hint(hint)) }
}

/// Returns the fields of sides that a body names.
fn named(body: &[Stmt]) -> Vec<Named> {
    let mut all = Vec::new();
    let mut note = |name: &str, span: Option<Span>, is_list: bool| {
        let (side, field) = name.split_once('.').unwrap_or(("", name));
        all.push(Named { side: side.to_owned(), field: field.to_owned(), span, is_list });
    };
    each_statement(body, &mut |stmt| {
        if let StmtNode::ForEach { list, .. } = &stmt.node {
            note(list, stmt.span, true);
        }
    });
    rewrite::block(body, &mut |expr| {
        match &expr.node {
            ExprNode::Event(name) => note(name, expr.span, false),
            ExprNode::Length(name) => note(name, expr.span, true),
            _ => {}
        }
        None
    });
    all
}
