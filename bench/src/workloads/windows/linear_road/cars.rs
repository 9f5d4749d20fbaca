//! Cars on roads. A road has 100 segments in each direction, or half of the groups where these are fewer than 200. Cars enter at
//! a segment, more often at some where a skew is asked for, and drive to the end or leave before. A quarter of the segments
//! are slow at a time. Now and then a car stands for a while, and mostly another comes to stand at the same place.

use super::{EXIT, FIELDS};
use crate::workloads::columns::{event_batch, ints};
use crate::workloads::windows::query::Shape;
use arrow_array::RecordBatch;
use tidemill_plan::Plan;
use tidemill_random::{Random, Zipf, mix};

/// Feet of a segment.
const MILE: i64 = 5_280;
/// Feet in half a minute at a mile an hour.
const FEET: i64 = 44;
const SEGMENTS: u64 = 100;
/// The number of reports for which a car stands.
const STANDING: u64 = 12;
/// The number of reports after one of which a car stands, and the number after one of which a car leaves the road.
const STOPS: u64 = 2_000;
const LEAVES: u64 = 40;

#[derive(Clone, Copy)]
struct Car {
    id: i64,
    road: i64,
    dir: i64,
    lane: i64,
    /// Feet from where the direction begins.
    way: i64,
    speed: i64,
    /// The reports for which it stands on.
    stands: u64,
}

struct Roads {
    random: Random,
    zipf: Zipf,
    roads: u64,
    /// The number of segments of a road in one direction.
    segments: u64,
    cars: i64,
    /// A car that stands alone, to which the next one comes.
    wreck: Option<Car>,
}

impl Roads {
    fn new(shape: &Shape) -> Roads {
        let segments = (shape.groups / 2).clamp(1, SEGMENTS);
        let roads = (shape.groups / (2 * segments)).max(1);
        let zipf = Zipf::new(roads * 2 * segments, shape.theta);
        Roads { random: Random::new(42), zipf, roads, segments, cars: 0, wreck: None }
    }

    fn length(&self) -> i64 {
        self.segments as i64 * MILE
    }

    fn enter(&mut self) -> Car {
        let id = self.cars;
        self.cars += 1;
        if let Some(wreck) = self.wreck.take() {
            return Car { id, ..wreck };
        }
        let random = &mut self.random;
        let group = self.zipf.rank(|| random.unit());
        let (road, lane) = (group % self.roads, random.below(EXIT as u64));
        let (dir, segment) = (group / self.roads % 2, group / self.roads / 2);
        let way = segment as i64 * MILE + random.below(MILE as u64) as i64;
        Car { id, road: road as i64, dir: dir as i64, lane: lane as i64, way, speed: 0, stands: 0 }
    }

    /// Returns the car half a minute later.
    fn drive(&mut self, car: Car, minute: i64) -> Car {
        if car.stands > 0 {
            return Car { stands: car.stands - 1, speed: 0, ..car };
        }
        if car.lane == EXIT {
            return self.enter();
        }
        if self.random.below(STOPS) == 0 {
            let stands = 4 + self.random.below(STANDING);
            let car = Car { stands, speed: 0, ..car };
            if self.random.below(4) > 0 {
                self.wreck = Some(car);
            }
            return car;
        }
        let place = (car.road * 2 + car.dir) * SEGMENTS as i64 + car.way / MILE;
        let is_slow = mix(((place << 20) | (minute / 5)) as u64).is_multiple_of(4);
        let speed = if is_slow { self.random.below(30) } else { 45 + self.random.below(35) } as i64;
        let way = car.way + speed * FEET;
        if way >= self.length() || self.random.below(LEAVES) == 0 {
            return Car { lane: EXIT, way: way.min(self.length() - 1), speed, ..car };
        }
        Car { way, speed, ..car }
    }
}

/// Returns the reports: each car twice a minute, in turns.
pub fn reports(plan: &Plan, shape: &Shape) -> RecordBatch {
    let mut roads = Roads::new(shape);
    let count = (shape.rate * shape.length as u64 / 2).max(1) as usize;
    let mut cars: Vec<Car> = Vec::new();
    let mut columns: Vec<Vec<i64>> = FIELDS.iter().map(|_| Vec::with_capacity(shape.events)).collect();
    for number in 0..shape.events {
        let at = shape.at(number);
        let turn = number % count;
        if turn == cars.len() {
            let car = roads.enter();
            cars.push(car);
        } else {
            cars[turn] = roads.drive(cars[turn], at / shape.length_ms());
        }
        let Car { id, road, dir, lane, way, speed, .. } = cars[turn];
        let pos = if dir == 0 { way } else { roads.length() - 1 - way };
        let report = [at, id, speed, road, dir, pos / MILE, lane, pos];
        report.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    event_batch(plan, columns.into_iter().map(ints).collect())
}
