//! A random application over one table, events for it, and rows in plain memory.

use std::collections::BTreeMap;
use tidemill_compile::abi::{ColumnView, InputView, NativeView, Verdict};
use tidemill_compile::{AccessContext, Code, NativeColumn};
use tidemill_histories::Random;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{
    Block, PlanBuilder, cell, element, event, exists, if_else, literal, local, named, none, record,
};
use tidemill_plan::{Plan, Program, Table, WindowDef};
use tidemill_state::{EXISTS, RowLayout, TextBytes, blob};

/// Returns a context for code of one table.
pub fn context(code: &Code, ordered: bool) -> Box<AccessContext> {
    AccessContext::new(&code.emission_types, ordered, vec![TextBytes::default()])
}

/// Keys that events name.
const KEYS: i64 = 6;

/// Transactions `t0` and `t1` on one source.
pub fn application(random: &mut Random) -> Plan {
    let mut plan = PlanBuilder::new("marks")
        .table("cells", |t| {
            t.key("id", Type::Int)
                .column_or("n", Type::Int, Value::Int(0))
                .column_or("m", ColumnType::optional(Type::Int), Value::Null)
                .column_or("f", Type::Float, Value::Float(1.0))
                .column_or("t", Type::Str, Value::Str("new".into()))
                .window("last", Type::Int, WindowDef::Last(3))
                .window("names", Type::Str, WindowDef::Last(2))
        })
        .source("events", |s| {
            let s = s.field("x", Type::Int).field("y", Type::Int).field("amount", Type::Int).field("text", Type::Str);
            s.list("items", Type::Int)
        });
    for name in ["t0", "t1"] {
        plan = plan.transaction(name, [named("events")], |t| {
            t.create("r", "cells", [event("x")])
                .row("s", "cells", [event("y")])
                .create("each", "cells", [element("items", "")])
                .over("items")
                .body(|b| statements(random, b, 3, None))
        });
    }
    plan.build()
}

fn statements(random: &mut Random, block: &mut Block, depth: usize, around: Option<&str>) {
    for _ in 0..1 + random.below(4) {
        statement(random, block, depth, around);
    }
}

/// A statement; inside of a loop over the list, `around` is its role.
fn statement(random: &mut Random, block: &mut Block, depth: usize, around: Option<&str>) {
    let role = around.filter(|_| random.chance(60)).unwrap_or(if random.chance(80) { "r" } else { "s" });
    let column = |name: &str| cell(role, name);
    match random.below(14) {
        0 | 1 => block.set(role, "n", column("n") + event("amount")),
        2 => block.set(role, "m", if_else(event("amount").lt(3), none(), column("n"))),
        3 => block.set(role, "f", column("f") * literal(1.5)),
        4 => block.set(role, "t", column("t") + event("text")),
        5 => block.set(role, "t", event("text")),
        6 => block.add(role, "last", event("amount")),
        7 => block.add(role, "names", event("text")),
        8 => block.delete(role),
        9 => block.when(!exists("s"), |b| b.insert("s", [("n", event("amount")), ("t", event("text"))])),
        10 => block.require(column("n").lt(event("amount") * 4 + 20), "too much"),
        11 => block.emit("out", record([("n", column("n")), ("t", column("t") + "!")])),
        12 if depth > 0 => {
            block.for_each(&format!("item{depth}"), "items", |b| statements(random, b, depth - 1, Some("each")));
        }
        _ if depth > 0 => {
            let counter = format!("i{depth}");
            block.for_range(&counter, 0, event("amount"), |b| {
                b.set("r", "n", cell("r", "n") + local(&counter));
                statements(random, b, depth - 1, around);
            });
        }
        _ => block.set("r", "n", literal(random.int(0, 99))),
    }
}

/// Events in the form of Arrow's buffers.
pub struct Events {
    /// `x`, `y` and `amount`.
    numbers: [Vec<i64>; 3],
    text_offsets: Vec<i32>,
    text: Vec<u8>,
    item_offsets: Vec<i32>,
    items: Vec<i64>,
    index: Vec<u32>,
}

impl Events {
    pub fn random(random: &mut Random, len: usize) -> Events {
        let mut column = |below: i64| (0..len).map(|_| random.int(0, below - 1)).collect::<Vec<i64>>();
        let numbers = [column(KEYS), column(KEYS), column(6)];
        let (mut text, mut text_offsets) = (Vec::new(), vec![0]);
        let (mut items, mut item_offsets) = (Vec::new(), vec![0]);
        for _ in 0..len {
            text.extend("tide".repeat(random.below(20)).bytes());
            text_offsets.push(text.len() as i32);
            items.extend((0..random.below(4)).map(|_| random.int(0, KEYS - 1)));
            item_offsets.push(items.len() as i32);
        }
        Events { numbers, text_offsets, text, item_offsets, items, index: (0..len as u32).collect() }
    }

    fn views(&self) -> Vec<ColumnView> {
        let view = |values: *const u8, aux: *const u8| ColumnView {
            values,
            aux,
            validity: std::ptr::null(),
            values_offset: 0,
            validity_offset: 0,
        };
        let mut views: Vec<ColumnView> =
            self.numbers.iter().map(|words| view(words.as_ptr().cast(), std::ptr::null())).collect();
        views.push(view(self.text_offsets.as_ptr().cast(), self.text.as_ptr()));
        views.push(view(self.item_offsets.as_ptr().cast(), std::ptr::null()));
        views.push(view(self.items.as_ptr().cast(), std::ptr::null()));
        views
    }
}

/// A row for comparisons: its header and words, with texts in the place of their handles.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    words: Vec<u64>,
    texts: Vec<Vec<u8>>,
}

/// A table with a row for each key, in plain memory.
pub struct Bank {
    table: Table,
    layout: RowLayout,
    rows: BTreeMap<i64, Box<[u64]>>,
    pub commits: usize,
    pub aborts: usize,
}

impl Bank {
    pub fn new(program: &Program) -> Bank {
        let table = program.tables.raw[0].clone();
        let layout = RowLayout::of(&table);
        let row = |key: i64| {
            let mut row = vec![0u64; layout.size() / 8].into_boxed_slice();
            row[layout.cell(0) / 8] = key as u64;
            if key % 2 == 0 {
                row[0] |= EXISTS;
            }
            (key, row)
        };
        let rows = (0..KEYS).map(row).collect();
        Bank { table, layout, rows, commits: 0, aborts: 0 }
    }

    /// Runs every transaction on events `first..first + count`; how many there were.
    pub fn run(
        &mut self,
        code: &Code,
        context: &mut AccessContext,
        events: &Events,
        first: usize,
        count: usize,
    ) -> usize {
        let len = events.index.len();
        let count = count.min(len - first);
        let mut address = |key: i64| self.rows.get_mut(&key).expect("a row for each key").as_mut_ptr() as u64;
        let by_key = |keys: &[i64], address: &mut dyn FnMut(i64) -> u64| keys.iter().map(|&k| address(k)).collect();
        let rows: [Vec<u64>; 3] =
            [&events.numbers[0], &events.numbers[1], &events.items].map(|keys| by_key(keys, &mut address));
        let rows = rows.each_ref().map(|rows| rows.as_ptr());
        let starts: Vec<u32> = events.item_offsets.iter().map(|&start| start as u32).collect();
        let starts = [starts.as_ptr(); 3];
        let columns = events.views();
        for codes in &code.transactions {
            let transaction = &codes[0];
            let mut verdicts = vec![Verdict::COMMITTED; len];
            let mut captured = [&transaction.committed, &transaction.aborted].map(|plan| {
                let columns = plan.captured.iter().map(|&ty| {
                    let mut column = NativeColumn::new(ty);
                    column.ensure(len);
                    column
                });
                columns.collect::<Vec<_>>()
            });
            let views = captured
                .each_mut()
                .map(|columns| columns.iter_mut().map(NativeColumn::view).collect::<Vec<NativeView>>());
            let input = InputView {
                columns: columns.as_ptr(),
                index: events.index.as_ptr(),
                places: std::ptr::null(),
                rows: rows.as_ptr(),
                starts: starts.as_ptr(),
                captures: views[0].as_ptr(),
                seen: views[1].as_ptr(),
                verdicts: verdicts.as_mut_ptr(),
            };
            // SAFETY: the views have every event, the rows are those of the table, and all of it lives during the call.
            unsafe { (transaction.run)(context, &input, first as u64, count as u64) };
            let committed = verdicts[first..first + count].iter().filter(|verdict| verdict.is_committed()).count();
            self.commits += committed;
            self.aborts += count - committed;
        }
        count
    }

    pub fn rows(&self) -> Vec<Row> {
        let is_text = |column: &usize| self.table.columns[*column].ty.ty.is_bytes();
        let row = |words: &[u64]| {
            let mut words = words.to_vec();
            let mut texts = Vec::new();
            for column in (0..self.table.columns.len()).filter(is_text) {
                let cell = &mut words[self.layout.cell(column) / 8];
                // SAFETY: the cell holds a live blob, or none.
                texts.push(unsafe { blob::bytes(*cell) }.to_vec());
                *cell = 0;
            }
            Row { words, texts }
        };
        self.rows.values().map(|words| row(words)).collect()
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        for column in (0..self.table.columns.len()).filter(|&c| self.table.columns[c].ty.ty.is_bytes()) {
            for row in self.rows.values() {
                // SAFETY: each blob is that of its cell alone.
                unsafe { blob::free(row[self.layout.cell(column) / 8]) };
            }
        }
    }
}
