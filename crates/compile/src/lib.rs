//! Transactions and pipelines as machine code, and the unsafe that calling it needs.
