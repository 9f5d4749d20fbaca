//! Sums of floats without error, and variances ([`Moments`]). A sum is a function of the *multiset* of its values: neither the order in which they
//! were added, nor how they were grouped and merged, nor what was added and subtracted again can be seen in it.
//!
//! > The sum of floats is their exact real sum, rounded once, half to even. No values: 0. A zero sum is +0. A NaN, or
//! > infinities of both signs, give the one NaN. The mean is that sum divided by the count, rounded; the exact quotient
//! > where only the sum overflows.
//!
//! # Bands
//!
//! An integer of 192 bits ([`Int192`]) holds the sum of 2^40 floats exactly if their exponents differ by less than 99:
//! each then has at most 53 + 98 bits, in units of the least one's last bit. So the exponents of floats are divided
//! into 22 *bands* of 99, and a [`Sum`] is one integer for each band, of the values of that band alone. The *home* band
//! is 2^-28 <= |x| < 2^71 (3.7e-9 to 2.4e21) in units of 2^-80. It lies in the sum itself; the others lie apart, once
//! there are any. Zeros are in no band. NaNs and the two infinities are counted, as if in bands of their own.
//!
//! The integer of a band is a function of the values of that band, which are told by the value alone; nothing is ever
//! carried from band to band. Hence the law above, for the bytes of a sum too. The bands are put together, and rounded,
//! when the result is asked for.
//!
//! Costs: an add of a home value takes two shifts and one addition of 192 bits, without a branch but for the
//! band; `cargo run --release -p tidemill-exact --example cost` measures it. A value of another band costs an
//! allocation of 600 bytes once in a sum. What this trades away: Neal's accumulator ("Fast exact summation using small
//! and large superaccumulators", arXiv 1505.05571) takes all floats alike in 67 words, but delays carries, so that its
//! state shows the order of additions until it is normalized.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod int192;
mod moments;
mod round;
mod sum;

pub use int192::Int192;
pub use moments::{Moments, Of, Population};
pub use round::quotient;
pub use sum::{BANDS, HOME, Sum};
