//! Files that are read side by side: each file of a source is a split of it, with its own place, marks and lateness.
//!
//! The option `splits` stands beside the options of any format of files. A split is a source of the same options over one
//! file. So all that a format does with a file that was read before, and all that it refuses, it does for each split.
//!
//! # Bounds
//!
//! A split holds no more than one batch ahead of the gate beside the one that it waits with, and batches are the smaller the
//! more files there are ([`ROWS_AHEAD_MAX`]). At most [`OPEN_MAX`] files are open: beyond, a split closes its file after
//! each batch and goes on from its token.

use crate::files::{FileIdentity, Place, places};
use crate::standard_connectors;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidemill_io::{
    InputEnd, IoFailure, Next, Resumed, Source, SourceBatch, SourceConnection, SourceOptions, SourceProgress, Spec,
    SpecError, Splits,
};
use tidemill_model::Schema;

/// The number of files that may be open.
const OPEN_MAX: usize = 256;
/// The number of files that a source may have.
const SPLITS_MAX: usize = 10_000;
/// About how many rows all splits of a source hold ahead of the gate, and the least rows of a batch.
const ROWS_AHEAD_MAX: usize = 1 << 17;
const BATCH_ROWS_MIN: usize = 64;

/// The way in which a source is read in splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSplits {
    /// Each file is a split, which may grow if its format lets it.
    Files,
    /// Each file is a split, and whole when it is first seen: its end is the split's end.
    WholeFiles,
}

/// The option's name.
const OPTION: &str = "splits";

/// Returns the connection that a spec of a format of files means; `format` reads one without the option.
pub(crate) fn connection(
    spec: &Spec,
    can_grow: bool,
    format: impl Fn(&Spec) -> Result<Box<dyn SourceConnection>, SpecError>,
) -> Result<Box<dyn SourceConnection>, SpecError> {
    let mut files = spec.clone();
    let Some(option) = files.options.remove(OPTION) else { return format(spec) };
    let splits: FileSplits = serde_json::from_value(option).map_err(|error| SpecError::Options {
        kind: spec.kind.clone(),
        option: Some(OPTION.to_owned()),
        reason: error.to_string(),
    })?;
    let whole = format(&files)?;
    if whole.paths().iter().any(|path| path == "-") {
        let reason = "standard input cannot be read in splits; give files".to_owned();
        return Err(SpecError::Options { kind: spec.kind.clone(), option: Some(OPTION.to_owned()), reason });
    }
    Ok(Box::new(ReadSplits { spec: spec.clone(), files, whole, can_grow, is_whole: splits == FileSplits::WholeFiles }))
}

/// Files to read side by side.
struct ReadSplits {
    /// The spec with the option.
    spec: Spec,
    /// The spec without the option.
    files: Spec,
    /// The connection that the spec without the option stands for.
    whole: Box<dyn SourceConnection>,
    /// A flag: whether files of the format can grow.
    can_grow: bool,
    /// A flag: whether each file is whole when it is first seen, although the format can grow.
    is_whole: bool,
}

impl SourceConnection for ReadSplits {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        let found = places(self.whole.paths())?;
        check_count(found.len())?;
        let rows = (ROWS_AHEAD_MAX / found.len()).clamp(BATCH_ROWS_MIN, options.batch_rows.max(BATCH_ROWS_MIN));
        let options = SourceOptions { batch_rows: options.batch_rows.min(rows), ..options.clone() };
        let end = self.whole.end();
        let of_file = match end {
            _ if self.is_whole || !self.can_grow => InputEnd::Last,
            end => end,
        };
        let opener = Arc::new(Opener { files: self.files.clone(), end: of_file, schema: schema.clone(), options });
        // Each file is opened once, so that what is wrong with one is said before anything is read.
        for place in &found {
            if place.regular_length().is_none() && place.check().is_ok() {
                return Err(IoFailure::new(format!("{} is no regular file: only files can be splits", place.name())));
            }
            opener.open(&place.name())?;
        }
        Ok(Box::new(SplitSource {
            paths: self.whole.paths().to_vec(),
            end,
            opener,
            seen: BTreeMap::new(),
            open: Arc::default(),
        }))
    }

    fn paths(&self) -> &[String] {
        self.whole.paths()
    }

    fn end(&self) -> InputEnd {
        self.whole.end()
    }
}

fn check_count(count: usize) -> Result<(), IoFailure> {
    if count > SPLITS_MAX {
        return Err(IoFailure::new(format!(
            "it has {count} files, and at most {SPLITS_MAX} can be read in splits; read them as one stream, or give sources \
             of their own to parts of them"
        )));
    }
    Ok(())
}

/// Opens single files.
struct Opener {
    files: Spec,
    end: InputEnd,
    schema: Schema,
    options: SourceOptions,
}

impl Opener {
    fn open(&self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        let mut spec = self.files.clone();
        spec.options.insert("paths".to_owned(), vec![name].into());
        let end = serde_json::to_value(self.end).expect("a word");
        spec.options.insert("end".to_owned(), end);
        standard_connectors().source(&spec)?.open(&self.schema, &self.options)
    }
}

/// A source whose files are its splits.
struct SplitSource {
    paths: Vec<String>,
    end: InputEnd,
    opener: Arc<Opener>,
    /// The file that each name stood for when it was first seen.
    seen: BTreeMap<String, Option<FileIdentity>>,
    /// The number of files that are open.
    open: Arc<AtomicUsize>,
}

impl Splits for SplitSource {
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure> {
        let follows = self.follows();
        let found = match places(&self.paths) {
            // A glob may match nothing for a moment.
            Err(_) if follows && !known.is_empty() => return Ok(Vec::new()),
            found => found?,
        };
        check_count(found.len())?;
        let is_first = self.seen.is_empty();
        let identity = |place: &Place| place.look().and_then(|(identity, _)| identity);
        let now: BTreeMap<String, Option<FileIdentity>> =
            found.iter().map(|place| (place.name(), identity(place))).collect();
        if let Some(name) = known.iter().find(|name| is_first && !now.contains_key(*name)) {
            return Err(IoFailure::new(format!("{name} was read before and is not there any more")));
        }
        let is_new = |name: &&String| !known.contains(*name);
        // A file that is whole is closed after it was read; then its identity may come again.
        let stays_open = self.opener.end == InputEnd::Follow;
        for name in now.keys().filter(|name| stays_open && is_new(name)) {
            let before = self.seen.iter().find(|(_, seen)| seen.is_some() && **seen == now[name]);
            if let Some((before, _)) = before.filter(|(before, _)| now.get(*before) != Some(&now[name])) {
                return Err(IoFailure::new(format!(
                    "{name} was read already, as {before}: let renamed files have names that the glob does not match"
                )));
            }
        }
        // As they stand in the paths; of one glob by name.
        let new = found.iter().map(Place::name).filter(|name| !known.contains(name)).collect();
        now.into_iter().for_each(|(name, identity)| _ = self.seen.entry(name).or_insert(identity));
        Ok(new)
    }

    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        if !self.seen.contains_key(name) && !Path::new(name).exists() {
            return Err(IoFailure::new(format!("{name} was read before and is not there any more")));
        }
        let source = self.opener.open(name)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Split {
            opener: self.opener.clone(),
            name: name.to_owned(),
            source: Some(source),
            token: None,
            skip: (0, 0),
            given: (0, 0),
            pauses: false,
            open: self.open.clone(),
        }))
    }

    fn follows(&self) -> bool {
        self.end == InputEnd::Follow
    }
}

impl Source for SplitSource {
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }

    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Err(IoFailure::new("only a source is read in splits; leave out the option 'splits'"))
    }

    fn replays(&self) -> bool {
        self.end != InputEnd::Follow
    }

    fn is_followed(&self) -> bool {
        self.end == InputEnd::Follow
    }

    fn is_last(&self) -> bool {
        self.end == InputEnd::Last
    }
}

/// A file that is a split.
struct Split {
    opener: Arc<Opener>,
    name: String,
    /// None while the file is closed.
    source: Option<Box<dyn Source>>,
    /// The token of the place at which it was left when it was closed.
    token: Option<String>,
    /// Events and bad records that come again, since a file was opened that cannot be read on.
    skip: (usize, usize),
    /// The events and bad records that were given so far.
    given: (usize, usize),
    pauses: bool,
    /// The number of files of its source that are open.
    open: Arc<AtomicUsize>,
}

impl Split {
    /// Returns the open file.
    fn source(&mut self) -> Result<&mut Box<dyn Source>, IoFailure> {
        if self.source.is_none() {
            let mut source = self.opener.open(&self.name)?;
            if self.pauses {
                source.pauses();
            }
            if self.given != (0, 0) {
                self.skip = match source.resume(self.token.as_deref())? {
                    Resumed::Anew => self.given,
                    Resumed::Behind | Resumed::New | Resumed::Given => (0, 0),
                };
            }
            self.open.fetch_add(1, Ordering::Relaxed);
            self.source = Some(source);
        }
        Ok(self.source.as_mut().expect("just opened"))
    }

    /// Closes the file if there are more open than there may be.
    fn park(&mut self) {
        if self.open.load(Ordering::Relaxed) > OPEN_MAX
            && let Some(source) = self.source.take()
        {
            self.token = source.token();
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the part of a batch that was not given before.
    fn unseen(&mut self, mut batch: SourceBatch) -> Option<SourceBatch> {
        let rows = batch.events.num_rows();
        let skip = (self.skip.0.min(rows), self.skip.1.min(batch.bad.len()));
        self.skip = (self.skip.0 - skip.0, self.skip.1 - skip.1);
        if skip != (0, 0) {
            batch = SourceBatch { events: batch.events.slice(skip.0, rows - skip.0), bad: batch.bad.split_off(skip.1) };
            batch.bad.iter_mut().for_each(|bad| bad.after = bad.after.saturating_sub(skip.0 as u64));
        }
        (batch.events.num_rows() > 0 || !batch.bad.is_empty()).then_some(batch)
    }
}

impl Source for Split {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        loop {
            match self.source()?.next(wait_max)? {
                Next::Batch(batch) => {
                    let Some(batch) = self.unseen(batch) else { continue };
                    self.given = (self.given.0 + batch.events.num_rows(), self.given.1 + batch.bad.len());
                    self.park();
                    return Ok(Next::Batch(batch));
                }
                other => return Ok(other),
            }
        }
    }

    fn token(&self) -> Option<String> {
        self.source.as_ref().map_or_else(|| self.token.clone(), |source| source.token())
    }

    fn replays(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.replays())
    }

    fn is_last(&self) -> bool {
        self.opener.end == InputEnd::Last
    }

    fn pauses(&mut self) {
        self.pauses = true;
        self.source.iter_mut().for_each(|source| source.pauses());
    }

    fn rest(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        self.source()?.rest()
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.source()?.resume(token)
    }

    fn outlook(&self) -> Option<String> {
        self.source.as_ref().and_then(|source| source.outlook())
    }

    fn progress(&self) -> SourceProgress {
        self.source.as_ref().map(|source| source.progress()).unwrap_or_default()
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        if self.source.is_some() {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
