//! Histories notice mistakes: for each of many small changes to the meaning of a program, or to the tables and transactions
//! that windows, joins and timers are made of, outputs or tables come out differently for several of them.

mod common;

use common::Seen;
use serde_json::{Map, Value as Json, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidemill_histories::{History, PlanSize, adversarial, random_history};
use tidemill_plan::{Program, analyze, with_deep_stack};

const SEEDS: u64 = 1200;

/// Histories that must notice a mistake.
const NOTICED_MIN: usize = 2;

/// A change wherever `node` is: one of its parts is given another value.
struct Swap {
    node: &'static str,
    part: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn swap(node: &'static str, part: &'static str, from: &'static str, to: &'static str) -> Swap {
    Swap { node, part, from, to }
}

/// Mistakes in one operation.
const SWAPS: [Swap; 33] = [
    swap("Word", "op", "Add", "Sub"),
    swap("Word", "op", "Sub", "Add"),
    swap("Word", "op", "Mul", "Add"),
    swap("Word", "op", "Min", "Max"),
    swap("Word", "op", "Max", "Min"),
    swap("Float", "op", "Add", "Sub"),
    swap("Float", "op", "Mul", "Add"),
    swap("Float", "op", "FloorDiv", "Div"),
    swap("Float", "op", "Mod", "FloorDiv"),
    swap("Float", "op", "Min", "Max"),
    swap("Float", "op", "Max", "Min"),
    swap("Compare", "op", "eq", "ne"),
    swap("Compare", "op", "lt", "le"),
    swap("Compare", "op", "le", "lt"),
    swap("Compare", "op", "gt", "ge"),
    swap("Compare", "op", "ge", "gt"),
    swap("Cast", "cast", "FloatToInt", "FloatRound"),
    swap("Cast", "cast", "FloatRound", "FloatToInt"),
    swap("Math", "op", "Sin", "Cos"),
    swap("Math", "op", "Log", "Log2"),
    swap("Math", "op", "Pow", "Fmod"),
    swap("Text", "op", "Lower", "Upper"),
    swap("Text", "op", "Upper", "Lower"),
    swap("Text", "op", "Strip", "Lower"),
    swap("TextTest", "op", "StartsWith", "EndsWith"),
    swap("TextTest", "op", "EndsWith", "StartsWith"),
    swap("TextTest", "op", "Contains", "StartsWith"),
    swap("WindowRead", "aggregate", "min", "max"),
    swap("WindowRead", "aggregate", "max", "min"),
    swap("Counted", "measure", "Made", "Read"),
    swap("", "missing", "Default", "Abort"),
    swap("", "break", "Break", "Continue"),
    swap("", "break", "Continue", "Break"),
];

/// Statements that are left out. Not those that set locals, which others read.
const DROPPED: [&str; 8] = ["Set", "If", "ForEach", "ForRange", "Require", "Abort", "Insert", "Delete"];

/// Calls `change` with each object, the outer ones first.
fn each_object(json: &mut Json, change: &mut dyn FnMut(&mut Map<String, Json>)) {
    match json {
        Json::Array(parts) => parts.iter_mut().for_each(|part| each_object(part, change)),
        Json::Object(parts) => {
            change(parts);
            parts.values_mut().for_each(|part| each_object(part, change));
        }
        _ => {}
    }
}

impl Swap {
    fn apply(&self, json: &mut Json) {
        let from = Json::from(self.from);
        match json {
            Json::Array(parts) => {
                for part in parts {
                    if self.part == "break" && *part == from {
                        *part = self.to.into();
                    }
                    self.apply(part);
                }
            }
            Json::Object(parts) => {
                if let Some(inner) = parts.get_mut(self.node)
                    && inner.get(self.part) == Some(&from)
                {
                    inner[self.part] = self.to.into();
                }
                if self.node.is_empty() && parts.get(self.part) == Some(&from) {
                    parts.insert(self.part.into(), self.to.into());
                }
                parts.values_mut().for_each(|part| self.apply(part));
            }
            _ => {}
        }
    }
}

/// Puts something without effect in the place of each statement of a kind.
fn drop_statements(kind: &str, json: &mut Json) {
    match json {
        Json::Array(parts) => {
            for part in parts.iter_mut() {
                if part.get(kind).is_some() {
                    *part = nothing();
                }
            }
            parts.iter_mut().for_each(|part| drop_statements(kind, part));
        }
        Json::Object(parts) => parts.values_mut().for_each(|part| drop_statements(kind, part)),
        _ => {}
    }
}

/// Counts bytes of memory where steps are to be counted. (Where nothing is counted, some histories do not end.)
fn count_steps_as_memory(json: &mut Json) {
    each_object(json, &mut |parts| {
        if let Some(count) = parts.get_mut("count")
            && let Some(steps) = count.get("Steps").cloned()
        {
            *count = json!({"Memory": steps});
        }
    });
}

/// Has each nested transaction stand alone.
fn stand_alone(json: &mut Json) {
    for transaction in json["transactions"].as_array_mut().expect("a program has transactions") {
        transaction["nesting"] = json!("Alone");
    }
}

/// Returns a statement without effect.
fn nothing() -> Json {
    let condition = json!({"ty": {"type": "bool", "nullable": false}, "node": {"Const": {"bool": false}}});
    json!({"If": {"condition": condition, "then": [], "otherwise": []}})
}

/// A mistake: what to call it, and the change that makes it.
type Mistake = (String, Box<dyn Fn(&mut Json) + Sync>);

fn mistakes() -> Vec<Mistake> {
    let swaps = SWAPS.iter().map(|swap| {
        let name = format!("{} {} for {}", swap.node, swap.to, swap.from);
        (name, Box::new(|json: &mut Json| swap.apply(json)) as Box<dyn Fn(&mut Json) + Sync>)
    });
    let drops = DROPPED.iter().map(|kind| {
        (format!("no {kind}"), Box::new(|json: &mut Json| drop_statements(kind, json)) as Box<dyn Fn(&mut Json) + Sync>)
    });
    let steps = ("steps counted as memory".into(), Box::new(count_steps_as_memory) as Box<dyn Fn(&mut Json) + Sync>);
    let nests = ("nested transactions alone".into(), Box::new(stand_alone) as Box<dyn Fn(&mut Json) + Sync>);
    swaps.chain(drops).chain([steps, nests]).collect()
}

/// Returns the transactions that a window, a join or a table with wakes is made of, by the ends of their names.
fn parts<'a>(json: &'a mut Json, end: &'a str) -> impl Iterator<Item = &'a mut Json> {
    let all = json["transactions"].as_array_mut().expect("a program has transactions");
    all.iter_mut().filter(move |of| of["name"].as_str().is_some_and(|name| name.ends_with(end)))
}

/// Returns the rows that are due, of tables whose names have this end: their table, and the column that says when.
fn dues(json: &Json, end: &str) -> Vec<(Json, Json)> {
    let is_of = |due: &&Json| {
        let table = &json["tables"][due["table"].as_u64().expect("a number") as usize];
        table["name"].as_str().is_some_and(|name| name.ends_with(end))
    };
    let streams = json["streams"].as_array().expect("a list").iter();
    let dues = streams.filter_map(|stream| stream["origin"].get("Due")).filter(is_of);
    dues.map(|due| (due["table"].clone(), due["due"].clone())).collect()
}

/// Calls `change` with the value of each statement that sets one of these columns of a role.
fn each_set(body: &mut Json, role: usize, columns: &[&Json], change: &mut dyn FnMut(&mut Json)) {
    each_object(body, &mut |parts| {
        let is_of = |set: &&mut Json| set["role"] == role && columns.contains(&&set["column"]);
        if let Some(set) = parts.get_mut("Set").filter(is_of) {
            change(&mut set["value"]);
        }
    });
}

/// Makes rows of tables whose names have this end due later, by an amount.
fn shift(json: &mut Json, end: &str, by: i64) {
    let dues = dues(json, end);
    for transaction in json["transactions"].as_array_mut().expect("a list") {
        let tables: Vec<Json> =
            transaction["roles"].as_array().expect("a list").iter().map(|role| role["table"].clone()).collect();
        for (role, table) in tables.iter().enumerate() {
            let columns: Vec<&Json> = dues.iter().filter(|(of, _)| of == table).map(|(_, due)| due).collect();
            each_set(&mut transaction["body"], role, &columns, &mut |value| {
                // A constant time is never due.
                if value["node"].get("Const").is_none() {
                    let int = json!({"type": "int", "nullable": false});
                    let more = json!({"ty": int, "node": {"Const": {"int": by}}});
                    let sum = json!({"Word": {"op": "Add", "left": value.clone(), "right": more, "reason": 0}});
                    *value = json!({"ty": int, "node": sum});
                }
            });
        }
    }
}

/// Windows, or what waits, close in the order of their keys.
fn order_by_key(json: &mut Json) {
    for stream in json["streams"].as_array_mut().expect("a list") {
        if let Some(due) = stream["origin"].get_mut("Due") {
            due["first"] = due["due"].clone();
        }
    }
}

/// Sources let events pass that are late by one.
fn count_late(json: &mut Json) {
    for stream in json["streams"].as_array_mut().expect("a list") {
        if let Some(source) = stream["origin"].get_mut("Source") {
            source["lateness"] = json!(source["lateness"].as_i64().expect("a number") + 1);
        }
    }
}

/// Doubles each addition of a constant that is wanted, in these transactions.
fn add_twice(json: &mut Json, end: &str, is_wanted: fn(i64) -> bool) {
    let mut twice = |parts: &mut Map<String, Json>| {
        if let Some(word) = parts.get_mut("Word").filter(|word| word["op"] == "Add")
            && let Some(added) = word["right"]["node"]["Const"]["int"].as_i64().filter(|added| is_wanted(*added))
        {
            word["right"]["node"] = json!({"Const": {"int": 2 * added}});
        }
    };
    parts(json, end).for_each(|part| each_object(&mut part["body"], &mut twice));
}

/// Each event begins its window anew.
fn begin_anew(json: &mut Json) {
    let mut anew = |parts: &mut Map<String, Json>| {
        let is_fresh = |branch: &&mut Json| branch["condition"]["node"] == json!({"Local": 0});
        if let Some(branch) = parts.get_mut("If").filter(is_fresh) {
            branch["condition"]["node"] = json!({"Const": {"bool": true}});
        }
    };
    parts(json, ".add").for_each(|part| each_object(&mut part["body"], &mut anew));
}

/// Applies swaps, but not in transactions that go over records: they would read where none is.
fn swap_in(json: &mut Json, end: &str, swaps: &[Swap]) {
    let parts = parts(json, end).filter(|part| !part["body"].to_string().contains("WindowField"));
    parts.for_each(|part| swaps.iter().for_each(|swap| swap.apply(&mut part["body"])));
}

/// Mistakes in what windows, joins and timers are made of.
fn mistakes_of_parts() -> Vec<Mistake> {
    let mistake = |name: &str, change: fn(&mut Json)| -> Mistake { (name.into(), Box::new(change)) };
    vec![
        mistake("a window closes one unit of time early", |json| shift(json, ".windows", -1)),
        mistake("a window closes one unit of time late", |json| shift(json, ".windows", 1)),
        mistake("what waits for a partner goes out one unit of time late", |json| shift(json, ".waits", 1)),
        mistake("a row wakes one unit of time late", |json| shift(json, ".wakes", 1)),
        mistake("groups are in the order of their keys", order_by_key),
        mistake("a late event is counted", count_late),
        mistake("an event is counted twice", |json| add_twice(json, ".add", |added| added == 1)),
        mistake("early results leave out every other time", |json| add_twice(json, ".later", |_| true)),
        mistake("a window forgets the events before", begin_anew),
        mistake("the end of a session or of a wait belongs to it", |json| {
            swap_in(json, ".add", &[swap("Compare", "op", "lt", "le"), swap("Compare", "op", "ge", "gt")]);
        }),
        mistake("a window of a calendar starts at its end", |json| {
            swap_in(json, ".add", &[swap("Period", "edge", "start", "end")]);
        }),
        mistake("the least value is kept as the greatest", |json| {
            swap_in(json, ".add", &[swap("Word", "op", "Min", "Max"), swap("Compare", "op", "lt", "gt")]);
        }),
    ]
}

/// Returns whether each mistake makes a difference to a history; of those that enough histories noticed, none does.
/// `puts`: puts back what is to stay right.
fn noticed(history: &History, mistakes: &[Mistake], counts: &[usize], puts: fn(&mut Json, &Json)) -> Vec<bool> {
    let program = analyze(&history.plan).expect("histories have valid plans");
    let right = Seen::of(&program, history);
    let json = serde_json::to_value(&program).expect("programs can be written");
    let unchanged = serde_json::from_value(json.clone()).expect("programs can be read");
    assert!(right.same(&Seen::of(&unchanged, history)), "{}: without a mistake there is no difference", program.name);
    let makes_difference = |((mistake, change), count): (&Mistake, &usize)| {
        if *count >= NOTICED_MIN {
            return false;
        }
        let mut changed = json.clone();
        change(&mut changed);
        puts(&mut changed, &json);
        if changed == json {
            return false;
        }
        let changed: Program = serde_json::from_value(changed).expect("the change keeps the form");
        // Time may stand still in a program with a mistake, which the reference does not run any further: a window that closes early has
        // rows that are due before the result that they are made of. Such a history does not count.
        let seen = catch_unwind(AssertUnwindSafe(|| Seen::of(&changed, history)));
        if seen.is_err() {
            println!("{}: not run to its end with the mistake '{mistake}'", program.name);
        }
        seen.is_ok_and(|seen| !right.same(&seen))
    };
    mistakes.iter().zip(counts).map(makes_difference).collect()
}

/// Puts back the transactions that windows over streams are made of, and the statements that say when rows wake: with a
/// mistake in these some histories do not end. So are functions that go over records: they would read where none is.
fn keep_hidden(changed: &mut Json, right: &Json) {
    let is_hidden = |named: &Json| named["name"].as_str().is_some_and(|name| name.contains('.'));
    let tables = right["tables"].as_array().expect("a list");
    for (index, transaction) in right["transactions"].as_array().expect("a list").iter().enumerate() {
        if is_hidden(transaction) || transaction["body"].to_string().contains("WindowNext") {
            changed["transactions"][index] = transaction.clone();
            continue;
        }
        let roles = transaction["roles"].as_array().expect("a list").iter().enumerate();
        let of_hidden = |role: &Json| is_hidden(&tables[role["table"].as_u64().expect("a number") as usize]);
        let hidden: Vec<u64> = roles.filter(|(_, role)| of_hidden(role)).map(|(role, _)| role as u64).collect();
        keep_sets(&mut changed["transactions"][index]["body"], &transaction["body"], &hidden);
    }
}

/// Puts back the statements that set columns of some roles.
fn keep_sets(changed: &mut Json, right: &Json, roles: &[u64]) {
    match right {
        Json::Array(parts) => {
            let changed = changed.as_array_mut().into_iter().flatten();
            changed.zip(parts).for_each(|(changed, part)| keep_sets(changed, part, roles));
        }
        Json::Object(parts) => {
            if parts.get("Set").and_then(|set| set["role"].as_u64()).is_some_and(|role| roles.contains(&role)) {
                *changed = right.clone();
                return;
            }
            for (name, part) in parts {
                if let Some(changed) = changed.get_mut(name) {
                    keep_sets(changed, part, roles);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn mistakes_are_noticed() {
    check(&mistakes(), keep_hidden);
}

#[test]
fn mistakes_in_windows_joins_and_timers_are_noticed() {
    check(&mistakes_of_parts(), |_, _| {});
}

fn check(mistakes: &[Mistake], puts: fn(&mut Json, &Json)) {
    let mut counts = vec![0; mistakes.len()];
    let sizes = [PlanSize::Small, PlanSize::Medium, PlanSize::Large];
    let random = (0..SEEDS).map(|seed| random_history(seed, sizes[seed as usize % 3]));
    for history in random.chain(adversarial().into_iter().map(|(_, history)| history)) {
        let noticed = with_deep_stack(|| noticed(&history, mistakes, &counts, puts));
        for (count, noticed) in counts.iter_mut().zip(noticed) {
            *count += usize::from(noticed);
        }
    }
    let all: Vec<String> = mistakes.iter().zip(&counts).map(|((name, _), count)| format!("{name}: {count}")).collect();
    println!("{}", all.join("\n"));
    for ((name, _), count) in mistakes.iter().zip(&counts) {
        assert!(*count >= NOTICED_MIN, "'{name}' makes a difference for {count} histories only");
    }
}
