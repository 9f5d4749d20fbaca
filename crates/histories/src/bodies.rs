//! Random transactions: roles, and statements over them.

use crate::ast::*;
use crate::expressions::{View, Visible, column_type, constant};
use crate::random::Random;
use crate::selections::{computed, one_rows, random_selection, rows_with};
use crate::windows::{aggregates, usable};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, BinaryOp, ColumnDef, CompareOp, Expr, ExprNode, Record, RoleDef, Stmt, StmtNode, StreamRef, TableDef,
    TransactionDef,
};

/// Most rounds of a range loop.
const ROUNDS_MAX: i64 = 4;

/// Most rounds of a loop that ends by its condition: more than are free.
const ROUNDS_OF_WHILE: i64 = 120;

/// The prefix of the variables of range loops.
const COUNTER: &str = "i";

/// The task that a transaction is made for.
pub struct Task<'a> {
    pub name: String,
    pub inputs: Vec<StreamRef>,
    pub schema: &'a Schema,
    /// The field of event time that all inputs have.
    pub time: Option<usize>,
    pub tables: &'a [TableDef],
    /// Roughly how many statements a block has.
    pub statements: usize,
    /// A flag: whether it may emit many events for one.
    pub fans_out: bool,
    /// The readiness to take operations that may fail, in percent, as [`View::risk`].
    pub risk: usize,
    /// A flag: whether it may read all rows of tables.
    pub scans: bool,
}

/// An output stream under a name.
struct Output {
    name: String,
    schema: Schema,
    event_time: Option<String>,
    /// A flag: whether the schema is written down; else it is inferred, from the one place of use.
    declared: bool,
    used: bool,
}

/// A list loop around the point at hand.
struct Around {
    list: String,
    variable: String,
}

/// A body being written.
struct Body<'a> {
    task: &'a Task<'a>,
    roles: &'a [RoleDef],
    /// All locals with their types, and whether each is sure to be set here.
    locals: Vec<(String, ColumnType, bool)>,
    loops: Vec<Around>,
    /// The roles whose rows a loop around the point at hand goes over.
    scanned: Vec<String>,
    /// The number of loops of any kind around the point at hand.
    loop_depth: usize,
    /// Roles whose row is taken to be there, rightly or not. Others are asked first.
    trusted: Vec<String>,
    outputs: Vec<Output>,
    /// The record that is returned, if any.
    returned: Option<Output>,
    names: usize,
}

/// Returns a random transaction.
pub fn transaction_for(random: &mut Random, task: &Task) -> TransactionDef {
    let mut roles = Vec::new();
    for number in 0..random.between(1, 4) {
        roles.push(random_role(random, task, format!("r{number}"), roles.last()));
    }
    if task.scans && random.chance(60) {
        for number in 0..random.between(1, 2) {
            let table = random.pick(task.tables);
            let view = key_view(task, &roles);
            let selection = random_selection(random, table, &view, &one_rows(&roles), task.tables);
            roles.push(RoleDef { selection, ..all_rows(&format!("a{number}"), &table.name) });
        }
        for number in 0..random.below(4) {
            roles.extend(dependent_role(random, task, format!("d{number}"), &roles));
        }
    }
    let outputs = (0..random.below(3)).map(|n| random_output(random, task, format!("e{n}"))).collect();
    let returned = random.chance(50).then(|| random_output(random, task, String::new()));
    let trusted = roles.iter().filter(|_| random.chance(45)).map(|r| r.name.clone()).collect();
    let mut body = Body {
        task,
        roles: &roles,
        locals: Vec::new(),
        loops: Vec::new(),
        scanned: Vec::new(),
        loop_depth: 0,
        trusted,
        outputs,
        returned,
        names: 0,
    };
    let mut statements = body.block(random, 2);
    let rows: Vec<String> = roles.iter().filter_map(|role| role.each.clone()).collect();
    if let Some(rows) = random.pick_any(&rows).filter(|_| random.chance(80)) {
        let at = random.below(statements.len() + 1);
        statements.insert(at, body.for_rows_of(random, rows, 2));
    }
    statements.extend(body.last_emits(random));
    statements.extend(body.last_return(random));
    let (name, inputs) = (task.name.clone(), task.inputs.clone());
    TransactionDef { name, inputs, over: None, join: None, nested: false, derives: false, roles, body: statements }
}

/// Returns the view of a key, filter or map: the event alone.
pub fn event_view(schema: &Schema, risk: usize) -> View {
    let mut view = View { risk, ..View::default() };
    for field in &schema.fields {
        match field.ty {
            FieldType::Scalar(ty) => view.values.push(Visible { expr: event(&field.name), ty, bounded: true }),
            FieldType::List(_) => view.lists.push(field.name.clone()),
        }
    }
    view
}

/// Returns the fields of a list's elements, seen through a variable.
fn elements(schema: &Schema, list: &str, variable: &str) -> Vec<Visible> {
    let index = schema.index_of(list).expect("a list of the event");
    let FieldType::List(item) = &schema.fields[index].ty else { unreachable!("chosen as a list") };
    let visible = |(name, ty)| Visible { expr: element(variable, name), ty, bounded: true };
    item.columns().into_iter().map(visible).collect()
}

fn random_role(random: &mut Random, task: &Task, name: String, before: Option<&RoleDef>) -> RoleDef {
    // Another role on the table of the one before, often with its key: the two meet in one row.
    let again = before.filter(|_| random.chance(40));
    let table = match again {
        Some(role) => task.tables.iter().find(|t| t.name == role.table).expect("a role's table is there"),
        None => random.pick(task.tables),
    };
    let mut view = event_view(task.schema, 0);
    view.strict = true;
    let over = random.pick_any(&view.lists.clone()).filter(|_| random.chance(50)).cloned();
    if let Some(list) = &over {
        let inner = elements(task.schema, list, list);
        view.values.extend(inner.clone());
        // The elements' own fields make the more interesting keys.
        view.values.extend(inner);
    }
    let key = match again {
        Some(role) if role.over == over && random.chance(40) => role.key.clone(),
        _ => {
            let columns = table.columns.iter().filter(|c| c.key);
            columns.map(|c| random_key(random, &view, c.ty.ty)).collect()
        }
    };
    RoleDef { over, ..RoleDef::row(name, &table.name, key, random_access(random, table)) }
}

/// Returns a filter or map that reads a row, as a transaction: it passes on the fields that are no lists, and, in some, only events with
/// a number that is not too large.
pub fn reading_for(random: &mut Random, task: &Task, event_time: Option<String>) -> TransactionDef {
    let mut role = random_role(random, task, "r0".into(), None);
    while role.over.is_some() {
        role = random_role(random, task, "r0".into(), None);
    }
    role.access = match role.access {
        AccessDef::Create | AccessDef::ReadDefault => AccessDef::ReadDefault,
        _ => AccessDef::Read,
    };
    let scalars = task.schema.fields.iter().filter_map(|field| Some((field, field.scalar_type()?)));
    let mut fields: Vec<(String, Expr)> =
        scalars.clone().map(|(field, _)| (field.name.clone(), event(&field.name))).collect();
    let table = task.tables.iter().find(|table| table.name == role.table).expect("a role's table is there");
    let columns: Vec<&ColumnDef> = table.columns.iter().filter(|column| column.window.is_none()).collect();
    fields.push((format!("of_{}", task.name), cell("r0", &random.pick(&columns).name)));
    let mut body = vec![stmt(StmtNode::Return { record: Some(Record { fields, schema: None, event_time }) })];
    let numbers: Vec<_> = scalars.filter(|(_, ty)| *ty == ColumnType::required(Type::Int)).collect();
    if let Some((field, _)) = random.pick_any(&numbers).filter(|_| random.chance(50)) {
        let condition = compare(CompareOp::Lt, event(&field.name), int(random.int(0, 9)));
        body = vec![stmt(StmtNode::If { condition, then: body, otherwise: vec![] })];
    }
    let inputs = task.inputs.clone();
    TransactionDef { derives: true, ..crate::ast::transaction(&task.name, inputs, vec![role], body) }
}

fn random_access(random: &mut Random, table: &TableDef) -> AccessDef {
    use AccessDef::*;
    let has_defaults =
        table.columns.iter().all(|c| c.key || c.default.is_some() || c.ty.nullable || c.window.is_some());
    match has_defaults {
        true => *random.pick(&[Row, Row, Create, Create, Create, Read, ReadDefault]),
        false => *random.pick(&[Row, Row, Read]),
    }
}

/// Returns the view of keys and selections: the event, and the numbers of rows.
fn key_view(task: &Task, earlier: &[RoleDef]) -> View {
    let mut view = event_view(task.schema, 0);
    view.strict = true;
    view.values.extend(row_counts(earlier));
    view
}

/// Returns the numbers of rows of the roles that are not one row.
fn row_counts(roles: &[RoleDef]) -> impl Iterator<Item = Visible> {
    let rows = roles.iter().filter(|role| role.access == AccessDef::All);
    rows.map(|role| Visible { expr: row_count(&role.name), ty: Type::Int.into(), bounded: true })
}

/// Returns a row whose key is made of what rows of earlier roles have, where one has what is needed; or one for each of
/// some rows.
fn dependent_role(random: &mut Random, task: &Task, name: String, earlier: &[RoleDef]) -> Option<RoleDef> {
    let table = random.pick(task.tables);
    let view = key_view(task, earlier);
    let columns: Vec<&ColumnDef> = table.columns.iter().filter(|column| column.key).collect();
    let rows: Vec<&RoleDef> = earlier.iter().filter(|role| role.access == AccessDef::All).collect();
    let each = random.pick_any(&rows).map(|role| role.name.clone()).filter(|_| random.chance(60));
    let read = each.as_ref().map_or_else(|| one_rows(earlier), |rows| rows_with(earlier, rows));
    let first = computed(random, columns[0], &view, &read, task.tables)?;
    let mut key = vec![first];
    for column in &columns[1..] {
        let read = if random.chance(50) { one_rows(earlier) } else { read.clone() };
        let of_rows = computed(random, column, &view, &read, task.tables).filter(|_| random.chance(60));
        key.push(of_rows.unwrap_or_else(|| random_key(random, &view, column.ty.ty)));
    }
    Some(RoleDef { each, ..RoleDef::row(name, &table.name, key, random_access(random, table)) })
}

/// Returns an expression for a column of a key. Mostly a field as it is, so that rows are found.
pub fn random_key(random: &mut Random, view: &View, ty: Type) -> Expr {
    let fits: Vec<&Visible> = view.values.iter().filter(|v| v.ty.ty == ty).collect();
    match (random.pick_any(&fits), ty) {
        (Some(field), _) if random.chance(65) => field.expr.clone(),
        (Some(field), _) if random.chance(10) => {
            let condition = view.value(random, Type::Bool, 1);
            if_else(condition, field.expr.clone(), literal(Value::Null))
        }
        // A computed decimal could have a digit too many.
        (Some(field), Type::Decimal { .. }) => field.expr.clone(),
        (None, Type::Decimal { .. }) => constant(random, ty),
        _ => view.value(random, ty, 2),
    }
}

fn random_output(random: &mut Random, task: &Task, name: String) -> Output {
    let declared = random.chance(70);
    let mut fields = Vec::new();
    for number in 0..random.between(1, 4) {
        let ty = column_type(random);
        let nullable = declared && random.chance(30);
        fields.push(Field::scalar(format!("f{number}"), ColumnType { ty, nullable }));
    }
    let lists: Vec<&Field> = task.schema.fields.iter().filter(|f| f.scalar_type().is_none()).collect();
    if let Some(list) = random.pick_any(&lists).filter(|_| random.chance(30)) {
        fields.push(Field { name: "items".into(), ty: list.ty.clone() });
    }
    let is_time =
        |f: &&Field| matches!(f.scalar_type(), Some(ColumnType { ty: Type::Int | Type::Time, nullable: false }));
    let event_time = fields.iter().find(is_time).map(|f| f.name.clone()).filter(|_| declared && random.chance(30));
    Output { name, schema: Schema { fields }, event_time, declared, used: false }
}

/// Returns a record of an output's schema.
pub fn random_record(random: &mut Random, view: &View, input: &Schema, schema: &Schema, declared: bool) -> Record {
    let mut fields = Vec::new();
    for field in &schema.fields {
        let mut as_it_is = input.fields.iter().filter(|f| f.ty == field.ty);
        let value = match &field.ty {
            // A text of the event, as it is: where a round emits it, its length counts.
            FieldType::Scalar(ty) if ty.ty.is_bytes() && random.chance(50) => match as_it_is.next() {
                Some(text) => event(&text.name),
                None => constant(random, ty.ty),
            },
            FieldType::Scalar(ty) if declared => view.storable(random, *ty, 2),
            FieldType::Scalar(ty) => view.value(random, ty.ty, 2),
            _ => event(&as_it_is.next().expect("lists come from the event").name),
        };
        fields.push((field.name.clone(), value));
    }
    Record { fields, schema: declared.then(|| schema.clone()), event_time: None }
}

impl Body<'_> {
    /// Returns the view at the point at hand.
    fn view(&self) -> View {
        let mut view = event_view(self.task.schema, self.task.risk);
        for around in &self.loops {
            view.values.extend(elements(self.task.schema, &around.list, &around.variable));
        }
        for (name, ty, set) in &self.locals {
            if *set {
                view.values.push(Visible { expr: local(name), ty: *ty, bounded: false });
            }
        }
        view.values.extend(row_counts(self.roles));
        for role in self.reachable() {
            view.roles.push(role.name.clone());
            for column in self.table(role).columns.iter().filter(|_| self.trusts(role)) {
                if column.window.is_some() {
                    if usable(column, self.time()) {
                        // A value that may be None fits in fewer places, so it is offered more often.
                        let offers = |asked: &Visible| if asked.ty.nullable { 4 } else { 1 };
                        let asked = aggregates(&role.name, column).into_iter();
                        view.values.extend(asked.flat_map(|one| std::iter::repeat_n(one.clone(), offers(&one))));
                    }
                    continue;
                }
                let expr = cell(&role.name, &column.name);
                view.values.push(Visible { expr, ty: column.ty, bounded: false });
            }
        }
        view
    }

    /// Returns the type of the event's time.
    fn time(&self) -> Option<Type> {
        Some(self.task.schema.fields[self.task.time?].scalar_type().expect("an event time is a scalar").ty)
    }

    /// Returns the roles that mean a row here.
    fn reachable(&self) -> Vec<&RoleDef> {
        let in_loop = |list: &String| self.loops.iter().any(|l| l.list == *list);
        let at_row = |rows: &String| self.scanned.contains(rows);
        let is_one = |role: &&RoleDef| match role.access {
            AccessDef::All => at_row(&role.name),
            _ => role.over.as_ref().is_none_or(in_loop) && role.each.as_ref().is_none_or(at_row),
        };
        self.roles.iter().filter(is_one).collect()
    }

    /// Returns whether a missing row does no harm, or is not expected.
    fn trusts(&self, role: &RoleDef) -> bool {
        matches!(role.access, AccessDef::Create | AccessDef::ReadDefault | AccessDef::All)
            || self.trusted.contains(&role.name)
    }

    fn table(&self, role: &RoleDef) -> &TableDef {
        self.task.tables.iter().find(|t| t.name == role.table).expect("a role's table is there")
    }

    fn writable(&self, random: &mut Random) -> Option<RoleDef> {
        let mut roles = self.reachable();
        roles.retain(|r| matches!(r.access, AccessDef::Row | AccessDef::Create | AccessDef::All));
        random.pick_any(&roles).map(|r| (*r).clone())
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Returns a block with up to `depth` blocks within each other. What it sets is not sure to be set after.
    fn block(&mut self, random: &mut Random, depth: usize) -> Vec<Stmt> {
        let before: Vec<bool> = self.locals.iter().map(|l| l.2).collect();
        let most = if self.loop_depth > 0 { self.task.statements.min(3) } else { self.task.statements };
        let mut statements = Vec::new();
        for _ in 0..random.between(1, most) {
            statements.extend(self.statement(random, depth));
        }
        for (number, local) in self.locals.iter_mut().enumerate() {
            local.2 = before.get(number).copied().unwrap_or(false);
        }
        statements
    }

    fn statement(&mut self, random: &mut Random, depth: usize) -> Option<Stmt> {
        match random.below(100) {
            0..14 => Some(self.assign(random)),
            14..42 => self.set(random),
            42..50 if depth > 0 => self.visit(random, depth),
            50..56 if depth > 0 => Some(self.branch(random, depth)),
            56..68 if depth > 0 => self.for_each(random, depth),
            68..75 if depth > 0 => self.for_rows(random, depth).or_else(|| Some(self.for_range(random, depth))),
            75..79 => Some(self.require(random)),
            79..82 => Some(self.guarded(random, |random| abort(random.pick::<&str>(&["no", "refused"])))),
            82..87 => self.insert(random),
            87..90 => self.delete(random),
            90..95 => self.emit(random),
            95..97 => {
                let way_out = self.way_out(random)?;
                Some(self.guarded(random, |_| way_out))
            }
            _ if depth > 0 => self.visit(random, depth),
            _ => self.set(random),
        }
    }

    fn condition(&self, random: &mut Random) -> Expr {
        self.view().value(random, Type::Bool, 2)
    }

    fn guarded(&self, random: &mut Random, statement: impl FnOnce(&mut Random) -> Stmt) -> Stmt {
        let conditions = vec![self.condition(random), self.condition(random)];
        let condition = expr(ExprNode::All(conditions));
        when(condition, vec![statement(random)], vec![])
    }

    fn assign(&mut self, random: &mut Random) -> Stmt {
        let view = self.view();
        if let Some(number) = (!self.locals.is_empty() && random.chance(50)).then(|| random.below(self.locals.len())) {
            let (name, ty, _) = self.locals[number].clone();
            self.locals[number].2 = true;
            let counts = name.starts_with(COUNTER);
            // The counter of a range is never null; a sum may be.
            let value = match counts {
                true => add(view.value(random, Type::Int, 1), int(1)),
                false => view.storable(random, ty, 3),
            };
            return assign(&name, value);
        }
        let ty = if random.chance(10) { Type::Duration } else { column_type(random) };
        let nullable = random.chance(20);
        let name = self.name("v");
        let value = view.value(random, ty, 3);
        // The type of a local is the join of all that is assigned to it.
        let value = if nullable { if_else(self.condition(random), value, literal(Value::Null)) } else { value };
        let ty = if let Type::Decimal { scale, .. } = ty { decimal(scale) } else { ty };
        self.locals.push((name.clone(), ColumnType { ty, nullable }, true));
        assign(&name, value)
    }

    fn set(&mut self, random: &mut Random) -> Option<Stmt> {
        let role = self.writable(random)?;
        self.set_row(random, role)
    }

    fn set_row(&mut self, random: &mut Random, role: RoleDef) -> Option<Stmt> {
        if !self.trusts(&role) {
            self.trusted.push(role.name.clone());
            let inner = self.set_cell(random, &role);
            self.trusted.pop();
            return Some(when(exists(&role.name), vec![inner?], vec![]));
        }
        self.set_cell(random, &role)
    }

    /// Does more with a role whose row is there.
    fn visit(&mut self, random: &mut Random, depth: usize) -> Option<Stmt> {
        let roles = self.reachable();
        let doubtful: Vec<String> = roles.iter().filter(|r| !self.trusts(r)).map(|r| r.name.clone()).collect();
        let role = random.pick_any(&doubtful)?;
        self.trusted.push(role.clone());
        let then = self.block(random, depth - 1);
        self.trusted.pop();
        Some(when(exists(role), then, vec![]))
    }

    fn set_cell(&mut self, random: &mut Random, role: &RoleDef) -> Option<Stmt> {
        let can_set = |c: &&ColumnDef| !c.key && (c.window.is_none() || usable(c, self.time()));
        let mut columns: Vec<_> = self.table(role).columns.iter().filter(can_set).cloned().collect();
        if random.chance(50) && columns.iter().any(|c| c.window.is_some()) {
            columns.retain(|c| c.window.is_some());
        }
        let column = random.pick_any(&columns)?;
        let view = self.view();
        if column.window.is_some() {
            return Some(add_to(&role.name, &column.name, view.storable(random, column.ty, 2)));
        }
        let addable = matches!(column.ty.ty, Type::Int | Type::Float | Type::Decimal { .. });
        if addable && !column.ty.nullable && random.chance(40) {
            let amount = view.value(random, column.ty.ty, 1);
            let op = *random.pick(&[BinaryOp::Add, BinaryOp::Sub]);
            return Some(set(&role.name, &column.name, binary(op, cell(&role.name, &column.name), amount)));
        }
        Some(set(&role.name, &column.name, view.storable(random, column.ty, 3)))
    }

    fn branch(&mut self, random: &mut Random, depth: usize) -> Stmt {
        let condition = self.condition(random);
        let then = self.block(random, depth - 1);
        let otherwise = if random.chance(50) { self.block(random, depth - 1) } else { vec![] };
        when(condition, then, otherwise)
    }

    fn for_each(&mut self, random: &mut Random, depth: usize) -> Option<Stmt> {
        let list = random.pick_any(&self.view().lists)?.clone();
        let variable = self.name("x");
        self.loops.push(Around { list: list.clone(), variable: variable.clone() });
        let body = self.loop_body(random, depth);
        self.loops.pop();
        Some(for_each(&variable, &list, body))
    }

    fn for_range(&mut self, random: &mut Random, depth: usize) -> Stmt {
        if random.chance(25) {
            return self.repeat_while(random, depth);
        }
        let view = self.view();
        let variable = self.name(COUNTER);
        let step = *random.pick(&[1, 1, 2, -1, -3]);
        // Bounds are cut down to a few rounds, whatever the event says.
        let bound = binary(BinaryOp::Mod, view.value(random, Type::Int, 1), int(ROUNDS_MAX + 1));
        let far = if random.chance(50) { bound } else { int(random.int(0, ROUNDS_MAX)) };
        let near = int(random.int(-1, 1));
        let (start, stop) = if step > 0 { (near, far) } else { (far, near) };
        self.locals.push((variable.clone(), ColumnType::required(Type::Int), true));
        let mine = self.locals.len() - 1;
        let body = self.loop_body(random, depth);
        self.locals[mine].2 = false;
        for_range(&variable, start, stop, step, body)
    }

    /// A loop that ends where a condition does not hold at the start of a round, and after few rounds.
    fn repeat_while(&mut self, random: &mut Random, depth: usize) -> Stmt {
        let (counter, variable) = (self.name("n"), self.name("w"));
        let is_early = compare(CompareOp::Lt, local(&counter), int(random.int(0, ROUNDS_MAX)));
        let condition = match random.chance(50) {
            true => expr(ExprNode::All(vec![is_early, self.condition(random)])),
            false => is_early,
        };
        let mut body = vec![
            when(not(condition), vec![stmt(StmtNode::Break)], vec![]),
            assign(&counter, add(local(&counter), int(1))),
        ];
        body.extend(self.loop_body(random, depth));
        let first = assign(&counter, int(random.int(-1, 1)));
        when(self.condition(random), vec![first, for_range(&variable, int(0), int(ROUNDS_OF_WHILE), 1, body)], vec![])
    }

    /// Returns a loop over all rows of a table, if the transaction may have one here.
    fn for_rows(&mut self, random: &mut Random, depth: usize) -> Option<Stmt> {
        let free = |role: &&RoleDef| role.access == AccessDef::All && !self.scanned.contains(&role.name);
        let roles: Vec<String> = self.roles.iter().filter(free).map(|role| role.name.clone()).collect();
        let role = random.pick_any(&roles)?.clone();
        Some(self.for_rows_of(random, &role, depth))
    }

    /// Returns a loop over these rows. Mostly it writes a row that belongs to the one at hand, if there are such rows.
    fn for_rows_of(&mut self, random: &mut Random, rows: &str, depth: usize) -> Stmt {
        self.scanned.push(rows.to_owned());
        let mut body = self.loop_body(random, depth);
        let can_write = |role: &&RoleDef| matches!(role.access, AccessDef::Row | AccessDef::Create);
        let belonging = self.roles.iter().filter(|role| role.each.as_deref() == Some(rows)).filter(can_write);
        for role in belonging.cloned().collect::<Vec<_>>() {
            if random.chance(70) {
                let at = random.below(body.len() + 1);
                body.splice(at..at, self.set_row(random, role));
            }
        }
        self.scanned.pop();
        for_rows(rows, body)
    }

    fn loop_body(&mut self, random: &mut Random, depth: usize) -> Vec<Stmt> {
        self.loop_depth += 1;
        let mut body = self.block(random, depth - 1);
        if random.chance(60) {
            let node = if random.chance(50) { StmtNode::Break } else { StmtNode::Continue };
            let guarded = when(self.condition(random), vec![stmt(node)], vec![]);
            body.insert(random.below(body.len().max(1)), guarded);
        }
        if random.chance(60) {
            // Something that tells the number of rounds.
            body.extend(self.count(random));
        }
        if random.chance(20) {
            // Events that a round emits count against the limit of memory.
            body.extend(self.emit(random));
        }
        self.loop_depth -= 1;
        body
    }

    /// Adds to a number.
    fn count(&mut self, random: &mut Random) -> Option<Stmt> {
        let mut counters = Vec::new();
        for role in self.reachable() {
            let writable = matches!(role.access, AccessDef::Row | AccessDef::Create) && self.trusts(role);
            for column in self.table(role).columns.iter().filter(|c| writable && !c.key) {
                if column.ty == ColumnType::required(Type::Int) && column.window.is_none() {
                    counters.push(increase(&role.name, &column.name, int(random.int(1, 3))));
                }
            }
        }
        random.pick_any(&counters).cloned()
    }

    fn require(&self, random: &mut Random) -> Stmt {
        let mut conditions = Vec::new();
        for _ in 0..random.between(1, 4) {
            conditions.push(self.condition(random));
        }
        require(expr(ExprNode::Any(conditions)), random.pick::<&str>(&["not enough", "too much", "not allowed"]))
    }

    fn insert(&mut self, random: &mut Random) -> Option<Stmt> {
        let role = self.writable(random).filter(|role| role.access != AccessDef::All)?;
        let view = self.view();
        let mut values = Vec::new();
        for column in self.table(&role).columns.iter().filter(|c| !c.key && c.window.is_none()) {
            let optional = column.default.is_some() || column.ty.nullable;
            if !optional || random.chance(60) {
                values.push((column.name.clone(), view.storable(random, column.ty, 2)));
            }
        }
        random.shuffle(&mut values);
        let statement = stmt(StmtNode::Insert { role: role.name.clone(), values });
        Some(match random.chance(85) {
            true => when(not(exists(&role.name)), vec![statement], vec![]),
            false => statement,
        })
    }

    fn delete(&mut self, random: &mut Random) -> Option<Stmt> {
        let role = self.writable(random)?;
        let statement = delete(&role.name);
        Some(match random.chance(80) {
            true => {
                let condition = expr(ExprNode::All(vec![exists(&role.name), self.condition(random)]));
                when(condition, vec![statement], vec![])
            }
            false => statement,
        })
    }

    fn emit(&mut self, random: &mut Random) -> Option<Stmt> {
        let allowed = self.loop_depth == 0 || (self.loop_depth == 1 && self.task.fans_out);
        let free = |o: &Output| allowed && (o.declared || !o.used);
        let candidates: Vec<usize> = (0..self.outputs.len()).filter(|&n| free(&self.outputs[n])).collect();
        let number = *random.pick_any(&candidates)?;
        self.outputs[number].used = true;
        let output = &self.outputs[number];
        Some(stmt(StmtNode::Emit { name: output.name.clone(), record: self.record(random, output) }))
    }

    fn record(&self, random: &mut Random, output: &Output) -> Record {
        let record = random_record(random, &self.view(), self.task.schema, &output.schema, output.declared);
        Record { event_time: output.event_time.clone(), ..record }
    }

    /// Returns an early return.
    fn way_out(&mut self, random: &mut Random) -> Option<Stmt> {
        let record = match &self.returned {
            Some(output) if output.declared && random.chance(70) => Some(self.record(random, output)),
            _ => None,
        };
        Some(stmt(StmtNode::Return { record }))
    }

    /// Emissions that were not placed yet.
    fn last_emits(&mut self, random: &mut Random) -> Vec<Stmt> {
        let unused = self.outputs.iter().filter(|o| !o.used);
        let emit = |output: &Output, record| stmt(StmtNode::Emit { name: output.name.clone(), record });
        unused.map(|output| emit(output, self.record(random, output))).collect()
    }

    fn last_return(&self, random: &mut Random) -> Option<Stmt> {
        let output = self.returned.as_ref()?;
        let record = Some(self.record(random, output));
        Some(stmt(StmtNode::Return { record }))
    }
}

/// Returns a random item of a list.
pub fn random_item(random: &mut Random, types: &[Type]) -> ListItem {
    if random.chance(40) {
        return ListItem::Scalar(ColumnType::required(*random.pick(types)));
    }
    let mut columns = Vec::new();
    for number in 0..random.between(1, 3) {
        let ty = if number == 0 { *random.pick(types) } else { column_type(random) };
        columns.push((format!("c{number}"), ColumnType { ty, nullable: random.chance(20) }));
    }
    ListItem::Struct(columns)
}

/// Returns whether a record of these fields can be made from an event: its lists have to be there.
pub fn can_make(input: &Schema, schema: &Schema) -> bool {
    let made = |field: &Field| match field.ty {
        FieldType::Scalar(_) => true,
        _ => input.fields.iter().any(|f| f.ty == field.ty),
    };
    schema.fields.iter().all(made)
}
