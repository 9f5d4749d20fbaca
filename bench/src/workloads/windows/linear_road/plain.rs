//! The loop: a segment keeps what it has of each of its last minutes, so nothing is done when a minute ends.

use super::{EXIT, FIELDS, FREE, MINUTES, SEEN_IN, SLOW, STANDS};
use crate::workloads::columns::column;
use crate::workloads::input::{Map, Output};
use crate::workloads::windows::rows::Rows;
use arrow_array::RecordBatch;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A segment: road, direction, number.
type Place = (i64, i64, i64);

/// The minutes that a segment keeps: the open one, and those of a mean speed.
const KEPT: usize = MINUTES as usize + 1;

/// The statistics of a segment for a minute.
#[derive(Clone, Copy)]
struct Minute {
    number: i64,
    speeds: i64,
    reports: i64,
    cars: i64,
}

struct Segment {
    minutes: [Minute; KEPT],
    /// The cars of the last minute with a report.
    cars: HashSet<i64, FixedState>,
    accidents: i64,
}

impl Segment {
    fn new() -> Segment {
        let none = Minute { number: i64::MIN, speeds: 0, reports: 0, cars: 0 };
        Segment { minutes: [none; KEPT], cars: HashSet::default(), accidents: 0 }
    }

    fn report(&mut self, number: i64, car: i64, speed: i64) {
        let minute = &mut self.minutes[number as usize % KEPT];
        if minute.number != number {
            *minute = Minute { number, speeds: 0, reports: 0, cars: 0 };
            self.cars.clear();
        }
        minute.speeds += speed;
        minute.reports += 1;
        minute.cars += i64::from(self.cars.insert(car));
    }

    /// Returns the cars of the minute before, and the toll.
    fn toll(&self, number: i64) -> (i64, i64) {
        let of = |at: i64| self.minutes.iter().find(|minute| minute.number == at);
        let cars = of(number - 1).map_or(0, |minute| minute.cars);
        if cars <= FREE || self.accidents > 0 {
            return (cars, 0);
        }
        let last = self.minutes.iter().filter(|minute| (number - MINUTES..number).contains(&minute.number));
        let (speeds, reports) = last.fold((0, 0), |(s, r), minute| (s + minute.speeds, r + minute.reports));
        let is_slow = (speeds as f64 / reports as f64) < SLOW;
        (cars, if is_slow { 2 * (cars - FREE) * (cars - FREE) } else { 0 })
    }
}

#[derive(Clone, Copy)]
struct Car {
    segment: Place,
    lane: i64,
    pos: i64,
    /// The number of reports from this place.
    reports: i64,
    due: i64,
    paid: i64,
}

/// All that is kept.
pub struct Loop {
    minute: i64,
    segments: Map<Place, Segment>,
    cars: Map<i64, Car>,
    /// The number of cars that stand, by road, direction, lane and position.
    standing: Map<(i64, i64, i64, i64), i64>,
}

impl Loop {
    /// Makes a loop with minutes of this number of milliseconds.
    pub fn new(minute: i64) -> Loop {
        Loop { minute, segments: Map::default(), cars: Map::default(), standing: Map::default() }
    }

    /// Returns the notifications that cars get.
    pub fn run(mut self, events: &RecordBatch) -> Output {
        let columns: [&[i64]; FIELDS.len()] = std::array::from_fn(|number| column(events, number));
        let [at, car, speed, road, dir, seg, lane, pos] = columns;
        let mut rows = Rows::new(["at", "car", "road", "dir", "seg", "cars", "toll", "paid"]);
        for row in 0..at.len() {
            let place = (road[row], dir[row], seg[row]);
            let number = at[row].div_euclid(self.minute);
            let (cars, toll) = {
                let segment = self.segments.entry(place).or_insert_with(Segment::new);
                segment.report(number, car[row], speed[row]);
                segment.toll(number)
            };
            let now = Car { segment: place, lane: lane[row], pos: pos[row], reports: 1, due: 0, paid: 0 };
            let Some(before) = self.cars.get(&car[row]).copied() else {
                let told = if lane[row] == EXIT { None } else { Some(toll) };
                self.cars.insert(car[row], Car { due: told.unwrap_or(0), ..now });
                if told.is_some() {
                    rows.push([at[row], car[row], place.0, place.1, place.2, cars, toll, 0]);
                }
                continue;
            };
            let (mut after, mut stands) = (Car { due: before.due, paid: before.paid, ..now }, None);
            if (before.segment.0, before.segment.1, before.lane, before.pos) == (place.0, place.1, now.lane, now.pos) {
                after.reports = before.reports + 1;
                stands = (after.reports == STANDS).then_some((now, 1));
            } else if before.reports >= STANDS {
                stands = Some((before, -1));
            }
            if before.segment != place {
                after.paid += before.due;
                after.due = 0;
                if now.lane != EXIT {
                    after.due = toll;
                    rows.push([at[row], car[row], place.0, place.1, place.2, cars, toll, after.paid]);
                }
            }
            self.cars.insert(car[row], after);
            if let Some((car, change)) = stands {
                self.stand(car, change);
            }
        }
        rows.output()
    }

    /// One car more or less stands.
    fn stand(&mut self, car: Car, change: i64) {
        let (road, dir, seg) = car.segment;
        let standing = self.standing.entry((road, dir, car.lane, car.pos)).or_default();
        *standing += change;
        if (change, *standing) == (1, 2) || (change, *standing) == (-1, 1) {
            for number in 0..SEEN_IN {
                let place = (road, dir, seg - number * (1 - 2 * dir));
                self.segments.entry(place).or_insert_with(Segment::new).accidents += change;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cars, plan};
    use super::*;
    use crate::workloads::windows::query::Shape;

    /// Inputs like those that are measured have tolls, and accidents that waive them.
    #[test]
    fn there_are_tolls_and_accidents() {
        let shape = Shape { events: 60_000, groups: 40, theta: 0.0, rate: 100, length: 60, late: 0.0 };
        let events = cars::reports(&plan(&shape), &shape);
        let [slow, all] = [0, 1].map(|column| {
            let output = Loop::new(shape.length_ms()).run(&events);
            let (_, cars) = &output[5];
            let (_, tolls) = &output[6];
            let crowded = cars.iter().filter(|&&cars| cars > FREE).count();
            [tolls.iter().filter(|&&toll| toll > 0).count(), crowded][column]
        });
        assert!(slow > 500 && all > slow, "{slow} tolls of {all} in crowds");
    }

    /// Two cars stand from the fourth report on, in the segment before them a toll is waived, and one moves on.
    #[test]
    fn an_accident_is_seen_in_five_segments_until_a_car_moves() {
        let mut road = Loop::new(60_000);
        let car = Car { segment: (0, 0, 7), lane: 1, pos: 7 * 5_280, reports: STANDS, due: 0, paid: 0 };
        road.stand(car, 1);
        assert!(road.segments.is_empty(), "one car is no accident");
        road.stand(car, 1);
        let mut seen: Vec<Place> = road.segments.iter().filter(|s| s.1.accidents == 1).map(|s| *s.0).collect();
        seen.sort_unstable();
        assert_eq!(seen, [3, 4, 5, 6, 7].map(|seg| (0, 0, seg)));
        road.stand(car, 1);
        road.stand(car, -1);
        assert!(road.segments.values().all(|segment| segment.accidents == 1), "two are left");
        road.stand(car, -1);
        assert!(road.segments.values().all(|segment| segment.accidents == 0));
    }
}
