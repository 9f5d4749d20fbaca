//! The order of rows by a key of one word.
//!
//! Words within a range of 32 bits, as most numbers of things are, take one pass over memory for each 12 bits of the range
//! (least significant digit first: Knuth, The Art of Computer Programming 3, 5.2.5). A comparison sort of row numbers
//! would miss the caches at each comparison: of 5 million rows it takes more than ten times as long. Distinct words that
//! lie close together have places of their own, and take one pass.

/// The bits of a digit, at most: the counts of its values fit the first cache.
const DIGIT: u32 = 12;

/// Distinct words are given places of their own if there are at most this many places for each of them.
const PLACES: usize = 2;
/// A place without a word.
const FREE: u32 = u32::MAX;

/// Returns the numbers of distinct words in the order of the words; none if they are in order already.
pub fn order_of(words: &[i64]) -> Option<Vec<u32>> {
    assert!(u32::try_from(words.len()).is_ok(), "rows have numbers of 32 bits");
    if words.is_sorted() {
        return None;
    }
    let least = *words.iter().min()?;
    let above = |word: i64| word.wrapping_sub(least) as u64;
    let greatest = words.iter().map(|&word| above(word)).max()?;
    let Ok(greatest) = u32::try_from(greatest) else {
        let mut pairs: Vec<(i64, u32)> = words.iter().copied().zip(0..).collect();
        pairs.sort_unstable();
        return Some(pairs.into_iter().map(|(_, row)| row).collect());
    };
    if (greatest as usize) < PLACES * words.len() {
        let mut places = vec![FREE; greatest as usize + 1];
        words.iter().zip(0..).for_each(|(&word, row)| places[above(word) as usize] = row);
        places.retain(|&row| row != FREE);
        return Some(places);
    }
    let mut pairs: Vec<(u32, u32)> = words.iter().map(|&word| above(word) as u32).zip(0..).collect();
    let mut other = vec![(0, 0); pairs.len()];
    let bits = u32::BITS - greatest.leading_zeros();
    for shift in (0..bits).step_by(DIGIT as usize) {
        by_digit(&pairs, &mut other, shift);
        std::mem::swap(&mut pairs, &mut other);
    }
    debug_assert!(pairs.is_sorted(), "all digits were gone through");
    Some(pairs.into_iter().map(|(_, row)| row).collect())
}

/// Puts pairs in the order of a digit; those of equal digits stay in their order.
fn by_digit(from: &[(u32, u32)], to: &mut [(u32, u32)], shift: u32) {
    let digit = |word: u32| (word >> shift) as usize & ((1 << DIGIT) - 1);
    let mut next = [0u32; 1 << DIGIT];
    from.iter().for_each(|&(word, _)| next[digit(word)] += 1);
    let mut before = 0;
    for next in &mut next {
        before += std::mem::replace(next, before);
    }
    for &pair in from {
        let next = &mut next[digit(pair.0)];
        to[*next as usize] = pair;
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_in_the_order_of_their_words() {
        // A linear congruence (Knuth 2, 3.3.4) spreads the words.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 1) as i64
        };
        // Distinct words of a range, those that lie close together included.
        for range in
            [500, 999, 1000, 1001, 1 << 12, 1 << 13, 1 << 24, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, i64::MAX]
        {
            for offset in [0, -5, i64::MIN, i64::MAX - range + 1] {
                let mut seen = HashSet::new();
                while seen.len() < 500 {
                    seen.insert(offset.saturating_add(next() % range));
                }
                let words: Vec<i64> = seen.into_iter().collect();
                let order = order_of(&words).expect("a set's order is none");
                let mut seen = order.clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..500).collect::<Vec<u32>>(), "each row once: {range}, {offset}");
                assert!(order.iter().map(|&row| words[row as usize]).is_sorted(), "{range}, {offset}");
            }
        }
        assert_eq!(order_of(&[i64::MIN, 0, i64::MAX]), None);
        assert_eq!(order_of(&[]), None);
        assert_eq!(order_of(&[i64::MAX, i64::MIN, 7]), Some(vec![1, 2, 0]));
    }
}
