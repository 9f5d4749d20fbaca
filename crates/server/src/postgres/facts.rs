//! The properties of a connection that SQL functions return.

use super::error::PgResult;
use super::given::Given;
use super::settings::{SERVER_VERSION, Settings};
use super::statement::{Constant, Fact};

/// The present properties of a connection.
pub struct Facts {
    pub settings: Settings,
    pub database: String,
    pub user: String,
    /// The number of the connection.
    pub process: i32,
    /// A flag: whether the open block only reads.
    pub is_read_only: bool,
}

impl Facts {
    /// Returns the value that stands for a constant.
    pub fn value(&self, constant: &Constant) -> PgResult<Given> {
        let text = |text: &str| Given::Text(text.to_owned());
        Ok(match constant {
            Constant::Given(given) => given.clone(),
            Constant::Setting(name) if name == "transaction_read_only" => {
                text(if self.is_read_only { "on" } else { "off" })
            }
            Constant::Setting(name) => Given::Text(self.settings.get(name)?),
            Constant::Fact(Fact::Version) => {
                text(&format!("PostgreSQL {SERVER_VERSION} (Tidemill {})", env!("CARGO_PKG_VERSION")))
            }
            Constant::Fact(Fact::Schema) => text("public"),
            Constant::Fact(Fact::Database) => text(&self.database),
            Constant::Fact(Fact::User) => text(&self.user),
            Constant::Fact(Fact::Process) => Given::Int(self.process.into()),
            Constant::Fact(Fact::IsReplica) => Given::Bool(false),
            Constant::Fact(Fact::UnlockAll) => text(""),
        })
    }
}
