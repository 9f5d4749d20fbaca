//! A whole transaction as one function over a run of events.
//!
//! The function works on the rows in place, so that two roles that meet in one row see each other's
//! effects. Before a word is overwritten, its address and its old content go to the undo log; an abort
//! plays the log back. Where nothing can fail any more, an overwritten word is not logged: a
//! transaction that checks first and writes last logs nothing, and one like a transfer, whose second
//! addition may still overflow, logs all but its last write. The defaults of a row that a role creates
//! are always logged, and replaced texts are always noted.

use crate::abi::{InputView, Verdict};
use crate::body::{Body, Element, List, RoleState};
use crate::context::{AccessContext, UNDO_UNCHECKED_MAX};
use crate::groups::{Groups, PartLayout, SPREAD};
use crate::helpers;
use crate::layout::{OutputColumn, OutputPlan, PASSED_TYPE};
use crate::lower::{Val, trusted};
use crate::transaction::{Form, FunctionSpec, Undo};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use std::mem::{offset_of, size_of};
use tidemill_model::{ColumnType, Schema, Type};
use tidemill_plan::typed::{Expr, Node, Stmt};
use tidemill_plan::{Column, Keep, LocalId, LoopId, OutputField, RoleId, Transaction, Window};
use tidemill_state::EXISTS;

/// The facts that the statements of one transaction need beyond [`Body`].
pub struct Access<'a, 'f> {
    pub body: Body<'a, 'f>,
    pub spec: &'a FunctionSpec<'a>,
    pub aborted_schema: &'a Schema,
    pub emit_schemas: Vec<&'a Schema>,
    pub input: Value,
    /// Next event; takes no parameters.
    pub next: Block,
    pub undo_start: Value,
    /// Innermost last: where `break` and `continue` go.
    pub loops: Vec<(Block, Block)>,
    /// The number of the element that the innermost running loop over each list field is on, or −1.
    pub running: Vec<(usize, Variable)>,
    /// The number that the running loop over the rows is on, or −1, for each local of roles that are for each of some
    /// rows.
    pub at_rows: Vec<(LocalId, Variable)>,
    /// A flag: whether commit must be told (texts replaced, events emitted).
    pub tell_commit: bool,
    /// A flag: whether every logged write asks for room, because there may be too many of them.
    pub checked_log: bool,
    /// The row that each local's value says to exist, by local.
    pub witnesses: Vec<Option<Witness>>,
}

/// The knowledge about a role's row that a condition gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Witness {
    role: RoleId,
    /// The value with which the row exists.
    value: bool,
}

impl Access<'_, '_> {
    /// Lowers statements. `later` says whether anything after them may abort. Returns false where
    /// control does not reach the end.
    pub fn block(&mut self, stmts: &[Stmt], later: bool) -> bool {
        for (i, stmt) in stmts.iter().enumerate() {
            if !self.stmt(stmt, &stmts[i + 1..], later) {
                return false;
            }
        }
        true
    }

    /// Returns whether anything after a statement may abort, given the rows that are known to exist at this point.
    fn aborts_after(&self, stmt: &Stmt, rest: &[Stmt]) -> bool {
        let deletes = stmt.deletes() || rest.iter().any(Stmt::deletes);
        let exists = |role: RoleId| !deletes && self.body.roles[role].known;
        rest.iter().any(|stmt| stmt.may_abort(&exists))
    }

    fn stmt(&mut self, stmt: &Stmt, rest: &[Stmt], later: bool) -> bool {
        if self.window_add(stmt, rest, later).is_some() {
            return true;
        }
        if let Stmt::Set { role, element, column, value } = stmt {
            let value = self.body.expr(value);
            let row = self.writable_row(*role, *element);
            // More rows may be known to exist after the value was computed.
            let later = later || self.aborts_after(stmt, rest);
            self.set_cell(*role, row, *column, value, later);
            return true;
        }
        let later = later || self.aborts_after(stmt, rest);
        match stmt {
            Stmt::Set { .. } => unreachable!("done above"),
            Stmt::Assign { local, value } => {
                let value = self.body.expr(value);
                let slot = self.body.locals[*local];
                self.body.l.set(slot, value);
            }
            Stmt::If { condition, then, otherwise } => return self.branch(condition, then, otherwise, later),
            Stmt::ForEach { loop_id, body } => self.for_each(*loop_id, body, later),
            Stmt::ForRange { local, start, stop, step, body } => {
                let (start, stop) = (self.body.expr(start).word, self.body.expr(stop).word);
                self.for_range(*local, start, stop, *step, body, later);
            }
            Stmt::Break | Stmt::Continue => {
                let &(leave, again) = self.loops.last().expect("analysis refuses these outside of loops");
                self.body.l.b.ins().jump(if *stmt == Stmt::Break { leave } else { again }, &[]);
                return false;
            }
            Stmt::Require { condition, reason } => {
                let condition = self.body.expr(condition).word;
                self.body.fail_unless(condition, *reason);
            }
            Stmt::Abort { reason } => {
                self.body.fail(*reason);
                return false;
            }
            Stmt::Count { count, reason } => self.body.count(*count, *reason),
            Stmt::Insert { role, element, values } => self.insert(*role, *element, values, later),
            Stmt::Delete { role, element } => {
                let row = self.body.row_of(*role, *element);
                self.body.require_row(*role, row);
                self.forget_rows(*role);
                let header = self.body.l.load(row, 0);
                let cleared = self.body.l.b.ins().band_imm_s(header, !(EXISTS as i64));
                self.write_word(row, 0, cleared, later);
            }
            Stmt::Emit { output, fields } => self.emit(*output, fields),
            Stmt::Return { fields } => {
                self.commit(fields.as_deref());
                return false;
            }
        }
        true
    }

    /// Returns a statement that adds to the window in the cell that it sets; none where it is another one.
    fn window_add(&mut self, stmt: &Stmt, rest: &[Stmt], later: bool) -> Option<()> {
        let Stmt::Set { role, element, column, value } = stmt else { return None };
        let Node::WindowAdd { window, cell, time, value } = &value.node else { return None };
        let (is_counted, place) = match &cell.node {
            Node::Counted { value, .. } => (true, &**value),
            _ => (false, &**cell),
        };
        if !matches!(place.node, Node::Cell { role: r, element: e, column: c } if (r, e, c) == (*role, *element, *column))
        {
            return None;
        }
        if is_counted {
            self.body.expr(cell);
        } else if !self.body.roles[*role].role.create {
            // Here reading the cell fails.
            self.writable_row(*role, *element);
        }
        let time = self.body.expr(time).word;
        let [value, len] = self.body.window_item(window, value);
        let row = self.writable_row(*role, *element);
        let later = later || self.aborts_after(stmt, rest);
        let cell = (row, self.body.roles[*role].layout.cell(*column));
        self.add_to_window(*role, cell, window, [time, value, len], later);
        Some(())
    }

    fn branch(&mut self, condition: &Expr, then: &[Stmt], otherwise: &[Stmt], later: bool) -> bool {
        let is_one_row = |of: &Witness| self.body.roles[of.role].role.is_one_row();
        let witness = witness(condition, &self.witnesses).filter(is_one_row);
        let condition = self.body.expr(condition).word;
        let [yes, no, done] = std::array::from_fn(|_| self.body.l.b.create_block());
        self.body.l.b.ins().brif(condition, yes, &[], no, &[]);
        let before = self.body.known_rows();
        let mut after: Option<Vec<bool>> = None;
        for (block, stmts, value) in [(yes, then, true), (no, otherwise, false)] {
            self.body.l.b.switch_to_block(block);
            self.body.restore_known(before.clone());
            if let Some(witness) = witness.filter(|witness| witness.value == value) {
                self.body.roles[witness.role].known = true;
            }
            if self.block(stmts, later) {
                self.body.l.b.ins().jump(done, &[]);
                let known = self.body.known_rows();
                after = Some(match after {
                    None => known,
                    Some(other) => other.iter().zip(known).map(|(a, b)| *a && b).collect(),
                });
            }
        }
        self.body.l.b.switch_to_block(done);
        let reached = after.is_some();
        self.body.restore_known(after.unwrap_or(before));
        if !reached {
            // Both branches left; the block exists but nothing jumps to it.
            self.body.l.b.ins().trap(cranelift_codegen::ir::TrapCode::unwrap_user(1));
        }
        reached
    }

    /// Lowers a loop: `condition` and `step` around the body. Rows that a round may delete are not known to exist at
    /// the start of the next, so nothing is.
    fn looped(
        &mut self,
        condition: impl FnOnce(&mut Self) -> Value,
        round: impl FnOnce(&mut Self) -> bool,
        step: impl FnOnce(&mut Self),
    ) {
        let [header, start, again, leave] = std::array::from_fn(|_| self.body.l.b.create_block());
        self.body.roles.iter_mut().for_each(|r| r.known = false);
        self.body.l.b.ins().jump(header, &[]);
        self.body.l.b.switch_to_block(header);
        let go_on = condition(self);
        self.body.l.b.ins().brif(go_on, start, &[], leave, &[]);
        self.body.l.b.switch_to_block(start);
        self.loops.push((leave, again));
        if round(self) {
            self.body.l.b.ins().jump(again, &[]);
        }
        self.loops.pop();
        self.body.l.b.switch_to_block(again);
        step(self);
        self.body.l.b.ins().jump(header, &[]);
        self.body.l.b.switch_to_block(leave);
        self.body.roles.iter_mut().for_each(|r| r.known = false);
    }

    fn for_each(&mut self, loop_id: LoopId, body: &[Stmt], later: bool) {
        let list = self.spec.transaction.loops[loop_id];
        let List { first, end, children } = self.body.list(list);
        let (start, past) = if self.spec.by_element == Some(list) {
            let context = self.body.l.context;
            let elements = offset_of!(AccessContext, elements);
            (self.body.l.load(context, elements), self.body.l.load(context, elements + 8))
        } else {
            (self.body.l.int(0), self.body.l.b.ins().isub(end, first))
        };
        let number = self.body.l.b.declare_var(I64);
        self.body.l.b.def_var(number, start);
        let running = self.running.iter().find(|(l, _)| *l == list).map(|(_, v)| *v);
        let outer = running.map(|v| self.body.l.b.use_var(v));
        let later = later || body.iter().any(|stmt| stmt.may_abort(&|_| false));
        self.looped(
            |a| {
                let at = a.body.l.b.use_var(number);
                a.body.l.compare(IntCC::SignedLessThan, at, past)
            },
            |a| {
                let at = a.body.l.b.use_var(number);
                if let Some(running) = running {
                    a.body.l.b.def_var(running, at);
                }
                let child = a.body.l.b.ins().iadd(first, at);
                a.body.elements[loop_id] = Some(Element { children, child, number: at });
                a.block(body, later)
            },
            |a| {
                let at = a.body.l.b.use_var(number);
                let next = a.body.l.b.ins().iadd_imm_s(at, 1);
                a.body.l.b.def_var(number, next);
            },
        );
        self.body.elements[loop_id] = None;
        if let (Some(running), Some(outer)) = (running, outer) {
            self.body.l.b.def_var(running, outer);
        }
    }

    /// Compiles a loop over Python's `range`: the number of rounds is known at the start, so the counter cannot
    /// overflow.
    fn for_range(&mut self, local: usize, start: Value, stop: Value, step: i64, body: &[Stmt], later: bool) {
        let b = &mut self.body.l.b;
        let (ahead, distance) = if step > 0 {
            (b.ins().icmp(IntCC::SignedLessThan, start, stop), b.ins().isub(stop, start))
        } else {
            (b.ins().icmp(IntCC::SignedGreaterThan, start, stop), b.ins().isub(start, stop))
        };
        let less_one = b.ins().iadd_imm_s(distance, -1);
        let size = b.ins().iconst(I64, step.unsigned_abs() as i64);
        let steps = b.ins().udiv(less_one, size);
        let (left, value) = (b.declare_var(I64), b.declare_var(I64));
        b.def_var(left, steps);
        b.def_var(value, start);
        let more = b.declare_var(I8);
        b.def_var(more, ahead);
        let later = later || body.iter().any(|stmt| stmt.may_abort(&|_| false));
        let slot = self.body.locals[local];
        let at_row = self.at_rows.iter().find(|(of, _)| *of == local).map(|(_, number)| *number);
        self.looped(
            |a| a.body.l.b.use_var(more),
            |a| {
                let word = a.body.l.b.use_var(value);
                if let Some(at_row) = at_row {
                    a.body.l.b.def_var(at_row, word);
                }
                a.body.l.set(slot, Val { word, len: None, null: None });
                a.block(body, later)
            },
            |a| {
                let b = &mut a.body.l.b;
                let remaining = b.use_var(left);
                let go_on = b.ins().icmp_imm_s(IntCC::NotEqual, remaining, 0);
                b.def_var(more, go_on);
                let fewer = b.ins().iadd_imm_s(remaining, -1);
                b.def_var(left, fewer);
                let current = b.use_var(value);
                let next = b.ins().iadd_imm_s(current, step);
                b.def_var(value, next);
            },
        );
        if let Some(at_row) = at_row {
            let none = self.body.l.int(-1);
            self.body.l.b.def_var(at_row, none);
        }
    }

    /// Returns a row that may be written: it exists, or is inserted with the defaults where the role says so.
    fn writable_row(&mut self, role: RoleId, element: Option<LoopId>) -> Value {
        let row = self.body.row_of(role, element);
        if !self.body.roles[role].role.create {
            self.body.require_row(role, row);
            return row;
        }
        if self.body.roles[role].known {
            return row;
        }
        self.body.require_key(role, row);
        let exists = self.body.existence(row);
        let (missing, done) = (self.body.l.b.create_block(), self.body.l.b.create_block());
        self.body.l.b.ins().brif(exists, done, &[], missing, &[]);
        self.body.l.b.switch_to_block(missing);
        let table = self.body.roles[role].table;
        // Cells of partial rows hold no texts before.
        let is_empty = |column: &Column| self.spec.form == Form::Folds && column.ty.ty.is_bytes();
        let columns = table.columns.iter().enumerate();
        for (c, column) in columns.filter(|(c, column)| !table.key.contains(c) && !is_empty(column)) {
            let default = column.default.as_ref().expect("analysis makes sure of a default");
            let value = self.body.l.constant_value(default, column.ty.ty);
            self.set_cell(role, row, c, value, true);
        }
        self.make_exist(row, true);
        self.body.l.b.ins().jump(done, &[]);
        self.body.l.b.switch_to_block(done);
        self.body.roles[role].known = self.body.roles[role].role.is_one_row();
        row
    }

    fn insert(&mut self, role: RoleId, element: Option<LoopId>, values: &[(usize, Expr)], later: bool) {
        let values: Vec<(usize, Val)> = values.iter().map(|(c, e)| (*c, self.body.expr(e))).collect();
        let row = self.body.row_of(role, element);
        self.body.require_key(role, row);
        let exists = self.body.existence(row);
        self.body.fail_if(exists, self.body.roles[role].role.row_exists);
        for (column, value) in values {
            self.set_cell(role, row, column, value, later);
        }
        self.make_exist(row, later);
        self.body.roles[role].known = self.body.roles[role].role.is_one_row();
    }

    fn make_exist(&mut self, row: Value, later: bool) {
        let header = self.body.l.load(row, 0);
        let exists = self.body.l.b.ins().bor_imm_s(header, EXISTS as i64);
        self.write_word(row, 0, exists, later);
    }

    /// Forgets which rows of the table exist after a delete: roles may meet.
    fn forget_rows(&mut self, role: RoleId) {
        let table = self.body.roles[role].role.table;
        self.body.roles.iter_mut().filter(|r| r.role.table == table).for_each(|r| r.known = false);
    }

    /// Writes a non-key cell and its null bit.
    fn set_cell(&mut self, role: RoleId, row: Value, column: usize, value: Val, later: bool) {
        let ty = self.body.roles[role].table.columns[column].ty;
        if ty.nullable {
            let (offset, bit) = self.body.roles[role].layout.null_bit(column);
            let header = self.body.l.load(row, offset);
            let cleared = self.body.l.b.ins().band_imm_s(header, !(bit as i64));
            let changed = match value.null {
                None => cleared,
                Some(null) => {
                    let wide = self.body.l.b.ins().uextend(I64, null);
                    let placed = self.body.l.b.ins().ishl_imm_s(wide, bit.trailing_zeros() as i64);
                    self.body.l.b.ins().bor(cleared, placed)
                }
            };
            self.write_word(row, offset, changed, later);
        }
        let offset = self.body.roles[role].layout.cell(column);
        match value.len {
            None => {
                let word = self.body.l.to_word(value.word, ty.ty);
                self.write_word(row, offset, word, later);
            }
            Some(len) => self.set_text(role, row, offset, Val { len: Some(len), ..value }),
        }
    }

    /// Returns the number of a role's table, for the context to count its texts.
    fn table_of(&mut self, role: RoleId) -> Value {
        self.body.l.int(usize::from(self.body.roles[role].role.table) as i64)
    }

    /// Sets a cell of text; a null leaves an empty text in the cell.
    fn set_text(&mut self, role: RoleId, row: Value, offset: usize, value: Val) {
        let mut len = value.len.expect("a text has a length");
        if let Some(null) = value.null {
            let zero = self.body.l.int(0);
            len = self.body.l.b.ins().select(null, zero, len);
        }
        let cell = self.body.l.b.ins().iadd_imm_s(row, offset as i64);
        let arguments = [self.body.l.context, self.table_of(role), cell, value.word, len];
        self.body.l.call(helpers::set_text as *const () as usize, &arguments, None);
    }

    /// Adds to the window in a cell.
    fn add_to_window(
        &mut self,
        role: RoleId,
        (row, offset): (Value, usize),
        window: &Window,
        item: [Value; 3],
        later: bool,
    ) {
        let [time, value, len] = item;
        if self.spec.form == Form::Folds && !later && matches!(window.keep, Keep::Slices(_)) {
            return self.add_apart(role, (row, offset), window, time, value);
        }
        self.tell_commit = true;
        let cell = self.body.l.b.ins().iadd_imm_s(row, offset as i64);
        let window = self.body.window_address(window);
        let last = self.body.l.int(i64::from(!later && self.spec.undo == Undo::ToBeginning));
        let arguments = [self.body.l.context, window, self.table_of(role), cell, time, value, len, last];
        self.body.l.call(helpers::window_add_to as *const () as usize, &arguments, None);
    }

    /// Adds to a window of slices of a partial row. Nothing after it can abort.
    fn add_apart(&mut self, role: RoleId, (row, offset): (Value, usize), window: &Window, time: Value, value: Value) {
        let (table, layout) = (self.body.roles[role].table, &self.body.roles[role].layout);
        let column =
            (0..table.columns.len()).find(|&column| layout.cell(column) == offset).expect("it is a column's cell");
        let (at, bytes) = PartLayout::of(layout, table).slices[column].expect("it is a window of slices");
        let number = self.table_of(role);
        let spec = self.body.window_address(window);
        let context = self.body.l.context;
        let l = &mut self.body.l;
        let [here, other, done] = std::array::from_fn(|_| l.b.create_block());
        l.b.set_cold_block(other);
        let limit = l.load(row, at + bytes);
        let turned = l.b.ins().bxor_imm_s(time, i64::MIN);
        let is_here = l.compare(IntCC::UnsignedLessThan, turned, limit);
        l.b.ins().brif(is_here, here, &[], other, &[]);

        l.b.switch_to_block(here);
        if window.value == Type::Float {
            let newest = l.b.ins().iadd_imm_s(row, at as i64);
            let is_done = l.call_word(helpers::window_add_float as *const () as usize, &[newest, value]);
            l.b.ins().brif(is_done, done, &[], other, &[]);
        } else {
            let count = l.load(row, at + 8);
            let more = l.b.ins().iadd_imm_s(count, 1);
            l.store(more, row, at + 8);
            // The sum has two words.
            let [low, high] = [16, 24].map(|word| l.load(row, at + word));
            let sum = l.b.ins().iadd(low, value);
            l.store(sum, row, at + 16);
            let carry = l.compare(IntCC::UnsignedLessThan, sum, low);
            let carry = l.b.ins().uextend(I64, carry);
            let sign = l.b.ins().sshr_imm_s(value, 63);
            let high = l.b.ins().iadd(high, sign);
            let high = l.b.ins().iadd(high, carry);
            l.store(high, row, at + 24);
            let [least, greatest] = [32, 40].map(|word| l.load(row, at + word));
            let least = l.b.ins().smin(least, value);
            l.store(least, row, at + 32);
            let greatest = l.b.ins().smax(greatest, value);
            l.store(greatest, row, at + 40);
            l.b.ins().jump(done, &[]);
        }

        l.b.switch_to_block(other);
        let [cell, newest] = [offset, at].map(|to| l.b.ins().iadd_imm_s(row, to as i64));
        let arguments = [context, spec, number, cell, newest, time, value];
        l.call(helpers::window_add_apart as *const () as usize, &arguments, None);
        l.b.ins().jump(done, &[]);
        l.b.switch_to_block(done);
    }

    /// Writes a word of a row, logging what it held where the transaction may still abort.
    fn write_word(&mut self, row: Value, offset: usize, word: Value, later: bool) {
        if later || self.spec.undo == Undo::ToMarks {
            self.log(row, offset);
        }
        self.body.l.store(word, row, offset);
    }

    fn log(&mut self, row: Value, offset: usize) {
        let variable = self.body.undo_top.expect("a transaction that writes has a log");
        let mut top = self.body.l.b.use_var(variable);
        if self.checked_log || !self.loops.is_empty() {
            top = self.undo_room(top);
        }
        let address = self.body.l.b.ins().iadd_imm_s(row, offset as i64);
        let old = self.body.l.load(row, offset);
        self.body.l.store(address, top, 0);
        self.body.l.store(old, top, 8);
        let next = self.body.l.b.ins().iadd_imm_s(top, 16);
        self.body.l.b.def_var(variable, next);
    }

    /// Compiles a check that the undo log has room for a write inside of a loop, where the number of writes is not
    /// known beforehand.
    fn undo_room(&mut self, top: Value) -> Value {
        let context = self.body.l.context;
        let end = self.body.l.load(context, offset_of!(AccessContext, undo_end));
        let full = self.body.l.compare(IntCC::UnsignedGreaterThanOrEqual, top, end);
        let (grow, done) = (self.body.l.b.create_block(), self.body.l.b.create_block());
        self.body.l.b.append_block_param(done, I64);
        self.body.l.b.ins().brif(full, grow, &[], done, &[top.into()]);
        self.body.l.b.switch_to_block(grow);
        let moved = self.body.l.call_word(helpers::grow_undo as *const () as usize, &[context, top]);
        self.body.l.b.ins().jump(done, &[moved.into()]);
        self.body.l.b.switch_to_block(done);
        self.body.l.b.block_params(done)[0]
    }

    /// Returns the values of a record's fields, all evaluated but those that are passed on where they are.
    fn record(&mut self, fields: &[OutputField], plan: &OutputPlan) -> Vec<Option<Val>> {
        let value = |(field, column): (&OutputField, &OutputColumn)| match (field, column) {
            (OutputField::List(list), OutputColumn::Passed(_)) => Some(self.body.passed_list(*list)),
            (OutputField::List(_), _) | (_, OutputColumn::Field(_)) => None,
            (OutputField::Value(expr), _) => Some(self.body.expr(expr)),
        };
        fields.iter().zip(&plan.columns).map(value).collect()
    }

    fn emit(&mut self, output: usize, fields: &[OutputField]) {
        let plan = &self.spec.emits[output];
        let values = self.record(fields, plan);
        if !plan.wanted {
            return;
        }
        let context = self.body.l.context;
        let number = self.spec.emit_base + output;
        let number_value = self.body.l.int(number as i64);
        let arguments = [context, number_value, self.body.event.dense];
        let place = self.body.l.call_word(helpers::emit as *const () as usize, &arguments);
        let tables = self.body.l.load(context, offset_of!(AccessContext, emit_views));
        let views = self.body.l.load(tables, 8 * number);
        let schema = self.emit_schemas[output];
        self.store_captured(views, place, plan, schema, &values);
    }

    fn store_captured(&mut self, views: Value, at: Value, plan: &OutputPlan, schema: &Schema, values: &[Option<Val>]) {
        for ((column, field), value) in plan.columns.iter().zip(&schema.fields).zip(values) {
            let Some(value) = value else { continue };
            if let OutputColumn::Captured(c) | OutputColumn::Passed(c) = column {
                let ty = field.scalar_type().unwrap_or(PASSED_TYPE);
                let view = self.body.l.b.ins().iadd_imm_s(views, (c * size_of::<crate::abi::NativeView>()) as i64);
                self.body.l.store_native(view, at, *value, ty);
            }
        }
    }

    /// Commits and goes to the next event.
    pub fn commit(&mut self, fields: Option<&[OutputField]>) {
        let dense = self.body.event.dense;
        let mut verdict = Verdict::COMMITTED_SILENTLY;
        let values = if self.spec.transaction.committed.passes_event {
            Some(self.passed_event())
        } else {
            fields.map(|fields| self.record(fields, self.spec.committed))
        };
        if let Some(values) = values {
            verdict = Verdict::COMMITTED;
            if self.spec.committed.wanted {
                let views = self.body.input_pointer(self.input, offset_of!(InputView, captures));
                self.store_captured(views, dense, self.spec.committed, self.spec.committed_schema, &values);
            }
        }
        self.tell_commit();
        if self.spec.form != Form::Folds {
            let verdict = self.body.l.b.ins().iconst(I32, i64::from(verdict.word()));
            self.set_verdict(verdict);
        }
        self.body.l.b.ins().jump(self.next, &[]);
    }

    /// Tells the context, where it has to know.
    fn tell_commit(&mut self) {
        let context = self.body.l.context;
        match self.body.undo_top {
            Some(top) if self.spec.undo == Undo::ToMarks => {
                let top = self.body.l.b.use_var(top);
                self.body.l.call(helpers::commit_undoable as *const () as usize, &[context, top], None);
            }
            _ if self.tell_commit => {
                self.body.l.call(helpers::commit as *const () as usize, &[context], None);
            }
            _ => {}
        }
    }

    /// Returns the event's own scalar fields, where they must be captured.
    fn passed_event(&mut self) -> Vec<Option<Val>> {
        let plan = self.spec.committed;
        let schema = &self.spec.transaction.schema;
        let capture = |(f, column): (usize, &OutputColumn)| match (column, schema.fields[f].scalar_type()) {
            (OutputColumn::Captured(_), Some(ty)) if plan.wanted => Some(self.body.field(f, ty)),
            (OutputColumn::Passed(_), _) if plan.wanted => Some(self.body.passed_list(f)),
            _ => None,
        };
        plan.columns.iter().enumerate().map(capture).collect()
    }

    /// Finds the rows of the roles where events are folded apart: that of the event's group, and the one that counts
    /// groups.
    pub fn find_group(&mut self) {
        let key = &self.spec.transaction.roles[0].key;
        let groups = self.body.roles[0].rows;
        let row = match key.iter().all(|part| matches!(part.node, Node::Const(_))) {
            true => self.body.l.load_constant(groups, offset_of!(Groups, sole)),
            false => self.look_for_group(groups, key),
        };
        self.body.roles[0].row = Some(row);
        if let Some(counts) = self.body.roles.get_mut(1) {
            counts.row = Some(self.body.l.load_constant(counts.rows, 0));
        }
    }

    fn look_for_group(&mut self, groups: Value, key: &[Expr]) -> Value {
        let mut parts = Vec::new();
        for part in key {
            let word = self.body.expr(part).word;
            parts.push(self.body.l.to_word(word, part.ty.ty));
        }
        let (table, layout) = (self.body.roles[0].table, self.body.roles[0].layout.clone());
        let l = &mut self.body.l;
        let tag = parts[1..].iter().fold(parts[0], |tag, &word| {
            let spread = l.b.ins().imul_imm_s(tag, SPREAD as i64);
            l.b.ins().bxor(spread, word)
        });
        let spread = l.b.ins().imul_imm_s(tag, SPREAD as i64);
        let shift = l.load(groups, offset_of!(Groups, shift));
        let place = l.b.ins().ushr(spread, shift);
        let places = l.load(groups, offset_of!(Groups, places));
        let place = l.at(places, place, 2);
        let number = l.b.ins().uload32(trusted(), place, 0);
        let words = PartLayout::of(&layout, table).words;
        let offset = l.b.ins().imul_imm_s(number, 8 * words as i64);
        let rows = l.load(groups, offset_of!(Groups, rows));
        let row = l.b.ins().iadd(rows, offset);
        let mut is_found = l.b.ins().icmp_imm_s(IntCC::NotEqual, number, 0);
        for (&part, &column) in parts.iter().zip(&table.key) {
            let own = l.load(row, layout.cell(column));
            let is_equal = l.compare(IntCC::Equal, own, part);
            is_found = l.b.ins().band(is_found, is_equal);
        }
        let [missing, done] = std::array::from_fn(|_| l.b.create_block());
        l.b.set_cold_block(missing);
        l.b.append_block_param(done, I64);
        l.b.ins().brif(is_found, done, &[row.into()], missing, &[]);
        l.b.switch_to_block(missing);
        let wanted = l.load_constant(groups, offset_of!(Groups, key));
        for (place, &part) in parts.iter().enumerate() {
            l.store(part, wanted, 8 * place);
        }
        let made = l.call_word(helpers::find_group as *const () as usize, &[groups]);
        l.b.ins().jump(done, &[made.into()]);
        l.b.switch_to_block(done);
        l.b.block_params(done)[0]
    }

    /// Counts an abort, where events are folded apart.
    fn count_abort(&mut self, reason: Value) {
        let counts = self.body.input_pointer(self.input, offset_of!(InputView, verdicts));
        let address = self.body.l.at(counts, reason, 3);
        let count = self.body.l.load(address, 0);
        let more = self.body.l.b.ins().iadd_imm_s(count, 1);
        self.body.l.store(more, address, 0);
    }

    fn set_verdict(&mut self, verdict: Value) {
        let address = self.verdict_address();
        self.body.l.b.ins().store(trusted(), verdict, address, 0);
    }

    fn verdict_address(&mut self) -> Value {
        let verdicts = self.body.input_pointer(self.input, offset_of!(InputView, verdicts));
        self.body.l.at(verdicts, self.body.event.dense, 2)
    }

    /// Aborts with the reason of the verdict that stands there.
    pub fn refuse(&mut self) {
        let address = self.verdict_address();
        let word = self.body.l.b.ins().uload32(trusted(), address, 0);
        let reason = self.body.l.b.ins().iadd_imm_s(word, -1);
        self.body.l.b.ins().jump(self.body.failure, &[reason.into()]);
    }

    /// Compiles the block that aborts: undo, show what was seen, next event.
    pub fn abort(&mut self, reasons: &[String]) {
        let failure = self.body.failure;
        self.body.l.b.switch_to_block(failure);
        let reason = self.body.l.b.block_params(failure)[0];
        if let Some(variable) = self.body.undo_top {
            let top = self.body.l.b.use_var(variable);
            if self.tell_commit {
                self.roll_back(top);
            } else {
                let (undo, done) = (self.body.l.b.create_block(), self.body.l.b.create_block());
                let written = self.body.l.compare(IntCC::NotEqual, top, self.undo_start);
                self.body.l.b.ins().brif(written, undo, &[], done, &[]);
                self.body.l.b.switch_to_block(undo);
                self.roll_back(top);
                self.body.l.b.ins().jump(done, &[]);
                self.body.l.b.switch_to_block(done);
            }
        } else if self.tell_commit {
            let top = self.undo_start;
            self.roll_back(top);
        }
        self.body.release_texts();
        if self.spec.aborted.wanted {
            self.show(reason, reasons);
        }
        if self.spec.form == Form::Folds {
            self.count_abort(reason);
        } else {
            // The word of `Verdict::aborted`.
            let code = self.body.l.b.ins().iadd_imm_s(reason, 1);
            let code = self.body.l.b.ins().ireduce(I32, code);
            self.set_verdict(code);
        }
        self.body.l.b.ins().jump(self.next, &[]);
    }

    fn roll_back(&mut self, top: Value) {
        self.body.l.call(helpers::roll_back as *const () as usize, &[self.body.l.context, top], None);
    }

    /// Captures what `aborted` shows.
    fn show(&mut self, reason: Value, reasons: &[String]) {
        let width = self.spec.transaction.schema.fields.len();
        let mut values: Vec<Option<Val>> = Vec::new();
        for (f, column) in self.spec.aborted.columns.iter().enumerate() {
            if let OutputColumn::Passed(_) = column {
                values.push(Some(self.body.passed_list(f)));
                continue;
            }
            let OutputColumn::Captured(_) = column else {
                values.push(None);
                continue;
            };
            let value = if f < width {
                let ty = self.spec.transaction.schema.fields[f].scalar_type().expect("only scalars are captured");
                self.body.field(f, ty)
            } else if f == width {
                self.reason_text(reason, reasons)
            } else {
                let seen = self.spec.transaction.seen[f - width - 1];
                self.seen(seen.role, seen.column)
            };
            values.push(Some(value));
        }
        let views = self.body.input_pointer(self.input, offset_of!(InputView, seen));
        self.store_captured(views, self.body.event.dense, self.spec.aborted, self.aborted_schema, &values);
    }

    fn reason_text(&mut self, reason: Value, reasons: &[String]) -> Val {
        let table = self.body.l.constants.text_table(reasons);
        let table = self.body.l.int(table);
        let entry = self.body.l.at(table, reason, 4);
        let (word, len) = (self.body.l.load(entry, 0), self.body.l.load(entry, 8));
        Val { word, len: Some(len), null: None }
    }

    /// Returns a column of the role's row as it was before the transaction; null where there is none.
    fn seen(&mut self, role: RoleId, column: usize) -> Val {
        let ty = ColumnType::optional(self.body.roles[role].table.columns[column].ty.ty);
        let slot = self.body.l.slot(ty);
        let [look, there, missing, done] = std::array::from_fn(|_| self.body.l.b.create_block());
        let row = match (self.body.roles[role].role.over, self.body.roles[role].role.scan) {
            (Some(list), _) => self.running_row(role, list, missing),
            (None, Some(local)) => self.listed_row(role, local, missing),
            (None, None) => self.body.roles[role].row.expect("a role without list has one row"),
        };
        self.body.l.b.ins().brif(row, look, &[], missing, &[]);
        self.body.l.b.switch_to_block(look);
        if self.body.roles[role].table.key.contains(&column) {
            self.body.l.b.ins().jump(there, &[]);
        } else {
            let exists = self.body.existence(row);
            self.body.l.b.ins().brif(exists, there, &[], missing, &[]);
        }
        self.body.l.b.switch_to_block(there);
        let value = self.body.load_cell(role, row, column);
        self.body.l.set(slot, value);
        self.body.l.b.ins().jump(done, &[]);
        self.body.l.b.switch_to_block(missing);
        let null = self.body.l.null(ty.ty);
        self.body.l.set(slot, null);
        self.body.l.b.ins().jump(done, &[]);
        self.body.l.b.switch_to_block(done);
        self.body.l.get(slot)
    }

    /// Returns the row of the element that the running loop over `list` is on; to `missing` outside of one.
    fn running_row(&mut self, role: RoleId, list: usize, missing: Block) -> Value {
        let Some((_, variable)) = self.running.iter().find(|(l, _)| *l == list).copied() else {
            return self.body.l.int(0);
        };
        let number = self.number_inside(variable, missing);
        self.body.row_of_element(role, number)
    }

    /// Returns the row of a role for each of some rows, where the running loop over these is; to `missing` outside of
    /// one.
    fn listed_row(&mut self, role: RoleId, local: LocalId, missing: Block) -> Value {
        let (_, variable) = *self.at_rows.iter().find(|(of, _)| *of == local).expect("a role for each of some rows");
        let number = self.number_inside(variable, missing);
        self.body.listed_row(role, number)
    }

    /// Returns the number that a running loop is on; to `missing` outside of it.
    fn number_inside(&mut self, variable: Variable, missing: Block) -> Value {
        let number = self.body.l.b.use_var(variable);
        let inside = self.body.l.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, number, 0);
        self.body.l.unless(inside, missing, &[]);
        number
    }
}

/// Returns what the value of each local says about a row, by local, from where it was assigned to the end. So it is
/// assigned once, and nothing deletes a row of the table.
pub fn witnesses(transaction: &Transaction) -> Vec<Option<Witness>> {
    let mut assigned: Vec<Vec<Option<Witness>>> = vec![Vec::new(); transaction.locals.len()];
    let mut deleted = Vec::new();
    crate::layout::visit(&transaction.body, &mut |stmt| match stmt {
        Stmt::Assign { local, value } => assigned[*local].push(witness(value, &[])),
        Stmt::ForRange { local, .. } => assigned[*local].push(None),
        Stmt::Delete { role, .. } => deleted.push(transaction.roles[*role].table),
        _ => {}
    });
    let lasts = |witness: &Witness| !deleted.contains(&transaction.roles[witness.role].table);
    let sole = |values: Vec<Option<Witness>>| match values[..] {
        [sole] => sole.filter(lasts),
        _ => None,
    };
    assigned.into_iter().map(sole).collect()
}

/// Returns what a condition says about a row, given what locals say.
fn witness(condition: &Expr, locals: &[Option<Witness>]) -> Option<Witness> {
    match &condition.node {
        Node::Exists { role, element: None } => Some(Witness { role: *role, value: true }),
        Node::Not(value) => witness(value, locals).map(|of| Witness { value: !of.value, ..of }),
        Node::Local(local) => locals.get(*local).copied().flatten(),
        _ => None,
    }
}

/// Returns a bound on the number of writes outside of loops, for which room is not checked.
pub fn unchecked_writes(transaction: &Transaction, roles: &[RoleState<'_>]) -> usize {
    let widest = roles.iter().map(|r| 2 * r.table.columns.len() + 1).max().unwrap_or(0);
    let mut statements = 0;
    crate::layout::visit(&transaction.body, &mut |_| statements += 1);
    statements * widest
}

const _: () = assert!(UNDO_UNCHECKED_MAX >= 64);
