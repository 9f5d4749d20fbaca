//! The method by which the access stage of an epoch is executed.

use crate::baseline::Scheme;
use crate::policy::{Granularity, Policy};
use std::fmt;

/// The method by which transactions are executed. Prints as the policy or the scheme does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// A policy.
    Policy(Policy),
    /// The scheme of an earlier system, for measurement.
    Scheme(Scheme),
}

impl Method {
    /// Returns whether one worker runs the transactions in position order.
    pub fn is_serial(self) -> bool {
        matches!(self, Method::Policy(Policy { granularity: Granularity::Epoch, .. }))
    }

    /// Returns whether operations work on versions of the rows rather than on the rows.
    pub fn on_versions(self) -> bool {
        match self {
            Method::Policy(policy) => policy.on_versions(),
            Method::Scheme(scheme) => scheme.on_versions(),
        }
    }

    /// Returns whether updates run before the verdict of their transaction.
    pub fn speculates(self) -> bool {
        match self {
            Method::Policy(policy) => policy.speculates(),
            Method::Scheme(scheme) => scheme.speculates(),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Policy(policy) => policy.fmt(f),
            Method::Scheme(scheme) => scheme.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_prints_as_what_it_is_and_only_one_policy_is_serial() {
        let schemes = Scheme::ALL.map(Method::Scheme);
        let methods: Vec<Method> = Policy::all().into_iter().map(Method::Policy).chain(schemes).collect();
        let serial: Vec<String> = methods.iter().filter(|method| method.is_serial()).map(Method::to_string).collect();
        assert_eq!(serial, ["epoch"]);
        assert_eq!(Method::Scheme(Scheme::Partitioned(3)).to_string(), "pat:3");
        assert!(methods.iter().all(|method| method.on_versions() || !method.speculates()));
    }
}
