//! `tidemill user`.

use crate::arguments::UserCommand;
use crate::{exit, say};
use std::path::Path;
use tidemill_server::{Users, UsersError};

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
            let secret = users.add(&arguments.name, arguments.rights())?;
            users.save(&arguments.file)?;
            Ok(vec![secret])
        }
        UserCommand::List { file } => {
            let users = Users::load(file)?.users;
            Ok(users.iter().map(|user| format!("{}: {}", user.name, user.rights)).collect())
        }
        UserCommand::Remove { file, name } => change(file, |users| users.remove(name)),
    }
}

fn change(file: &Path, with: impl FnOnce(&mut Users) -> Result<(), UsersError>) -> Result<Vec<String>, UsersError> {
    let mut users = Users::load(file)?;
    with(&mut users)?;
    users.save(file)?;
    Ok(Vec::new())
}
