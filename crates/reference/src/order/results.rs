//! Results that complete with an instant, as operators announce them.

use std::collections::BTreeMap;
use tidemill_model::{Place, SerialPosition};

/// The results to come, and how many ran.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// The instant of each announced result, and its place among all that were announced, by operator and name.
    announced: BTreeMap<(u32, String), (i64, u64)>,
    announced_count: u64,
    /// The number of results that ran, by instant and operator.
    ran: BTreeMap<(i64, u32), u64>,
}

impl Results {
    pub fn announce(&mut self, operator: u32, name: String, at: Option<i64>) {
        let id = (operator, name);
        let Some(at) = at else {
            self.announced.remove(&id);
            return;
        };
        let place = self.announced.get(&id).map_or(self.announced_count, |&(_, place)| place);
        self.announced_count += 1;
        self.announced.insert(id, (at, place));
    }

    /// Returns the first: by instant, operator, and the order in which they were announced first.
    pub fn next(&self) -> Option<(SerialPosition, String)> {
        let key = |(id, at): &(&(u32, String), &(i64, u64))| (at.0, id.0, at.1);
        let ((operator, name), (at, _)) = self.announced.iter().min_by_key(key)?;
        let ordinal = self.ran.get(&(*at, *operator)).copied().unwrap_or(0);
        Some((SerialPosition::new(*at, Place::Result { operator: *operator, ordinal }), name.clone()))
    }

    pub fn remove(&mut self, position: &SerialPosition, name: &str) {
        let Place::Result { operator, ordinal } = position.place else { unreachable!("the position of a result") };
        self.announced.remove(&(operator, name.to_owned())).expect("it was announced");
        self.ran.insert((position.time, operator), ordinal + 1);
    }
}
