//! Inputs and outputs, for people.

use crate::job::{Input, Output};

/// Returns the origin of an input.
pub fn origin(input: &Input) -> String {
    match input {
        Input::Connection(connection) => connection.shown(),
        Input::Own(_) | Input::Sent => "data of the program".into(),
    }
}

/// Returns the destination of an output.
pub fn destination(output: &Output) -> String {
    match output {
        Output::Connection(connection) => connection.shown(),
        Output::Own(_) => "the program".into(),
    }
}
