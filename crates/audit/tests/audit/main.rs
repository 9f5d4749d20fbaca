//! States verified and transactions shown: of a right engine, of engines with planted faults, and of states that were
//! changed from outside.

mod ahead;
mod bank;
mod calls;
mod early;
mod first_calls;
mod follow;
mod retries;
mod session;
mod show;
mod verify;
