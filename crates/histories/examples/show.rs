//! Prints the random plan of a seed: `cargo run -p tidemill-histories --example show -- SEED`, or, if it is one that is
//! called, `... -- SEED called`.
use tidemill_histories::{mixed_call_plan, mixed_plan};
use tidemill_plan::{analyze, explain};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seed: u64 = arguments.get(1).and_then(|a| a.parse().ok()).expect("a seed");
    let plan = if arguments.get(2).is_some_and(|kind| kind == "called") { mixed_call_plan } else { mixed_plan }(seed);
    let program = analyze(&plan).expect("random plans are valid");
    println!("{}", explain(&program));
    println!("{:#?}", program.transactions.last());
}
