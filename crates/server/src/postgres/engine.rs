//! Queries that the engine answers (`queries.rs`, [`crate::queries::Queries`]): what is not understood here.

use super::arrays::Item;
use super::backend::Described;
use super::catalog::Catalog;
use super::catalogs::{self, Rewritten};
use super::connection::Connection;
use super::error::{PgError, PgResult, code};
use super::given::Given;
use super::portal::{Bound, Portal, Rows};
use super::statement::ForEngine;
use super::types::PgType;
use super::understand;
use super::words::Words;
use crate::queries::{NotAsked, Queried, Query, QueryError, QueryForm};
use crate::rows::{plain_rows, plain_schema};
use crate::users::Right;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema};
use arrow_select::concat::concat_batches;
use serde_json::{Value, json};
use sqlparser::tokenizer::Token;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Type};

impl Connection {
    /// Returns the columns of a query, given the types of its parameters.
    pub async fn columns_of(&mut self, query: &ForEngine, parameters: &[u32]) -> PgResult<Vec<Described>> {
        let sample = |&oid: &u32| sample(PgType::of_oid(oid).expect("it was checked when the statement was read"));
        let samples: Vec<Given> = parameters.iter().map(sample).collect();
        let queried = self.engine(query, self::parameters(&samples), QueryForm::Columns).await?;
        Ok(rows_of(&queried)?.described())
    }

    /// Returns the rows of a query.
    pub async fn answered(&mut self, query: &ForEngine, portal: &Portal) -> PgResult<Rows> {
        let Bound::Parameters(parameters) = portal.bound.clone() else { unreachable!("a query has parameters") };
        let queried = self.engine(query, parameters, QueryForm::Lists).await?;
        let rows = rows_of(&queried)?;
        let columns = rows.described();
        if portal
            .prepared
            .columns
            .as_ref()
            .is_some_and(|told| told.iter().map(|c| c.ty.bare()).ne(columns.iter().map(|c| c.ty.bare())))
        {
            let message = "with these values the columns have other types than the statement; cast its parameters";
            return Err(PgError::new(code::WRONG_TYPE, message));
        }
        Ok(rows)
    }

    async fn engine(&mut self, query: &ForEngine, parameters: String, form: QueryForm) -> PgResult<Queried> {
        let ForEngine { sql, refusal } = query;
        let wire = self.wire.clone();
        let (facts, own) = (self.facts(), wire.clone());
        let words = Words::of(sql)?;
        let mentioned = mentioned(&wire.catalog, &words);
        let rewritten = words.with(move |statements| {
            let statement = understand::single(statements)?.expect("a query is no empty text");
            catalogs::rewritten(statement, &own.catalog, &|constant| facts.value(constant))
        });
        let Rewritten { sql: other, needs_catalogs, named } = rewritten.await??;
        for name in &named {
            self.may(Right::Read, name)?;
            self.may(Right::Query, name)?;
        }
        let sql = other.unwrap_or_else(|| sql.clone());
        // Tables that the query names within strings or casts are made available, too, if the user may read them.
        let may = |name: &String| self.rights.has(Right::Read, name) && self.rights.has(Right::Query, name);
        let tables = mentioned.into_iter().chain(named).filter(may).collect::<BTreeSet<_>>().into_iter().collect();
        let setup = needs_catalogs.then(|| wire.catalogs_for(&self.rights));
        // Columns are those of any epoch.
        let at = if form == QueryForm::Columns { None } else { self.snapshot().await? };
        let query = Query { sql, parameters: Some(parameters), form, setup, tables };
        let client = self.turn.client.clone();
        let asked = wire.queries.ask(&client, query, at);
        self.answer(asked).await?.map_err(|error| match error {
            NotAsked::Busy => PgError::busy("too many queries run and wait"),
            NotAsked::Failed(QueryError::Refused(why)) => match call_within(&wire.catalog, &why) {
                Some(name) => stands_alone(name),
                None => refused(refusal, why),
            },
            NotAsked::Failed(QueryError::NoEngine(why)) => refusal.clone().detail(why),
            NotAsked::Failed(QueryError::Over(why)) => PgError::fatal(code::RUN_OVER, why),
        })
    }
}

/// Returns the tables that the words of a query mention; all where it has a query as a text.
fn mentioned(catalog: &Catalog, words: &Words) -> Vec<String> {
    let words: Vec<&str> =
        words.tokens().filter_map(|t| if let Token::Word(w) = t { Some(&*w.value) } else { None }).collect();
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let has_text = has("query") || has("query_table");
    catalog.tables.iter().map(|table| &table.name).filter(|name| has_text || has(name)).cloned().collect()
}

/// Converts the result of a query to rows to send: values of Tidemill's types, and lists as they are.
fn rows_of(queried: &Queried) -> PgResult<Rows> {
    let wrong = |why: String| PgError::new(code::WRONG_TYPE, why);
    let whole = concat_batches(&queried.schema, &queried.batches).map_err(|error| wrong(error.to_string()))?;
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (place, field) in queried.schema.fields().iter().enumerate() {
        if let Some(item) = Item::of_list(field.data_type()) {
            let of = match item {
                Item::Bool => Type::Bool,
                Item::Int | Item::Oid => Type::Int,
                Item::Float => Type::Float,
                Item::Text => Type::Str,
            };
            let ty = FieldType::List(ListItem::Scalar(ColumnType::optional(of)));
            fields.push(Field { name: field.name().clone(), ty });
            columns.push(whole.column(place).clone());
            continue;
        }
        if *field.data_type() == DataType::UInt32 {
            fields.push(Field::scalar(field.name(), ColumnType::optional(Type::Int)));
            columns.push(whole.column(place).clone());
            continue;
        }
        let one = Queried {
            epoch: queried.epoch,
            schema: Arc::new(ArrowSchema::new(vec![field.clone()])),
            batches: vec![whole.project(&[place]).map_err(|error| wrong(error.to_string()))?],
        };
        let schema = plain_schema(&one).map_err(wrong)?;
        columns.push(plain_rows(&one, &schema).map_err(wrong)?.column(0).clone());
        fields.extend(schema.fields);
    }
    let arrow = columns.iter().zip(&fields).map(|(c, f)| ArrowField::new(&f.name, c.data_type().clone(), true));
    let schema = Arc::new(ArrowSchema::new(arrow.collect::<Vec<_>>()));
    let count = RecordBatchOptions::new().with_row_count(Some(whole.num_rows()));
    let batch = RecordBatch::try_new_with_options(schema, columns, &count).map_err(|error| wrong(error.to_string()))?;
    let (end, columns) = (batch.num_rows(), (0..fields.len()).collect());
    Ok(Rows { batch, fields, columns, next: 0, end })
}

/// Returns the procedure that the engine was to call, if it says that it has no such function.
fn call_within<'a>(catalog: &'a Catalog, why: &str) -> Option<&'a str> {
    let (kind, rest) = why.split_once(" Function with name ")?;
    let name = rest.split_once(" does not exist")?.0.trim_matches('"');
    let is_it = |known: &&str| known.eq_ignore_ascii_case(name);
    kind.starts_with("Catalog Error: ").then(|| catalog.procedures.iter().map(|p| &*p.name).find(is_it))?
}

fn stands_alone(procedure: &str) -> PgError {
    let message = format!("a call stands alone: {procedure}(...) is no part of a query");
    let hint = format!(
        "SELECT * or columns FROM {procedure}(...), without conditions, and compute with the row that it gives"
    );
    PgError::new(code::NOT_SUPPORTED, message).hint(hint)
}

/// Returns the error for a query that the engine refuses: its own message, unless the first check knew a more precise
/// reason.
fn refused(refusal: &PgError, why: String) -> PgError {
    let is_known = refusal.code != code::NOT_SUPPORTED;
    let code = match why.split_once(" Error:").map(|(kind, _)| kind) {
        Some("Parser") => code::SYNTAX,
        Some("Catalog" | "Binder") if is_known => return refusal.clone(),
        Some("Catalog") => code::NO_TABLE,
        Some("Binder") => code::NO_COLUMN,
        Some("Conversion") => code::BAD_TEXT,
        Some("Out of Range") => code::OUT_OF_RANGE,
        None if why.starts_with("the query took") => code::CANCELED,
        None if why.starts_with("the query takes more memory") => code::OUT_OF_MEMORY,
        _ => code::NO_ANSWER,
    };
    PgError::new(code, why)
}

/// Returns values as the parameters of a query, in JSON.
pub fn parameters(values: &[Given]) -> String {
    let value = |given: &Given| match given {
        Given::Null => Value::Null,
        Given::Unknown(text) | Given::Text(text) | Given::Json(text) => json!(text),
        Given::Bool(value) => json!(value),
        Given::Int(value) => json!(value),
        Given::Float(value) if value.is_finite() => json!(value),
        Given::Float(value) => json!({"float": value.to_string()}),
        Given::Numeric(digits) => json!({"numeric": digits}),
        Given::Time(micros) => json!({"micros": micros}),
        Given::Bytes(bytes) => json!({"bytes": bytes}),
        Given::Array(item, elements) => json!({"list": elements, "of": item.array_name()}),
    };
    Value::Array(values.iter().map(value).collect()).to_string()
}

/// Returns an arbitrary value of a type, with which a query is described: that shows the columns of its result.
fn sample(ty: PgType) -> Given {
    match ty {
        PgType::Bool => Given::Bool(false),
        PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid => Given::Int(0),
        PgType::Float4 | PgType::Float8 => Given::Float(0.0),
        PgType::Numeric(_) => Given::Numeric("0".into()),
        PgType::Time | PgType::Timestamp | PgType::Date => Given::Time(0),
        PgType::Bytes => Given::Bytes(Vec::new()),
        PgType::Array(item) => Given::Array(item, Vec::new()),
        PgType::Text | PgType::Json | PgType::Unknown | PgType::Void => Given::Text(String::new()),
        PgType::Uuid => Given::Text("00000000-0000-0000-0000-000000000000".into()),
    }
}
