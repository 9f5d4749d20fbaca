//! Values in compiled code, and the small vocabulary that all lowering is written in.

use crate::abi::ColumnView;
use crate::context::AccessContext;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, I8, I64};
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, Signature, Type as ClifType, Value};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};
use std::mem::{offset_of, size_of};
use tidemill_model::{ColumnType, Type, Value as Constant};
use tidemill_plan::{Periods, Window, Zone};

/// A value of an expression: a word, float or bool, or the address of a text; with its length for a
/// text; with a byte that is 1 for null where it may be null. A null's other parts are arbitrary but
/// defined, and its length is such that address and length may be read as a text.
#[derive(Clone, Copy)]
pub struct Val {
    pub word: Value,
    pub len: Option<Value>,
    pub null: Option<Value>,
}

/// A place that holds a value of a type across blocks.
#[derive(Clone, Copy)]
pub struct Slot {
    word: Variable,
    len: Option<Variable>,
    null: Option<Variable>,
}

/// Returns the machine type of a type's word.
pub fn machine_type(ty: Type) -> ClifType {
    match ty {
        Type::Bool => I8,
        Type::Float => F64,
        _ => I64,
    }
}

/// Returns the flags of memory that compiled code may read and write freely.
pub fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Returns the flags of memory that no thread writes during the call.
pub fn constant() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly()
}

/// Text and other constants; their addresses are in the code, so they live as long as it does.
#[derive(Default)]
pub struct Constants {
    texts: Vec<Box<[u8]>>,
    tables: Vec<Box<[u64]>>,
    windows: Vec<Box<[Window]>>,
    periods: Vec<Box<[Periods]>>,
    zones: Vec<Box<[Zone]>>,
}

impl Constants {
    /// Returns the address of a copy that is never freed before the code.
    pub fn text(&mut self, bytes: &[u8]) -> (i64, i64) {
        self.texts.push(bytes.into());
        let kept = self.texts.last().expect("just pushed");
        (kept.as_ptr() as i64, kept.len() as i64)
    }

    /// Returns the address of a copy that is never freed before the code.
    pub fn window(&mut self, window: &Window) -> i64 {
        self.windows.push([*window].into());
        self.windows.last().expect("just pushed").as_ptr() as i64
    }

    /// Returns the address of a copy that is never freed before the code.
    pub fn periods(&mut self, periods: &Periods) -> i64 {
        self.periods.push([periods.clone()].into());
        self.periods.last().expect("just pushed").as_ptr() as i64
    }

    /// The address of a copy that is never freed before the code.
    pub fn zone(&mut self, zone: &Zone) -> i64 {
        self.zones.push([zone.clone()].into());
        self.zones.last().expect("just pushed").as_ptr() as i64
    }

    /// Returns the address of a table of address and length of each text.
    pub fn text_table(&mut self, texts: &[String]) -> i64 {
        let words: Vec<u64> = texts
            .iter()
            .flat_map(|text| {
                let (start, len) = self.text(text.as_bytes());
                [start as u64, len as u64]
            })
            .collect();
        self.tables.push(words.into());
        self.tables.last().expect("just pushed").as_ptr() as i64
    }
}

/// The function under construction and what is at hand everywhere in it.
pub struct Lower<'a, 'f> {
    pub b: &'a mut FunctionBuilder<'f>,
    pub constants: &'a mut Constants,
    /// The [`AccessContext`].
    pub context: Value,
}

impl Lower<'_, '_> {
    pub fn int(&mut self, value: i64) -> Value {
        self.b.ins().iconst(I64, value)
    }

    pub fn byte(&mut self, value: bool) -> Value {
        self.b.ins().iconst(I8, value as i64)
    }

    /// Loads a pointer-sized word of the call's views: it does not change during the call, and may be
    /// read at any time, so the compiler may read it once before the loop.
    pub fn load_constant(&mut self, base: Value, offset: usize) -> Value {
        self.b.ins().load(I64, constant().with_can_move(), base, offset as i32)
    }

    pub fn load(&mut self, base: Value, offset: usize) -> Value {
        self.b.ins().load(I64, trusted(), base, offset as i32)
    }

    pub fn store(&mut self, value: Value, base: Value, offset: usize) {
        self.b.ins().store(trusted(), value, base, offset as i32);
    }

    /// Returns the address `base + index × 2^shift`.
    pub fn at(&mut self, base: Value, index: Value, shift: i64) -> Value {
        let offset = if shift == 0 { index } else { self.b.ins().ishl_imm_s(index, shift) };
        self.b.ins().iadd(base, offset)
    }

    /// Calls a helper by its address.
    pub fn call(&mut self, address: usize, arguments: &[Value], returns: Option<ClifType>) -> Option<Value> {
        let mut signature = Signature::new(CallConv::SystemV);
        for &argument in arguments {
            signature.params.push(AbiParam::new(self.b.func.dfg.value_type(argument)));
        }
        signature.returns.extend(returns.map(AbiParam::new));
        let signature = self.b.import_signature(signature);
        let address = self.int(address as i64);
        let call = self.b.ins().call_indirect(signature, address, arguments);
        self.b.inst_results(call).first().copied()
    }

    /// Calls a helper that returns a word.
    pub fn call_word(&mut self, address: usize, arguments: &[Value]) -> Value {
        self.call(address, arguments, Some(I64)).expect("declared to return a word")
    }

    /// Returns a word that the last helper left in the context.
    pub fn scratch(&mut self, word: usize) -> Value {
        self.load(self.context, offset_of!(AccessContext, scratch) + 8 * word)
    }

    /// Calls a helper that leaves a text.
    pub fn call_text(&mut self, address: usize, arguments: &[Value]) -> Val {
        self.call(address, arguments, None);
        let (word, len) = (self.scratch(0), self.scratch(1));
        Val { word, len: Some(len), null: None }
    }

    /// Makes a new block that execution falls into when `condition` holds, `otherwise` being taken if not.
    pub fn unless(&mut self, condition: Value, otherwise: Block, arguments: &[Value]) {
        let next = self.b.create_block();
        let arguments: Vec<_> = arguments.iter().map(|&v| v.into()).collect();
        self.b.ins().brif(condition, next, &[], otherwise, &arguments);
        self.b.switch_to_block(next);
    }

    /// Returns a place for values of a type.
    pub fn slot(&mut self, ty: ColumnType) -> Slot {
        Slot {
            word: self.b.declare_var(machine_type(ty.ty)),
            len: ty.ty.is_bytes().then(|| self.b.declare_var(I64)),
            null: ty.nullable.then(|| self.b.declare_var(I8)),
        }
    }

    pub fn set(&mut self, slot: Slot, value: Val) {
        self.b.def_var(slot.word, value.word);
        if let Some(len) = slot.len {
            let given = value.len.unwrap_or_else(|| self.int(0));
            self.b.def_var(len, given);
        }
        if let Some(null) = slot.null {
            let given = value.null.unwrap_or_else(|| self.byte(false));
            self.b.def_var(null, given);
        }
    }

    pub fn get(&mut self, slot: Slot) -> Val {
        Val {
            word: self.b.use_var(slot.word),
            len: slot.len.map(|v| self.b.use_var(v)),
            null: slot.null.map(|v| self.b.use_var(v)),
        }
    }

    /// Returns a null of a type.
    pub fn null(&mut self, ty: Type) -> Val {
        let word =
            if ty == Type::Float { self.b.ins().f64const(0.0) } else { self.b.ins().iconst(machine_type(ty), 0) };
        let len = ty.is_bytes().then(|| self.int(0));
        Val { word, len, null: Some(self.byte(true)) }
    }

    /// Returns a constant of a type.
    pub fn constant_value(&mut self, value: &Constant, ty: Type) -> Val {
        let bytes = match value {
            Constant::Null => return self.null(ty),
            Constant::Bool(v) => return self.plain_byte(*v),
            Constant::Float(v) => {
                let word = self.b.ins().f64const(*v);
                return Val { word, len: None, null: None };
            }
            Constant::Str(text) => text.as_bytes(),
            Constant::Bytes(bytes) => bytes.as_slice(),
            Constant::List(_) => unreachable!("analysis admits no list constant"),
            word => {
                let word = word.word().expect("the remaining values are words");
                return Val { word: self.int(word), len: None, null: None };
            }
        };
        let (start, len) = self.constants.text(bytes);
        Val { word: self.int(start), len: Some(self.int(len)), null: None }
    }

    fn plain_byte(&mut self, value: bool) -> Val {
        Val { word: self.byte(value), len: None, null: None }
    }

    /// Returns the value as eight bytes.
    #[allow(clippy::wrong_self_convention, reason = "what is changed is the code being built")]
    pub fn to_word(&mut self, value: Value, ty: Type) -> Value {
        match ty {
            Type::Bool => self.b.ins().uextend(I64, value),
            Type::Float => self.b.ins().bitcast(I64, MemFlagsData::new(), value),
            _ => value,
        }
    }

    /// Returns eight bytes as a value of a type.
    pub fn of_word(&mut self, word: Value, ty: Type) -> Value {
        match ty {
            Type::Bool => self.b.ins().ireduce(I8, word),
            Type::Float => self.b.ins().bitcast(F64, MemFlagsData::new(), word),
            _ => word,
        }
    }

    /// Stores a value at place `at` of the native column whose view is at `view`.
    pub fn store_native(&mut self, view: Value, at: Value, value: Val, ty: ColumnType) {
        let words = self.load(view, 0);
        let address = self.at(words, at, 3);
        let word = self.to_word(value.word, ty.ty);
        self.store(word, address, 0);
        if ty.ty.is_bytes() {
            let lens = self.load(view, 8);
            let address = self.at(lens, at, 3);
            let len = value.len.expect("a text has a length");
            self.store(len, address, 0);
        }
        if ty.nullable {
            let nulls = self.load(view, 16);
            let address = self.b.ins().iadd(nulls, at);
            let null = value.null.unwrap_or_else(|| self.byte(false));
            self.store(null, address, 0);
        }
    }

    /// Reads place `at` of a native column under a [`ColumnView`] at `view`.
    pub fn load_native(&mut self, view: Value, at: Value, ty: ColumnType) -> Val {
        let words = self.load(view, offset_of!(ColumnView, values));
        let address = self.at(words, at, 3);
        let word = self.load(address, 0);
        let word = self.of_word(word, ty.ty);
        let len = ty.ty.is_bytes().then(|| {
            let lens = self.load(view, offset_of!(ColumnView, aux));
            let address = self.at(lens, at, 3);
            self.load(address, 0)
        });
        let null = ty.nullable.then(|| self.load_null_byte(view, at));
        Val { word, len, null }
    }

    /// Reads place `at` of an Arrow column whose view is at `view`.
    pub fn load_arrow(&mut self, view: Value, at: Value, ty: ColumnType) -> Val {
        let values = self.load_constant(view, offset_of!(ColumnView, values));
        let (word, len) = match ty.ty {
            Type::Bool => {
                let offset = self.load_constant(view, offset_of!(ColumnView, values_offset));
                (self.load_bit(values, offset, at), None)
            }
            Type::Float => {
                let address = self.at(values, at, 3);
                (self.b.ins().load(F64, constant(), address, 0), None)
            }
            Type::Decimal { .. } => {
                let address = self.at(values, at, 4);
                (self.b.ins().load(I64, constant(), address, 0), None)
            }
            Type::Str | Type::Bytes => {
                let address = self.at(values, at, 2);
                let start = self.b.ins().sload32(constant(), address, 0);
                let end = self.b.ins().sload32(constant(), address, 4);
                let bytes = self.load_constant(view, offset_of!(ColumnView, aux));
                (self.b.ins().iadd(bytes, start), Some(self.b.ins().isub(end, start)))
            }
            _ => {
                let address = self.at(values, at, 3);
                (self.b.ins().load(I64, constant(), address, 0), None)
            }
        };
        let null = ty.nullable.then(|| self.load_null_bit(view, at));
        Val { word, len, null }
    }

    /// Loads 1 where a native value is null, else 0. A column that was made without nulls may be read as one that may
    /// have some, and has no bytes for them.
    fn load_null_byte(&mut self, view: Value, at: Value) -> Value {
        let nulls = self.load(view, offset_of!(ColumnView, validity));
        let (check, done) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(done, I8);
        let none = self.byte(false);
        self.b.ins().brif(nulls, check, &[], done, &[none.into()]);
        self.b.switch_to_block(check);
        let address = self.b.ins().iadd(nulls, at);
        let null = self.b.ins().load(I8, trusted(), address, 0);
        self.b.ins().jump(done, &[null.into()]);
        self.b.switch_to_block(done);
        self.b.block_params(done)[0]
    }

    /// Loads the bit `offset + at` of a bitmap, as 0 or 1.
    fn load_bit(&mut self, bits: Value, offset: Value, at: Value) -> Value {
        let bit = self.b.ins().iadd(offset, at);
        let byte_index = self.b.ins().ushr_imm_s(bit, 3);
        let address = self.b.ins().iadd(bits, byte_index);
        let byte = self.b.ins().load(I8, constant(), address, 0);
        let within = self.b.ins().band_imm_s(bit, 7);
        let shifted = self.b.ins().ushr(byte, within);
        self.b.ins().band_imm_s(shifted, 1)
    }

    /// Loads 1 where an Arrow value is null, else 0. A column without a bitmap has no nulls.
    fn load_null_bit(&mut self, view: Value, at: Value) -> Value {
        let bits = self.load_constant(view, offset_of!(ColumnView, validity));
        let (check, done) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(done, I8);
        let none = self.byte(false);
        self.b.ins().brif(bits, check, &[], done, &[none.into()]);
        self.b.switch_to_block(check);
        let offset = self.load_constant(view, offset_of!(ColumnView, validity_offset));
        let valid = self.load_bit(bits, offset, at);
        let null = self.b.ins().bxor_imm_s(valid, 1);
        self.b.ins().jump(done, &[null.into()]);
        self.b.switch_to_block(done);
        self.b.block_params(done)[0]
    }

    /// Returns the address of an input's column view.
    pub fn view_address(&mut self, columns: Value, view: usize) -> Value {
        self.b.ins().iadd_imm_s(columns, (view * size_of::<ColumnView>()) as i64)
    }

    pub fn compare(&mut self, code: IntCC, left: Value, right: Value) -> Value {
        self.b.ins().icmp(code, left, right)
    }
}
