//! The command line's grammar.

mod log;
mod serve;
mod state;
mod user;

use crate::epoch::{
    parse_bytes, parse_epoch, parse_keys, parse_latency, parse_logging, parse_memory, parse_proof, parse_sync,
    parse_time, parse_workers,
};
use crate::look::{TABLE_HELP, TAIL_HELP, TableArguments, TailArguments, TopArguments};
use crate::options::RunOptions;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use log::LogArguments;
pub use serve::ServeArguments;
pub use state::{SavepointCommand, TxnCommand};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_durability::Head;
use tidemill_runtime::{EpochSize, Logging, Options, Proving, Scheduling, Sync};
pub use user::UserCommand;

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the program or its plan is wrong
  2    the command line is wrong
  3    the run failed: a source, a sink or the engine
  4    the data does not fit its schema, found before the first event
  5    'verify' has found a difference
  129  interrupted by SIGHUP: the current epoch was finished and the sinks closed
  130  the same by Ctrl-C
  143  the same by SIGTERM

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
    Run(Box<RunArguments>),
    /// Run an application and serve calls, reads and pushes over HTTP, until it is interrupted.
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArguments>),
    /// Check an application without running it: types, keys, unused streams, the headers of its files.
    #[command(after_help = "Examples:\n  tidemill check bank.py\n  tidemill check bank.py --state ./state")]
    Check(CheckArguments),
    /// Show the flow, what each transaction reads, writes and waits for, and what was compiled.
    #[command(after_help = "Example:\n  tidemill explain bank.py:app")]
    Explain(ExplainArguments),
    /// Run a state's log again, serially, by another interpreter, and compare the results with the engine's.
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyArguments),
    /// Keep, list, return to or export a state as it was.
    #[command(subcommand)]
    Savepoint(SavepointCommand),
    /// Say who may call, read, push and follow what is served with '--users'.
    #[command(subcommand)]
    User(UserCommand),
    /// Print the events of a stream: of a state's log, or of what is served, as they are released.
    #[command(after_help = TAIL_HELP)]
    Tail(TailArguments),
    /// Print the rows of a table of a state, or of what is served.
    #[command(after_help = TABLE_HELP)]
    Table(TableArguments),
    /// Show what a server does, again and again: rates, latency, lag, memory.
    #[command(
        after_help = "Examples:\n  tidemill top http://127.0.0.1:8740\n  tidemill top http://127.0.0.1:8740 --once --json"
    )]
    Top(TopArguments),
    /// Look at single transactions.
    #[command(subcommand)]
    Txn(TxnCommand),
    /// Create a folder with an application, data and a test.
    #[command(after_help = "Example:\n  tidemill new bank\n  tidemill run bank/app.py\n  pytest bank")]
    New(NewArguments),
    /// Print a script that completes commands and options in a shell.
    #[command(
        after_help = "Example:\n  tidemill completions bash > ~/.local/share/bash-completion/completions/tidemill"
    )]
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands to a folder.
    #[command(after_help = "Examples:\n  tidemill man | man -l -\n  tidemill man ~/.local/share/man/man1")]
    Man {
        /// The folder, which must be there.
        #[arg(value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
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
  tidemill serve bank.py --users users.json --jwt-keys jwks.json --jwt-issuer https://id.example --jwt-audience bank
  tidemill serve bank.py --users users.json --tls-cert cert.pem --tls-key key.pem --tls-client-ca clients.pem
  curl -d '{\"account\": \"ada\", \"amount\": 10}' http://127.0.0.1:8740/call/deposit
  curl http://127.0.0.1:8740/tables/accounts/ada
  psql -h 127.0.0.1 -p 5433 -c \"SELECT * FROM deposit('ada', 10)\"";

const VERIFY_HELP: &str = "\
Begins at the newest checkpoint, or at a savepoint, which keeps the log after it.
Exit code 5 and the first epoch, transaction or row that differs, if there is a difference.
The head of the chain of proof is a hash of all entries of the log up to an epoch. With '--anchor' it is compared with
one that this command, 'txn show' or a server's /health has shown before, and that was kept elsewhere.

Examples:
  tidemill verify ./state
  tidemill savepoint create ./state monday
  tidemill run bank.py --state ./state
  tidemill verify ./state --from monday";

#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The state directory. A run may go on with it meanwhile.
    #[arg(value_name = "DIR")]
    pub state: PathBuf,
    /// Begin at this savepoint.
    #[arg(long, value_name = "SAVEPOINT")]
    pub from: Option<String>,
    /// Compare the chain of proof with this head, which was noted elsewhere.
    #[arg(long, value_name = "HASH@EPOCH")]
    pub anchor: Option<Head>,
    /// Print what was verified as one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    #[command(flatten)]
    pub target: Target,
    /// Also say what a run would do with this state, and how large it is.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print what was found as one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub target: Target,
    /// Print the account as one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub target: Target,
    /// At most this many workers, each a thread, and no more than processors [default: one per processor].
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    workers: Option<usize>,
    /// End of an epoch: auto, after N events, or at an age of Xms (us, s).
    #[arg(long, value_name = "auto|N|Xms", default_value = "auto", value_parser = parse_epoch)]
    epoch: EpochSize,
    /// The time within which 99 of 100 events should have their results: epochs are as large as this allows, if
    /// '--epoch' is auto.
    #[arg(long, value_name = "Xms", default_value = "10ms", value_parser = parse_latency)]
    latency: u64,
    /// Way in which transactions are scheduled: by measured cost, or always as said, for instance 'epoch' (one after
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
    /// Time at which results are released: when their epoch is durable, or as soon as it is logged, with a sync every Xms
    /// (us, s). In the second case results released since the last sync are lost if the machine stops, and
    /// results may come twice. Needs a state [default: epoch].
    #[arg(long, value_name = "epoch|Xms", value_parser = parse_sync)]
    sync: Option<Sync>,
    /// The most memory that rows take, such as 2GiB: other rows are read from the state when they are needed.
    /// Needs a state.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<usize>,
    /// Content of the log of an epoch: what its sources gave ('border'), from which a replay makes everything else; or
    /// also what each transaction gave ('full'), which a replay is compared with. Needs a state [default: border].
    #[arg(long, value_name = "border|full", value_parser = parse_logging)]
    logging: Option<Logging>,
    /// Keep a chain of proof: a hash of each entry of the log, which covers all entries before it. 'off' ends the chain that
    /// the state has. Needs a state [default: on].
    #[arg(long, value_name = "on|off", value_parser = parse_proof)]
    proof: Option<Proving>,
    /// Take a checkpoint so often, such as 60s, where events come. Needs a state [default: only as the next two say].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    checkpoint_every: Option<Duration>,
    /// Take a checkpoint after so many bytes of log, such as 256MiB. Needs a state [default: 1GiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    checkpoint_bytes: Option<u64>,
    /// Take checkpoints so that the replay after a crash takes about so long, at most. Needs a state [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    checkpoint_replay: Option<Duration>,
    /// Keep so many keys of calls in memory, about; older ones are looked up in the state. Needs a state [default: 1048576].
    #[arg(long, value_name = "NUMBER", value_parser = parse_keys)]
    keys_in_memory: Option<usize>,
    /// Keep a savepoint of this name: the state as it is when the run begins, and the log after it. Needs a state.
    #[arg(long, value_name = "NAME")]
    savepoint: Option<String>,
    /// The end of the input is the end for good: everything that is held back is released, and what comes after that is
    /// refused. Otherwise the end is a pause in a run with a state: the next run continues with what was added. Without
    /// a state it is always the end.
    #[arg(long = "final")]
    is_final: bool,
    /// First have the program as the state has recorded it close what these windows, joins and other operators have
    /// open, which are others in the program now: their names with commas between. Needs a state.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    end: Vec<String>,
    /// Begin a new state, or a run without one, with the rows that a state or savepoint has in the tables of
    /// the same names. A state that has begun keeps its own.
    #[arg(long, value_name = "DIR")]
    seed: Option<PathBuf>,
    /// Write a record of each epoch to this Arrow file: sizes, policy and reason, expected and measured times.
    #[arg(long, value_name = "FILE")]
    epoch_records: Option<PathBuf>,
    /// Serve what is counted of the run to Prometheus: GET /metrics on this address, such as 127.0.0.1:9464. Nobody is asked
    /// who he is.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Allow an address that other machines reach for '--metrics'; of 'serve' also without '--users', or without
    /// '--tls-cert'.
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub log: LogArguments,
    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
    /// No progress bar and no readable summary.
    #[arg(long, short)]
    pub quiet: bool,
}

impl RunArguments {
    /// Returns the options of the run.
    pub fn options(&self) -> RunOptions {
        let RunArguments { epoch, latency, scheduling, sync, memory, logging, proof, is_final, .. } = *self;
        let RunArguments { checkpoint_every, checkpoint_bytes, checkpoint_replay, keys_in_memory, .. } = *self;
        let workers = self.workers.unwrap_or(0);
        RunOptions {
            engine: Options { workers, epoch, latency, scheduling, memory, ..Options::default() },
            state: self.state.clone(),
            sync,
            logging,
            proof,
            checkpoint_every,
            checkpoint_bytes,
            checkpoint_replay,
            keys_in_memory,
            savepoint: self.savepoint.clone(),
            is_final,
            ends: self.end.clone(),
            seed: self.seed.clone(),
            epoch_records: self.epoch_records.clone(),
            thresholds: self.log.thresholds(),
        }
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
    /// Returns the file and the name.
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
    /// The application to begin with.
    #[arg(long, value_enum, default_value_t)]
    pub template: Template,
}

/// An application to begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// From files to files.
    #[default]
    Files,
    /// From a topic of Kafka to topics.
    Kafka,
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
