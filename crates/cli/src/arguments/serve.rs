//! The options of `tidemill serve`.

use super::RunArguments;
use crate::epoch::parse_memory;
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;
use std::time::Duration;
use tidemill_server::{
    ClientCertificates, JwtOptions, Limits, PORT, POSTGRES_PORT, ServeOptions, TlsFiles, TraceOptions,
    WithoutCertificate,
};

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
    /// Take certificates of clients, signed by these authorities (PEM), whose common name (CN) is a user of '--users':
    /// --tls-client-ca clients.pem.
    #[arg(long, value_name = "FILE", requires = "tls_cert", requires = "users", help_heading = "Server")]
    tls_client_ca: Option<PathBuf>,
    /// Ask a client without a certificate for a password or token, or refuse it: --tls-client required.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "optional",
        requires = "tls_client_ca",
        help_heading = "Server"
    )]
    tls_client: ClientMode,
    /// Take JWTs (RS256, ES256, EdDSA) whose 'sub' is a user of '--users', signed by a key of this JWKS, which is read again when
    /// it changes: --jwt-keys jwks.json --jwt-issuer https://id.example --jwt-audience bank.
    #[arg(
        long,
        value_name = "FILE",
        requires = "jwt_issuer",
        requires = "jwt_audience",
        requires = "users",
        help_heading = "Server"
    )]
    jwt_keys: Option<PathBuf>,
    /// The issuer ('iss') of the JWTs that are taken.
    #[arg(long, value_name = "TEXT", requires = "jwt_keys", help_heading = "Server")]
    jwt_issuer: Option<String>,
    /// The audience ('aud') of the JWTs that are taken, or one of theirs.
    #[arg(long, value_name = "TEXT", requires = "jwt_keys", help_heading = "Server")]
    jwt_audience: Option<String>,
    /// Send what '/metrics' counts by OpenTelemetry, to where the environment's OTEL_EXPORTER_OTLP_ENDPOINT says.
    #[arg(long, help_heading = "Server")]
    pub telemetry: bool,
    /// Send traces of calls to a collector of OpenTelemetry, by OTLP over HTTP: --traces http://127.0.0.1:4318.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    traces: Option<String>,
    /// The share of calls that are traced, of those whose clients do not say it by a 'traceparent'.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, requires = "traces", help_heading = "Server")]
    traces_share: f64,
    /// Keep the last N events of a stream in memory: a reader that was cut off goes on after the last one that it has.
    #[arg(long, value_name = "STREAM=N", value_parser = parse_kept, help_heading = "Server")]
    pub keep: Vec<(String, usize)>,
    #[command(flatten)]
    limits: LimitArguments,
}

/// The treatment of clients without a certificate.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ClientMode {
    /// They are asked for a password or a token.
    Optional,
    /// They are refused.
    Required,
}

/// The most of each resource that clients may occupy.
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
    /// The most bytes of tables that responses hold until their clients take them, such as 1GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "256MiB", help_heading = "Limits")]
    responses_bytes_max: usize,
    /// The most bytes of statements and portals that clients of PostgreSQL prepare, such as 1GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "512MiB", help_heading = "Limits")]
    prepared_bytes_max: usize,
    /// The most bytes of a request's body, or of a message.
    #[arg(long, value_name = "N", default_value_t = Limits::default().body_bytes_max, help_heading = "Limits")]
    body_bytes_max: usize,
    /// The most queries that run at once, each in a process of its own. Of several, one is kept for the catalogs.
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
    /// The memory of all queries together, half of it for the tables that they read, such as 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "1GiB", help_heading = "Limits")]
    query_memory_max: usize,
    /// The longest that a connection may be silent, a body or a message may take, and a client may take nothing.
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..), default_value_t = Limits::default().silence_max.as_secs(), help_heading = "Limits")]
    silence_seconds_max: u64,
    /// The longest time that the end waits for what is under way.
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
            responses_bytes_max,
            prepared_bytes_max,
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
            responses_bytes_max,
            prepared_bytes_max,
            body_bytes_max,
            silence_max: Duration::from_secs(silence_seconds_max),
            drain_max: Duration::from_secs(drain_seconds_max),
        }
    }
}

/// Parses a stream, and a number of events.
fn parse_kept(text: &str) -> Result<(String, usize), String> {
    let kept = text.split_once('=').and_then(|(stream, events)| Some((stream.to_owned(), events.parse().ok()?)));
    kept.filter(|(_, events)| *events > 0).ok_or_else(|| {
        format!("'{text}' is not a stream and a number of events; give one such as deposit.committed=100000")
    })
}

impl ServeArguments {
    /// Returns the addresses, users, encryption and limits to serve with.
    pub fn options(&self) -> ServeOptions {
        let (port, insecure) = (self.port, self.run.insecure);
        // One who wants any port has several servers, perhaps.
        let postgres_port = self.postgres_port.unwrap_or(if port == 0 { 0 } else { POSTGRES_PORT });
        let postgres_port = (!self.no_postgres).then_some(postgres_port);
        let users = self.users.clone();
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let without = match self.tls_client {
            ClientMode::Optional => WithoutCertificate::IsAsked,
            ClientMode::Required => WithoutCertificate::IsRefused,
        };
        let clients = self.tls_client_ca.clone().map(|authority| ClientCertificates { authority, without });
        let tls = files.map(|(certificate, key)| TlsFiles { certificate, key, clients });
        let named = self.jwt_issuer.clone().zip(self.jwt_audience.clone());
        let jwt = self.jwt_keys.clone().zip(named);
        let jwt = jwt.map(|(keys, (issuer, audience))| JwtOptions { keys, issuer, audience });
        let traces = self.traces.clone().map(|url| TraceOptions { url, share: self.traces_share });
        let limits = self.limits.limits();
        ServeOptions { host: self.host.clone(), port, postgres_port, users, jwt, tls, insecure, traces, limits }
    }
}
