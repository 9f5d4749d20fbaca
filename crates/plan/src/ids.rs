//! The numbers of the things of a program.

use serde::{Deserialize, Serialize};

tidemill_model::index_types! {
    /// Index into [`Program::tables`](crate::Program::tables).
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct TableId;
    /// Index into [`Program::streams`](crate::Program::streams).
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct StreamId;
    /// Index into [`Program::transactions`](crate::Program::transactions).
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct TransactionId;
    /// Index into [`Program::operators`](crate::Program::operators).
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct OperatorId;
}
