//! Execution of a client's messages.

use super::backend::{self, Described, Status};
use super::connection::{CLOSING, Connection, Stop, WRITE_BYTES};
use super::error::{PgError, PgResult, code};
use super::facts::Facts;
use super::frontend::{Bind, Form, Message, Target, form_of};
use super::given::Given;
use super::memory;
use super::portal::{Bound, Portal, Rows};
use super::queue::{NoOutcome, Waiting};
use super::reply::{self, CallShape};
use super::statement::{Constant, Prepared, Read, Statement, Values};
use super::types::PgType;
use crate::calls::{Made, Refused, Wanted};
use crate::savepoints::{BUSY, NoSavepoint};
use crate::traces::Parent;
use crate::users::Right;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_io::BadRecord;
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Value};
use tidemill_runtime::RequestKey;
use tokio::sync::oneshot;

/// The most statements and portals of a connection.
const NAMED_MAX: usize = 1_000;

/// Returns a statement with the span in which the client executes it.
fn within(prepared: Arc<Prepared>, parent: Option<&Parent>) -> Arc<Prepared> {
    match parent {
        None => prepared,
        Some(parent) => Arc::new(Prepared { parent: Some(parent.clone()), ..(*prepared).clone() }),
    }
}

impl Connection {
    /// Runs a simple query: all its statements, up to the first error.
    pub async fn simple(&mut self, text: &str) -> Result<(), Stop> {
        self.settle().await?;
        self.remove(Target::Statement, "");
        self.remove(Target::Portal, "");
        let wire = self.wire.clone();
        let (text, parent) = self.commented(text);
        let statements = wire.statements(text).await?;
        if statements.is_empty() {
            backend::empty_query(self.queue.out());
        }
        for prepared in statements {
            let prepared = within(prepared?, parent.as_ref());
            let mut portal = Portal::new(&self.wire, &prepared, &Values::none(), Vec::new())?;
            self.execute(&mut portal, 0, true).await?;
        }
        Ok(())
    }

    /// Handles a message of the extended protocol.
    pub async fn extended(&mut self, message: Message) -> Result<(), Stop> {
        match message {
            Message::Parse { name, query, types } => self.parse(name, &query, &types).await?,
            Message::Bind(bind) => self.bind(bind)?,
            Message::Describe(target, name) => self.describe(target, &name)?,
            Message::Execute { portal: name, rows_max } => {
                let none = || PgError::new(code::NO_PORTAL, format!("there is no portal '{name}'"));
                // It is put back, and is not there meanwhile.
                let mut portal = self.portals.remove(&name).ok_or_else(none)?;
                let done = self.execute(&mut portal, rows_max, false).await;
                self.portals.insert(name, portal);
                done?;
            }
            Message::Close(target, name) => {
                self.remove(target, &name);
                backend::close_complete(self.queue.out());
            }
            other => unreachable!("{other:?} is handled elsewhere"),
        }
        Ok(())
    }

    /// Removes a statement or portal, if it is there.
    fn remove(&mut self, target: Target, name: &str) {
        match target {
            Target::Statement => _ = self.statements.remove(name),
            Target::Portal => _ = self.portals.remove(name),
        }
        self.memory.forget(target, name);
    }

    fn remove_statements(&mut self) {
        self.statements.clear();
        self.memory.forget_all(Target::Statement);
    }

    async fn parse(&mut self, name: String, text: &str, types: &[u32]) -> PgResult<()> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(PgError::new(code::NAME_TAKEN, format!("there is a statement '{name}' already")));
        }
        if self.statements.len() >= NAMED_MAX {
            return Err(PgError::new(code::OVER_LIMIT, format!("there are {NAMED_MAX} statements; close some")));
        }
        self.begin_statement();
        let wire = self.wire.clone();
        let (text, parent) = self.commented(text);
        let mut prepared = within(wire.prepare(text, types).await?, parent.as_ref());
        if let Statement::Query(query) = &prepared.statement {
            let columns = Some(self.columns_of(query, &prepared.parameters).await?);
            prepared = Arc::new(Prepared { columns, ..(*prepared).clone() });
        }
        self.memory.keep(Target::Statement, &name, memory::of_statement(&prepared, text))?;
        self.statements.insert(name, prepared);
        backend::parse_complete(self.queue.out());
        Ok(())
    }

    /// Takes the comment that says the client's span off a statement, where calls are traced.
    fn commented<'a>(&self, text: &'a str) -> (&'a str, Option<Parent>) {
        let found = self.wire.calls.traces().and_then(|_| Parent::of_comment(text));
        found.map_or((text, None), |(statement, parent)| (statement, Some(parent)))
    }

    /// Returns the span in which the client makes a call, where calls are traced: as the statement says, else as the name of the
    /// application does.
    fn parent(&self, prepared: &Prepared) -> Option<Parent> {
        self.wire.calls.traces()?;
        let of_application = || Parent::of_application(&self.settings.get("application_name").ok()?);
        prepared.parent.clone().or_else(of_application)
    }

    fn prepared(&self, name: &str) -> PgResult<Arc<Prepared>> {
        let none = || PgError::new(code::NO_STATEMENT, format!("there is no statement '{name}'"));
        self.statements.get(name).cloned().ok_or_else(none)
    }

    fn bind(&mut self, bind: Bind) -> PgResult<()> {
        let prepared = self.prepared(&bind.statement)?;
        if !bind.portal.is_empty() && self.portals.contains_key(&bind.portal) {
            return Err(PgError::new("42P03", format!("there is a portal '{}' already", bind.portal)));
        }
        if self.portals.len() >= NAMED_MAX {
            return Err(PgError::new(code::OVER_LIMIT, format!("there are {NAMED_MAX} portals; close some")));
        }
        let values = Values::of(&prepared, &bind)?;
        let portal = Portal::new(&self.wire, &prepared, &values, bind.results)?;
        self.memory.keep(Target::Portal, &bind.portal, memory::of_portal(portal.bound.bytes()))?;
        self.portals.insert(bind.portal, portal);
        backend::bind_complete(self.queue.out());
        Ok(())
    }

    fn describe(&mut self, target: Target, name: &str) -> PgResult<()> {
        let (prepared, forms) = match target {
            Target::Statement => {
                let prepared = self.prepared(name)?;
                backend::parameters(self.queue.out(), &prepared.parameters);
                (prepared, Vec::new().into())
            }
            Target::Portal => {
                let none = || PgError::new(code::NO_PORTAL, format!("there is no portal '{name}'"));
                let portal = self.portals.get(name).ok_or_else(none)?;
                (portal.prepared.clone(), portal.forms.clone())
            }
        };
        let out = self.queue.out();
        match &prepared.columns {
            None => backend::no_data(out),
            Some(columns) => {
                backend::columns(out, columns, |place| form_of(&forms, place).expect("it was checked"));
            }
        }
        Ok(())
    }

    /// Executes a portal, and describes its rows where a simple query asks for it.
    async fn execute(&mut self, portal: &mut Portal, rows_max: usize, is_simple: bool) -> Result<(), Stop> {
        self.begin_statement();
        let prepared = portal.prepared.clone();
        let ends_block =
            matches!(prepared.statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        match &prepared.statement {
            // It is executed once.
            Statement::Call(_) if portal.is_done => {
                backend::complete(self.queue.out(), "SELECT 0");
                Ok(())
            }
            Statement::Call(call) => {
                let Bound::Object(object, key) = &portal.bound else { unreachable!("a call has an object") };
                let shape = CallShape { prepared: prepared.clone(), forms: portal.forms.clone(), describes: is_simple };
                portal.is_done = true;
                self.call(call.procedure, (object, key.as_deref()), shape, is_simple).await
            }
            _ => {
                self.settle().await?;
                if !ends_block {
                    self.block.check()?;
                }
                match &prepared.statement {
                    Statement::Read(read) => {
                        if portal.rows.is_none() {
                            let rows = self.rows(read, &portal.bound).await?;
                            portal.hold(&self.wire, &self.turn.client, rows)?;
                        }
                        self.send(portal, rows_max, is_simple).await
                    }
                    Statement::Query(query) => {
                        if portal.rows.is_none() {
                            let rows = self.answered(query, portal).await?;
                            portal.hold(&self.wire, &self.turn.client, rows)?;
                        }
                        self.send(portal, rows_max, is_simple).await
                    }
                    Statement::Keep(_, columns) => {
                        if portal.rows.is_none() {
                            let rows = self.kept(columns, &portal.bound).await?;
                            portal.hold(&self.wire, &self.turn.client, rows)?;
                        }
                        self.send(portal, rows_max, is_simple).await
                    }
                    Statement::Row(constants) => Ok(self.row(constants, portal, is_simple)?),
                    Statement::Show(name) => {
                        let constants = [Constant::Setting(name.clone())];
                        Ok(self.row(&constants, portal, is_simple)?)
                    }
                    statement => Ok(self.command(statement)?),
                }
            }
        }
    }

    /// Makes a call. In a block, and in a simple query, it is waited for.
    async fn call(
        &mut self,
        procedure: usize,
        (object, key): (&[u8], Option<&str>),
        shape: CallShape,
        is_simple: bool,
    ) -> Result<(), Stop> {
        let in_block = self.block.status() != Status::Idle;
        if in_block || is_simple {
            self.settle().await?;
        }
        self.block.check()?;
        let name = &self.wire.catalog.procedures[procedure].name;
        self.may(Right::Call, name)?;
        self.block.check_call(self.settings.get("default_transaction_read_only")? == "on")?;
        let mut reply = loop {
            match self.make(procedure, object, key, self.parent(&shape.prepared))? {
                Some(reply) => break reply,
                // Others have all places, or calls of this connection have them.
                None if self.queue.calls() > 0 => self.settle().await?,
                None => {
                    let calls_max = self.wire.limits.calls_max;
                    return Err(PgError::busy(format!("{calls_max} calls wait for their replies")).into());
                }
            }
        };
        if !(in_block || is_simple) {
            self.queue.call(Waiting::new(shape, reply, self.until));
            return Ok(());
        }
        let made = self.answer(&mut reply).await;
        let outcome = match made {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(_)) => Err(NoOutcome::Over),
            Err(_) => Err(NoOutcome::Canceled),
        };
        let name = &self.wire.catalog.procedures[procedure].name;
        match &outcome {
            Ok(made) if reply::is_committed(made) => self.block.committed(name, made.answered().epoch),
            Ok(_) => {}
            Err(_) => self.block.may_commit(name),
        }
        Ok(reply::write(self.queue.out(), &self.wire, &shape, outcome)?)
    }

    /// Makes a call; none if too many are under way.
    fn make(
        &mut self,
        procedure: usize,
        object: &[u8],
        key: Option<&str>,
        parent: Option<Parent>,
    ) -> PgResult<Option<oneshot::Receiver<Made>>> {
        if self.wire.stopping.load(Ordering::Acquire) {
            return Err(PgError::fatal(code::CLOSING, CLOSING));
        }
        let who = if self.wire.users.is_some() { &*self.user } else { "" };
        let key = key.map(|key| RequestKey::new(who, key, self.wire.calls.time_of_key()));
        let wanted = Wanted { key, when: self.settings.reply_when(), parent };
        match self.wire.calls.call_after(procedure, object, wanted, &self.turn) {
            Ok(reply) => Ok(Some(reply)),
            Err(Refused::Busy) => Ok(None),
            Err(Refused::Key(why)) => Err(PgError::new(code::BAD_VALUE_OF_SETTING, why)),
            Err(Refused::Bad(bad)) => Err(bad_record(bad)),
            Err(Refused::Nobody(why)) => Err(PgError::new(code::NO_RIGHT, why)),
            Err(Refused::Unknown(why)) => Err(PgError::new(code::NO_FUNCTION, why)),
        }
    }

    /// Sends the rows of a portal, or some of them.
    async fn send(&mut self, portal: &mut Portal, rows_max: usize, is_simple: bool) -> Result<(), Stop> {
        let rows = portal.rows.as_mut().expect("they are there");
        if is_simple {
            let columns: Vec<Described> = match &portal.prepared.columns {
                Some(columns) => columns.clone(),
                None => rows.described(),
            };
            backend::columns(self.queue.out(), &columns, |_| Form::Text);
        }
        let count = if rows_max == 0 { rows.end - rows.next } else { rows_max.min(rows.end - rows.next) };
        for row in rows.next..rows.next + count {
            backend::row(self.queue.out(), rows.columns.len(), |out, place| {
                let column = rows.columns[place];
                let form = form_of(&portal.forms, place).expect("it was checked when values were bound");
                rows.write(out, column, row, form)
            });
            if self.queue.output.len() > WRITE_BYTES {
                self.write().await?;
            }
        }
        rows.next += count;
        if rows.next == rows.end {
            portal.let_go();
            backend::complete(self.queue.out(), &format!("SELECT {count}"));
        } else {
            backend::suspended(self.queue.out());
        }
        Ok(())
    }

    /// Returns the rows that a read asks for.
    async fn rows(&mut self, read: &Read, bound: &Bound) -> PgResult<Rows> {
        let Bound::Asked(asked) = bound else { unreachable!("a read asks") };
        let wire = self.wire.clone();
        let table = &wire.catalog.tables[read.table];
        self.may(Right::Read, &table.name)?;
        let (fields, columns) = (table.columns.clone(), read.columns.clone());
        let most = wire.limits.table_rows_max;
        let limited = |count: usize| match asked.limit.map_or(count, |limit| count.min(limit)) {
            end if end > most => {
                let message = format!("the read gives {end} rows, and {most} are given at once");
                Err(PgError::new(code::TOO_LARGE, message).hint("add a LIMIT"))
            }
            end => Ok(end),
        };
        if self.block.status() == Status::InBlock {
            let batch = self.rows_in_block(read.table, asked).await?;
            let end = limited(batch.num_rows())?;
            return Ok(Rows { batch, fields, columns, next: 0, end });
        }
        let busy = || PgError::busy(format!("{} reads and pushes wait for their answers", wire.limits.asks_max));
        let over = |why: &str| PgError::fatal(code::RUN_OVER, why);
        let asked_for = match &asked.key {
            Some(key) => wire.asks.row(&self.turn.client, table.id, key.clone()),
            None => wire.asks.table(&self.turn.client, table.id),
        };
        let answer = asked_for.ok_or_else(busy)?;
        let at = self.answer(answer).await?.map_err(|_| over("the run is over"))?.map_err(|why| over(&why))?;
        // A read of one key gives its row, or no row.
        let end = limited(at.rows.num_rows())?;
        Ok(Rows { batch: at.rows, fields, columns, next: 0, end })
    }

    /// Makes a savepoint; a row with its name and its epoch.
    async fn kept(&mut self, columns: &[usize], bound: &Bound) -> PgResult<Rows> {
        let Bound::Name(name) = bound else { unreachable!("it has a name, or none") };
        let wire = self.wire.clone();
        self.may(Right::Savepoint, "")?;
        let made = self.answer(wire.savepoints.make(name.clone())).await?.map_err(|why| match why {
            NoSavepoint::NoState => PgError::not_supported("savepoints of a run without a state"),
            NoSavepoint::Name(why) => PgError::new(code::BAD_VALUE_OF_SETTING, why),
            NoSavepoint::Busy => PgError::busy(BUSY),
            NoSavepoint::Failed(why) => PgError::new(code::RUN_OVER, why),
        })?;
        let fields = wire.catalog.keep.returns.clone();
        let row = vec![Value::Str(made.name), Value::Int(made.epoch as i64)];
        let batch = batch_of(&Schema { fields: fields.clone() }, &[row]);
        Ok(Rows { batch, fields, columns: columns.to_vec(), next: 0, end: 1 })
    }

    /// Returns a row that is no table's.
    fn row(&mut self, constants: &[Constant], portal: &Portal, is_simple: bool) -> PgResult<()> {
        let given = constants.iter().map(|constant| self.value(constant)).collect::<PgResult<Vec<Given>>>()?;
        let columns = portal.prepared.columns.as_ref().expect("a row has columns");
        let out = self.queue.out();
        if is_simple {
            backend::columns(out, columns, |_| Form::Text);
        }
        backend::row(out, given.len(), |out, place| {
            let form = form_of(&portal.forms, place).expect("it was checked when values were bound");
            write_given(out, &given[place], columns[place].ty, form)
        });
        let tag = if matches!(portal.prepared.statement, Statement::Show(_)) { "SHOW" } else { "SELECT 1" };
        backend::complete(out, tag);
        Ok(())
    }

    /// Returns a property of the connection, such as its user.
    pub fn value(&self, constant: &Constant) -> PgResult<Given> {
        self.facts().value(constant)
    }

    /// Returns the facts about the connection that statements can ask for.
    pub fn facts(&self) -> Facts {
        Facts {
            settings: self.settings.clone(),
            database: self.database.clone(),
            user: self.user.clone(),
            process: self.process,
            is_read_only: self.block.check_call(false).is_err(),
        }
    }

    /// Runs a statement that begins, ends or changes a block. Returns the tag of its answer.
    fn block_command(&mut self, statement: &Statement) -> PgResult<&'static str> {
        let no_block = "there is no block to end";
        Ok(match statement {
            Statement::Begin { read_only } => {
                let default = self.settings.get("default_transaction_read_only")? == "on";
                if !self.block.begin(*read_only || default) {
                    backend::warning(self.queue.out(), code::BLOCK_OPEN, "a block is open already");
                }
                "BEGIN"
            }
            Statement::ReadOnly(read_only) => {
                self.block.read_only(*read_only);
                "SET"
            }
            Statement::Commit => {
                if !self.block.commit() {
                    backend::warning(self.queue.out(), code::NO_BLOCK, no_block);
                }
                "COMMIT"
            }
            Statement::Rollback => {
                if !self.block.rollback()? {
                    backend::warning(self.queue.out(), code::NO_BLOCK, no_block);
                }
                "ROLLBACK"
            }
            Statement::Savepoint(name) => {
                self.block.savepoint(name.clone())?;
                "SAVEPOINT"
            }
            Statement::Release(name) => {
                self.block.release(name)?;
                "RELEASE"
            }
            Statement::RollbackTo(name) => {
                self.block.rollback_to(name)?;
                "ROLLBACK"
            }
            other => unreachable!("{other:?} is not about blocks"),
        })
    }

    /// Runs a statement that returns no rows.
    fn command(&mut self, statement: &Statement) -> PgResult<()> {
        let tag = match statement {
            Statement::Empty => {
                backend::empty_query(self.queue.out());
                return Ok(());
            }
            Statement::Set(name, value) => {
                if let Some((name, value)) = self.settings.set(name, value.as_deref())? {
                    backend::parameter(self.queue.out(), name, &value);
                }
                if value.is_some() { "SET" } else { "RESET" }
            }
            Statement::ResetAll => {
                self.settings.reset();
                "RESET"
            }
            Statement::Deallocate(name) => {
                match name {
                    None => self.remove_statements(),
                    Some(name) => {
                        self.prepared(name)?;
                        self.remove(Target::Statement, name);
                    }
                }
                "DEALLOCATE"
            }
            Statement::DiscardAll => {
                self.unlisten(None);
                self.remove_statements();
                self.settings.reset();
                "DISCARD ALL"
            }
            Statement::Listen(name) => {
                self.listen(name)?;
                "LISTEN"
            }
            Statement::Unlisten(name) => {
                self.unlisten(name.as_deref());
                "UNLISTEN"
            }
            Statement::Accepted(tag) => tag,
            other => self.block_command(other)?,
        };
        backend::complete(self.queue.out(), tag);
        Ok(())
    }
}

/// Appends a value that is no column's.
fn write_given(out: &mut Vec<u8>, given: &Given, ty: PgType, form: Form) -> bool {
    match (given, form) {
        (Given::Null, _) => return false,
        (Given::Bool(value), Form::Text) => out.push(if *value { b't' } else { b'f' }),
        (Given::Bool(value), Form::Binary) => out.push(u8::from(*value)),
        (Given::Int(value), Form::Text) => out.extend_from_slice(value.to_string().as_bytes()),
        (Given::Int(value), Form::Binary) if ty == PgType::Int4 => {
            out.extend_from_slice(&(*value as i32).to_be_bytes())
        }
        (Given::Int(value), Form::Binary) => out.extend_from_slice(&value.to_be_bytes()),
        (Given::Text(text) | Given::Unknown(text), _) => out.extend_from_slice(text.as_bytes()),
        (other, _) => unreachable!("{other:?} is refused when the statement is read"),
    }
    true
}

/// Converts an error of the decoder of calls, and gives it the SQLSTATE that fits. Values were looked at before.
fn bad_record(bad: BadRecord) -> PgError {
    let code = if bad.reason.contains("overflow") { code::OUT_OF_RANGE } else { code::BAD_TEXT };
    match bad.column {
        None => PgError::new(code, bad.reason),
        Some(column) => PgError::new(code, format!("argument '{column}': {}", bad.reason)).column(column),
    }
}
