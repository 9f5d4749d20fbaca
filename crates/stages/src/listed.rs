//! The rows of a role that is not one row, as compiled code reads them ([`InputView::rows`](tidemill_compile::abi::InputView)).

use tidemill_state::RowAddress;

/// Makes the list anew. `select` appends its rows. Gives its address, which is good until it is made again.
pub fn list(rows: &mut Vec<RowAddress>, select: impl FnOnce(&mut Vec<RowAddress>)) -> RowAddress {
    rows.clear();
    rows.push(0);
    select(rows);
    rows[0] = rows.len() as RowAddress - 1;
    rows.as_ptr() as RowAddress
}

/// Returns the rows of the list at an address; none where that is 0.
///
/// # Safety
/// [`list`] gave the address, and the list was not made again since.
#[allow(unsafe_code)]
pub unsafe fn listed<'a>(address: RowAddress) -> &'a [RowAddress] {
    if address == 0 {
        return &[];
    }
    let first = address as *const RowAddress;
    // SAFETY: by the caller, the number of rows stands before them.
    unsafe { std::slice::from_raw_parts(first.add(1), *first as usize) }
}
