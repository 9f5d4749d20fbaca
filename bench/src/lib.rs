//! Workloads and reports, with the plain loop beside each
