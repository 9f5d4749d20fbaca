//! Clients that call: what they want, what they were told, and what they may be told.
//!
//! A call with a key is made by whoever likes to, as often as one likes, until it is answered. The model of that is a map
//! from calls to answers that knows nothing of the engine: what was said about a call first is what everybody must be told.

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tidemill_histories::{Random, same_rows};
use tidemill_model::Value;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Program, StreamId};
use tidemill_runtime::{Calling, NotMade, Procedure, Reply, RequestKey, Session, SessionError, TablesAt, When};

/// The first field of calls that are made with the key of another one.
pub const CHANGED: i64 = 1 << 40;

/// The time that a client waits for answers before it goes on. Calls may wait for events that nobody has sent yet.
const PATIENCE: Duration = Duration::from_micros(500);

/// The answer to a call.
#[derive(Clone, Debug)]
pub enum Said {
    /// The call committed, and returned a record or none.
    Committed(Option<Vec<Value>>),
    /// The call aborted: the event of the aborted stream.
    Aborted(Vec<Value>),
    /// It reached no transaction, for this reason.
    Untaken(String),
}

impl Said {
    /// Returns whether both are the same to the bit.
    pub fn is(&self, other: &Said) -> bool {
        match (self, other) {
            (Said::Committed(None), Said::Committed(None)) => true,
            (Said::Committed(Some(one)), Said::Committed(Some(other))) | (Said::Aborted(one), Said::Aborted(other)) => {
                same_rows(std::slice::from_ref(one), std::slice::from_ref(other))
            }
            (Said::Untaken(one), Said::Untaken(other)) => one == other,
            _ => false,
        }
    }

    fn of(program: &Program, procedure: &Procedure, reply: Reply) -> Result<Said, NotMade> {
        let transaction = &program.transactions[procedure.transaction];
        let row = |batch: RecordBatch, stream: StreamId| {
            rows(&batch, &program.streams[stream].schema).pop().expect("a reply has one row")
        };
        match reply {
            Reply::Committed(None) => Ok(Said::Committed(None)),
            Reply::Committed(Some(batch)) => Ok(Said::Committed(Some(row(batch, transaction.committed.stream)))),
            Reply::Aborted(batch) => Ok(Said::Aborted(row(batch, transaction.aborted))),
            Reply::Untaken(reason) => Ok(Said::Untaken(reason)),
            Reply::Refused(why) => Err(why),
        }
    }
}

/// A call that some client makes. Its first field is its number.
pub struct Wanted {
    pub source: usize,
    /// The event of the call, in the form in which clients send it.
    pub event: Vec<Value>,
    /// A flag: whether it has a key, if it can be called.
    pub wants_key: bool,
}

/// The state that the clients share.
pub struct Clients<'a> {
    program: &'a Program,
    /// All calls, by number.
    pub wanted: Vec<Wanted>,
    /// The procedure of the present session for each source, by source.
    procedures: Mutex<BTreeMap<usize, Procedure>>,
    /// The number of calls that were taken up by a client.
    taken: Mutex<usize>,
    /// The first answer to each call, by call.
    pub said: Mutex<BTreeMap<usize, Said>>,
    /// The first thing found wrong.
    wrong: Mutex<Option<String>>,
    /// The clients' clock, microseconds.
    now: AtomicI64,
    pub counts: Mutex<Counts>,
    /// The tables that were read.
    pub read: Mutex<Vec<TablesAt>>,
}

/// The numbers of answers that clients had, by kind.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Calls that were answered.
    pub answered: u64,
    /// Answers to calls that were made again.
    pub again: u64,
    /// Calls that were refused, since their key has other arguments.
    pub refused: u64,
}

/// Calls that were sent together.
pub struct Wait {
    calls: Vec<usize>,
    procedure: Procedure,
    calling: Calling,
    is_changed: bool,
}

impl Wait {
    /// Returns the number of calls that are not answered.
    pub fn left(&self) -> usize {
        self.calling.left()
    }
}

impl<'a> Clients<'a> {
    pub fn new(program: &'a Program, wanted: Vec<Wanted>) -> Clients<'a> {
        Clients {
            program,
            wanted,
            procedures: Mutex::default(),
            taken: Mutex::default(),
            said: Mutex::default(),
            wrong: Mutex::default(),
            now: AtomicI64::new(0),
            counts: Mutex::default(),
            read: Mutex::default(),
        }
    }

    /// Learns which procedures a session has.
    pub fn meet(&self, session: &Session) {
        *self.procedures.lock() = session.procedures().map(|procedure| (procedure.source, procedure)).collect();
    }

    /// Returns whether a call is made with a key. Where no procedure takes calls alone, they are sent, and nobody is
    /// answered.
    pub fn has_key(&self, call: usize) -> bool {
        let Wanted { source, wants_key, .. } = self.wanted[call];
        wants_key && self.procedures.lock().contains_key(&source)
    }

    /// Returns the first thing found wrong.
    pub fn wrong(&self) -> Option<String> {
        self.wrong.lock().clone()
    }

    pub fn is_wrong(&self, what: String) {
        self.wrong.lock().get_or_insert(what);
    }

    /// Takes up some calls of one source, of the first `until`.
    fn take(&self, until: usize, random: &mut Random) -> Option<Vec<usize>> {
        let mut taken = self.taken.lock();
        let first = *taken;
        let source = self.wanted[..until].get(first)?.source;
        let most = 1 + random.below(6);
        let calls: Vec<usize> =
            (first..until.min(first + most)).take_while(|&n| self.wanted[n].source == source).collect();
        *taken += calls.len();
        Some(calls)
    }

    /// Returns a call with a key that was answered, if there is one near a random place.
    fn answered(&self, random: &mut Random) -> Option<usize> {
        let said = self.said.lock();
        let from = random.below(self.wanted.len());
        said.range(from..).map(|(&call, _)| call).find(|&call| self.has_key(call))
    }

    /// Makes calls of one source, and gives what waits for their answers: nothing where no procedure takes them alone.
    fn send(&self, session: &Session, calls: &[usize], is_changed: bool) -> Result<Option<Wait>, SessionError> {
        let source = self.wanted[calls[0]].source;
        let event = |&call: &usize| -> Vec<Value> {
            let mut event = self.wanted[call].event.clone();
            event[0] = Value::Int(call as i64 + if is_changed { CHANGED } else { 0 });
            event
        };
        let batch = batch_of(&session.source_schema(source), &calls.iter().map(event).collect::<Vec<_>>());
        let Some(procedure) = self.procedures.lock().get(&source).copied() else {
            session.send(source, &batch, None)?;
            return Ok(None);
        };
        let key = |&call: &usize| {
            let called = self.now.fetch_add(1000, Ordering::Relaxed);
            self.wanted[call].wants_key.then(|| RequestKey { user: "all".into(), key: format!("key {call}"), called })
        };
        let keys: Vec<_> = calls.iter().map(key).collect();
        let calling = session.call_with(&procedure, &batch, &keys, When::Durable, None)?;
        Ok(Some(Wait { calls: calls.to_vec(), procedure, calling, is_changed }))
    }

    /// Takes in answers until the deadline; whether all have come.
    pub fn hear(&self, wait: &mut Wait, deadline: Option<Instant>) -> bool {
        while let Ok(Some(answered)) = wait.calling.next(deadline) {
            for (reply, &call) in answered.replies().zip(&wait.calls[answered.first..]) {
                let reply = Said::of(self.program, &wait.procedure, reply);
                match (reply, wait.is_changed) {
                    (Err(NotMade::OtherArguments), true) => self.counts.lock().refused += 1,
                    (reply, true) => self.is_wrong(format!("call {call} was made with other arguments: {reply:?}")),
                    (Err(why), false) => self.is_wrong(format!("call {call}: {why}")),
                    (Ok(said), false) => self.told(call, said),
                }
            }
        }
        wait.calling.left() == 0
    }

    /// Notes an answer to a call, which must be that of the first time.
    fn told(&self, call: usize, now: Said) {
        let mut all = self.said.lock();
        let mut counts = self.counts.lock();
        match all.get(&call) {
            None => {
                counts.answered += 1;
                all.insert(call, now);
            }
            Some(first) => {
                counts.again += 1;
                if !first.is(&now) {
                    self.is_wrong(format!("call {call} was answered with {first:?}, and then with {now:?}"));
                }
            }
        }
    }

    /// Makes the first `until` calls, as far as other clients do not, until it is done or the session ends. Gives what was
    /// not answered yet.
    pub fn live(&self, session: &Session, until: usize, random: &mut Random) -> Vec<Wait> {
        let (mut waits, mut asked) = (Vec::new(), Vec::new());
        while let Some(mut calls) = self.take(until, random) {
            // One that is made twice at once.
            if random.chance(20) && self.has_key(calls[0]) {
                calls.push(calls[0]);
            }
            let again = self.answered(random).filter(|_| random.chance(30));
            let is_changed = random.chance(30);
            let again = again.map(|call| (vec![call], is_changed));
            for (calls, is_changed) in [(calls, false)].into_iter().chain(again) {
                match self.send(session, &calls, is_changed) {
                    Ok(wait) => waits.extend(wait),
                    Err(_) => return waits,
                }
            }
            if random.chance(40) {
                let until = Instant::now() + PATIENCE;
                waits.retain_mut(|wait| !self.hear(wait, Some(until)));
            }
            if random.chance(3) {
                asked.extend(session.ask(self.program.tables.keys().collect(), None));
            }
        }
        // Epochs have run meanwhile.
        self.read.lock().extend(asked.iter().filter_map(|asked| asked.tables(Some(Instant::now() + PATIENCE)).ok()));
        waits
    }

    /// Makes the calls with keys that are not answered once more.
    pub fn end(&self, session: &Session) -> Vec<Wait> {
        let open = |call: &usize| self.has_key(*call) && !self.said.lock().contains_key(call);
        let calls = (0..self.wanted.len()).filter(open).collect::<Vec<_>>();
        calls.into_iter().filter_map(|call| self.send(session, &[call], false).expect("it goes on")).collect()
    }
}
