//! One transaction on one event: statements in order on the tables, undone as a whole on an abort.

use crate::Record;
use crate::expression::{Scope, evaluate, output_fields};
use crate::limits::Sums;
use crate::selection::chosen;
use crate::table::{Key, Table, default_row};
use crate::trace::{Step, TransactionTrace};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tidemill_model::Value;
use tidemill_plan::typed::{Expr, Stmt};
use tidemill_plan::{
    LocalId, LoopId, Missing, Program, ReasonId, Role, RoleId, StreamId, TableId, Transaction, TransactionId,
};
use typed_index_collections::TiSlice;

/// The outcome of a transaction.
pub enum Outcome {
    /// The transaction committed: the records that it emitted, in order.
    Committed(Vec<(StreamId, Record)>),
    /// The reason why it did not commit, and the event for its `aborted` stream.
    Aborted(ReasonId, Record),
}

/// Runs a transaction on an event, with its place, if it has one. On an abort the tables are as before.
pub fn run(
    program: &Program,
    id: TransactionId,
    tables: &mut TiSlice<TableId, Table>,
    (event, place): (&Record, Option<i64>),
    traces: Option<&mut Vec<TransactionTrace>>,
) -> Outcome {
    let mut run = Execution::begin(program, id, tables, event, traces.is_some());
    run.place = place;
    let ended = run.block(&run.transaction.body);
    if let Some(traces) = traces {
        let steps = run.steps.take().map(RefCell::into_inner).unwrap_or_default();
        traces.push(TransactionTrace {
            transaction: id,
            event: event.clone(),
            steps,
            aborted: ended.as_ref().err().copied(),
            undone_with: None,
        });
    }
    match ended {
        Ok(_) => {
            let committed = &run.transaction.committed;
            if committed.passes_event {
                run.emitted.push((committed.stream, event.clone()));
            }
            Outcome::Committed(run.emitted)
        }
        Err(reason) => {
            run.undo();
            Outcome::Aborted(reason, run.aborted_event(reason))
        }
    }
}

/// Returns the event for the `aborted` stream of a transaction that aborts with this reason before it does anything.
pub fn refuse(
    program: &Program,
    id: TransactionId,
    tables: &mut TiSlice<TableId, Table>,
    event: &Record,
    reason: ReasonId,
) -> Record {
    Execution::begin(program, id, tables, event, false).aborted_event(reason)
}

/// The place to go on after a statement.
#[derive(PartialEq)]
enum Next {
    Statement,
    Break,
    Continue,
    Return,
}

struct Execution<'a> {
    program: &'a Program,
    transaction: &'a Transaction,
    tables: &'a mut TiSlice<TableId, Table>,
    event: &'a Record,
    /// The place of the event, if it has one.
    place: Option<i64>,
    locals: Vec<Option<Value>>,
    /// The loops that are running, innermost last, each with the index of its element.
    running: Vec<(LoopId, usize)>,
    /// The locals of the loops over rows that are running.
    at_rows: Vec<LocalId>,
    /// Each row that was touched, as it was before.
    before: BTreeMap<(TableId, Key), Option<Record>>,
    emitted: Vec<(StreamId, Record)>,
    /// The keys that were read from rows before the body began; none where there was nothing to read.
    dependent: BTreeMap<RoleId, Option<Key>>,
    /// The keys of the rows of each role that is not one row, in their order. Chosen ones are there before the
    /// transaction.
    scans: BTreeMap<RoleId, Vec<Option<Key>>>,
    /// The sums that it has counted against the limits.
    sums: Sums,
    /// Its steps so far, if they are to be noted. Reading notes, too, which changes nothing else.
    steps: Option<RefCell<Vec<Step>>>,
}

impl<'a> Execution<'a> {
    /// Returns a transaction that has read those of its keys that are read from rows.
    fn begin(
        program: &'a Program,
        id: TransactionId,
        tables: &'a mut TiSlice<TableId, Table>,
        event: &'a Record,
        is_traced: bool,
    ) -> Execution<'a> {
        let transaction = &program.transactions[id];
        let mut run = Execution {
            program,
            transaction,
            tables,
            event,
            place: None,
            locals: vec![None; transaction.locals.len()],
            running: Vec::new(),
            at_rows: Vec::new(),
            before: BTreeMap::new(),
            emitted: Vec::new(),
            dependent: BTreeMap::new(),
            scans: BTreeMap::new(),
            sums: Sums::new(program.limits),
            steps: is_traced.then(RefCell::default),
        };
        for (id, role) in transaction.roles.iter().enumerate() {
            if role.is_chosen() {
                let keys = chosen(&role.selection, &run.tables[role.table], |value| evaluate(value, &run));
                run.scans.insert(id, keys.into_iter().map(Some).collect());
            } else if let (Some(rows), Some(local)) = (role.each, role.scan) {
                let keys = run.key_for_each(role, rows, local);
                run.scans.insert(id, keys);
            } else if role.is_dependent() {
                let key = run.read_key(role);
                run.dependent.insert(id, key);
            }
        }
        run
    }

    /// Returns a key that is read from rows; none where there is nothing to read.
    fn read_key(&self, role: &Role) -> Option<Key> {
        let values: Result<Vec<Value>, ReasonId> = role.key.iter().map(|part| evaluate(part, self)).collect();
        values.ok().filter(|values| !values.iter().any(Value::is_null)).map(Key)
    }

    /// Returns the key of a role for each row of another, while the local has the number of that row.
    fn key_for_each(&mut self, role: &Role, rows: RoleId, local: LocalId) -> Vec<Option<Key>> {
        let mut keys = Vec::new();
        for number in 0..self.scans[&rows].len() {
            self.locals[local] = Some(Value::Int(number as i64));
            keys.push(self.read_key(role));
        }
        self.locals[local] = None;
        keys
    }
}

impl Execution<'_> {
    fn block(&mut self, statements: &[Stmt]) -> Result<Next, ReasonId> {
        for statement in statements {
            let next = self.statement(statement)?;
            if next != Next::Statement {
                return Ok(next);
            }
        }
        Ok(Next::Statement)
    }

    fn statement(&mut self, statement: &Stmt) -> Result<Next, ReasonId> {
        match statement {
            Stmt::Assign { local, value } => self.locals[*local] = Some(evaluate(value, self)?),
            Stmt::Set { role, element, column, value } => {
                let value = evaluate(value, self)?;
                self.set(*role, *element, *column, value)?;
            }
            Stmt::If { condition, then, otherwise } => {
                return if self.holds(condition)? { self.block(then) } else { self.block(otherwise) };
            }
            Stmt::ForEach { loop_id, body } => return self.for_each(*loop_id, body),
            Stmt::ForRange { local, start, stop, step, body } => {
                return self.for_range(*local, [start, stop], *step, body);
            }
            Stmt::Break => return Ok(Next::Break),
            Stmt::Continue => return Ok(Next::Continue),
            Stmt::Require { condition, reason } => {
                let held = self.holds(condition);
                self.note(|| Step::Required {
                    condition: condition.clone(),
                    reason: *reason,
                    held: held.as_ref().ok().copied(),
                });
                if !held? {
                    return Err(*reason);
                }
            }
            Stmt::Abort { reason } => return Err(*reason),
            Stmt::Count { count, reason } => self.sums.count(*count, self.event, *reason)?,
            Stmt::Insert { role, element, values } => self.insert(*role, *element, values)?,
            Stmt::Delete { role, element } => self.delete(*role, *element)?,
            Stmt::Emit { output, fields } => {
                let event = output_fields(fields, self)?;
                let stream = self.transaction.emits[*output].stream;
                self.note(|| Step::Emitted { stream, event: event.clone() });
                self.emitted.push((stream, event));
            }
            Stmt::Return { fields } => {
                if let Some(fields) = fields {
                    let event = output_fields(fields, self)?;
                    let stream = self.transaction.committed.stream;
                    self.note(|| Step::Emitted { stream, event: event.clone() });
                    self.emitted.push((stream, event));
                }
                return Ok(Next::Return);
            }
        }
        Ok(Next::Statement)
    }

    fn note(&self, step: impl FnOnce() -> Step) {
        if let Some(steps) = &self.steps {
            steps.borrow_mut().push(step());
        }
    }

    fn holds(&self, condition: &Expr) -> Result<bool, ReasonId> {
        Ok(evaluate(condition, self)? == Value::Bool(true))
    }

    fn for_each(&mut self, loop_id: LoopId, body: &[Stmt]) -> Result<Next, ReasonId> {
        for index in 0..elements(self.event, self.transaction.loops[loop_id]).len() {
            self.running.push((loop_id, index));
            // On an abort the loop stays on the stack: the aborted event shows its element.
            let next = self.block(body)?;
            self.running.pop();
            match next {
                Next::Statement | Next::Continue => {}
                Next::Break => break,
                Next::Return => return Ok(Next::Return),
            }
        }
        Ok(Next::Statement)
    }

    fn for_range(&mut self, local: LocalId, bounds: [&Expr; 2], step: i64, body: &[Stmt]) -> Result<Next, ReasonId> {
        let start = evaluate(bounds[0], self)?.word().expect("bounds are ints");
        let stop = evaluate(bounds[1], self)?.word().expect("bounds are ints");
        let mut next = Some(start);
        let is_over_rows = self.transaction.roles.iter().any(|role| role.scan == Some(local));
        self.at_rows.extend(is_over_rows.then_some(local));
        while let Some(value) = next.filter(|&v| if step > 0 { v < stop } else { v > stop }) {
            self.locals[local] = Some(Value::Int(value));
            // On an abort the loop stays there: the aborted event shows the rows of its element.
            match self.block(body)? {
                Next::Statement | Next::Continue => {}
                Next::Break => break,
                Next::Return => return Ok(Next::Return),
            }
            // A number that does not fit 64 bits is beyond any bound.
            next = value.checked_add(step);
        }
        self.at_rows.retain(|running| *running != local);
        Ok(Next::Statement)
    }

    fn role(&self, role: RoleId) -> &Role {
        &self.transaction.roles[role]
    }

    /// Returns the key of a role's row, for the element of that loop where the role is over a list; none where a column
    /// of it is null.
    fn key(&self, role: RoleId, element: Option<LoopId>) -> Option<Key> {
        if let Some(key) = self.dependent.get(&role) {
            return key.clone();
        }
        if let Some(local) = self.role(role).scan {
            let number = self.locals[local].as_ref().and_then(Value::word).expect("a loop is at one of the rows");
            return self.scans[&role][number as usize].clone();
        }
        let element = element.map(|loop_id| self.current(loop_id));
        let scope = KeyScope { event: self.event, element };
        let values =
            self.role(role).key.iter().map(|e| evaluate(e, &scope).expect("analysis refuses keys that can fail"));
        let key: Vec<Value> = values.collect();
        (!key.iter().any(Value::is_null)).then_some(Key(key))
    }

    /// Returns the element that a running loop is at.
    fn current(&self, loop_id: LoopId) -> &Record {
        let at = self.running.iter().find(|(id, _)| *id == loop_id).expect("elements are used inside their loop");
        &elements(self.event, self.transaction.loops[loop_id])[at.1]
    }

    fn row(&self, role: RoleId, key: &Key) -> Option<&Record> {
        self.tables[self.role(role).table].get(key)
    }

    /// Returns the key of a role's row, for a change.
    fn key_for_change(&self, role: RoleId, element: Option<LoopId>) -> Result<Key, ReasonId> {
        self.key(role, element).ok_or(self.role(role).no_key)
    }

    fn set(&mut self, role: RoleId, element: Option<LoopId>, column: usize, value: Value) -> Result<(), ReasonId> {
        let key = self.key_for_change(role, element)?;
        let mut row = match self.row(role, &key) {
            Some(row) => row.clone(),
            None if self.role(role).create => default_row(&self.program.tables[self.role(role).table], &key),
            None => return Err(self.role(role).no_row),
        };
        self.note(|| Step::Wrote { role, key: key.0.clone(), column, value: value.clone() });
        row[column] = value;
        self.change(role, key, Some(row));
        Ok(())
    }

    fn insert(&mut self, role: RoleId, element: Option<LoopId>, values: &[(usize, Expr)]) -> Result<(), ReasonId> {
        let mut cells = Vec::new();
        for (column, value) in values {
            cells.push((*column, evaluate(value, self)?));
        }
        let key = self.key_for_change(role, element)?;
        if self.row(role, &key).is_some() {
            return Err(self.role(role).row_exists);
        }
        let mut row = default_row(&self.program.tables[self.role(role).table], &key);
        for (column, value) in cells {
            row[column] = value;
        }
        self.note(|| Step::Inserted { role, row: row.clone() });
        self.change(role, key, Some(row));
        Ok(())
    }

    fn delete(&mut self, role: RoleId, element: Option<LoopId>) -> Result<(), ReasonId> {
        let key = self.key_for_change(role, element)?;
        if self.row(role, &key).is_none() {
            return Err(self.role(role).no_row);
        }
        self.note(|| Step::Deleted { role, key: key.0.clone() });
        self.change(role, key, None);
        Ok(())
    }

    /// Makes a row exist as given, or not exist, keeping what was there before the transaction.
    fn change(&mut self, role: RoleId, key: Key, row: Option<Record>) {
        let table = self.role(role).table;
        let was = self.tables[table].get(&key).cloned();
        self.before.entry((table, key.clone())).or_insert(was);
        match row {
            Some(row) => self.tables[table].put(row),
            None => self.tables[table].remove(&key),
        }
    }

    fn undo(&mut self) {
        for ((table, key), row) in std::mem::take(&mut self.before) {
            match row {
                Some(row) => self.tables[table].put(row),
                None => self.tables[table].remove(&key),
            }
        }
    }

    /// Returns the event for the `aborted` stream; the changes are undone already.
    fn aborted_event(&self, reason: ReasonId) -> Record {
        let mut event = self.event.clone();
        event.push(Value::Str(self.transaction.reasons[reason as usize].clone()));
        event.extend(self.transaction.seen.iter().map(|seen| self.seen(seen.role, seen.column)));
        event
    }

    fn seen(&self, role: RoleId, column: usize) -> Value {
        let Role { over, scan, .. } = *self.role(role);
        let is_over = |(loop_id, _): &&(LoopId, usize)| Some(self.transaction.loops[*loop_id]) == over;
        let element = self.running.iter().rev().find(is_over).map(|(loop_id, _)| *loop_id);
        let is_outside = scan.is_some_and(|local| !self.at_rows.contains(&local));
        if is_outside || over.is_some() && element.is_none() {
            return Value::Null;
        }
        let Some(key) = self.key(role, element) else { return Value::Null };
        let key_columns = &self.program.tables[self.role(role).table].key;
        match (self.row(role, &key), key_columns.iter().position(|&c| c == column)) {
            (Some(row), _) => row[column].clone(),
            (None, Some(part)) => key.0[part].clone(),
            (None, None) => Value::Null,
        }
    }
}

/// Returns the elements of a list field.
fn elements(event: &Record, field: usize) -> &[Record] {
    match &event[field] {
        Value::List(elements) => elements,
        other => panic!("{other} where a list belongs"),
    }
}

impl Scope for Execution<'_> {
    fn field(&self, index: usize) -> &Value {
        &self.event[index]
    }

    fn element(&self, loop_id: LoopId, column: usize) -> &Value {
        &self.current(loop_id)[column]
    }

    fn sums(&self) -> &Sums {
        &self.sums
    }

    fn local(&self, local: LocalId) -> &Value {
        self.locals[local].as_ref().expect("no local is read before it is set")
    }

    fn cell(&self, role: RoleId, element: Option<LoopId>, column: usize) -> Result<Value, ReasonId> {
        let read = self.cell_of(role, element, column);
        self.note(|| {
            let key = self.key(role, element);
            let exists = key.as_ref().is_some_and(|key| self.row(role, key).is_some());
            Step::Read { role, key: key.map(|key| key.0), exists, column, value: read.clone().ok() }
        });
        read
    }

    fn exists(&self, role: RoleId, element: Option<LoopId>) -> bool {
        let key = self.key(role, element);
        let exists = key.as_ref().is_some_and(|key| self.row(role, key).is_some());
        self.note(|| Step::Looked { role, key: key.map(|key| key.0), exists });
        exists
    }

    fn rows(&self, role: RoleId) -> usize {
        self.scans[&role].len()
    }

    fn place(&self) -> i64 {
        self.place.expect("analysis made sure that it has one")
    }
}

impl Execution<'_> {
    /// Returns the value of a cell for a read.
    fn cell_of(&self, role: RoleId, element: Option<LoopId>, column: usize) -> Result<Value, ReasonId> {
        let Role { table, missing, no_row, no_key, .. } = self.role(role);
        let table = &self.program.tables[*table];
        let key = self.key(role, element);
        if let Some(row) = key.as_ref().and_then(|key| self.row(role, key)) {
            return Ok(row[column].clone());
        }
        let is_key = table.key.contains(&column);
        match (key, missing) {
            (Some(_), Missing::Abort) => Err(*no_row),
            (None, Missing::Abort) => Err(*no_key),
            (None, Missing::Default) if is_key => Err(*no_key),
            (None, Missing::Default) => Ok(table.columns[column].default.clone().unwrap_or(Value::Null)),
            (Some(key), Missing::Default) => Ok(default_row(table, &key)[column].clone()),
        }
    }
}

/// The values that a key expression may read: the event, and the element that the key is for.
struct KeyScope<'a> {
    event: &'a Record,
    element: Option<&'a Record>,
}

impl Scope for KeyScope<'_> {
    fn field(&self, index: usize) -> &Value {
        &self.event[index]
    }

    fn element(&self, _loop_id: LoopId, column: usize) -> &Value {
        &self.element.expect("only keys of roles over a list read elements")[column]
    }
}
