//! Prints the random plan of a seed: `cargo run -p tidemill-histories --example show -- SEED [small|large]`.
use tidemill_histories::{PlanSize, random_plan};
use tidemill_plan::{analyze, explain};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seed: u64 = arguments.get(1).and_then(|a| a.parse().ok()).expect("a seed");
    let size = if seed.is_multiple_of(3) { PlanSize::Large } else { PlanSize::Small };
    let program = analyze(&random_plan(seed, size)).expect("random plans are valid");
    println!("{}", explain(&program));
    println!("{:#?}", program.transactions.last());
}
