//! Declared programs as plans.

use super::declared::{
    Asked, BatchOf, Bound, Declared, Derived, Derives, Does, Feed, MODULUS, Node, Over, Run, Size, Windows,
};
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{
    Block, PlanBuilder, TransactionBuilder, cell, committed, element, emitted, event, late, literal, local, named,
    record, window, woken,
};
use tidemill_plan::{
    BatchSizeDef, ColumnDef, Expr, ExprNode, JoinBound, JoinDef, JoinHow, OverDef, OwnDef, Plan, SinkDef, Stmt,
    StmtNode, StreamRef, TopDef, TransactionDef, WindowDef, WindowFunction, WindowPart, WindowsDef,
};

/// Fields and what they hold.
type Fields = Vec<(String, Expr)>;

/// Returns the plan, with a sink for each of [`shown`].
pub fn plan(declared: &Declared) -> Plan {
    let mut plan = PlanBuilder::new("meaning");
    let optional = ColumnType::optional(Type::Int);
    for (number, of) in declared.sources.iter().enumerate() {
        plan = plan.source(format!("s{number}"), |s| {
            let s = s.event_time("at", declared.time).field("k", optional).field("v", optional);
            s.field("n", Type::Int).lateness(of.lateness)
        });
    }
    if let Some((period, origin)) = declared.ticks {
        plan = plan.every("ticks", span(declared, period), origin);
    }
    for (number, &BatchOf { source, size }) in declared.batches.iter().enumerate() {
        let size = match size {
            Size::Count(count) => BatchSizeDef::Count(count),
            Size::Time { length, origin } => BatchSizeDef::Time { length: span(declared, length), origin },
        };
        plan = plan.batch(format!("b{number}"), named(format!("s{source}")), size);
    }
    for (number, of) in declared.derived.iter().enumerate() {
        plan = derived(plan, declared, format!("d{number}"), of);
    }
    for (number, of) in declared.tables.iter().enumerate() {
        plan = plan.table(format!("t{number}"), |t| {
            let t = t.key("k", Type::Int).column_or("acc", Type::Int, Value::Int(0));
            match of.column {
                None => t,
                Some(column) => t.window(
                    "w",
                    Type::Int,
                    WindowDef::Span {
                        span: span(declared, column.slices * column.slide),
                        slide: Some(span(declared, column.slide)),
                        distinct: column.is_distinct,
                    },
                ),
            }
        });
    }
    let mut plan = plan.build();
    plan.transactions = (0..declared.nodes.len()).map(|node| transaction(declared, node)).collect();
    let sink = |(number, feed)| SinkDef { name: format!("sink{number}"), stream: stream(declared, feed) };
    plan.sinks = shown(declared).into_iter().enumerate().map(sink).collect();
    plan
}

/// Returns the streams that are compared.
pub fn shown(declared: &Declared) -> Vec<Feed> {
    let is_input = |feed: Feed| {
        let inputs = declared.nodes.iter().flat_map(|node| node.inputs.iter());
        inputs.copied().any(|input| declared.root(input) == feed)
    };
    let mut all = Vec::new();
    for (source, of) in declared.sources.iter().enumerate() {
        all.push(Feed::Source(source));
        if of.splits == 1 || is_input(Feed::Late(source)) {
            all.push(Feed::Late(source));
        }
    }
    all.extend((0..declared.derived.len()).map(Feed::Derived));
    for (number, node) in declared.nodes.iter().enumerate() {
        all.push(Feed::Given(number));
        match &node.does {
            Does::Over(over) if over.early.is_some() => all.push(Feed::Early(number)),
            Does::Run(run) if run.emits => all.push(Feed::Emitted(number)),
            _ => {}
        }
    }
    all
}

fn stream(declared: &Declared, feed: Feed) -> StreamRef {
    match feed {
        Feed::Source(source) => named(format!("s{source}")),
        Feed::Late(source) => late(format!("s{source}")),
        Feed::Derived(derived) => named(format!("d{derived}")),
        Feed::Given(node) if matches!(declared.nodes[node].does, Does::Top { .. }) => {
            emitted(format!("n{node}"), "top")
        }
        Feed::Given(node) => committed(format!("n{node}")),
        Feed::Early(node) => committed(format!("n{node}.early")),
        Feed::Emitted(node) => emitted(format!("n{node}"), "e"),
        Feed::Woken(table) => woken(format!("t{table}")),
        Feed::Ticks => named("ticks"),
        Feed::Completed(_) => unreachable!("it is no input"),
        Feed::Batch(batch) => named(format!("b{batch}")),
    }
}

/// Returns a length of time.
fn span(declared: &Declared, units: i64) -> Value {
    if declared.time == Type::Int { Value::Int(units) } else { Value::Duration(units) }
}

fn or_zero(value: Expr) -> Expr {
    ExprNode::OrZero(Box::new(value)).into()
}

fn derived(plan: PlanBuilder, declared: &Declared, name: String, of: &Derived) -> PlanBuilder {
    let input = stream(declared, of.input);
    match of.does {
        Derives::Filter => plan.filter(name, input, (event("n") % 3).ne(0)),
        Derives::Map { passes_time } => {
            let mut fields = made(event("v"), event("k"), event("n") * 2 + 1);
            if passes_time && declared.has_time(of.input) {
                fields.push(("at".into(), event("at")));
            }
            plan.map(name, input, record(fields))
        }
    }
}

/// Returns the fields that each event has.
fn made(key: Expr, value: Expr, number: Expr) -> Fields {
    vec![("k".into(), key), ("v".into(), value), ("n".into(), number)]
}

fn transaction(declared: &Declared, number: usize) -> TransactionDef {
    let node = &declared.nodes[number];
    let inputs: Vec<StreamRef> = node.inputs.iter().map(|&input| stream(declared, input)).collect();
    let operator = |over, join, body| TransactionDef {
        name: format!("n{number}"),
        inputs: inputs.clone(),
        over,
        join,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    };
    let at_once = WindowsDef::Counting { count: 1 };
    match &node.does {
        Does::Over(over) => operator(Some(over_def(declared, over)), None, function(over)),
        Does::Top { count, ties, by_key } => {
            let top = Some(TopDef { count: *count as i64, by: or_zero(event("v")), ties: *ties });
            operator(Some(OverDef { top, ..bare(at_once, *by_key) }), None, vec![])
        }
        Does::First { within, by_key } => {
            let first = Some(span(declared, *within));
            operator(Some(OverDef { first, ..bare(at_once, *by_key) }), None, vec![])
        }
        Does::Join { bound, how } => operator(None, Some(join_def(declared, *bound, *how)), joined(*how)),
        _ => {
            let plan =
                PlanBuilder::new("one").transaction(format!("n{number}"), inputs.clone(), |t| runs(declared, node, t));
            plan.build().transactions.remove(0)
        }
    }
}

fn bare(windows: WindowsDef, by_key: bool) -> OverDef {
    let by = Vec::from_iter(by_key.then(|| ("k".to_owned(), event("k"))));
    OverDef { by, windows, early: None, every: None, top: None, first: None, own: vec![] }
}

fn over_def(declared: &Declared, over: &Over) -> OverDef {
    let span = |units| span(declared, units);
    let windows = match over.windows.clone() {
        Windows::Tumbling { length, origin } => WindowsDef::Tumbling { length: span(length), origin },
        Windows::Sliding { length, every, origin } => {
            WindowsDef::Sliding { length: span(length), every: span(every), origin }
        }
        Windows::Calendar(periods) => WindowsDef::Calendar(periods),
        Windows::Session { gap } => WindowsDef::Session { gap: span(gap) },
        Windows::Counting { count } => WindowsDef::Counting { count: count as i64 },
    };
    let own = OwnDef {
        name: "own".into(),
        state: vec![ColumnDef { default: Some(Value::Int(0)), ..ColumnDef::new("acc", Type::Int) }],
        add: vec![stmt(StmtNode::Set { role: "own".into(), column: "acc".into(), value: mixed("own", event("n")) })],
        merge: None,
    };
    let every = over.rows.map(|table| format!("t{table}"));
    let (early, own) = (over.early.map(span), Vec::from_iter(over.own.then_some(own)));
    OverDef { early, every, own, ..bare(windows, over.by_key) }
}

fn stmt(node: StmtNode) -> Stmt {
    Stmt { node, span: None }
}

/// Returns a number mixed into that of a row.
fn mixed(role: &str, number: Expr) -> Expr {
    (cell(role, "acc") * 31 + number) % MODULUS
}

fn asks(function: WindowFunction, value: Option<Expr>, by: Option<Expr>, argument: Option<i64>) -> Expr {
    let boxed = |of: Option<Expr>| of.map(Box::new);
    let argument = argument.map(|of| Box::new(literal(of)));
    ExprNode::Aggregate { function, value: boxed(value), by: boxed(by), argument }.into()
}

/// Returns the function of a window.
fn function(over: &Over) -> Vec<Stmt> {
    use WindowFunction as F;
    let of = |function, field: &str| asks(function, Some(event(field)), None, None);
    let key = if over.by_key { event("k") } else { of(F::Min, "k") };
    let mut fields = made(key, of(F::Max, "v"), of(F::Sum, "n"));
    if over.passes_time {
        fields.push(("at".into(), event("end")));
    }
    fields.extend(["start", "end"].map(|bound| (bound.to_owned(), event(bound))));
    fields.extend(over.asked.iter().enumerate().map(|(at, &asked)| (format!("a{at}"), aggregate(asked))));
    fields.extend(over.own.then(|| ("own".to_owned(), cell("own", "acc"))));
    let count = || asks(F::Count, None, None, None);
    let mut body = Vec::new();
    if over.least > 0 {
        let condition = count().lt(over.least as i64);
        let then = vec![stmt(StmtNode::Return { record: None })];
        body.push(stmt(StmtNode::If { condition, then, otherwise: vec![] }));
    }
    if over.most < usize::MAX {
        let condition = count().le(over.most as i64);
        body.push(stmt(StmtNode::Require { condition, reason: "too many".into() }));
    }
    body.push(stmt(StmtNode::Return { record: Some(record(fields)) }));
    body
}

fn aggregate(asked: Asked) -> Expr {
    use WindowFunction as F;
    let of = |function, field: &str| asks(function, Some(event(field)), None, None);
    let is_even = |function| asks(function, Some((event("n") % 2).eq(0)), None, None);
    let ranked = |function| asks(function, Some(event("n")), Some(event("v")), None);
    match asked {
        Asked::Count => asks(F::Count, None, None, None),
        Asked::CountOfValues => of(F::Count, "v"),
        Asked::Sum => of(F::Sum, "v"),
        Asked::Mean => of(F::Mean, "v"),
        Asked::Least => of(F::Min, "v"),
        Asked::Greatest => of(F::Max, "v"),
        Asked::Distinct => of(F::Distinct, "v"),
        Asked::Variance => of(F::Variance, "v"),
        Asked::AnyEven => is_even(F::Any),
        Asked::AllEven => is_even(F::All),
        Asked::FirstNumber => of(F::First, "n"),
        Asked::LastNumber => of(F::Last, "n"),
        Asked::NumberOfLeast => ranked(F::ArgMin),
        Asked::NumberOfGreatest => ranked(F::ArgMax),
        Asked::Frequent(rank) => asks(F::TopValue, Some(event("v")), None, Some(rank as i64)),
        Asked::Times(rank) => asks(F::TopCount, Some(event("v")), None, Some(rank as i64)),
    }
}

fn join_def(declared: &Declared, bound: Bound, how: JoinHow) -> JoinDef {
    let bound = match bound {
        Bound::Within(length) => JoinBound::Within(span(declared, length)),
        Bound::Over { length, origin } => {
            JoinBound::Over(WindowsDef::Tumbling { length: span(declared, length), origin })
        }
    };
    let right = (how != JoinHow::Anti).then(|| "a".to_owned());
    JoinDef { left: "p".into(), right, on: vec![(event("k"), event("k"))], bound, how }
}

/// Returns the function of a join.
fn joined(how: JoinHow) -> Vec<Stmt> {
    let fields = match how {
        JoinHow::Inner => made(event("p.k"), event("a.v"), event("p.n") * 3 + event("a.n")),
        JoinHow::Left => made(event("p.k"), event("a.v"), event("p.n") * 3 + or_zero(event("a.n"))),
        JoinHow::Outer => made(event("p.k"), event("a.v"), or_zero(event("p.n")) * 3 + or_zero(event("a.n"))),
        JoinHow::Anti => made(event("p.k"), event("p.v"), event("p.n")),
    };
    vec![stmt(StmtNode::Return { record: Some(record(fields)) })]
}

/// Returns a transaction that is no operator.
fn runs(declared: &Declared, node: &Node, t: TransactionBuilder) -> TransactionBuilder {
    let mix = |table: usize, key: Expr, number: Expr, t: TransactionBuilder, more: &dyn Fn(&mut Block)| {
        t.create("r", &format!("t{table}"), [key]).body(|b| {
            b.set("r", "acc", mixed("r", number));
            more(b);
        })
    };
    let given = |times: bool| {
        let mut fields = made(event("k"), cell("r", "acc") % 11 - 5, cell("r", "acc"));
        fields.extend(times.then(|| ("at".to_owned(), event("at"))));
        fields
    };
    match node.does {
        Does::Run(run) => {
            let t = if run.is_nested { t.nested() } else { t };
            let key = if run.needs_key { event("k") } else { or_zero(event("k")) };
            t.create("r", &format!("t{}", run.table), [key]).body(|b| run_body(declared, node, run, b))
        }
        Does::Wakened { table, again, passes_time } => mix(table, event("k"), 17.into(), t, &|b| {
            if let Some(after) = again {
                let at = event("at") + Expr::from(span(declared, after));
                b.when((cell("r", "acc") % 3).eq(0), |b| b.wake("r", Some(at)));
            }
            b.give(record(given(passes_time)));
        }),
        Does::Ticked { table } => mix(table, 1.into(), 1.into(), t, &|b| {
            let number = || cell("r", "acc");
            b.give(record(made(number() % 4, number() % 11 - 5, number())));
        }),
        Does::Batched { table } => t.create("r", &format!("t{table}"), [0.into()]).body(|b| {
            b.for_each("e", "events", |b| b.set("r", "acc", mixed("r", element("e", "n"))));
            let number = || cell("r", "acc");
            b.give(record(made(number() % 4, number() % 11 - 5, number())));
        }),
        _ => unreachable!("it is an operator"),
    }
}

fn run_body(declared: &Declared, node: &Node, run: Run, b: &mut Block) {
    let passes_time = run.passes_time && node.inputs.iter().all(|&input| declared.has_time(input));
    let fields = |key: &str, value: &str, number: Expr| {
        let mut fields = made(event(key), event(value), number);
        fields.extend(passes_time.then(|| ("at".to_owned(), event("at"))));
        record(fields)
    };
    b.set("r", "acc", mixed("r", event("n")));
    b.assign("n", cell("r", "acc"));
    if let Some((aggregate, slices)) = run.reads {
        let slide = declared.tables[run.table].column.expect("it is added to").slide;
        b.when(!event("v").is_null(), |b| b.add("r", "w", or_zero(event("v"))));
        let part = Some(WindowPart::Span(span(declared, slices * slide)));
        b.assign("n", (local("n") + or_zero(window("r", "w", part, aggregate)) * 7) % MODULUS);
    }
    if run.aborts {
        b.require((cell("r", "acc") % 5).ne(0), "a multiple of five");
    }
    if let Some(after) = run.wakes {
        let at = event("at") + Expr::from(span(declared, after));
        b.when((cell("r", "acc") % 3).eq(0), |b| b.wake("r", Some(at)));
        b.when((cell("r", "acc") % 3).eq(1), |b| b.wake("r", None));
    }
    if run.emits {
        b.when((cell("r", "acc") % 2).eq(0), |b| {
            b.emit("e", fields("k", "v", cell("r", "acc")));
            b.emit("e", fields("v", "k", cell("r", "acc") + 1));
        });
    }
    if run.deletes {
        b.when((cell("r", "acc") % 7).eq(0), |b| b.delete("r"));
    }
    b.give(fields("k", "v", local("n")));
}
