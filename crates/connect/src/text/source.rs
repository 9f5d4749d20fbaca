//! The loop that reads text and hands its records to a format.
//!
//! # The end
//!
//! A record that the end of a file cuts off is a record nevertheless, except at the end of the last file if more may
//! follow there: in a run with a state, whose end of input is a pause, and while the file is followed. It is kept back
//! then, and found whole when the rest of it is there.

use super::reading::Reading;
use super::{Format, Header};
use crate::Compression;
use crate::columns::Rows;
use crate::files::{FileIdentity, FileProgress, Place, places};
use crate::place::{Before, Compressed, FileToken, Head, all_regular, check_new, whole_head};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{
    BadRecord, Clock, InputEnd, IoFailure, Next, Resumed, Source, SourceBatch, SourceOptions, SourceProgress,
};
use tidemill_model::Schema;

/// A batch is handed over when its records were this long together, however few they are.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The interval at which a file that is followed is looked at.
const FOLLOW_POLL: Duration = Duration::from_millis(20);

// Columns address their bytes by `i32`. No value grows by being decoded.
const _: () = assert!(BATCH_BYTES_MAX + super::RECORD_BYTES_MAX < i32::MAX as usize);

/// The input of a text source, and the meaning of its end.
pub(crate) struct Input<'a> {
    /// Files, globs, or `-`.
    pub paths: &'a [String],
    pub compression: Option<Compression>,
    pub end: InputEnd,
}

/// A source of text records.
pub(crate) struct TextSource<F> {
    format: F,
    paths: Vec<String>,
    places: Vec<Place>,
    compression: Option<Compression>,
    end: InputEnd,
    /// A flag: whether its end is a pause.
    pauses: bool,
    clock: Arc<dyn Clock>,
    /// The place being read, or about to be.
    index: usize,
    current: Option<Reading>,
    /// The places that were read before the current one.
    before: Before,
    batch: Batch,
    progress: FileProgress,
    /// The files that were renamed while they were followed.
    renamed: Vec<FileIdentity>,
    /// The index of a place that was looked at, and its first bytes.
    head: Option<(usize, Head)>,
    /// The failure that ended the source. Events decoded before it are handed over first.
    failure: Option<IoFailure>,
    /// The place from which it goes on, as text for users, if it was resumed.
    resumed: Option<String>,
}

/// The batch under construction.
pub(super) struct Batch {
    pub rows: Rows,
    pub bad: Vec<BadRecord>,
    /// The size of the batch's records, in bytes.
    pub bytes: usize,
    rows_max: usize,
    /// A flag: whether it takes all records that there are.
    is_open: bool,
}

impl Batch {
    fn records(&self) -> usize {
        self.rows.count() + self.bad.len()
    }

    pub fn is_full(&self) -> bool {
        let has_enough = self.records() >= self.rows_max || (self.bytes >= BATCH_BYTES_MAX && self.records() > 0);
        has_enough && !self.is_open
    }

    fn take(&mut self) -> SourceBatch {
        self.bytes = 0;
        SourceBatch { events: self.rows.finish(), bad: take(&mut self.bad) }
    }
}

/// The reason why no more is decoded for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// The batch is to be handed over, if it has records.
    Batch,
    /// All is read that is there.
    End,
}

impl<F: Format> TextSource<F> {
    /// Checks that every file can be opened and, where the format has headers, that each regular
    /// file's header is right.
    pub fn open(mut format: F, input: &Input<'_>, schema: &Schema, options: &SourceOptions) -> Result<Self, IoFailure> {
        let Input { paths, compression, end } = *input;
        let places = places(paths)?;
        let follows = end == InputEnd::Follow;
        for place in &places {
            let is_regular = place.check()?;
            if follows && !is_regular {
                let name = place.name();
                return Err(IoFailure::new(format!("{name} is no regular file: only files can be followed")));
            }
            if is_regular && (follows || format.begin() == Header::Expected) {
                let mut reading = Reading::open(place, compression, follows, &mut format)?;
                if follows && !reading.plain {
                    let name = place.name();
                    return Err(IoFailure::new(format!("{name} is compressed, and cannot be followed")));
                }
                reading.may_grow = follows;
                while !(reading.take_header(&mut format)? || (reading.ended && follows)) {
                    reading.read()?;
                }
            }
        }
        let rows_max = options.batch_rows.max(1);
        let batch = Batch { rows: Rows::new(schema), bad: Vec::new(), bytes: 0, rows_max, is_open: false };
        let mut progress = FileProgress::new(&places);
        if follows {
            progress.without_end();
        }
        Ok(TextSource {
            format,
            paths: paths.to_vec(),
            places,
            compression,
            end,
            pauses: false,
            clock: options.clock.clone(),
            index: 0,
            current: None,
            before: Before::default(),
            batch,
            progress,
            renamed: Vec::new(),
            head: None,
            failure: None,
            resumed: None,
        })
    }

    fn follows(&self) -> bool {
        self.end == InputEnd::Follow
    }

    /// Decodes until the batch is to be handed over or everything is read.
    fn fill(&mut self) -> Result<Filled, IoFailure> {
        while let Some(place) = self.places.get(self.index) {
            let is_last = self.index + 1 == self.places.len();
            // The name of a file that is followed may stand for nothing for a moment.
            let may_grow =
                is_last && (self.end == InputEnd::Follow || (self.pauses && place.regular_length().is_some()));
            let reading = match &mut self.current {
                Some(reading) => reading,
                // Waiting for a pipe's first bytes while there are events to hand over.
                None if self.batch.records() > 0 && place.regular_length().is_none() => return Ok(Filled::Batch),
                none => {
                    if place.regular_length().is_some() {
                        self.head = Some((self.index, whole_head(place)?));
                    }
                    let follows = self.end == InputEnd::Follow;
                    none.insert(Reading::open(place, self.compression, follows, &mut self.format)?)
                }
            };
            reading.may_grow = may_grow;
            let has_header = reading.take_header(&mut self.format)?;
            if has_header {
                reading.decode(&mut self.format, &mut self.batch);
                if self.batch.is_full() || (reading.live && self.batch.records() > 0) {
                    return Ok(Filled::Batch);
                }
            }
            match reading.ended {
                true if is_last => return Ok(Filled::End),
                true if has_header => self.go_on(),
                _ => reading.read()?,
            }
        }
        Ok(Filled::End)
    }

    /// Goes on to the next place.
    fn go_on(&mut self) {
        if let Some(reading) = self.current.take() {
            self.progress.finish(self.index, reading.count.get());
            self.before.push(&self.places[self.index], reading.count.get());
        }
        self.index += 1;
    }

    /// Decodes what the current input ends with, as nothing follows it: all of it into one batch.
    fn decode_rest(&mut self) -> Result<(), IoFailure> {
        let Some(reading) = &mut self.current else { return Ok(()) };
        reading.may_grow = false;
        if reading.take_header(&mut self.format)? {
            self.batch.is_open = true;
            reading.decode(&mut self.format, &mut self.batch);
            self.batch.is_open = false;
        }
        Ok(())
    }

    /// Looks whether there is more than there was at the last file's end.
    fn look(&mut self) -> Result<bool, IoFailure> {
        let Some(reading) = &mut self.current else { return Ok(true) };
        reading.read()?;
        if !reading.ended {
            return Ok(true);
        }
        let place = &self.places[self.index];
        match place.look() {
            // Renamed or removed. A new file of its name, or of a glob, may come.
            None => self.look_for_files(),
            Some((identity, _)) if identity != reading.identity => {
                // The old file may have been written to before it was renamed, so it is read to its end.
                reading.read()?;
                if reading.ended {
                    self.renamed.extend(reading.identity);
                    if reading.has_pending() {
                        self.decode_rest()?;
                    }
                    self.current = None;
                }
                Ok(true)
            }
            Some((_, length)) if length < reading.count.get() => Err(IoFailure::new(format!(
                "{} has shrunk to {length} bytes while it was followed, after {} of it were read: rename a file, and \
                 begin another one, instead of writing it anew",
                place.name(),
                reading.count.get()
            ))),
            Some(_) => self.look_for_files(),
        }
    }

    /// Adds files that globs match now and that come after those that were read.
    fn look_for_files(&mut self) -> Result<bool, IoFailure> {
        // A glob may match nothing for a moment.
        let Ok(now) = places(&self.paths) else { return Ok(false) };
        let is_known = |place: &Place| self.places.contains(place);
        let known = now.iter().rposition(is_known).map_or(0, |last| last + 1);
        if let Some(new) = now[..known].iter().find(|place| !is_known(place)) {
            return Err(IoFailure::new(format!(
                "{} is new and comes before {}, which was read already; give it a name that sorts after that",
                new.name(),
                now[known - 1].name()
            )));
        }
        let new = &now[known..];
        let current = self.current.as_ref().and_then(|reading| reading.identity);
        let is_renamed = |place: &&Place| {
            let identity = place.look().and_then(|(identity, _)| identity);
            identity.is_some_and(|identity| self.renamed.contains(&identity) || current == Some(identity))
        };
        if let Some(place) = new.iter().find(is_renamed) {
            return Err(IoFailure::new(format!(
                "{} was read already, under another name: let renamed files have names that the glob does not match",
                place.name()
            )));
        }
        if new.is_empty() {
            return Ok(false);
        }
        self.renamed.extend(current);
        self.places.extend_from_slice(new);
        self.progress = FileProgress::new(&self.places);
        self.progress.without_end();
        Ok(true)
    }

    /// Returns the next batch, for as long as the source has not failed.
    fn step(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let mut waits = true;
        loop {
            let filled = self.fill();
            if self.batch.records() > 0 {
                self.failure = filled.err();
                return Ok(Next::Batch(self.batch.take()));
            }
            match filled? {
                Filled::Batch => {}
                Filled::End if !self.follows() => return Ok(Next::End),
                Filled::End if self.look()? => {}
                Filled::End if take(&mut waits) => self.clock.sleep(FOLLOW_POLL.min(wait_max)),
                Filled::End => return Ok(Next::Nothing),
            }
        }
    }
}

impl<F: Format> Source for TextSource<F> {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        if self.failure.is_none() {
            match self.step(wait_max) {
                Ok(next) => return Ok(next),
                Err(failure) => self.failure = Some(failure),
            }
        }
        let IoFailure { message, schema } = self.failure.as_ref().expect("set above");
        Err(IoFailure { message: message.clone(), schema: *schema })
    }

    fn token(&self) -> Option<String> {
        let place = self.places.get(self.index)?;
        if !self.follows() {
            place.regular_length()?;
        }
        let head = self.head.filter(|(index, _)| *index == self.index).map_or(Head::default(), |(_, head)| head);
        let name = place.name();
        // Between two files nothing is known of the next but its name.
        let mut token =
            FileToken { file: self.index, name, head, before: Some(self.before.clone()), ..FileToken::default() };
        if let Some(reading) = &self.current {
            if reading.plain {
                (token.offset, token.line, token.skipping) = (reading.offset(), reading.line, reading.skipping);
            } else {
                let is_whole = reading.ended && !reading.has_pending();
                token.compressed =
                    Some(if is_whole { Compressed::Whole(reading.count.get()) } else { Compressed::Begun });
            }
            (token.tail, token.is_unended) = match reading.plain {
                true => (reading.tail(), reading.is_unended()),
                false => (Head::default(), false),
            };
        }
        serde_json::to_string(&token).ok()
    }

    /// A file that is followed may be renamed.
    fn replays(&self) -> bool {
        all_regular(&self.places) && !self.follows()
    }

    fn is_followed(&self) -> bool {
        self.follows()
    }

    fn is_at_end_of_pipe(&self) -> bool {
        let has_ended = self.current.as_ref().map_or(self.index == self.places.len(), |reading| reading.ended);
        (has_ended || self.failure.is_some()) && !self.follows() && !all_regular(&self.places)
    }

    fn is_last(&self) -> bool {
        self.end == InputEnd::Last
    }

    fn pauses(&mut self) {
        self.pauses = true;
    }

    fn rest(&mut self) -> Result<Option<SourceBatch>, IoFailure> {
        if self.current.as_ref().is_some_and(|reading| reading.ended && reading.may_grow) {
            self.decode_rest()?;
        }
        Ok((self.batch.records() > 0).then(|| self.batch.take()))
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        if !all_regular(&self.places) {
            return check_new(&self.places).map(|()| Resumed::New);
        }
        let Some(token) = token else { return Ok(Resumed::Anew) };
        let token = FileToken::read(token, &self.places)?;
        self.before = Before::of(&self.places[..token.file]);
        self.index = token.file;
        match (token.compressed, self.places.get(token.file)) {
            (Some(Compressed::Whole(length)), Some(place)) if place.regular_length() == Some(length) => {
                self.before.push(place, length);
                self.index += 1;
            }
            (Some(_), _) => {
                (self.index, self.before) = (0, Before::default());
                self.resumed = Some(format!("reads {} again, which is compressed", token.name));
                return Ok(Resumed::Anew);
            }
            (None, Some(place)) if token.offset > 0 => {
                let mut reading = Reading::open(place, self.compression, self.follows(), &mut self.format)?;
                while !reading.take_header(&mut self.format)? {
                    reading.read()?;
                }
                reading.go(place, &token)?;
                self.head = Some((self.index, whole_head(place)?));
                self.current = Some(reading);
            }
            (None, _) => {}
        }
        self.progress.skip_to(self.index);
        self.resumed = Some(self.goes_on(&token));
        Ok(Resumed::Behind)
    }

    fn outlook(&self) -> Option<String> {
        match &self.resumed {
            Some(resumed) => Some(resumed.clone()),
            None => Some(reads(&self.places)),
        }
    }

    fn progress(&self) -> SourceProgress {
        self.progress.at(self.index, self.current.as_ref().map_or(0, |reading| reading.count.get()))
    }
}

impl<F: Format> TextSource<F> {
    /// Returns a text for users that says from where it goes on after a token.
    fn goes_on(&self, token: &FileToken) -> String {
        let Some(reading) = &self.current else {
            return match &self.places[self.index..] {
                [] => format!("has nothing new: {} was read to its end", token.name),
                new => reads(new),
            };
        };
        let FileToken { name, offset, line, .. } = token;
        let more = self.places[self.index].regular_length().unwrap_or(0).saturating_sub(reading.offset());
        let mut text = match more {
            0 => format!("has nothing new in {name} after byte {offset}"),
            _ => format!("continues {name} at byte {offset}, line {line}, {more} new bytes"),
        };
        let new = &self.places[self.index + 1..];
        if !new.is_empty() {
            text = format!("{text}; then {}", reads(new));
        }
        text
    }
}

/// Returns the names of new files, for people.
pub(crate) fn reads(places: &[Place]) -> String {
    let name = |place: &Place| match place.regular_length() {
        Some(length) => format!("{} ({length} bytes)", place.name()),
        None => place.name(),
    };
    const NAMED_MAX: usize = 8;
    let mut names: Vec<String> = places.iter().take(NAMED_MAX).map(name).collect();
    if places.len() > NAMED_MAX {
        names.push(format!("{} more", places.len() - NAMED_MAX));
    }
    format!("reads {} from the beginning", names.join(", "))
}
