//! Tables: rows in cells, the key index, virtual nodes, and the unsafe that row access needs.
