//! Random programs and random data.

use super::declared::{
    Asked, BatchOf, Bound, Column, Declared, Derived, Derives, Does, Event, Feed, Node, Over, Run, Size, SourceOf,
    TableOf, Windows,
};
use super::plan::plan;
use tidemill_histories::{Random, random_periods};
use tidemill_model::Type;
use tidemill_plan::{Aggregate, JoinHow, analyze};

/// Returns a program that is a function of the seed, and valid.
pub fn random_program(seed: u64) -> Declared {
    let mut random = Random::new(seed);
    let sources = (0..random.between(1, 2))
        .map(|_| SourceOf { splits: *random.pick(&[1, 1, 2, 3]), lateness: *random.pick(&[0, 0, 2, 5]) })
        .collect();
    let mut declared = Declared {
        time: *random.pick(&[Type::Int, Type::Time]),
        sources,
        ticks: random.chance(35).then(|| (*random.pick(&[3, 10, 25]), *random.pick(&[0, 2, -7]))),
        batches: Vec::new(),
        derived: Vec::new(),
        tables: (0..random.between(1, 2)).map(|_| random_table(&mut random)).collect(),
        nodes: Vec::new(),
    };
    if random.chance(25) {
        declared.batches.push(random_batch(&mut random, declared.sources.len()));
    }
    for _ in 0..random.between(3, 8) {
        if random.chance(30) {
            let input = any_feed(&mut random, &declared);
            let does = match random.chance(50) {
                true => Derives::Filter,
                false => Derives::Map { passes_time: random.chance(50) },
            };
            try_with(&mut declared, |declared| declared.derived.push(Derived { input, does }));
        }
        let node = random_node(&mut random, &declared);
        try_with(&mut declared, |declared| declared.nodes.push(node));
    }
    chain(&mut random, &mut declared);
    follow_up(&mut random, &mut declared);
    declared
}

/// Takes an addition back that is refused.
fn try_with(declared: &mut Declared, add: impl FnOnce(&mut Declared)) -> bool {
    let before = declared.clone();
    add(declared);
    let is_valid = analyze(&plan(declared)).is_ok();
    if !is_valid {
        *declared = before;
    }
    is_valid
}

/// Adds transactions on what others emit, in one table.
fn chain(random: &mut Random, declared: &mut Declared) {
    let emits = |node: &Node| matches!(node.does, Does::Run(run) if run.emits);
    let Some(first) = declared.nodes.iter().rposition(emits).filter(|_| random.chance(50)) else { return };
    let table = table_of(&declared.nodes[first]);
    let mut input = Feed::Emitted(first);
    for _ in 0..2 {
        let run = Run { table, emits: true, ..random_run(random, declared, input) };
        let run = Run { reads: None, wakes: None, ..run };
        if !try_with(declared, |declared| declared.nodes.push(Node { inputs: vec![input], does: Does::Run(run) })) {
            return;
        }
        input = Feed::Emitted(declared.nodes.len() - 1);
    }
}

/// Adds transactions on what wakes, ticks and batches.
fn follow_up(random: &mut Random, declared: &mut Declared) {
    let wakes = |declared: &Declared| {
        let of = |node: &Node| matches!(node.does, Does::Run(run) if run.wakes.is_some()).then(|| table_of(node));
        declared.nodes.iter().filter_map(of).next()
    };
    let mut more = Vec::new();
    if let Some(table) = wakes(declared) {
        let again = Some(*random.pick(&[-1, 0, 1, 2, 9])).filter(|_| random.chance(40));
        more.push((Feed::Woken(table), Does::Wakened { table, again, passes_time: random.chance(50) }));
    }
    let table = wakes(declared).unwrap_or(random.below(declared.tables.len()));
    if declared.ticks.is_some() {
        more.push((Feed::Ticks, Does::Ticked { table }));
    }
    more.extend((0..declared.batches.len()).map(|batch| (Feed::Batch(batch), Does::Batched { table })));
    for (feed, does) in more {
        if try_with(declared, |declared| declared.nodes.push(Node { inputs: vec![feed], does })) && random.chance(70) {
            let input = Feed::Given(declared.nodes.len() - 1);
            let node = node_on(random, declared, input);
            // Streams that follow from batches have the batch's number.
            if !(matches!(feed, Feed::Batch(_)) && matches!(node.does, Does::Run(_))) {
                try_with(declared, |declared| declared.nodes.push(node));
            }
        }
    }
}

fn table_of(node: &Node) -> usize {
    match node.does {
        Does::Run(run) => run.table,
        _ => unreachable!("it was looked at"),
    }
}

fn random_table(random: &mut Random) -> TableOf {
    let slide = *random.pick(&[1, 2, 5]);
    let column = Column { slices: *random.pick(&[1, 2, 4]), slide, is_distinct: random.chance(40) };
    TableOf { column: Some(column).filter(|_| random.chance(50)) }
}

fn random_batch(random: &mut Random, sources: usize) -> BatchOf {
    let size = match random.chance(50) {
        true => Size::Count(random.between(1, 4) as u64),
        false => Size::Time { length: *random.pick(&[1, 5, 12]), origin: *random.pick(&[0, 3]) },
    };
    BatchOf { source: random.below(sources), size }
}

/// Returns a stream that nodes can take.
fn any_feed(random: &mut Random, declared: &Declared) -> Feed {
    let mut all = Vec::new();
    for source in 0..declared.sources.len() {
        all.extend([Feed::Source(source), Feed::Source(source), Feed::Late(source)]);
    }
    all.extend((0..declared.derived.len()).map(Feed::Derived));
    for (index, node) in declared.nodes.iter().enumerate() {
        // Cascades are what is to be tried.
        all.extend([Feed::Given(index); 2]);
        match &node.does {
            Does::Over(over) if over.early.is_some() => all.push(Feed::Early(index)),
            Does::Run(run) if run.emits => all.extend([Feed::Emitted(index); 4]),
            _ => {}
        }
    }
    *random.pick(&all)
}

fn random_node(random: &mut Random, declared: &Declared) -> Node {
    let input = any_feed(random, declared);
    node_on(random, declared, input)
}

fn node_on(random: &mut Random, declared: &Declared, input: Feed) -> Node {
    let by_key = random.chance(70);
    let can_wait = !declared.is_endless(input);
    let does = match random.below(12) {
        0..=3 if can_wait => Does::Over(random_over(random, declared, by_key)),
        4 if can_wait => Does::Top { count: random.between(1, 3), ties: random.chance(50), by_key },
        5 if can_wait => Does::First { within: *random.pick(&[1, 2, 7, 30]), by_key },
        6 | 7 if can_wait => return random_join(random, declared, input),
        8 => Does::Over(Over {
            windows: Windows::Counting { count: random.between(1, 4) },
            early: None,
            rows: None,
            passes_time: false,
            ..random_over(random, declared, by_key)
        }),
        _ => Does::Run(random_run(random, declared, input)),
    };
    let mut inputs = vec![input];
    if let (Does::Run(run), true) = (&does, random.chance(25)) {
        let other = any_feed(random, declared);
        if other != input && !run.is_nested {
            inputs.push(other);
        }
    }
    Node { inputs, does }
}

fn random_over(random: &mut Random, declared: &Declared, by_key: bool) -> Over {
    let (length, every) = (*random.pick(&[1, 2, 5, 8, 30]), *random.pick(&[1, 2, 5]));
    let origin = *random.pick(&[0, 1, -4, 100]);
    let windows = match random.below(if declared.time == Type::Time { 5 } else { 4 }) {
        0 => Windows::Tumbling { length, origin },
        1 | 2 => Windows::Sliding { length: every * random.between(2, 5) as i64, every, origin },
        3 => Windows::Session { gap: *random.pick(&[1, 2, 3, 9]) },
        _ => Windows::Calendar(random_periods(random)),
    };
    let distance = match windows {
        Windows::Tumbling { length, .. } => Some(length),
        Windows::Sliding { every, .. } => Some(every),
        _ => None,
    };
    let early = distance.filter(|distance| distance % 5 == 0 && random.chance(50)).map(|distance| distance / 5);
    let early = early.or(distance.filter(|d| *d == 8 && random.chance(60)).map(|_| 4));
    let rows = distance.filter(|_| by_key && random.chance(25)).map(|_| random.below(declared.tables.len()));
    let is_folded = random.chance(50);
    let most = if is_folded { Asked::FOLDED } else { Asked::ALL.len() };
    let asked = (0..random.between(1, 4)).map(|_| Asked::ALL[random.below(most)]);
    // Windows without events may have no value for some aggregates.
    let is_total = |asked: &Asked| !matches!(asked, Asked::AnyEven | Asked::AllEven);
    let asked: Vec<Asked> = asked.filter(|asked| rows.is_none() || is_total(asked)).collect();
    let own = !is_folded && rows.is_none() && !matches!(windows, Windows::Sliding { .. }) && random.chance(40);
    let (least, most) = (*random.pick(&[0, 0, 0, 2]), *random.pick(&[usize::MAX, usize::MAX, 5]));
    let passes_time = random.chance(40);
    Over { time: declared.time, windows, by_key, early, rows, asked, own, passes_time, least, most }
}

fn random_join(random: &mut Random, declared: &Declared, input: Feed) -> Node {
    let mut other = any_feed(random, declared);
    if declared.is_endless(other) || random.chance(15) {
        other = input;
    }
    let length = *random.pick(&[1, 2, 3, 8, 30]);
    let bound = match random.chance(50) {
        true => Bound::Within(length),
        false => Bound::Over { length, origin: *random.pick(&[0, 1, -4]) },
    };
    let how = *random.pick(&[JoinHow::Inner, JoinHow::Left, JoinHow::Outer, JoinHow::Anti]);
    let mut inputs = vec![input, other];
    random.shuffle(&mut inputs);
    Node { inputs, does: Does::Join { bound, how } }
}

fn random_run(random: &mut Random, declared: &Declared, input: Feed) -> Run {
    let table = random.below(declared.tables.len());
    let reads = declared.tables[table].column.filter(|_| random.chance(60)).map(|column| {
        let plain = [Aggregate::Count, Aggregate::Sum, Aggregate::Min, Aggregate::Max];
        let aggregate = if column.is_distinct { Aggregate::Distinct } else { *random.pick(&plain) };
        (aggregate, random.between(1, column.slices as usize) as i64)
    });
    let can_nest = matches!(declared.root(input), Feed::Given(node) | Feed::Emitted(node)
        if matches!(declared.nodes[node].does, Does::Run(_)));
    Run {
        table,
        needs_key: random.chance(30),
        reads,
        wakes: Some(*random.pick(&[-2, 0, 1, 3, 3, 12])).filter(|_| declared.has_time(input) && random.chance(50)),
        aborts: random.chance(50),
        emits: random.chance(60),
        deletes: random.chance(30),
        is_nested: can_nest && random.chance(60),
        passes_time: random.chance(50),
    }
}

/// Returns the records of each source and split.
pub fn random_records(random: &mut Random, declared: &Declared) -> Vec<Vec<Vec<Event>>> {
    let keys = random.between(1, 5) as i64;
    let start = *random.pick(&[0, 0, -50, 1_000_000]);
    let dense = random.pick(&[vec![0, 0, 0, 1], vec![0, 0, 1, 1, 2, 3, 4, 40], vec![1, 3, 9]]).clone();
    let most = *random.pick(&[8, 20, 40]);
    let mut number = 0;
    let mut split = |random: &mut Random| {
        let mut at = start + random.int(0, 3);
        let mut record = |random: &mut Random| {
            at += *random.pick(&dense);
            number += 1;
            Event {
                key: Some(random.int(0, keys)).filter(|key| *key > 0),
                value: Some(random.int(-5, 5)).filter(|value| *value != 4),
                number,
                at: Some(at - *random.pick(&[0, 0, 0, 1, 4, 9])),
                more: Vec::new(),
                is_of_source: true,
            }
        };
        (0..random.between(0, most)).map(|_| record(random)).collect()
    };
    declared.sources.iter().map(|of| (0..of.splits).map(|_| split(random)).collect()).collect()
}
