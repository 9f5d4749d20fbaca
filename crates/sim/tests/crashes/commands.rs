//! Commands that change a state between runs: savepoints that are made, removed and returned to, and a migration. Each
//! meets every fault at every call that it makes, on file systems whose files can have a second name and on others.
//!
//! After it the state is as it was or as it should be, and as it should be if the command has returned. The command
//! given again goes through, or says that it was done. Then the program runs to its end.

use crate::child::history;
use crate::search::Search;
use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, new_machine, process, recorded};
use arrow_array::RecordBatch;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use tidemill_audit::recorded_program;
use tidemill_durability::{Fit, Identity, OpenState, StateDirectory, Storage, read_all};
use tidemill_histories::History;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{PlanBuilder, event};
use tidemill_plan::{ColumnDef, ConvertDef, Function, Plan, analyze};
use tidemill_runtime::{Engine, RunError, state_rows};
use tidemill_sim::{Call, Fault, SimStorage};

/// Events of a history: some epochs before a run is stopped and some after it.
const EVENTS_MIN: usize = 60;
/// Records that a source hands over before the run is stopped.
const STOP: usize = 10;

/// The draws before a sync that is left out is given up on.
const DRAWS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Create,
    Remove,
    Restore,
    Migrate,
}

const COMMANDS: [Command; 4] = [Command::Create, Command::Remove, Command::Restore, Command::Migrate];

/// The content of a state as a reader finds it: the version of its schema and its rows, and those of its savepoints.
type Found = Vec<(String, u64, Vec<RecordBatch>)>;

fn found(machine: &SimStorage) -> Result<Found, RunError> {
    let look = |name: &str, directory: &StateDirectory| {
        let program = recorded_program(directory).expect("the program is recorded");
        Ok::<_, RunError>((name.to_owned(), program.schema_version, state_rows(directory, &program)?.into()))
    };
    // Opening a state tidies it up.
    let directory = StateDirectory::open_as_it_is(Arc::new(machine.copy()), Path::new("state"), "a reader")?;
    let mut found = vec![look("", &directory)?];
    for savepoint in directory.savepoints()? {
        found.push(look(&savepoint.name, &directory.open_savepoint(&savepoint)?)?);
    }
    Ok(found)
}

/// The call of a command that fails, and how; `None`: no call.
type Faulted = Option<(usize, Fault)>;

/// A history, and the same with another column in its table, without a table that nothing uses, and with a column of
/// another such table converted.
struct Scene {
    expected: Expected,
    migrated: Expected,
    setting: Setting,
    /// Stopped on the way.
    stopped: SimStorage,
    /// Stopped again, with a savepoint of where it was stopped first.
    farther: SimStorage,
    /// The two programs, compiled once.
    engines: [Cell<Option<Engine>>; 2],
}

fn compile(history: &History) -> Engine {
    let program = analyze(&with_all_sinks(&history.plan)).expect("random plans are valid");
    Engine::new(program).expect("random plans compile")
}

/// Returns a table that nothing uses, and the same with a column that had other values.
fn amounts(is_converted: bool) -> Plan {
    PlanBuilder::new("amounts")
        .table("amounts", |t| match t.key("id", Type::Int) {
            t if is_converted => {
                let cents = (event(ConvertDef::VALUE) * 100.0).call(Function::Round, []);
                t.column("cents", Type::Int).was("amount").convert(Type::Float, Vec::new(), cents)
            }
            t => t.column("amount", Type::Float),
        })
        .build()
}

impl Scene {
    fn new() -> Scene {
        let (_, mut history, setting) = history(EVENTS_MIN);
        let mut migrated = history.clone();
        let table = |history: &History| (history.plan.tables.len() - 1).into();
        for (history, is_converted) in [(&mut history, false), (&mut migrated, true)] {
            history.plan.tables.extend(amounts(is_converted).tables);
            let amount = |id: i64| match is_converted {
                true => Value::Int(100 * id),
                false => Value::Float(id as f64),
            };
            history.preload.push((table(history), (0..100).map(|id| vec![Value::Int(id), amount(id)]).collect()));
        }
        let dropped = PlanBuilder::new("dropped").table("dropped", |t| t.key("id", Type::Int)).build();
        history.plan.tables.extend(dropped.tables);
        history.preload.push((table(&history), vec![vec![Value::Int(1)], vec![Value::Int(2)]]));
        migrated.plan.schema_version += 1;
        let (name, ty, default) = ("added".to_owned(), ColumnType::required(Type::Int), Some(Value::Int(7)));
        migrated.plan.tables[0].columns.push(ColumnDef { default, ..ColumnDef::new(name, ty) });
        migrated.preload.iter_mut().filter(|(table, _)| *table == 0.into()).for_each(|(_, rows)| {
            rows.iter_mut().for_each(|row| row.push(Value::Int(7)));
        });
        let run = |machine: &SimStorage, stop| {
            let setting = Setting { stop, ..setting.clone() };
            process(&history, &compile(&history), &storage(machine), &setting).expect("no fault");
        };
        // A run may come to its end before it is stopped, since it runs on threads: then it is tried again.
        let (stopped, farther) = std::iter::repeat_with(|| {
            let stopped = new_machine(1);
            run(&stopped, Some(STOP));
            let farther = stopped.copy();
            create(&farther, "start").expect("no fault");
            run(&farther, Some(2 * STOP));
            (stopped, farther)
        })
        .take(100)
        .find(|(_, farther)| {
            let found = found(farther).expect("no fault");
            found[0].2 != found[1].2
        })
        .expect("a run is stopped before its end");
        let engines = [&history, &migrated].map(|history| Cell::new(Some(compile(history))));
        let (expected, migrated) = (Expected::new(Subject::new(history)), Expected::new(Subject::new(migrated)));
        Scene { expected, migrated, setting, stopped, farther, engines }
    }

    /// Hands over the engine of the program that a command leaves, with empty tables.
    fn with_engine<T>(&self, command: Command, body: impl FnOnce(&Engine) -> T) -> T {
        let cell = &self.engines[usize::from(command == Command::Migrate)];
        let engine = cell.take().expect("one at a time").with_empty_tables();
        let done = body(&engine);
        cell.set(Some(engine));
        done
    }

    fn before(&self, command: Command) -> &SimStorage {
        match command {
            Command::Migrate => &self.stopped,
            _ => &self.farther,
        }
    }

    fn after(&self, command: Command) -> &Expected {
        match command {
            Command::Migrate => &self.migrated,
            _ => &self.expected,
        }
    }

    /// Does it, as a process of its own; whether there was anything to do.
    fn give(&self, command: Command, machine: &SimStorage) -> Result<bool, RunError> {
        match command {
            Command::Create => create(machine, "farther"),
            Command::Remove => {
                let directory = open(machine)?;
                let is_there = directory.savepoints()?.iter().any(|savepoint| savepoint.name == "start");
                if is_there {
                    directory.remove_savepoint("start")?;
                }
                Ok(is_there)
            }
            Command::Restore => {
                open(machine)?.restore_savepoint("start")?;
                Ok(true)
            }
            Command::Migrate => self.with_engine(command, |engine| {
                let mut directory = StateDirectory::open(OpenState {
                    storage: storage(machine),
                    path: Path::new("state"),
                    holder: "a command",
                    id: 0,
                    program: Identity::of(engine.program()),
                    recorded: Some(recorded(&self.migrated.subject.history)),
                })?;
                let migrates = matches!(directory.fit(), Fit::Migrates(_));
                if migrates {
                    let old = recorded_program(&directory).expect("the program is recorded");
                    engine.migrate(&mut directory, &old)?;
                }
                Ok(migrates)
            }),
        }
    }

    /// Tries a command with a fault, if any, and what comes after it. Returns the calls that it made.
    fn trial(
        &self,
        command: Command,
        before: &Found,
        prepare: &dyn Fn(&SimStorage),
        fault: Faulted,
    ) -> Result<Vec<Call>, String> {
        let at = |what: &str| format!("{command:?}, {fault:?}: {what}");
        let failed = |what: &'static str| move |error: RunError| format!("{command:?}, {fault:?}: {what}: {error}");
        let machine = self.before(command).copy();
        prepare(&machine);
        fault.into_iter().for_each(|(at, fault)| machine.fail(at, fault));
        let given = self.give(command, &machine);
        let calls = machine.calls();
        let returned = given.is_ok() && !machine.is_off();
        machine.heal();
        match machine.is_off() || fault.is_none_or(|(at, _)| at % 2 == 0) {
            true => machine.cut_power(),
            false => machine.kill(),
        }
        let then = found(&machine).map_err(failed("what is there"))?;
        let was_done = then != *before;
        if returned && !was_done {
            return Err(at("it has returned, and nothing was done"));
        }
        // A state that was returned to a savepoint would be so once more.
        let again = match command {
            Command::Restore if was_done => false,
            _ => self.give(command, &machine).map_err(failed("again"))?,
        };
        if again == was_done {
            return Err(at("it was done in part"));
        }
        let after = found(&machine).map_err(failed("what is there after it"))?;
        if was_done && then != after {
            return Err(at("it is not the same when it is given again"));
        }
        let wanted = match command {
            Command::Create => {
                let is_same = |made: &(String, u64, Vec<RecordBatch>)| made.1 == before[0].1 && made.2 == before[0].2;
                before.len() + 1 == after.len() && after.get(1).is_some_and(is_same)
            }
            Command::Remove => before.len() == after.len() + 1 && after[0] == before[0],
            Command::Restore => after[0].2 == before[1].2 && after.get(1) == before.get(1),
            Command::Migrate => after[0].1 == before[0].1 + 1,
        };
        if !wanted {
            return Err(at("it is not done"));
        }
        let expected = self.after(command);
        let wrong = self.with_engine(command, |engine| {
            process(&expected.subject.history, engine, &storage(&machine), &self.setting).map_err(failed("a run"))?;
            machine.cut_power();
            // After a savepoint was restored, outputs begin anew.
            let before = |path: &Path| match command {
                Command::Restore => self.stopped.files().get(path).cloned().unwrap_or_default(),
                _ => Vec::new(),
            };
            let read = |path: &Path| Ok([before(path), read_all(&machine, path)?].concat());
            let wrong = expected.wrong_outputs(read, Whole::There);
            Ok::<_, String>(wrong.or_else(|| expected.wrong_tables(engine)))
        })?;
        wrong.map_or(Ok(calls), |wrong| Err(at(&wrong)))
    }

    /// Tries a command without a fault, then with each at each of its calls, until `ends` says so of one.
    fn try_all(
        &self,
        command: Command,
        prepare: &dyn Fn(&SimStorage),
        ends: &mut dyn FnMut(Faulted, Result<(), String>) -> bool,
    ) {
        let before = found(self.before(command)).expect("no fault");
        let calls = match self.trial(command, &before, prepare, None) {
            Ok(calls) => calls,
            Err(wrong) => {
                ends(None, Err(wrong));
                return;
            }
        };
        for (at, call) in calls.iter().enumerate() {
            for fault in call.faults() {
                let ended = self.trial(command, &before, prepare, Some((at, fault)));
                if ends(Some((at, fault)), ended.map(drop).map_err(|wrong| format!("{wrong}, {call:?}"))) {
                    return;
                }
            }
        }
    }
}

fn storage(machine: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(machine.clone())
}

fn open(machine: &SimStorage) -> Result<StateDirectory, RunError> {
    Ok(StateDirectory::open_as_it_is(storage(machine), Path::new("state"), "a command")?)
}

fn create(machine: &SimStorage, name: &str) -> Result<bool, RunError> {
    let directory = open(machine)?;
    let is_new = directory.savepoints()?.iter().all(|savepoint| savepoint.name != name);
    if is_new {
        directory.create_savepoint(name)?;
    }
    Ok(is_new)
}

#[test]
fn commands_are_done_or_not() {
    let scene = Scene::new();
    let mut trials = 0;
    for command in COMMANDS {
        for prepare in [|_: &SimStorage| (), SimStorage::forbid_links] {
            scene.try_all(command, &prepare, &mut |_, ended| {
                ended.unwrap_or_else(|wrong| panic!("{wrong}"));
                trials += 1;
                false
            });
        }
    }
    assert!(trials > 100, "{trials} trials");
    println!("{trials} trials of {} commands", COMMANDS.len());
}

/// The state cannot be opened, or lacks what the command has done.
const LOST: &[&str] = &["is damaged", "it has returned, and nothing was done"];

#[test]
fn syncs_that_commands_leave_out_are_found() {
    let scene = Scene::new();
    for (command, lie) in [
        (Command::Create, "manifest.new"),
        (Command::Create, "savepoint/farther"),
        (Command::Create, "savepoint/farther/checkpoint"),
        (Command::Create, ".rows"),
        (Command::Restore, "manifest.new"),
        (Command::Restore, "state"),
        (Command::Restore, "state/checkpoint"),
        (Command::Restore, "state/log.1"),
        (Command::Restore, ".rows"),
        (Command::Remove, "savepoint/start"),
        (Command::Migrate, "manifest.new"),
        (Command::Migrate, "state"),
        (Command::Migrate, ".rows"),
        (Command::Migrate, "state/checkpoint"),
    ] {
        let mut search = Search::new((command, lie), LOST);
        let mut is_found = false;
        for draw in 0..DRAWS {
            // The loss of a power cut is drawn for each life of a machine.
            let honest = |machine: &SimStorage| {
                machine.forbid_links();
                (0..draw).for_each(|_| machine.kill());
            };
            let lying = |machine: &SimStorage| {
                honest(machine);
                machine.lie_about(lie);
            };
            let before = found(scene.before(command)).expect("no fault");
            scene.try_all(command, &lying, &mut |fault, with| {
                let without = || scene.trial(command, &before, &honest, fault).map(drop);
                is_found = search.finds((draw, fault), with, without);
                is_found
            });
            if is_found {
                break;
            }
        }
        assert!(is_found, "{}", search.missed());
    }
}
