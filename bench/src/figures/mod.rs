//! The figures of the papers, measured here: one file of CSV each, which `bench/figures.py` draws and
//! `docs/figures.md` and `docs/windows.md` set beside what the papers say.
//!
//! A figure whose file is there is left out, so a sweep that was ended goes on where it was. Its file appears, by a
//! rename, when it is complete; until then its points are in a file beside it (`.part`), and a sweep that was ended
//! or ran out of time continues after the last whole point, if it has the same numbers of workers.

mod catalog;
pub mod over_time;
mod sweeps;

use crate::rounds::{Extent, Spread, middle};
use crate::session::{self, HEADER, Line, Measured, scheduling_name};
use crate::simulation;
use crate::standing::{Standing, Standings};
use crate::windows;
use crate::workloads::windows::Shape;
use crate::workloads::{Knobs, Workload, ns_per_round};
use catalog::{Figure, Kind};
use clap::Parser;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;
use tidemill_runtime::Options;

/// The exit status where a sweep has ended before it was complete.
pub const UNFINISHED: u8 = 3;

/// The options of a sweep over figures.
#[derive(Parser)]
pub struct Figures {
    /// The folder of the CSV files.
    #[arg(long, default_value = "target/figures")]
    out: PathBuf,
    /// Only these figures, by their files' names; `list` names them all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measures also what is there already. What is there in part is gone on with.
    #[arg(long)]
    again: bool,
    /// Begins no further point after so many seconds; then the exit status is 3, and the next sweep goes on.
    #[arg(long)]
    budget: Option<f64>,
    /// Rounds; lines are the medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The least time that the shortest run of a point takes, unless that takes more than `--events`.
    #[arg(long, default_value_t = 0.25)]
    seconds: f64,
    /// Events of a run at the most.
    #[arg(long, default_value_t = 8_000_000)]
    events: usize,
    /// Numbers of workers, rising: figures over workers have all of them, the others the last. A figure that is there in
    /// part goes on with the same numbers only.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = session::workers)]
    workers: Vec<usize>,
    /// For a process of its own: runs Streaming Ledger under this policy or scheme in epochs of so many events, and
    /// prints what the process holds, in MiB, as it goes on.
    #[arg(long, num_args = 2, value_names = ["POLICY", "EPOCH"])]
    memory_of: Option<Vec<String>>,
}

/// The progress of the sweep.
struct Progress {
    start: Instant,
    /// Runs, of all rounds; those of points that were there do not count.
    done: usize,
    in_all: usize,
}

impl Progress {
    fn show(&mut self, what: &str, runs: usize) {
        self.done += runs;
        let share = self.done as f64 / self.in_all.max(1) as f64;
        let left = self.start.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-9);
        eprintln!("{:>3.0} %, {:>2.0} min left: {what}", share * 100.0, (left / 60.0).ceil());
    }
}

impl Figures {
    /// Measures all that is not there. Whether all is there now.
    pub fn report(&self) -> bool {
        if let Some(of) = &self.memory_of {
            over_time::print_memory(&of[0], of[1].parse().expect("events of an epoch"), self.events);
            return true;
        }
        let round_ns = ns_per_round();
        let figures = catalog::all(round_ns, &self.workers);
        if self.only.iter().any(|name| name == "list") {
            figures.iter().for_each(|figure| println!("{:<12} {}", figure.id, figure.title));
            return true;
        }
        let unknown = |name: &&String| figures.iter().all(|figure| figure.id != **name);
        if let Some(name) = self.only.iter().find(unknown) {
            panic!("there is no figure '{name}'; --only list names those there are");
        }
        fs::create_dir_all(&self.out).expect("a folder for the figures");
        let is_wanted = |figure: &Figure| {
            let is_named = self.only.is_empty() || self.only.iter().any(|name| name == figure.id);
            is_named && (self.again || !self.file(figure).exists())
        };
        let figures: Vec<Figure> = figures.into_iter().filter(is_wanted).collect();
        let in_all = figures.iter().map(|figure| figure.runs(self.runs)).sum();
        let mut progress = Progress { start: Instant::now(), done: 0, in_all };
        eprintln!("{} figures, {in_all} runs; a round of a user function takes {round_ns:.2} ns", figures.len());
        figures.iter().all(|figure| self.measure(figure, round_ns, &mut progress))
    }

    fn file(&self, figure: &Figure) -> PathBuf {
        self.out.join(format!("{}.csv", figure.id))
    }

    /// Returns the path of a figure's file until it is complete.
    fn unfinished(&self, figure: &Figure) -> PathBuf {
        let workers: Vec<String> = self.workers.iter().map(usize::to_string).collect();
        self.out.join(format!("{}.{}.part", figure.id, workers.join("-")))
    }

    /// Measures a figure, or what is missing of it. Whether it is complete now.
    fn measure(&self, figure: &Figure, round_ns: f64, progress: &mut Progress) -> bool {
        let (file, unfinished) = (self.file(figure), self.unfinished(figure));
        let (whole, points) = whole_points(figure, &fs::read_to_string(&unfinished).unwrap_or_default());
        fs::write(&unfinished, whole).expect("a file for the figure");
        let mut out = BufWriter::new(OpenOptions::new().append(true).open(&unfinished).expect("the file just written"));
        let is_complete = self.write(figure, round_ns, points, progress, &mut out);
        out.into_inner().map_err(|error| error.into_error()).expect("a file that takes it");
        if is_complete {
            fs::rename(&unfinished, &file).expect("a file for the figure");
        }
        is_complete
    }

    fn has_time(&self, progress: &Progress) -> bool {
        self.budget.is_none_or(|budget| progress.start.elapsed().as_secs_f64() < budget)
    }

    /// Writes the points of a figure after those that are there. False if it ended before it was complete.
    fn write(
        &self,
        figure: &Figure,
        round_ns: f64,
        there: usize,
        progress: &mut Progress,
        out: &mut dyn Write,
    ) -> bool {
        if !self.has_time(progress) {
            return false;
        }
        match &figure.kind {
            Kind::Throughput | Kind::Decision { .. } => {
                if there == 0 {
                    writeln!(out, "{HEADER}").expect("a file that takes it");
                }
                progress.in_all -= there * (figure.runs(self.runs) / figure.points.len());
                let mut standings = Standings::default();
                for (number, &(workload, knobs)) in figure.points.iter().enumerate().skip(there) {
                    if !self.has_time(progress) {
                        return false;
                    }
                    let knobs = self.sized(&figure.kind, workload, knobs, round_ns);
                    let standing = self.point(figure, workload, knobs, round_ns, out);
                    let mut what = format!("{}, {} of {} points", figure.id, number + 1, figure.points.len());
                    if let Some(standing) = standing {
                        what = format!("{what}; {standing}");
                        standings.add(standing);
                    }
                    progress.show(&what, figure.runs(self.runs) / figure.points.len());
                }
                if !standings.is_empty() {
                    eprintln!("{}: {standings}", figure.id);
                }
            }
            Kind::OverTime => {
                let (workload, knobs) = figure.points[0];
                // A phase has to be long enough for several epochs.
                let knobs = Knobs { events: (64 * knobs.epoch).min(self.events), ..knobs };
                writeln!(out, "{}", over_time::EPOCHS).expect("a file that takes it");
                over_time::epochs(workload, knobs, &figure.ways, (&[], &|_| Options::default()), out);
                progress.show(figure.id, figure.runs(self.runs));
            }
            Kind::Scaling(measured) => {
                if there == 0 {
                    writeln!(out, "{}", simulation::HEADER).expect("a file that takes it");
                }
                progress.in_all -= there * (figure.runs(self.runs) / figure.points.len());
                for (number, &(workload, knobs)) in figure.points.iter().enumerate().skip(there) {
                    if !self.has_time(progress) {
                        return false;
                    }
                    let knobs = self.sized(&figure.kind, workload, knobs, round_ns);
                    let micros = (knobs.work as f64 * round_ns / 100.0).round() / 10.0;
                    simulation::simulate(workload, knobs, micros, (self.runs, measured), out);
                    let what = format!("{}, {} of {} points", figure.id, number + 1, figure.points.len());
                    progress.show(&what, figure.runs(self.runs) / figure.points.len());
                }
            }
            Kind::Windows { points, workers } => {
                write!(out, "{}", windows::CSV_HEADER).expect("a file that takes it");
                for (number, (workload, shape)) in points.iter().enumerate() {
                    if !self.has_time(progress) {
                        return false;
                    }
                    let shape = Shape { events: shape.events.min(self.events), ..*shape };
                    windows::write_point(workload, &shape, workers, self.runs, out);
                    let what = format!("{}, {} of {} points", figure.id, number + 1, points.len());
                    progress.show(&what, figure.runs(self.runs) / points.len());
                }
            }
            Kind::Memory => {
                over_time::memory(&figure.ways, self.events.min(over_time::MEMORY_EVENTS), out);
                progress.show(figure.id, figure.runs(self.runs));
            }
        }
        true
    }

    /// Returns the knobs with as many events as a run begins with.
    fn sized(&self, kind: &Kind, workload: Workload, knobs: Knobs, round_ns: f64) -> Knobs {
        let epochs_min = match kind {
            Kind::Decision { epochs } => *epochs,
            _ => 3,
        };
        workload.sized(knobs, self.seconds, epochs_min, self.events, round_ns)
    }

    /// Measures all ways at a point. Returns the standing of the decision, if the figure is about that.
    fn point(
        &self,
        figure: &Figure,
        workload: Workload,
        knobs: Knobs,
        round_ns: f64,
        out: &mut dyn Write,
    ) -> Option<Standing> {
        let extent = Extent { rounds: self.runs, seconds_min: self.seconds, events_max: self.events };
        let point = extent.measure(workload, knobs, &figure.ways);
        let is_decision = matches!(figure.kind, Kind::Decision { .. });
        let standing = is_decision.then(|| Standing::of(&point, figure.ways[0].workers)).flatten();
        let (knobs, loops) = (point.knobs, Spread::of(&point.loops));
        let mut write = |scheduling: &str, workers: usize, seconds: Spread, measured: Option<&Measured>| {
            let (load, loop_seconds, runs) = (None, loops.median, self.runs);
            let line =
                Line { workload, knobs, round_ns, scheduling, workers, load, seconds, loop_seconds, runs, measured };
            line.write(out).expect("a file that takes it");
        };
        write("loop", 1, loops, None);
        for (way, mut runs) in point.runs {
            let (middle, seconds) = middle(&mut runs);
            write(&scheduling_name(way.scheduling), way.workers, seconds, Some(middle));
        }
        standing
    }
}

/// Returns the whole points of a figure that was written in part: their text, and their number.
fn whole_points(figure: &Figure, text: &str) -> (String, usize) {
    let of_point = match &figure.kind {
        Kind::Throughput | Kind::Decision { .. } => 1 + figure.ways.len(),
        Kind::Scaling(measured) => figure.ways.len() * simulation::numbers(measured).len(),
        Kind::OverTime | Kind::Memory | Kind::Windows { .. } => return (String::new(), 0),
    };
    let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    let points = lines.len().saturating_sub(1) / of_point;
    (if points == 0 { String::new() } else { lines[..1 + points * of_point].concat() }, points)
}

/// Returns the files that are there, by figure, for tests.
#[cfg(test)]
fn lines(out: &std::path::Path, id: &str) -> Vec<String> {
    let text = fs::read_to_string(out.join(format!("{id}.csv"))).expect("a figure");
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All but those of windows, as small as can be: every line is there, and a second sweep has nothing to do.
    #[test]
    fn every_figure_is_measured_once() {
        let out = std::env::temp_dir().join(format!("tidemill-bench-figures-{}", std::process::id()));
        let folder = out.to_str().expect("UTF-8");
        let small = ["figures", "--out", folder, "--events", "300", "--runs", "1"];
        let sweep = Figures::parse_from(small);
        let figures = catalog::all(1.0, &[1, 2]);
        let is_small = |figure: &&Figure| !matches!(figure.kind, Kind::Memory | Kind::Windows { .. });
        for figure in figures.iter().filter(is_small) {
            Figures::parse_from(small.into_iter().chain(["--only", figure.id])).report();
            let lines = lines(&out, figure.id);
            let columns = lines[0].split(',').count();
            assert!(lines[1..].iter().all(|line| fields(line) == columns), "{}: {lines:?}", figure.id);
            if matches!(figure.kind, Kind::Throughput | Kind::Decision { .. }) {
                assert_eq!(lines.len(), 1 + figure.points.len() * (1 + figure.ways.len()), "{}", figure.id);
            }
            let written = fs::metadata(sweep.file(figure)).expect("a file").modified().expect("a time");
            Figures::parse_from(small.into_iter().chain(["--only", figure.id])).report();
            assert_eq!(fs::metadata(sweep.file(figure)).expect("a file").modified().expect("a time"), written);
        }
        fs::remove_dir_all(&out).expect("what was made");
    }

    /// A budget of nothing measures nothing; and a figure that was torn continues after its last whole point.
    #[test]
    fn a_figure_goes_on_where_it_was_ended() {
        let out = std::env::temp_dir().join(format!("tidemill-bench-pieces-{}", std::process::id()));
        let folder = out.to_str().expect("UTF-8");
        let small = ["figures", "--out", folder, "--events", "300", "--runs", "1", "--only", "ms16b"];
        assert!(!Figures::parse_from(small.into_iter().chain(["--budget", "0"])).report());
        assert!(!out.join("ms16b.csv").exists());
        assert!(Figures::parse_from(small).report());
        let whole = lines(&out, "ms16b");
        // The head, and of the first point the loop and three policies.
        let (first, torn) = (&whole[..5], &whole[5][..20]);
        fs::remove_file(out.join("ms16b.csv")).expect("a figure");
        fs::write(out.join("ms16b.1-2.part"), format!("{}\n{torn}", first.join("\n"))).expect("a part");
        assert!(Figures::parse_from(small).report());
        let again = lines(&out, "ms16b");
        assert_eq!((&again[..5], again.len()), (first, whole.len()));
        // Points that were measured with other numbers of workers are not gone on with.
        fs::rename(out.join("ms16b.csv"), out.join("ms16b.1-2.part")).expect("a part");
        assert!(Figures::parse_from(small.into_iter().chain(["--workers", "1"])).report());
        let with_one = lines(&out, "ms16b");
        assert_eq!(with_one.len(), whole.len());
        assert!(with_one.iter().all(|line| !line.contains("\",2,")), "a line of two workers: {with_one:?}");
        fs::remove_dir_all(&out).expect("what was made");
    }

    /// Fields of a line, some of them quoted.
    fn fields(line: &str) -> usize {
        line.split('"').step_by(2).map(|outside| outside.matches(',').count()).sum::<usize>() + 1
    }

    #[test]
    fn the_grid_has_at_least_sixty_points_and_all_policies() {
        let figures = catalog::all(1.0, &[1, 2]);
        let grid = figures.iter().find(|figure| figure.id == "grid").expect("a grid");
        assert!(grid.points.len() >= 60, "{}", grid.points.len());
        for (number, point) in grid.points.iter().enumerate() {
            assert!(!grid.points[..number].contains(point), "{point:?} is there twice");
        }
    }
}
