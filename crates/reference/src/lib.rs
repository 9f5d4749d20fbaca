//! The serial interpreter of a plan: the oracle every execution is held to.
