//! The settings of `run` and `serve`: of the command line, of the environment, of a file, in this order; what is nowhere
//! said has its default.
//!
//! In the environment an option has the name `TIDEMILL_` and its own in capitals, `_` for `-`. The file is TOML: options by
//! their names, and tables `[run]` and `[serve]` for what only one of the two is to have. What the file says is put behind
//! the command line as if it stood there, so both are checked by the same grammar.

use crate::arguments::Arguments;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, Error, FromArgMatches};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The commands that have settings.
const SETTABLE: [&str; 2] = ["run", "serve"];
/// The option that names the file.
const FILE: &str = "config";

/// Returns the name that an option has in the environment. That of `--seed` is longer, since tests have one of the
/// short name.
pub fn environment_name(option: &str) -> String {
    let option = if option == "seed" { "seed-from" } else { option };
    format!("TIDEMILL_{}", option.to_uppercase().replace('-', "_"))
}

/// Returns the grammar, with the names of the environment.
pub fn command() -> Command {
    SETTABLE.iter().fold(Arguments::command(), |command, name| {
        command.mut_subcommand(*name, |command| command.mut_args(from_environment))
    })
}

fn from_environment(arg: Arg) -> Arg {
    match arg.get_long().map(environment_name) {
        Some(name) if !is_help(&arg) => arg.env(name).hide_env(true),
        _ => arg,
    }
}

fn is_help(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
}

/// Returns the arguments of a command line, with what environment and file say.
pub fn parse(given: Vec<OsString>) -> Result<Arguments, Error> {
    let Some((name, path, known)) = file_of(&given) else { return of(given) };
    let settings = read(&path).and_then(|table| settings(&table, &name)).map_err(|why| refused(&path, &why))?;
    let command = command();
    let subcommand = command.find_subcommand(&name).expect("it was found before");
    let mut all = given.clone();
    for (option, value) in &settings {
        let arg = subcommand.get_arguments().find(|arg| arg.get_long() == Some(option)).expect("it was looked up");
        if !is_said(&known, arg) && !subcommand.get_arg_conflicts_with(arg).iter().any(|arg| is_said(&known, arg)) {
            all.extend(tokens(arg, value).map_err(|why| refused(&path, &why))?);
        }
    }
    of(all).map_err(|error| if of(given).is_ok() { refused(&path, &reason(&error)) } else { error })
}

fn of(given: Vec<OsString>) -> Result<Arguments, Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(given)?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the file that is named, with the command and what is known of its options; none if there is none.
fn file_of(given: &[OsString]) -> Option<(String, PathBuf, ArgMatches)> {
    let matches = command().ignore_errors(true).try_get_matches_from(given).ok()?;
    let (name, known) = matches.subcommand()?;
    let path = SETTABLE.contains(&name).then(|| known.get_one::<PathBuf>(FILE).cloned())??;
    Some((name.to_owned(), path, known.clone()))
}

/// Returns whether command line or environment say something of an option.
fn is_said(known: &ArgMatches, arg: &Arg) -> bool {
    let source = known.value_source(arg.get_id().as_str());
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

fn read(path: &Path) -> Result<Table, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    text.parse().map_err(|error: toml::de::Error| error.to_string())
}

/// Returns the options of a command that a file sets; those of its own table go before those of all.
fn settings(table: &Table, name: &str) -> Result<Vec<(String, Value)>, String> {
    let mut found: Vec<(String, Value)> = Vec::new();
    let mut set = |key: &str, value: &Value, of: &[&str]| {
        let option = key.replace('_', "-");
        if !of.iter().any(|command| has(command, &option)) {
            return Err(format!("'{key}' is no option of {}", of.join(" and ")));
        }
        if has(name, &option) {
            found.retain(|(known, _)| *known != option);
            found.push((option, value.clone()));
        }
        Ok(())
    };
    for (key, value) in table.iter().filter(|(key, _)| !SETTABLE.contains(&key.as_str())) {
        set(key, value, &SETTABLE)?;
    }
    for own in SETTABLE {
        let Some(section) = table.get(own) else { continue };
        let section = section.as_table().ok_or_else(|| format!("'{own}' is a table: [{own}]"))?;
        for (key, value) in section {
            if own == name {
                set(key, value, &[own])?;
            } else if !has(own, &key.replace('_', "-")) {
                return Err(format!("'{key}' is no option of {own}"));
            }
        }
    }
    Ok(found)
}

fn has(name: &str, option: &str) -> bool {
    let command = Arguments::command();
    let subcommand = command.find_subcommand(name).expect("a command that there is");
    option != FILE && subcommand.get_arguments().any(|arg| arg.get_long() == Some(option) && !is_help(arg))
}

/// Returns an option and its value, as they would stand on the command line.
fn tokens(arg: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    let option = arg.get_long().expect("an option has a name");
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_set = value.as_bool().ok_or_else(|| format!("'{option}' is true or false"))?;
        return Ok(if is_set { vec![format!("--{option}").into()] } else { Vec::new() });
    }
    let one = |value: &Value| match value {
        Value::String(text) => Ok(format!("--{option}={text}").into()),
        Value::Integer(number) => Ok(format!("--{option}={number}").into()),
        _ => Err(format!("'{option}' is a text or a number")),
    };
    match value {
        Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// Returns an error of the file.
fn refused(path: &Path, why: &str) -> Error {
    Error::raw(ErrorKind::InvalidValue, format!("{}: {}\n", path.display(), why.trim_end()))
}

/// Returns the sentence of an error, without how to get help.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let sentence = text.trim_start_matches("error: ");
    sentence.split("\n\n").next().unwrap_or(sentence).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(text: &str, name: &str) -> Result<Vec<(String, String)>, String> {
        let table: Table = text.parse().expect("TOML");
        let found = settings(&table, name)?;
        Ok(found.into_iter().map(|(option, value)| (option, serde_json::json!(value).to_string())).collect())
    }

    #[test]
    fn each_option_has_one_name_in_the_environment() {
        let command = command();
        let mut names: Vec<String> = Vec::new();
        for name in SETTABLE {
            let subcommand = command.find_subcommand(name).expect("it is there");
            for arg in subcommand.get_arguments().filter(|arg| arg.get_long().is_some() && !is_help(arg)) {
                let env = arg.get_env().expect("each has one").to_str().expect("text").to_owned();
                assert_eq!(env, environment_name(arg.get_long().expect("a long name")));
                names.push(format!("{name} {env}"));
            }
        }
        assert!(names.contains(&"serve TIDEMILL_TLS_CERT".into()) && names.contains(&"run TIDEMILL_STATE".into()));
        assert!(!names.contains(&"run TIDEMILL_SEED".into()), "tests of the project have it");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_table_of_a_command_goes_before() {
        let text = "workers = 2\nport = 9000\n[serve]\nworkers = 3\n[run]\nquiet = true";
        let of = |name| settings_of(text, name).expect("all are right");
        assert_eq!(of("serve"), [("port".into(), "9000".into()), ("workers".into(), "3".into())]);
        assert_eq!(of("run"), [("workers".into(), "2".into()), ("quiet".into(), "true".into())]);
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for (text, why) in [
            ("speed = 1", "'speed' is no option of run and serve"),
            ("config = 'other.toml'", "'config' is no option of run and serve"),
            ("help = true", "'help' is no option of run and serve"),
            ("[run]\nport = 1", "'port' is no option of run"),
            ("run = 1", "'run' is a table: [run]"),
        ] {
            assert_eq!(settings_of(text, "run").unwrap_err(), why);
            assert_eq!(settings_of(text, "serve").unwrap_err(), why);
        }
    }
}
