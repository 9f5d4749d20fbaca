//! Copies of rows in pieces, so that no large piece is ever moved.

use crate::image::Image;
use crate::shape::RowShape;
use std::sync::Arc;

/// Bytes of copies in one piece. Moving a larger piece, or requesting more fresh pages at once, would cause a pause.
const PIECE_BYTES: usize = 256 << 10;

/// Copies of rows, in pieces.
#[derive(Default)]
pub struct Copies(Vec<Image>);

impl Copies {
    /// Returns the copies of an image.
    pub fn of(image: Image) -> Copies {
        Copies(vec![image])
    }

    /// Returns the piece that the next row goes to.
    pub fn piece(&mut self, shape: &Arc<RowShape>) -> &mut Image {
        if self.0.last().is_none_or(|last| last.bytes() >= PIECE_BYTES) {
            self.0.push(Image::with_capacity(shape, PIECE_BYTES));
        }
        self.0.last_mut().expect("a piece")
    }

    /// Returns the pieces, in the order in which they were made.
    pub fn pieces(&self) -> &[Image] {
        &self.0
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.0.iter().map(Image::len).sum()
    }

    /// Returns the bytes of rows and texts.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Image::bytes).sum()
    }
}
