use crate::bank::{Fault, TRANSFERS, logged, open, run};
use tidemill_audit::show;
use tidemill_durability::Head;
use tidemill_sim::SimStorage;

fn shown(position: &str) -> String {
    let machine = SimStorage::new(1);
    run(&machine, Fault::None, TRANSFERS).expect("it ends");
    let position = position.parse().expect("a position");
    show(&open(&machine), &position, &logged).unwrap_or_else(|error| format!("error: {error}"))
}

#[test]
fn a_transaction_that_committed() {
    let expected = "\
transfers:0 at 1, in epoch 1
  at = 1, src = \"ada\", dst = \"bob\", amount = 70
transaction transfer: committed
  on at = 1, src = \"ada\", dst = \"bob\", amount = 70
  read src.balance = 100 of accounts \"ada\"
  required src.balance >= ev.amount, which held
  read src.balance = 100 of accounts \"ada\"
  wrote src.balance = 30 of accounts \"ada\"
  read dst.balance = 0 of accounts \"bob\"
  wrote dst.balance = 70 of accounts \"bob\"
  read src.id = \"ada\" of accounts \"ada\"
  emitted on transfer.committed: at = 1, src = \"ada\", amount = 70
";
    for position in ["transfers:0", "transfers@1"] {
        let text = shown(position);
        let head = text
            .strip_prefix(expected)
            .and_then(|rest| rest.strip_prefix("head of the chain of proof after this epoch: "));
        let head: Head = head.expect("the steps, then a head").trim_end().parse().expect("a head");
        assert_eq!(head.epoch, 1);
    }
}

#[test]
fn a_transaction_that_aborted() {
    let text = shown("transfers:1");
    assert!(text.contains("transaction transfer: aborted, and nothing of it was done: insufficient funds"), "{text}");
    assert!(text.contains("read src.balance = 30 of accounts \"ada\""), "{text}");
    assert!(text.contains("required src.balance >= ev.amount, which did not hold"), "{text}");
    assert!(!text.contains("wrote"), "{text}");
}

#[test]
fn an_event_that_came_too_late() {
    let text = shown("transfers:3");
    assert!(text.starts_with("transfers:3 came too late: its at is more than 5 before the greatest"), "{text}");
}

#[test]
fn what_is_not_there() {
    assert!(
        shown("transfers:17").starts_with("error: transfers:17 is not in the log, which was searched in the epochs")
    );
    assert!(shown("transfers@999").starts_with("error: transfers@999 is not in the log"));
    assert_eq!(shown("payments:0"), "error: there is no source 'payments'; sources: transfers");
}
