//! `tidemill user`.

use crate::arguments::UserCommand;
use crate::{exit, say};
use serde_json::{Value, json};
use std::path::Path;
use tidemill_server::{Rights, User, Users, UsersError};

/// Changes or shows a file of users; the exit code.
pub fn user(command: &UserCommand) -> u8 {
    match execute(command) {
        Ok(said) => {
            said.iter().for_each(|line| say::out(line));
            exit::SUCCESS
        }
        Err(error) => {
            say::error(&error.to_string());
            exit::USAGE
        }
    }
}

fn execute(command: &UserCommand) -> Result<Vec<String>, UsersError> {
    match command {
        UserCommand::Add(arguments) => {
            let mut users = if arguments.file.exists() { Users::load(&arguments.file)? } else { Users::default() };
            let (name, rights) = (&arguments.name, arguments.rights());
            let secret = match arguments.no_secret {
                true => users.add_without_secret(name, rights).map(|()| None)?,
                false => Some(users.add(name, rights)?),
            };
            users.save(&arguments.file)?;
            let said = json!({"user": name, "secret": secret});
            Ok(if arguments.json { vec![said.to_string()] } else { secret.into_iter().collect() })
        }
        UserCommand::List { file, json } => {
            let users = Users::load(file)?.users;
            if *json {
                let users: Vec<_> = users.iter().map(user_json).collect();
                return Ok(vec![json!({"users": users}).to_string()]);
            }
            Ok(users.iter().map(|user| format!("{}: {}", user.name, user.rights)).collect())
        }
        UserCommand::Remove { file, name, json } => {
            change(file, |users| users.remove(name))?;
            Ok(if *json { vec![json!({"removed": name}).to_string()] } else { Vec::new() })
        }
    }
}

/// Returns a user with the rights, without what the secret is compared with.
fn user_json(user: &User) -> Value {
    let Rights { admin, call, read, push, subscribe, query, savepoint } = &user.rights;
    json!({
        "name": user.name, "admin": admin, "call": call, "read": read, "push": push, "subscribe": subscribe, "query": query,
        "savepoint": savepoint
    })
}

fn change(file: &Path, with: impl FnOnce(&mut Users) -> Result<(), UsersError>) -> Result<(), UsersError> {
    let mut users = Users::load(file)?;
    with(&mut users)?;
    users.save(file)
}
