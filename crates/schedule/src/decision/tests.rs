//! Synthetic workloads: what each policy costs is given, what the model makes of it is checked.

use super::*;
use std::collections::VecDeque;

/// Costs per transaction, in nanoseconds.
#[derive(Clone, Copy)]
struct Workload {
    access: f64,
    chain: f64,
    others: f64,
    operations: u32,
}

impl Workload {
    fn run(&self, policy: Policy, transactions: u32) -> EpochCost {
        let access = match policy.granularity {
            Granularity::Epoch => self.access,
            Granularity::Chain | Granularity::Operation => self.chain,
        };
        EpochCost {
            policy,
            transactions,
            operations: transactions * self.operations,
            access_ns: (access * f64::from(transactions)) as u64,
            other_ns: (self.others * f64::from(transactions)) as u64,
        }
    }

    fn pipeline(&self, granularity: Granularity, workers: f64) -> f64 {
        match granularity {
            Granularity::Epoch => self.access.max(self.others / (workers - 1.0)),
            Granularity::Chain | Granularity::Operation => self.chain + self.others / workers,
        }
    }

    fn best(&self, workers: f64) -> f64 {
        self.pipeline(Granularity::Epoch, workers).min(self.pipeline(Granularity::Chain, workers))
    }
}

const TRANSACTIONS: u32 = 10_000;

/// Runs epochs, recording each so many epochs after it was chosen. Returns the choices and the time taken
/// over that of the best policy at every moment.
fn simulate(decision: &mut Decision, workload: Workload, epochs: usize, lag: usize) -> (Vec<Choice>, f64) {
    let mut flying = VecDeque::new();
    let (mut choices, mut taken, mut best) = (Vec::new(), 0.0, 0.0);
    let workers = f64::from(decision.workers);
    for _ in 0..epochs {
        let choice = decision.choose(TRANSACTIONS);
        taken += workload.pipeline(choice.policy.granularity, workers);
        best += workload.best(workers);
        flying.push_back(workload.run(choice.policy, TRANSACTIONS));
        choices.push(choice);
        if flying.len() > lag {
            decision.record(flying.pop_front().expect("more than lag"));
        }
    }
    flying.into_iter().for_each(|cost| decision.record(cost));
    (choices, taken / best)
}

fn share(choices: &[Choice], granularity: Granularity) -> f64 {
    choices.iter().filter(|choice| choice.policy.granularity == granularity).count() as f64 / choices.len() as f64
}

#[test]
fn serial_while_the_other_stages_take_longer() {
    let workload = Workload { access: 310.0, chain: 200.0, others: 790.0, operations: 2 };
    let mut decision = Decision::new(2);
    let (choices, _) = simulate(&mut decision, workload, 1000, 1);
    assert_eq!(share(&choices, Granularity::Epoch), 1.0, "never even probed");
    assert_eq!(choices[0].to_string(), "epoch: nothing has been measured yet");
    assert_eq!(choices[999].to_string(), "epoch: access 3.1 ms is below the 7.9 ms of the other stages");
}

#[test]
fn serial_while_operations_are_cheap() {
    let workload = Workload { access: 160.0, chain: 90.0, others: 100.0, operations: 2 };
    let (choices, _) = simulate(&mut Decision::new(2), workload, 1000, 1);
    assert_eq!(share(&choices, Granularity::Epoch), 1.0);
    let expected = "epoch: access is the bottleneck, but 80 ns per operation is too cheap to share out";
    assert_eq!(choices[999].to_string(), expected);
}

#[test]
fn chains_when_they_are_cheaper() {
    let workload = Workload { access: 20_000.0, chain: 10_500.0, others: 800.0, operations: 2 };
    for lag in [0, 1, 3] {
        let (choices, over) = simulate(&mut Decision::new(2), workload, 5000, lag);
        assert!(share(&choices[..20], Granularity::Chain) > 0.5, "soon");
        assert!(share(&choices, Granularity::Chain) > 0.97, "and for good");
        assert!(over < 1.0 + 1.1 * REGRET_MAX, "lag {lag}: {over} times the best");
        assert!(choices.iter().any(|choice| choice.to_string() == "chain: measured 109.0 ms against 200.0 ms"));
        assert!(choices.iter().any(|choice| choice.to_string() == "chain: probing what would replace 200.0 ms"));
    }
}

/// A hot row: expensive, the bottleneck, and nothing runs in parallel.
#[test]
fn probes_that_lose_cost_less_than_two_percent() {
    for slower in [1.05, 1.5, 3.0, 10.0] {
        let workload = Workload { access: 2_000.0, chain: 2_000.0 * slower, others: 100.0, operations: 2 };
        let mut decision = Decision::new(2);
        let (early, early_over) = simulate(&mut decision, workload, 2000, 1);
        assert!(share(&early, Granularity::Chain) > 0.0, "{slower}: probed at least once");
        assert!(early_over < 1.0 + REGRET_MAX, "{slower}: {early_over} times the best, early on");
        let (choices, over) = simulate(&mut decision, workload, 100_000, 1);
        assert!(over < 1.0 + REGRET_MAX, "{slower}: {over} times the best");
        let probes = |choices: &[Choice]| {
            choices.iter().filter(|choice| choice.policy.granularity == Granularity::Chain).count()
        };
        assert!(probes(&choices) > 0, "{slower}: still asking");
        assert!(probes(&choices[50_000..]) <= probes(&choices[..50_000]), "{slower}: but ever less");
    }
}

#[test]
fn follows_a_workload_that_changes() {
    let cheap = Workload { access: 100.0, chain: 200.0, others: 300.0, operations: 2 };
    let costly = Workload { access: 20_000.0, chain: 10_500.0, others: 300.0, operations: 2 };
    let hot = Workload { access: 20_000.0, chain: 23_000.0, others: 300.0, operations: 2 };
    let mut decision = Decision::new(2);
    let mut total = 0.0;
    let phases = [cheap, costly, cheap, hot, costly, hot, cheap, costly];
    for (number, phase) in phases.into_iter().enumerate() {
        let (choices, over) = simulate(&mut decision, phase, 1000, 1);
        let best = if phase.best(2.0) == phase.pipeline(Granularity::Chain, 2.0) {
            Granularity::Chain
        } else {
            Granularity::Epoch
        };
        assert!(share(&choices[500..], best) > 0.95, "phase {number} settles");
        assert!(over < 1.25, "phase {number}: {over} times the best");
        total += over;
    }
    assert!(total / 8.0 < 1.06, "{} times the best on average", total / 8.0);
}

/// What the workers together spend on chains bounds the serial cost, so no probe is needed to see that access is
/// no bottleneck any more.
#[test]
fn goes_back_to_serial_when_chains_have_become_cheap() {
    let costly = Workload { access: 20_000.0, chain: 10_500.0, others: 18_000.0, operations: 2 };
    let cheap = Workload { access: 200.0, chain: 300.0, others: 18_000.0, operations: 2 };
    let mut decision = Decision::new(2);
    let (choices, _) = simulate(&mut decision, costly, 200, 0);
    assert_eq!(choices[199].policy, Policy::CHAIN);
    let (choices, _) = simulate(&mut decision, cheap, 40, 0);
    let first = choices.iter().find(|choice| choice.policy == Policy::EPOCH).expect("goes back");
    assert!(matches!(first.reason, Reason::OthersLonger { .. }), "{first}");
    assert_eq!(choices[39].policy, Policy::EPOCH);
}

#[test]
fn small_epochs_and_lonely_workers_are_serial_and_teach_nothing() {
    let mut lonely = Decision::new(1);
    lonely.record(EpochCost {
        policy: Policy::EPOCH,
        transactions: 10_000,
        operations: 20_000,
        access_ns: 1 << 40,
        other_ns: 1,
    });
    assert_eq!(lonely.choose(10_000).to_string(), "epoch: there is one worker");
    let mut decision = Decision::new(2);
    let workload = Workload { access: 20_000.0, chain: 10_500.0, others: 800.0, operations: 2 };
    assert_eq!(decision.choose(5).to_string(), "epoch: 5 transactions are too few to share out");
    decision.record(workload.run(Policy::EPOCH, 5));
    decision.record(workload.run(Policy::EPOCH, 0));
    assert_eq!(decision.choose(10_000).reason, Reason::Unmeasured);
}

#[test]
fn the_same_costs_give_the_same_choices() {
    let workload = Workload { access: 900.0, chain: 700.0, others: 350.0, operations: 3 };
    let run = || simulate(&mut Decision::new(2), workload, 500, 2).0;
    assert_eq!(run(), run());
}

#[test]
fn times_print_in_their_unit() {
    let print = |ns| Time(ns).to_string();
    assert_eq!([print(12.0), print(1.5e4), print(3.1e6), print(2e9)], ["12 ns", "15.0 µs", "3.1 ms", "2.0 s"]);
}
