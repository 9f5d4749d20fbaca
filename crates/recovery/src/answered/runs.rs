//! Runs of keys: the answers of calls of one source on the medium, as rows by key, in the form of the runs of tables (`durability`,
//! `store/mod.rs`). They are found by the hash of their key.
//!
//! ```text
//! row    = key, arguments, called, epoch, digest of the answer's form, answer
//! answer = 0 silent, 1 record of a commit, 2 record of an abort, or 3 reason of a call that reached no transaction
//! ```
//!
//! # Invariant
//!
//! The later of two runs with a key has the later call. A run goes when the time of all its keys is over.
//!
//! # Cost
//!
//! A call with a key that is not in memory asks the filter of each run. Runs are merged only with those whose last calls are in the
//! same eighth of the source's time ([`AGES`]), so a key is written again a few times and then never, a run goes as a whole
//! soon after its first key is over, and there are a dozen of them. With 15 bits a key a filter lets one in 600 other keys pass,
//! so that of calls with a new key about one in fifty is looked up.

use super::values::{read_record, write_record};
use super::{Form, Page, Remembering, no_answers};
use crate::begin_run::BeginRun;
use crate::encoding::{Malformed, Reader, bytes};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tidemill_durability::store::{Merging, OpenRun, Runs, due};
use tidemill_durability::{CallKey, KeyRun, StateDirectory, StateError};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_stages::finish::answers::Outcome;
use tidemill_state::{EXISTS, Image, NOWHERE, RowShape, hash_bytes, hash_parts};

/// The parts of a source's time within which runs are merged.
const AGES: i64 = 8;
/// The users of a run whose keys are counted, at most: those who have most.
const USERS_MAX: usize = 64;

/// The words of a row.
const KEY: usize = 1;
const ARGUMENTS: usize = 2;
const CALLED: usize = 3;
const EPOCH: usize = 4;
const FORM: usize = 5;
const ANSWER: usize = 6;

fn shape() -> Arc<RowShape> {
    Arc::new(RowShape { words: 7, key: vec![KEY], texts: vec![KEY, ANSWER] })
}

/// The rows for which a filter is made: it has ten bits for each of these, hence fifteen a key.
pub fn filter_rows(keys: usize) -> usize {
    keys + keys / 2
}

/// The name of a source's runs, for messages.
fn what(source: &str) -> String {
    format!("keys of calls of {source}")
}

/// The calls of a source on these pages whose time is not over, by key, and what a manifest says of them.
pub fn rows_of(of: &Remembering, pages: &[Arc<Page>], now: i64) -> (KeyRun, Image) {
    let mut image = Image::new(&shape());
    let mut run = KeyRun { source: of.name.clone(), expires: i64::MIN, last: i64::MIN, ..KeyRun::default() };
    let mut answer = Vec::new();
    for page in pages.iter().filter(|page| page.source == of.source) {
        let answers = Encoded::of(page);
        for (at, key) in page.keys.iter().enumerate().filter(|(_, key)| !of.is_over(key, now)) {
            answer.clear();
            let form = answers.write(page, at, &mut answer);
            let words = [EXISTS, 0, key.arguments, key.called as u64, page.epochs[at], form, 0];
            image.push(words, |word| if word == KEY { key.key.as_bytes() } else { &answer });
            run.last = run.last.max(key.called);
            *run.users.entry(user_of(&key.key).to_owned()).or_default() += 1;
        }
    }
    run.expires = run.last.saturating_add(of.time);
    limit(&mut run.users);
    (run, image.newest())
}

/// The user of a whole key, which has the user's name in its first line.
pub fn user_of(key: &str) -> &str {
    key.split_once('\n').map_or("", |(user, _)| user)
}

/// Leaves those who have most.
fn limit(users: &mut BTreeMap<String, u64>) {
    if users.len() > USERS_MAX {
        let mut counts: Vec<u64> = users.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let least = counts[USERS_MAX];
        users.retain(|_, count| *count > least);
    }
}

/// The answers of a page, to be written one by one.
struct Encoded {
    committed: Vec<Vec<tidemill_model::Value>>,
    aborted: Vec<Vec<tidemill_model::Value>>,
}

impl Encoded {
    fn of(page: &Page) -> Encoded {
        let (answers, form) = (&page.answers, &page.form);
        let committed = answers.committed.as_ref().zip(form.returns.as_ref()).map(|(batch, form)| rows(batch, form));
        let aborted = answers.aborted.as_ref().zip(form.shows.as_ref()).map(|(batch, form)| rows(batch, form));
        Encoded { committed: committed.unwrap_or_default(), aborted: aborted.unwrap_or_default() }
    }

    /// Appends the answer of a call. The digest of its form.
    fn write(&self, page: &Page, at: usize, into: &mut Vec<u8>) -> u64 {
        let digests = page.form.digests;
        match page.answers.outcomes[at] {
            Outcome::Silent | Outcome::Refused(_) => into.push(0),
            Outcome::Committed(row) => {
                into.push(1);
                write_record(&self.committed[row as usize], into);
                return digests[0];
            }
            Outcome::Aborted(row) => {
                into.push(2);
                write_record(&self.aborted[row as usize], into);
                return digests[1];
            }
            Outcome::Untaken(reason) => {
                into.push(3);
                bytes(into, page.answers.untaken[reason as usize].as_bytes());
            }
        }
        0
    }
}

/// A call as a run has it, as a page of its own.
fn page_of(of: &Remembering, image: &Image, row: usize) -> Result<Page, Malformed> {
    let key = String::from_utf8(image.text(row, KEY).to_vec());
    let key = key.map_err(|_| Malformed("a key is not UTF-8".into()))?;
    let words = image.row(row);
    let key = CallKey { event: 0, key, arguments: words[ARGUMENTS], called: words[CALLED] as i64 };
    let mut reader = Reader(image.text(row, ANSWER));
    let is_of_now = of.form.digests.map(|digest| digest == words[FORM]);
    let form: &Form = &of.form;
    let mut answers = no_answers(of, Vec::new());
    let outcome = match reader.byte()? {
        0 => Outcome::Silent,
        1 => {
            if let Some(schema) = form.returns.as_ref().filter(|_| is_of_now[0]) {
                answers.committed = Some(batch_of(schema, &[read_record(&mut reader)?]));
            }
            Outcome::Committed(0)
        }
        2 => {
            if let Some(schema) = form.shows.as_ref().filter(|_| is_of_now[1]) {
                answers.aborted = Some(batch_of(schema, &[read_record(&mut reader)?]));
            }
            Outcome::Aborted(0)
        }
        3 => {
            answers.untaken.push(reader.text()?);
            Outcome::Untaken(0)
        }
        _ => return Err(Malformed("a call has an unknown outcome".into())),
    };
    answers.outcomes.push(outcome);
    let (keys, epochs) = (vec![key], vec![words[EPOCH]]);
    Ok(Page { source: of.source, keys, epochs, answers: Arc::new(answers), form: of.form.clone(), is_of_now })
}

/// The runs of a source.
#[derive(Clone)]
struct OfSource {
    open: Runs,
    /// As a manifest names them, in the same order.
    named: Vec<KeyRun>,
}

/// The runs of all sources, as they are at one instant. Any thread may look keys up.
#[derive(Clone, Default)]
pub struct KeyRuns {
    /// The runs of each source, by its place in [`Remembering::of`].
    sources: Vec<OfSource>,
    /// The number of times that keys were added.
    pub additions: u64,
    /// They have all answers of epochs up to this one that were given since the state was opened.
    pub through: u64,
}

impl fmt::Debug for KeyRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named()).finish()
    }
}

impl KeyRuns {
    /// Opens runs of these sources; others are left out.
    pub fn open(
        directory: &StateDirectory,
        remembering: &[Remembering],
        keys: &[KeyRun],
    ) -> Result<KeyRuns, StateError> {
        let of = |of: &Remembering| {
            let named: Vec<KeyRun> = keys.iter().filter(|run| run.source == of.name).cloned().collect();
            let stored: Vec<_> = named.iter().map(|run| run.run.clone()).collect();
            Ok(OfSource { open: Runs::open(&directory.blocks(), &stored, &shape(), &what(&of.name))?, named })
        };
        Ok(KeyRuns { sources: remembering.iter().map(of).collect::<Result<_, StateError>>()?, ..KeyRuns::default() })
    }

    /// The runs as a manifest names them.
    pub fn named(&self) -> impl Iterator<Item = &KeyRun> {
        self.sources.iter().flat_map(|of| &of.named)
    }

    /// The number of keys of a source whose time is not over, about.
    pub fn keys_of(&self, place: usize, now: i64) -> u64 {
        let named = self.sources.get(place).map_or(&[][..], |of| &of.named);
        named.iter().filter(|run| run.expires > now).map(|run| run.run.rows).sum()
    }

    /// Bytes of their indexes and filters, in memory.
    pub fn bytes_in_memory(&self) -> usize {
        self.sources.iter().map(|of| of.open.bytes()).sum()
    }

    /// Bytes of their files.
    pub fn bytes_on_disk(&self) -> u64 {
        // The index is the end of the file.
        self.named().map(|run| run.run.index.offset + run.run.index.length).sum()
    }

    /// The number of keys of each user, by user, of those who have most.
    pub fn users(&self) -> BTreeMap<&str, u64> {
        let mut users = BTreeMap::new();
        let all = self.named().flat_map(|run| &run.users);
        all.for_each(|(user, count)| *users.entry(user.as_str()).or_default() += count);
        users
    }

    /// The time of the latest call.
    pub fn last(&self) -> Option<i64> {
        self.named().map(|run| run.last).max()
    }

    /// Returns whether a source may have a call with this key whose time is not over. `forgets_newest`: a planted bug.
    pub fn may_have(&self, place: usize, key: &str, now: i64, forgets_newest: bool) -> bool {
        let Some(of) = self.sources.get(place).filter(|of| !of.named.is_empty()) else { return false };
        let hash = hash_of(key);
        let asked = of.named.len() - usize::from(forgets_newest);
        let mut runs = of.named.iter().zip(of.open.each()).take(asked);
        runs.any(|(named, open)| named.expires > now && open.may_have(hash))
    }

    /// Returns the calls of a source that have these keys, by key.
    pub(super) fn find(
        &self,
        place: usize,
        of: &Remembering,
        keys: &[&str],
    ) -> Result<Vec<Option<Arc<Page>>>, StateError> {
        let Some(OfSource { open, .. }) = self.sources.get(place) else { return Ok(vec![None; keys.len()]) };
        let mut wanted = Image::new(&shape());
        keys.iter().for_each(|key| wanted.push([0; 7], |word| if word == KEY { key.as_bytes() } else { &[] }));
        let found = open.get(&wanted)?;
        let page = |&place: &u32| {
            if place == NOWHERE {
                return Ok(None);
            }
            let page = page_of(of, &found.rows, place as usize).map_err(|Malformed(reason)| {
                StateError::Refused(format!("a checkpoint's {} do not read: {reason}", what(&of.name)))
            })?;
            Ok(Some(Arc::new(page)))
        };
        found.places.iter().map(page).collect()
    }

    /// Returns whether there are runs that are not needed any more.
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.named().any(|run| run.expires <= now)
    }

    /// Returns these runs with further ones, and without those that are not needed any more.
    pub(super) fn after(&self, now: i64, epoch: u64, written: Vec<(usize, KeyRun, OpenRun)>) -> KeyRuns {
        let mut after = KeyRuns { through: epoch, ..self.clone() };
        after.additions += 1;
        for of in &mut after.sources {
            while let Some(at) = of.named.iter().position(|run| run.expires <= now) {
                of.named.remove(at);
                of.open = of.open.with(at..at + 1, None);
            }
        }
        for (place, named, open) in written {
            let of = &mut after.sources[place];
            of.open = of.open.with(of.named.len()..of.named.len(), Some(open));
            of.named.push(named);
        }
        after
    }

    /// Begins a merge, if one is due.
    pub(super) fn begin_merge(
        &self,
        remembering: &[Remembering],
        begin: &mut BeginRun<'_>,
    ) -> Result<Option<KeyMerge>, StateError> {
        for (place, (of, runs)) in remembering.iter().zip(&self.sources).enumerate() {
            let Some(range) = due_of(&runs.named, of.time) else { continue };
            let open = runs.open.only(range.clone());
            let into = begin(&shape(), Some(filter_rows(open.rows() as usize)))?;
            let mut named = KeyRun { source: of.name.clone(), expires: i64::MIN, last: i64::MIN, ..KeyRun::default() };
            for run in &runs.named[range.clone()] {
                named.expires = named.expires.max(run.expires);
                named.last = named.last.max(run.last);
                run.users.iter().for_each(|(user, count)| *named.users.entry(user.clone()).or_default() += count);
            }
            limit(&mut named.users);
            return Ok(Some(KeyMerge { place, range, named, merging: Merging::new(&open, into, true)? }));
        }
        Ok(None)
    }

    /// Returns these runs with one in the place of some.
    pub(super) fn merged(&self, place: usize, range: Range<usize>, (named, open): MergedRun) -> KeyRuns {
        let mut merged = self.clone();
        let of = &mut merged.sources[place];
        of.open = of.open.with(range.clone(), Some(open));
        of.named.splice(range, [named]);
        merged
    }
}

/// The hash by which runs find a key.
fn hash_of(key: &str) -> u64 {
    hash_parts([hash_bytes(key.as_bytes())].into_iter())
}

/// The runs to merge, of those of a source that keeps answers for this time.
fn due_of(named: &[KeyRun], time: i64) -> Option<Range<usize>> {
    let age = |run: &KeyRun| run.last.div_euclid((time / AGES).max(1));
    let mut start = 0;
    for group in named.chunk_by(|one, next| age(one) == age(next)) {
        let end = start + group.len();
        let is_newest = end == named.len();
        // No run comes any more of an age that is over.
        let first = if is_newest { due(&group.iter().map(|run| run.run.clone()).collect::<Vec<_>>()) } else { Some(0) };
        if let Some(first) = first.filter(|first| group.len() - first > 1) {
            return Some(start + first..end);
        }
        start = end;
    }
    None
}

/// A run as the manifest names it, and open.
type MergedRun = (KeyRun, OpenRun);

/// A merge of runs of a source, step by step.
pub struct KeyMerge {
    place: usize,
    range: Range<usize>,
    named: KeyRun,
    merging: Merging,
}

impl KeyMerge {
    /// Continues with about this many keys; returns whether there are more.
    pub fn step(&mut self, keys_max: usize) -> Result<bool, StateError> {
        self.merging.step(keys_max)
    }

    /// Returns the place of the runs, those that were merged, and the run that takes their place.
    pub(super) fn finish(self) -> Result<(usize, Range<usize>, MergedRun), StateError> {
        let KeyMerge { place, range, mut named, merging } = self;
        let open = merging.end().finish()?;
        named.run = open.run().clone();
        Ok((place, range, (named, open)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_durability::store::StoredRun;

    fn run(last: i64, rows: u64) -> KeyRun {
        KeyRun { last, run: StoredRun { rows, ..StoredRun::default() }, ..KeyRun::default() }
    }

    #[test]
    fn runs_of_one_age_are_merged() {
        assert_eq!(due_of(&[], 80), None);
        assert_eq!(due_of(&[run(1, 5), run(2, 5), run(3, 5)], 80), None, "few of the newest age");
        assert_eq!(due_of(&[run(1, 5), run(2, 5), run(3, 5), run(4, 5)], 80), Some(0..4));
        assert_eq!(due_of(&[run(1, 500), run(2, 5), run(3, 5), run(4, 5)], 80), Some(1..4));
        assert_eq!(due_of(&[run(1, 5), run(12, 5)], 80), None, "one of each age");
        assert_eq!(due_of(&[run(1, 5), run(2, 500), run(12, 5)], 80), Some(0..2), "the older age is over");
        assert_eq!(
            due_of(&[run(100, 5), run(12, 5), run(13, 5), run(90, 5)], 80),
            Some(1..3),
            "the clock was put back"
        );
    }

    #[test]
    fn those_with_most_keys_are_counted() {
        let mut users: BTreeMap<String, u64> = (0..200).map(|n| (format!("user {n}"), n)).collect();
        limit(&mut users);
        assert_eq!((users.len(), users["user 199"], users.contains_key("user 135")), (USERS_MAX, 199, false));
    }
}
