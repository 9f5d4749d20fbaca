//! Schemas of events: named fields, each a scalar or a list.

use crate::{ColumnType, Type};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one element of a list field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListItem {
    /// A single value per element.
    Scalar(ColumnType),
    /// A nested event class per element: named scalar columns.
    Struct(Vec<(String, ColumnType)>),
}

impl ListItem {
    /// Returns the element's columns: one nameless column for scalars.
    pub fn columns(&self) -> Vec<(&str, ColumnType)> {
        match self {
            ListItem::Scalar(ty) => vec![("", *ty)],
            ListItem::Struct(columns) => columns.iter().map(|(n, t)| (n.as_str(), *t)).collect(),
        }
    }
}

/// The type of an event's field. A list is never null and its elements are never null as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A single value, which is no list.
    Scalar(ColumnType),
    /// Any number of elements.
    List(ListItem),
}

/// A named field of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Unique in its schema.
    pub name: String,
    /// Scalar or list.
    #[serde(rename = "type")]
    pub ty: FieldType,
}

impl Field {
    /// Returns a scalar field.
    pub fn scalar(name: impl Into<String>, ty: ColumnType) -> Self {
        Field { name: name.into(), ty: FieldType::Scalar(ty) }
    }

    /// Returns the column type of a scalar field, or none for a list.
    pub fn scalar_type(&self) -> Option<ColumnType> {
        match self.ty {
            FieldType::Scalar(ty) => Some(ty),
            FieldType::List(_) => None,
        }
    }
}

/// The fields of a stream's events, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema {
    /// The fields, in the order in which sinks write them.
    pub fields: Vec<Field>,
}

impl Schema {
    /// Returns a schema of scalar fields.
    pub fn scalars<'a>(fields: impl IntoIterator<Item = (&'a str, ColumnType)>) -> Self {
        Schema { fields: fields.into_iter().map(|(n, t)| Field::scalar(n, t)).collect() }
    }

    /// Returns the index of the field of that name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, field) in self.fields.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", field.name, field.ty)?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldType::Scalar(ty) => ty.fmt(f),
            FieldType::List(ListItem::Scalar(ty)) => write!(f, "list[{ty}]"),
            FieldType::List(ListItem::Struct(columns)) => {
                let inner: Vec<String> = columns.iter().map(|(n, t)| format!("{n}: {t}")).collect();
                write!(f, "list[{{{}}}]", inner.join(", "))
            }
        }
    }
}

impl From<Type> for ColumnType {
    fn from(ty: Type) -> Self {
        ColumnType::required(ty)
    }
}
