//! The commands that work on a file of users.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use tidemill_server::Rights;

const USER_HELP: &str = "\
The secret is printed once, and is kept nowhere. It is the password of PostgreSQL's clients, and the token of HTTP's:
Authorization: Bearer SECRET. A server that runs reads the file again.

Examples:
  tidemill user add users.json ada --admin
  tidemill user add users.json shop --call deposit,transfer --read accounts --subscribe transfer.committed
  tidemill user add users.json report --read '*' --query
  tidemill user add users.json till --no-secret --call deposit
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
        /// Print them as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove a user from a file. A server that runs lets the user in no more.
    #[command(after_help = "Example:\n  tidemill user remove users.json shop")]
    Remove {
        /// The file of users.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The user.
        #[arg(value_name = "NAME")]
        name: String,
        /// Print what was done as one JSON object.
        #[arg(long)]
        json: bool,
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
    /// May ask queries over the tables that may be read.
    #[arg(long)]
    query: bool,
    /// May make savepoints.
    #[arg(long)]
    savepoint: bool,
    /// Give it no secret: a certificate ('serve --tls-client-ca') or a JWT ('serve --jwt-keys') says who it is.
    #[arg(long)]
    pub no_secret: bool,
    /// Print name and secret as one JSON object.
    #[arg(long)]
    pub json: bool,
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
            query: self.query,
            savepoint: self.savepoint,
        }
    }
}
