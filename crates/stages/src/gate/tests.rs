//! The gate against its definition: classify events by each source's own records, then sort all by position.

use super::*;
use crate::due::DueCut;
use crate::wiring::Wiring;
use arrow_array::RecordBatch;
use std::collections::BTreeMap;
use tidemill_compile::Code;
use tidemill_histories::Random;
use tidemill_io::BadRecord;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::analyze;
use tidemill_plan::build::{PlanBuilder, SourceBuilder, late, literal};
use typed_index_collections::ti_vec;

/// Splits of sources and their deliveries: the times of their events, in order of arrival.
struct Case {
    /// The source of each split, by split: the first split of each source, then others.
    of: Vec<usize>,
    program: Program,
    schema: Schema,
    lateness: Option<i64>,
    times: Vec<Vec<i64>>,
    /// A flag: whether late events are inputs.
    takes_late: bool,
}

/// (split, ordinal of arrival) of each event.
type Events = Vec<(usize, i64)>;

/// The events that have passed: the punctual ones, and late ones that are inputs; by source, the other late ones, and
/// the bad records by the event that each precedes.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    punctual: Events,
    late: Vec<Events>,
    bad: Vec<Events>,
}

/// The number of events of a split before each of which there is a bad record.
const BAD_EVERY: usize = 5;

/// Splits of one source have one batch: each event says which it is of.
const ORDINALS: i64 = 1 << 20;

impl Case {
    /// `lateness`: none for sources without event time.
    fn new(lateness: Option<i64>, ty: Type, times: Vec<Vec<i64>>) -> Case {
        Case::with_splits(lateness, ty, times.len(), (0..times.len()).collect(), times)
    }

    /// Makes a case of several sources. `of`: by split, its source.
    fn with_splits(lateness: Option<i64>, ty: Type, sources: usize, of: Vec<usize>, times: Vec<Vec<i64>>) -> Case {
        let source = |plan: PlanBuilder, s: usize| {
            plan.source(format!("source{s}"), |source| match lateness {
                Some(lateness) => source.event_time("at", ty).field("n", Type::Int).lateness(lateness),
                None => source.field("at", ty).field("n", Type::Int),
            })
        };
        let plan = (0..sources).fold(PlanBuilder::new("gate"), source).build();
        let program = analyze(&plan).expect("a valid plan");
        let schema = program.streams.raw[0].schema.clone();
        Case { of, program, schema, lateness, times, takes_late: false }
    }

    /// Returns the case with late events as inputs.
    fn taking_late(self) -> Case {
        let time = if self.schema.fields[0].scalar_type().is_some_and(|ty| ty.ty == Type::Time) {
            Type::Time
        } else {
            Type::Int
        };
        let lateness = self.lateness.expect("a case with event time");
        let sources = self.of.iter().max().expect("a source") + 1;
        let source = |plan: PlanBuilder, s: usize| {
            plan.source(format!("source{s}"), |of| of.event_time("at", time).field("n", Type::Int).lateness(lateness))
                .filter(format!("late{s}"), late(format!("source{s}")), literal(true))
        };
        let plan = (0..sources).fold(PlanBuilder::new("gate"), source).build();
        Case { program: analyze(&plan).expect("a valid plan"), takes_late: true, ..self }
    }

    fn batch(&self, source: usize, from: usize, to: usize) -> SourceBatch {
        let is_time = self.schema.fields[0].scalar_type().is_some_and(|ty| ty.ty == Type::Time);
        let at = |at: i64| if is_time { Value::Time(at) } else { Value::Int(at) };
        let record = |n: usize| vec![at(self.times[source][n]), Value::Int(source as i64 * ORDINALS + n as i64)];
        let records: Vec<Vec<Value>> = (from..to).map(record).collect();
        let bad = |n: usize| BadRecord {
            line: Some((source as i64 * ORDINALS + n as i64) as u64),
            after: (n - from) as u64,
            ..BadRecord::default()
        };
        let bad = (from..to).filter(|n| n % BAD_EVERY == 3).map(bad).collect();
        SourceBatch { events: batch_of(&self.schema, &records), bad }
    }

    /// Returns the result by definition: everything in the order of positions.
    fn expected(&self) -> Seen {
        let sources = self.program.sources().count();
        let (mut punctual, mut late, mut bad) = (Vec::new(), vec![Vec::new(); sources], vec![Vec::new(); sources]);
        for (s, times) in self.times.iter().enumerate() {
            let mut greatest: Option<i64> = None;
            for (n, &time) in (0..).zip(times) {
                // The mark is beyond the greatest time where the lateness is below zero.
                let stands = greatest.map_or(i64::MIN, |g| g.max(g.saturating_sub(self.lateness.unwrap_or(0))));
                if n as usize % BAD_EVERY == 3 {
                    bad[self.of[s]].push((stands, s, n));
                }
                match self.lateness {
                    None => punctual.push((n, s, n)),
                    Some(lateness) if greatest.is_some_and(|g| (time as i128) < g as i128 - lateness as i128) => {
                        if self.takes_late {
                            punctual.push((stands, s, n));
                            continue;
                        }
                        late[self.of[s]].push((stands, s, n));
                        continue;
                    }
                    Some(_) => punctual.push((time, s, n)),
                }
                greatest = greatest.max(Some(time));
            }
        }
        // In a source, splits are numbered as they joined.
        let in_order = |mut events: Vec<(i64, usize, i64)>| -> Events {
            events.sort_by_key(|&(time, s, n)| (time, self.of[s], s, n));
            events.into_iter().map(|(_, s, n)| (s, n)).collect()
        };
        Seen {
            punctual: in_order(punctual),
            late: late.into_iter().map(in_order).collect(),
            bad: bad.into_iter().map(in_order).collect(),
        }
    }

    /// Runs the case through a gate, with random sizes of batches and epochs and a random interleaving of the sources.
    fn run(&self, random: &mut Random) -> Seen {
        let code =
            Code::compile(&self.program, &ti_vec![false; self.program.streams.len()]).expect("no code to speak of");
        let wiring = Wiring::of(&self.program, &code);
        let mut gate = Gate::new(&self.program, &wiring.sources);
        for split in wiring.sources.len()..self.of.len() {
            assert_eq!(gate.join(self.of[split], None), split);
            (0..wiring.sources.len()).for_each(|source| gate.order_aside(source));
        }
        let mut epoch = Epoch::new(&self.program, &code, &wiring);
        let mut given = vec![0; self.times.len()];
        let none = || vec![Vec::new(); wiring.sources.len()];
        let mut seen = Seen { punctual: Vec::new(), late: none(), bad: none() };
        let batch_max = [1, 3, 50, 1000][random.below(4)];
        let epoch_max = [1, 2, 7, 100, 10_000][random.below(5)];
        let in_turn = random.below(2) == 0;
        let mut complete = i64::MIN;
        while !gate.ended() {
            let source = if in_turn {
                gate.slowest().expect("one goes on")
            } else {
                let open: Vec<usize> = (0..given.len()).filter(|&s| !gate.has_ended(s)).collect();
                open[random.below(open.len())]
            };
            let from = given[source];
            let to = (from + 1 + random.below(batch_max)).min(self.times[source].len());
            given[source] = to;
            if from == to {
                gate.end(source);
            } else {
                gate.ingest(source, self.batch(source, from, to), from as u64);
            }
            if random.below(3) > 0 {
                self.drain(&mut gate, &mut epoch, 1 + random.below(epoch_max), &mut seen, &mut complete);
            }
        }
        self.drain(&mut gate, &mut epoch, 1 + random.below(epoch_max), &mut seen, &mut complete);
        let positions = gate.positions();
        assert!(positions.iter().all(|p| p.held == 0), "all sources have ended, so nothing is held");
        seen
    }

    /// `complete`: the punctuation of the last epoch.
    fn drain(&self, gate: &mut Gate, epoch: &mut Epoch, most: usize, seen: &mut Seen, complete: &mut i64) {
        while gate.ready(1) > 0 || gate.has_rejects() {
            let ready = gate.ready(most);
            epoch.clear();
            let chosen = gate.choose(most);
            // As a log has it: the order follows from the counts.
            let logged = Passed::new(chosen.counts.clone(), chosen.sent.clone(), chosen.due, chosen.due_through);
            assert!(gate.apply(if most.is_multiple_of(3) { &logged } else { &chosen }, epoch));
            assert!(epoch.input.events <= most, "no more than asked for");
            assert!(ready == 0 || epoch.input.events > 0, "what is ready passes");
            assert_eq!(epoch.input.arrivals.iter().map(|&(_, count)| count).sum::<u64>(), epoch.input.events as u64);
            let column = |batch: &RecordBatch| rows(batch, &self.schema).iter().filter_map(|r| r[1].word()).collect();
            let taken: Vec<Vec<i64>> =
                epoch.input.sources.iter().map(|s| s.events.as_ref().map_or_else(Vec::new, &column)).collect();
            let mut next = vec![0; taken.len()];
            let sources = self.program.sources().count();
            assert_eq!(
                epoch.input.passed,
                seen.punctual.len() as u64,
                "all that passed before counts, late inputs too"
            );
            for &(source, count) in &epoch.input.merge {
                for _ in 0..count {
                    let event = taken[source as usize][next[source as usize]];
                    let (split, event) = ((event / ORDINALS) as usize, event % ORDINALS);
                    let is_late = source as usize >= sources;
                    assert!(is_late || self.of[split] == source as usize, "an event is of its source");
                    let is_below = !is_late && self.times[split][event as usize] < *complete;
                    assert!(self.lateness.is_none() || !is_below, "nothing below a punctuation comes after it");
                    seen.punctual.push((split, event));
                    next[source as usize] += 1;
                }
            }
            assert!(next.iter().zip(&taken).all(|(n, t)| *n == t.len()), "the merge covers what was taken");
            assert!(epoch.input.complete.is_none_or(|next| next >= *complete), "punctuations do not fall");
            *complete = (*complete).max(epoch.input.complete.unwrap_or(i64::MIN));
            let of_event = |event: i64| ((event / ORDINALS) as usize, event % ORDINALS);
            for (source, slice) in epoch.input.sources.iter().enumerate().take(seen.late.len()) {
                let late: Vec<i64> = slice.late.iter().flat_map(&column).collect();
                seen.late[source].extend(late.into_iter().map(of_event));
                let bad = slice.bad.iter().filter_map(|bad| Some(bad.line? as i64));
                seen.bad[source].extend(bad.map(of_event));
            }
        }
    }
}

fn check(case: &Case, random: &mut Random, runs: usize) {
    let expected = case.expected();
    for run in 0..runs {
        let seen = case.run(random);
        let what = format!("lateness {:?}, run {run}, {:?}", case.lateness, case.times);
        assert_eq!(seen.late, expected.late, "late events, {what}");
        assert_eq!(seen.bad, expected.bad, "bad records, {what}");
        assert_eq!(seen.punctual, expected.punctual, "order, {what}");
    }
}

#[test]
fn random_sources_are_merged_in_position_order() {
    let mut random = Random::new(1);
    for round in 0..150 {
        let sources = 1 + random.below(3);
        let lateness = [None, Some(0), Some(1), Some(5), Some(1_000_000), Some(-3)][random.below(6)];
        let step = [1, 2, 10][random.below(3)];
        let back = [0, 1, 4, 30][random.below(4)];
        let mut time = 0;
        let mut at = |random: &mut Random| {
            time += random.below(step) as i64;
            time - random.below(back + 1) as i64
        };
        let times = (0..sources).map(|_| (0..random.below(120)).map(|_| at(&mut random)).collect()).collect();
        let ty = if round % 2 == 0 { Type::Int } else { Type::Time };
        check(&Case::new(lateness, ty, times), &mut random, 6);
    }
}

#[test]
fn random_splits_are_merged_in_position_order() {
    let mut random = Random::new(11);
    for round in 0..150 {
        let (sources, more) = (1 + random.below(3), random.below(9));
        let of = (0..sources).chain((0..more).map(|_| random.below(sources)).collect::<Vec<_>>()).collect::<Vec<_>>();
        let lateness = Some([0, 1, 5, 1_000_000][random.below(4)]);
        let step = [1, 2, 10][random.below(3)];
        let times = of.iter().map(|_| random_times(&mut random, step, 4)).collect();
        let ty = if round % 2 == 0 { Type::Int } else { Type::Time };
        check(&Case::with_splits(lateness, ty, sources, of, times), &mut random, 6);
    }
}

/// Times of a split that go on by less than `step`, each up to `back` before.
fn random_times(random: &mut Random, step: usize, back: usize) -> Vec<i64> {
    let (mut time, count) = (random.below(20) as i64, random.below(60));
    let at = |_| {
        time += random.below(step) as i64;
        time - random.below(back + 1) as i64
    };
    (0..count).map(at).collect()
}

/// Late events that are inputs pass between the others, where they stand.
#[test]
fn late_events_that_are_inputs_pass_in_position_order() {
    let mut random = Random::new(21);
    for round in 0..200 {
        let (sources, more) = (1 + random.below(3), random.below(4) * (round % 2));
        let of = (0..sources).chain((0..more).map(|_| random.below(sources)).collect::<Vec<_>>()).collect::<Vec<_>>();
        let lateness = Some([0, 1, 5, -2][random.below(4)]);
        let (step, back) = ([1, 2, 10][random.below(3)], [1, 4, 30][random.below(3)]);
        let times = of.iter().map(|_| random_times(&mut random, step, back)).collect();
        let ty = if round % 3 == 0 { Type::Time } else { Type::Int };
        check(&Case::with_splits(lateness, ty, sources, of, times).taking_late(), &mut random, 6);
    }
}

/// A checkpoint has late events that wait, with their places among the others.
#[test]
fn late_events_that_wait_stand_where_they_stood() {
    let case = Case::new(Some(0), Type::Int, vec![vec![5, 3, 5, 9, 4, 9], vec![0]]).taking_late();
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    gate.ingest(0, case.batch(0, 0, 6), 0);
    gate.ingest(1, case.batch(1, 0, 1), 0);
    let mut epoch = Epoch::new(&case.program, &code, &wiring);
    assert!(gate.apply(&gate.choose(1), &mut epoch), "that of the other source");
    let standings = gate.standings();
    assert_eq!((&standings[0].aside.after[..], standings[0].held.len()), (&[1, 3][..], 1));
    let mut again = Gate::new(&case.program, &wiring.sources);
    for (source, standing) in standings.into_iter().enumerate() {
        again.stand(source, standing, 0);
    }
    for mut gate in [gate, again] {
        epoch.clear();
        (0..2).for_each(|source| gate.end(source));
        assert!(gate.apply(&gate.choose(10), &mut epoch));
        assert_eq!(epoch.input.merge, [(0, 1), (2, 1), (0, 2), (2, 1), (0, 1)]);
    }
}

/// A split that joins begins after all that has passed, and the punctuation does not fall.
#[test]
fn a_split_joins_after_what_has_passed() {
    let case = Case::with_splits(Some(0), Type::Int, 2, vec![0, 1, 0], vec![vec![5, 9], vec![5, 9], vec![4, 5, 6]]);
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    let mut epoch = Epoch::new(&case.program, &code, &wiring);
    assert_eq!(gate.mark_to_join(0), None);
    gate.ingest(0, case.batch(0, 0, 1), 0);
    gate.ingest(1, case.batch(1, 0, 1), 0);
    assert_eq!(gate.mark_to_join(0), Some(5), "nothing has passed");
    assert!(gate.apply(&gate.choose(10), &mut epoch));
    assert_eq!((epoch.input.events, gate.mark_to_join(0)), (1, Some(5)), "of source 0, its first split");
    gate.ingest(0, case.batch(0, 1, 2), 0);
    epoch.clear();
    assert!(gate.apply(&gate.choose(10), &mut epoch));
    assert_eq!((epoch.input.events, epoch.input.complete), (1, Some(5)), "of source 1");
    assert_eq!((gate.mark_to_join(0), gate.mark_to_join(1)), (Some(6), Some(5)));
    let split = gate.join(0, gate.mark_to_join(0));
    gate.ingest(split, case.batch(2, 0, 3), 0);
    gate.end(1);
    epoch.clear();
    assert!(gate.apply(&gate.choose(10), &mut epoch));
    let late: usize = epoch.input.sources[0].late.iter().map(RecordBatch::num_rows).sum();
    assert_eq!((late, epoch.input.events), (2, 1), "6 passes, and 9 waits for the new split");
}

/// An epoch of what is due keeps its events where a source has several splits.
#[test]
fn what_is_due_passes_beside_splits() {
    let case = Case::with_splits(Some(0), Type::Int, 1, vec![0, 0], vec![vec![5], vec![7]]);
    let source = |source: SourceBuilder| source.event_time("at", Type::Int).field("n", Type::Int);
    let plan = PlanBuilder::new("gate").source("source0", source).every("ticks", Value::Int(2), 0).build();
    let case = Case { program: analyze(&plan).expect("a valid plan"), ..case };
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    let split = gate.join(0, None);
    let mut epoch = Epoch::new(&case.program, &code, &wiring);
    gate.ingest(0, case.batch(0, 0, 1), 0);
    gate.ingest(split, case.batch(1, 0, 1), 0);
    let ticks = Schema::scalars([("at", Type::Int.into())]);
    epoch.input.given_due(1, Some(batch_of(&ticks, &[vec![Value::Int(4)]])));
    assert!(gate.apply(&gate.choose_due(DueCut { due: 0, boundary: 4 }), &mut epoch));
    let given = epoch.input.sources[1].events.as_ref().map(|events| rows(events, &ticks));
    assert_eq!(given, Some(vec![vec![Value::Int(4)]]));
    assert_eq!(epoch.input.merge, [(1, 1)]);
}

/// An event exactly at the bound is punctual, and one below it is late; a late event does not move the low mark.
#[test]
fn lateness_is_exact_at_its_bound() {
    let mut random = Random::new(2);
    let case = Case::new(Some(10), Type::Int, vec![vec![100, 90, 89, 110, 100, 99, 90, 100, 101]]);
    assert_eq!(case.expected().late, [[(0, 2), (0, 5), (0, 6)]]);
    check(&case, &mut random, 40);
}

#[test]
fn times_at_the_ends_of_their_range_do_not_overflow() {
    let mut random = Random::new(3);
    for lateness in [0, 1, i64::MAX] {
        let left = vec![i64::MIN, i64::MIN + 1, i64::MIN, 0, -1, i64::MAX, i64::MAX - 1, i64::MIN];
        let right = vec![i64::MAX, i64::MAX, i64::MIN, 5];
        check(&Case::new(Some(lateness), Type::Int, vec![left, right]), &mut random, 40);
    }
}

/// At equal times the source decides, then the offset.
#[test]
fn ties_go_by_source_and_offset() {
    let mut random = Random::new(4);
    let case = Case::new(Some(0), Type::Time, vec![vec![1, 1, 2, 2], vec![1, 1, 1, 2], vec![0, 1, 2, 2]]);
    check(&case, &mut random, 100);
}

#[test]
fn without_event_time_sources_take_turns() {
    let mut random = Random::new(5);
    let times = vec![vec![9; 5], vec![3; 2], vec![7; 9]];
    let case = Case::new(None, Type::Int, times);
    let events = case.expected().punctual;
    assert_eq!(events[..4], [(0, 0), (1, 0), (2, 0), (0, 1)]);
    check(&case, &mut random, 60);
}

/// A source that has delivered nothing could still deliver any time.
#[test]
fn a_silent_source_holds_the_others_back_until_it_ends() {
    let case = Case::new(Some(0), Type::Int, vec![vec![1, 2, 3], vec![]]);
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    gate.ingest(0, case.batch(0, 0, 3), 0);
    assert_eq!(gate.ready(10), 0);
    assert_eq!(gate.slowest(), Some(1));
    gate.end(1);
    // The first source could still deliver more events of time 3, but only after these.
    assert_eq!(gate.ready(10), 3);
}

/// Sent events get the time of the last event that passed, so they wait for the first event, also when all sources have
/// ended and that event is still held.
#[test]
fn what_is_sent_waits_for_the_first_time() {
    let mut case = Case::new(Some(0), Type::Int, vec![vec![7, 8], vec![0, 0]]);
    let anchored = case.program.streams.iter_mut().filter_map(|stream| match &mut stream.origin {
        Origin::Source { anchored, .. } => Some(anchored),
        _ => None,
    });
    *anchored.last().expect("there are two sources") = true;
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    gate.send(1, true);
    gate.ingest(1, case.batch(1, 0, 2), 0);
    gate.ingest(0, case.batch(0, 0, 2), 0);
    assert_eq!(gate.sent_ready(), 0, "no time has passed");
    gate.end(0);
    assert_eq!(gate.sent_ready(), 0, "times are held");
    let mut epoch = Epoch::new(&case.program, &code, &wiring);
    assert!(gate.apply(&gate.choose(1), &mut epoch));
    assert_eq!((gate.held_of(0), gate.sent_ready()), (1, 2));
}

/// A source's own low mark lets its own events of that time pass, because offsets only grow; events of a later source
/// must wait.
#[test]
fn equal_times_wait_for_the_sources_before() {
    let case = Case::new(Some(0), Type::Int, vec![vec![5], vec![5]]);
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    gate.ingest(0, case.batch(0, 0, 1), 0);
    gate.ingest(1, case.batch(1, 0, 1), 0);
    assert_eq!(gate.ready(10), 1, "source 0 may go on at time 5, and would come first");
    let waiting: BTreeMap<usize, u64> = gate.positions().iter().map(|p| p.held).enumerate().collect();
    assert_eq!(waiting, BTreeMap::from([(0, 1), (1, 1)]));
    gate.end(0);
    assert_eq!(gate.ready(10), 2);
}

/// A pause lets nothing pass, and what is held is said with what holds it.
#[test]
fn a_paused_source_holds_the_others_back() {
    let case = Case::new(Some(2), Type::Int, vec![vec![9], vec![3, 7, 8]]);
    let code = Code::compile(&case.program, &ti_vec![false; case.program.streams.len()]).expect("no code to speak of");
    let wiring = Wiring::of(&case.program, &code);
    let mut gate = Gate::new(&case.program, &wiring.sources);
    gate.ingest(0, case.batch(0, 0, 1), 0);
    gate.ingest(1, case.batch(1, 0, 3), 0);
    gate.pause(1);
    assert_eq!(
        (gate.ready(10), gate.slowest(), gate.slowest_of(|_| true)),
        (1, Some(0), Some(1)),
        "3 passes, 7 may have one before it"
    );
    let positions = gate.positions();
    assert_eq!(
        positions.iter().map(|at| (at.held, at.held_until, at.paused)).collect::<Vec<_>>(),
        [(1, Some(9), false), (3, Some(8), true)]
    );
    assert_eq!(positions[0].held_by, Some((1, Some(6))), "the greatest time of source 1, less its lateness");
    gate.pause(0);
    assert_eq!((gate.ready(10), gate.slowest(), gate.ended()), (1, None, false));
}
