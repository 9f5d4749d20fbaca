//! A server in this process, and what every input is held to: nothing panics (libFuzzer ends the process if a thread does),
//! a connection ends when its client has ended, and another client is served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidemill_connect::System;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, event, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Logging, Options, Request, SentSource, Session};
use tidemill_server::{Limits, ServeOptions, Server};

/// The longest time that a connection may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of inputs of which one is followed by a call of another client.
const CALLED: u64 = 16;

/// Deposits that are called, and clicks that are pushed.
fn plan() -> Plan {
    PlanBuilder::new("bank")
        .table("accounts", |t| t.key("account", Type::Str).column_or("balance", Type::Int, Value::Int(0)))
        .source("deposits", |s| s.field("account", Type::Str).field("amount", Type::Int))
        .source("clicks", |s| s.field("account", Type::Str).field("times", Type::Int))
        .transaction("deposit", [named("deposits")], |t| {
            t.create("a", "accounts", [event("account")]).body(|b| {
                b.require(event("amount").gt(0), "amount must be positive");
                b.set("a", "balance", cell("a", "balance") + event("amount"));
                b.give([("account", cell("a", "account")), ("balance", cell("a", "balance"))]);
            })
        })
        .transaction("click", [named("clicks")], |t| {
            t.create("a", "accounts", [event("account")])
                .body(|b| b.set("a", "balance", cell("a", "balance") + event("times")))
        })
        .build()
}

/// A server and the session that it serves.
pub struct Served {
    server: Server,
}

impl Served {
    /// Returns the one of this process.
    pub fn here() -> &'static Served {
        static SERVED: OnceLock<Served> = OnceLock::new();
        SERVED.get_or_init(Served::start)
    }

    fn start() -> Served {
        // As the runtime of Rust does before `main`, which libFuzzer has here.
        // SAFETY: no handler is installed, and no other thread runs yet.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let program = analyze(&plan()).expect("a right plan");
        let sources = program.sources().count();
        let engine = Engine::for_session(program, Logging::default()).expect("it compiles");
        let request = Request {
            options: Options { workers: 1, ..Options::default() },
            ..Request::new(
                (0..sources).map(|_| Box::new(SentSource) as _).collect(),
                Vec::new(),
                Arc::new(System::new()),
            )
        };
        let session = Session::start(engine, request, &mut || {}, Box::new(|| {})).expect("it starts");
        let limits = Limits { body_bytes_max: 1 << 16, silence_max: Duration::from_secs(2), ..Limits::default() };
        let options = ServeOptions { port: 0, postgres_port: Some(0), limits, ..ServeOptions::default() };
        Served { server: Server::start(Arc::new(session), options).expect("a port is free") }
    }

    /// Returns the address at which it speaks HTTP.
    pub fn http(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the address at which it speaks the protocol of PostgreSQL.
    pub fn postgres(&self) -> SocketAddr {
        let url = self.server.postgres_url("fuzz").expect("it is spoken");
        let address = url.split(['@', '/', '?']).find_map(|part| part.parse().ok());
        address.unwrap_or_else(|| panic!("{url} has no address"))
    }

    /// Calls a procedure over HTTP once in a while.
    pub fn check(&self) {
        static INPUTS: AtomicU64 = AtomicU64::new(0);
        if !INPUTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(CALLED) {
            return;
        }
        let body = br#"{"account": "another", "amount": 1}"#;
        let head = format!(
            "POST /call/deposit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let said = answered(self.http(), &[head.as_bytes(), body].concat());
        assert!(said.starts_with(b"HTTP/1.1 200"), "another client is told {:?}", String::from_utf8_lossy(&said));
    }
}

/// A mark in the head of a response that goes on until the client leaves.
const STREAM: &[u8] = b"text/event-stream";

/// The time that a client waits for the first answer before it says that nothing follows: over HTTP, requests are given
/// up then.
const FIRST_ANSWER: Duration = Duration::from_millis(5);

/// Returns all that comes for these bytes, to the end of the connection; a stream of events is left.
pub fn answered(address: SocketAddr, content: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the server takes connections");
    // It may close before all is sent.
    let _ = stream.write_all(content);
    stream.set_read_timeout(Some(FIRST_ANSWER)).expect("a timeout");
    let _ = stream.peek(&mut [0]);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (mut said, mut part) = (Vec::new(), [0; 1 << 12]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return said,
            Ok(count) => said.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the connection has not ended after {PATIENCE:?}; so far: {:?}", String::from_utf8_lossy(&said))
            }
            Err(_) => return said,
        }
        if said.windows(STREAM.len()).any(|bytes| bytes == STREAM) {
            return said;
        }
    }
}
