//! Prints the random plan of a seed: `cargo run -p tidemill-histories --example show -- SEED`.
use tidemill_histories::mixed_plan;
use tidemill_plan::{analyze, explain};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seed: u64 = arguments.get(1).and_then(|a| a.parse().ok()).expect("a seed");
    let program = analyze(&mixed_plan(seed)).expect("random plans are valid");
    println!("{}", explain(&program));
    println!("{:#?}", program.transactions.last());
}
