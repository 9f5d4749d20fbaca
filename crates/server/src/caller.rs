//! Who makes a call, in the fields of the call that are declared for it (`plan`, `CallerFields`): filled in here, and taken from no
//! client.

use crate::shares::{Client, Protocol, Who};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use std::sync::Arc;
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::CallerAt;
use tidemill_runtime::Session;

/// The events of a source, as clients give them and as the engine takes them.
pub struct SentEvents {
    whole: Schema,
    caller: CallerAt,
}

impl SentEvents {
    /// Returns those of a source of a session.
    pub fn of(session: &Session, source: usize) -> SentEvents {
        SentEvents { whole: session.source_schema(source), caller: session.caller(source) }
    }

    /// Returns the fields that clients give.
    pub fn given(&self) -> Schema {
        let fields = self.whole.fields.iter().enumerate().filter(|(at, _)| !self.caller.has(*at));
        Schema { fields: fields.map(|(_, field)| field.clone()).collect() }
    }

    /// Returns why these events may not come from a client, if so: they want a user, and none is known.
    pub fn refusal(&self, client: &Client) -> Option<String> {
        let user = &self.whole.fields[self.caller.user?];
        let is_wanted = user.scalar_type().is_some_and(|scalar| !scalar.nullable);
        (is_wanted && user_of(client).is_none()).then(|| {
            format!(
                "its field '{}' has the name of the user, and nobody is asked for one here; begin the server with --users",
                user.name
            )
        })
    }

    /// Returns the events with who sent them, given by event.
    pub fn whole<'a>(&self, given: RecordBatch, clients: impl Iterator<Item = &'a Client> + Clone) -> RecordBatch {
        if self.caller.is_none() {
            return given;
        }
        let mut columns = given.columns().iter();
        let columns = (0..self.whole.fields.len()).map(|at| -> ArrayRef {
            if self.caller.user == Some(at) {
                Arc::new(clients.clone().map(user_of).collect::<StringArray>())
            } else if self.caller.protocol == Some(at) {
                Arc::new(clients.clone().map(|client| Some(protocol_of(client))).collect::<StringArray>())
            } else {
                columns.next().expect("clients give the other fields").clone()
            }
        });
        let columns = columns.collect();
        RecordBatch::try_new(arrow_schema(&self.whole), columns).expect("each event has a client who may send it")
    }
}

fn user_of(client: &Client) -> Option<&str> {
    match &client.who {
        Who::User(name) => Some(name),
        Who::Address(_) => None,
    }
}

fn protocol_of(client: &Client) -> &'static str {
    match client.by {
        Protocol::Http => "http",
        Protocol::Postgres => "postgresql",
    }
}
