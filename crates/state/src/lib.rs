//! Tables: rows in eight-byte cells, found by key through an array (small whole-number keys) or a hash
//! index per virtual node.
//!
//! # Slots
//!
//! A key that an epoch touches gets a *slot* while the epoch is prepared, whether or not its row exists. A bit of the
//! row says whether it exists. So only prepare changes the index, and access never does: an insert or delete is a
//! write to the row like any other, ordered by the row's chain, and access works on row addresses alone. A sweep
//! frees the slots whose row does not exist; it runs when nothing is in flight.
//!
//! # Invariants
//!
//! 1. A row's address is stable from its slot's creation until [`Table::sweep`], [`Table::remove`], [`Table::evict_all`]
//!    or drop.
//! 2. Key cells are written once, before the slot's address is published, and never change. So prepare may compare
//!    keys while access writes other cells of the same row.
//! 3. At any time at most one thread writes a row's other cells: the worker that executes the transaction, chosen by
//!    the schedule.
//! 4. A text cell holds the address of a live [`blob`] or 0 (empty). A replaced blob lives until its epoch is
//!    finished.
//!
//! `blob`, `column_index`, `evicted`, `evicted_rows`, `direct`, `earliest`, `evict`, `homes`, `image`, `index`, `key_sets`, `load`, `marks`, `memory`,
//! `nodes`, `point_read`, `read_snapshot`, `rows`, `scan`, `snapshot`, `table` and `transfer` contain `unsafe` code, which relies on
//! these invariants.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod blob;
mod column_index;
mod copies;
mod direct;
mod earliest;
mod evict;
mod evicted;
mod evicted_rows;
mod hash;
mod homes;
mod image;
mod index;
mod key_sets;
mod keys;
mod layout;
mod load;
mod look_up;
mod make;
mod marks;
pub mod memory;
mod nodes;
mod order;
mod point_read;
mod read_snapshot;
mod recent;
mod rows;
mod scan;
mod shape;
mod snapshot;
mod sync;
mod table;
mod text_bytes;
mod transfer;

pub use column_index::ColumnIndex;
pub use earliest::{Earliest, RowsAt};
pub use evict::{Eviction, Removal, Victims, Wrongly};
pub use evicted::TableMemory;
pub use evicted_rows::{EvictedError, EvictedRows, Found, NOWHERE, PinnedRows};
pub use hash::{hash_bytes, hash_of_words, hash_parts, hash_word, virtual_node_of};
pub use homes::{Bind, Homes, socket_of};
pub use image::Image;
pub use keys::{KeyColumn, KeyTexts, Keys};
pub use layout::{EXISTS, RowLayout};
pub use load::Filled;
pub use marks::Generation;
pub use point_read::PointRead;
pub use read_snapshot::ReadSnapshot;
pub use recent::RecentKeys;
pub use rows::RowAddress;
pub use scan::CellValue;
pub use shape::RowShape;
#[cfg(feature = "loom")]
pub use sync::model::{reads_key, reads_row, writes_key, writes_row};
pub use table::{Table, TableStats};
pub use text_bytes::TextBytes;
pub use transfer::PreloadError;
