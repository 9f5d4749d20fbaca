//! The command line's grammar.

use crate::epoch::{parse_epoch, parse_latency, parse_logging, parse_memory, parse_sync, parse_workers};
use crate::options::RunOptions;
use clap::{Args, Parser, Subcommand, value_parser};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_audit::EventPosition;
use tidemill_runtime::{EpochSize, Logging, Options, Scheduling, Sync};
use tidemill_server::{Limits, PORT, POSTGRES_PORT, Rights, ServeOptions, TlsFiles};

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the program or its plan is wrong
  2    the command line is wrong
  3    the run failed: a source, a sink or the engine
  4    the data does not fit its schema, found before the first event
  130  interrupted: the current epoch was finished and the sinks closed

Example:
  tidemill new bank && tidemill run bank/app.py";

/// Events in, state transactions over shared tables, results out.
#[derive(Debug, Parser)]
#[command(name = "tidemill", bin_name = "tidemill", version, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an application until its sources end.
    #[command(after_help = RUN_HELP)]
    Run(RunArguments),
    /// Run an application and serve calls, reads and pushes over HTTP, until it is interrupted.
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArguments>),
    /// Check an application without running it: types, keys, unused streams, the headers of its files.
    #[command(after_help = "Examples:\n  tidemill check bank.py\n  tidemill check bank.py --state ./state")]
    Check(CheckArguments),
    /// Show the flow, what each transaction reads, writes and waits for, and what was compiled.
    #[command(after_help = "Example:\n  tidemill explain bank.py:app")]
    Explain(Target),
    /// Run a state's log again, serially, by another interpreter, and compare the results with the engine's.
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyArguments),
    /// Keep, list, return to or export a state as it was.
    #[command(subcommand)]
    Savepoint(SavepointCommand),
    /// Say who may call, read, push and follow what is served with '--users'.
    #[command(subcommand)]
    User(UserCommand),
    /// Look at single transactions.
    #[command(subcommand)]
    Txn(TxnCommand),
    /// Create a folder with an application, data and a test.
    #[command(after_help = "Example:\n  tidemill new bank\n  tidemill run bank/app.py\n  pytest bank")]
    New(NewArguments),
}

const RUN_HELP: &str = "\
Paths in the application are relative to the current directory. '-' is standard input or output.
Ctrl-C finishes the current epoch and closes the sinks; a second one stops at once.
Exit codes: 'tidemill --help'.

Examples:
  tidemill run bank.py
  tidemill run bank.py:app --workers 2 --epoch 20ms
  tidemill run bank.py --state ./state
  tidemill run bank.py --json > summary.json";

const SERVE_HELP: &str = "\
Transactions on the events of app.requests(...) are called: POST /call/NAME with a JSON object. GET / says what there
is. Clients of PostgreSQL call them as functions: SELECT * FROM deposit('ada', 10). Ctrl-C and SIGTERM answer what is under way, then end; a second Ctrl-C stops at once.
Without '--users' nobody is asked who he is; without '--tls-cert' what is sent is not encrypted. An address that other
machines reach needs both, or '--insecure'.

Examples:
  tidemill serve bank.py --state ./state
  curl -d '{\"account\": \"ada\", \"amount\": 10}' http://127.0.0.1:8740/call/deposit
  curl http://127.0.0.1:8740/tables/accounts/ada
  psql -h 127.0.0.1 -p 5433 -c \"SELECT * FROM deposit('ada', 10)\"";

const VERIFY_HELP: &str = "\
Begins at the newest checkpoint, or at a savepoint, which keeps the log after it.
Exit code 3 and the first epoch, transaction or row that differs, if there is a difference.

Examples:
  tidemill verify ./state
  tidemill savepoint create ./state monday
  tidemill run bank.py --state ./state
  tidemill verify ./state --from monday";

#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The state directory. No process may be using it.
    #[arg(value_name = "DIR")]
    pub state: PathBuf,
    /// Begin at this savepoint.
    #[arg(long, value_name = "SAVEPOINT")]
    pub from: Option<String>,
    /// Print what was verified as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const USER_HELP: &str = "\
The secret is printed once, and is kept nowhere. It is the password of PostgreSQL's clients, and the token of HTTP's:
Authorization: Bearer SECRET. A server that runs reads the file again.

Examples:
  tidemill user add users.json ada --admin
  tidemill user add users.json shop --call deposit,transfer --read accounts --subscribe transfer.committed
  tidemill user add users.json report --read '*'
  tidemill serve bank.py --users users.json";

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user to a file, and print the secret.
    #[command(after_help = USER_HELP)]
    Add(UserArguments),
    /// List the users of a file and their rights.
    #[command(after_help = "Example:\n  tidemill user list users.json")]
    List {
        /// The file of users.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a user from a file. Connections that are open go on.
    #[command(after_help = "Example:\n  tidemill user remove users.json shop")]
    Remove {
        /// The file of users.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The user.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct UserArguments {
    /// The file of users. It is made if it is not there.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The user.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// May do everything, and see the console.
    #[arg(long)]
    admin: bool,
    /// May call these procedures; '*' for all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    call: Vec<String>,
    /// May read these tables; '*' for all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    read: Vec<String>,
    /// May push events into these sources; '*' for all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    push: Vec<String>,
    /// May follow these streams; '*' for all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    subscribe: Vec<String>,
}

impl UserArguments {
    pub fn rights(&self) -> Rights {
        let names = |names: &Vec<String>| names.iter().cloned().collect();
        Rights {
            admin: self.admin,
            call: names(&self.call),
            read: names(&self.read),
            push: names(&self.push),
            subscribe: names(&self.subscribe),
        }
    }
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    #[command(flatten)]
    pub target: Target,
    /// Also say what a run would do with this state.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum SavepointCommand {
    /// Keep the newest checkpoint under a name, and the log after it.
    #[command(after_help = "Example:\n  tidemill savepoint create ./state monday")]
    Create {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// Letters, digits, '-', '_' and '.'.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the savepoints.
    #[command(after_help = "Example:\n  tidemill savepoint list ./state")]
    List {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
    },
    /// Put the state back; everything after the savepoint is forgotten, and outputs begin anew.
    #[command(after_help = "Example:\n  tidemill savepoint restore ./state monday")]
    Restore {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a savepoint, and with the next checkpoint the log that it keeps.
    #[command(after_help = "Example:\n  tidemill savepoint remove ./state monday")]
    Remove {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Write each table of a savepoint to a Parquet file.
    #[command(after_help = "Example:\n  tidemill savepoint export ./state monday ./tables")]
    Export {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
        /// Where the files go; made if missing.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

const SHOW_HELP: &str = "\
A position is SOURCE:N, the N-th event of a source, counted from 0 (records that could not be decoded are
not counted), or SOURCE@TIME, all events of a source with that event time. Of a source that is read in
splits, SOURCE/FILE:N is the N-th event of one file, and SOURCE/FILE@TIME its events of a time; FILE is
its path, or the end of it after a slash. It must be in the log: after the newest checkpoint, or after a
savepoint.

Examples:
  tidemill txn show ./state transfers:17
  tidemill txn show ./state transfers/monday.csv:17
  tidemill txn show ./state transfers@2024-05-01T09:00:02Z";

#[derive(Debug, Subcommand)]
pub enum TxnCommand {
    /// Run an event's transactions again at the state that they ran at, and show what they read, required,
    /// wrote and emitted, and why one aborted.
    #[command(after_help = SHOW_HELP)]
    Show {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The event.
        #[arg(value_name = "POSITION")]
        position: EventPosition,
    },
}

#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub target: Target,
    /// At most this many workers, each a thread, and no more than processors [default: one per processor].
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    workers: Option<usize>,
    /// When an epoch ends: auto, after N events, or at an age of Xms (us, s).
    #[arg(long, value_name = "auto|N|Xms", default_value = "auto", value_parser = parse_epoch)]
    epoch: EpochSize,
    /// The time within which 99 of 100 events should have their results: epochs are as large as this allows, if
    /// '--epoch' is auto.
    #[arg(long, value_name = "Xms", default_value = "10ms", value_parser = parse_latency)]
    latency: u64,
    /// How transactions are scheduled: by measured cost, or always as said, for instance 'epoch' (one after
    /// the other), 'transaction', 'chain', 'operation', 'transaction,dfs', 'operation,bfs,eager', 'chain,lazy';
    /// 'POLICY@N' with at most N of the workers; 'POLICY+POLICY' for groups that share no row; 'morphstream' for the
    /// heuristic of that paper.
    #[arg(long, value_name = "auto|POLICY", default_value = "auto")]
    scheduling: Scheduling,
    /// Say in the summary which policies ran and why.
    #[arg(long)]
    pub explain_scheduling: bool,
    /// Keep the state in this directory, and continue from what is there: the run survives a crash.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// When results are released: when their epoch is durable, or as soon as it is logged, with a sync every Xms
    /// (us, s). In the second case results released since the last sync are lost if the machine stops, and
    /// results may come twice. Needs a state [default: epoch].
    #[arg(long, value_name = "epoch|Xms", value_parser = parse_sync)]
    sync: Option<Sync>,
    /// The most memory that rows take, such as 2GiB: other rows are read from the state when they are needed.
    /// Needs a state.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<usize>,
    /// What is logged of an epoch: what its sources gave ('border'), from which a replay makes everything else; or
    /// also what each transaction gave ('full'), which a replay is compared with. Needs a state [default: border].
    #[arg(long, value_name = "border|full", value_parser = parse_logging)]
    logging: Option<Logging>,
    /// Keep a savepoint of this name: the state as it is when the run begins, and the log after it. Needs a state.
    #[arg(long, value_name = "NAME")]
    savepoint: Option<String>,
    /// The end of the input is the end for good: everything that is held back is released, and what comes after that is
    /// refused. Otherwise the end is a pause in a run with a state: the next run continues with what was added. Without
    /// a state it is always the end.
    #[arg(long = "final")]
    is_final: bool,
    /// Begin a new state, or a run without one, with the rows that a state or savepoint has in the tables of
    /// the same names. A state that has begun keeps its own.
    #[arg(long, value_name = "DIR")]
    seed: Option<PathBuf>,
    /// Write a record of each epoch to this Arrow file: sizes, policy and reason, expected and measured times.
    #[arg(long, value_name = "FILE")]
    epoch_records: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
    /// No progress bar and no readable summary.
    #[arg(long, short)]
    pub quiet: bool,
}

impl RunArguments {
    /// The options of the run.
    pub fn options(&self) -> RunOptions {
        let RunArguments { epoch, latency, scheduling, sync, memory, logging, is_final, .. } = *self;
        let workers = self.workers.unwrap_or(0);
        RunOptions {
            engine: Options { workers, epoch, latency, scheduling, memory, ..Options::default() },
            state: self.state.clone(),
            sync,
            logging,
            savepoint: self.savepoint.clone(),
            is_final,
            seed: self.seed.clone(),
            epoch_records: self.epoch_records.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub struct ServeArguments {
    #[command(flatten)]
    pub run: RunArguments,
    /// The address to serve on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// The port; 0 for any that is free.
    #[arg(long, value_name = "N", default_value_t = PORT, help_heading = "Server")]
    port: u16,
    /// The port for clients of PostgreSQL; 0 for any that is free, as with '--port 0' [default: 5433].
    #[arg(long, value_name = "N", conflicts_with = "no_postgres", help_heading = "Server")]
    postgres_port: Option<u16>,
    /// Do not serve clients of PostgreSQL.
    #[arg(long, help_heading = "Server")]
    no_postgres: bool,
    /// Ask everybody who he is: a file of users, which 'tidemill user' writes.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    users: Option<PathBuf>,
    /// Encrypt all that is sent: the server's certificate in PEM, with those that lead to one that clients know.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Server")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Server")]
    tls_key: Option<PathBuf>,
    /// Allow an address that other machines reach without '--users', or without '--tls-cert'.
    #[arg(long, help_heading = "Server")]
    insecure: bool,
    /// Send what '/metrics' counts by OpenTelemetry, to where the environment's OTEL_EXPORTER_OTLP_ENDPOINT says.
    #[arg(long, help_heading = "Server")]
    pub telemetry: bool,
    /// Keep the last N events of a stream in memory: a reader that was cut off goes on after the last one that it has.
    #[arg(long, value_name = "STREAM=N", value_parser = parse_kept, help_heading = "Server")]
    pub keep: Vec<(String, usize)>,
    #[command(flatten)]
    limits: LimitArguments,
}

/// How much clients may make pile up.
#[derive(Debug, Args)]
struct LimitArguments {
    /// The most calls without a reply; more are refused with 503.
    #[arg(long, value_name = "N", default_value_t = Limits::default().calls_max, help_heading = "Limits")]
    calls_max: usize,
    /// The most reads and pushes without an answer.
    #[arg(long, value_name = "N", default_value_t = Limits::default().asks_max, help_heading = "Limits")]
    asks_max: usize,
    /// The most open connections of each protocol.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max, help_heading = "Limits")]
    connections_max: usize,
    /// The most readers of streams, of both protocols together.
    #[arg(long, value_name = "N", default_value_t = Limits::default().readers_max, help_heading = "Limits")]
    readers_max: usize,
    /// The most bytes of a request's body, or of a message.
    #[arg(long, value_name = "N", default_value_t = Limits::default().body_bytes_max, help_heading = "Limits")]
    body_bytes_max: usize,
    /// The most queries that run at once.
    #[arg(long, value_name = "N", default_value_t = Limits::default().queries_max, help_heading = "Limits")]
    queries_max: usize,
    /// The most queries that wait until they may run, each as long as a query may run.
    #[arg(long, value_name = "N", default_value_t = Limits::default().queries_waiting_max, help_heading = "Limits")]
    queries_waiting_max: usize,
    /// The longest that a query may run.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().query_time_max.as_secs(), help_heading = "Limits")]
    query_seconds_max: u64,
    /// The most rows that a query may give.
    #[arg(long, value_name = "N", default_value_t = Limits::default().query_rows_max, help_heading = "Limits")]
    query_rows_max: usize,
    /// The most rows of a table that a read may give which is no query.
    #[arg(long, value_name = "N", default_value_t = Limits::default().table_rows_max, help_heading = "Limits")]
    table_rows_max: usize,
    /// The memory of all queries together, beside the tables that they read, such as 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "1GiB", help_heading = "Limits")]
    query_memory_max: usize,
    /// How long a connection may be silent, and a body or a message may take.
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..), default_value_t = Limits::default().silence_max.as_secs(), help_heading = "Limits")]
    silence_seconds_max: u64,
    /// How long the end waits for what is under way.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().drain_max.as_secs(), help_heading = "Limits")]
    drain_seconds_max: u64,
}

impl LimitArguments {
    fn limits(&self) -> Limits {
        let &LimitArguments {
            calls_max,
            asks_max,
            connections_max,
            readers_max,
            body_bytes_max,
            queries_max,
            queries_waiting_max,
            query_seconds_max,
            query_rows_max,
            table_rows_max,
            query_memory_max,
            silence_seconds_max,
            drain_seconds_max,
        } = self;
        Limits {
            calls_max,
            asks_max,
            queries_max,
            queries_waiting_max,
            query_time_max: Duration::from_secs(query_seconds_max),
            query_rows_max,
            table_rows_max,
            query_memory_max,
            connections_max,
            readers_max,
            body_bytes_max,
            silence_max: Duration::from_secs(silence_seconds_max),
            drain_max: Duration::from_secs(drain_seconds_max),
        }
    }
}

/// A stream, and a number of events.
fn parse_kept(text: &str) -> Result<(String, usize), String> {
    let kept = text.split_once('=').and_then(|(stream, events)| Some((stream.to_owned(), events.parse().ok()?)));
    kept.filter(|(_, events)| *events > 0).ok_or_else(|| {
        format!("'{text}' is not a stream and a number of events; give one such as deposit.committed=100000")
    })
}

impl ServeArguments {
    /// Where and how to serve.
    pub fn options(&self) -> ServeOptions {
        let &ServeArguments { port, insecure, .. } = self;
        // One who wants any port has several servers, perhaps.
        let postgres_port = self.postgres_port.unwrap_or(if port == 0 { 0 } else { POSTGRES_PORT });
        let postgres_port = (!self.no_postgres).then_some(postgres_port);
        let users = self.users.clone();
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let tls = files.map(|(certificate, key)| TlsFiles { certificate, key });
        let limits = self.limits.limits();
        ServeOptions { host: self.host.clone(), port, postgres_port, users, tls, insecure, limits }
    }
}

/// An application's place.
#[derive(Debug, Args)]
pub struct Target {
    /// The application's file, and its name where the file has several.
    #[arg(value_name = "FILE[:app]")]
    place: String,
}

impl Target {
    /// The file and the name.
    pub fn parts(&self) -> (&str, Option<&str>) {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        match self.place.rsplit_once(':') {
            Some((file, name)) if is_name(name) && !file.is_empty() && !Path::new(&self.place).exists() => {
                (file, Some(name))
            }
            _ => (&self.place, None),
        }
    }
}

#[derive(Debug, Args)]
pub struct NewArguments {
    /// The folder to create; its last part is the application's name.
    #[arg(value_name = "NAME")]
    pub folder: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use tidemill_runtime::Policy;

    #[test]
    fn grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn targets() {
        let parts = |place: &str| {
            let target = Target { place: place.into() };
            let (file, name) = target.parts();
            (file.to_owned(), name.map(str::to_owned))
        };
        assert_eq!(parts("bank.py"), ("bank.py".into(), None));
        assert_eq!(parts("a/bank.py:app"), ("a/bank.py".into(), Some("app".into())));
        assert_eq!(parts("c:/bank.py"), ("c:/bank.py".into(), None));
        assert_eq!(parts(":app"), (":app".into(), None));
    }

    #[test]
    fn options() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        let Command::Run(run) =
            parse("tidemill run x.py --workers 2 --epoch 20ms --scheduling transaction").unwrap().command
        else {
            panic!("a run")
        };
        let options = run.options().engine;
        assert_eq!((options.workers, options.epoch), (2, EpochSize::Age(20_000_000)));
        assert_eq!(options.scheduling, Scheduling::Fixed(Policy::TRANSACTION));
        for line in ["tidemill", "tidemill run", "tidemill run x --workers 0", "tidemill run x --epoch 1h"] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
