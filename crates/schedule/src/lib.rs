//! Policies, the executor loop and the decision by measured cost.
