//! Expressions to machine code. What each node means is said in `tidemill_plan::program`.

use crate::body::Body;
use crate::helpers;
use crate::lower::Val;
use crate::math::MATH;
use crate::records;
use crate::synopsis::ASKS;
use crate::window::AGGREGATES;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F64, I8, I64};
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value};
use std::mem::{offset_of, size_of};
use tidemill_model::{ColumnType, Type};
use tidemill_plan::typed::{Expr, Node};
use tidemill_plan::{
    Aggregate, Cast, CompareOp, DatePart, Edge, FloatOp, ReasonId, TextCall, TextOp, TextTest, Window, WordOp,
};

fn plain(word: Value) -> Val {
    Val { word, len: None, null: None }
}

impl Body<'_, '_> {
    /// Returns the value of an expression; on failure control leaves to the failure block.
    pub fn expr(&mut self, expr: &Expr) -> Val {
        match &expr.node {
            Node::Const(value) => self.l.constant_value(value, expr.ty.ty),
            Node::Field(field) => self.field(*field, expr.ty),
            Node::Element { loop_id, column } => self.element(*loop_id, *column, expr.ty),
            Node::Local(local) => self.local(*local),
            Node::Cell { role, element, column } => self.cell(*role, *element, *column),
            Node::Exists { role, element } => plain(self.exists(*role, *element)),
            Node::Length(field) => plain(self.length(*field)),
            Node::Rows { role } => plain(self.scanned_count(*role)),
            Node::Place => plain(self.place()),
            Node::Unwrap { value, reason } => {
                let value = self.expr(value);
                if let Some(null) = value.null {
                    self.fail_if(null, *reason);
                }
                Val { null: None, ..value }
            }
            Node::Counted { measure, value, reason } => {
                let value = self.expr(value);
                self.counted(*measure, value, *reason);
                value
            }
            Node::IsNull(value) => {
                let value = self.expr(value);
                plain(value.null.unwrap_or_else(|| self.l.byte(false)))
            }
            Node::And(left, right) => self.short_circuit(left, right, false),
            Node::Or(left, right) => self.short_circuit(left, right, true),
            Node::IfElse { condition, then, otherwise } => self.if_else(condition, then, otherwise, expr.ty),
            Node::Equal { left, right, negated } => self.equal(left, right, *negated),
            Node::Compare { op, left, right } => {
                let ty = left.ty.ty;
                let (left, right) = (self.expr(left), self.expr(right));
                plain(self.compare(*op, left, right, ty))
            }
            Node::Word { op: WordOp::Mod { .. }, left, right, .. } if positive_constant(right).is_some() => {
                let left = self.expr(left).word;
                plain(self.modulo_constant(left, positive_constant(right).expect("just looked at")))
            }
            Node::Word { op, left, right, reason } => {
                let (left, right) = (self.expr(left).word, self.expr(right).word);
                plain(self.word_op(*op, left, right, *reason))
            }
            Node::Float { op, left, right, reason } => {
                let (left, right) = (self.expr(left).word, self.expr(right).word);
                plain(self.float_op(*op, left, right, *reason))
            }
            _ => self.simple(expr),
        }
    }

    /// Nodes of one operand, or two of text.
    fn simple(&mut self, expr: &Expr) -> Val {
        match &expr.node {
            Node::Not(value) => {
                let value = self.expr(value).word;
                plain(self.l.b.ins().bxor_imm_s(value, 1))
            }
            Node::WordNeg { value, reason } => {
                let value = self.expr(value).word;
                let zero = self.l.int(0);
                plain(self.word_op(WordOp::Sub, zero, value, *reason))
            }
            Node::WordAbs { value, reason } => {
                let value = self.expr(value).word;
                let least = self.l.b.ins().icmp_imm_s(IntCC::Equal, value, i64::MIN);
                self.fail_if(least, *reason);
                plain(self.l.b.ins().iabs(value))
            }
            Node::Math { op, arguments, reason } => {
                let mut words: Vec<Value> = arguments.iter().map(|argument| self.expr(argument).word).collect();
                if words.len() == 1 {
                    words.push(self.l.b.ins().f64const(0.0));
                }
                let number = MATH.iter().position(|other| other == op).expect("all are listed");
                let number = self.l.int(number as i64);
                let arguments = [self.l.context, number, words[0], words[1]];
                let done = self.l.call_word(helpers::math as *const () as usize, &arguments);
                self.fail_if_zero(done, *reason);
                let word = self.l.scratch(0);
                plain(self.l.of_word(word, Type::Float))
            }
            Node::FloatNeg(value) => {
                let value = self.expr(value).word;
                plain(self.l.b.ins().fneg(value))
            }
            Node::FloatAbs(value) => {
                let value = self.expr(value).word;
                plain(self.l.b.ins().fabs(value))
            }
            Node::Cast { cast, value, reason } => {
                let value = self.expr(value);
                self.cast(*cast, value, *reason)
            }
            Node::Concat(left, right) => {
                let arguments = self.two_texts(left, right);
                let arguments = [&[self.l.context], arguments.as_slice()].concat();
                self.l.call_text(helpers::concat as *const () as usize, &arguments)
            }
            Node::Text { op, value } => {
                let value = self.expr(value);
                let helper = match op {
                    TextOp::Lower => helpers::lower as *const (),
                    TextOp::Upper => helpers::upper as *const (),
                    TextOp::Strip => helpers::strip as *const (),
                };
                let len = value.len.expect("a text has a length");
                self.l.call_text(helper as usize, &[self.l.context, value.word, len])
            }
            Node::TextCall { op, arguments, reason } => self.text_call(*op, arguments, *reason),
            Node::TextTest { op, left, right } => {
                let arguments = self.two_texts(left, right);
                let helper = match op {
                    TextTest::StartsWith => helpers::starts_with as *const (),
                    TextTest::EndsWith => helpers::ends_with as *const (),
                    TextTest::Contains => helpers::contains as *const (),
                };
                let word = self.l.call_word(helper as usize, &arguments);
                plain(self.l.b.ins().ireduce(I8, word))
            }
            Node::WindowAdd { window, cell, time, value } => {
                let cell = self.expr(cell);
                let time = self.expr(time).word;
                let [value, len] = self.window_item(window, value);
                let window = self.window_address(window);
                let bytes = cell.len.expect("a window is bytes");
                let arguments = [self.l.context, window, cell.word, bytes, time, value, len];
                self.l.call_text(helpers::window_add as *const () as usize, &arguments)
            }
            Node::WindowRead { .. } => self.window_read(expr),
            Node::SynopsisRead { .. } => self.synopsis_read(expr),
            Node::WindowNext { window, cell, time, within, after } => {
                let cell = self.expr(cell);
                let (time, after) = (self.expr(time).word, self.expr(after).word);
                let (window, within) = (self.window_address(window), self.l.int(*within));
                let bytes = cell.len.expect("a window is bytes");
                let arguments = [window, cell.word, bytes, time, within, after];
                plain(self.l.call_word(helpers::window_next as *const () as usize, &arguments))
            }
            Node::WindowField { cell, at, of, field } => self.window_field(cell, at, (*of, *field), expr.ty),
            Node::Period { edge, periods, time, reason } => {
                let time = self.expr(time).word;
                let address = self.l.constants.periods(periods);
                let periods = self.l.int(address);
                self.period(*edge, periods, time, *reason)
            }
            Node::DatePart { part, zone, time } => {
                let time = self.expr(time).word;
                let address = self.l.constants.zone(zone);
                let number = DatePart::ALL.iter().position(|other| other == part).expect("all are listed");
                let (zone, number) = (self.l.int(address), self.l.int(number as i64));
                plain(self.l.call_word(helpers::date_part as *const () as usize, &[zone, number, time]))
            }
            Node::Pack(values) => self.pack(values),
            Node::Len(value) => {
                let ty = value.ty.ty;
                let value = self.expr(value);
                let len = value.len.expect("a text has a length");
                let word = match ty {
                    Type::Str => self.l.call_word(helpers::characters as *const () as usize, &[value.word, len]),
                    _ => len,
                };
                plain(word)
            }
            other => unreachable!("lowered above: {other:?}"),
        }
    }

    /// Returns a value to add to a window, as word and length (0 of what is no text).
    pub fn window_item(&mut self, window: &Window, value: &Expr) -> [Value; 2] {
        let value = self.expr(value);
        let len = value.len.unwrap_or_else(|| self.l.int(0));
        [self.l.to_word(value.word, window.value), len]
    }

    /// Returns the address of what a helper must know of a window.
    pub fn window_address(&mut self, window: &Window) -> Value {
        let address = self.l.constants.window(window);
        self.l.int(address)
    }

    fn window_read(&mut self, expr: &Expr) -> Val {
        let Node::WindowRead { window, cell, time, within, aggregate, reason } = &expr.node else {
            unreachable!("called for such")
        };
        let cell = self.expr(cell);
        let time = self.expr(time).word;
        let number = AGGREGATES.iter().position(|other| other == aggregate).expect("all are listed");
        let (window, within, number) = (self.window_address(window), self.l.int(*within), self.l.int(number as i64));
        let bytes = cell.len.expect("a window is bytes");
        let arguments = [self.l.context, window, cell.word, bytes, time, within, number];
        let found = self.l.call_word(helpers::window_read as *const () as usize, &arguments);
        if *aggregate == Aggregate::Sum {
            self.fail_if_zero(found, *reason);
        }
        let word = self.l.scratch(0);
        let null = expr.ty.nullable.then(|| self.l.b.ins().icmp_imm_s(IntCC::Equal, found, 2));
        Val { word: self.l.of_word(word, expr.ty.ty), len: None, null }
    }

    /// Lowers the question to a synopsis. A text is copied, as that of a record.
    fn synopsis_read(&mut self, expr: &Expr) -> Val {
        let Node::SynopsisRead { window, cell, time, within, ask, argument } = &expr.node else {
            unreachable!("called for such")
        };
        let (cell, time, given) = (self.expr(cell), self.expr(time).word, self.expr(argument));
        let bytes = cell.len.expect("a window is bytes");
        let number = ASKS.iter().position(|other| other == ask).expect("all are listed");
        let (window, within, number) = (self.window_address(window), self.l.int(*within), self.l.int(number as i64));
        let len = given.len.unwrap_or_else(|| self.l.int(0));
        let given = self.l.to_word(given.word, argument.ty.ty);
        let arguments = [self.l.context, window, cell.word, bytes, time, within, number, given, len];
        let is_null = self.l.call_word(helpers::synopsis_read as *const () as usize, &arguments);
        let word = self.l.scratch(0);
        let len = expr.ty.ty.is_bytes().then(|| self.l.scratch(1));
        let null = expr.ty.nullable.then(|| self.l.b.ins().ireduce(I8, is_null));
        Val { word: self.l.of_word(word, expr.ty.ty), len, null }
    }

    fn period(&mut self, edge: Edge, periods: Value, time: Value, reason: ReasonId) -> Val {
        if edge == Edge::Start {
            return plain(self.l.call_word(helpers::period_start as *const () as usize, &[periods, time]));
        }
        let arguments = [self.l.context, periods, time];
        let is_known = self.l.call_word(helpers::period_end as *const () as usize, &arguments);
        self.fail_if_zero(is_known, reason);
        plain(self.l.scratch(0))
    }

    /// Returns a value of a record. A text is copied: the window may be edited where it is.
    fn window_field(&mut self, cell: &Expr, at: &Expr, (of, field): (usize, usize), ty: ColumnType) -> Val {
        let cell = self.expr(cell);
        let at = self.expr(at).word;
        let (of, field) = (self.l.int(of as i64), self.l.int(field as i64));
        let bytes = cell.len.expect("a window is bytes");
        let kind = self.l.int(match ty.ty {
            Type::Str => records::STR,
            Type::Bytes => records::BYTES,
            _ => records::WORD,
        });
        let arguments = [self.l.context, cell.word, bytes, at, of, field, kind];
        let is_null = self.l.call_word(helpers::window_field as *const () as usize, &arguments);
        let word = self.l.scratch(0);
        let len = ty.ty.is_bytes().then(|| self.l.scratch(1));
        let null = ty.nullable.then(|| self.l.b.ins().ireduce(I8, is_null));
        Val { word: self.l.of_word(word, ty.ty), len, null }
    }

    /// Packs values as a record: three words for each, in memory of the function, as [`records::Given`].
    fn pack(&mut self, values: &[Expr]) -> Val {
        let values: Vec<(Val, Type)> = values.iter().map(|value| (self.expr(value), value.ty.ty)).collect();
        let size = (values.len().max(1) * size_of::<records::Given>()) as u32;
        let room = self.l.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 3));
        let room = self.l.b.ins().stack_addr(I64, room, 0);
        for (index, (value, ty)) in values.iter().enumerate() {
            let at = index * size_of::<records::Given>();
            let word = self.l.to_word(value.word, *ty);
            self.l.store(word, room, at + offset_of!(records::Given, word));
            let len = match (value.len, ty) {
                (Some(len), _) => len,
                (None, Type::Float) => self.l.int(records::NO_TEXT_BUT_FLOAT),
                (None, _) => self.l.int(records::NO_TEXT),
            };
            self.l.store(len, room, at + offset_of!(records::Given, len));
            let null = value.null.unwrap_or_else(|| self.l.byte(false));
            let null = self.l.b.ins().uextend(I64, null);
            self.l.store(null, room, at + offset_of!(records::Given, null));
        }
        let count = self.l.int(values.len() as i64);
        self.l.call_text(helpers::pack as *const () as usize, &[self.l.context, room, count])
    }

    /// A function of texts and ints.
    fn text_call(&mut self, op: TextCall, arguments: &[Expr], reason: ReasonId) -> Val {
        let mut given = vec![self.l.context];
        for argument in arguments {
            let value = self.expr(argument);
            given.push(value.word);
            given.extend(value.len);
        }
        let helper = match op {
            TextCall::Separator => {
                self.fail_if_zero(given[2], reason);
                return Val { word: given[1], len: Some(given[2]), null: None };
            }
            TextCall::Find => helpers::find as *const (),
            TextCall::Parts => helpers::parts as *const (),
            TextCall::SpacedParts => helpers::spaced_parts as *const (),
            TextCall::Slice => helpers::slice as *const (),
            TextCall::At => helpers::at as *const (),
            TextCall::Part => helpers::part as *const (),
            TextCall::SpacedPart => helpers::spaced_part as *const (),
            TextCall::Replace => helpers::replace as *const (),
            TextCall::Zfill => helpers::zfill as *const (),
        };
        if matches!(op, TextCall::Find | TextCall::Parts | TextCall::SpacedParts) {
            return plain(self.l.call_word(helper as usize, &given[1..]));
        }
        let done = self.l.call_word(helper as usize, &given);
        self.fail_if_zero(done, reason);
        Val { word: self.l.scratch(0), len: Some(self.l.scratch(1)), null: None }
    }

    fn two_texts(&mut self, left: &Expr, right: &Expr) -> [Value; 4] {
        let (left, right) = (self.expr(left), self.expr(right));
        let len = |v: Val| v.len.expect("a text has a length");
        [left.word, len(left), right.word, len(right)]
    }

    /// Compiles `and` (`decided_by` false) or `or` (true).
    ///
    /// Where the right side is quick and cannot fail it is evaluated in any case: events are often random, and a wrongly
    /// predicted branch costs more.
    fn short_circuit(&mut self, left: &Expr, right: &Expr, decided_by: bool) -> Val {
        let left = self.expr(left).word;
        if is_quick(right) {
            let right = self.expr(right).word;
            let ins = self.l.b.ins();
            return plain(if decided_by { ins.bor(left, right) } else { ins.band(left, right) });
        }
        let (more, done) = (self.l.b.create_block(), self.l.b.create_block());
        self.l.b.append_block_param(done, I8);
        if decided_by {
            self.l.b.ins().brif(left, done, &[left.into()], more, &[]);
        } else {
            self.l.b.ins().brif(left, more, &[], done, &[left.into()]);
        }
        self.l.b.switch_to_block(more);
        let known = self.known_rows();
        let right = self.expr(right).word;
        self.restore_known(known);
        self.l.b.ins().jump(done, &[right.into()]);
        self.l.b.switch_to_block(done);
        plain(self.l.b.block_params(done)[0])
    }

    fn if_else(&mut self, condition: &Expr, then: &Expr, otherwise: &Expr, ty: ColumnType) -> Val {
        let condition = self.expr(condition).word;
        let slot = self.l.slot(ty);
        let [yes, no, done] = std::array::from_fn(|_| self.l.b.create_block());
        self.l.b.ins().brif(condition, yes, &[], no, &[]);
        for (block, branch) in [(yes, then), (no, otherwise)] {
            self.l.b.switch_to_block(block);
            let known = self.known_rows();
            let value = self.expr(branch);
            self.restore_known(known);
            self.l.set(slot, value);
            self.l.b.ins().jump(done, &[]);
        }
        self.l.b.switch_to_block(done);
        self.l.get(slot)
    }

    fn equal(&mut self, left: &Expr, right: &Expr, negated: bool) -> Val {
        let ty = left.ty.ty;
        let (left, right) = (self.expr(left), self.expr(right));
        let same = self.compare(CompareOp::Eq, left, right, ty);
        let null = |body: &mut Self, v: Val| v.null.unwrap_or_else(|| body.l.byte(false));
        let result = if left.null.is_none() && right.null.is_none() {
            same
        } else {
            let (l, r) = (null(self, left), null(self, right));
            let both = self.l.b.ins().band(l, r);
            let either = self.l.b.ins().bor(l, r);
            self.l.b.ins().select(either, both, same)
        };
        plain(if negated { self.l.b.ins().bxor_imm_s(result, 1) } else { result })
    }

    /// Compiles a comparison: 1 where it holds; nulls are the caller's business.
    fn compare(&mut self, op: CompareOp, left: Val, right: Val, ty: Type) -> Value {
        if ty == Type::Float {
            return self.l.b.ins().fcmp(float_condition(op), left.word, right.word);
        }
        if !ty.is_bytes() {
            let condition = if ty == Type::Bool { unsigned_condition(op) } else { signed_condition(op) };
            return self.l.compare(condition, left.word, right.word);
        }
        let len = |v: Val| v.len.expect("a text has a length");
        let arguments = [left.word, len(left), right.word, len(right)];
        if matches!(op, CompareOp::Eq | CompareOp::Ne) {
            let equal = self.text_equal(arguments);
            return if op == CompareOp::Eq { equal } else { self.l.b.ins().bxor_imm_s(equal, 1) };
        }
        let order = self.l.call_word(helpers::text_compare as *const () as usize, &arguments);
        self.l.b.ins().icmp_imm_s(signed_condition(op), order, 0)
    }

    /// Compares lengths first; only texts of one length are compared byte by byte.
    fn text_equal(&mut self, arguments: [Value; 4]) -> Value {
        let [_, left_len, _, right_len] = arguments;
        let same_len = self.l.compare(IntCC::Equal, left_len, right_len);
        let (more, done) = (self.l.b.create_block(), self.l.b.create_block());
        self.l.b.append_block_param(done, I8);
        self.l.b.ins().brif(same_len, more, &[], done, &[same_len.into()]);
        self.l.b.switch_to_block(more);
        let word = self.l.call_word(helpers::text_equal as *const () as usize, &arguments);
        let equal = self.l.b.ins().ireduce(I8, word);
        self.l.b.ins().jump(done, &[equal.into()]);
        self.l.b.switch_to_block(done);
        self.l.b.block_params(done)[0]
    }

    fn word_op(&mut self, op: WordOp, left: Value, right: Value, reason: ReasonId) -> Value {
        match op {
            WordOp::Add | WordOp::Sub | WordOp::Mul => {
                let ins = self.l.b.ins();
                let (value, overflow) = match op {
                    WordOp::Add => ins.sadd_overflow(left, right),
                    WordOp::Sub => ins.ssub_overflow(left, right),
                    _ => ins.smul_overflow(left, right),
                };
                self.fail_if(overflow, reason);
                value
            }
            WordOp::FloorDiv { zero } => {
                self.fail_if_zero(right, zero);
                let least = self.l.b.ins().icmp_imm_s(IntCC::Equal, left, i64::MIN);
                let minus_one = self.l.b.ins().icmp_imm_s(IntCC::Equal, right, -1);
                let overflow = self.l.b.ins().band(least, minus_one);
                self.fail_if(overflow, reason);
                let quotient = self.l.b.ins().sdiv(left, right);
                let product = self.l.b.ins().imul(quotient, right);
                let remainder = self.l.b.ins().isub(left, product);
                let adjust = self.rounds_down(remainder, right);
                let one_less = self.l.b.ins().iadd_imm_s(quotient, -1);
                self.l.b.ins().select(adjust, one_less, quotient)
            }
            WordOp::Mod { zero } => {
                self.fail_if_zero(right, zero);
                // The remainder by -1 is that by 1, without the overflow of the division.
                let minus_one = self.l.b.ins().icmp_imm_s(IntCC::Equal, right, -1);
                let one = self.l.int(1);
                let divisor = self.l.b.ins().select(minus_one, one, right);
                let remainder = self.l.b.ins().srem(left, divisor);
                let adjust = self.rounds_down(remainder, right);
                let raised = self.l.b.ins().iadd(remainder, right);
                self.l.b.ins().select(adjust, raised, remainder)
            }
            WordOp::DecimalDiv { shift, zero } => {
                self.fail_if_zero(right, zero);
                let shift = self.l.int(shift as i64);
                let arguments = [self.l.context, left, right, shift];
                let done = self.l.call_word(helpers::decimal_divide as *const () as usize, &arguments);
                self.fail_if_zero(done, reason);
                self.l.scratch(0)
            }
            WordOp::Min => {
                let right_less = self.l.compare(IntCC::SignedLessThan, right, left);
                self.l.b.ins().select(right_less, right, left)
            }
            WordOp::Max => {
                let right_greater = self.l.compare(IntCC::SignedGreaterThan, right, left);
                self.l.b.ins().select(right_greater, right, left)
            }
        }
    }

    /// Returns the remainder by a positive constant: no check, and no division where the machine can do without.
    fn modulo_constant(&mut self, left: Value, divisor: i64) -> Value {
        let remainder = self.l.b.ins().srem_imm_s(left, divisor);
        let negative = self.l.b.ins().icmp_imm_s(IntCC::SignedLessThan, remainder, 0);
        let raised = self.l.b.ins().iadd_imm_s(remainder, divisor);
        self.l.b.ins().select(negative, raised, remainder)
    }

    fn fail_if_zero(&mut self, value: Value, reason: ReasonId) {
        let zero = self.l.b.ins().icmp_imm_s(IntCC::Equal, value, 0);
        self.fail_if(zero, reason);
    }

    /// Tests whether a truncated division with this remainder must be lowered by one to round down.
    fn rounds_down(&mut self, remainder: Value, divisor: Value) -> Value {
        let inexact = self.l.b.ins().icmp_imm_s(IntCC::NotEqual, remainder, 0);
        let signs = self.l.b.ins().bxor(remainder, divisor);
        let differ = self.l.b.ins().icmp_imm_s(IntCC::SignedLessThan, signs, 0);
        self.l.b.ins().band(inexact, differ)
    }

    fn float_op(&mut self, op: FloatOp, left: Value, right: Value, reason: ReasonId) -> Value {
        if matches!(op, FloatOp::Div | FloatOp::FloorDiv | FloatOp::Mod) {
            let nought = self.l.b.ins().f64const(0.0);
            let zero = self.l.b.ins().fcmp(FloatCC::Equal, right, nought);
            self.fail_if(zero, reason);
        }
        let helper = |body: &mut Self, helper: *const ()| {
            body.l.call(helper as usize, &[left, right], Some(F64)).expect("declared to return a float")
        };
        match op {
            FloatOp::Add => self.l.b.ins().fadd(left, right),
            FloatOp::Sub => self.l.b.ins().fsub(left, right),
            FloatOp::Mul => self.l.b.ins().fmul(left, right),
            FloatOp::Div => self.l.b.ins().fdiv(left, right),
            FloatOp::FloorDiv => helper(self, helpers::float_floor_divide as *const ()),
            FloatOp::Mod => helper(self, helpers::float_modulo as *const ()),
            FloatOp::Min => {
                let right_less = self.l.b.ins().fcmp(FloatCC::LessThan, right, left);
                self.l.b.ins().select(right_less, right, left)
            }
            FloatOp::Max => {
                let right_greater = self.l.b.ins().fcmp(FloatCC::GreaterThan, right, left);
                self.l.b.ins().select(right_greater, right, left)
            }
        }
    }

    fn cast(&mut self, cast: Cast, value: Val, reason: ReasonId) -> Val {
        let context = self.l.context;
        let word = value.word;
        match cast {
            Cast::Relabel => value,
            Cast::BoolToInt => plain(self.l.b.ins().uextend(I64, word)),
            Cast::IntToFloat => plain(self.l.b.ins().fcvt_from_sint(F64, word)),
            Cast::WordToFloat { scale } => {
                let float = self.l.b.ins().fcvt_from_sint(F64, word);
                let divisor = self.l.b.ins().f64const(10f64.powi(scale as i32));
                plain(self.l.b.ins().fdiv(float, divisor))
            }
            Cast::FloatToInt => plain(self.float_to_int(word, reason)),
            Cast::FloatRound => {
                let rounded = self.l.b.ins().nearest(word);
                plain(self.float_to_int(rounded, reason))
            }
            Cast::FloatFloor => {
                let whole = self.l.b.ins().floor(word);
                plain(self.float_to_int(whole, reason))
            }
            Cast::FloatCeil => {
                let whole = self.l.b.ins().ceil(word);
                plain(self.float_to_int(whole, reason))
            }
            Cast::ScaleUp { by } => {
                let factor = self.l.int(10i64.pow(by as u32));
                plain(self.word_op(WordOp::Mul, word, factor, reason))
            }
            Cast::ScaleRound { by } => {
                let by = self.l.int(by as i64);
                plain(self.l.call_word(helpers::scale_round as *const () as usize, &[word, by]))
            }
            Cast::ScaleTruncate { by } => {
                let divisor = self.l.int(10i64.pow(by as u32));
                plain(self.l.b.ins().sdiv(word, divisor))
            }
            Cast::ScaleFloor { by } | Cast::ScaleCeil { by } => {
                let divisor = self.l.int(10i64.pow(by as u32));
                let quotient = self.l.b.ins().sdiv(word, divisor);
                let product = self.l.b.ins().imul(quotient, divisor);
                let remainder = self.l.b.ins().isub(word, product);
                let (condition, step) = match cast {
                    Cast::ScaleFloor { .. } => (IntCC::SignedLessThan, -1),
                    _ => (IntCC::SignedGreaterThan, 1),
                };
                let is_beside = self.l.b.ins().icmp_imm_s(condition, remainder, 0);
                let next = self.l.b.ins().iadd_imm_s(quotient, step);
                plain(self.l.b.ins().select(is_beside, next, quotient))
            }
            Cast::FitDigits { digits } => {
                let limit = 10i64.pow(digits as u32);
                // -limit < word < limit, as one unsigned comparison.
                let shifted = self.l.b.ins().iadd_imm_s(word, limit - 1);
                let outside = self.l.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, shifted, 2 * limit - 2);
                self.fail_if(outside, reason);
                value
            }
            Cast::StrToInt | Cast::StrToFloat => {
                let len = value.len.expect("a text has a length");
                let helper = match cast {
                    Cast::StrToInt => helpers::text_to_int as *const (),
                    _ => helpers::text_to_float as *const (),
                };
                let done = self.l.call_word(helper as usize, &[context, word, len]);
                self.fail_if_zero(done, reason);
                let result = self.l.scratch(0);
                let ty = if cast == Cast::StrToInt { Type::Int } else { Type::Float };
                plain(self.l.of_word(result, ty))
            }
            Cast::IntToStr => self.l.call_text(helpers::int_to_text as *const () as usize, &[context, word]),
            Cast::DecimalToStr { scale } => {
                let scale = self.l.int(scale as i64);
                self.l.call_text(helpers::decimal_to_text as *const () as usize, &[context, word, scale])
            }
            Cast::BoolToStr => {
                let (yes, yes_len) = self.l.constants.text(b"True");
                let (no, no_len) = self.l.constants.text(b"False");
                let mut choose = |a: i64, b: i64| {
                    let (a, b) = (self.l.int(a), self.l.int(b));
                    self.l.b.ins().select(word, a, b)
                };
                let (start, len) = (choose(yes, no), choose(yes_len, no_len));
                Val { word: start, len: Some(len), null: None }
            }
        }
    }

    /// Towards zero, failing outside of the range of an int.
    fn float_to_int(&mut self, value: Value, reason: ReasonId) -> Value {
        let (low, high) = (self.l.b.ins().f64const(-(2f64.powi(63))), self.l.b.ins().f64const(2f64.powi(63)));
        let above = self.l.b.ins().fcmp(FloatCC::GreaterThanOrEqual, value, low);
        let below = self.l.b.ins().fcmp(FloatCC::LessThan, value, high);
        let inside = self.l.b.ins().band(above, below);
        self.fail_unless(inside, reason);
        self.l.b.ins().fcvt_to_sint_sat(I64, value)
    }
}

/// Returns whether an expression is a few instructions on the fields of an event, without a branch, and cannot fail.
fn is_quick(expr: &Expr) -> bool {
    let is_plain = |expr: &Expr| !expr.ty.ty.is_bytes() && !expr.ty.nullable;
    let is_operand = |expr: &Expr| matches!(expr.node, Node::Field(_) | Node::Const(_)) && is_plain(expr);
    match &expr.node {
        Node::Compare { left, right, .. } | Node::Equal { left, right, .. } => is_operand(left) && is_operand(right),
        Node::Not(value) => is_quick(value),
        Node::And(left, right) | Node::Or(left, right) => is_quick(left) && is_quick(right),
        _ => is_operand(expr),
    }
}

/// Returns the word of a constant greater than 0.
fn positive_constant(expr: &Expr) -> Option<i64> {
    match &expr.node {
        Node::Const(value) => value.word().filter(|&word| word > 0),
        _ => None,
    }
}

fn signed_condition(op: CompareOp) -> IntCC {
    match op {
        CompareOp::Eq => IntCC::Equal,
        CompareOp::Ne => IntCC::NotEqual,
        CompareOp::Lt => IntCC::SignedLessThan,
        CompareOp::Le => IntCC::SignedLessThanOrEqual,
        CompareOp::Gt => IntCC::SignedGreaterThan,
        CompareOp::Ge => IntCC::SignedGreaterThanOrEqual,
    }
}

fn unsigned_condition(op: CompareOp) -> IntCC {
    signed_condition(op).unsigned()
}

fn float_condition(op: CompareOp) -> FloatCC {
    match op {
        CompareOp::Eq => FloatCC::Equal,
        CompareOp::Ne => FloatCC::NotEqual,
        CompareOp::Lt => FloatCC::LessThan,
        CompareOp::Le => FloatCC::LessThanOrEqual,
        CompareOp::Gt => FloatCC::GreaterThan,
        CompareOp::Ge => FloatCC::GreaterThanOrEqual,
    }
}
