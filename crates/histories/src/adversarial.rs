//! Hand-written histories, each of which looks for one kind of trouble.

mod arithmetic;
mod batches;
mod deep;
mod flows;
mod groups;
mod limits;
mod nests;
mod owners;
mod passed_lists;
mod rows;
mod scans;
mod selections;
mod transfers;
mod undo;
mod values;
mod windows;

use crate::History;

/// Returns all adversarial histories, with their names.
pub fn adversarial() -> Vec<(&'static str, History)> {
    vec![
        ("one hot key", transfers::one_hot_key()),
        ("a chain of transfers", transfers::chain()),
        ("every transaction aborts", transfers::all_abort()),
        ("aborts flip later verdicts", transfers::flipped_verdicts()),
        ("transactions read each other's rows", transfers::mutual_reads()),
        ("a list with repeated keys", rows::repeated_keys()),
        ("lists of all lengths", rows::lists_of_all_lengths()),
        ("a row comes and goes", rows::comes_and_goes()),
        ("missing rows", rows::missing()),
        ("what locals say of rows", rows::said_by_locals()),
        ("aborts behind the last write", undo::behind_the_last_write()),
        ("an abort behind thousands of writes", undo::thousands()),
        ("texts replaced over and over", undo::texts()),
        ("two roles in one row", rows::aliases()),
        ("nested loops over one list", rows::nested_loops()),
        ("keys read from rows", rows::dependent_keys()),
        ("loops with several ends", rows::loop_ends()),
        ("a cascade touches one row at each step", flows::cascade_on_one_row()),
        ("a cascade touches a table apart at each step", flows::cascade_over_tables_apart()),
        ("an earlier event of a cascade emits later", flows::crossed_emissions()),
        ("derived streams of crossed emissions", flows::crossed_derivations()),
        ("one event arrives twice", flows::arrives_twice()),
        ("several transactions on each event", flows::several_on_each_event()),
        ("transactions that commit or abort as one", nests::all_or_none()),
        ("nests within what follows from one event", nests::crossed()),
        ("lists that are passed on, over tables apart", passed_lists::opened(passed_lists::Run::Apart)),
        ("lists that are passed on, over one table", passed_lists::opened(passed_lists::Run::Together)),
        ("lists that are passed on in nests", passed_lists::opened(passed_lists::Run::Nested)),
        ("all rows of tables that change", scans::of_changes()),
        ("all rows within nests", scans::nested()),
        ("batches of a number of events", batches::counted()),
        ("batches of intervals of time", batches::of_intervals()),
        ("rows that conditions choose", selections::of_changes(&[])),
        ("rows that conditions choose within nests", selections::nested(&[])),
        ("rows that indexes find", selections::of_changes(&[&["side"], &["price"], &["amount"], &["id"]])),
        ("rows that indexes of several columns find", selections::of_changes(&selections::SEVERAL)),
        ("rows that indexes find within nests", selections::nested(&[&["side"]])),
        (
            "rows that indexes of several columns find within nests",
            selections::nested(&[&["side", "price"], &["price"]]),
        ),
        ("rows that belong to chosen rows", owners::of_orders()),
        ("rows that belong to chosen rows within nests", owners::nested()),
        ("empty epochs", flows::empty_epochs()),
        ("equal times", flows::equal_times()),
        ("late events", flows::late()),
        ("arithmetic of extreme numbers", arithmetic::numbers()),
        ("conversions of extreme numbers", arithmetic::conversions()),
        ("functions of extreme numbers", arithmetic::functions()),
        ("parts of dates", arithmetic::dates()),
        ("strange texts", arithmetic::texts()),
        ("groups that share no row", groups::in_zones()),
        ("groups that are declared and share rows", groups::across_zones()),
        ("windows at slice edges", windows::edges()),
        ("windows in place", windows::in_place()),
        ("windows of what comes late", windows::late()),
        ("windows of floats", windows::of_floats()),
        ("deep bodies and expressions", deep::deep()),
        ("too many steps", limits::of_steps()),
        ("too many steps, taken apart", limits::of_steps_apart()),
        ("too many steps, counted at once", limits::of_steps_at_once()),
        ("too much memory", limits::of_memory()),
        ("too much to read", limits::of_reading()),
        ("too much in filters and maps", limits::of_derived_streams()),
    ]
}
