//! States verified and transactions shown: where all is well, and where the engine, or somebody else, has
//! done what it should not.

mod bank;
mod show;
mod verify;
