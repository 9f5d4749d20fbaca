//! Values, types, schemas and positions: the nouns every other crate speaks in. No logic lives here
//! beyond what a value needs to be compared, printed and moved to and from Arrow.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod arrow;
pub mod civil;
mod digest;
mod index;
mod position;
mod schema;
mod serial_position;
mod types;
mod value;

pub use digest::{StreamDigest, TableDigest, named_digest};
pub use position::{Position, SourceId, least_time};
pub use schema::{Field, FieldType, ListItem, Schema};
pub use serial_position::{KeyPart, ParsePositionError, Phase, Place, SerialPosition};
pub use types::{ColumnType, DECIMAL_DIGITS_MAX, Type};
pub use value::{Value, format_decimal, parse_decimal};

/// Virtual nodes per table: the grain of ownership, checkpoints, replication and handover.
pub const VIRTUAL_NODE_COUNT: usize = 256;
