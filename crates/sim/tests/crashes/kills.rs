//! A real process on real files that ends at its k-th call that writes, for each k, or is killed at random
//! moments.
//!
//! The process is this test binary again, asked for [`child`]. Its storage is the operating system's
//! behind a counter; at the k-th call that writes, the process aborts instead of making it. All that a
//! durable run writes, it writes through its storage, and all but one of those calls are one system call
//! that writes (making a directory is two, a directory and its sync; a lock's text is two more). So this
//! is an end before each system call that writes, but for those three places. What a process has written
//! outlives it: what is lost with the power is tried on simulated storage.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, process};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_connect::Disk;
use tidemill_durability::{Entry, File, Locked, Open, Planted, Storage};
use tidemill_histories::{DataShape, History, PlanSize, Random, random_data, random_plan};
use tidemill_plan::{Program, analyze};
use tidemill_runtime::{Engine, EpochSize};

/// Calls of the script at which it is ended.
const KILLS: u64 = 200;
/// Events that make for many more calls than that, however the epochs meet in the log.
const EVENTS_MIN: usize = 100;
const SIGKILL: i32 = 9;
const KILL_AT: &str = "TIDEMILL_TEST_KILL_AT";

fn script() -> (Program, History, Setting) {
    for seed in 1.. {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        if sources.iter().map(Vec::len).sum::<usize>() < EVENTS_MIN {
            continue;
        }
        let (epoch, commit_age_max) = (EpochSize::Events(1), Duration::ZERO);
        let random = Setting::random(seed, Planted::default());
        let setting = Setting { epoch, commit_age_max, workers: 1, batch: 1, ..random };
        return (program, History { plan, preload, sources }, setting);
    }
    unreachable!("some seed has so many events")
}

/// Counts the calls that write, and ends the process at one.
struct Ending {
    calls: Arc<AtomicU64>,
    at: u64,
}

impl Ending {
    fn write(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            std::process::abort();
        }
    }
}

impl Storage for Ending {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        if matches!(how, Open::AppendOrCreate | Open::CreateNew) {
            self.write();
        }
        let ending = Ending { calls: self.calls.clone(), at: self.at };
        Ok(Box::new(EndingFile { file: Disk.open(path, how)?, ending }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write();
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.write();
        Disk.remove(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Disk.resolve(path)
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        Disk.look(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        Disk.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.write();
        Disk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.write();
        Disk.sync_directory(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        self.write();
        Disk.lock(path, holder)
    }
}

struct EndingFile {
    file: Box<dyn File>,
    ending: Ending,
}

impl File for EndingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.ending.write();
        self.file.append(bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.ending.write();
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.ending.write();
        self.file.sync()
    }
}

/// Not a test of its own: what the processes of [`a_kill_at_each_call`] do, in their current directory.
#[test]
#[ignore = "is run by another test"]
fn child() {
    let Ok(at) = std::env::var(KILL_AT) else { return };
    let (program, history, setting) = script();
    let calls = Arc::new(AtomicU64::new(0));
    let storage: Arc<dyn Storage> = Arc::new(Ending { calls: calls.clone(), at: at.parse().expect("a number") });
    let engine = Engine::new(program).expect("random plans compile");
    if let Err(error) = process(&history, &engine, &storage, &setting) {
        panic!("{error}");
    }
    println!("calls {}", calls.load(Ordering::Relaxed));
}

/// A directory in memory where there is one: a process that ends loses nothing, synced or not.
fn quick_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn command(directory: &Path, at: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "kills::child", "--ignored", "--nocapture"]);
    command.current_dir(directory).env(KILL_AT, at.to_string());
    command
}

fn run_child(directory: &Path, at: u64) -> (ExitStatus, String) {
    let output = command(directory, at).output().expect("it runs");
    (output.status, String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_kill_at_each_call() {
    use std::os::unix::process::ExitStatusExt;
    let (_, history, _) = script();
    let expected = Expected::new(Subject::new(history));
    let (mut kills, mut again) = (0, 0);
    for at in 0..KILLS {
        let directory = quick_directory();
        std::fs::create_dir(directory.path().join("out")).expect("a directory");
        // One in two is ended again, while it recovers.
        let ends: Vec<u64> = if at % 2 == 1 { vec![at, at * 7 % 40, u64::MAX] } else { vec![at, u64::MAX] };
        for (life, &end) in ends.iter().enumerate() {
            let (status, text) = run_child(directory.path(), end);
            match (status.success(), status.signal()) {
                (false, Some(_)) if end < u64::MAX => {
                    kills += u64::from(life == 0);
                    again += u64::from(life > 0);
                }
                (true, _) if end == u64::MAX || life > 0 => {}
                _ => panic!("call {at}, life {life}: {status}\n{text}"),
            }
        }
        let wrong = expected.wrong_outputs(|path| std::fs::read(directory.path().join(path)), Whole::There);
        assert_eq!(wrong, None, "call {at}");
    }
    println!("{kills} processes ended at their first {KILLS} calls that write, {again} again while recovering");
}

/// The time that a whole run takes is where the kills fall, so that they come at any stage of it: while
/// it opens and recovers, while it runs, and while it finishes.
#[test]
fn kills_at_random_moments() {
    use std::os::unix::process::ExitStatusExt;
    let (_, history, _) = script();
    let expected = Expected::new(Subject::new(history));
    let mut random = Random::new(super::number("TIDEMILL_SEED", 1));
    let wanted = super::number("TIDEMILL_KILLS", 50);
    let (mut kills, mut in_recovery, mut whole) = (0, 0, 0);
    let mut span = Duration::from_millis(500);
    while kills < wanted {
        let directory = quick_directory();
        std::fs::create_dir(directory.path().join("out")).expect("a directory");
        for life in 0.. {
            let begin = Instant::now();
            let mut child = command(directory.path(), u64::MAX)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it runs");
            std::thread::sleep(span.mul_f64(random.below(1000) as f64 / 1000.0));
            let _ = child.kill();
            let status = child.wait().expect("it ends");
            if status.success() {
                span = begin.elapsed().max(Duration::from_millis(20));
                whole += 1;
                break;
            }
            assert_eq!(status.signal(), Some(SIGKILL), "life {life}: {status}");
            kills += 1;
            in_recovery += u64::from(life > 0);
        }
        let wrong = expected.wrong_outputs(|path| std::fs::read(directory.path().join(path)), Whole::There);
        assert_eq!(wrong, None, "after {kills} kills");
    }
    println!("{kills} kills at random moments, {in_recovery} of a process that had to recover, {whole} whole runs");
}
