//! The system calls and resources that a query process gives up before its first query.
//!
//! # Invariant
//!
//! After [`seal`] no thread of the process can open a file or a connection, change what lies in the file system, start a
//! program, or look into another process; files seem to be absent. The address space is bounded, and the time of the
//! processor that each query takes ([`begin_query`]). The engine refuses such things by its own settings first; this holds
//! where it has a fault.

use super::message::Asked;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bounds of a sealed process.
#[derive(Clone, Copy, Debug)]
pub struct Sealed {
    /// The bytes of address space that it may take beside what it has.
    pub memory_max: u64,
}

/// The seconds of the processor that a query may take beside those that its time allows.
const SPARE_SECONDS: u64 = 2;

/// The part of what it may take that a process may have between two queries.
const WORN_PART: u64 = 4;

/// Calls of the system that find and open files. They say that there is none, as some are only looked for.
const OPEN: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_readlinkat,
];

/// Calls of the system that are not permitted.
const REFUSED: &[libc::c_long] = &[
    // The network.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Programs, and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    // Changes of the file system.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    libc::SYS_linkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    libc::SYS_fchownat,
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other ways to make descriptors, and to reach the system past these calls.
    libc::SYS_memfd_create,
    libc::SYS_io_uring_setup,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
];

/// Has the process end with the thread that has started it.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The address space of a process.
pub struct Space {
    /// It says how much there is; it stays open, as nothing can be opened later.
    says: File,
    /// The bytes beyond which the process is worn.
    worn: u64,
}

impl Space {
    /// Returns whether the process has so much that another query may find too little: an allocator gives back what it has
    /// when it likes.
    pub fn is_worn(&self) -> bool {
        taken(&self.says).is_ok_and(|taken| taken > self.worn)
    }
}

/// Gives up what is not needed, for all threads, for ever.
pub fn seal(sealed: &Sealed) -> io::Result<Space> {
    let says = File::open("/proc/self/statm")?;
    let before = taken(&says)?;
    limit(Resource::As, before.saturating_add(sealed.memory_max))?;
    // A fault leaves no copy of the tables on the disk.
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    refuse(OPEN, libc::ENOENT)?;
    refuse(REFUSED, libc::EPERM)?;
    Ok(Space { says, worn: before.saturating_add(sealed.memory_max / WORN_PART) })
}

/// Bounds the time of the processor that the next query takes.
pub fn begin_query(query: &Asked) -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let seconds = (query.seconds_max.ceil().max(0.0) as u64).saturating_mul(threads);
    let most = used.saturating_add(seconds).saturating_add(SPARE_SECONDS);
    let maximum = getrlimit(Resource::Cpu).maximum;
    let current = Some(maximum.map_or(most, |maximum| most.min(maximum)));
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

fn limit(what: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(what).maximum.map_or(most, |before| before.min(most));
    Ok(setrlimit(what, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Returns the bytes of address space that the process has.
fn taken(says: &File) -> io::Result<u64> {
    let mut text = [0; 64];
    let count = says.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..count]);
    let pages: Option<u64> = text.split(' ').next().and_then(|pages| pages.parse().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)?.saturating_mul(rustix::param::page_size() as u64))
}

/// Has calls of the system fail with an error.
fn refuse(calls: &[libc::c_long], error: libc::c_int) -> io::Result<()> {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let machine = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let action = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, machine).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}
