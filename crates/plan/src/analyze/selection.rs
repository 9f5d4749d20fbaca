//! Typing of which rows a role is, where it is not one row.

use super::fault::{Checked, Fault};
use super::reasons::Reasons;
use super::scope::Scope;
use crate::program::Expr as Typed;
use crate::{Condition, ConditionDef, Expr, ExprNode, Order, OrderDef, RoleDef, Selection, Table, Test, TestDef};
use tidemill_model::{ColumnType, DECIMAL_DIGITS_MAX, Type};

/// Returns the selection of a role on `table`; `scope` sees the event and the earlier roles.
pub(super) fn selection(def: &RoleDef, table: &Table, scope: &mut Scope<'_>) -> Checked<Selection> {
    let mut chooser = Chooser { role: &def.name, table, scope };
    let conditions = def.selection.conditions.iter().map(|condition| chooser.condition(condition));
    let conditions = conditions.collect::<Checked<Vec<Condition>>>()?;
    let order = def.selection.order.as_ref().map(|order| chooser.order(order)).transpose()?;
    Ok(Selection { conditions, order })
}

struct Chooser<'c, 'a> {
    role: &'c str,
    table: &'c Table,
    scope: &'c mut Scope<'a>,
}

impl Chooser<'_, '_> {
    fn condition(&mut self, def: &ConditionDef) -> Checked<Condition> {
        let column = self.column(&def.column)?;
        let mut value = |expr: &Expr| self.value(column, expr).map_err(|fault| fault.at(expr.span));
        let test = match &def.test {
            TestDef::Same(expr) => {
                let value = value(expr)?;
                if self.table.columns[column].ty.ty == Type::Float {
                    return Err(Fault::new(format!(
                        "rows of '{}' are looked for by '{}', which is a float",
                        self.table.name, def.column
                    ))
                    .hint(format!("floats are rarely equal: give bounds, between(\"{}\", low, high)", def.column))
                    .at(expr.span));
                }
                Test::Same(value)
            }
            TestDef::Between { low, high } => Test::Between {
                low: low.as_ref().map(&mut value).transpose()?,
                high: high.as_ref().map(&mut value).transpose()?,
            },
        };
        Ok(Condition { column, test })
    }

    fn order(&self, def: &OrderDef) -> Checked<Order> {
        if def.count == 0 {
            return Err(Fault::new(format!("role '{}' is the first 0 rows", self.role)).hint("give at least 1"));
        }
        Ok(Order { column: self.column(&def.column)?, direction: def.direction, count: def.count })
    }

    fn column(&self, name: &str) -> Checked<usize> {
        let columns = &self.table.columns;
        let place = format!("column in table '{}' called", self.table.name);
        let column = columns.iter().position(|column| column.name == name);
        let column = column.ok_or_else(|| Fault::unknown(place, name, columns.iter().map(|c| c.name.as_str())))?;
        if columns[column].window.is_some() {
            return Err(Fault::new(format!("rows of '{}' are chosen by '{name}', which is a window", self.table.name))
                .hint("choose by a column that has a value"));
        }
        Ok(column)
    }

    /// Returns the value that a column is compared with. It must not fail, since the rows are found before the
    /// transaction runs, unless it reads rows itself.
    fn value(&mut self, column: usize, expr: &Expr) -> Checked<Typed> {
        let column = &self.table.columns[column];
        self.scope.reasons = Reasons::untold();
        let value = self.scope.expression(expr)?;
        let ty = match column.ty.ty {
            Type::Decimal { scale, .. } => Type::Decimal { digits: DECIMAL_DIGITS_MAX, scale },
            ty => ty,
        };
        let wanted = ColumnType { ty, nullable: value.ty.nullable };
        let target = format!("column '{}' of '{}'", column.name, self.table.name);
        if matches!(expr.node, ExprNode::Cell { .. }) && value.ty.ty != column.ty.ty {
            return Err(Fault::new(format!("{target} is {}, but {expr} is {}", column.ty.ty, value.ty.ty)));
        }
        let reads_rows = value.reads_rows();
        let value = self.scope.store(value, wanted, expr, &target)?;
        if reads_rows {
            // The row that it reads may be missing.
            return Ok(Typed { ty: ColumnType::optional(value.ty.ty), ..value });
        }
        match self.scope.reasons.first() {
            Some(reason) => Err(Fault::new(format!("what rows of '{}' are chosen by could fail: {reason}", self.role))
                .hint("compute it in a map, and run the transaction on the mapped stream")),
            None => Ok(value),
        }
    }
}
