//! The figures of windows over streams: those of the thesis (3.8 to 3.10), and sweeps over what the thesis only advises on:
//! groups, skew, kinds and lengths of windows, late events, workers.

use super::catalog::{Figure, Kind};
use crate::windows::workload;
use crate::workloads::windows::{Shape, WindowWorkload};

/// Events of the faster workloads, and of the others.
const MANY: usize = 8_000_000;
const SOME: usize = 2_000_000;

type Point = (&'static WindowWorkload, Shape);

/// Returns all of them, with these numbers of workers; the one over workers with at least 1, 2, 4 and 8.
pub fn all(workers: &[usize]) -> Vec<Figure> {
    let thesis = [("ysb", 2 * MANY), ("lrb-speeds", 2 * MANY), ("nyt", 2 * MANY)];
    let many = ["ysb", "ysb-join", "nyt", "lrb-speeds", "cm", "q7", "nb7"].map(|name| (name, MANY));
    let some = ["q15", "q17", "q5-counts", "nbq5", "q5", "q11", "nb11", "q8", "nb8", "ro"].map(|name| (name, SOME));
    let tumbling = [("ysb", MANY), ("nyt", MANY), ("lrb-speeds", MANY), ("q7", MANY)];
    let figure = |id, title, points| figure(id, title, points, workers);
    let mut more = [&[1, 2, 4, 8], workers].concat();
    more.sort_unstable();
    more.dedup();
    let defaults = |names: &[(&str, usize)]| names.iter().map(|&(name, events)| default(name, events)).collect();
    vec![
        figure(
            "thesis",
            "YSB, Linear Road and taxi rides, by how work is shared (thesis 3.8 to 3.10)",
            defaults(&thesis),
        ),
        figure("windows-kinds", "kinds of windows", defaults(&[&many[..], &some[..]].concat())),
        figure("windows-groups", "from one group to ten million", groups()),
        figure("windows-skew", "skew of the groups", skews()),
        figure("windows-length", "lengths of windows and gaps", lengths()),
        figure("windows-late", "shares of late events", late()),
        Figure {
            kind: Kind::Windows { points: defaults(&tumbling), workers: more },
            ..figure("windows-workers", "workers", vec![])
        },
    ]
}

fn figure(id: &'static str, title: &'static str, points: Vec<Point>, workers: &[usize]) -> Figure {
    Figure { id, title, kind: Kind::Windows { points, workers: workers.to_vec() }, points: vec![], ways: vec![] }
}

/// Returns a workload as it is defined.
fn default(name: &str, events: usize) -> Point {
    let workload = workload(name).expect("a workload");
    let WindowWorkload { groups, length, rate, .. } = *workload;
    (workload, Shape { events, groups, theta: 0.0, rate, length, late: 0.0 })
}

/// Returns the points that one knob makes of a workload.
fn vary<T: Copy>(name: &str, events: usize, values: &[T], set: impl Fn(&mut Shape, T)) -> Vec<Point> {
    let (workload, shape) = default(name, events);
    let with = |&value| {
        let mut shape = shape;
        set(&mut shape, value);
        (workload, shape)
    };
    values.iter().map(with).collect()
}

fn groups() -> Vec<Point> {
    let set = |shape: &mut Shape, groups| shape.groups = groups;
    [
        vary("ysb", MANY, &[1, 100, 10_000, 100_000, 1_000_000, 10_000_000], set),
        vary("nyt", MANY, &[1, 1_000, 100_000], set),
        vary("q5-counts", SOME, &[1, 100, 10_000, 100_000], set),
        vary("q11", SOME, &[10, 1_000, 10_000], set),
    ]
    .concat()
}

fn skews() -> Vec<Point> {
    let of = |name, events, groups| {
        let set = |shape: &mut Shape, theta| (shape.theta, shape.groups) = (theta, groups);
        vary(name, events, &[0.0, 0.5, 1.0, 1.5, 2.0], set)
    };
    [of("ysb", MANY, 10_000), of("ysb", MANY, 1_000_000), of("nyt", MANY, 1_000), of("q5-counts", SOME, 10_000)]
        .concat()
}

fn lengths() -> Vec<Point> {
    let of = |name, events| vary(name, events, &[1, 4, 10, 40], |shape: &mut Shape, length| shape.length = length);
    [of("ysb", MANY), of("nyt", MANY), of("q5-counts", SOME), of("q11", SOME)].concat()
}

fn late() -> Vec<Point> {
    let of = |name, events| vary(name, events, &[0.0, 0.01, 0.1, 0.5], |shape: &mut Shape, late| shape.late = late);
    [of("ysb", MANY), of("nyt", MANY), of("q5-counts", SOME)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figures, lines};
    use crate::windows::{CSV_HEADER, write_point};
    use clap::Parser;

    /// The first point and the last of each figure, with few events, have a line for each way.
    #[test]
    fn every_sweep_has_a_line_for_each_way() {
        for figure in all(&[1, 2]) {
            let Kind::Windows { points, workers } = figure.kind else {
                panic!("{} is no figure of windows", figure.id)
            };
            for (workload, shape) in [points[0], points[points.len() - 1]] {
                let mut written = Vec::new();
                write_point(workload, &Shape { events: 300, ..shape }, &workers, 1, &mut written);
                let text = String::from_utf8(written).expect("UTF-8");
                let columns = |line: &str| line.split(',').count();
                assert!(text.lines().all(|line| columns(line) == columns(CSV_HEADER)), "{}: {text}", figure.id);
                let of = |way: &str| text.lines().filter(|line| line.contains(&format!(",{way},"))).count();
                assert!(of("map") == 1 && of("array") <= 1, "{}: {text}", figure.id);
                let baselines = if workload.parallel.is_some() { workers.len() } else { 0 };
                assert_eq!([of("columns"), of("engine")], [workers.len(); 2], "{}: {text}", figure.id);
                assert_eq!(["up", "late", "global"].map(of), [baselines; 3], "{}: {text}", figure.id);
            }
        }
    }

    #[test]
    fn a_sweep_is_a_file() {
        let out = std::env::temp_dir().join(format!("tidemill-bench-sweeps-{}", std::process::id()));
        let folder = out.to_str().expect("UTF-8");
        let small = ["figures", "--out", folder, "--events", "300", "--runs", "1", "--only", "thesis"];
        assert!(Figures::parse_from(small).report());
        // The head, and of each of three points two loops, and five ways on one worker and on two.
        assert_eq!(lines(&out, "thesis").len(), 1 + 3 * (2 + 5 * 2));
        std::fs::remove_dir_all(&out).expect("what was made");
    }
}
