//! Names in SQL: those without quotes are the same in lower case.

use super::error::{PgError, PgResult};
use sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, TableFactor};
use std::fmt;

/// A name as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: String,
    is_quoted: bool,
}

impl Name {
    pub fn of(ident: &Ident) -> Name {
        Name { text: ident.value.clone(), is_quoted: ident.quote_style.is_some() }
    }

    /// Returns whether the identifier denotes this name. Names with capitals need no quotes, if they are written as
    /// they are.
    pub fn is(&self, name: &str) -> bool {
        self.text == name || (!self.is_quoted && self.text.to_lowercase() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the name of a setting, a savepoint or a column of the client's own.
pub fn text_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The table or procedure after `FROM`.
pub struct Relation {
    pub name: Name,
    pub alias: Option<String>,
}

impl Relation {
    /// Returns the word before the dot in a qualified column: the alias, or else the name.
    pub fn qualifier<'a>(&'a self, name: &'a str) -> &'a str {
        self.alias.as_deref().unwrap_or(name)
    }
}

/// Returns a name, perhaps in the schema where everything is.
pub fn object_name(name: &ObjectName) -> PgResult<Name> {
    let parts = name.0.iter().map(|part| match part {
        ObjectNamePart::Identifier(ident) => Ok(Name::of(ident)),
        ObjectNamePart::Function(_) => Err(PgError::not_supported(format!("the name {name}"))),
    });
    let parts = parts.collect::<PgResult<Vec<Name>>>()?;
    match &parts[..] {
        [name] => Ok(name.clone()),
        [schema, name] if schema.is("public") => Ok(name.clone()),
        _ => Err(PgError::not_supported(format!("{name}; all tables and procedures are in the schema public"))),
    }
}

/// Returns the table or call of a `FROM` that has nothing else.
pub fn relation(factor: &TableFactor) -> PgResult<Relation> {
    let TableFactor::Table {
        name,
        alias,
        args: _,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
    } = factor
    else {
        return Err(PgError::not_supported("anything but a table or a call after FROM"));
    };
    let is_plain = with_hints.is_empty()
        && version.is_none()
        && !with_ordinality
        && partitions.is_empty()
        && json_path.is_none()
        && sample.is_none()
        && index_hints.is_empty();
    let is_named = alias.as_ref().is_none_or(|alias| alias.columns.is_empty() && alias.at.is_none());
    if !is_plain || !is_named {
        return Err(PgError::not_supported(format!("FROM {factor}")));
    }
    Ok(Relation { name: object_name(name)?, alias: alias.as_ref().map(|alias| text_of(&alias.name)) })
}

/// Returns the column that an expression is, if it is one of this table.
pub fn column_name(expression: &Expr, qualifier: &str) -> Option<Name> {
    match expression {
        Expr::Identifier(ident) => Some(Name::of(ident)),
        Expr::CompoundIdentifier(parts) => match &parts[..] {
            [table, column] if Name::of(table).is(qualifier) => Some(Name::of(column)),
            _ => None,
        },
        Expr::Nested(inner) => column_name(inner, qualifier),
        _ => None,
    }
}
