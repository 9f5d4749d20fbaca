//! A query in the words of the engine, if it has some that the engine does not know.

use super::super::catalog::Catalog;
use super::super::error::{PgError, PgResult};
use super::super::expressions::fact;
use super::super::given::Given;
use super::super::names::text_of;
use super::super::statement::Constant;
use super::{numeric, script};
use sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, Select,
    SelectItem, SetExpr, Statement, TableAlias, TableFactor, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// The schemas of the engine in which the catalogs are.
const CATALOG: &str = "tidemill_pg";
const INFORMATION: &str = "tidemill_info";

/// A query for the engine.
pub struct Rewritten {
    /// Its text, if it is not as it was.
    pub sql: Option<String>,
    /// A flag: whether the query reads catalog tables, so that they must be made for it.
    pub needs_catalogs: bool,
    /// The tables of the application that it names.
    pub named: Vec<String>,
}

/// Puts a query into the words of the engine. `value`: what a connection says of itself.
pub fn rewritten(
    statement: &Statement,
    catalog: &Catalog,
    value: &dyn Fn(&Constant) -> PgResult<Given>,
) -> PgResult<Rewritten> {
    let mut look = Look { catalog, is_foreign: false, named: Vec::new(), checked: Ok(()) };
    let mut own = statement.clone();
    let _ = VisitMut::visit(&mut own, &mut look);
    look.checked?;
    if !look.is_foreign {
        return Ok(Rewritten { sql: None, needs_catalogs: false, named: look.named });
    }
    let mut rewrite = Rewrite { catalog, value, needs_catalogs: false };
    match VisitMut::visit(&mut own, &mut rewrite) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => {
            let needs_catalogs = rewrite.needs_catalogs;
            Ok(Rewritten { sql: Some(own.to_string()), needs_catalogs, named: look.named })
        }
    }
}

/// The names of what `tables.sql` and `functions.sql` make.
struct Names {
    catalogs: Vec<&'static str>,
    information: Vec<&'static str>,
    functions: Vec<&'static str>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let made = |text: &'static str, what: &'static str| {
        text.lines().filter_map(move |line| line.strip_prefix(what)?.split([' ', '(']).next())
    };
    let (own, information) = script::FUNCTIONS.split_once("set schema").expect("the schema of information follows");
    Names {
        catalogs: made(script::TABLES, "create table ").chain(made(own, "create view ")).collect(),
        information: made(information, "create view ").collect(),
        functions: made(own, "create macro ").collect(),
    }
});

/// Returns the schema and the name that an object's name has, in lower case where it is not quoted.
fn parts(name: &ObjectName) -> Option<(Option<String>, String)> {
    let text = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(text_of(ident)),
        ObjectNamePart::Function(_) => None,
    };
    match &name.0[..] {
        [name] => Some((None, text(name)?)),
        [schema, name] => Some((Some(text(schema)?), text(name)?)),
        _ => None,
    }
}

fn object(names: &[&str]) -> ObjectName {
    ObjectName(names.iter().map(|name| ObjectNamePart::Identifier(Ident::new(*name))).collect())
}

fn is_schema(ident: &Ident) -> bool {
    ["pg_catalog", "information_schema", "public"].contains(&text_of(ident).as_str())
}

/// The form that a name takes in the engine: that of a catalog table or function, or a name without its schema. A name
/// that needs no change has no place.
enum Place {
    Catalog(&'static str),
    /// The name without its schema.
    Plain,
}

fn place(catalog: &Catalog, name: &ObjectName, is_function: bool) -> Option<(Place, String)> {
    let (schema, name) = parts(name)?;
    let (names, found) = (&*NAMES, |names: &[&str]| names.contains(&name.as_str()));
    let place = match schema.as_deref() {
        Some("pg_catalog" | "information_schema") if is_function => match found(&names.functions) {
            true => Place::Catalog(CATALOG),
            false => Place::Plain,
        },
        Some("pg_catalog") => Place::Catalog(CATALOG),
        Some("information_schema") if found(&names.information) => Place::Catalog(INFORMATION),
        Some("public") => Place::Plain,
        None if is_function && found(&names.functions) => Place::Catalog(CATALOG),
        None if !is_function && found(&names.catalogs) && !catalog.tables.iter().any(|table| table.name == name) => {
            Place::Catalog(CATALOG)
        }
        _ => return None,
    };
    Some((place, name))
}

/// A walk over a statement that finds whether it has to be rewritten.
struct Look<'a> {
    catalog: &'a Catalog,
    is_foreign: bool,
    named: Vec<String>,
    /// A flag: whether the engine takes its numbers as they are.
    checked: PgResult<()>,
}

impl VisitorMut for Look<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args, .. } = factor {
            self.is_foreign |= place(self.catalog, name, args.is_some()).is_some();
            let last = name.0.last().map(ToString::to_string).unwrap_or_default();
            let last = last.trim_matches('"');
            let named = self.catalog.tables.iter().find(|table| table.name.eq_ignore_ascii_case(last));
            self.named.extend(named.map(|table| table.name.clone()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) = expression
            && self.checked.is_ok()
        {
            self.checked = numeric::check_number(text);
        }
        self.is_foreign |= match expression {
            Expr::Function(function) => fact(function).is_some() || place(self.catalog, &function.name, true).is_some(),
            Expr::Cast { data_type, .. } => {
                registered(data_type).is_some() || qualified(data_type) || numeric::is_bare(data_type)
            }
            Expr::TypedString(text) => numeric::is_bare(&text.data_type),
            Expr::BinaryOp { op: BinaryOperator::PGCustomBinaryOperator(_), .. } => true,
            _ => false,
        };
        ControlFlow::Continue(())
    }
}

/// Returns the type of numbers that are shown as names, if it is one: `regclass` and its like.
fn registered(ty: &DataType) -> Option<String> {
    let name = match ty {
        DataType::Regclass => "regclass".to_owned(),
        DataType::Custom(name, _) => parts(name)?.1,
        _ => return None,
    };
    let known = ["regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"];
    known.contains(&name.as_str()).then_some(name)
}

/// Returns the name of a type that the parser has no variant for, without its schema.
pub(super) fn name_of_type(ty: &DataType) -> Option<String> {
    match ty {
        DataType::Custom(name, _) => Some(parts(name)?.1),
        _ => None,
    }
}

/// Returns whether a type is written with the schema `pg_catalog`.
fn qualified(ty: &DataType) -> bool {
    match ty {
        DataType::Custom(name, _) => parts(name).is_some_and(|(schema, _)| schema.as_deref() == Some("pg_catalog")),
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => qualified(item),
        _ => false,
    }
}

/// Returns the engine's type for one of PostgreSQL's that it has under another name.
fn engine_type(ty: &DataType) -> DataType {
    match ty {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, size)) => {
            DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(engine_type(item)), *size))
        }
        DataType::Char(_) | DataType::Character(_) => DataType::Text,
        DataType::Custom(name, _) => match parts(name) {
            Some((_, name)) => match name.as_str() {
                "oid" => DataType::Custom(object(&["uinteger"]), Vec::new()),
                "int8" | "int4" | "int2" | "xid" | "cid" => DataType::BigInt(None),
                "float8" | "float4" => DataType::DoublePrecision,
                "bool" => DataType::Boolean,
                "numeric" => DataType::Numeric(ExactNumberInfo::None),
                "text" | "name" | "char" | "bpchar" | "varchar" | "cstring" | "pg_node_tree" | "oidvector" => {
                    DataType::Text
                }
                "int2vector" => {
                    DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::BigInt(None)), None))
                }
                _ => DataType::Custom(object(&[&name]), Vec::new()),
            },
            None => ty.clone(),
        },
        other => other.clone(),
    }
}

struct Rewrite<'a> {
    catalog: &'a Catalog,
    value: &'a dyn Fn(&Constant) -> PgResult<Given>,
    needs_catalogs: bool,
}

impl VisitorMut for Rewrite<'_> {
    type Break = Box<PgError>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        select.projection.iter_mut().for_each(name_item);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table { name, alias, args, .. } = factor {
            let before = parts(name).map(|(_, name)| name);
            self.move_name(name, args.is_some());
            // Its columns may be qualified with its name.
            if alias.is_none()
                && args.is_none()
                && let Some(before) = before
                && name.0.len() == 2
            {
                *alias = Some(TableAlias { explicit: true, name: Ident::new(before), columns: Vec::new(), at: None });
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        match expression {
            Expr::Cast { expr, data_type, .. } if is_text(data_type) => {
                // The name, and not the number.
                if let Expr::Cast { expr: inner, data_type, .. } = &**expr
                    && let Some(ty) = registered(data_type)
                    && is_text_value(inner)
                {
                    self.needs_catalogs = true;
                    **expr = call(&format!("{ty}_text"), call(&format!("{ty}_of"), (**inner).clone()));
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq | BinaryOperator::NotEq, right } => {
                // Both sides are numbers that a cast shows as names: the numbers themselves are compared.
                for side in [left, right] {
                    if let Expr::Cast { expr, data_type, .. } = &mut **side
                        && registered(data_type).is_some()
                        && !is_text_value(expr)
                    {
                        **side = (**expr).clone();
                    }
                }
            }
            Expr::Like { escape_char, .. } | Expr::ILike { escape_char, .. } if escape_char.is_none() => {
                *escape_char = Some(Box::new(string("\\")));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        match self.replacement(expression) {
            Ok(None) => {}
            Ok(Some(other)) => *expression = other,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

impl Rewrite<'_> {
    fn move_name(&mut self, name: &mut ObjectName, is_function: bool) {
        match place(self.catalog, name, is_function) {
            Some((Place::Catalog(schema), plain)) => {
                self.needs_catalogs = true;
                *name = object(&[schema, &plain]);
            }
            Some((Place::Plain, _)) => {
                let last = name.0.pop().expect("it has parts");
                name.0 = vec![last];
            }
            None => {}
        }
    }

    fn replacement(&mut self, expression: &mut Expr) -> PgResult<Option<Expr>> {
        Ok(match expression {
            Expr::Function(function) => match fact(function) {
                Some((constant, _)) => Some(self.constant(&constant)?),
                None if is_schemas(function) => Some(schemas(function)),
                None => {
                    match parts(&function.name) {
                        Some((_, name)) if name == "coalesce" => list_arguments(function),
                        Some((_, name)) if name == "json_build_object" => function.name = object(&["json_object"]),
                        _ => {}
                    }
                    self.move_name(&mut function.name, true);
                    None
                }
            },
            Expr::Cast { expr, data_type, kind, .. } => match registered(data_type) {
                None if numeric::is_bare(data_type) => Some(numeric::cast(expr)?),
                Some(ty) => {
                    self.needs_catalogs = true;
                    let suffix = if is_text_value(expr) { "of" } else { "text" };
                    Some(call(&format!("{ty}_{suffix}"), (**expr).clone()))
                }
                None => {
                    if let (DataType::Array(_), Some(list)) = (&*data_type, listed(expr)) {
                        **expr = list;
                    }
                    *data_type = engine_type(data_type);
                    // Both are the same, and this one is written out by all.
                    *kind = CastKind::Cast;
                    None
                }
            },
            Expr::TypedString(text) if numeric::is_bare(&text.data_type) => {
                Some(numeric::cast(&Expr::Value(text.value.clone()))?)
            }
            Expr::Collate { expr, .. } => Some((**expr).clone()),
            Expr::CompoundIdentifier(idents) if idents.len() > 2 && is_schema(&idents[0]) => {
                Some(Expr::CompoundIdentifier(idents[1..].to_vec()))
            }
            Expr::BinaryOp { left, op, right } => operated(left, op, right),
            _ => None,
        })
    }

    /// Returns a property of the connection, such as its user, as a literal.
    fn constant(&self, constant: &Constant) -> PgResult<Expr> {
        let value = match (self.value)(constant)? {
            Given::Text(text) | Given::Unknown(text) => return Ok(string(&text)),
            Given::Int(value) => Value::Number(value.to_string(), false),
            Given::Bool(value) => Value::Boolean(value),
            _ => Value::Null,
        };
        Ok(Expr::Value(ValueWithSpan::from(value)))
    }
}

/// Returns an operator of PostgreSQL's in the words of the engine.
fn operated(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let spelled = match op {
        BinaryOperator::PGCustomBinaryOperator(names) => names.last().map_or("", String::as_str),
        BinaryOperator::PGRegexMatch => "~",
        BinaryOperator::PGRegexIMatch => "~*",
        BinaryOperator::PGRegexNotMatch => "!~",
        BinaryOperator::PGRegexNotIMatch => "!~*",
        _ => return None,
    };
    let (negated, rest) = match spelled.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, spelled),
    };
    let like = |pattern: &Expr| Expr::Like {
        negated: false,
        any: false,
        expr: Box::new(left.clone()),
        pattern: Box::new(pattern.clone()),
        escape_char: Some(Box::new(string("\\"))),
    };
    let positive = match rest {
        "~" => function(object(&["regexp_matches"]), vec![left.clone(), right.clone()]),
        "~*" => function(object(&["regexp_matches"]), vec![left.clone(), right.clone(), string("i")]),
        "~~" => like(right),
        "=" => Expr::BinaryOp { left: left.clone().into(), op: BinaryOperator::Eq, right: right.clone().into() },
        _ => return None,
    };
    Some(match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(positive))) },
        false => positive,
    })
}

fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Text | DataType::Varchar(_) => true,
        DataType::Custom(name, _) => parts(name).is_some_and(|(_, name)| name == "text" || name == "varchar"),
        _ => false,
    }
}

/// Returns whether an expression is text. A number that stands for an object, such as an oid, is not.
fn is_text_value(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => {
            matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::Placeholder(_))
        }
        Expr::Cast { data_type, .. } => is_text(data_type),
        Expr::Nested(inner) => is_text_value(inner),
        Expr::BinaryOp { op: BinaryOperator::StringConcat, .. } => true,
        _ => false,
    }
}

fn string(text: &str) -> Expr {
    Expr::Value(ValueWithSpan::from(Value::SingleQuotedString(text.to_owned())))
}

/// Returns a call of a function of the catalogs.
fn call(name: &str, argument: Expr) -> Expr {
    function(object(&[CATALOG, name]), vec![argument])
}

fn function(name: ObjectName, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).collect();
    Expr::Function(Function {
        name,
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}

/// Returns whether a function is `current_schemas`, the schemas that are searched for names.
fn is_schemas(function: &Function) -> bool {
    parts(&function.name).is_some_and(|(_, name)| name == "current_schemas")
}

fn schemas(function: &Function) -> Expr {
    let with_catalog = function.args.to_string().eq_ignore_ascii_case("(true)");
    let names = if with_catalog { vec![string("pg_catalog"), string("public")] } else { vec![string("public")] };
    Expr::Array(Array { elem: names, named: true })
}

/// Arguments that are arrays written as text stand beside lists.
fn list_arguments(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    for argument in &mut list.args {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) = argument
            && let Some(list) = listed(expression)
        {
            *expression = list;
        }
    }
}

/// Returns the elements of an array that is written as text: `{1,2}`.
fn listed(expression: &Expr) -> Option<Expr> {
    let Expr::Value(value) = expression else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let items = inner.split(',').filter(|item| !item.is_empty()).map(|item| string(item.trim_matches('"')));
    Some(Expr::Array(Array { elem: items.collect(), named: true }))
}

/// Gives a column the name that PostgreSQL gives it, and shows names of what is a number.
fn name_item(item: &mut SelectItem) {
    let expression = match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => expression,
        _ => return,
    };
    let name = column_name(expression);
    if let Expr::Cast { expr, data_type, .. } = expression
        && registered(data_type).is_some()
        && is_text_value(expr)
    {
        let cast = Box::new(expression.clone());
        *expression = Expr::Cast { kind: CastKind::Cast, expr: cast, data_type: DataType::Text, format: None };
    }
    if let SelectItem::UnnamedExpr(expression) = item {
        let expr = expression.clone();
        let alias = Ident::with_quote('"', name.unwrap_or_else(|| "?column?".to_owned()));
        if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    } else if let SelectItem::ExprWithAlias { alias, .. } = item {
        *alias = Ident::with_quote('"', text_of(alias));
    }
}

/// Returns the name of a column without one, as in PostgreSQL.
fn column_name(expression: &Expr) -> Option<String> {
    strong_name(expression).or_else(|| match expression {
        Expr::Cast { data_type, .. } => match data_type {
            DataType::Custom(name, _) => parts(name).map(|(_, name)| name),
            other => Some(other.to_string().to_lowercase()),
        },
        Expr::Collate { expr, .. } | Expr::Nested(expr) => column_name(expr),
        Expr::Case { .. } => Some("case".to_owned()),
        _ => None,
    })
}

/// Returns the name that an expression gives to what it stands in.
fn strong_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(ident) => Some(text_of(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(text_of),
        Expr::Function(function) => parts(&function.name).map(|(_, name)| name),
        Expr::Cast { expr, .. } | Expr::Collate { expr, .. } | Expr::Nested(expr) => strong_name(expr),
        Expr::Case { else_result: Some(other), .. } => strong_name(other),
        Expr::Array(_) => Some("array".to_owned()),
        Expr::Exists { .. } => Some("exists".to_owned()),
        Expr::Subquery(query) => match &*query.body {
            SetExpr::Select(select) => match &select.projection[..] {
                [SelectItem::UnnamedExpr(expression)] => column_name(expression),
                [SelectItem::ExprWithAlias { alias, .. }] => Some(text_of(alias)),
                _ => None,
            },
            _ => None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(ident))) => Some(text_of(ident)),
            _ => strong_name(root),
        },
        _ => None,
    }
}
