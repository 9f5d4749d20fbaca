//! The few expressions of SQL that are understood: literals, casts, parameters, columns, and what clients ask of the
//! server.

use super::arrays::Item;
use super::catalog::listed;
use super::error::{PgError, PgResult, code};
use super::given::Given;
use super::names::{Name, column_name, text_of};
use super::statement::{Constant, Fact};
use super::types::PgType;
use sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments,
    ObjectNamePart, SelectItem, TypedString, UnaryOperator, Value, WildcardAdditionalOptions,
};
use tidemill_model::Field;

/// Returns the place of a parameter: 0 for `$1`.
pub fn placeholder(expression: &Expr) -> Option<usize> {
    let Expr::Value(value) = expression else { return None };
    let Value::Placeholder(text) = &value.value else { return None };
    let number: usize = text.strip_prefix('$')?.parse().ok()?;
    // As many as a message can have values.
    number.checked_sub(1).filter(|&place| place < usize::from(u16::MAX))
}

/// Returns the value of a literal.
pub fn literal(expression: &Expr) -> PgResult<Given> {
    let other = || PgError::not_supported(format!("the expression {}", shown(expression)));
    Ok(match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(text, false) => number(text),
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) | Value::UnicodeStringLiteral(text) => {
                Given::Unknown(text.clone())
            }
            Value::DollarQuotedString(text) => Given::Unknown(text.value.clone()),
            Value::Boolean(value) => Given::Bool(*value),
            Value::Null => Given::Null,
            _ => return Err(other()),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => match &value.value {
                Value::Number(text, false) => number(&format!("-{text}")),
                _ => return Err(other()),
            },
            _ => return Err(other()),
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } | Expr::Nested(expr) => literal(expr)?,
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => match &value.value {
            Value::SingleQuotedString(text) => Given::Unknown(text.clone()).cast(cast_type(data_type)?)?,
            _ => return Err(other()),
        },
        Expr::Cast { expr, data_type, format: None, .. } => literal(expr)?.cast(cast_type(data_type)?)?,
        _ => return Err(other()),
    })
}

fn number(text: &str) -> Given {
    text.parse().map_or_else(|_| Given::Numeric(text.to_owned()), Given::Int)
}

/// Returns an expression in a message.
fn shown(expression: &Expr) -> String {
    expression.to_string().chars().take(100).collect()
}

/// Returns the type that a cast names.
pub fn cast_type(ty: &DataType) -> PgResult<PgType> {
    type_named(&ty.to_string()).ok_or_else(|| PgError::not_supported(format!("a cast to {ty}")))
}

/// Returns the type of a name, if it is spoken here.
pub fn type_named(name: &str) -> Option<PgType> {
    Some(match name.to_lowercase().as_str() {
        "bool" | "boolean" => PgType::Bool,
        "smallint" | "int2" => PgType::Int2,
        "int" | "integer" | "int4" => PgType::Int4,
        "bigint" | "int8" => PgType::Int8,
        "real" | "float4" => PgType::Float4,
        "double precision" | "float8" | "float" => PgType::Float8,
        "numeric" | "decimal" => PgType::Numeric(None),
        "text" | "varchar" | "character varying" => PgType::Text,
        "timestamp with time zone" | "timestamptz" => PgType::Time,
        "timestamp" | "timestamp without time zone" => PgType::Timestamp,
        "date" => PgType::Date,
        "bytea" => PgType::Bytes,
        "json" | "jsonb" => PgType::Json,
        "uuid" => PgType::Uuid,
        "oid" => PgType::Oid,
        "name" | "char" => PgType::Text,
        name => array_of(type_named(name.strip_suffix("[]")?)?)?,
    })
}

/// Returns the type of arrays of a type.
fn array_of(item: PgType) -> Option<PgType> {
    Some(PgType::Array(match item {
        PgType::Bool => Item::Bool,
        PgType::Int2 | PgType::Int4 | PgType::Int8 => Item::Int,
        PgType::Oid => Item::Oid,
        PgType::Float4 | PgType::Float8 => Item::Float,
        PgType::Text => Item::Text,
        _ => return None,
    }))
}

/// Returns the name of an argument, if it has one, and its value.
pub fn argument_parts(argument: &FunctionArg) -> PgResult<(Option<Name>, &Expr)> {
    let other = || PgError::not_supported(format!("the argument {argument}"));
    let operator = |operator: &FunctionArgOperator| {
        matches!(operator, FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment)
    };
    let (name, value) = match argument {
        // In a call after FROM it is read as an operator.
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Assignment, right })) => {
            let Expr::Identifier(name) = &**left else { return Err(other()) };
            return Ok((Some(Name::of(name)), &**right));
        }
        FunctionArg::Unnamed(value) => (None, value),
        FunctionArg::Named { name, arg, operator: by } if operator(by) => (Some(Name::of(name)), arg),
        FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, operator: by } if operator(by) => {
            (Some(Name::of(name)), arg)
        }
        _ => return Err(other()),
    };
    match value {
        FunctionArgExpr::Expr(value) => Ok((name, value)),
        _ => Err(other()),
    }
}

/// Returns the columns that are asked for, with the names under which they are shown. Without items: all.
pub fn projected(items: Option<&[SelectItem]>, fields: &[Field], qualifier: &str) -> PgResult<Vec<(usize, String)>> {
    let all = || fields.iter().map(|field| field.name.clone()).enumerate();
    let Some(items) = items else { return Ok(all().collect()) };
    let mut columns = Vec::new();
    for item in items {
        let (expression, alias) = match item {
            SelectItem::Wildcard(options) if is_plain(options) => {
                columns.extend(all());
                continue;
            }
            SelectItem::UnnamedExpr(expression) => (expression, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(text_of(alias))),
            other => return Err(PgError::not_supported(format!("{other}"))),
        };
        let other = || PgError::not_supported(format!("{} among columns", shown(expression)));
        let name = column_name(expression, qualifier).ok_or_else(other)?;
        let column = fields.iter().position(|field| name.is(&field.name));
        let column = column.ok_or_else(|| no_column(&name, fields, qualifier))?;
        columns.push((column, alias.unwrap_or_else(|| fields[column].name.clone())));
    }
    Ok(columns)
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_replace.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none()
}

/// Returns the error that there is no column of this name.
pub fn no_column(name: &Name, fields: &[Field], relation: &str) -> PgError {
    let known = listed(fields.iter().map(|field| &*field.name));
    PgError::new(code::NO_COLUMN, format!("'{relation}' has no column '{name}'; columns: {known}"))
        .column(name.to_string())
}

/// Returns the sides of equalities that are joined by `AND`; none if there is anything else.
pub fn conjuncts<'a>(expression: &'a Expr, into: &mut Vec<(&'a Expr, &'a Expr)>) -> Option<()> {
    match expression {
        Expr::Nested(inner) => conjuncts(inner, into),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(left, into)?;
            conjuncts(right, into)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            into.push((left, right));
            Some(())
        }
        _ => None,
    }
}

/// Returns a column of a row that is no table's: what it is, its name and its type.
pub fn constant(expression: &Expr) -> PgResult<(Constant, String, PgType)> {
    if let Expr::Function(function) = expression {
        return function_constant(function)
            .ok_or_else(|| PgError::not_supported(format!("{} in an expression", shown(expression))));
    }
    let given = literal(expression)?;
    let ty = match &given {
        Given::Int(value) if i32::try_from(*value).is_ok() => PgType::Int4,
        Given::Int(_) => PgType::Int8,
        Given::Bool(_) => PgType::Bool,
        Given::Null | Given::Unknown(_) | Given::Text(_) => PgType::Text,
        _ => return Err(PgError::not_supported(format!("{} without a table", shown(expression)))),
    };
    Ok((Constant::Given(given), "?column?".to_owned(), ty))
}

fn function_constant(function: &Function) -> Option<(Constant, String, PgType)> {
    let (constant, ty) = fact(function)?;
    let name = function.name.0.last().map(|part| part.to_string().to_lowercase());
    Some((constant, name.unwrap_or_default(), ty))
}

/// Returns the property of the server or connection that a function stands for, with its type; None if it is another
/// function.
pub fn fact(function: &Function) -> Option<(Constant, PgType)> {
    let names: Vec<String> = function.name.0.iter().map(part_text).collect::<Option<_>>()?;
    let name = match &names[..] {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return None,
    };
    let arguments: &[FunctionArg] = match &function.args {
        FunctionArguments::None => &[],
        FunctionArguments::List(list) => &list.args,
        FunctionArguments::Subquery(_) => return None,
    };
    if function.over.is_some() || function.filter.is_some() {
        return None;
    }
    let fact = match (name.as_str(), arguments) {
        ("version", []) => (Fact::Version, PgType::Text),
        ("current_schema", []) => (Fact::Schema, PgType::Text),
        ("current_database" | "current_catalog", []) => (Fact::Database, PgType::Text),
        ("current_user" | "session_user" | "user" | "current_role", []) => (Fact::User, PgType::Text),
        ("pg_backend_pid", []) => (Fact::Process, PgType::Int4),
        ("pg_is_in_recovery", []) => (Fact::IsReplica, PgType::Bool),
        ("pg_advisory_unlock_all", []) => (Fact::UnlockAll, PgType::Void),
        ("current_setting", [argument]) => {
            let (None, expression) = argument_parts(argument).ok()? else { return None };
            let Ok(Given::Unknown(name) | Given::Text(name)) = literal(expression) else { return None };
            return Some((Constant::Setting(name.to_lowercase()), PgType::Text));
        }
        _ => return None,
    };
    Some((Constant::Fact(fact.0), fact.1))
}

fn part_text(part: &ObjectNamePart) -> Option<String> {
    match part {
        ObjectNamePart::Identifier(ident) => Some(text_of(ident)),
        ObjectNamePart::Function(_) => None,
    }
}
