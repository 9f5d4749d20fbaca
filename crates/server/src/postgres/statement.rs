//! The meaning of a statement.

use super::backend::Described;
use super::error::{PgError, PgResult, code};
use super::frontend::Bind;
use super::given::Given;
use super::types::PgType;
use crate::traces::Parent;
use tidemill_model::Value;

/// A value that a statement gives to a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    Given(Given),
    /// A parameter by its place, perhaps with a cast.
    Parameter(usize, Option<PgType>),
}

/// A call of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub procedure: usize,
    /// Fields by number, with their values. What is left out is None.
    pub arguments: Vec<(usize, Argument)>,
    /// The columns that are asked for, as places in the record that the procedure returns.
    pub columns: Vec<usize>,
    /// The command tag of the answer: `SELECT` with the number of rows if set, or else `CALL`.
    pub is_select: bool,
}

/// A read of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    pub table: usize,
    pub columns: Vec<usize>,
    /// The value of each column of the key, in its order; without it all rows are read.
    pub key: Option<Vec<Argument>>,
    pub limit: Option<Argument>,
}

/// A property of the connection or the server that SQL can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    Version,
    Schema,
    Database,
    User,
    Process,
    /// A flag: whether the server is a replica; always false.
    IsReplica,
    /// The release of all advisory locks: there are none.
    UnlockAll,
}

/// A column of a result that is not read from a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    Given(Given),
    Fact(Fact),
    /// The value of a setting.
    Setting(String),
}

/// A query that is not understood here, for the engine that answers those. It is parsed again when it is executed: a parsed
/// one takes many times the memory of its text.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEngine {
    pub sql: String,
    /// The error that says why the statement is not understood.
    pub refusal: PgError,
}

/// A statement, understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Empty,
    Call(Call),
    Read(Read),
    Row(Vec<Constant>),
    /// A query that the engine answers.
    Query(ForEngine),
    /// Makes a savepoint of this name; the columns of the answer that are asked for.
    Keep(Option<Argument>, Vec<usize>),
    Show(String),
    Begin {
        read_only: bool,
    },
    /// The mode of the open block: whether it only reads.
    ReadOnly(bool),
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    Listen(String),
    /// None: to all.
    Unlisten(Option<String>),
    RollbackTo(String),
    /// None: its default.
    Set(String, Option<String>),
    ResetAll,
    /// None: all.
    Deallocate(Option<String>),
    DiscardAll,
    /// Nothing is to be done; what is answered.
    Accepted(&'static str),
}

/// A statement with its parameters and columns.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub statement: Statement,
    /// The numbers of the parameters' types as clients see them.
    pub parameters: Vec<u32>,
    /// Fields and columns that parameters are given to, with the places of these.
    pub names: Vec<(usize, String)>,
    /// None for what has no rows.
    pub columns: Option<Vec<Described>>,
    /// The span in which the client executes it, by a comment, where calls are traced.
    pub parent: Option<Parent>,
}

impl Prepared {
    /// Returns an error about the value of a parameter.
    fn about(&self, place: usize, error: PgError) -> PgError {
        let message = format!("parameter ${}: {}", place + 1, error.message);
        let column = self.names.iter().find(|(other, _)| *other == place).map(|(_, name)| name.clone());
        PgError { message, column, ..error }
    }
}

/// The values of a statement's parameters.
pub struct Values(Vec<Given>);

impl Values {
    /// Returns the values of a statement without parameters, as in the simple query protocol.
    pub fn none() -> Values {
        Values(Vec::new())
    }

    /// Takes the values of a message.
    pub fn of(prepared: &Prepared, bind: &Bind) -> PgResult<Values> {
        let (wanted, given) = (prepared.parameters.len(), bind.values.len());
        if wanted != given {
            let message = format!("the statement has {wanted} parameters, and {given} values are given");
            return Err(PgError::new(code::PROTOCOL_VIOLATION, message));
        }
        let forms = || PgError::new(code::PROTOCOL_VIOLATION, "the number of formats is not that of the values");
        let one = |(place, (oid, bytes)): (usize, (&u32, &Option<Vec<u8>>))| {
            let form = bind.form(place).ok_or_else(forms)?;
            let ty = PgType::of_oid(*oid).expect("it was checked when the statement was read");
            let given = Given::of_parameter(ty, form, bytes.as_deref());
            given.map_err(|error| prepared.about(place, error))
        };
        let pairs = prepared.parameters.iter().zip(&bind.values).enumerate();
        Ok(Values(pairs.map(one).collect::<PgResult<_>>()?))
    }

    /// Returns the values of all parameters, in order.
    pub fn all(&self) -> &[Given] {
        &self.0
    }

    /// Returns the value of an argument.
    pub fn value(&self, argument: &Argument) -> PgResult<Given> {
        match argument {
            Argument::Given(given) => Ok(given.clone()),
            Argument::Parameter(place, cast) => {
                let no_value = || {
                    let message = format!("there is no parameter ${}", place + 1);
                    PgError::new(code::UNKNOWN_TYPE, message).hint("parameters need the extended protocol")
                };
                let given = self.0.get(*place).cloned().ok_or_else(no_value)?;
                cast.map_or(Ok(given.clone()), |ty| given.cast(ty))
            }
        }
    }
}

/// A read with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub key: Option<Vec<Value>>,
    pub limit: Option<usize>,
}
