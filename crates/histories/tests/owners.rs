//! The parts of operators in random programs: each names its owner, and the names that users and states see are those of the parts.
//!
//! Names of users have no dot. So a name with one is that of a part, or of a stream that comes with something declared.

use std::collections::{BTreeMap, BTreeSet};
use tidemill_histories::{PlanSize, random_call_plan, random_plan};
use tidemill_plan::{Origin, Program, StreamId, TransactionId, TransactionPart, analyze};

#[test]
fn each_part_names_its_owner() {
    let (mut kinds, mut parts) = (BTreeMap::new(), BTreeSet::new());
    for seed in 0..600 {
        let size = [PlanSize::Small, PlanSize::Medium, PlanSize::Large][seed as usize % 3];
        let plan = if seed % 5 == 0 { random_call_plan(seed, size) } else { random_plan(seed, size) };
        let program = analyze(&plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        for operator in &program.operators {
            let kind = format!("{:?}", operator.kind);
            let end = kind.find(|c: char| !c.is_alphabetic()).unwrap_or(kind.len());
            *kinds.entry(kind[..end].to_owned()).or_insert(0) += 1;
            if let Some(definition) = &operator.definition {
                assert_eq!(definition.name, operator.name, "seed {seed}");
            }
        }
        tables(&program, seed);
        transactions(&program, seed);
        streams(&program, seed);
        roles(&program, seed);
        parts.extend(program.tables.iter().filter_map(|table| table.part()).map(|part| format!("table {part:?}")));
        parts.extend(program.streams.iter().filter_map(|stream| stream.part()).map(|part| format!("stream {part:?}")));
        parts.extend(program.transactions.iter().filter_map(|of| of.part()).map(|part| format!("{part:?}")));
    }
    println!("{kinds:?}\n{parts:?}");
    let all = ["Batch", "Changes", "Expiry", "First", "Join", "Ticks", "Top", "Wakes", "Window"];
    assert_eq!(kinds.keys().map(String::as_str).collect::<Vec<_>>(), all);
    assert_eq!(parts.len(), 7 + 21 + 11, "each part is there: {parts:?}");
}

fn tables(program: &Program, seed: u64) {
    for (id, table) in program.tables.iter_enumerated() {
        let Some(owner) = table.owner else {
            assert!(!table.is_hidden && !table.name.contains('.'), "seed {seed}: {}", table.name);
            continue;
        };
        let operator = &program.operators[owner.operator];
        assert!(table.is_hidden, "seed {seed}: {}", table.name);
        assert_eq!(table.name, owner.part.named(&operator.name), "seed {seed}");
        assert_eq!(table.written_owner(), Some((operator.name.as_str(), owner.part)), "seed {seed}");
        assert_eq!(program.table_of(owner.operator, owner.part), Some(id), "seed {seed}");
        if let Some(definition) = &operator.definition {
            assert!(definition.owns(&table.name), "seed {seed}: {}", table.name);
            assert_eq!(definition.has_open(&table.name), owner.part.is_open(), "seed {seed}: {}", table.name);
        }
    }
}

fn transactions(program: &Program, seed: u64) {
    for (id, transaction) in program.transactions.iter_enumerated() {
        let (owner, name) = (transaction.owner, &transaction.name);
        let is_part = name.contains('.');
        assert_eq!(transaction.is_hidden(), is_part && !name.ends_with(".early"), "seed {seed}: {name}");
        let Some(owner) = owner else {
            assert!(!is_part, "seed {seed}: {name}");
            continue;
        };
        let operator = program.operators[owner.operator].name.as_str();
        assert_eq!(
            name.split_once('.').map_or(name.as_str(), |(operator, _)| operator),
            operator,
            "seed {seed}: {name}"
        );
        assert_eq!(program.transaction_of(owner.operator, owner.part), Some(id), "seed {seed}: {name}");
        assert_eq!(!is_part, matches!(owner.part, TransactionPart::Function | TransactionPart::Pass), "{name}");
    }
}

fn streams(program: &Program, seed: u64) {
    for (id, stream) in program.streams.iter_enumerated() {
        assert_eq!(program.is_shown(id), is_shown(program, id), "seed {seed}: {}: {:?}", stream.name, stream.owner);
        if let Some(owner) = stream.owner {
            let operator = &program.operators[owner.operator];
            let begins = stream.name.split_once('.').map_or(stream.name.as_str(), |(operator, _)| operator);
            // Changes are emitted by transactions of others.
            let is_emitted = stream.name.split('.').any(|part| part == operator.name);
            assert!(begins == operator.name || is_emitted, "seed {seed}: {} of {}", stream.name, operator.name);
        }
    }
}

/// Returns whether users know a stream, going by its name and that of its transaction.
fn is_shown(program: &Program, id: StreamId) -> bool {
    let stream = &program.streams[id];
    let is_part = stream.name.contains('.');
    let of = |t: TransactionId| &program.transactions[t].name;
    let is_hidden = |name: &str| name.contains('.') && !name.ends_with(".early");
    match stream.origin {
        Origin::Committed(t) => !is_hidden(of(t)) || *of(t) == stream.name,
        Origin::Aborted(t) => !is_hidden(of(t)) && !gives_first(program, t) || stream.name.ends_with(".refused"),
        Origin::Emitted(t, output) => !program.transactions[t].emits[output].name.contains('.'),
        Origin::Due(ref due) if due.is_wakes() => !due.is_expiry(program),
        Origin::LateRoot(_) => false,
        Origin::Map { .. } if program.late_of(id).is_some() => true,
        Origin::Failed(of) if program.late_of(of).is_some() => false,
        Origin::Due(_) | Origin::Filter { .. } | Origin::Map { .. } => !is_part,
        Origin::Failed(of) => is_shown(program, of),
        Origin::Source { .. } | Origin::Late(_) | Origin::Bad(_) | Origin::Batch(_) => true,
    }
}

/// Returns whether the events that a transaction returns are the stream of its name, as those of first events are.
fn gives_first(program: &Program, transaction: tidemill_plan::TransactionId) -> bool {
    let of = &program.transactions[transaction];
    program.streams[of.committed.stream].name == of.name && !of.name.contains('.')
}

fn roles(program: &Program, seed: u64) {
    for transaction in &program.transactions {
        for role in &transaction.roles {
            let woken = role.wakes.map(|woken| transaction.roles[woken].name.as_str());
            assert_eq!(woken, role.name.strip_suffix("__wakes"), "seed {seed}: {}", transaction.name);
        }
    }
}
