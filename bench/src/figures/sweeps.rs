//! The figures of windows over streams: those of the thesis (3.8 to 3.10), and sweeps over what the thesis only advises on:
//! groups, skew, kinds and lengths of windows, late events, workers.

use super::catalog::{Figure, Kind};
use crate::windows::workload;
use crate::workloads::windows::{Shape, WindowWorkload};

/// Events of workloads with a few hundred million events a second, and of others.
const MANY: usize = 4_000_000;
const SOME: usize = 1_000_000;

type Point = (&'static WindowWorkload, Shape);

/// All of them.
pub fn all() -> Vec<Figure> {
    let thesis = [("ysb", 2 * MANY), ("lrb-speeds", 2 * MANY), ("nyt", 2 * MANY)];
    let tumbling = [("ysb", MANY), ("ysb-join", MANY), ("nyt", MANY), ("lrb-speeds", MANY), ("q7", MANY)];
    let others = [("q17", SOME), ("q5-counts", SOME), ("q5", SOME), ("q11", SOME), ("q8", SOME)];
    let workers = [("ysb", MANY), ("nyt", MANY), ("lrb-speeds", MANY), ("q7", MANY)];
    let defaults = |names: &[(&str, usize)]| names.iter().map(|&(name, events)| default(name, events)).collect();
    vec![
        figure(
            "thesis",
            "YSB, Linear Road and taxi rides, by how work is shared (thesis 3.8 to 3.10)",
            defaults(&thesis),
        ),
        figure("windows-kinds", "kinds of windows", defaults(&[tumbling, others].concat())),
        figure("windows-groups", "from one group to ten million", groups()),
        figure("windows-skew", "skew of the groups", skews()),
        figure("windows-length", "lengths of windows and gaps", lengths()),
        figure("windows-late", "shares of late events", late()),
        Figure {
            kind: Kind::Windows { points: defaults(&workers), workers: &[1, 2, 4, 8] },
            ..figure("windows-workers", "workers", vec![])
        },
    ]
}

fn figure(id: &'static str, title: &'static str, points: Vec<Point>) -> Figure {
    Figure { id, title, kind: Kind::Windows { points, workers: &[1, 2] }, points: vec![], ways: vec![] }
}

/// A workload as it is defined.
fn default(name: &str, events: usize) -> Point {
    let workload = workload(name).expect("a workload");
    let WindowWorkload { groups, length, rate, .. } = *workload;
    (workload, Shape { events, groups, theta: 0.0, rate, length, late: 0.0 })
}

/// The points that one knob makes of a workload.
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
