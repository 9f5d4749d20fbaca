//! Queries that the engine answers (`queries.rs`, [`crate::queries::Queries`]): what is not understood here.

use super::backend::Described;
use super::catalog::described;
use super::connection::Connection;
use super::error::{PgError, PgResult, code};
use super::given::Given;
use super::portal::{Bound, Portal, Rows};
use super::statement::ForEngine;
use super::types::PgType;
use crate::queries::{NotAsked, Queried, Query, QueryError, QueryForm};
use crate::rows::{plain_rows, plain_schema};
use serde_json::{Value, json};

impl Connection {
    /// The columns of a query, given the types of its parameters.
    pub async fn columns_of(&mut self, query: &ForEngine, parameters: &[u32]) -> PgResult<Vec<Described>> {
        let sample = |&oid: &u32| sample(PgType::of_oid(oid).expect("it was checked when the statement was read"));
        let samples: Vec<Given> = parameters.iter().map(sample).collect();
        let queried = self.engine(query, self::parameters(&samples), QueryForm::Columns).await?;
        let schema = plain_schema(&queried).map_err(|why| PgError::new(code::WRONG_TYPE, why))?;
        Ok(schema.fields.iter().map(described).collect())
    }

    /// The rows of a query.
    pub async fn answered(&mut self, query: &ForEngine, portal: &Portal) -> PgResult<Rows> {
        let Bound::Parameters(parameters) = portal.bound.clone() else { unreachable!("a query has parameters") };
        let queried = self.engine(query, parameters, QueryForm::Plain).await?;
        let wrong = |why: String| PgError::new(code::WRONG_TYPE, why);
        let schema = plain_schema(&queried).map_err(wrong)?;
        let columns: Vec<Described> = schema.fields.iter().map(described).collect();
        if portal
            .prepared
            .columns
            .as_ref()
            .is_some_and(|told| told.iter().map(|c| c.ty).ne(columns.iter().map(|c| c.ty)))
        {
            let message = "with these values the columns have other types than the statement; cast its parameters";
            return Err(PgError::new(code::WRONG_TYPE, message));
        }
        let batch = plain_rows(&queried, &schema).map_err(wrong)?;
        let (end, columns) = (batch.num_rows(), (0..columns.len()).collect());
        Ok(Rows { batch, fields: schema.fields, columns, next: 0, end })
    }

    async fn engine(&mut self, query: &ForEngine, parameters: String, form: QueryForm) -> PgResult<Queried> {
        let ForEngine { sql, refusal } = query;
        let wire = self.wire.clone();
        let asked = wire.queries.ask(Query { sql: sql.clone(), parameters: Some(parameters), form });
        self.answer(asked).await?.map_err(|error| match error {
            NotAsked::Busy => PgError::new(code::OVER_LIMIT, "too many queries wait for their answers; try again"),
            NotAsked::Failed(QueryError::Refused(why)) => refused(refusal, why),
            NotAsked::Failed(QueryError::NoEngine(why)) => refusal.clone().detail(why),
            NotAsked::Failed(QueryError::Over(why)) => PgError::fatal(code::RUN_OVER, why),
        })
    }
}

/// What the engine says, unless more was known before.
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
        _ => code::NO_ANSWER,
    };
    PgError::new(code, why)
}

/// Values as the parameters of a query.
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
    };
    Value::Array(values.iter().map(value).collect()).to_string()
}

/// Some value of a type, to find out what columns a query has.
fn sample(ty: PgType) -> Given {
    match ty {
        PgType::Bool => Given::Bool(false),
        PgType::Int2 | PgType::Int4 | PgType::Int8 => Given::Int(0),
        PgType::Float4 | PgType::Float8 => Given::Float(0.0),
        PgType::Numeric(_) => Given::Numeric("0".into()),
        PgType::Time | PgType::Timestamp | PgType::Date => Given::Time(0),
        PgType::Bytes => Given::Bytes(Vec::new()),
        PgType::Text | PgType::Json | PgType::Unknown | PgType::Void => Given::Text(String::new()),
    }
}
