//! A process that the kernel ends because a memory cgroup has no more for it, at whatever it is doing then.
//!
//! That needs root and a memory controller, of either version of cgroups; without them the test says so and is skipped.

use crate::child::{End, Script};
use crate::trial::Whole;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};
use tidemill_histories::Random;

/// Events whose records, and those in flight, are much of what a process takes.
const EVENTS_MIN: usize = 1_000;
const SECONDS_MAX: &str = "20";
/// The limit that `timeout` takes for none.
const FOR_EVER: &str = "0";
const SIGKILL: i32 = 9;
/// The exit status of `timeout` when it has killed the command.
const TIMED_OUT: i32 = 137;

/// A memory cgroup of this test.
struct Group {
    path: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new() -> io::Result<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let name = format!("tidemill-{}", std::process::id());
        for mount in mounts.lines() {
            let fields: Vec<&str> = mount.split(' ').collect();
            let [_, at, kind, options, ..] = fields[..] else { continue };
            let limit = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => "memory.limit_in_bytes",
                "cgroup2" if fs::write(Path::new(at).join("cgroup.subtree_control"), "+memory").is_ok() => "memory.max",
                _ => continue,
            };
            let group = Group { path: Path::new(at).join(&name), limit };
            fs::create_dir(&group.path)?;
            // Nothing is swapped out, where something could be.
            let _ = fs::write(group.path.join("memory.swappiness"), "0");
            let _ = fs::write(group.path.join("memory.swap.max"), "0");
            return Ok(group);
        }
        Err(io::Error::other("no memory controller of cgroups"))
    }

    fn set_limit(&self, bytes: u64) {
        fs::write(self.path.join(self.limit), bytes.to_string()).expect("a limit can be set");
    }

    /// Runs a command in it, until the kernel kills it or the time is over: with barely enough memory, a process reads its
    /// own code from the disk again and again.
    fn run(&self, command: &Command, seconds_max: &str) -> (std::process::ExitStatus, String) {
        let mut inside = Command::new("timeout");
        inside
            .args(["--foreground", "-s", "KILL", seconds_max, "sh", "-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.path.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        inside.current_dir(command.get_current_dir().expect("it has one"));
        inside.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
        let output = inside.output().expect("it runs");
        (output.status, String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
#[ignore = "needs root: make torture"]
fn out_of_memory() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return println!("skipped: no memory cgroups here ({error})"),
    };
    let script = Script::new(EVENTS_MIN);
    let seed = super::number("TIDEMILL_SEED", 1);
    let mut random = Random::new(seed);
    let peak = script.number("KiB") << 10;
    // The least that was enough: a little less ends a process late, much less ends it early.
    let mut enough = peak;
    let (wanted, mut kills, mut timed_out, mut in_recovery) = (super::number("TIDEMILL_OOM_KILLS", 50), 0, 0, 0);
    while kills < wanted {
        // On a disk: files in memory would count, and stay.
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("out")).expect("a directory");
        for life in 0..4 {
            let limit = enough / 2 + random.below(enough as usize / 2) as u64;
            group.set_limit(if life < 3 { limit } else { 4 * peak });
            let seconds_max = if life < 3 { SECONDS_MAX } else { FOR_EVER };
            let (status, text) = group.run(&script.command(directory.path(), End::Never, ""), seconds_max);
            if status.success() {
                enough = if life < 3 { enough.min(limit) } else { enough };
                break;
            }
            let is_slow = status.code() == Some(TIMED_OUT);
            assert!(life < 3 && (is_slow || status.signal() == Some(SIGKILL)), "life {life}: {status}\n{text}");
            if is_slow {
                timed_out += 1;
                continue;
            }
            kills += 1;
            in_recovery += u64::from(life > 0);
        }
        let wrong = script.wrong_outputs(directory.path(), Whole::There);
        assert_eq!(wrong, None, "after {kills} kills");
    }
    println!(
        "{kills} processes ended for want of memory, {in_recovery} of them while they had to recover, of at most {} MiB; \
         {timed_out} more were killed after {SECONDS_MAX} s of having next to none; from seed {seed}",
        peak >> 20
    );
}
