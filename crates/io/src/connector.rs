//! The interface of connectors. A connector is a kind of place that events come from or results go to.
//!
//! A connector reads the options of a [`Spec`] into a *connection*, which is a source or a sink that is not open yet. A
//! connection says what is known before it is opened (which files it touches), and opens. What the open one promises
//! is said by the [`Source`] ([`Source::replays`], [`Source::token`], [`Source::outlook`]) or [`Sink`]
//! ([`Sink::recover`]) itself.

use crate::{InputEnd, IoFailure, Sink, Source, SourceOptions, Spec, SpecError};
use std::any::Any;
use tidemill_model::Schema;

/// A kind of place that events come from, or results go to, or both.
pub trait Connector: Send + Sync {
    /// Returns the name of the kind in specs.
    fn kind(&self) -> &str;

    /// Returns the source that a spec of this kind means. Opens nothing. Unknown and wrong options are errors
    /// ([`Spec::read`]).
    fn source(&self, _spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Err(SpecError::NoSource(self.kind().to_owned()))
    }

    /// Returns the sink that a spec of this kind means. Opens nothing. Unknown and wrong options are errors
    /// ([`Spec::read`]).
    fn sink(&self, _spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        Err(SpecError::NoSink(self.kind().to_owned()))
    }
}

/// A source that is not open yet.
pub trait SourceConnection: Send + Sync {
    /// Returns the spec from which the connector makes the same connection. A state records it: a later version of the
    /// connector must still understand it.
    fn spec(&self) -> Spec;

    /// Returns whether a state records the spec. One that cannot be opened from its spec need not be if the state has
    /// its events by value, because it does not [replay](Source::replays).
    fn is_recorded(&self) -> bool {
        true
    }

    /// Opens the source for events of `schema`.
    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure>;

    /// Returns the files that it reads: names, globs, or `-` for standard input. No sink of the same run may write
    /// them.
    fn paths(&self) -> &[String] {
        &[]
    }

    /// Returns the meaning of the end of its input.
    fn end(&self) -> InputEnd {
        InputEnd::Pause
    }

    /// Returns the unit of its progress: bytes of its files, if it reads any.
    fn unit(&self) -> Unit {
        if self.paths().is_empty() { Unit::Events } else { Unit::Bytes }
    }

    /// Returns a text for users that says what it reads.
    fn shown(&self) -> String {
        let standard = |path: &String| if path == "-" { "standard input".to_owned() } else { path.clone() };
        let paths: Vec<String> = self.paths().iter().map(standard).collect();
        [self.spec().kind, paths.join(", ")].join(" ").trim_end().to_owned()
    }
}

/// A sink that is not open yet.
pub trait SinkConnection: Send + Sync {
    /// Returns the spec from which the connector makes the same connection. A state records it: a later version of the
    /// connector must still understand it.
    fn spec(&self) -> Spec;

    /// Opens it for events of `schema`: for a run without a state, or for a durable run, where the sink keeps the
    /// contract of [`Sink`] as far as it can.
    fn open(&self, schema: &Schema, durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure>;

    /// Returns the file that it writes, or `-` for standard output. No source of the same run may read it.
    fn path(&self) -> Option<&str> {
        None
    }

    /// Returns a text for users that says where it writes.
    fn shown(&self) -> String {
        let path = self.path().map(|path| if path == "-" { "standard output" } else { path });
        [&self.spec().kind, path.unwrap_or_default()].join(" ").trim_end().to_owned()
    }
}

/// A durable run, as its sinks see it. Sinks that share more in it know its type.
pub trait DurableRun: Any + Send + Sync {
    /// Returns the name of the state whose epochs are counted: an output of another state is begun anew.
    fn owner(&self) -> &str;
}

/// The unit of a source's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes on the medium.
    Bytes,
    /// Events.
    Events,
}
