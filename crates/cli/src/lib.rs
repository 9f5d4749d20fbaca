//! The `tidemill` command, above any way of loading an application.
