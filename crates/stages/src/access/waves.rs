//! Waves: transactions on the outputs of other transactions, a whole epoch at a time.
//!
//! The transactions on sources have already run, under any policy. Then, wave by wave ([`tidemill_plan::Waves`]), the
//! transactions on their outputs run as one batch: its pipelines, its keys, its rows. Programs without waves follow
//! each event by itself (`cascade`), which costs several times as much.
//!
//! **Given up.** Waves after the first run serially.

use crate::access::serial::{CALLS_PER_SAMPLE, run_range};
use crate::environment::Environment;
use crate::epoch::Epoch;
use crate::finish::log_and_run;
use crate::machine::{Machine, Scratch};
use crate::prepare::changes::{self, Transactions};
use crate::prepare::{Arrived, deliver};
use tidemill_plan::StreamId;

/// Runs the waves after the first, whose transactions have already run.
pub fn run(machine: &Machine, environment: &dyn Environment, scratch: &mut Scratch, epoch: &mut Epoch) {
    for wave in &machine.wiring.waves {
        let before = epoch.transactions();
        for &stream in wave {
            arrive(machine, scratch, epoch, stream);
        }
        for &id in wave.iter().flat_map(|&stream| &machine.wiring.deliveries[stream]) {
            changes::mark_and_save(machine, epoch, Transactions::Of(id));
            Epoch::ran(&mut epoch.work.order, machine.wiring.joint_of(id), epoch.work.inputs[id].len as u32);
        }
        let range = before..epoch.transactions();
        run_range(machine, environment, scratch, epoch, range, CALLS_PER_SAMPLE);
        epoch.work.produced.push(scratch.context.take());
    }
}

/// Delivers the events of a stream that transactions have produced.
fn arrive(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch, stream: StreamId) {
    log_and_run(machine, scratch, epoch, stream);
    let mut log = epoch.work.logs[stream].take().expect("a stream that leads on has a log");
    let views = log.column_views(&machine.program.streams[stream].schema, &epoch.work.lists);
    let arrived = Arrived { arrays: None, natives: Some(&log.columns), views: &views, places: &[], events: log.len };
    deliver(machine, &mut scratch.keys, epoch, stream, &arrived);
    epoch.work.logs[stream] = Some(log);
}

#[cfg(test)]
mod tests {
    use tidemill_histories::adversarial;
    use tidemill_plan::{Waves, analyze};

    fn waves(name: &str) -> Option<Vec<usize>> {
        let (_, history) = adversarial().into_iter().find(|(other, _)| *other == name).expect("a history");
        Waves::of(&analyze(&history.plan).expect("a right plan")).map(|waves| waves.of.raw)
    }

    #[test]
    fn what_shares_no_table_follows_in_waves() {
        assert_eq!(waves("a cascade touches a table apart at each step"), Some(vec![0, 0, 1, 2, 3, 1]));
        assert_eq!(waves("a cascade touches one row at each step"), None);
    }
}
