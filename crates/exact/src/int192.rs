//! Signed integers of 192 bits.

/// A signed integer of 192 bits, in two's complement: limbs of 64 bits, the least first. It wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Int192(pub(crate) [u64; 3]);

impl Int192 {
    /// The size of an integer, in bytes.
    pub const BYTES: usize = 24;

    /// 0.
    pub const ZERO: Int192 = Int192([0; 3]);

    /// Returns the number with ±(`significand` << `shift`) added, for a shift below 128.
    #[inline]
    #[must_use]
    pub(crate) fn plus_shifted(self, significand: u64, shift: u32, negative: bool) -> Int192 {
        debug_assert!(shift < 128 && significand >> 63 == 0, "{significand} shifted by {shift} bits");
        let signed = if negative { (significand as i64).wrapping_neg() } else { significand as i64 };
        let (low, high) = ((signed << (shift % 64)) as u64, (signed >> 1 >> (!shift % 64)) as u64);
        let sign = (signed >> 63) as u64;
        // A mask, because a branch would follow the values.
        let lifted = u64::from(shift / 64).wrapping_neg();
        let pick = |above: u64, here: u64| (above & lifted) | (here & !lifted);
        self.plus(Int192([pick(0, low), pick(low, high), pick(high, sign)]))
    }

    /// Returns the sum.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Int192) -> Int192 {
        self.plus_carry(other, false)
    }

    /// Returns the difference.
    #[inline]
    #[must_use]
    pub fn minus(self, other: Int192) -> Int192 {
        let [low, middle, high] = other.0;
        self.plus_carry(Int192([!low, !middle, !high]), true)
    }

    #[inline]
    fn plus_carry(self, other: Int192, carry: bool) -> Int192 {
        let (low, carry) = self.0[0].carrying_add(other.0[0], carry);
        let (middle, carry) = self.0[1].carrying_add(other.0[1], carry);
        let (high, _) = self.0[2].carrying_add(other.0[2], carry);
        Int192([low, middle, high])
    }

    /// Returns whether the number is below 0.
    #[inline]
    pub fn is_negative(self) -> bool {
        self.0[2] >> 63 == 1
    }

    /// Returns the number's bytes, the least significant first.
    #[inline]
    pub fn to_le_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (bytes, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            bytes.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }

    /// Makes a number of its bytes, the least significant first.
    #[inline]
    pub fn from_le_bytes(bytes: [u8; Self::BYTES]) -> Int192 {
        let limb = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        Int192([limb(0), limb(1), limb(2)])
    }
}
