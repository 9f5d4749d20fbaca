//! Power cuts of a real file system: ext4 on a loop device, shut down under the process.
//!
//! The file system is shut down as `EXT4_IOC_SHUTDOWN` does without flushing its journal: what was not synced, bytes
//! and names, is gone when it is mounted again, and every call fails until then. The loop device keeps what it was
//! given, so a device that lies about its cache is left to simulated storage.
//!
//! That needs root, loop devices and `mkfs.ext4`; without them these tests say so and are skipped.

use crate::child::{End, Script, quick_directory};
use crate::search::Search;
use crate::trial::Whole;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tidemill_histories::Random;

/// Events that make for some hundred calls that write.
const EVENTS_MIN: usize = 60;
/// Bytes of the file system, sparse.
const IMAGE: u64 = 64 << 20;
/// Cuts until a sync that is left out must have been noticed.
const CUTS_FOR_A_LIE: u64 = 60;

/// Cuts the power of the file system that a path is on. It takes an `ioctl`, which Rust reaches only by unsafe code.
pub fn cut(path: &Path) -> io::Result<()> {
    // EXT4_IOC_SHUTDOWN, and EXT4_GOING_FLAGS_NOLOGFLUSH (Linux, include/uapi/linux/ext4.h).
    const PROGRAM: &str = "import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
    run(Command::new("python3").args(["-c", PROGRAM]).arg(path))
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// An ext4 file system in a file, mounted.
struct Ext4 {
    folder: TempDir,
}

impl Ext4 {
    fn new() -> io::Result<Ext4> {
        let folder = quick_directory();
        let image = folder.path().join("image");
        std::fs::File::create(&image)?.set_len(IMAGE)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let ext4 = Ext4 { folder };
        ext4.mount()?;
        std::fs::create_dir(ext4.path().join("out"))?;
        run(Command::new("sync").arg("-f").arg(ext4.path()))?;
        Ok(ext4)
    }

    /// Returns the folder at which it is mounted.
    fn path(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Mounts it without ext4's kindness to those who forget to sync a file that they replace (mount option
    /// `auto_da_alloc`).
    fn mount(&self) -> io::Result<()> {
        run(Command::new("mount")
            .args(["-o", "loop,noauto_da_alloc"])
            .arg(self.folder.path().join("image"))
            .arg(self.path()))
    }

    fn unmount(&self) -> io::Result<()> {
        run(Command::new("umount").arg(self.path()))
    }

    /// Mounts the file system again, as a machine does when its power is back.
    fn start_again(&self) {
        self.unmount().and_then(|()| self.mount()).expect("it is mounted again");
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // It may never have been mounted.
        let _ = self.unmount();
    }
}

/// Returns the reason why there can be no power cuts here; none if there can.
fn missing() -> Option<String> {
    let tried = Ext4::new().and_then(|ext4| cut(&ext4.path()));
    tried.err().map(|error| format!("skipped: no power cuts of a file system here ({error})"))
}

/// Cuts the power before a call that writes, now and then again while the next process recovers, and lets a last
/// process go to the end. How often the power was cut, or what is wrong.
fn power_trial(script: &Script, random: &mut Random, calls: u64, lies: &str) -> Result<u64, String> {
    let ext4 = Ext4::new().expect("it was made before");
    let path = ext4.path();
    let mut cuts = 0;
    let again = random.chance(50).then(|| End::PowerAt(random.below(60) as u64));
    let ends = [Some(End::PowerAt(random.below(calls as usize) as u64)), again, Some(End::Never)];
    for end in ends.into_iter().flatten() {
        let (status, text) = script.run(&path, end, lies);
        match end {
            // It fails when it needs its files once more.
            End::PowerAt(_) => cuts += u64::from(!status.success()),
            _ if !status.success() => return Err(format!("{end:?}: {status}\n{text}")),
            _ => {}
        }
        if text.contains("panicked") && !text.contains("Input/output error") && !status.success() {
            return Err(format!("{end:?}: {status}\n{text}"));
        }
        ext4.start_again();
        let whole = if matches!(end, End::Never) { Whole::There } else { Whole::IfThere };
        if let Some(wrong) = script.wrong_outputs(&path, whole) {
            return Err(format!("after {end:?}: {wrong}"));
        }
    }
    Ok(cuts)
}

#[test]
#[ignore = "needs root: make torture"]
fn power_cuts_of_a_file_system() {
    if let Some(why) = missing() {
        return println!("{why}");
    }
    let script = Script::new(EVENTS_MIN);
    let calls = script.number("calls");
    let seed = super::number("TIDEMILL_SEED", 1);
    let mut random = Random::new(seed);
    let (wanted, mut cuts) = (super::number("TIDEMILL_POWER_CUTS", 300), 0);
    while cuts < wanted {
        cuts +=
            power_trial(&script, &mut random, calls, "").unwrap_or_else(|wrong| panic!("after {cuts} cuts: {wrong}"));
    }
    println!("{cuts} power cuts of ext4 under a process with {calls} calls that write, from seed {seed}");
}

/// The failures that each sync that is left out must cause: the state is refused as damaged or as missing what sinks
/// have released, or an output is not what it should be.
const LIES: [(&str, &[&str]); 6] = [
    ("log/", &["log is damaged", "epochs that were durable are missing"]),
    ("rows", &["rows is damaged"]),
    ("state/checkpoint", &["rows is damaged"]),
    ("manifest", &["state/manifest is damaged"]),
    ("sinks.new", &["sinks, which says what of"]),
    ("tidemill-part", &["tidemill-part", "lines, expected"]),
];

/// Trial number `n`, with syncs left out or without.
fn numbered_trial(script: &Script, calls: u64, n: u64, lies: &str) -> Result<(), String> {
    power_trial(script, &mut Random::new(n), calls, lies).map(drop)
}

/// A process that is killed cannot show this: what it has written is there, synced or not.
#[test]
#[ignore = "needs root: make torture"]
fn power_cuts_find_syncs_that_are_left_out() {
    if let Some(why) = missing() {
        return println!("{why}");
    }
    let script = Script::new(EVENTS_MIN);
    let calls = script.number("calls");
    for (lies, shows) in LIES {
        let mut search = Search::new(lies, shows);
        let mut finds = |n| {
            let honest = || numbered_trial(&script, calls, n, "");
            search.finds(n, numbered_trial(&script, calls, n, lies), honest)
        };
        let found = (1..=CUTS_FOR_A_LIE).any(&mut finds);
        assert!(found, "{}", search.missed());
    }
}

/// A process that fails whatever it does finds no bug. The processes run in a folder that lacks the one for outputs; a
/// search that took any failure for a find would have found each of the syncs.
#[test]
fn a_process_that_always_fails_finds_nothing() {
    let script = Script::new(EVENTS_MIN);
    let folder = tempfile::tempdir().expect("a folder");
    let fails = |lies: &str| {
        let (status, text) = script.run(folder.path(), End::Never, lies);
        if status.success() { Ok(()) } else { Err(format!("{status}\n{text}")) }
    };
    for (lies, shows) in LIES {
        let with = fails(lies);
        assert!(with.is_err(), "every process fails here");
        let mut search = Search::new(lies, shows);
        let searched = std::panic::catch_unwind(AssertUnwindSafe(|| search.finds(1, with, || fails(""))));
        let told = searched.expect_err("a find where nothing works");
        let told = told.downcast_ref::<String>().expect("a text");
        assert!(told.contains("fails without the bug, too"), "{told}");
    }
}
