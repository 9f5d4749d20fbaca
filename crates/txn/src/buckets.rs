//! Items by bucket, in one array: a stable counting sort. Reused from use to use.

use std::ops::Range;

/// Items by bucket, in the order in which they came inside each.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// The start of each bucket in `items`, and the end.
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Buckets {
    /// Fills `count` buckets with items, given as bucket and item. The items are asked for twice.
    pub fn fill<I: Iterator<Item = (u32, u32)>>(&mut self, count: u32, items: impl Fn() -> I) {
        self.starts.clear();
        self.starts.resize(count as usize + 2, 0);
        // Counts two places to the right become beginnings one place to the right; filling moves each of these to the
        // end of its bucket, the beginning of the next.
        let mut all = 0;
        items().for_each(|(bucket, _)| {
            self.starts[bucket as usize + 2] += 1;
            all += 1;
        });
        (2..self.starts.len()).for_each(|bucket| self.starts[bucket] += self.starts[bucket - 1]);
        self.items.clear();
        self.items.resize(all, 0);
        for (bucket, item) in items() {
            let place = &mut self.starts[bucket as usize + 1];
            self.items[*place as usize] = item;
            *place += 1;
        }
        self.starts.pop();
        assert!(self.starts.last() == Some(&(all as u32)), "every item is in one bucket");
    }

    /// Returns the number of buckets.
    pub fn count(&self) -> u32 {
        self.starts.len().saturating_sub(1) as u32
    }

    /// Returns all items, bucket after bucket.
    pub fn items(&self) -> &[u32] {
        &self.items
    }

    /// Returns the places of a bucket among the items.
    pub fn bounds(&self, bucket: u32) -> Range<u32> {
        self.starts[bucket as usize]..self.starts[bucket as usize + 1]
    }

    /// Returns the items of a bucket.
    pub fn of(&self, bucket: u32) -> &[u32] {
        let bounds = self.bounds(bucket);
        &self.items[bounds.start as usize..bounds.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_in_order_inside_their_bucket() {
        let mut buckets = Buckets::default();
        assert_eq!((buckets.count(), buckets.items()), (0, &[][..]));
        let items = [(2, 9), (0, 4), (2, 1), (0, 7), (2, 5)];
        buckets.fill(4, || items.into_iter());
        let all: Vec<&[u32]> = (0..buckets.count()).map(|bucket| buckets.of(bucket)).collect();
        assert_eq!(all, [&[4, 7][..], &[], &[9, 1, 5], &[]]);
        assert_eq!((buckets.items(), buckets.bounds(2)), (&[4, 7, 9, 1, 5][..], 2..5));
        buckets.fill(1, std::iter::empty);
        assert_eq!((buckets.count(), buckets.of(0)), (1, &[][..]));
    }
}
