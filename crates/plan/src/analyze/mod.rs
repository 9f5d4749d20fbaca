//! From plan to program: resolve names, check, type.
//!
//! 1. The plan as a whole: its version, names that occur twice, tables, times of sources.
//! 2. Streams and transactions in the order of the flow ([`flow`]), so that the schema of each input
//!    is known. Each is checked by itself; what depends on a refused one is passed over in silence,
//!    so that one mistake gives one error.
//! 3. Deliveries, cascades and sinks, once all streams have numbers.
//!
//! Within a transaction: roles, then the types of locals ([`locals`]), then the body twice, first to
//! learn the schemas of its outputs ([`records`]), then for good.

mod arithmetic;
mod batches;
mod carry;
mod cells;
mod changes;
mod coerce;
mod comparison;
mod content;
mod conversion;
mod definition;
mod expire;
mod expiries;
mod expressions;
mod fault;
mod first;
mod flow;
mod functions;
mod join;
mod limits;
mod locals;
mod nesting;
mod over;
mod own;
mod parts;
mod picks;
mod position;
mod reasons;
mod records;
mod rewrite;
mod roles;
mod rows;
mod scope;
mod selection;
mod setting;
mod statements;
mod streams;
mod tables;
mod ticks;
mod top;
mod transactions;
mod types;
mod wakes;
mod whole;
mod windows;
mod writing;

use crate::{
    ColumnDef, CommittedOutput, Conversion, ConvertDef, Due, EmitOutput, Limits, Nesting, Operator, OperatorKind,
    Origin, OriginDef, OverDef, Plan, PlanError, Program, Sink, StreamId, StreamPart, StreamRef, Table, TableId,
    TablePart, Transaction, TransactionDef, TransactionId, TransactionPart, depth,
};

use expiries::Expiries;
pub(crate) use expressions::CHAIN_MAX;
use fault::{Checked, Fault, check_identifier};
use flow::FlowNode;
use over::{Early, Lasting};
use own::Words;
use parts::Lowered;
use position::PositionTime;
pub(crate) use reasons::{CANNOT_FAIL, no_row};
use rows::Rows;
use streams::{NewStream, Streams, Unresolved};
use tidemill_model::Type;
use transactions::{Draft, Given, Input, OutputDraft};
use typed_index_collections::{TiSlice, TiVec};
use wakes::Wakes;

/// Checks and types a plan. All errors that do not follow from others are given.
pub fn analyze(plan: &Plan) -> Result<Program, Vec<PlanError>> {
    let errors = depth::check(plan);
    if !errors.is_empty() {
        return Err(errors);
    }
    depth::with_deep_stack(|| analyze_within_limits(plan))
}

fn analyze_within_limits(plan: &Plan) -> Result<Program, Vec<PlanError>> {
    let mut errors = Vec::new();
    whole::check(plan, &mut errors);
    let declared = plan.transactions.len();
    let plan = &*expire::expand(plan, &mut errors);
    let (plan, changing) = changes::expand(plan, &mut errors);
    let plan = &*plan;
    let mut tables = tables::tables(plan, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    conversions(plan, &mut tables, &mut errors);
    let mut streams = Streams::new(plan);
    let (mut wakes, woken) = Wakes::enter(plan, &mut streams, &mut tables, &mut errors);
    let mut expiries = Expiries::enter(plan, &mut streams, &tables);
    let changing = changing.into_iter().map(|table| {
        let name = &plan.tables[usize::from(table)].name;
        let (lowered, kind, inputs) = (streams.lower(name), OperatorKind::Changes(table), Vec::new());
        streams.operators.push(Operator { name: name.clone(), kind, inputs, time: None, definition: None });
        (lowered, TransactionPart::Unite)
    });
    // The transactions that were added to the declared ones.
    let added: Vec<(Lowered<'_>, TransactionPart)> =
        expiries.operators().map(|of| (of, TransactionPart::Expire)).chain(changing).collect();
    assert_eq!(declared + added.len(), plan.transactions.len(), "each belongs to a table");
    let ids = ids(plan, woken.len());
    let mut ticks: Vec<Transaction> = Vec::new();
    let mut transactions: TiVec<TransactionId, Option<Transaction>> = TiVec::new();
    transactions.extend(woken.into_iter().map(Some));
    transactions.resize(usize::from(ids[plan.transactions.len()]), None);
    for node in flow::order(plan, &mut errors) {
        match node {
            FlowNode::Stream(index) => {
                let name = &plan.streams[index].name;
                let refused = match &plan.streams[index].origin {
                    OriginDef::Every { period, origin } => {
                        let id = TransactionId::from(usize::from(ids[plan.transactions.len()]) + ticks.len());
                        ticks::ticks(name, period, *origin, id, &mut streams, &mut tables).map(|next| ticks.push(next))
                    }
                    _ => streams.named(index, whole::source_id(plan, index)),
                };
                note(refused.err(), "stream", name, &mut errors);
            }
            FlowNode::Transaction(index) => {
                let def = &plan.transactions[index];
                let kind = match def {
                    TransactionDef { join: Some(_), .. } => "join",
                    TransactionDef { over: Some(_), .. } => "window",
                    _ => "transaction",
                };
                let added = index.checked_sub(declared).map(|at| added[at]);
                let typed = match (&def.over, &def.join) {
                    (None, Some(of)) => join::join(def, of, ids[index], &mut streams, &mut tables, &mut transactions),
                    (Some(_), Some(_)) => Err(Fault::new("it is a window and a join").hint("make two of it").into()),
                    (None, None) if let Some((of, part)) = added => {
                        wakes.lower(def, &streams, &transactions).and_then(|lowered| {
                            let one = transaction(&lowered, ids[index], &mut streams, &tables, None)?;
                            streams.list[one.committed.stream].name.clone_from(&def.name);
                            Ok(vec![streams.own(one, of, part)])
                        })
                    }
                    (None, None) => check_identifier("transaction", &def.name)
                        .map_err(Unresolved::from)
                        .and_then(|()| {
                            let def = batches::inherit(def, &streams, &transactions);
                            let def = expiries.lower(def, &streams, &transactions)?;
                            let lowered = wakes.lower(&def, &streams, &transactions)?;
                            transaction(&lowered, ids[index], &mut streams, &tables, None)
                        })
                        .map(|one| vec![one]),
                    (Some(over), None) => window(def, over, ids[index], &mut streams, &mut tables, &mut transactions),
                };
                match typed {
                    Ok(typed) => {
                        for (at, transaction) in typed.into_iter().enumerate() {
                            transactions[TransactionId::from(usize::from(ids[index]) + at)] = Some(transaction);
                        }
                    }
                    Err(refused) => note(Some(refused), kind, &def.name, &mut errors),
                }
            }
        }
    }
    definition::of_streams(plan, &mut streams.operators);
    wakes.settle(&mut streams);
    expiries.settle(&mut streams);
    let sinks = sinks(plan, &streams, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let typed = transactions.into_iter().map(|t| t.expect("what is not refused is typed"));
    let transactions = typed.chain(ticks).collect();
    let mut program = Program {
        name: plan.name.clone(),
        schema_version: plan.schema_version,
        tables,
        streams: streams.list,
        transactions,
        sinks,
        limits: plan.limits,
        operators: streams.operators,
        retired: plan.retired.clone(),
    };
    whole::connect(&mut program);
    nesting::nest(plan, &ids, &mut program)?;
    Ok(program)
}

/// Types the functions of columns. Each is a place of its own: it has a source text, which its table has not.
fn conversions(plan: &Plan, tables: &mut TiSlice<TableId, Table>, errors: &mut Vec<PlanError>) {
    for (def, table) in plan.tables.iter().zip(tables) {
        for (of, column) in def.columns.iter().zip(&mut table.columns) {
            let Some(convert) = &of.convert else { continue };
            match conversion(of, convert, plan.limits) {
                Ok(conversion) => column.convert = Some(conversion),
                Err(fault) => errors.push(fault.of("conversion", &format!("{}.{}", def.name, of.name))),
            }
        }
    }
}

fn conversion(column: &ColumnDef, convert: &ConvertDef, limits: Limits) -> Checked<Conversion> {
    conversion::check(column, convert)?;
    let typed = |is_numbered| {
        let plan = conversion::plan(column, convert, limits, is_numbered);
        analyze(&plan).map_err(|errors| Fault::from(errors.into_iter().next().expect("a refusal has a reason")))
    };
    // The function does not see the number of the row.
    typed(false)?;
    Ok(Conversion { from: convert.from, program: Box::new(typed(true)?) })
}

fn note(refused: Option<Unresolved>, kind: &str, name: &str, errors: &mut Vec<PlanError>) {
    if let Some(Unresolved::Wrong(fault)) = refused {
        errors.push(fault.of(kind, name));
    }
}

/// Returns the number of the first transaction that each of the plan's becomes, and how many there are. The `woken` of
/// rows that wake come before.
fn ids(plan: &Plan, woken: usize) -> Vec<TransactionId> {
    let widths = plan.transactions.iter().map(|def| match (&def.over, &def.join) {
        (Some(over), _) if over.first.is_some() => 2,
        (Some(over), _) => 3 + 2 * usize::from(over.early.is_some()) + usize::from(over.every.is_some()),
        (None, None) => 1,
        (None, Some(_)) => 3,
    });
    let ends = widths.scan(0, |end: &mut usize, width| {
        *end += width;
        Some(*end)
    });
    std::iter::once(0).chain(ends).map(|end| TransactionId::from(woken + end)).collect()
}

/// Checks what a window over a stream and a join have in common.
fn check_operator(def: &TransactionDef, kind: &str, streams: &Streams<'_>) -> Checked<()> {
    check_identifier(kind, &def.name)?;
    if !def.roles.is_empty() {
        return Err(Fault::new(format!("a {kind} has no roles")).hint("run a transaction on its results"));
    }
    if def.nested {
        return Err(Fault::new(format!("a {kind} is not nested")).hint("nest the transaction on its results"));
    }
    if streams.resolve(&StreamRef::Named(def.name.clone())).is_ok() {
        return Err(Fault::new("a stream has this name").hint("rename one of them"));
    }
    Ok(())
}

/// Returns the stream that a window is over; and, of first events, the late events of a source, if these count, too.
fn input_of_window(
    def: &TransactionDef,
    over: &OverDef,
    streams: &Streams<'_>,
) -> Result<(StreamId, Option<StreamId>), Unresolved> {
    match &def.inputs[..] {
        [input] => Ok((streams.input(input)?, None)),
        [StreamRef::Named(source), StreamRef::Late(of)] if source == of && over.first.is_some() => {
            let [input, late] = [&def.inputs[0], &def.inputs[1]].map(|input| streams.input(input));
            Ok((input?, Some(late?)))
        }
        inputs => {
            let fault = Fault::new(format!("it is over {} streams", inputs.len()));
            Err(fault.hint("a window is over one; first events may count those of a source that are late, too").into())
        }
    }
}

/// Types a window over a stream ([`over`]), and enters its tables and streams.
fn window(
    def: &TransactionDef,
    over: &OverDef,
    first: TransactionId,
    streams: &mut Streams<'_>,
    tables: &mut TiVec<TableId, Table>,
    transactions: &mut TiSlice<TransactionId, Option<Transaction>>,
) -> Result<Vec<Transaction>, Unresolved> {
    let (input, late) = input_of_window(def, over, streams)?;
    check_operator(def, "window", streams)?;
    position::check_declared(&streams.list, &streams.operators, transactions, input, first, "is over")?;
    let (of, declared) = (streams.lower(&def.name), Vec::from_iter([input].into_iter().chain(late)));
    let lasting = &streams.list[input];
    // A late event has a position whose time is not the source's event time.
    let event_time = lasting.event_time.filter(|_| late.is_none());
    let lasting = Lasting { width: lasting.schema.fields.len(), event_time };
    let (inputs, time) = match late {
        None => {
            let carried = carry::carry(streams, transactions, input, of);
            carried.map_or((vec![input], None), |(stream, time)| (vec![stream], Some(time)))
        }
        Some(late) => {
            let (inputs, time) = carry::with_late(streams, transactions, (input, late), of);
            (inputs.to_vec(), Some(time))
        }
    };
    let input = inputs[0];
    let (lowered, operator) = over::lower(def, over, (input, declared), lasting, time, streams, tables)?;
    streams.operators.push(operator);
    let over::Lowered {
        windows,
        order,
        add,
        schema,
        due,
        close,
        next,
        early,
        rows,
        words,
        shift_in,
        shift_due,
        merges,
    } = lowered;
    let may_refuse = !over.own.is_empty();
    let table = tables::enter_hidden(windows, of, TablePart::Windows, tables)?;
    if let Some(order) = order {
        tables::enter_hidden(order, of, TablePart::Order, tables)?;
    }
    let in_words = |typed| in_words(&words, typed);
    let at_input = time.map(|time| PositionTime { shift: shift_in, ..time });
    let mut add = in_words(transaction_on(&add, inputs, first, streams, tables, at_input))?;
    add.fold = merges.map(|merges| merges.fold(&tables[table]));
    add = streams.own(add, of, if close.is_some() { TransactionPart::Add } else { TransactionPart::Pass });
    if may_refuse {
        streams.list[add.aborted].name = format!("{}.refused", def.name);
        streams.list[add.aborted].owner = of.owner(StreamPart::Refused);
    }
    let end = schema.index_of("end").unwrap_or(0);
    let keys = tables[table].key.len();
    let units = schema.fields[end].scalar_type().filter(|_| time.is_some()).map_or(Type::Int, |end| end.ty);
    let (name, origin) = (parts::due(&def.name), Origin::Due(due.of(table, keys, units)));
    let owner = of.owner(StreamPart::Due);
    let new = NewStream { name: name.clone(), schema, event_time: time.map(|_| end), origin, root: None, owner };
    streams.add(StreamRef::Named(name), new);
    let time = time.map(|_| PositionTime { field: end, shift: shift_due });
    let mut all = vec![add];
    if let Some(rows) = rows {
        all.push(fill(rows, of, units, (usize::from(first) + 1).into(), streams, tables)?);
    }
    let closes = usize::from(first) + all.len();
    let mut on_close = |def, at: usize| in_words(transaction(def, (closes + at).into(), streams, tables, time));
    let Some(close) = close else {
        let next = on_close(&next, 0)?;
        let add = &all[0];
        streams.list[add.committed.stream].name.clone_from(&def.name);
        streams.hide(&StreamRef::Aborted(def.name.clone()));
        all.push(streams.own(next, of, TransactionPart::Next));
        return Ok(all);
    };
    let mut close = on_close(&close, 0)?;
    let next = on_close(&next, 1)?;
    close = streams.own(close, of, TransactionPart::Function);
    streams.list[close.committed.stream].name = format!("{}.closed", def.name);
    streams.list[close.aborted].name = format!("{}.failed", def.name);
    if over.top.is_some() {
        limits::uncount(&mut close.body);
        let top = close.emits.iter().find(|emit| emit.name == top::TOP).expect("the top is emitted").stream;
        streams.list[top].name.clone_from(&def.name);
        streams.list[top].owner = of.owner(StreamPart::Results);
    }
    all.extend([close, streams.own(next, of, TransactionPart::Next)]);
    if let Some(early) = early {
        partial(&early, of, (table, keys, units), streams, tables);
        let mut on_partial = |def, at: usize| in_words(transaction(def, (closes + at).into(), streams, tables, time));
        let result = on_partial(&early.result, 2)?;
        let later = on_partial(&early.later, 3)?;
        streams.list[result.committed.stream].name = parts::early(&def.name);
        streams.list[result.aborted].name = format!("{}.failed", parts::early(&def.name));
        all.push(streams.own(result, of, TransactionPart::Early));
        all.push(streams.own(later, of, TransactionPart::Later));
    }
    Ok(all)
}

/// Returns a transaction of a window, or why it is refused, with the names that users know.
fn in_words(words: &Words, typed: Result<Transaction, Unresolved>) -> Result<Transaction, Unresolved> {
    let mut typed = typed.map_err(|refused| match refused {
        Unresolved::Wrong(fault) => Unresolved::Wrong(fault.said(|text| words.say(text))),
        other => other,
    })?;
    typed.reasons.iter_mut().for_each(|reason| *reason = words.say(reason));
    Ok(typed)
}

/// Enters the stream of boundaries and rows of a window with a result for each row of a table ([`rows`]), and its table;
/// gives the transaction that opens windows for them.
fn fill(
    rows: Rows,
    of: Lowered<'_>,
    time: Type,
    id: TransactionId,
    streams: &mut Streams<'_>,
    tables: &mut TiVec<TableId, Table>,
) -> Result<Transaction, Unresolved> {
    let grid = tables::enter_hidden(rows.grid, of, TablePart::Grid, tables)?;
    let origin = Origin::Due(Due { table: grid, due: 1, first: 1, fields: rows.fields, bound: rows.bound, time });
    let (name, event_time) = (parts::boundaries(of.name), Some(rows.schema.fields.len() - 1));
    let owner = of.owner(StreamPart::Boundaries);
    let new = NewStream { name: name.clone(), schema: rows.schema, event_time, origin, root: None, owner };
    streams.add(StreamRef::Named(name), new);
    let fill = transaction(&rows.fill, id, streams, tables, None)?;
    Ok(streams.own(fill, of, TransactionPart::Fill))
}

/// Enters the stream of the windows that have an early result: of their table, the width of its key, the type of times.
fn partial(
    early: &Early,
    of: Lowered<'_>,
    (table, keys, time): (TableId, usize, Type),
    streams: &mut Streams<'_>,
    tables: &TiSlice<TableId, Table>,
) {
    let due = tables[table].columns.iter().position(|column| column.name == early.column).expect("it is in the table");
    let (fields, bound) = (early.fields.clone(), early.bound.clone());
    let origin = Origin::Due(Due { table, due, first: keys + 1, fields, bound, time });
    let (name, event_time) = (format!("{}.partial", of.name), Some(early.schema.fields.len() - 1));
    let owner = of.owner(StreamPart::Partial);
    let new = NewStream { name: name.clone(), schema: early.schema.clone(), event_time, origin, root: None, owner };
    streams.add(StreamRef::Named(name), new);
}

/// Types a transaction and enters its streams. `time`: of the hidden transactions of a window, the field that holds
/// their time for windowed columns, and what is added to it.
fn transaction(
    def: &TransactionDef,
    id: TransactionId,
    streams: &mut Streams<'_>,
    tables: &TiSlice<TableId, Table>,
    time: Option<PositionTime>,
) -> Result<Transaction, Unresolved> {
    whole::check_inputs(def)?;
    let inputs = def.inputs.iter().map(|r| streams.input(r)).collect::<Result<Vec<_>, _>>()?;
    transaction_on(def, inputs, id, streams, tables, time)
}

fn transaction_on(
    def: &TransactionDef,
    inputs: Vec<StreamId>,
    id: TransactionId,
    streams: &mut Streams<'_>,
    tables: &TiSlice<TableId, Table>,
    time: Option<PositionTime>,
) -> Result<Transaction, Unresolved> {
    let given: Vec<Given<'_>> = inputs
        .iter()
        .map(|&i| {
            let stream = &streams.list[i];
            Given {
                name: &stream.name,
                schema: &stream.schema,
                event_time: stream.event_time,
                is_late: matches!(streams.list[stream.root].origin, Origin::LateRoot(_)),
                has_places: streams.list[stream.root].origin.has_places(),
            }
        })
        .collect();
    let input: Input<'_> = transactions::common(&given)?;
    let schema = input.schema.clone();
    let Draft { mut roles, locals, loops, body, reasons, seen, passes_event, committed, emits, aborted } =
        transactions::transaction(def, &input, tables, time)?;
    wakes::pair(&mut roles);
    let name = &def.name;
    let mut add = |reference, suffix: String, origin, output: OutputDraft| {
        let OutputDraft { schema, event_time } = output;
        let name = format!("{name}.{suffix}");
        streams.add(reference, NewStream { name, schema, event_time, origin, root: None, owner: None })
    };
    let committed = CommittedOutput {
        stream: add(StreamRef::Committed(name.clone()), "committed".into(), Origin::Committed(id), committed),
        passes_event,
    };
    let aborted = add(StreamRef::Aborted(name.clone()), "aborted".into(), Origin::Aborted(id), aborted);
    let mut emit_outputs = Vec::new();
    for (index, (emit, output)) in emits.into_iter().enumerate() {
        let reference = StreamRef::Emitted { transaction: name.clone(), name: emit.clone() };
        let stream = add(reference, format!("emitted.{emit}"), Origin::Emitted(id, index), output);
        emit_outputs.push(EmitOutput { name: emit, stream });
    }
    for EmitOutput { name, stream } in &emit_outputs {
        streams.list[*stream].owner = streams.emission(name);
    }
    Ok(Transaction {
        name: name.clone(),
        inputs,
        schema,
        roles,
        locals,
        loops,
        body,
        reasons,
        committed,
        emits: emit_outputs,
        aborted,
        seen,
        cascades: false,
        nesting: Nesting::Alone,
        derives: def.derives,
        fold: None,
        owner: None,
    })
}

fn sinks(plan: &Plan, streams: &Streams<'_>, errors: &mut Vec<PlanError>) -> Vec<Sink> {
    let mut sinks = Vec::new();
    for def in &plan.sinks {
        match streams.resolve(&def.stream) {
            Ok(stream) => sinks.push(Sink { name: def.name.clone(), stream }),
            Err(refused) => note(Some(refused), "sink", &def.name, errors),
        }
    }
    sinks
}
