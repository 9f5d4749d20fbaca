//! Following across crashes: a reader that goes on from its last place gets each event that is released once, in order.

use crate::session::{Times, plan, send, start};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;
use tidemill_histories::Random;
use tidemill_model::arrow::rows;
use tidemill_plan::{Program, StreamId, analyze};
use tidemill_runtime::{Followed, Following, Place, Session, SessionError, Slow};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 40;
/// Sessions of a trial; all but the last may end at any call of the storage.
const LIVES: usize = 4;

/// A reader: the values that it got, and its place after them.
struct Reader {
    values: Vec<i64>,
    place: Option<Place>,
    /// Whether it was told that events are not kept any more.
    told: bool,
    /// Whether the session was over when it came to go on.
    late: bool,
}

impl Reader {
    fn follow(&mut self, session: &Session, stream: StreamId) -> Option<Following> {
        // Before the first epoch of all: everything.
        let after = self.place.unwrap_or(Place::after(0));
        match session.follow_after(stream, Some(after), Slow::Misses, 1_000_000) {
            Ok(following) => Some(following),
            Err(SessionError::Gone { after: asked, kept, .. }) => {
                assert!(asked == after && kept > after, "{asked}, {kept}");
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

    /// Reads to the end, or, now and then, stops before it and goes on from there.
    fn read(&mut self, session: &Session, program: &Program, stream: StreamId, random: &mut Random) {
        while let Some(following) = self.follow(session, stream) {
            loop {
                match following.next(None) {
                    Followed::Events(released) => {
                        let rows = rows(&released.batch, &program.streams[stream].schema);
                        self.values.extend(rows.iter().map(|row| row[0].word().expect("an int")));
                        assert_eq!(released.first + rows.len() as u64, released.place().events);
                        self.place = Some(released.place());
                    }
                    Followed::Over => {
                        self.place = following.place().max(self.place);
                        return;
                    }
                    other => panic!("{other:?}"),
                }
                if random.chance(10) {
                    self.place = following.place();
                    break;
                }
            }
        }
    }
}

/// The values that the sink's file holds.
fn written(machine: &SimStorage) -> Vec<i64> {
    let files = machine.files();
    let text = String::from_utf8(files[Path::new("out/added")].clone()).expect("a text");
    let value = |line: &str| {
        let number = line.trim_start_matches("{\"value\":").trim_end_matches('}');
        number.parse().expect("a number")
    };
    text.lines().map(value).collect()
}

#[test]
fn a_reader_goes_on_from_its_place_across_crashes() {
    let plan = plan([Times::Own, Times::None]);
    let program = analyze(&plan).expect("a right plan");
    let stream = program.sinks.iter().find(|sink| sink.name == "added").expect("a sink").stream;
    let (mut crashes, mut whole, mut resumed) = (0, 0, 0);
    for seed in 0..TRIALS {
        let machine = SimStorage::new(seed);
        tidemill_durability::Storage::create_directory(&machine, Path::new("out")).expect("no fault");
        let mut random = Random::new(seed);
        let (counts, clock): ([[AtomicU64; 2]; 2], _) = (Default::default(), AtomicU64::new(10));
        let mut reader = Reader { values: Vec::new(), place: None, told: false, late: false };
        for life in 0..LIVES {
            reader.late = false;
            if life + 1 < LIVES && random.chance(75) {
                let fault = [Fault::CutBefore, Fault::CutAfter][random.below(2)];
                machine.fail(machine.call_count() + random.below(120), fault);
            }
            let ended = start(&machine, &plan, &program, seed).and_then(|session| {
                thread::scope(|scope| {
                    let mut random = Random::new(seed * 100 + life as u64);
                    let (session, program, clock, counts) = (&session, &program, &clock, &counts);
                    let mut read = Random::new(seed);
                    let reader = &mut reader;
                    scope.spawn(move || reader.read(session, program, stream, &mut read));
                    send(session, program, &mut random, clock, counts);
                    session.stop_sending();
                    session.close(&mut || {}).expect("it is closed once")
                })
            });
            machine.heal();
            resumed += usize::from(life > 0 && reader.place.is_some_and(|place| place.epoch > 0));
            match ended {
                Err(_) if machine.is_off() => {
                    crashes += 1;
                    machine.cut_power();
                }
                Err(error) => panic!("seed {seed}: {error}"),
                Ok(_) => {}
            }
        }
        let written = written(&machine);
        if !reader.told && reader.late {
            assert!(written.starts_with(&reader.values), "seed {seed}: {:?} of {written:?}", reader.values);
        } else if !reader.told {
            assert_eq!(reader.values, written, "seed {seed}");
            whole += 1;
        }
    }
    assert!(crashes > TRIALS / 2 && resumed > 0, "{crashes} crashes, {resumed} lives that went on");
    assert!(whole > TRIALS / 2, "{whole} readers got everything");
}
