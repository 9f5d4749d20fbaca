//! Savepoints that are made while epochs run: each is the state after its epoch, beside other savepoints, checkpoints and
//! evictions, and a state that is put back to one goes on from there.

use super::readers::durable_on;
use super::{close, each_random, source_streams, start_on};
use crate::support::{Subject, table_schema};
use arrow_array::RecordBatch;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tidemill_durability::StateDirectory;
use tidemill_histories::Random;
use tidemill_model::TableDigest;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Table, TableId};
use tidemill_reference::Reference;
use tidemill_runtime::{Options, Session, SessionError, state_rows};
use tidemill_sim::{Fault, SimStorage};

/// A savepoint, and the records that the run had let through by then, of all that were sent.
struct Kept {
    name: String,
    passed: usize,
}

/// The sources in the order in which their records are sent, one for each record.
pub type Order = Vec<usize>;

/// Returns the reference interpreter after the first records of an order.
fn after<'p>(subject: &'p Subject, order: &[usize]) -> Reference<'p> {
    let mut reference = Reference::new(&subject.program);
    subject.history.preload.iter().for_each(|(table, rows)| reference.preload(*table, rows.clone()));
    let sources = &subject.history.sources;
    (0..sources.len()).for_each(|source| reference.send(source, true));
    let mut taken = vec![0; sources.len()];
    for &source in order {
        assert!(reference.take(source, sources[source][taken[source]].clone()), "nothing is late");
        taken[source] += 1;
        let next = reference.next_of(source);
        reference.process(next);
    }
    reference
}

/// Sends the records of an order from a place on, a few of one source at a time.
/// Fails where the run is over.
pub fn send_some(
    session: &Session,
    subject: &Subject,
    order: &[usize],
    from: usize,
    random: &mut Random,
) -> Result<(), SessionError> {
    let (program, sources) = (&subject.program, &subject.history.sources);
    let streams = source_streams(program);
    let mut sent: Vec<usize> =
        (0..sources.len()).map(|source| order[..from].iter().filter(|&&of| of == source).count()).collect();
    let mut at = from;
    while let Some(&source) = order.get(at) {
        let alike = order[at..].iter().take_while(|&&of| of == source).count().min(1 + random.below(7));
        let some = &sources[source][sent[source]..sent[source] + alike];
        session.send(source, &batch_of(&program.streams[streams[source]].schema, some), None)?;
        (sent[source], at) = (sent[source] + alike, at + alike);
    }
    Ok(())
}

pub fn same_tables(subject: &Subject, ours: &[RecordBatch], order: &[usize], what: &str) {
    let other = other_table(subject, ours, order);
    assert!(other.is_none(), "{what}: table {} differs", other.unwrap_or_default());
}

/// Returns the first table that is not as after these events, if there is one.
pub fn other_table<'a>(subject: &'a Subject, ours: &[RecordBatch], order: &[usize]) -> Option<&'a str> {
    let reference = after(subject, order);
    let differs = |(batch, (id, table)): &(&RecordBatch, (TableId, &Table))| {
        let schema = table_schema(table);
        let (ours, expected) = (rows(batch, &schema), batch_of(&schema, &reference.table(*id)));
        TableDigest::of(&batch_of(&schema, &ours)) != TableDigest::of(&expected)
    };
    let mut all = ours.iter().zip(subject.program.tables.iter_enumerated());
    all.find(differs).map(|(_, (_, table))| &*table.name)
}

fn open(machine: &SimStorage) -> StateDirectory {
    let opened = StateDirectory::open_as_it_is(Arc::new(machine.clone()), Path::new("state"), "a test");
    opened.expect("no run holds it")
}

/// Puts a copy of a state back to a savepoint, and sends it what came after: it ends as the state did.
fn goes_on(subject: &Subject, machine: &SimStorage, kept: &Kept, order: &Order, random: &mut Random, what: &str) {
    let machine = machine.copy();
    open(&machine).restore_savepoint(&kept.name).expect("it goes back");
    let (session, _) = start_on(subject, Options::default(), Some(durable_on(&machine, subject, random)));
    send_some(&session, subject, order, kept.passed, random).expect("it runs");
    let ids: Vec<TableId> = subject.program.tables.keys().collect();
    let read = session.tables(&ids, None).expect("it runs").tables;
    same_tables(subject, &read, order, what);
    close(&session);
}

/// Looks at a savepoint that was made: it is the state after the records that it says it has.
fn look(subject: &Subject, directory: &StateDirectory, name: &str, order: &Order, asked: usize, what: &str) -> Kept {
    let savepoint = directory.savepoint(name).expect("it was made");
    let passed: Vec<usize> =
        savepoint.manifest.checkpoint.sources.iter().map(|source| source.passed as usize).collect();
    let all = passed.iter().sum();
    for (source, &passed) in passed.iter().enumerate() {
        let sent = order[..all].iter().filter(|&&of| of == source).count();
        assert_eq!(passed, sent, "{what}: records passed in the order in which they were sent");
    }
    assert!(asked <= all, "{what}: a savepoint has what was sent before");
    assert!(directory.has_log_after(&savepoint), "{what}");
    let savepoint = directory.open_savepoint(&savepoint).expect("it is whole");
    let tables = state_rows(&savepoint, &subject.program).expect("it is whole");
    same_tables(subject, &tables.into_iter().collect::<Vec<_>>(), &order[..all], what);
    Kept { name: name.into(), passed: all }
}

pub fn random_order(subject: &Subject, random: &mut Random) -> Order {
    let sources = subject.history.sources.iter().enumerate();
    let mut order: Order = sources.flat_map(|(source, records)| vec![source; records.len()]).collect();
    (1..order.len()).for_each(|last| order.swap(last, random.below(last + 1)));
    order
}

#[test]
fn savepoints_have_their_epochs() {
    let mut made = 0;
    each_random(false, |subject, mut options, random, what| {
        let machine = SimStorage::new(random.below(1 << 30) as u64);
        options.memory = random.chance(50).then_some(1).filter(|_| subject.program.scan().is_none());
        let (session, _) = start_on(&subject, options, Some(durable_on(&machine, &subject, random)));
        let order = random_order(&subject, random);
        let (mut asked, mut sent) = (Vec::new(), 0);
        while sent < order.len() {
            let next = (sent + 1 + random.below(20)).min(order.len());
            send_some(&session, &subject, &order[..next], sent, random).expect("it runs");
            sent = next;
            if random.chance(50) {
                let name = random.chance(50).then(|| format!("number-{}", asked.len()));
                asked.push((session.ask_savepoint(name.as_deref(), None).expect("it runs"), sent));
            }
            if random.chance(20) {
                session.flush(None).expect("it runs");
            }
        }
        close(&session);
        let directory = open(&machine);
        let mut all = Vec::new();
        for (asked, sent) in asked {
            match asked.made(None) {
                Ok(made) => all.push(look(&subject, &directory, &made.name, &order, sent, what)),
                // Those of one epoch have one name, which only one of them gets.
                Err(SessionError::Savepoint(error)) => {
                    assert!(error.to_string().contains("already"), "{what}: {error}")
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
        // The oldest keeps the log of all that came after it.
        let savepoints = directory.savepoints().expect("no fault");
        if let Some(first) = savepoints.iter().map(|savepoint| savepoint.manifest.checkpoint.epoch).min() {
            let mut log = directory.log_behind(first).expect("it is kept");
            let mut last = first;
            while let Some(epoch) = log.next_epoch().expect("it is whole") {
                assert_eq!(epoch.epoch, last + 1, "{what}: the log after a savepoint is kept");
                last = epoch.epoch;
            }
            assert_eq!(directory.checkpoint().map(|checkpoint| checkpoint.epoch), Some(last), "{what}");
        }
        drop(directory);
        made += all.len();
        if !all.is_empty() {
            goes_on(&subject, &machine, &all[random.below(all.len())], &order, random, what);
        }
    });
    assert!(made > 0, "some savepoints were made");
}

/// Returns a fault at some call of a run.
fn fault(random: &mut Random) -> Fault {
    match random.below(6) {
        0 | 1 => Fault::CutBefore,
        2 => Fault::CutAfter,
        3 => Fault::Refused(ErrorKind::Other),
        4 => Fault::Half(ErrorKind::StorageFull),
        _ => Fault::Dropped(ErrorKind::Other),
    }
}

#[test]
fn savepoints_that_were_made_survive_a_crash() {
    let (mut crashes, mut survived, mut unmade) = (0, 0, 0);
    each_random(false, |subject, mut options, random, what| {
        let machine = SimStorage::new(random.below(1 << 30) as u64);
        options.memory = random.chance(50).then_some(1).filter(|_| subject.program.scan().is_none());
        let (session, _) = start_on(&subject, options, Some(durable_on(&machine, &subject, random)));
        let order = random_order(&subject, random);
        machine.fail(machine.call_count() + random.below(1 + 4 * order.len()), fault(random));
        let (mut asked, mut sent) = (Vec::new(), 0);
        while sent < order.len() {
            let next = (sent + 1 + random.below(10)).min(order.len());
            if send_some(&session, &subject, &order[..next], sent, random).is_err() {
                break;
            }
            sent = next;
            if let Ok(savepoint) = session.ask_savepoint(None, None) {
                asked.push((savepoint, sent));
            }
        }
        let has_failed = !matches!(session.close(&mut || {}), Some(Ok(_)));
        let made = asked.into_iter().filter_map(|(asked, sent)| Some((asked.made(None).ok()?.name, sent)));
        let made: Vec<(String, usize)> = made.collect();
        drop(session);
        crashes += u32::from(has_failed);
        machine.heal();
        machine.cut_power();
        let directory = open(&machine);
        for (name, sent) in &made {
            look(&subject, &directory, name, &order, *sent, what);
            survived += u32::from(has_failed);
        }
        // One that a crash has kept from being made is whole, or is none.
        for savepoint in directory.savepoints().expect("no fault") {
            unmade += u32::from(made.iter().all(|(name, _)| *name != savepoint.name));
            look(&subject, &directory, &savepoint.name, &order, 0, what);
            let mut log = directory.log_behind(savepoint.manifest.checkpoint.epoch).expect("it is kept");
            while log.next_epoch().expect("it is whole").is_some() {}
        }
    });
    println!("{crashes} crashes, {survived} savepoints survived, {unmade} were whole and nobody was told");
    assert!(crashes > 0 && survived > 0);
}

#[test]
fn a_savepoint_that_cannot_be_made_is_refused() {
    let (_, history) = tidemill_histories::adversarial().into_iter().next().expect("a history");
    let subject = Subject::new(history);
    let (session, _) = start_on(&subject, Options::default(), None);
    assert!(matches!(session.savepoint(None, None), Err(SessionError::NoState)));
    close(&session);
    let machine = SimStorage::new(1);
    let durability = durable_on(&machine, &subject, &mut Random::new(1));
    let (session, _) = start_on(&subject, Options::default(), Some(durability));
    let made = session.savepoint(Some("first"), None).expect("it runs");
    assert_eq!(made.name, "first");
    let error = |name: &str| session.savepoint(Some(name), None).expect_err("no such name").to_string();
    assert_eq!(error("first"), "there is a savepoint 'first' already");
    assert!(error("a/b").contains("no name for a savepoint"));
    // A checkpoint that finds no room makes none, and the run goes on.
    machine.set_capacity(Some(0));
    let full = session.ask_savepoint(Some("second"), None).expect("it runs");
    machine.set_capacity(None);
    match full.made(None) {
        Ok(_) => {}
        Err(SessionError::Savepoint(error)) => assert!(error.to_string().contains("no room"), "{error}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(session.savepoint(Some("third"), None).expect("there is room").name, "third");
    close(&session);
    assert!(matches!(session.savepoint(None, None), Err(SessionError::Over)));
}
