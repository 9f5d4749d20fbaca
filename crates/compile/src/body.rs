//! The values that expressions can reach: the event's fields, list elements, locals, and the rows of roles.

use crate::abi::{ColumnView, InputView};
use crate::layout::{By, FieldSource, Format, PASSED_TYPE, PassedList};
use crate::limits::Sums;
use crate::lower::{Lower, Slot, Val, constant, trusted};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use std::mem::offset_of;
use tidemill_model::{ColumnType, Schema};
use tidemill_plan::{LoopId, Missing, ReasonId, RoleId, Table};
use tidemill_state::{EXISTS, RowLayout, blob};

/// The place of a field's value, for the expressions that read it.
#[derive(Clone)]
pub enum FieldValue {
    /// The field is in a column of the input.
    Source(FieldSource),
    /// Computed earlier in the same function.
    Known(Val),
}

/// The event at hand.
pub struct Event<'p> {
    pub schema: &'p Schema,
    pub fields: Vec<FieldValue>,
    /// Address of the column views.
    pub columns: Value,
    /// `i`
    pub dense: Value,
    /// `index[i]`
    pub row: Value,
    /// Address of the input.
    pub input: Value,
}

/// A list in the child columns.
#[derive(Clone, Copy)]
pub struct List {
    /// The place of the first element.
    pub first: Value,
    /// One past that of the last element.
    pub end: Value,
    /// The address of the views of the children.
    pub children: Value,
}

/// A running loop over a list.
#[derive(Clone, Copy)]
pub struct Element {
    /// The address of the views of the list's children.
    pub children: Value,
    /// The element's place in the child columns.
    pub child: Value,
    /// The element's number in its list.
    pub number: Value,
}

/// A role of the transaction at hand.
pub struct RoleState<'p> {
    pub role: &'p tidemill_plan::Role,
    pub table: &'p Table,
    pub layout: RowLayout,
    /// The row of a role without list, or where the rows of one that is not one row are listed; loaded once.
    pub row: Option<Value>,
    /// Address of the role's rows, and for a role over a list of its starts.
    pub rows: Value,
    pub starts: Value,
    /// A flag: whether the row is known to exist at this point of the code. Never for a role over a list or that is not
    /// one row.
    pub known: bool,
}

/// A function body under construction.
pub struct Body<'a, 'f> {
    pub l: Lower<'a, 'f>,
    pub event: Event<'a>,
    /// The element of each loop, by loop; set while the loop's body is lowered.
    pub elements: Vec<Option<Element>>,
    pub locals: Vec<Slot>,
    pub roles: Vec<RoleState<'a>>,
    /// Takes the reason as its one parameter.
    pub failure: Block,
    pub undo_top: Option<Variable>,
    /// The sums that are compared with the limits, if anything is counted.
    pub sums: Option<Sums>,
}

impl Body<'_, '_> {
    /// Leaves to the failure block where `condition` is not 0.
    pub fn fail_if(&mut self, condition: Value, reason: ReasonId) {
        let [failed, next] = std::array::from_fn(|_| self.l.b.create_block());
        self.l.b.ins().brif(condition, failed, &[], next, &[]);
        self.fail_aside(failed, reason, next);
    }

    /// Leaves to the failure block where `condition` is 0.
    pub fn fail_unless(&mut self, condition: Value, reason: ReasonId) {
        let [failed, next] = std::array::from_fn(|_| self.l.b.create_block());
        self.l.b.ins().brif(condition, next, &[], failed, &[]);
        self.fail_aside(failed, reason, next);
    }

    /// Leaves to the failure block from `failed`, out of the way of what goes on at `next`.
    fn fail_aside(&mut self, failed: Block, reason: ReasonId, next: Block) {
        self.l.b.set_cold_block(failed);
        self.l.b.switch_to_block(failed);
        self.fail(reason);
        self.l.b.switch_to_block(next);
    }

    /// Leaves to the failure block.
    pub fn fail(&mut self, reason: ReasonId) {
        let reason = self.l.int(reason as i64);
        self.l.b.ins().jump(self.failure, &[reason.into()]);
    }

    /// Returns a scalar field of the event.
    pub fn field(&mut self, field: usize, ty: ColumnType) -> Val {
        match self.event.fields[field].clone() {
            FieldValue::Known(value) => value,
            FieldValue::Source(FieldSource::Scalar(source)) => {
                let at = if source.by == By::Row { self.event.row } else { self.event.dense };
                let view = self.l.view_address(self.event.columns, source.view);
                match source.format {
                    Format::Arrow => self.l.load_arrow(view, at, ty),
                    Format::Native => self.l.load_native(view, at, ty),
                }
            }
            FieldValue::Source(_) => unreachable!("a list is no scalar"),
        }
    }

    /// Returns the place of the event in the history.
    pub fn place(&mut self) -> Value {
        let places = self.l.load_constant(self.event.input, INPUT_PLACES);
        let address = self.l.at(places, self.event.row, 3);
        self.l.b.ins().load(I64, constant(), address, 0)
    }

    /// Returns the event's list in the child columns.
    pub fn list(&mut self, field: usize) -> List {
        let (view, row) = match self.event.fields[field] {
            FieldValue::Source(FieldSource::List { offsets, .. }) => {
                (self.l.view_address(self.event.columns, offsets), self.event.row)
            }
            FieldValue::Source(FieldSource::Passed { view }) => {
                let column = self.l.view_address(self.event.columns, view);
                let word = self.l.load_native(column, self.event.row, PASSED_TYPE).word;
                let number = self.l.b.ins().ushr_imm_s(word, i64::from(PassedList::ROW_BITS));
                let lists = self.l.load(column, offset_of!(ColumnView, aux));
                let list = self.l.at(lists, number, 3);
                let row = self.l.b.ins().ireduce(I32, word);
                (self.l.load(list, 0), self.l.b.ins().uextend(I64, row))
            }
            _ => unreachable!("a list is not computed"),
        };
        let offsets = self.l.load_constant(view, offset_of!(ColumnView, values));
        let address = self.l.at(offsets, row, 2);
        let first = self.l.b.ins().sload32(constant(), address, 0);
        let end = self.l.b.ins().sload32(constant(), address, 4);
        List { first, end, children: self.l.view_address(view, 1) }
    }

    /// Returns the word that says which list the event's is ([`PassedList`]).
    pub fn passed_list(&mut self, field: usize) -> Val {
        match self.event.fields[field] {
            FieldValue::Source(FieldSource::List { number, .. }) => {
                let number = self.l.int((number as i64) << PassedList::ROW_BITS);
                let word = self.l.b.ins().bor(number, self.event.row);
                Val { word, len: None, null: None }
            }
            FieldValue::Source(FieldSource::Passed { view }) => {
                let column = self.l.view_address(self.event.columns, view);
                self.l.load_native(column, self.event.row, PASSED_TYPE)
            }
            _ => unreachable!("a list is not computed"),
        }
    }

    /// Returns the number of elements of a list field.
    pub fn length(&mut self, field: usize) -> Value {
        let List { first, end, .. } = self.list(field);
        self.l.b.ins().isub(end, first)
    }

    /// Returns a column of the current element of a loop's list.
    pub fn element(&mut self, loop_id: LoopId, column: usize, ty: ColumnType) -> Val {
        let element = self.elements[loop_id].expect("analysis allows elements inside their loop only");
        let view = self.l.view_address(element.children, column);
        self.l.load_arrow(view, element.child, ty)
    }

    /// Returns the value of a local.
    pub fn local(&mut self, local: usize) -> Val {
        let slot = self.locals[local];
        self.l.get(slot)
    }

    /// Returns the flags of the roles whose rows are known to exist.
    pub fn known_rows(&self) -> Vec<bool> {
        self.roles.iter().map(|r| r.known).collect()
    }

    /// Goes back to what was known before a branch.
    pub fn restore_known(&mut self, known: Vec<bool>) {
        for (role, known) in self.roles.iter_mut().zip(known) {
            role.known = known;
        }
    }

    /// Returns the address of a role's row, 0 where its key is null.
    pub fn row_of(&mut self, role: RoleId, element: Option<LoopId>) -> Value {
        if let Some(number) = self.roles[role].role.scan {
            let number = self.local(number).word;
            return self.listed_row(role, number);
        }
        let Some(loop_id) = element else {
            return self.roles[role].row.expect("a role without list has one row");
        };
        let number = self.elements[loop_id].expect("analysis gives a running loop").number;
        self.row_of_element(role, number)
    }

    /// Returns the row of that number of a role that is not one row ([`InputView::rows`]).
    pub fn listed_row(&mut self, role: RoleId, number: Value) -> Value {
        let rows = self.roles[role].row.expect("a role without list has one address");
        let address = self.l.at(rows, number, 3);
        self.l.b.ins().load(I64, constant(), address, 8)
    }

    /// Returns the number of rows of such a role.
    pub fn scanned_count(&mut self, role: RoleId) -> Value {
        let rows = self.roles[role].row.expect("a role without list has one address");
        self.l.b.ins().load(I64, constant(), rows, 0)
    }

    /// Returns the row of a role over a list for the element of that number.
    pub fn row_of_element(&mut self, role: RoleId, number: Value) -> Value {
        let (rows, starts) = (self.roles[role].rows, self.roles[role].starts);
        let address = self.l.at(starts, self.event.dense, 2);
        let start = self.l.b.ins().uload32(constant(), address, 0);
        let at = self.l.b.ins().iadd(start, number);
        let address = self.l.at(rows, at, 3);
        self.l.b.ins().load(I64, constant(), address, 0)
    }

    /// Returns whether a role's key can be null.
    pub fn key_nullable(&self, role: RoleId) -> bool {
        self.roles[role].role.key.iter().any(|k| k.ty.nullable)
    }

    /// Fails where the key is null.
    pub fn require_key(&mut self, role: RoleId, row: Value) {
        if self.key_nullable(role) {
            let none = self.l.b.ins().icmp_imm_s(cranelift_codegen::ir::condcodes::IntCC::Equal, row, 0);
            self.fail_if(none, self.roles[role].role.no_key);
        }
    }

    /// Returns the existence bit of a row, 0 or 1 as a byte. The row's address is not 0.
    pub fn existence(&mut self, row: Value) -> Value {
        let header = self.l.load(row, 0);
        let bit = self.l.b.ins().band_imm_s(header, EXISTS as i64);
        self.l.b.ins().ireduce(cranelift_codegen::ir::types::I8, bit)
    }

    /// Fails unless the row is there.
    pub fn require_row(&mut self, role: RoleId, row: Value) {
        if self.roles[role].known {
            return;
        }
        self.require_key(role, row);
        let header = self.l.load(row, 0);
        let exists = self.l.b.ins().band_imm_s(header, EXISTS as i64);
        self.fail_unless(exists, self.roles[role].role.no_row);
        self.roles[role].known = self.roles[role].role.is_one_row();
    }

    /// Tests whether the role's row exists now.
    pub fn exists(&mut self, role: RoleId, element: Option<LoopId>) -> Value {
        let row = self.row_of(role, element);
        if !self.key_nullable(role) {
            return self.existence(row);
        }
        let (look, done) = (self.l.b.create_block(), self.l.b.create_block());
        self.l.b.append_block_param(done, cranelift_codegen::ir::types::I8);
        let no = self.l.byte(false);
        self.l.b.ins().brif(row, look, &[], done, &[no.into()]);
        self.l.b.switch_to_block(look);
        let exists = self.existence(row);
        self.l.b.ins().jump(done, &[exists.into()]);
        self.l.b.switch_to_block(done);
        self.l.b.block_params(done)[0]
    }

    /// Returns a cell as an expression reads it.
    pub fn cell(&mut self, role: RoleId, element: Option<LoopId>, column: usize) -> Val {
        let row = self.row_of(role, element);
        if self.roles[role].role.missing == Missing::Abort {
            self.require_row(role, row);
            return self.load_cell(role, row, column);
        }
        if self.roles[role].known {
            return self.load_cell(role, row, column);
        }
        if self.roles[role].table.key.contains(&column) {
            self.require_key(role, row);
            return self.load_cell(role, row, column);
        }
        self.cell_or_default(role, row, column)
    }

    fn cell_or_default(&mut self, role: RoleId, row: Value, column: usize) -> Val {
        let definition = &self.roles[role].table.columns[column];
        let default = definition.default.as_ref().expect("analysis makes sure of a default");
        let slot = self.l.slot(definition.ty);
        let [check, there, missing, done] = std::array::from_fn(|_| self.l.b.create_block());
        self.l.b.ins().brif(row, check, &[], missing, &[]);
        self.l.b.switch_to_block(check);
        let exists = self.existence(row);
        self.l.b.ins().brif(exists, there, &[], missing, &[]);
        self.l.b.switch_to_block(there);
        let value = self.load_cell(role, row, column);
        self.l.set(slot, value);
        self.l.b.ins().jump(done, &[]);
        self.l.b.switch_to_block(missing);
        let value = self.l.constant_value(default, definition.ty.ty);
        self.l.set(slot, value);
        self.l.b.ins().jump(done, &[]);
        self.l.b.switch_to_block(done);
        self.l.get(slot)
    }

    /// Returns a cell of a row that exists, or a key cell of any row.
    pub fn load_cell(&mut self, role: RoleId, row: Value, column: usize) -> Val {
        let ty = self.roles[role].table.columns[column].ty;
        let offset = self.roles[role].layout.cell(column);
        let null = ty.nullable.then(|| {
            let (offset, bit) = self.roles[role].layout.null_bit(column);
            let header = self.l.load(row, offset);
            let shifted = self.l.b.ins().ushr_imm_s(header, bit.trailing_zeros() as i64);
            let bit = self.l.b.ins().band_imm_s(shifted, 1);
            self.l.b.ins().ireduce(cranelift_codegen::ir::types::I8, bit)
        });
        let word = self.l.load(row, offset);
        if !ty.ty.is_bytes() {
            return Val { word: self.l.of_word(word, ty.ty), len: None, null };
        }
        let (start, len) = self.load_blob(word);
        Val { word: start, len: Some(len), null }
    }

    /// Address and length of the text of a handle.
    fn load_blob(&mut self, handle: Value) -> (Value, Value) {
        let (full, done) = (self.l.b.create_block(), self.l.b.create_block());
        self.l.b.append_block_param(done, I64);
        let zero = self.l.int(0);
        self.l.b.ins().brif(handle, full, &[], done, &[zero.into()]);
        self.l.b.switch_to_block(full);
        let len = self.l.b.ins().load(I64, trusted(), handle, 0);
        self.l.b.ins().jump(done, &[len.into()]);
        self.l.b.switch_to_block(done);
        let len = self.l.b.block_params(done)[0];
        (self.l.b.ins().iadd_imm_s(handle, blob::PREFIX as i64), len)
    }

    /// Loads the address of a per-role or per-column array out of an input.
    pub fn input_pointer(&mut self, input: Value, offset: usize) -> Value {
        self.l.load_constant(input, offset)
    }
}

/// Offsets of [`InputView`]'s fields, for the functions' entries.
pub const INPUT_COLUMNS: usize = offset_of!(InputView, columns);
/// The offset of the index, likewise.
pub const INPUT_INDEX: usize = offset_of!(InputView, index);
/// The offset of the places, likewise.
pub const INPUT_PLACES: usize = offset_of!(InputView, places);
