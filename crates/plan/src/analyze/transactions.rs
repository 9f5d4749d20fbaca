//! A transaction by itself: everything about it that does not depend on the numbers of streams.

use super::fault::{Checked, Fault};
use super::position::PositionTime;
use super::records::Outputs;
use super::roles::{RoleDraft, roles};
use super::scope::{LocalDraft, Scope, Usage};
use super::statements::{Body, row_number};
use super::{limits, locals};
use crate::program::{Node, Stmt};
use crate::{Local, Role, Seen, Table, TableId, TransactionDef};
use std::collections::BTreeSet;
use tidemill_model::{ColumnType, Field, Schema, Type};
use typed_index_collections::TiSlice;

/// The properties that the events which run a transaction have in common.
pub(super) struct Input<'a> {
    pub schema: &'a Schema,
    /// The field of event time, if all inputs have one in the same field.
    pub event_time: Option<usize>,
    /// A flag: whether some are late events, which hold another time than that of their position.
    pub is_late: bool,
    /// A flag: whether some have places. Operators ask for those of such alone.
    pub has_places: bool,
}

/// An input of a transaction.
pub(super) struct Given<'a> {
    pub name: &'a str,
    pub schema: &'a Schema,
    pub event_time: Option<usize>,
    /// A flag: whether they are late events.
    pub is_late: bool,
    /// A flag: whether they have places.
    pub has_places: bool,
}

/// A stream that a transaction feeds.
pub(super) struct OutputDraft {
    pub schema: Schema,
    pub event_time: Option<usize>,
}

/// A typed transaction.
pub(super) struct Draft {
    pub roles: Vec<Role>,
    pub locals: Vec<Local>,
    pub loops: Vec<usize>,
    pub body: Vec<Stmt>,
    pub reasons: Vec<String>,
    pub seen: Vec<Seen>,
    pub passes_event: bool,
    pub committed: OutputDraft,
    pub emits: Vec<(String, OutputDraft)>,
    pub aborted: OutputDraft,
}

/// Types a transaction over its input.
///
/// `time`: the field that has the time of windowed columns, and what is added to it, if that is not the event time.
pub(super) fn transaction(
    def: &TransactionDef,
    input: &Input<'_>,
    tables: &TiSlice<TableId, Table>,
    time: Option<PositionTime>,
) -> Checked<Draft> {
    let drafts = roles(def, input.schema, tables)?;
    let mut scope = Scope::body(input.schema, tables, &drafts);
    let own_time = input.event_time.filter(|_| !input.is_late);
    scope.event_time = own_time.map(|field| PositionTime { field, shift: 0 });
    scope.event_time = time.or(scope.event_time);
    scope.is_late = input.is_late;
    scope.has_places = input.has_places;
    scope.locals = locals::collect(&def.body);
    locals::check(&def.body, &scope)?;
    locals::infer(&def.body, &mut scope)?;
    for role in drafts.iter().filter(|role| role.is_scan()) {
        scope.locals.push(LocalDraft { name: row_number(&role.name), ty: Some(Type::Int.into()) });
    }

    let mut outputs = Outputs::default();
    Body::new(&mut scope, &mut outputs).block(&def.body)?;
    outputs.settle()?;
    let mut pass = Body::new(&mut scope, &mut outputs);
    let mut body = pass.block(&def.body)?;
    let loops = pass.loops;

    let Scope { locals, mut usage, mut reasons, .. } = scope;
    limits::count_body(&mut body, &mut reasons);
    found_by(&drafts, &mut usage);
    let mut roles: Vec<Role> =
        drafts.iter().zip(usage).map(|(draft, usage)| RoleDraft::clone(draft).finish(usage, &mut reasons)).collect();
    for (id, role) in roles.iter_mut().enumerate() {
        let number = row_number(&drafts[role.each.unwrap_or(id)].name);
        role.scan = locals.iter().position(|local| local.name == number);
    }
    let seen = seen(&roles, tables);
    let aborted = OutputDraft { schema: aborted(input.schema, &seen, &roles, tables), event_time: input.event_time };
    let mut committed = None;
    let mut emits = Vec::new();
    for output in outputs.finish() {
        let draft = OutputDraft { schema: output.schema, event_time: output.event_time };
        match output.name {
            None => committed = Some(draft),
            Some(name) => emits.push((name, draft)),
        }
    }
    let passes_event = committed.is_none();
    let pass = || OutputDraft { schema: input.schema.clone(), event_time: input.event_time };
    let local = |draft: super::scope::LocalDraft| {
        let ty = draft.ty.expect("a body that could be typed has typed its locals");
        Local { name: draft.name, ty }
    };
    Ok(Draft {
        roles,
        locals: locals.into_iter().map(local).collect(),
        loops,
        body,
        reasons: reasons.finish(),
        seen,
        passes_event,
        committed: committed.unwrap_or_else(pass),
        emits,
        aborted,
    })
}

/// Notes what is read to find the rows of roles: by dependent keys, and by selections and the values in them.
fn found_by(drafts: &[RoleDraft], usage: &mut [Usage]) {
    for part in drafts.iter().flat_map(|draft| draft.key.iter().chain(draft.selection.values())) {
        part.each(&mut |inner| {
            if let Node::Cell { role, column, .. } = inner.node {
                usage[role].reads.insert(column);
            }
        });
    }
    for (draft, usage) in drafts.iter().zip(usage) {
        usage.reads.extend(draft.selection.columns());
    }
}

/// Returns the columns that an abort shows: for each role its key, then what the body reads or sets. A window is no
/// value to show, and chosen rows are too many.
fn seen(roles: &[Role], tables: &TiSlice<TableId, Table>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let is_shown = |role: &Role| !tables[role.table].is_hidden && !role.is_chosen();
    for (index, role) in roles.iter().enumerate().filter(|(_, role)| is_shown(role)) {
        let key = &tables[role.table].key;
        let used: BTreeSet<usize> = role.reads.iter().chain(&role.writes).copied().collect();
        let columns = &tables[role.table].columns;
        let others = used.into_iter().filter(|column| !key.contains(column) && columns[*column].window.is_none());
        seen.extend(key.iter().copied().chain(others).map(|column| Seen { role: index, column }));
    }
    seen
}

fn aborted(event: &Schema, seen: &[Seen], roles: &[Role], tables: &TiSlice<TableId, Table>) -> Schema {
    let seen: Vec<Field> = seen
        .iter()
        .map(|seen| {
            let role = &roles[seen.role];
            let column = &tables[role.table].columns[seen.column];
            Field::scalar(format!("{}.{}", role.name, column.name), ColumnType::optional(column.ty.ty))
        })
        .collect();
    with_reason(event, seen)
}

/// Makes an event's fields, the reason of its failure, and `more`. A field of the event whose name is taken by what was
/// added goes by `event.name`.
pub(super) fn with_reason(event: &Schema, more: Vec<Field>) -> Schema {
    let mut added = vec![Field::scalar("reason", Type::Str.into())];
    added.extend(more);
    let mut fields: Vec<Field> = Vec::new();
    for (index, field) in event.fields.iter().enumerate() {
        let taken = |name: &str| {
            let others = event.fields.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, f)| f);
            added.iter().chain(others).any(|f| f.name == name) || fields.iter().any(|f| f.name == name)
        };
        let mut field = field.clone();
        while taken(&field.name) {
            field.name.insert_str(0, "event.");
        }
        fields.push(field);
    }
    fields.extend(added);
    Schema { fields }
}

/// Returns the properties that several inputs have in common; faults where their fields differ.
pub(super) fn common<'a>(inputs: &[Given<'a>]) -> Checked<Input<'a>> {
    let Some(&Given { name: first, schema, event_time, .. }) = inputs.first() else {
        return Err(Fault::new("it has no input").hint("name a stream whose events it runs on"));
    };
    let is_late = inputs.iter().any(|given| given.is_late);
    let has_places = inputs.iter().any(|given| given.has_places);
    let mut input = Input { schema, event_time, is_late, has_places };
    for &Given { name, schema: other, event_time: time, .. } in inputs {
        if other != schema {
            return Err(Fault::new(format!("its inputs differ: '{first}' is {{{schema}}}, '{name}' is {{{other}}}"))
                .hint("map them to one event class"));
        }
        if time != event_time {
            input.event_time = None;
        }
    }
    Ok(input)
}
