//! Transactions: roles first, then a body of statements.

use crate::{AccessDef, Expr, Record, RoleDef, SelectionDef, Span, Stmt, StmtNode, StreamRef, TransactionDef};

/// A transaction in the making.
#[derive(Clone, Debug)]
pub struct TransactionBuilder {
    transaction: TransactionDef,
}

impl TransactionBuilder {
    pub(super) fn new(name: String, inputs: Vec<StreamRef>) -> Self {
        TransactionBuilder {
            transaction: TransactionDef {
                name,
                inputs,
                over: None,
                join: None,
                nested: false,
                derives: false,
                roles: Vec::new(),
                body: Vec::new(),
            },
        }
    }

    /// Adds a row to read and write; touching a missing one aborts.
    pub fn row(self, role: &str, table: &str, key: impl IntoIterator<Item = Expr>) -> Self {
        self.role(role, table, key, AccessDef::Row)
    }

    /// Adds a row to read and write; a missing one reads as the defaults, and the first write inserts it.
    pub fn create(self, role: &str, table: &str, key: impl IntoIterator<Item = Expr>) -> Self {
        self.role(role, table, key, AccessDef::Create)
    }

    /// Adds a row to read; reading a missing one aborts.
    pub fn read(self, role: &str, table: &str, key: impl IntoIterator<Item = Expr>) -> Self {
        self.role(role, table, key, AccessDef::Read)
    }

    /// Adds a row to read; a missing one reads as the defaults.
    pub fn read_or_default(self, role: &str, table: &str, key: impl IntoIterator<Item = Expr>) -> Self {
        self.role(role, table, key, AccessDef::ReadDefault)
    }

    /// Adds all rows of a table, to read in a loop ([`Block::for_rows`]).
    pub fn all(self, role: &str, table: &str) -> Self {
        self.role(role, table, [], AccessDef::All)
    }

    /// Adds rows of a table that are chosen, to read in a loop.
    pub fn selected(self, role: &str, table: &str, selection: SelectionDef) -> Self {
        let mut chosen = self.all(role, table);
        chosen.transaction.roles.last_mut().expect("a role was added").selection = selection;
        chosen
    }

    fn role(mut self, name: &str, table: &str, key: impl IntoIterator<Item = Expr>, access: AccessDef) -> Self {
        let key = key.into_iter().collect();
        self.transaction.roles.push(RoleDef::row(name, table, key, access));
        self
    }

    /// Makes the last role a row per element of a list field. In its key the element goes by the
    /// list's name: `element("lines", "item")`.
    pub fn over(mut self, list: impl Into<String>) -> Self {
        let role = self.transaction.roles.last_mut().expect("`over` follows a role");
        role.over = Some(list.into());
        self
    }

    /// Makes the last role a row for each row of an earlier one ([`TransactionBuilder::all`]).
    pub fn each(mut self, rows: impl Into<String>) -> Self {
        let role = self.transaction.roles.last_mut().expect("`each` follows a role");
        role.each = Some(rows.into());
        self
    }

    /// Adds statements.
    pub fn body(mut self, body: impl FnOnce(&mut Block)) -> Self {
        self.transaction.body.extend(Block::of(body));
        self
    }

    /// Nests it in the transaction whose output it takes: both commit, or neither does.
    pub fn nested(mut self) -> Self {
        self.transaction.nested = true;
        self
    }

    pub(super) fn build(self) -> TransactionDef {
        self.transaction
    }
}

/// A block of statements in the making: each method appends one.
#[derive(Clone, Debug, Default)]
pub struct Block {
    statements: Vec<Stmt>,
}

impl Block {
    fn of(fill: impl FnOnce(&mut Block)) -> Vec<Stmt> {
        let mut block = Block::default();
        fill(&mut block);
        block.statements
    }

    /// Appends any statement.
    pub fn push(&mut self, node: StmtNode) {
        self.statements.push(Stmt { node, span: None });
    }

    /// Gives the last statement a place in the source text.
    pub fn at(&mut self, span: Span) {
        self.statements.last_mut().expect("a place follows a statement").span = Some(span);
    }

    /// Appends `name = value`.
    pub fn assign(&mut self, name: impl Into<String>, value: impl Into<Expr>) {
        self.push(StmtNode::Assign { name: name.into(), value: value.into() });
    }

    /// Appends `role.column = value`.
    pub fn set(&mut self, role: &str, column: &str, value: impl Into<Expr>) {
        self.push(StmtNode::Set { role: role.into(), column: column.into(), value: value.into() });
    }

    /// Appends `role.column.add(value)`, of a windowed column.
    pub fn add(&mut self, role: &str, column: &str, value: impl Into<Expr>) {
        self.push(StmtNode::Add { role: role.into(), column: column.into(), value: value.into() });
    }

    /// Appends `if condition: then`.
    pub fn when(&mut self, condition: impl Into<Expr>, then: impl FnOnce(&mut Block)) {
        self.when_else(condition, then, |_| {});
    }

    /// Appends `if condition: then else: otherwise`.
    pub fn when_else(
        &mut self,
        condition: impl Into<Expr>,
        then: impl FnOnce(&mut Block),
        otherwise: impl FnOnce(&mut Block),
    ) {
        let (then, otherwise) = (Block::of(then), Block::of(otherwise));
        self.push(StmtNode::If { condition: condition.into(), then, otherwise });
    }

    /// Appends `for variable in ev.list: body`.
    pub fn for_each(&mut self, variable: &str, list: &str, body: impl FnOnce(&mut Block)) {
        self.push(StmtNode::ForEach { variable: variable.into(), list: list.into(), body: Block::of(body) });
    }

    /// Appends `for variable in role: body`, of a role that is all rows of its table: inside, the role is the row at
    /// hand.
    pub fn for_rows(&mut self, variable: &str, role: &str, body: impl FnOnce(&mut Block)) {
        self.push(StmtNode::ForRows { variable: variable.into(), role: role.into(), body: Block::of(body) });
    }

    /// Appends `for variable in range(start, stop): body`.
    pub fn for_range(
        &mut self,
        variable: &str,
        start: impl Into<Expr>,
        stop: impl Into<Expr>,
        body: impl FnOnce(&mut Block),
    ) {
        let (start, stop, body) = (start.into(), stop.into(), Block::of(body));
        self.push(StmtNode::ForRange { variable: variable.into(), start, stop, step: 1, body });
    }

    /// Appends a statement that leaves the innermost loop.
    pub fn leave(&mut self) {
        self.push(StmtNode::Break);
    }

    /// Goes on with the next round of the innermost loop.
    pub fn next_round(&mut self) {
        self.push(StmtNode::Continue);
    }

    /// Aborts unless the condition holds.
    pub fn require(&mut self, condition: impl Into<Expr>, reason: impl Into<String>) {
        self.push(StmtNode::Require { condition: condition.into(), reason: reason.into() });
    }

    /// Appends an abort with a reason.
    pub fn abort(&mut self, reason: impl Into<String>) {
        self.push(StmtNode::Abort { reason: reason.into() });
    }

    /// Inserts the role's row; columns not given have their defaults.
    pub fn insert<E: Into<Expr>>(&mut self, role: &str, values: impl IntoIterator<Item = (&'static str, E)>) {
        let values = values.into_iter().map(|(n, e)| (n.to_owned(), e.into())).collect();
        self.push(StmtNode::Insert { role: role.into(), values });
    }

    /// Deletes the role's row.
    pub fn delete(&mut self, role: &str) {
        self.push(StmtNode::Delete { role: role.into() });
    }

    /// Appends a statement that wakes the role's row at an event time; none cancels an earlier wake.
    pub fn wake(&mut self, role: &str, at: Option<Expr>) {
        self.push(StmtNode::Wake { role: role.into(), at });
    }

    /// Emits an event on the transaction's stream `name`.
    pub fn emit(&mut self, name: impl Into<String>, record: impl Into<Record>) {
        self.push(StmtNode::Emit { name: name.into(), record: record.into() });
    }

    /// Ends the transaction, emitting an event on `committed`.
    pub fn give(&mut self, record: impl Into<Record>) {
        self.push(StmtNode::Return { record: Some(record.into()) });
    }

    /// Ends the transaction.
    pub fn end(&mut self) {
        self.push(StmtNode::Return { record: None });
    }
}
