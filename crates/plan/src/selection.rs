//! Which rows of a table a role is that is not one row, and in which order: what a plan declares, and its typed form.
//!
//! Both have one shape. A row is chosen if it passes all conditions. Without an order the rows come in the order of their
//! keys; with one they are sorted by a column, those of equal values in the order of their keys, and cut to a number.

use crate::program::Expr as Typed;
use crate::{Expr, Role};
use serde::{Deserialize, Serialize};

/// The rows of its table that a role of [`crate::AccessDef::All`] is; by default all, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelectionDef {
    /// The conditions that each of the rows passes.
    #[serde(default)]
    pub conditions: Vec<ConditionDef>,
    /// The order in which they come, and how many; none: all, in the order of their keys.
    #[serde(default)]
    pub order: Option<OrderDef>,
}

/// A condition on a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionDef {
    /// The column.
    pub column: String,
    /// The test that its value passes.
    pub test: TestDef,
}

/// The test that a value passes. The expressions are over `Event` fields and cells of earlier roles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestDef {
    /// `table.where(column=value)`: equal; `None` is equal to `None` only. Not for floats.
    Same(Expr),
    /// `table.between(column, low, high)`: no less than `low` and no greater than `high`. A bound that is left out or `None`
    /// bounds nothing. A value that is `None` or NaN is between no bounds.
    Between {
        /// The least value.
        low: Option<Expr>,
        /// The greatest.
        high: Option<Expr>,
    },
}

/// An order by a column, with a limit. Rows where the column is `None` or NaN come last in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderDef {
    /// The column.
    pub column: String,
    /// The direction: whether the least or the greatest comes first.
    pub direction: Direction,
    /// The most rows that remain, at least 1.
    pub count: u64,
}

/// The direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// The least first.
    Ascending,
    /// The greatest first.
    Descending,
}

impl SelectionDef {
    /// Returns whether it is all rows, in the order of their keys.
    pub fn is_all(&self) -> bool {
        self.conditions.is_empty() && self.order.is_none()
    }

    /// Returns the expressions in the selection.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.conditions.iter().flat_map(|condition| match &condition.test {
            TestDef::Same(value) => vec![value],
            TestDef::Between { low, high } => low.iter().chain(high).collect(),
        })
    }
}

/// A selection as in [`SelectionDef`], typed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The conditions that each of the rows passes.
    pub conditions: Vec<Condition>,
    /// The order in which they come, and how many; none: all, in the order of their keys.
    pub order: Option<Order>,
}

/// A condition as in [`ConditionDef`], typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The column.
    pub column: usize,
    /// The test that its value passes.
    pub test: Test,
}

/// A test as in [`TestDef`], typed. The expressions have the type of the column, of as many digits as a decimal can
/// have, and may be null. Only those that read rows can fail: then no row is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// Equal; null equals only null.
    Same(Typed),
    /// Within bounds, both included.
    Between {
        /// The least value.
        low: Option<Typed>,
        /// The greatest.
        high: Option<Typed>,
    },
}

/// An order as in [`OrderDef`], by the column's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The column.
    pub column: usize,
    /// The direction: whether the least or the greatest comes first.
    pub direction: Direction,
    /// The most rows that remain, at least 1.
    pub count: u64,
}

/// The part of a selection that an index serves: conditions by their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fit {
    /// The conditions of the same value, one for each of the first columns of the index.
    pub same: Vec<usize>,
    /// A flag: whether the column after those is the one that the rows are ordered by.
    pub is_ordered: bool,
    /// The one of bounds for the column after those.
    pub between: Option<usize>,
}

impl Fit {
    /// Returns the rank of the index: of two indexes the one of greater rank is used.
    pub fn rank(&self) -> (usize, bool, bool) {
        (self.same.len(), self.is_ordered, self.between.is_some())
    }

    /// Returns whether the index serves a condition, by its number.
    pub fn serves(&self, condition: usize) -> bool {
        self.same.contains(&condition) || self.between == Some(condition)
    }
}

impl Selection {
    /// Returns whether it is all rows, in the order of their keys.
    pub fn is_all(&self) -> bool {
        self.conditions.is_empty() && self.order.is_none()
    }

    /// Returns the values that columns are compared with, condition by condition, lower bounds first.
    pub fn values(&self) -> impl Iterator<Item = &Typed> {
        self.conditions.iter().flat_map(|condition| match &condition.test {
            Test::Same(value) => vec![value],
            Test::Between { low, high } => low.iter().chain(high).collect(),
        })
    }

    /// Returns the part of it that an index of these columns serves; none if it serves nothing.
    pub fn fit(&self, index: &[usize]) -> Option<Fit> {
        let mut fit = Fit::default();
        for column in index {
            let of = |is: fn(&Test) -> bool| {
                self.conditions.iter().position(|condition| condition.column == *column && is(&condition.test))
            };
            let Some(same) = of(|test| matches!(test, Test::Same(_))) else {
                fit.between = of(|test| matches!(test, Test::Between { .. }));
                fit.is_ordered = self.order.is_some_and(|order| order.column == *column);
                break;
            };
            fit.same.push(same);
        }
        (fit != Fit::default()).then_some(fit)
    }

    /// Returns the columns that are compared.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let tested = self.conditions.iter().map(|condition| condition.column);
        tested.chain(self.order.as_ref().map(|order| order.column))
    }
}

impl Role {
    /// Returns the values that are read when the transaction is about to run, to find the role's rows: the parts of a
    /// dependent key, or the values of a selection.
    pub fn late_values(&self) -> Vec<&Typed> {
        match self.is_dependent() {
            true => self.key.iter().collect(),
            false => self.selection.values().collect(),
        }
    }
}
