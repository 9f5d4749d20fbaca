//! Following across crashes and ends: a reader that goes on from its last place gets each event that is released once, in
//! order, as long as its place is kept.

use crate::bank::open;
use crate::search::Search;
use crate::session::{Times, kept_events, plan, send, start_planted};
use crate::trials;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidemill_durability::{Bug, Planted};
use tidemill_histories::Random;
use tidemill_model::arrow::rows;
use tidemill_plan::{Plan, Program, StreamId, analyze};
use tidemill_runtime::{Followed, Following, Place, Released, RunError, Session, SessionError, Slow};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 40;
/// Trials in which a planted bug must show.
const TRIALS_FOR_A_BUG: u64 = 200;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 4;

/// A reader: the values that it got, and its place after them.
struct Reader {
    values: Vec<i64>,
    place: Option<Place>,
    /// A flag: whether it was told that events are not kept any more.
    told: bool,
    /// A flag: whether it did not come before the session was over.
    late: bool,
}

impl Reader {
    fn follow(&mut self, session: &Session, stream: StreamId) -> Option<Following> {
        // Before the first epoch of all: everything.
        let after = self.place.unwrap_or(Place::after(0));
        match session.follow_after(stream, Some(session.position(after)), Slow::Misses, 1_000_000) {
            Ok(following) => Some(following),
            Err(SessionError::Gone { after: asked, kept, .. }) => {
                assert!(asked.place == after && kept.place > after, "{asked}, {kept}");
                self.told = true;
                None
            }
            Err(SessionError::Over) => {
                self.late = true;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn take(&mut self, released: &Released, program: &Program, stream: StreamId) {
        let rows = rows(&released.batch, &program.streams[stream].schema);
        self.values.extend(rows.iter().map(|row| row[0].word().expect("an int")));
        assert_eq!(released.first + rows.len() as u64, released.place().events);
    }

    /// Reads to the end, or, now and then, stops before it and goes on from there.
    fn read(&mut self, session: &Session, program: &Program, stream: StreamId, random: &mut Random) {
        while let Some(following) = self.follow(session, stream) {
            loop {
                match following.next(None) {
                    Followed::Events(released) => {
                        self.take(&released, program, stream);
                        self.place = Some(released.place());
                    }
                    Followed::Over => {
                        self.place = following.place().max(self.place);
                        return;
                    }
                    other => panic!("{other:?}"),
                }
                if random.chance(10) {
                    // Or it goes on after the last event that it got.
                    if random.chance(50) {
                        self.place = following.place();
                    }
                    break;
                }
            }
        }
    }
}

/// Returns the values that the sink's file holds.
fn written(machine: &SimStorage) -> Vec<i64> {
    let files = machine.files();
    let text = String::from_utf8(files[Path::new("out/added")].clone()).expect("a text");
    let value = |line: &str| {
        let number = line.trim_start_matches("{\"value\":").trim_end_matches('}');
        number.parse().expect("a number")
    };
    text.lines().map(value).collect()
}

/// Counts of what happened in trials.
#[derive(Default)]
struct Counts {
    crashes: u64,
    /// Readers that got everything.
    whole: u64,
    /// Lives that a reader went on in.
    resumed: u64,
    /// Readers whose place was not kept any more.
    told: u64,
}

/// Runs one trial. Returns what was wrong with it.
fn trial(plan: &Plan, program: &Program, seed: u64, planted: Planted, counts: &mut Counts) -> Result<(), String> {
    let stream = program.sinks.iter().find(|sink| sink.name == "added").expect("a sink").stream;
    let machine = SimStorage::new(seed);
    tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
    let mut random = Random::new(seed);
    let (sent, clock): ([[AtomicU64; 2]; 2], _) = (Default::default(), AtomicU64::new(10));
    let mut reader = Reader { values: Vec::new(), place: None, told: false, late: false };
    for life in 0..LIVES {
        // It misses some lives before the last; if few events are kept, all but the first.
        let misses = if kept_events(seed) > 1 { random.chance(20) } else { life > 0 };
        reader.late = misses && life + 1 < LIVES;
        if life + 1 < LIVES && random.chance(75) {
            let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
            machine.fail(machine.call_count() + random.below(120), fault);
        }
        let ended = start_planted(&machine, plan, program, seed, planted).and_then(|session| {
            thread::scope(|scope| {
                let mut random = Random::new(seed * 100 + life as u64);
                let (session, clock, sent) = (&session, &clock, &sent);
                let mut read = Random::new(seed);
                let reader = &mut reader;
                if !reader.late {
                    scope.spawn(move || reader.read(session, program, stream, &mut read));
                }
                send(session, program, &mut random, clock, sent);
                session.stop_sending();
                session.close(&mut || {}).expect("it is closed once")
            })
        });
        machine.heal();
        counts.resumed += u64::from(life > 0 && reader.place.is_some_and(|place| place.epoch > 0));
        match ended {
            Err(_) if machine.is_off() => {
                counts.crashes += 1;
                machine.cut_power();
            }
            Err(error) => return Err(error.to_string()),
            Ok(_) => {}
        }
    }
    let written = written(&machine);
    let is_right = if reader.late { written.starts_with(&reader.values) } else { reader.values == written };
    if !reader.told && !is_right {
        return Err(format!("a reader got {:?} of {written:?}", reader.values));
    }
    counts.whole += u64::from(!reader.told && !reader.late);
    counts.told += u64::from(reader.told);
    if kept_events(seed) < written.len() {
        return Ok(());
    }
    let all = from_the_first(&machine, plan, program, seed, planted).map_err(|error| error.to_string())?;
    match all {
        _ if reader.told => Err("a reader was told that events are not kept, and all are".into()),
        None => Err("the first event is not kept, and all are".into()),
        Some(all) if all != written => Err(format!("from the first event on there are {all:?} of {written:?}")),
        Some(_) => Ok(()),
    }
}

/// Returns the events that a session that is sent nothing gives to a follower of a stream from its first event; none if
/// that event is not kept.
fn from_the_first(
    machine: &SimStorage,
    plan: &Plan,
    program: &Program,
    seed: u64,
    planted: Planted,
) -> Result<Option<Vec<i64>>, RunError> {
    let session = start_planted(machine, plan, program, seed, planted)?;
    let stream = program.sinks.iter().find(|sink| sink.name == "added").expect("a sink").stream;
    let mut reader = Reader { values: Vec::new(), place: None, told: false, late: false };
    let following = reader.follow(&session, stream);
    session.stop_sending();
    session.close(&mut || {}).expect("it is closed once")?;
    let Some(following) = following else { return Ok(None) };
    while let Followed::Events(released) = following.next(None) {
        reader.take(&released, program, stream);
    }
    Ok(Some(reader.values))
}

#[test]
fn a_reader_goes_on_from_its_place_across_crashes() {
    let plan = plan([Times::Own, Times::None]);
    let program = analyze(&plan).expect("a right plan");
    let mut counts = Counts::default();
    trials(TRIALS, |seed| {
        let ended = trial(&plan, &program, seed, Planted::default(), &mut counts);
        ended.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let is_half = |count: u64| count > TRIALS / 2;
        is_half(counts.crashes) && is_half(counts.whole) && counts.resumed > 0 && counts.told > 0
    });
}

/// Returns whether a state that was put back to a savepoint refuses a position of before, and takes one of its own.
fn is_refused(planted: Planted) -> bool {
    let plan = plan([Times::Own, Times::None]);
    let program = analyze(&plan).expect("a right plan");
    let machine = SimStorage::new(1);
    tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
    let (mut random, clock, sent) = (Random::new(1), AtomicU64::new(10), Default::default());
    let mut live = |session: &Session| {
        send(session, &program, &mut random, &clock, &sent);
        session.flush(None).expect("it goes on");
        session.position(Place::after(session.control().epochs.load(Ordering::Acquire)))
    };
    let close = |session: Session| session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    let session = start_planted(&machine, &plan, &program, 0, planted).expect("it starts");
    let before = live(&session);
    close(session);
    let mut directory = open(&machine);
    directory.restore_savepoint("start").expect("it is there");
    drop(directory);
    let session = start_planted(&machine, &plan, &program, 0, planted).expect("it starts again");
    let stream = program.sinks.iter().find(|sink| sink.name == "added").expect("a sink").stream;
    let own = live(&session);
    assert_ne!(before.course, own.course);
    session.follow_after(stream, Some(own), Slow::Misses, 1_000).map(drop).expect("a position of its own");
    let refused = match session.follow_after(stream, Some(before), Slow::Misses, 1_000) {
        Ok(_) => false,
        Err(SessionError::OtherCourse { after, kept, .. }) => after == before && kept.course == own.course,
        Err(error) => panic!("{error}"),
    };
    close(session);
    refused
}

#[test]
fn a_position_of_another_course_is_refused() {
    assert!(is_refused(Planted::default()));
    assert!(!is_refused(Planted::new(Bug::FollowerIgnoresCourse)), "the bug shows");
}

/// A planted bug is found by its symptom, and the same trial passes without it.
fn is_found(bug: Bug, symptom: &str) {
    let plan = plan([Times::Own, Times::None]);
    let program = analyze(&plan).expect("a right plan");
    let run = |seed, planted| trial(&plan, &program, seed, planted, &mut Counts::default());
    let shows = [symptom];
    let mut search = Search::new(bug, &shows);
    let finds = |seed| search.finds(seed, run(seed, Planted::new(bug)), || run(seed, Planted::default()));
    assert!((0..TRIALS_FOR_A_BUG).any(finds), "{}", search.missed());
}

#[test]
fn a_reader_that_gets_events_again_is_found() {
    is_found(Bug::FollowerRepeats, "a reader got");
}

#[test]
fn a_checkpoint_that_forgets_kept_events_is_found() {
    is_found(Bug::CheckpointForgetsKept, "and all are");
}
