//! The workloads of the papers, one file each: a plan, its input, and the loop that one would write by
//! hand (TStream 2020 §VI-A; MorphStream 2023 §6.1, Table 5).
//!
//! Where MorphStream delays a user function by the clock, ours computes: a chain of additions and
//! multiplications of floats, which takes the same time in compiled plans and in the loops, and which
//! nothing may leave out as its result is used. ([`udf::with_udf`] in plans, [`udf::toil`] in loops.)

pub mod bidding;
mod columns;
mod digest;
pub mod grep_sum;
mod input;
pub mod ledger;
pub mod toll;
pub mod toll_groups;
pub mod toll_windows;
mod udf;
pub mod windows;

pub use columns::int_rows;
#[cfg(test)]
pub use columns::{PARTITIONS, event_schema};
pub use digest::{OutputDigest, state_digest};
pub use input::{Input, Knobs, Output};
pub use udf::{ns_per_round, rounds};

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Grep and Sum.
    GrepSum,
    /// Streaming Ledger.
    Ledger,
    /// Streaming Ledger in four phases (MorphStream §6.2.2).
    LedgerPhases,
    /// Online Bidding.
    Bidding,
    /// Toll Processing.
    Toll,
    /// Toll Processing in two groups of roads (MorphStream §6.2.3).
    TollGroups,
    /// Toll Processing over windows.
    TollWindows,
}

/// All of them, by the names that the command line knows.
pub const WORKLOADS: [(&str, Workload); 7] = [
    ("gs", Workload::GrepSum),
    ("sl", Workload::Ledger),
    ("sl-phases", Workload::LedgerPhases),
    ("ob", Workload::Bidding),
    ("tp", Workload::Toll),
    ("tp-groups", Workload::TollGroups),
    ("tp-windows", Workload::TollWindows),
];

impl Workload {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        WORKLOADS.iter().find(|(_, workload)| *workload == self).expect("all are named").0
    }

    /// Returns the defaults of Table 5, with tables ten times as large as in TStream's paper, as in MorphStream's;
    /// `work` is for a C of 10 µs where a round takes `round_ns`. Online Bidding is not in Table 5: the length is
    /// TStream's, the rest as for the others.
    pub fn defaults(self, round_ns: f64) -> Knobs {
        let work = rounds(10.0, round_ns);
        let knobs = Knobs {
            rows: 100_000,
            theta: 0.2,
            abort: 0.01,
            length: 1,
            work,
            accesses: 1,
            epoch: 10_240,
            reads: 0.5,
            mixed: false,
            multiple: 1.0,
            across: 0.0,
            partitions: 0,
            acyclic: false,
            events: 0,
        };
        match self {
            Workload::GrepSum => Knobs { accesses: 2, ..knobs },
            Workload::Ledger | Workload::LedgerPhases => knobs,
            Workload::Bidding => Knobs { length: 20, ..knobs },
            Workload::Toll | Workload::TollGroups | Workload::TollWindows => {
                Knobs { rows: 1_000, epoch: 40_960, ..knobs }
            }
        }
    }

    /// User functions that an event runs, on average.
    pub fn functions(self, knobs: &Knobs) -> f64 {
        match self {
            Workload::GrepSum => 1.0 + knobs.multiple * (knobs.length as f64 - 1.0),
            Workload::Ledger | Workload::LedgerPhases => 3.0,
            Workload::Bidding => (6.0 + 2.0 * knobs.length as f64) / 8.0,
            Workload::Toll | Workload::TollGroups | Workload::TollWindows => 2.0,
        }
    }

    /// Returns the knobs with as many events as take the loop about this long, at about 100 ns each and the user
    /// functions; at least this number of epochs, but no more than `events_max` events.
    pub fn sized(self, knobs: Knobs, seconds: f64, epochs_min: usize, events_max: usize, round_ns: f64) -> Knobs {
        let event_ns = 100.0 + self.functions(&knobs) * knobs.work as f64 * round_ns;
        let events = (seconds * 1e9 / event_ns) as usize;
        Knobs { events: events.max(epochs_min * knobs.epoch).min(events_max), ..knobs }
    }

    /// Plan, tables, events.
    pub fn input(self, knobs: &Knobs) -> Input {
        match self {
            Workload::GrepSum => grep_sum::input(knobs),
            Workload::Ledger => ledger::input(knobs, false),
            Workload::LedgerPhases => ledger::input(knobs, true),
            Workload::Bidding => bidding::input(knobs),
            Workload::Toll => toll::input(knobs),
            Workload::TollGroups => toll_groups::input(knobs),
            Workload::TollWindows => toll_windows::input(knobs),
        }
    }
}
