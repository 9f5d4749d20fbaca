//! Plans with groups of transactions that share no row: by disjoint tables, by declared groups of keys, both; and
//! with declarations that transactions do not keep to.

use crate::apart::random_apart_plan;
use crate::ast::*;
use crate::random::Random;
use tidemill_model::Type;
use tidemill_plan::{KeyGroupsDef, Plan};

/// The fields of events that say in which zone they are; some transactions do not keep to the first.
const ZONES: [&str; 2] = ["kind", "amount"];

/// Returns a plan that is a function of the seed, and valid: transactions that can be taken apart, in groups.
pub fn random_group_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x9409);
    let mut plan = random_apart_plan(seed);
    let (is_split, has_zones) = (random.chance(60), random.chance(70));
    if is_split {
        let tables = plan.tables.clone();
        plan.tables.clear();
        for (number, transaction) in plan.transactions.iter_mut().enumerate() {
            let renamed = |name: &str| format!("{name}{number}");
            plan.tables.extend(tables.iter().map(|table| {
                let mut table = table.clone();
                table.name = renamed(&table.name);
                table
            }));
            transaction.roles.iter_mut().for_each(|role| role.table = renamed(&role.table));
        }
    }
    if has_zones {
        let count = random.between(2, 3);
        for table in &mut plan.tables {
            table.columns.insert(0, key("zone", Type::Int));
            table.groups = Some(KeyGroupsDef { column: "zone".into(), count });
        }
        for transaction in &mut plan.transactions {
            let strays = random.chance(20);
            for role in &mut transaction.roles {
                let field = ZONES[usize::from(strays && random.chance(50))];
                role.key.insert(0, event(field));
            }
        }
    }
    plan.name = format!("groups{seed}");
    plan
}
