//! Settings of a connection. Those that would change what is sent have the one value that is spoken here.

use super::error::{PgError, PgResult, code};
use super::names::text_of;
use super::statement::Statement;
use sqlparser::ast::{Expr, ObjectName, ObjectNamePart, Set, TransactionAccessMode, TransactionMode, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use tidemill_runtime::When;

/// The version of PostgreSQL whose protocol and functions clients may expect.
pub const SERVER_VERSION: &str = "15.0";

/// The settings that clients are told at the start and after each change.
const REPORTED: [&str; 12] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "is_superuser",
    "session_authorization",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "in_hot_standby",
];

/// Names and values at the start.
pub const DEFAULTS: [(&str, &str); 25] = [
    ("server_version", SERVER_VERSION),
    ("server_version_num", "150000"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("application_name", ""),
    ("is_superuser", "off"),
    ("session_authorization", ""),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("in_hot_standby", "off"),
    ("search_path", "public"),
    ("transaction_isolation", "serializable"),
    ("default_transaction_isolation", "serializable"),
    ("transaction_read_only", "off"),
    ("default_transaction_read_only", "off"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("default_table_access_method", "heap"),
    ("jit", "off"),
    ("statement_timeout", "0"),
    ("synchronous_commit", "on"),
    ("extra_float_digits", "1"),
];

/// The settings that say what this server is.
const FIXED: [&str; 12] = [
    "server_version",
    "server_version_num",
    "server_encoding",
    "is_superuser",
    "session_authorization",
    "integer_datetimes",
    "in_hot_standby",
    "max_identifier_length",
    "max_index_keys",
    "default_table_access_method",
    "transaction_isolation",
    "transaction_read_only",
];

/// The most settings that a client may make up, and the bytes of a value.
const OWN_MAX: usize = 100;
const VALUE_BYTES_MAX: usize = 1_000;

/// The settings of a connection.
#[derive(Clone)]
pub struct Settings {
    /// The settings that were set, by name in lower case.
    set: BTreeMap<String, String>,
    /// The settings of the start, to which they are reset.
    first: BTreeMap<String, String>,
    user: String,
    /// The value of `statement_timeout`; None if there is no limit.
    statement_time_max: Option<Duration>,
    /// The value of `synchronous_commit`: the moment when a call is answered.
    reply_when: When,
}

impl Settings {
    /// Makes the settings at the start of a connection. What cannot be had is left as it is: the client is told.
    pub fn of(user: String, parameters: &[(String, String)]) -> Settings {
        let (set, first) = (BTreeMap::new(), BTreeMap::new());
        let mut settings = Settings { set, first, user, statement_time_max: None, reply_when: When::Durable };
        for (name, value) in parameters {
            if name == "options" {
                for (name, value) in options(value) {
                    let _ = settings.set(name, Some(value));
                }
            } else if !matches!(name.as_str(), "user" | "database" | "replication") {
                let _ = settings.set(name, Some(value));
            }
        }
        settings.first = settings.set.clone();
        settings
    }

    /// Returns the settings that a client is told at the start.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        REPORTED.iter().map(|&name| (name, self.get(name).expect("it has a value")))
    }

    /// Returns the value of a setting.
    pub fn get(&self, name: &str) -> PgResult<String> {
        let lower = name.to_lowercase();
        if lower == "session_authorization" {
            return Ok(self.user.clone());
        }
        let default = || default_of(&lower).map(|(_, value)| (*value).to_owned());
        let unknown = || PgError::new(code::NO_SETTING, format!("there is no setting '{name}'"));
        self.set.get(&lower).cloned().or_else(default).ok_or_else(unknown)
    }

    /// Sets a setting, or its default; gives what is to be told of it.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> PgResult<Option<(&'static str, String)>> {
        let lower = match name.to_lowercase().as_str() {
            "time_zone" => "timezone".to_owned(),
            "names" => "client_encoding".to_owned(),
            lower => lower.to_owned(),
        };
        match value {
            None => match self.first.get(&lower) {
                Some(first) => _ = self.set.insert(lower.clone(), first.clone()),
                None => _ = self.set.remove(&lower),
            },
            Some(value) => {
                check(&lower, value)?;
                let is_new = default_of(&lower).is_none() && !self.set.contains_key(&lower);
                if is_new && self.set.len() >= OWN_MAX || value.len() > VALUE_BYTES_MAX {
                    return Err(PgError::new(code::OVER_LIMIT, "too many settings, or too long a value"));
                }
                // A value that means the same as the one that is spoken is that one.
                if only(&lower).is_none() {
                    let value = if lower == TIMEOUT { shown(milliseconds(value)?) } else { value.to_owned() };
                    self.set.insert(lower.clone(), value);
                }
            }
        }
        self.look();
        let told = REPORTED.iter().find(|told| told.to_lowercase() == lower);
        Ok(told.map(|told| (*told, self.get(told).expect("it has a value"))))
    }

    /// Sets all settings back to their values at the start.
    pub fn reset(&mut self) {
        self.set = self.first.clone();
        self.look();
    }

    /// Returns the longest time that a statement may take; None if the client sets no limit.
    pub fn statement_time_max(&self) -> Option<Duration> {
        self.statement_time_max
    }

    /// Returns the moment when the replies of calls are sent.
    pub fn reply_when(&self) -> When {
        self.reply_when
    }

    fn look(&mut self) {
        let said = self.set.get(TIMEOUT).map_or(0, |said| milliseconds(said).expect("it was checked when it was set"));
        self.statement_time_max = (said > 0).then(|| Duration::from_millis(said));
        let commit = self.set.get(COMMIT).map(|said| said.to_lowercase());
        let is_off = commit.is_some_and(|said| OFF.contains(&said.as_str()));
        self.reply_when = if is_off { When::Executed } else { When::Durable };
    }
}

const TIMEOUT: &str = "statement_timeout";

/// The setting that says when a call is replied to: with one of `OFF` once it has run, else once it is durable.
const COMMIT: &str = "synchronous_commit";
const OFF: [&str; 4] = ["off", "false", "no", "0"];
const ON: [&str; 7] = ["on", "true", "yes", "1", "local", "remote_write", "remote_apply"];

/// Returns the names and values in a client's `-c name=value --name=value`.
fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let word = |word: &'_ str| word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word).len();
    text.split_whitespace().filter_map(move |given| given[given.len() - word(given)..].split_once('='))
}

/// The units of times, as PostgreSQL has them, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// Returns a time of a setting, in milliseconds; it is in these where no unit is said.
fn milliseconds(text: &str) -> PgResult<u64> {
    let wrong = || {
        let message = format!("invalid value for setting '{TIMEOUT}': '{text}'");
        let hint = "give milliseconds, or a time with its unit: us, ms, s, min, h or d";
        PgError::new(code::BAD_VALUE_OF_SETTING, message).hint(hint)
    };
    let text = text.trim();
    let unit_at = text.find(|sign: char| sign.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..unit_at].trim(), text[unit_at..].trim());
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let of_unit = match unit {
        "" => 1.0,
        "us" => 0.001,
        unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1 as f64,
    };
    let milliseconds = (number * of_unit).round();
    if (0.0..=f64::from(i32::MAX)).contains(&milliseconds) { Ok(milliseconds as u64) } else { Err(wrong()) }
}

/// Returns a time in the largest unit that it is a whole number of.
fn shown(milliseconds: u64) -> String {
    match UNITS.iter().find(|(_, unit)| milliseconds > 0 && milliseconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", milliseconds / unit),
        None => "0".to_owned(),
    }
}

fn default_of(lower: &str) -> Option<&'static (&'static str, &'static str)> {
    DEFAULTS.iter().find(|(name, _)| name.to_lowercase() == lower)
}

/// Returns the values that mean what is spoken here, for the settings that would change it.
fn only(lower: &str) -> Option<&'static [&'static str]> {
    Some(match lower {
        "client_encoding" => &["utf8", "utf-8", "unicode"],
        "datestyle" => &["iso", "iso, mdy", "iso,mdy", "iso, dmy", "iso, ymd"],
        "timezone" => &["utc", "gmt", "etc/utc", "zulu", "0"],
        "intervalstyle" => &["postgres", "iso_8601"],
        "standard_conforming_strings" => &["on", "true", "1"],
        "search_path" => &["public"],
        "default_transaction_isolation" => &["serializable", "repeatable read", "read committed", "read uncommitted"],
        "default_transaction_read_only" => &["off", "false", "0"],
        _ => return None,
    })
}

fn check(lower: &str, value: &str) -> PgResult<()> {
    if FIXED.contains(&lower) {
        return Err(PgError::new(code::BAD_VALUE_OF_SETTING, format!("setting '{lower}' cannot be changed")));
    }
    let said = value.to_lowercase();
    if lower == COMMIT && !ON.contains(&said.as_str()) && !OFF.contains(&said.as_str()) {
        let message = format!("invalid value for setting '{COMMIT}': '{value}'");
        return Err(PgError::new(code::BAD_VALUE_OF_SETTING, message).hint("it may be on or off"));
    }
    let Some(values) = only(lower) else { return Ok(()) };
    // Schemas that are not there are passed over, as in PostgreSQL.
    let has_public = || value.split(',').any(|name| name.trim().trim_matches('"').eq_ignore_ascii_case("public"));
    if values.contains(&value.to_lowercase().as_str()) || lower == "search_path" && has_public() {
        return Ok(());
    }
    let message = format!("not supported yet: '{value}' for setting '{lower}'");
    Err(PgError::new(code::NOT_SUPPORTED, message).hint(format!("it is '{}'", values[0])))
}

/// Returns the name of a setting from the words after `SHOW`.
pub fn shown_name(words: &[String]) -> String {
    match words.join("_").as_str() {
        "transaction_isolation_level" => "transaction_isolation".to_owned(),
        "time_zone" => "timezone".to_owned(),
        name => name.to_owned(),
    }
}

/// Translates a `SET`.
pub fn set_of(set: &Set) -> PgResult<Statement> {
    match set {
        Set::SingleAssignment { hivevar: false, variable, values, .. } => {
            let texts: Vec<String> = values.iter().map(value_text).collect::<PgResult<_>>()?;
            let text = texts.join(", ");
            let is_default = text.eq_ignore_ascii_case("default");
            Ok(Statement::Set(name_of(variable)?, (!is_default).then_some(text)))
        }
        Set::SetTimeZone { value, .. } => {
            let text = value_text(value)?;
            let is_default = text.eq_ignore_ascii_case("default") || text.eq_ignore_ascii_case("local");
            Ok(Statement::Set("timezone".into(), (!is_default).then_some(text)))
        }
        Set::SetNames { charset_name, collation_name: None } => {
            Ok(Statement::Set("client_encoding".into(), Some(charset_name.value.clone())))
        }
        Set::SetNamesDefault {} => Ok(Statement::Set("client_encoding".into(), None)),
        Set::SetTransaction { modes, snapshot: None, session } => match (read_only(modes), session) {
            // All are serializable, whatever is asked for.
            (None, _) => Ok(Statement::Accepted("SET")),
            (Some(read_only), false) => Ok(Statement::ReadOnly(read_only)),
            (Some(read_only), true) => {
                let value = if read_only { "on" } else { "off" };
                Ok(Statement::Set("default_transaction_read_only".into(), Some(value.into())))
            }
        },
        other => Err(PgError::not_supported(other)),
    }
}

/// Returns whether transaction modes make a block read only; None if they do not say.
pub fn read_only(modes: &[TransactionMode]) -> Option<bool> {
    let access = modes.iter().rev().find_map(|mode| match mode {
        TransactionMode::AccessMode(access) => Some(*access),
        TransactionMode::IsolationLevel(_) => None,
    });
    access.map(|access| access == TransactionAccessMode::ReadOnly)
}

/// Returns the name of a setting.
pub fn name_of(name: &ObjectName) -> PgResult<String> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Ok(text_of(ident)),
        ObjectNamePart::Function(_) => Err(PgError::not_supported(format!("a setting {name}"))),
    };
    Ok(name.0.iter().map(part).collect::<PgResult<Vec<_>>>()?.join("."))
}

fn value_text(expression: &Expr) -> PgResult<String> {
    Ok(match expression {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
            Value::Number(text, _) => text.clone(),
            Value::Boolean(value) => if *value { "on" } else { "off" }.to_owned(),
            other => return Err(PgError::not_supported(format!("{other} as a setting"))),
        },
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_settings() {
        let of = |text: &str| milliseconds(text).map(shown).map_err(|error| error.code);
        for (text, is) in [
            ("0", "0"),
            ("300", "300ms"),
            ("300ms", "300ms"),
            (" 5000 ", "5s"),
            ("1.5 s", "1500ms"),
            ("90s", "90s"),
            ("120s", "2min"),
            ("24h", "1d"),
            ("2000us", "2ms"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(is), "{text}");
        }
        for text in ["", "ms", "-1", "1 year", "5S", "nan", "1e300", "30d", "infinity", "1s2"] {
            assert_eq!(of(text), Err(code::BAD_VALUE_OF_SETTING), "{text}");
        }
    }

    #[test]
    fn a_statement_has_the_time_that_was_set_last() {
        let options = [("options".to_owned(), "-c statement_timeout=2s --search_path=public -c geqo=off".to_owned())];
        let mut settings = Settings::of("ada".into(), &options);
        let seconds = |settings: &Settings| settings.statement_time_max().map(|time| time.as_secs_f64());
        assert_eq!(seconds(&settings), Some(2.0));
        settings.set("Statement_Timeout", Some("0.3s")).expect("a time");
        assert_eq!((seconds(&settings), settings.get("statement_timeout").as_deref()), (Some(0.3), Ok("300ms")));
        settings.set("statement_timeout", Some("soon")).expect_err("no time");
        assert_eq!(seconds(&settings), Some(0.3));
        settings.set("statement_timeout", Some("0")).expect("none");
        assert_eq!(seconds(&settings), None);
        settings.set("statement_timeout", None).expect("that of the start");
        assert_eq!(seconds(&settings), Some(2.0));
        settings.set("statement_timeout", Some("1")).expect("a time");
        settings.reset();
        assert_eq!((seconds(&settings), settings.get("geqo").as_deref()), (Some(2.0), Ok("off")));
    }

    #[test]
    fn a_search_path_has_public() {
        let mut settings = Settings::of("ada".into(), &[]);
        for path in ["public, \"$user\"", "\"$user\", public", "a,b, \"public\" ,c", "PUBLIC"] {
            assert_eq!(settings.set("search_path", Some(path)), Ok(None), "{path}");
        }
        for path in ["", "publics", "\"$user\""] {
            assert_eq!(settings.set("search_path", Some(path)).map_err(|e| e.code), Err(code::NOT_SUPPORTED), "{path}");
        }
        assert_eq!(settings.get("search_path").as_deref(), Ok("public"));
    }

    #[test]
    fn settings_are_what_is_spoken() {
        let parameters = [("TimeZone", "Europe/Berlin"), ("application_name", "psql"), ("user", "ada")];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut settings = Settings::of("ada".into(), &parameters);
        assert_eq!(settings.get("timezone").as_deref(), Ok("UTC"));
        assert_eq!(settings.get("application_name").as_deref(), Ok("psql"));
        assert_eq!(settings.get("session_authorization").as_deref(), Ok("ada"));
        assert_eq!(settings.set("client_encoding", Some("'x")).map_err(|e| e.code), Err(code::NOT_SUPPORTED));
        assert_eq!(settings.set("Client_Encoding", Some("utf-8")), Ok(Some(("client_encoding", "UTF8".into()))));
        assert_eq!(settings.set("server_version", Some("9")).map_err(|e| e.code), Err(code::BAD_VALUE_OF_SETTING));
        assert_eq!(settings.set("my.own", Some("5")), Ok(None));
        assert_eq!(settings.get("MY.OWN").as_deref(), Ok("5"));
        settings.reset();
        assert_eq!(settings.get("my.own").map_err(|e| e.code), Err(code::NO_SETTING));
        assert_eq!(settings.get("application_name").as_deref(), Ok("psql"));
    }
}
