//! Records: what maps, emissions and returns put out, and the schemas they agree on.
//!
//! A transaction's body is typed twice. The first time, [`Outputs`] only gathers the fields of each
//! output and joins their types; then [`Outputs::settle`] fixes the schemas, and the second time each
//! field is brought to the type that all records of its output share.

use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::scope::Scope;
use super::types::{check_column_type, check_schema, event_time, join};
use crate::program::{Expr as Typed, Node};
use crate::{Expr, ExprNode, OutputField, Record};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

/// A field of a record, typed by itself.
enum Draft<'e> {
    Value(Typed, &'e Expr),
    List(usize),
}

/// The facts about an output: `committed`, a name given to `emit`, or a map's stream.
struct Output {
    /// None for `committed` and maps.
    name: Option<String>,
    /// The schema declared by its first record.
    declared: Option<Schema>,
    event_time_name: Option<String>,
    schema: Schema,
    event_time: Option<usize>,
}

/// The schema of an output, and its event-time field.
pub(super) struct Settled {
    pub name: Option<String>,
    pub schema: Schema,
    pub event_time: Option<usize>,
}

/// All outputs of a transaction or map.
#[derive(Default)]
pub(super) struct Outputs {
    outputs: Vec<Output>,
    settled: bool,
}

impl Outputs {
    /// Returns the fields of a record of the output called `name`, for [`crate::program`]; empty in the first round.
    pub fn record(&mut self, scope: &mut Scope<'_>, name: Option<&str>, record: &Record) -> Checked<Vec<OutputField>> {
        check_unique("field", record.fields.iter().map(|(n, _)| n.as_str()))?;
        let drafts = drafts(scope, record)?;
        let known = self.outputs.iter().position(|o| o.name.as_deref() == name);
        if self.settled {
            let output = &self.outputs[known.expect("the first round saw every record")];
            return fill(scope, &output.schema, record, drafts);
        }
        match known {
            Some(known) => self.outputs[known].add(scope.event, record, &drafts)?,
            None => self.outputs.push(Output::new(scope.event, name, record, &drafts)?),
        }
        Ok(Vec::new())
    }

    /// Returns the index of the emission called `name` among the emissions.
    pub fn emit_index(&self, name: &str) -> usize {
        let emits = self.outputs.iter().filter(|o| o.name.is_some());
        emits.take_while(|o| o.name.as_deref() != Some(name)).count()
    }

    /// Ends the first round: every record was seen, the schemas are final.
    pub fn settle(&mut self) -> Checked<()> {
        for output in &mut self.outputs {
            output.settle()?;
        }
        self.settled = true;
        Ok(())
    }

    /// Returns the schemas, in the order of first use.
    pub fn finish(self) -> Vec<Settled> {
        let settled = |o: Output| Settled { name: o.name, schema: o.schema, event_time: o.event_time };
        self.outputs.into_iter().map(settled).collect()
    }
}

impl Output {
    fn new(event: &Schema, name: Option<&str>, record: &Record, drafts: &[(&str, Draft<'_>)]) -> Checked<Self> {
        let schema = match &record.schema {
            Some(schema) => {
                check_schema(schema)?;
                schema.clone()
            }
            None => Schema { fields: drafts.iter().map(|(name, draft)| draft.field(event, name)).collect() },
        };
        Ok(Output {
            name: name.map(str::to_owned),
            declared: record.schema.clone(),
            event_time_name: record.event_time.clone(),
            schema,
            event_time: None,
        })
    }

    /// Returns the words for its records in messages.
    fn records(&self) -> String {
        self.name.as_ref().map_or("the records returned".into(), |n| format!("the records emitted as '{n}'"))
    }

    /// Joins one more record.
    fn add(&mut self, event: &Schema, record: &Record, drafts: &[(&str, Draft<'_>)]) -> Checked<()> {
        if record.schema != self.declared || record.event_time != self.event_time_name {
            return Err(Fault::new(format!("{} are of different event classes", self.records()))
                .hint("use one event class for all of them"));
        }
        if self.declared.is_some() {
            return Ok(());
        }
        let names = |schema: &Schema| schema.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>().join(", ");
        let other = Schema { fields: drafts.iter().map(|(name, draft)| draft.field(event, name)).collect() };
        if names(&other) != names(&self.schema) {
            return Err(Fault::new(format!(
                "{} have different fields: {} and {}",
                self.records(),
                names(&self.schema),
                names(&other)
            ))
            .hint("give all of them the same fields in the same order"));
        }
        for ((known, other), (name, draft)) in self.schema.fields.iter_mut().zip(other.fields).zip(drafts) {
            let joined = match (&known.ty, &other.ty) {
                (FieldType::Scalar(a), FieldType::Scalar(b)) => join(*a, *b).map(FieldType::Scalar),
                (a, b) => (a == b).then(|| a.clone()),
            };
            known.ty = joined.ok_or_else(|| {
                Fault::new(format!("field '{name}' is {} in one record and {} in another", known.ty, other.ty))
                    .at(draft.span())
            })?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Checked<()> {
        if self.schema.fields.is_empty() {
            return Err(Fault::new(format!("{} have no fields", self.records())));
        }
        for field in &self.schema.fields {
            check_identifier("field", &field.name)?;
            match field.ty {
                FieldType::Scalar(ColumnType { ty: Type::Null, .. }) => {
                    return Err(Fault::new(format!("field '{}' is never anything but None", field.name))
                        .hint("declare an event class that says its type"));
                }
                FieldType::Scalar(ColumnType { ty: Type::Duration, .. }) => {
                    return Err(Fault::new(format!("field '{}' is a Duration, which cannot be put out", field.name))
                        .hint("write .total_seconds() or .total_microseconds()"));
                }
                FieldType::Scalar(ty) => check_column_type(&field.name, ty.ty)?,
                FieldType::List(_) => {}
            }
        }
        self.event_time = match &self.event_time_name {
            Some(name) => Some(event_time(&self.schema, name)?),
            None => None,
        };
        Ok(())
    }
}

impl Draft<'_> {
    fn field(&self, event: &Schema, name: &str) -> Field {
        match self {
            Draft::Value(value, _) => Field::scalar(name, value.ty),
            Draft::List(index) => Field { name: name.into(), ty: event.fields[*index].ty.clone() },
        }
    }

    fn span(&self) -> Option<crate::Span> {
        match self {
            Draft::Value(_, surface) => surface.span,
            Draft::List(_) => None,
        }
    }
}

fn drafts<'e>(scope: &mut Scope<'_>, record: &'e Record) -> Checked<Vec<(&'e str, Draft<'e>)>> {
    let mut drafts = Vec::new();
    for (name, surface) in &record.fields {
        let list = match &surface.node {
            ExprNode::Event(field) => scope.event.index_of(field).filter(|&i| is_list(&scope.event.fields[i])),
            _ => None,
        };
        let draft = match list {
            Some(list) => Draft::List(list),
            None => Draft::Value(scope.expression(surface)?, surface),
        };
        drafts.push((name.as_str(), draft));
    }
    Ok(drafts)
}

fn is_list(field: &Field) -> bool {
    matches!(field.ty, FieldType::List(_))
}

/// Brings the fields of a record into the order and types of its schema.
fn fill(
    scope: &mut Scope<'_>,
    schema: &Schema,
    record: &Record,
    mut drafts: Vec<(&str, Draft<'_>)>,
) -> Checked<Vec<OutputField>> {
    if let Some((extra, _)) = drafts.iter().find(|(name, _)| schema.index_of(name).is_none()) {
        return Err(Fault::unknown("field", extra, schema.fields.iter().map(|f| f.name.as_str())));
    }
    let mut fields = Vec::new();
    for field in &schema.fields {
        let given = drafts.iter().position(|(name, _)| *name == field.name);
        let draft = given.map(|i| drafts.swap_remove(i).1);
        fields.push(output_field(scope, field, draft)?);
    }
    debug_assert!(record.schema.is_some() || fields.len() == record.fields.len());
    Ok(fields)
}

fn output_field(scope: &mut Scope<'_>, field: &Field, draft: Option<Draft<'_>>) -> Checked<OutputField> {
    match (&field.ty, draft) {
        (FieldType::Scalar(ty), Some(Draft::Value(value, surface))) => {
            let value = scope.store(value, *ty, surface, &format!("field '{}'", field.name))?;
            Ok(OutputField::Value(value))
        }
        (FieldType::Scalar(ty), None) if ty.nullable => {
            Ok(OutputField::Value(Typed { ty: *ty, node: Node::Const(Value::Null) }))
        }
        (list @ FieldType::List(_), Some(Draft::List(index))) if scope.event.fields[index].ty == *list => {
            Ok(OutputField::List(index))
        }
        (ty, Some(Draft::List(index))) => {
            let (name, found) = (&scope.event.fields[index].name, &scope.event.fields[index].ty);
            Err(Fault::new(format!("field '{}' is {ty} but ev.{name} is {found}", field.name)))
        }
        (FieldType::List(item), Some(Draft::Value(_, surface))) => Err(list_from_value(field, item, surface)),
        (ty, None) => Err(Fault::new(format!("field '{}' is missing, which is {ty}", field.name))),
    }
}

fn list_from_value(field: &Field, item: &ListItem, surface: &Expr) -> Fault {
    let list = FieldType::List(item.clone());
    Fault::new(format!("field '{}' is {list} but {surface} is no list", field.name))
        .hint("a list field of the event can be passed on whole, as `ev.name`")
        .at(surface.span)
}
