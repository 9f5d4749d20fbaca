//! The report of a point: a line of a table for each number of workers, or lines of CSV for each way to run it.

use super::{Bench, Runs};
use crate::median::median;
use crate::rounds::Spread;
use crate::workloads::windows::{Baseline, Shape, WindowWorkload};
use std::io::Write;
use tidemill_runtime::LatencySummary;

/// Above the lines of the table.
pub const HEADER: &str = "                                                         |                                            million events/s | ratio |
  workload    events    groups theta seconds             |  columns      map    array       up     late   global    engine |  loop |   results | tables KiB    slots peak MiB |
";

/// Above the lines of CSV. Of loops there are no workers; results, tables and memory are the engine's.
pub const CSV_HEADER: &str = "workload,events,groups,theta,seconds,rate,late,way,workers,events_per_second,ratio_to_loop,seconds_min,seconds_max,runs,\
    results,tables_kib,slots,peak_mib
";

impl Bench<'_> {
    /// A line for each number of workers.
    pub fn print(&self, workload: &WindowWorkload, shape: &Shape) {
        let Shape { events, groups, theta, length, .. } = *shape;
        let rate = |seconds: &[f64]| events as f64 / median(seconds) / 1e6;
        let some = |seconds: &[f64]| if seconds.is_empty() { "-".into() } else { format!("{:.1}", rate(seconds)) };
        let by_array = some(&self.by_array);
        let (by_map, best) = (rate(&self.by_map), events as f64 / self.best() / 1e6);
        for (workers, runs) in self.options.workers.iter().zip(&self.runs) {
            let Runs { columns, seconds, results, tables, peak, .. } = runs;
            let columns = rate(columns);
            let [up, late, global] = [Baseline::Up, Baseline::Late, Baseline::Global].map(|b| some(self.of(b, runs)));
            let name = workload.name;
            let workers = format!("{workers} worker{}", if *workers == 1 { "" } else { "s" });
            print!("{name:>10} {events:>9} {groups:>9} {theta:>5} {length:>7} {workers:>11} |");
            let engine = rate(seconds);
            print!(" {columns:>8.1} {by_map:>8.1} {by_array:>8} {up:>8} {late:>8} {global:>8}");
            print!(" {engine:>9.2} | {:>5.3} |", engine / best);
            let (kib, mib) = (tables.bytes >> 10, peak >> 20);
            println!(" {results:>9} | {kib:>10} {:>8} {mib:>8} | equal", tables.slots);
            if !runs.durable.is_empty() {
                let with = rate(&runs.durable);
                println!("           with a state: {with:.2} million events/s, {:.3} of without", with / engine);
            }
            for (share, latencies) in self.options.open_loop.iter().zip(&runs.latencies) {
                let of = |of: fn(&LatencySummary) -> f64| median(&latencies.iter().map(of).collect::<Vec<_>>());
                let [p50, p99, p999] = [of(|l| l.p50_ms), of(|l| l.p99_ms), of(|l| l.p999_ms)];
                let most = of(|latency| latency.max_ms);
                println!(
                    "           at {share} of it: p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2}, at most {most:.2} ms"
                );
            }
        }
    }

    /// Returns the median seconds of the faster loop.
    fn best(&self) -> f64 {
        let by_array = if self.by_array.is_empty() { f64::INFINITY } else { median(&self.by_array) };
        by_array.min(median(&self.by_map))
    }

    /// Returns the seconds of a baseline; none where it was not run.
    fn of<'r>(&self, baseline: Baseline, runs: &'r Runs) -> &'r [f64] {
        let place = self.options.baselines.iter().position(|&other| other == baseline);
        place.and_then(|place| runs.baselines.get(place)).map_or(&[], |seconds| seconds)
    }

    /// A line for each way: reading columns, the loops, the baselines and the engine with each number of workers.
    pub fn write_csv(&self, workload: &WindowWorkload, shape: &Shape, out: &mut dyn Write) {
        let mut line = |way: &str, workers: String, seconds: &[f64], more: String| {
            if seconds.is_empty() {
                return;
            }
            let Shape { events, groups, theta, length, rate, late } = *shape;
            let Spread { least, median, greatest } = Spread::of(seconds);
            let (per_second, ratio, runs) = (events as f64 / median, self.best() / median, seconds.len());
            let point = format!("{},{events},{groups},{theta},{length},{rate},{late}", workload.name);
            let measured = format!("{per_second:.0},{ratio:.4},{least:.5},{greatest:.5},{runs}");
            writeln!(out, "{point},{way},{workers},{measured},{more}").expect("a place that takes it");
        };
        for (way, seconds) in [("map", &self.by_map), ("array", &self.by_array)] {
            line(way, String::new(), seconds, ",,,".into());
        }
        for (workers, runs) in self.options.workers.iter().zip(&self.runs) {
            line("columns", workers.to_string(), &runs.columns, ",,,".into());
            for (baseline, seconds) in self.options.baselines.iter().zip(&runs.baselines) {
                line(baseline.name(), workers.to_string(), seconds, ",,,".into());
            }
            let Runs { seconds, results, tables, peak, .. } = runs;
            let more = format!("{results},{},{},{}", tables.bytes >> 10, tables.slots, peak >> 20);
            line("engine", workers.to_string(), seconds, more);
            line("state", workers.to_string(), &runs.durable, ",,,".into());
        }
    }
}
