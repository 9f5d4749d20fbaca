//! Marks against its definition: each time of a small range is tried, against everything that may still come.

use super::*;
use crate::due::DueCut;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidemill_model::Type;
use tidemill_plan::{Bound, Due, NO_TICK, TableId};

/// The times that are tried. Inputs are within the inner ones.
const TIMES: std::ops::Range<i64> = -40..60;

/// A split, as all that was given of it.
struct Model {
    place: SplitPlace,
    lateness: Option<i64>,
    /// The number of its events.
    events: usize,
    /// The times of those that were punctual.
    punctual: Vec<i64>,
    promises: Vec<i64>,
    /// The mark with which it joined.
    begin: Option<i64>,
    ended: bool,
}

impl Model {
    fn new(place: SplitPlace, lateness: Option<i64>) -> Model {
        Model { place, lateness, events: 0, punctual: Vec::new(), promises: Vec::new(), begin: None, ended: false }
    }

    /// Returns the mark: the greatest punctual time less the lateness, or what was promised; or a counter.
    fn low(&self) -> Option<i64> {
        let Some(lateness) = self.lateness else { return Some(self.events as i64) };
        self.punctual.iter().map(|time| time - lateness).chain(self.promises.iter().copied()).chain(self.begin).max()
    }

    /// Takes an event; returns the time at which it stands, if it is late.
    fn take(&mut self, time: i64) -> Option<i64> {
        self.events += 1;
        let low = self.low().filter(|&low| time < low && self.lateness.is_some());
        let stands = low.and_then(|low| self.punctual.iter().copied().chain([low]).max());
        if stands.is_none() {
            self.punctual.push(time);
        }
        stands
    }

    fn shown(&self) -> Option<i64> {
        self.lateness?;
        self.punctual.iter().chain(&self.promises).copied().max()
    }

    /// Returns the positions at which something may still come.
    fn may_come(&self) -> impl Iterator<Item = (i64, SplitPlace)> {
        let low = self.low().unwrap_or(i64::MIN);
        TIMES.filter(move |&time| !self.ended && time >= low).map(|time| (time, self.place))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Events of a split come together.
    Events(usize, Vec<i64>),
    Promise(usize, i64),
    End(usize),
    Join(usize),
    Hold(Option<i64>),
    Expect(usize, bool),
}

/// Returns times of which each is near the one before, so that batches are often in order.
fn near(first: std::ops::Range<i64>) -> impl Strategy<Value = Vec<i64>> {
    (first, prop::collection::vec(-2..5i64, 0..4)).prop_map(|(first, steps)| {
        let mut times = vec![first];
        times.extend(steps.iter().scan(first, |at, step| {
            *at += step;
            Some(*at)
        }));
        times
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (split, time) = (0..6usize, -10..30i64);
    let step = prop_oneof![
        6 => (split.clone(), near(time.clone())).prop_map(|(split, times)| Step::Events(split, times)),
        2 => (split.clone(), time.clone()).prop_map(|(split, time)| Step::Promise(split, time)),
        1 => split.clone().prop_map(Step::End),
        1 => split.clone().prop_map(Step::Join),
        1 => prop::option::of(time).prop_map(Step::Hold),
        1 => (split, any::<bool>()).prop_map(|(source, more)| Step::Expect(source, more)),
    ];
    prop::collection::vec(step, 0..40)
}

/// Sources by their lateness; none without event time.
fn sources() -> impl Strategy<Value = Vec<Option<i64>>> {
    let lateness = prop_oneof![3 => prop::sample::select(vec![0, 1, 5, -3]).prop_map(Some), 1 => Just(None)];
    prop::collection::vec(lateness, 1..4)
}

fn begin(sources: &[Option<i64>], takes_late: bool) -> Marks {
    let marks = |(source, &lateness): (usize, &Option<i64>)| SplitMarks::new(SplitPlace { source, split: 0 }, lateness);
    Marks::new(sources.iter().enumerate().map(marks).collect(), takes_late)
}

/// Lets events of a split come, as the gate does; returns where the late ones stand.
fn give(marks: &mut SplitMarks, times: &[i64]) -> Vec<Option<i64>> {
    if !marks.has_time() {
        marks.count(times.len());
        return vec![None; times.len()];
    }
    if marks.see_in_order(times) {
        return vec![None; times.len()];
    }
    let mut admission = marks.admission();
    let stand: Vec<Option<i64>> = times.iter().map(|&time| admission.admit(time)).collect();
    if stand.contains(&None) {
        marks.admitted(admission);
    }
    stand
}

struct Case {
    progress: Marks,
    model: Vec<Model>,
    expects: Vec<bool>,
    takes_late: bool,
    boundary: Option<i64>,
}

impl Case {
    fn new(sources: &[Option<i64>], takes_late: bool) -> Case {
        let progress = begin(sources, takes_late);
        let model = progress.iter().map(|of| Model::new(of.place, of.lateness));
        Case { model: model.collect(), progress, expects: vec![false; sources.len()], takes_late, boundary: None }
    }

    fn take(&mut self, step: &Step) {
        let (splits, sources) = (self.model.len(), self.expects.len());
        match step {
            Step::Events(split, times) if !self.model[split % splits].ended => {
                let of = &mut self.model[split % splits];
                let stand: Vec<Option<i64>> = times.iter().map(|&time| of.take(time)).collect();
                assert_eq!(give(self.progress.of_mut(split % splits), times), stand, "late events of {times:?}");
            }
            Step::Promise(split, time) if self.model[split % splits].lateness.is_some() => {
                self.model[split % splits].promises.push(*time);
                self.progress.of_mut(split % splits).punctuate(*time);
            }
            Step::End(split) => {
                self.model[split % splits].ended = true;
                self.progress.of_mut(split % splits).ended = true;
            }
            Step::Join(source) if self.model[source % sources].lateness.is_some() => self.join(source % sources),
            Step::Hold(boundary) => {
                self.boundary = *boundary;
                self.progress.hold_from(*boundary);
            }
            Step::Expect(source, more) => {
                self.expects[source % sources] = *more;
                self.progress.expect(source % sources, *more);
            }
            Step::Events(..) | Step::Promise(..) | Step::Join(_) => {}
        }
    }

    /// Lets a split join, with the mark that it gets where nothing has passed.
    fn join(&mut self, source: usize) {
        let begin = self.progress.mark_to_join(source, None);
        assert_eq!(begin, self.progress.mark());
        let split = self.progress.join(source, begin);
        let number = self.model.iter().filter(|of| of.place.source == source).count() as u32;
        let place = SplitPlace { source, split: number };
        assert_eq!((split, self.progress.of(split).place), (self.model.len(), place));
        let of = Model { begin, ..Model::new(place, self.model[source].lateness) };
        self.model.push(of);
    }

    fn ended(&self) -> bool {
        self.model.iter().all(|of| of.ended) && !self.expects.contains(&true)
    }

    /// Compares what may pass, and the marks, with what may still come.
    fn check(&self) {
        let shown = self.model.iter().filter_map(Model::shown).max();
        assert_eq!(self.progress.ended(), self.ended());
        let (frontier, mark) = (self.progress.frontier(), self.progress.mark());
        let first = self.model.iter().flat_map(Model::may_come).min();
        for (split, of) in self.model.iter().enumerate() {
            assert_eq!(self.progress.of(split).low(), of.low());
            for time in TIMES.start + 1..TIMES.end {
                let comes_first = first.is_some_and(|first| first < (time, of.place));
                let is_shown = !self.takes_late || self.ended() || Some(time) <= shown;
                let is_held = self.boundary.is_some_and(|boundary| time >= boundary);
                let passes = self.progress.limit(frontier, split).is_some_and(|limit| time <= limit);
                assert_eq!(passes, !comes_first && is_shown && !is_held, "{time} of split {split}: {frontier:?}");
            }
        }
        let timed = |time: i64| {
            self.model.iter().filter(|of| of.lateness.is_some() && !of.ended).all(|of| of.low() >= Some(time))
        };
        for time in TIMES {
            assert_eq!(mark >= Some(time), Some(time) <= shown && timed(time), "mark {mark:?} at {time}");
            let complete = self.progress.complete(Some(7)) >= Some(time);
            assert_eq!(complete, mark >= Some(time) && time <= 7);
        }
    }
}

proptest! {
    #[test]
    fn what_passes_is_what_nothing_can_come_before(sources in sources(), steps in steps(), takes_late: bool) {
        let mut case = Case::new(&sources, takes_late);
        case.check();
        let mut before = (case.progress.mark(), Vec::new());
        for step in &steps {
            case.take(step);
            case.check();
            let lows: Vec<Option<i64>> = case.progress.iter().map(SplitMarks::low).collect();
            let falls = before.1.iter().zip(&lows).any(|(before, low)| low < before);
            prop_assert!(!falls && case.progress.mark() >= before.0, "marks do not fall: {:?} {:?}", before, lows);
            before = (case.progress.mark(), lows);
        }
    }

    #[test]
    fn silence_raises_to_the_least_mark_of_those_that_are_heard(
        sources in sources(),
        steps in steps(),
        after in prop::collection::vec(prop::option::of(0..4u64), 4),
        declared in prop::collection::btree_set(0..6usize, 0..4),
        paused in prop::collection::btree_set(0..6usize, 0..3),
        waiting in prop::collection::btree_set(0..6usize, 0..3),
        now in 0..5u64,
    ) {
        let mut case = Case::new(&sources, false);
        let duration = |after: &Option<u64>| after.map(Duration::from_nanos);
        let mut silence = Silence::new(after[..sources.len()].iter().map(duration).collect(), sources.len(), 1);
        for step in &steps {
            let before = case.progress.splits();
            case.take(step);
            if case.progress.splits() > before {
                silence.join(case.progress.of(before).place.source, 1);
            }
        }
        let splits = case.progress.splits();
        paused.iter().filter(|&&split| split < splits).for_each(|&split| case.progress.of_mut(split).paused = true);
        let is_timed = |split: &&usize| **split < splits && case.progress.of(**split).has_time();
        declared.iter().filter(is_timed).for_each(|&split| silence.declare(split));
        let before: BTreeSet<usize> = silence.silent().collect();
        let raised = silence.raise(&case.progress, now, |split| waiting.contains(&split));
        check_silence(&case.progress, &before, &silence, &raised, &waiting);
        let new: Vec<usize> = silence.silent().filter(|split| !before.contains(split)).collect();
        prop_assert!(new.len() <= 1);
        for &split in &new {
            prop_assert!(!waiting.contains(&split) && silence.allowed(&case.progress, split).is_some_and(|after| now > after));
        }
    }

    #[test]
    fn no_row_is_due_before_the_next_boundary(
        bound in prop_oneof![
            (0..6i64).prop_map(Bound::After),
            (1..7i64, -3..3i64).prop_map(|(every, origin)| Bound::Grid { every, origin }),
        ],
        steps in prop::collection::vec((0..4i64, any::<bool>()), 1..40),
    ) {
        let rule = Rule { due: Some(rows_by(bound.clone())), bound: bound.clone(), by_events: true };
        let (mut boundaries, mut rows) = (Boundaries::new([rule]), BTreeSet::new());
        let mut at = 0;
        for (step, looks) in steps {
            at += step;
            let times = Times { last: Some(at), shown: Some(at), ..Times::default() };
            let next = boundaries.next(times);
            let is_before = |&least: &i64| next.is_some_and(|next| next <= least);
            prop_assert!(rows.first().is_none_or(is_before), "{next:?} and {rows:?}");
            if let Some(boundary) = next.filter(|&next| looks && next <= at) {
                let cut = DueCut { due: 0, boundary };
                prop_assert!(boundaries.may_be_due(cut, times));
                let left = rows.split_off(&(boundary + 1));
                let taken = std::mem::replace(&mut rows, left);
                boundaries.looked_at(cut, !taken.is_empty(), rows.first().copied());
                if taken.is_empty() {
                    prop_assert_eq!(boundaries.next(times), rows.first().copied(), "as they were looked at");
                }
            }
            boundaries.passes(Some(at));
            rows.extend(bound.after(at));
        }
    }
}

/// Checks what silence raises against its definition.
fn check_silence(
    marks: &Marks,
    before: &BTreeSet<usize>,
    silence: &Silence,
    raised: &[(usize, i64)],
    waiting: &BTreeSet<usize>,
) {
    assert!(before.iter().all(|&split| silence.is_silent(split)), "only input ends a silence");
    let heard = (0..marks.splits()).filter(|&split| !silence.is_silent(split) && marks.of(split).holds_back());
    let least = heard.map(|split| marks.of(split).low()).min().flatten();
    let to = least.zip(marks.shown()).map(|(least, shown)| least.min(shown));
    let raised: BTreeMap<usize, i64> = raised.iter().copied().collect();
    for split in 0..marks.splits() {
        let of = marks.of(split);
        let several = marks.iter().filter(|other| other.place.source == of.place.source).count() > 1;
        let rises = silence.is_silent(split) && !of.ended && !waiting.contains(&split) && (!of.paused || several);
        let expected = to.filter(|&to| rises && of.low() < Some(to));
        assert_eq!(raised.get(&split).copied(), expected, "split {split}: {of:?}");
    }
}

/// Returns the rule of rows of a table.
fn rows_by(bound: Bound) -> Due {
    Due { table: TableId::from(0), due: 1, first: 1, fields: Vec::new(), bound, time: Type::Int }
}

#[test]
fn the_frontier_is_the_least_of_what_may_come() {
    let mut progress = begin(&[Some(0), Some(2)], false);
    progress.of_mut(0).see_in_order(&[5]);
    assert_eq!((progress.frontier(), progress.mark()), (None, None), "the other source has shown nothing");
    progress.of_mut(1).see_in_order(&[5]);
    let frontier = progress.frontier();
    assert_eq!((progress.limit(frontier, 0), progress.limit(frontier, 1)), (Some(3), Some(3)));
    assert_eq!(progress.slowest_of(|_| true), Some(1));
    progress.of_mut(1).punctuate(5);
    let frontier = progress.frontier();
    assert_eq!(
        (progress.limit(frontier, 0), progress.limit(frontier, 1)),
        (Some(5), Some(4)),
        "at 5 the first is first"
    );
    progress.hold_from(Some(5));
    assert_eq!((progress.limit(frontier, 0), progress.limit_of_marks(frontier, 0)), (Some(4), Some(5)));
    assert!(progress.is_held_by_boundary());
}

#[test]
fn times_at_the_ends_of_their_range_do_not_overflow() {
    let mut progress = begin(&[Some(i64::MAX), Some(0)], true);
    progress.of_mut(0).see_in_order(&[i64::MIN, i64::MAX]);
    progress.of_mut(1).see_in_order(&[i64::MIN]);
    assert_eq!(
        progress.frontier().and_then(|frontier| frontier.limit(SplitPlace { source: 0, split: 0 })),
        Some(i64::MIN)
    );
    assert_eq!(progress.limit(progress.frontier(), 1), Some(i64::MIN));
    progress.hold_from(Some(i64::MIN));
    assert_eq!(progress.limit(progress.frontier(), 1), None, "nothing is before the first of all times");
}

/// Nothing moves where all are silent: there is no mark to follow.
#[test]
fn where_all_are_silent_nothing_moves() {
    let mut progress = begin(&[Some(0), Some(0)], false);
    let mut silence = Silence::new(vec![Some(Duration::ZERO); 2], 2, 0);
    progress.of_mut(0).see_in_order(&[9]);
    assert_eq!(silence.raise(&progress, 1, |_| false), [(1, 9)]);
    progress.of_mut(1).punctuate(9);
    silence.declare(0);
    assert_eq!(silence.raise(&progress, 2, |_| false), []);
    silence.heard(0, 3);
    assert!(!silence.is_silent(0) && silence.is_silent(1));
}

#[test]
fn ticks_follow_the_first_time_and_end_with_time() {
    let bound = Bound::Ticks { every: 10, origin: 0 };
    let rule = Rule { due: Some(rows_by(bound.clone())), bound, by_events: false };
    let mut boundaries = Boundaries::new([rule]);
    let times = |last: i64| Times { last: Some(last), shown: Some(last), ..Times::default() };
    assert_eq!(boundaries.next(times(7)), Some(i64::MIN), "nobody has looked");
    let first = DueCut { due: 0, boundary: i64::MIN };
    boundaries.looked_at(first, false, None);
    assert_eq!(boundaries.next(times(7)), Some(10));
    boundaries.looked_at(DueCut { due: 0, boundary: 10 }, true, Some(20));
    boundaries.passes_due(DueCut { due: 0, boundary: 10 });
    assert_eq!(boundaries.next(times(12)), Some(20));
    assert_eq!(boundaries.left_out(Some(12), Some(45)).collect::<Vec<_>>(), [(0, 3)]);
    assert_eq!(boundaries.next(times(12).at_end()), None, "no timer comes at the end of time");
    boundaries.looked_at(DueCut { due: 0, boundary: 20 }, true, Some(NO_TICK));
    assert_eq!(boundaries.next(times(30)), None);
}

/// Rows of sliding windows and of joins stay, and are due again, though nothing else is.
#[test]
fn rows_that_stay_are_due_again() {
    let cut = DueCut { due: 0, boundary: 20 };
    for (bound, again) in [(Bound::Grid { every: 10, origin: 0 }, 30), (Bound::Again(5), 21)] {
        let rule = Rule { due: Some(rows_by(bound.clone())), bound, by_events: true };
        let mut boundaries = Boundaries::new([rule]);
        boundaries.looked_at(cut, true, None);
        assert_eq!(boundaries.next(Times::default()), Some(again));
        boundaries.looked_at(cut, true, Some(7));
        assert_eq!(boundaries.next(Times::default()), Some(7));
        boundaries.looked_at(cut, false, None);
        assert_eq!(boundaries.next(Times::default()), None);
    }
}

/// Batches by count have no time of their own; they close after all that has one.
#[test]
fn at_the_end_of_time_what_has_no_time_comes_last() {
    let rows = |bound: Bound| Rule { due: Some(rows_by(bound.clone())), bound, by_events: true };
    let batches = Rule { due: None, bound: Bound::Never, by_events: true };
    let mut boundaries = Boundaries::new([rows(Bound::Never), rows(Bound::After(5)), batches]);
    boundaries.looked_at(DueCut { due: 0, boundary: i64::MIN }, false, Some(i64::MAX));
    boundaries.looked_at(DueCut { due: 1, boundary: i64::MIN }, false, Some(30));
    let (times, asked) = (Times { last: Some(25), shown: Some(25), ..Times::default() }, Cell::new(Vec::new()));
    assert_eq!(boundaries.next(times), Some(30), "before the end only what has a time");
    let mut batch = |due: usize| {
        asked.set(asked.take().into_iter().chain([due]).collect());
        Some(26)
    };
    assert_eq!(boundaries.last(times, &mut batch), Some(26));
    assert_eq!(boundaries.last(times, |_| None), Some(30));
    boundaries.looked_at(DueCut { due: 1, boundary: 30 }, true, None);
    assert_eq!(boundaries.last(times, |_| None), Some(i64::MAX));
    assert_eq!(asked.take(), [2]);
}
