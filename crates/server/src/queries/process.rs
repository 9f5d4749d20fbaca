//! A process that answers queries, as the server sees it: it is started, asked one query after the other, and ended.
//!
//! # Invariant
//!
//! A process that has not answered in time, or not rightly, is ended and never asked again. It ends with the thread that has
//! started it: the system sees to that.

use super::mapped;
use super::message::{Asked, Described, Failure, FromProcess, Incoming, ToProcess, send};
use super::query::Waits;
use super::tables::{NotShared, Region, Tables};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_runtime::LateTable;

/// The interval at which the time of a query and whether its client still waits are checked.
const TICK: Duration = Duration::from_millis(20);
/// The time that a process has from its start until it can answer queries.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// The time that a process has to end a query that is over its time or is not wanted any more.
const GRACE: Duration = Duration::from_secs(1);
/// The bytes that are looked at of what a process says before it ends.
const SAID_BYTES: usize = 1 << 12;
/// Signals: of the system for want of memory, and of time.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// The command that starts a process.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its environment; it has no other.
    pub environment: Vec<(OsString, OsString)>,
}

/// A table that queries may read.
pub struct Table {
    pub name: String,
    pub schema: SchemaRef,
}

/// A process.
pub struct Process {
    child: Child,
    channel: UnixStream,
    incoming: Incoming,
    /// A flag: whether the process is to be ended.
    pub is_broken: bool,
}

/// The outcome of a query.
pub enum Outcome {
    Answered(Answer),
    /// There is no answer; the process goes on.
    Failed(Failure),
    /// The process is to be ended: why there is no answer.
    Broken(Broken),
}

/// An answer.
pub struct Answer {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

/// The reason why a process is not used any more.
#[derive(Debug)]
pub enum Broken {
    /// The query took too long.
    Late,
    /// Nobody waits for the answer any more.
    Unwanted,
    /// The answer is larger than what a query may have.
    TooLarge,
    /// The process has ended, or sent something that is not understood.
    Gone,
}

impl Process {
    /// Starts a process, and waits until it answers queries. The thread must go on as long as the process.
    pub fn start(launch: &Launch, tables: &[Table], file: &Tables) -> Result<Process, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let shared = file.open().map_err(|error| error.to_string())?;
        // The text that the process writes until it is ready; afterwards it can write no more.
        let said = File::from(memfd_create("tidemill-said", MemfdFlags::CLOEXEC).map_err(|error| error.to_string())?);
        let child = Command::new(&launch.program)
            .args(&launch.arguments)
            .env_clear()
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(shared))
            .stderr(Stdio::from(said.try_clone().map_err(|error| error.to_string())?))
            .spawn()
            .map_err(|error| format!("{}: {error}", launch.program.display()))?;
        let mut process = Process { child, channel: ours, incoming: Incoming::default(), is_broken: false };
        process.begin(tables).map_err(|error| {
            let status = process.end().map(|status| format!(" ({status})")).unwrap_or_default();
            let last = last_line(&said).map(|line| format!(": {line}")).unwrap_or_default();
            format!("{error}{status}{last}")
        })?;
        Ok(process)
    }

    fn begin(&mut self, tables: &[Table]) -> io::Result<()> {
        self.channel.set_read_timeout(Some(TICK))?;
        self.channel.set_write_timeout(Some(BEGIN_MAX))?;
        let (mut described, mut bytes) = (Vec::new(), Vec::new());
        for table in tables {
            let start = bytes.len();
            let mut writer = StreamWriter::try_new(&mut bytes, &table.schema).map_err(io::Error::other)?;
            writer.finish().map_err(io::Error::other)?;
            drop(writer);
            described.push(Described { name: table.name.clone(), bytes: bytes.len() - start });
        }
        send(&mut self.channel, &ToProcess::Tables(described), &bytes)?;
        let by = Instant::now() + BEGIN_MAX;
        while Instant::now() < by {
            match self.incoming.next(&mut self.channel)? {
                None => {}
                Some((FromProcess::Ready, _)) => return Ok(()),
                Some((FromProcess::Failed { failure, .. }, _)) => {
                    let (Failure::NoEngine(why) | Failure::Refused(why) | Failure::Over(why)) = failure;
                    return Err(io::Error::other(why));
                }
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Err(io::Error::other(format!("a process for queries was not ready after {} s", BEGIN_MAX.as_secs())))
    }

    /// Returns true if the process has not ended.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks a query. `late` has the tables of `asked`, in their order.
    pub fn ask(&mut self, asked: &Asked, late: &[LateTable], all: &[Table], file: &Tables, waits: &Waits) -> Outcome {
        let limits = Until { by: Instant::now() + Duration::from_secs_f64(asked.seconds_max) + GRACE, unwanted: None };
        let mut asking = Asking { process: self, asked, late, all, file, regions: Vec::new(), answer: Vec::new() };
        match asking.run(waits, limits) {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Broken(Broken::Gone),
        }
    }

    /// Ends it; what it has ended with, if the system says so.
    pub fn end(&mut self) -> Option<ExitStatus> {
        // One that has ended by itself says why.
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// Waits a moment for a process that has closed its connection, and returns why it has ended.
    pub fn ended(&mut self) -> String {
        let by = Instant::now() + GRACE;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < by => std::thread::sleep(TICK / 4),
                _ => break self.end(),
            }
        };
        match status.and_then(|status| status.signal()) {
            Some(SIGXCPU) => "it took more time of the processor than it may have".to_owned(),
            Some(SIGKILL) => "it was killed, perhaps for want of memory".to_owned(),
            Some(signal) => format!("signal {signal}"),
            None => status.map_or_else(|| "it does not answer".to_owned(), |status| status.to_string()),
        }
    }
}

/// Returns the last line that a process has written.
fn last_line(said: &File) -> Option<String> {
    let mut bytes = vec![0; SAID_BYTES];
    let end = said.metadata().ok()?.len();
    let count = said.read_at(&mut bytes, end.saturating_sub(SAID_BYTES as u64)).ok()?;
    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The deadline of a query.
struct Until {
    by: Instant,
    /// The time at which the process was told that nobody waits for the answer.
    unwanted: Option<Instant>,
}

/// A query that is under way.
struct Asking<'a> {
    process: &'a mut Process,
    asked: &'a Asked,
    late: &'a [LateTable],
    all: &'a [Table],
    file: &'a Tables,
    /// The regions of the file that the process reads until the query is done.
    regions: Vec<Arc<Region>>,
    answer: Vec<u8>,
}

impl Asking<'_> {
    fn run(&mut self, waits: &Waits, mut until: Until) -> io::Result<Outcome> {
        self.say(&ToProcess::Query(self.asked.clone()))?;
        loop {
            let now = Instant::now();
            if now >= until.by {
                return Ok(Outcome::Broken(Broken::Late));
            }
            match until.unwanted {
                Some(since) if now.duration_since(since) > GRACE => return Ok(Outcome::Broken(Broken::Unwanted)),
                None if !waits.is_wanted() => {
                    until.unwanted = Some(now);
                    self.say(&ToProcess::Cancel)?;
                }
                _ => {}
            }
            let Some((said, bytes)) = self.process.incoming.next(&mut self.process.channel)? else { continue };
            match said {
                FromProcess::Wants(table) => self.give(table)?,
                FromProcess::Part if self.answer.len() + bytes.len() > self.asked.memory_max => {
                    return Ok(Outcome::Broken(Broken::TooLarge));
                }
                FromProcess::Part => self.answer.extend_from_slice(&bytes),
                FromProcess::Done { worn } => {
                    self.process.is_broken = worn;
                    return self.answered();
                }
                FromProcess::Failed { failure, worn } => {
                    self.process.is_broken = worn || matches!(failure, Failure::Over(_));
                    return Ok(Outcome::Failed(failure));
                }
                FromProcess::Ready => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn say(&mut self, what: &ToProcess) -> io::Result<()> {
        send(&mut self.process.channel, what, &[])?;
        self.process.channel.flush()
    }

    /// Gives the process a table that it wants.
    fn give(&mut self, table: usize) -> io::Result<()> {
        let place = self.asked.tables.iter().position(|&other| other == table);
        let late = place.map(|place| &self.late[place]).ok_or(io::ErrorKind::InvalidData)?;
        let said = match self.region(table, late) {
            Ok(region) => {
                let said = ToProcess::Table { table, offset: region.offset, length: region.length };
                self.regions.push(region);
                said
            }
            Err(why) => ToProcess::NoTable { table, why },
        };
        self.say(&said)
    }

    fn region(&self, table: usize, late: &LateTable) -> Result<Arc<Region>, String> {
        let batches = late.batches().map_err(|error| error.to_string())?;
        self.file.region(table, &self.all[table].schema, &batches).map_err(|error| match error {
            NotShared::TooLarge { bytes } => format!(
                "the tables of the queries that run take {bytes} bytes with '{}', and {} are allowed; --query-memory-max \
                 is twice that",
                late.name(),
                self.file.bytes_max(),
            ),
            NotShared::Io(error) => format!("table '{}' cannot be shared: {error}", late.name()),
        })
    }

    fn answered(&mut self) -> io::Result<Outcome> {
        let bytes = std::mem::take(&mut self.answer);
        let (schema, batches) = mapped::stream(Buffer::from_vec(bytes)).map_err(io::Error::other)?;
        Ok(Outcome::Answered(Answer { schema, batches }))
    }
}
