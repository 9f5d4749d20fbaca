//! Indices of typed vectors.

/// Defines indices of vectors of the library `typed-index-collections`: a type of its own for each, so that none is
/// taken for another, of 32 bits.
#[macro_export]
macro_rules! index_types {
    ($($(#[$attribute:meta])* $visibility:vis struct $name:ident;)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name(u32);

        impl From<usize> for $name {
            #[inline]
            fn from(index: usize) -> Self {
                debug_assert!(index <= u32::MAX as usize, "an index has 32 bits");
                $name(index as u32)
            }
        }

        impl From<$name> for usize {
            #[inline]
            fn from(id: $name) -> usize {
                id.0 as usize
            }
        }
    )*};
}
