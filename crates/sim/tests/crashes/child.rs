//! A real process on real files, for the tests that end one.
//!
//! The process is this test binary, run again for the test [`child`]. Its storage counts the calls that write and passes
//! them to the operating system; at the k-th, the process ends instead of making it, or cuts the power of its file
//! system. A durable run writes only through its storage, and each of those calls is one system call that writes, with
//! two exceptions (making a directory is two, since its parent is synced; writing a lock's text is two more). So the
//! process ends before each system call that writes, but for those three.

use crate::power::cut;
use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, checkpoint_events, process};
use std::env::var;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_connect::Disk;
use tidemill_durability::{Entry, File, Locked, Open, Planted, Storage};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::{Program, analyze};
use tidemill_runtime::{Engine, EpochSize};

/// Fewer events than this have an epoch each.
const AN_EPOCH_EACH: usize = 1_000;
const EVENTS_MIN: &str = "TIDEMILL_TEST_EVENTS_MIN";
const END_AT: &str = "TIDEMILL_TEST_END_AT";
const CUTS_POWER: &str = "TIDEMILL_TEST_CUTS_POWER";
const LIES: &str = "TIDEMILL_TEST_LIES";
const WORKERS: &str = "TIDEMILL_TEST_WORKERS";

/// The work of a process: a random history.
pub struct Script {
    events_min: usize,
    expected: Expected,
    /// The number of workers of its processes.
    pub workers: usize,
}

/// The way in which a process ends early.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// It runs to its end.
    Never,
    /// Instead of its n-th call that writes.
    At(u64),
    /// It goes on, after the power of its file system was cut before its n-th call that writes.
    PowerAt(u64),
}

/// Returns the first random history with at least `events_min` events and with rows, whose run takes checkpoints.
pub fn history(events_min: usize) -> (Program, History, Setting) {
    for seed in (1..).filter(|&seed| checkpoint_events(seed).is_some()) {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let shape = DataShape::random(seed);
        let (preload, sources) =
            random_data(&program, seed, DataShape { events_max: shape.events_max.max(2 * events_min), ..shape });
        let has_rows = preload.iter().any(|(_, rows)| !rows.is_empty());
        if !has_rows || sources.iter().map(Vec::len).sum::<usize>() < events_min {
            continue;
        }
        let epoch = if events_min < AN_EPOCH_EACH { EpochSize::Events(1) } else { EpochSize::Auto };
        let commit_age_max = Duration::ZERO;
        let random = Setting::random(seed, Planted::default());
        let setting = Setting { epoch, commit_age_max, workers: 1, batch: 1, memory: None, ..random };
        return (program, History { plan, preload, sources }, setting);
    }
    unreachable!("some seed has that many events")
}

impl Script {
    pub fn new(events_min: usize) -> Script {
        Script { events_min, expected: Expected::new(Subject::new(history(events_min).1)), workers: 1 }
    }

    /// Returns a process in a directory with a folder `out`; syncs of files whose path contains `lies` are left out.
    pub fn command(&self, directory: &Path, end: End, lies: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "child::child", "--ignored", "--nocapture"]);
        command.current_dir(directory).env(EVENTS_MIN, self.events_min.to_string()).env(LIES, lies);
        command.env(WORKERS, self.workers.to_string());
        match end {
            End::Never => {}
            End::At(call) => _ = command.env(END_AT, call.to_string()),
            End::PowerAt(call) => _ = command.env(END_AT, call.to_string()).env(CUTS_POWER, "1"),
        }
        command
    }

    /// Runs a process to its end: its status, and what it printed.
    pub fn run(&self, directory: &Path, end: End, lies: &str) -> (ExitStatus, String) {
        let output = self.command(directory, end, lies).output().expect("it runs");
        (output.status, String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Returns a number that a whole run prints: its `calls` that write, or the `KiB` of its peak memory.
    pub fn number(&self, name: &str) -> u64 {
        let (status, text) = self.run(quick_directory().path(), End::Never, "");
        assert!(status.success(), "{text}");
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    /// Returns the first output in a directory that is not as it must be.
    pub fn wrong_outputs(&self, directory: &Path, whole: Whole) -> Option<String> {
        self.expected.wrong_outputs(|path| std::fs::read(directory.join(path)), whole)
    }
}

/// Returns a directory with a folder `out`, in memory where possible: what a process has written outlives it, synced or
/// not.
pub fn quick_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    std::fs::create_dir(directory.path().join("out")).expect("a directory");
    directory
}

/// The work of a process, in its current directory; not a test by itself.
#[test]
#[ignore = "is run by other tests"]
fn child() {
    let Ok(events_min) = var(EVENTS_MIN) else { return };
    let (program, history, setting) = history(events_min.parse().expect("a number"));
    let setting = Setting { workers: var(WORKERS).map_or(1, |workers| workers.parse().expect("a number")), ..setting };
    let ending = Ending {
        calls: Arc::default(),
        at: var(END_AT).map_or(u64::MAX, |at| at.parse().expect("a number")),
        cuts_power: var(CUTS_POWER).is_ok(),
        lies: var(LIES).unwrap_or_default().into(),
    };
    let storage: Arc<dyn Storage> = Arc::new(ending.clone());
    let engine = Engine::new(program).expect("random plans compile");
    if let Err(error) = process(&history, &engine, &storage, &setting) {
        panic!("{error}");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    println!("calls {}\nKiB {}", ending.calls.load(Ordering::Relaxed), peak.unwrap_or("unknown"));
}

/// Counts the calls that write, and ends the process or the power at one.
#[derive(Clone)]
struct Ending {
    calls: Arc<AtomicU64>,
    at: u64,
    cuts_power: bool,
    lies: Arc<str>,
}

impl Ending {
    fn write(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            match self.cuts_power {
                true => cut(Path::new(".")).expect("the file system can be shut down"),
                false => std::process::abort(),
            }
        }
    }

    fn lies_about(&self, path: &Path) -> bool {
        !self.lies.is_empty() && path.to_string_lossy().contains(&*self.lies)
    }
}

impl Storage for Ending {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        if matches!(how, Open::AppendOrCreate | Open::CreateNew | Open::InPlace) {
            self.write();
        }
        let lies = self.lies_about(path);
        Ok(Box::new(EndingFile { file: Disk.open(path, how)?, ending: self.clone(), lies }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write();
        Disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write();
        Disk.link(from, to)
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
        match self.lies_about(path) {
            true => Ok(()),
            false => Disk.sync_directory(path),
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        self.write();
        Disk.lock(path, holder)
    }

    fn free(&self, path: &Path) -> io::Result<Option<u64>> {
        Disk.free(path)
    }

    fn lock_entry(&self, path: &Path) -> io::Result<Locked> {
        Disk.lock_entry(path)
    }
}

struct EndingFile {
    file: Box<dyn File>,
    ending: Ending,
    lies: bool,
}

impl File for EndingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.ending.write();
        self.file.append(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ending.write();
        self.file.write_at(offset, bytes)
    }

    fn fill(&self, range: Range<u64>) -> io::Result<()> {
        self.ending.write();
        self.file.fill(range)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        self.file.identity()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.ending.write();
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.ending.write();
        match self.lies {
            true => Ok(()),
            false => self.file.sync(),
        }
    }
}
