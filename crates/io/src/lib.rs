//! The outside world as the engine sees it: a [`Source`] is where events enter, a [`Sink`] where results leave, and a
//! [`Connector`] makes either of a [`Spec`].
//!
//! A spec is plain data. A [`Registry`] of connectors makes a connection of it, which opens as a source or a sink. This
//! crate has the interfaces and their values, and no source, no sink and no part of the engine: a connector is built
//! without a compiler of machine code and without formats of files. `tidemill-connect` has the standard connectors.
//!
//! # A connector of your own
//!
//! It depends on this crate and `tidemill-model`, and on no more of Tidemill:
//!
//! ```
//! use arrow_array::RecordBatch;
//! use serde::{Deserialize, Serialize};
//! use tidemill_io::{Connector, DurableRun, IoFailure, Registry, Sink, SinkConnection, Spec, SpecError};
//! use tidemill_model::Schema;
//!
//! /// Prints how many events each epoch has.
//! #[derive(Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct PrintCount {
//!     label: String,
//! }
//!
//! impl SinkConnection for PrintCount {
//!     fn spec(&self) -> Spec {
//!         Spec::of("count", self)
//!     }
//!
//!     fn open(&self, _: &Schema, _: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
//!         Ok(Box::new(Counter { label: self.label.clone(), events: 0 }))
//!     }
//! }
//!
//! struct Counter {
//!     label: String,
//!     events: usize,
//! }
//!
//! impl Sink for Counter {
//!     fn write(&mut self, batch: &RecordBatch) -> Result<(), IoFailure> {
//!         self.events += batch.num_rows();
//!         Ok(())
//!     }
//!
//!     fn flush(&mut self) -> Result<(), IoFailure> {
//!         println!("{}: {}", self.label, std::mem::take(&mut self.events));
//!         Ok(())
//!     }
//!
//!     fn finish(mut self: Box<Self>) -> Result<(), IoFailure> {
//!         self.flush()
//!     }
//! }
//!
//! struct Count;
//!
//! impl Connector for Count {
//!     fn kind(&self) -> &str {
//!         "count"
//!     }
//!
//!     fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
//!         Ok(Box::new(spec.read::<PrintCount>()?))
//!     }
//! }
//!
//! let mut connectors = Registry::new();
//! connectors.register(Count)?;
//! let spec: Spec = serde_json::from_str(r#"{"kind": "count", "label": "transfers"}"#)?;
//! assert_eq!(connectors.sink(&spec)?.spec(), spec);
//!
//! let wrong: Spec = serde_json::from_str(r#"{"kind": "count", "label": 7}"#)?;
//! let message = connectors.sink(&wrong).err().unwrap().to_string();
//! assert!(message.starts_with("count, option 'label': invalid type"), "{message}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod connector;
mod failure;
mod options;
mod registry;
mod sink;
mod source;
mod spec;

pub use connector::{Connector, DurableRun, SinkConnection, SourceConnection, Unit};
pub use failure::IoFailure;
pub use options::{Clock, InputEnd, SourceOptions};
pub use registry::{KindTaken, Registry};
pub use sink::{Recovered, Sink};
pub use source::{BadRecord, Next, Resumed, Source, SourceBatch, SourceProgress, Splits};
pub use spec::{Spec, SpecError};
