//! The columns in which a window over a stream keeps its events: those that its aggregates are read from.
//!
//! Where a row is deleted when its window closes, most aggregates are plain cells. The others, and all of sliding windows,
//! are windowed columns ([`crate::window`]), whose slices are summed exactly.

use super::content;
use super::fault::{Checked, Fault};
use super::picks::{Picks, Which};
use super::position::ONE_SLICE;
use super::rewrite::{self, placeless};
use super::scope::Scope;
use super::types::zero;
use super::writing::{FRESH, ORDER, WINDOW, column, set, when};
use crate::build::{cell, local, window};
use crate::{
    Aggregate, Ask, ColumnDef, DefinitionPart, Expr, ExprNode, Fold, Function, Merge, Periods, Stmt, Synopsis, Table,
    Unit, WindowDef, WindowFunction, WindowPart, Windows, WindowsDef,
};
use tidemill_model::{ColumnType, Type, Value};

/// The most parts with early results that a window has: as many as ticks follow from an event.
const EARLY_MAX: i64 = 10_000;

/// Returns a length in units of the event time, which has the type `time`. `what` it is in messages.
pub(super) fn units(what: &str, value: &Value, time: Option<Type>) -> Checked<i64> {
    match (value, time) {
        (Value::Duration(length @ 1..), Some(Type::Time)) | (Value::Int(length @ 1..), Some(Type::Int)) => Ok(*length),
        (Value::Duration(1..) | Value::Int(1..), _) => {
            let (has, unit) = if time == Some(Type::Int) { ("an int", "an int") } else { ("a Time", "a duration") };
            let literal = crate::print::literal(value);
            Err(Fault::new(format!("the event time is {has}, but the {what} is {literal}"))
                .hint(format!("give {unit}")))
        }
        _ => Err(Fault::new(format!("the {what} is {}", crate::print::literal(value)))
            .hint("give a duration greater than zero, or an int where the event time is one")),
    }
}

/// The windows of each group; lengths in the unit of the event time.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    Tumbling { length: i64, origin: i64 },
    Sliding { length: i64, every: i64, origin: i64 },
    Calendar(&'a Periods),
    Session { gap: i64 },
    Counting { count: i64 },
}

impl<'a> Kind<'a> {
    /// Checks what is declared; `time` is the type of the input's event time.
    pub fn of(windows: &'a WindowsDef, time: Option<Type>) -> Checked<Kind<'a>> {
        let length = |what: &str, value: &Value| units(&format!("{what} of the windows"), value, time);
        Ok(match windows {
            WindowsDef::Tumbling { length: of, origin } => {
                let length = length("length", of)?;
                Kind::Tumbling { length, origin: origin.rem_euclid(length) }
            }
            WindowsDef::Sliding { length: of, every, origin } => {
                let (length, slide) = (length("length", of)?, length("slide", every)?);
                if length % slide != 0 {
                    let (of, every) = (crate::print::literal(of), crate::print::literal(every));
                    return Err(Fault::new(format!("windows of {of} are no whole number of slides of {every}"))
                        .hint("give a slide that divides the length"));
                }
                let origin = origin.rem_euclid(slide);
                if length == slide {
                    Kind::Tumbling { length, origin }
                } else {
                    Kind::Sliding { length, every: slide, origin }
                }
            }
            WindowsDef::Calendar(periods) if time == Some(Type::Time) => {
                periods.check()?;
                Kind::Calendar(periods)
            }
            WindowsDef::Calendar(_) => {
                return Err(Fault::new("the windows are of a calendar, but the event time is an int")
                    .hint("give a length that is an int"));
            }
            WindowsDef::Session { gap } => Kind::Session { gap: length("gap", gap)? },
            WindowsDef::Counting { count: count @ 1..=65536 } => Kind::Counting { count: *count },
            WindowsDef::Counting { count } => {
                return Err(Fault::new(format!("the windows are of {count} events")).hint("give 1 to 65536"));
            }
        })
    }

    /// Returns the distance of early results, where such are asked for: a part of the time from a close to the next.
    pub fn early(self, early: Option<&Value>, time: Option<Type>) -> Checked<Option<i64>> {
        let Some(value) = early else { return Ok(None) };
        let (length, whole) = match self {
            Kind::Tumbling { length, .. } => (length, "windows"),
            Kind::Sliding { every, .. } => (every, "slides of the windows"),
            Kind::Calendar(_) => {
                return Err(Fault::new("windows of a calendar have no early results")
                    .hint("take windows of a length that is always the same"));
            }
            Kind::Session { .. } => {
                return Err(
                    Fault::new("sessions have no early results").hint("their end is known when they close only")
                );
            }
            Kind::Counting { .. } => {
                return Err(Fault::new("windows by count have no early results").hint("count fewer events"));
            }
        };
        let early = units("distance of the early results of the windows", value, time)?;
        let each = crate::print::literal(value);
        if early >= length || length % early != 0 {
            return Err(Fault::new(format!("early results each {each} do not divide the {whole}"))
                .hint("give a part of their length, of which they have a whole number"));
        }
        if length / early > EARLY_MAX {
            return Err(Fault::new(format!("a window has {} early results", length / early - 1))
                .hint(format!("give at least a part in {EARLY_MAX} of the length")));
        }
        Ok(Some(early))
    }

    /// Returns them as declared.
    pub fn windows(self) -> Windows {
        match self {
            Kind::Tumbling { length, origin } => Windows::Tumbling { length, origin },
            Kind::Sliding { length, every, origin } => Windows::Sliding { length, every, origin },
            Kind::Calendar(periods) => Windows::Calendar(periods.clone()),
            Kind::Session { gap } => Windows::Session { gap },
            Kind::Counting { count } => Windows::Counting { count },
        }
    }

    /// Returns the name of the column that says when a row is due. A state does not fit a program with windows of
    /// another kind.
    pub fn due_column(self) -> String {
        match self {
            Kind::Tumbling { length, origin } => format!("due_tumbling_{length}_{origin}"),
            Kind::Sliding { length, every, origin } => format!("due_sliding_{length}_{every}_{origin}"),
            Kind::Calendar(periods) => format!("due_calendar_{}", name_of(periods)),
            Kind::Session { gap } => format!("due_session_{gap}"),
            Kind::Counting { count } => format!("due_counting_{count}"),
        }
    }

    /// Returns the length and slide of sliding windows, as they are written in a plan.
    pub fn slices(self, time: Option<Type>) -> Option<(Value, Value)> {
        let Kind::Sliding { length, every, .. } = self else { return None };
        let span = |units| if time == Some(Type::Int) { Value::Int(units) } else { Value::Duration(units) };
        Some((span(length), span(every)))
    }

    pub fn origin(self) -> i64 {
        match self {
            Kind::Tumbling { origin, .. } | Kind::Sliding { origin, .. } => origin,
            Kind::Calendar(_) | Kind::Session { .. } | Kind::Counting { .. } => 0,
        }
    }
}

/// Returns a part of a name that tells periods apart. The changes of the clock do not: an open window keeps its start
/// and its end.
fn name_of(Periods { unit, zone }: &Periods) -> String {
    let zone: String =
        zone.name.replace('+', "plus").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match unit {
        Unit::Span { length, origin } => format!("{length}_{origin}_{zone}"),
        Unit::Months(count) => format!("months_{count}_{zone}"),
    }
}

/// A column that aggregates are read from.
struct Cell {
    what: What,
    value: Option<Expr>,
    by: Option<Expr>,
    definition: ColumnDef,
    /// The type of the value.
    ty: ColumnType,
    adds: Vec<Stmt>,
}

/// The content of a column.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The number of events, or of values.
    Count,
    Least,
    Greatest,
    First,
    Last,
    /// The `by` of the event that stands in the next column.
    Best(WindowFunction),
    /// The value of that event.
    At(WindowFunction),
    Any,
    All,
    /// Values by slices: sums, and in sliding windows everything.
    Values,
    /// Distinct values by slices.
    Distinct,
    /// Sums of values and of their squares by slices.
    Moments,
    /// The number of values by slices, whatever they are.
    Present,
    /// A synopsis of the values.
    Synopsis(Synopsis),
}

impl What {
    /// Returns the beginning of the names of columns.
    fn word(self) -> &'static str {
        match self {
            What::Count => "count",
            What::Least => "min",
            What::Greatest => "max",
            What::First => "first",
            What::Last => "last",
            What::Best(WindowFunction::ArgMin) => "least",
            What::Best(_) => "greatest",
            What::At(WindowFunction::ArgMin) => "at_least",
            What::At(_) => "at_greatest",
            What::Any => "any",
            What::All => "all",
            What::Values => "values",
            What::Distinct => "distinct",
            What::Moments => "moments",
            What::Present => "present",
            What::Synopsis(of) => of.name(),
        }
    }
}

/// The merges of cells, by name of a column. Cells of the others stay.
pub(super) struct Merges(Vec<(String, Kept)>);

/// A merge as in [`Merge`], before columns have numbers.
enum Kept {
    Plain(Merge),
    Best {
        greatest: bool,
        with: Vec<String>,
    },
    /// The merge that the column's window says.
    Window,
}

impl Merges {
    /// Adds a column that is merged as it says.
    pub fn with(mut self, column: &str, merge: Merge) -> Merges {
        self.0.push((column.into(), Kept::Plain(merge)));
        self
    }

    /// Adds the column of the places of events in sliding windows, which are all 0 where there is one group.
    pub fn with_places(mut self) -> Merges {
        self.0.push((ORDER.into(), Kept::Window));
        self
    }

    /// Returns the fold, with numbers for columns.
    pub fn fold(&self, table: &Table) -> Fold {
        let number = |name: &String| table.columns.iter().position(|column| column.name == *name).expect("it is there");
        let mut columns = vec![Merge::Stays; table.columns.len()];
        for (name, kept) in &self.0 {
            let column = number(name);
            columns[column] = match kept {
                Kept::Plain(merge) => merge.clone(),
                Kept::Best { greatest, with } => {
                    Merge::Best { greatest: *greatest, with: with.iter().map(number).collect() }
                }
                Kept::Window => Merge::Window(table.columns[column].window.expect("it is a window")),
            };
        }
        Fold { columns }
    }
}

/// The columns of a window's table that its aggregates need.
pub(super) struct Cells<'a> {
    kind: Kind<'a>,
    time: Option<Type>,
    /// A flag: whether a window may be without events.
    may_be_empty: bool,
    cells: Vec<Cell>,
    /// The events that sliding windows pick.
    picks: Picks,
    fault: Option<Fault>,
}

impl<'a> Cells<'a> {
    pub fn new(kind: Kind<'a>, time: Option<Type>, may_be_empty: bool) -> Cells<'a> {
        let picks = Picks::new(may_be_empty);
        let mut cells = Cells { kind, time, may_be_empty, cells: Vec::new(), picks, fault: None };
        if matches!(kind, Kind::Counting { .. }) {
            cells.cell(What::Count, None, None, Type::Int.into());
        }
        cells
    }

    /// Returns the expression for an aggregate, once this was called for all that are asked.
    pub fn replace(&mut self, expr: &Expr, scope: &mut Scope<'_>) -> Option<ExprNode> {
        let ExprNode::Aggregate { function, value, by, argument } = &expr.node else { return None };
        let (value, by) = (value.as_deref().map(placeless), by.as_deref().map(placeless));
        let found = match (function.asks(), &value) {
            (Some(asks), Some(value)) => self.synopsis(expr, asks, value, argument.as_deref(), scope),
            _ => self.aggregate(expr, *function, value, by, scope),
        };
        match found {
            Ok(expr) => Some(expr.node),
            Err(fault) => {
                self.fault = self.fault.take().or(Some(fault.at(expr.span)));
                Some(ExprNode::Literal(Value::Null))
            }
        }
    }

    /// Returns the first fault.
    pub fn finish(&mut self) -> Checked<()> {
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Returns the columns.
    pub fn columns(&self) -> Vec<ColumnDef> {
        let own = self.cells.iter().map(|cell| cell.definition.clone());
        let Kind::Sliding { length, every, .. } = self.kind else { return own.collect() };
        let picks = self.picks.columns(&WindowDef::Latest { span: self.span(length), slide: Some(self.span(every)) });
        std::iter::once(self.windowed(ORDER, Type::Int, What::Values)).chain(own).chain(picks).collect()
    }

    /// Returns the definition of each column that keeps events.
    pub fn keeps(&self) -> Vec<DefinitionPart> {
        let of = |cell: &Cell| {
            let word = cell.what.word();
            let text = |expr: &Expr| expr.to_string().replace("ev.", "");
            let shown = match (&cell.value, &cell.by) {
                (Some(value), Some(by)) => {
                    format!("{} at the {} {}", text(value), word.trim_start_matches("at_"), text(by))
                }
                (None, Some(by)) => format!("the {word} {}", text(by)),
                (Some(value), None) => format!("{word} of {}", text(value)),
                (None, None) => format!("the {word} of events"),
            };
            let all = cell.by.iter().chain(&cell.value).map(content::expression).collect::<Vec<_>>();
            let content = format!("{word} {} {} {}", cell.by.is_some(), cell.ty.nullable, all.join("\n"));
            DefinitionPart::new(&cell.definition.name, shown, &content)
        };
        self.cells.iter().map(of).chain(self.picks.keeps()).collect()
    }

    /// Returns the statements that add an event; `number` is that of the event.
    pub fn adds(&self, number: Expr) -> Vec<Stmt> {
        let of = |cell: &Cell| match cell.what {
            What::Best(function) => self.choose(cell, function),
            _ => cell.adds.clone(),
        };
        // Additions to windows come last: they are made in place if nothing after them can abort.
        let is_plain = |cell: &&Cell| cell.definition.window.is_none();
        let (plain, windowed): (Vec<&Cell>, Vec<&Cell>) = self.cells.iter().partition(is_plain);
        let own = plain.into_iter().chain(windowed).flat_map(of);
        let Kind::Sliding { every, .. } = self.kind else { return own.collect() };
        std::iter::once(add(ORDER, number)).chain(own).chain(self.picks.adds(&self.span(every))).collect()
    }

    /// Returns the statements before those of the function: they pick events of sliding windows.
    pub fn choices(&self) -> Vec<Stmt> {
        self.picks.choose()
    }

    /// Takes over the event, where it is better than the best so far.
    fn choose(&self, best: &Cell, function: WindowFunction) -> Vec<Stmt> {
        let by = || best.by.clone().expect("it is ordered by something");
        let best_cell = || cell(WINDOW, &best.definition.name);
        let better = if function == WindowFunction::ArgMin { by().lt(best_cell()) } else { by().gt(best_cell()) };
        let mut none = if best.ty.nullable { best_cell().is_null() } else { local(FRESH) };
        if best.ty.ty == Type::Float {
            // A NaN is better than nothing only.
            none = none.or(best_cell().ne(best_cell()));
        }
        let values = self.values_of(best, function);
        let put = |other: &Cell| set(WINDOW, &other.definition.name, other.value.clone().expect("it has a value"));
        let put = std::iter::once(set(WINDOW, &best.definition.name, by())).chain(values.map(put));
        let choose = when(none.or(better), put.collect());
        if best.ty.nullable { vec![when(!by().is_null(), vec![choose])] } else { vec![choose] }
    }

    /// Returns the merges of the rows' cells; none if some cannot be merged.
    pub fn merges(&self) -> Option<Merges> {
        let merge = |cell: &Cell| {
            let is_text = cell.definition.window.is_none() && cell.definition.ty.ty.is_bytes();
            let kept = match cell.what {
                _ if is_text => return None,
                What::Count => Kept::Plain(Merge::Sum),
                What::Least => Kept::Plain(Merge::Least),
                What::Greatest => Kept::Plain(Merge::Greatest),
                What::Any => Kept::Plain(Merge::Any),
                What::All => Kept::Plain(Merge::All),
                // Best takes the values of its event along.
                What::First | What::At(_) => Kept::Plain(Merge::Stays),
                What::Last => Kept::Plain(Merge::Last),
                What::Best(_) if cell.ty.ty == Type::Float => return None,
                What::Best(function) => {
                    let with = self.values_of(cell, function).map(|of| of.definition.name.clone()).collect();
                    Kept::Best { greatest: function == WindowFunction::ArgMax, with }
                }
                What::Values | What::Moments | What::Present => Kept::Window,
                What::Distinct | What::Synopsis(_) => return None,
            };
            Some((cell.definition.name.clone(), kept))
        };
        self.cells.iter().map(merge).collect::<Option<_>>().filter(|_| self.picks.is_empty()).map(Merges)
    }

    /// Returns the columns of the values that stand beside the best.
    fn values_of<'c>(&'c self, best: &'c Cell, function: WindowFunction) -> impl Iterator<Item = &'c Cell> {
        self.cells.iter().filter(move |other| other.what == What::At(function) && other.by == best.by)
    }

    /// Returns the number of events in a window by count.
    pub fn count(&self) -> Expr {
        cell(WINDOW, &self.cells[0].definition.name)
    }

    /// Returns the number of events of a group in the last `span` of sliding windows, and the number of the first.
    pub fn rest(&self, span: i64) -> (Expr, Expr) {
        let of = |aggregate| window(WINDOW, ORDER, Some(WindowPart::Span(self.span(span))), aggregate);
        (of(Aggregate::Count), of(Aggregate::Min))
    }

    fn is_sliding(&self) -> bool {
        matches!(self.kind, Kind::Sliding { .. })
    }

    fn span(&self, length: i64) -> Value {
        if self.time == Some(Type::Int) { Value::Int(length) } else { Value::Duration(length) }
    }

    fn aggregate(
        &mut self,
        surface: &Expr,
        function: WindowFunction,
        value: Option<Expr>,
        by: Option<Expr>,
        scope: &mut Scope<'_>,
    ) -> Checked<Expr> {
        use WindowFunction as F;
        let Some(value) = value else {
            if function != F::Count {
                return Err(Fault::new(format!("{surface} has no value")).hint(format!("write w.field.{function}()")));
            }
            if self.is_sliding() {
                return Ok(window(WINDOW, ORDER, None, Aggregate::Count));
            }
            return Ok(self.cell(What::Count, None, None, Type::Int.into()));
        };
        let ty = pure(&value, scope)?;
        if let (F::ArgMin | F::ArgMax, Some(by)) = (function, by) {
            let by_ty = pure(&by, scope)?;
            if by_ty.ty == Type::Bool {
                return Err(Fault::new(format!("{surface} orders events by a bool")).hint("order by an int"));
            }
            if self.is_sliding() {
                let which = if function == F::ArgMin { Which::Least } else { Which::Greatest };
                return Ok(self.picks.value(which, Some((by, by_ty)), (value, ty)));
            }
            self.cell(What::Best(function), None, Some(by.clone()), by_ty);
            let ty = if by_ty.nullable { ColumnType::optional(ty.ty) } else { ty };
            return Ok(self.cell(What::At(function), Some(value), Some(by), ty));
        }
        self.check(surface, function, ty)?;
        let once = !self.is_sliding();
        let is_float = ty.ty == Type::Float;
        Ok(match function {
            F::Count if once => self.cell(What::Count, Some(value), None, ty),
            F::Count if ty.ty.is_bytes() => {
                let name = self.column(What::Present, Some(value), None, ty);
                window(WINDOW, &name, None, Aggregate::Count)
            }
            F::Count => self.values(value, ty, Aggregate::Count),
            F::Sum => self.values(value, ty, Aggregate::Sum),
            F::Mean => self.never_null(ty, value, Aggregate::Mean),
            F::Min if once && !is_float => self.cell(What::Least, Some(value), None, ty),
            F::Max if once && !is_float => self.cell(What::Greatest, Some(value), None, ty),
            F::Min => self.never_null(ty, value, Aggregate::Min),
            F::Max => self.never_null(ty, value, Aggregate::Max),
            F::First if once => self.cell(What::First, Some(value), None, ty),
            F::Last if once => self.cell(What::Last, Some(value), None, ty),
            F::First => self.picks.value(Which::First, None, (value, ty)),
            F::Last => self.picks.value(Which::Last, None, (value, ty)),
            F::Any | F::All if once => {
                self.cell(if function == F::Any { What::Any } else { What::All }, Some(value), None, Type::Bool.into())
            }
            F::Any => self.values(value, Type::Bool.into(), Aggregate::Max).eq(1),
            F::All => self.values(value, Type::Bool.into(), Aggregate::Min).ne(0),
            F::Distinct => {
                let name = self.column(What::Distinct, Some(value), None, ty);
                window(WINDOW, &name, None, Aggregate::Distinct)
            }
            F::Variance => self.spread(value, ty, Aggregate::Variance),
            F::Stddev => self.spread(value, ty, Aggregate::Stddev),
            F::Pvariance => self.spread(value, ty, Aggregate::Pvariance),
            F::Pstddev => self.spread(value, ty, Aggregate::Pstddev),
            F::TopValue | F::TopCount | F::ApproxDistinct | F::ApproxQuantile | F::ApproxCount => {
                unreachable!("they are asked of synopses")
            }
            F::ArgMin | F::ArgMax => {
                return Err(Fault::new(format!("{surface} does not say by what")).hint("write w.argmax(\"field\")"));
            }
        })
    }

    /// Returns the value that is asked of a synopsis of values.
    fn synopsis(
        &mut self,
        surface: &Expr,
        (of, ask): (Synopsis, Ask),
        value: &Expr,
        argument: Option<&Expr>,
        scope: &mut Scope<'_>,
    ) -> Checked<Expr> {
        let ty = pure(value, scope)?;
        let name = match of {
            Synopsis::Counts => "top",
            Synopsis::Registers => "approx_distinct",
            Synopsis::Buckets => "approx_quantile",
            Synopsis::Counters => "approx_count",
        };
        let shown = format!("w.{}.{name}()", value.to_string().trim_start_matches("ev."));
        let refuse = |hint: &str| Err(Fault::new(format!("{shown} is asked of {}", ty.ty)).hint(hint));
        match (of, ty.ty) {
            (Synopsis::Buckets, Type::Int | Type::Float | Type::Decimal { .. }) => {}
            (Synopsis::Buckets, _) => return refuse("only numbers have it"),
            (_, Type::Float) => {
                return refuse("floats that are nearly equal are different; use a Decimal or an int");
            }
            (_, Type::Bool) => return refuse("ask for any(), all(), or the sum of a map to ints"),
            _ => {}
        }
        let Some(argument) = argument else {
            return Err(Fault::new(format!("{surface} does not say what is asked")));
        };
        let argument = rewrite::expression(argument, &mut |expr| self.replace(expr, scope));
        let column = self.column(What::Synopsis(of), Some(value.clone()), None, ty);
        let (role, argument) = (WINDOW.into(), Box::new(argument));
        Ok(ExprNode::Synopsis { role, column, ask, argument }.into())
    }

    fn check(&self, surface: &Expr, function: WindowFunction, ty: ColumnType) -> Checked<()> {
        use WindowFunction as F;
        let is_number = matches!(ty.ty, Type::Int | Type::Float | Type::Decimal { .. });
        let fits = match function {
            F::Sum | F::Mean | F::Variance | F::Stddev | F::Pvariance | F::Pstddev => is_number,
            F::Min | F::Max => is_number || ty.ty == Type::Time,
            F::Any | F::All => ty.ty == Type::Bool,
            F::Distinct => ty.ty != Type::Float && ty.ty != Type::Bool,
            _ => true,
        };
        let hint = match function {
            F::Distinct if ty.ty == Type::Float => {
                "floats that are nearly equal are different; use a Decimal or an int"
            }
            F::Any | F::All => "only bools have it",
            F::Min | F::Max => "only numbers and times have it",
            _ => "only numbers have it",
        };
        if fits { Ok(()) } else { Err(Fault::new(format!("{surface} is asked of {}", ty.ty)).hint(hint)) }
    }

    /// Returns an aggregate of values by slices.
    fn values(&mut self, value: Expr, ty: ColumnType, aggregate: Aggregate) -> Expr {
        let name = self.column(What::Values, Some(value), None, ty);
        window(WINDOW, &name, None, aggregate)
    }

    /// Returns a variance or standard deviation. A window by count keeps its values.
    fn spread(&mut self, value: Expr, ty: ColumnType, aggregate: Aggregate) -> Expr {
        let what = if matches!(self.kind, Kind::Counting { .. }) { What::Values } else { What::Moments };
        let name = self.column(what, Some(value), None, ty);
        window(WINDOW, &name, None, aggregate)
    }

    /// Returns what [`Cells::values`] does, for an aggregate that a window without events does not have.
    fn never_null(&mut self, ty: ColumnType, value: Expr, aggregate: Aggregate) -> Expr {
        let read = self.values(value, ty, aggregate);
        if ty.nullable || self.may_be_empty { read } else { ExprNode::OrZero(Box::new(read)).into() }
    }

    fn cell(&mut self, what: What, value: Option<Expr>, by: Option<Expr>, ty: ColumnType) -> Expr {
        cell(WINDOW, self.column(what, value, by, ty))
    }

    /// Returns the name of a column, which is made where there is none yet.
    fn column(&mut self, what: What, value: Option<Expr>, by: Option<Expr>, ty: ColumnType) -> String {
        let known = self.cells.iter().find(|cell| cell.what == what && cell.value == value && cell.by == by);
        if let Some(known) = known {
            return known.definition.name.clone();
        }
        let name = self.name(what, value.as_ref(), by.as_ref());
        let (definition, adds) = self.kept(what, &name, value.as_ref(), ty);
        self.cells.push(Cell { what, value, by, definition, ty, adds });
        name
    }

    /// Returns the name of the column. It says what it keeps, so that a state does not fit a program which keeps
    /// something else.
    fn name(&self, what: What, value: Option<&Expr>, by: Option<&Expr>) -> String {
        let mut name = what.word().to_owned();
        for of in by.into_iter().chain(value) {
            let text = of.to_string().replace("ev.", "");
            name.push('_');
            name.extend(text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }));
        }
        while self.cells.iter().any(|cell| cell.definition.name == name) {
            name.push('_');
        }
        name
    }

    /// Returns a column, and what adds an event to it.
    fn kept(&self, what: What, name: &str, value: Option<&Expr>, ty: ColumnType) -> (ColumnDef, Vec<Stmt>) {
        let own = || cell(WINDOW, name);
        let given = || value.cloned().expect("it is of a value");
        let zero_of = |ty: ColumnType| if ty.nullable { Value::Null } else { zero(ty.ty) };
        let plain = |ty: ColumnType| column(name, ty, false, Some(zero_of(ty)));
        // There is none of a window without events.
        let perhaps = |ty: ColumnType| plain(if self.may_be_empty { ColumnType::optional(ty.ty) } else { ty });
        let fresh = || local(FRESH);
        // Wraps the statements so that they run only if there is a value.
        let there = |statements: Vec<Stmt>| match ty.nullable {
            true => vec![when(!given().is_null(), statements)],
            false => statements,
        };
        let present = || if ty.nullable { ExprNode::OrZero(Box::new(given())).into() } else { given() };
        match what {
            What::Count if value.is_none() => (plain(Type::Int.into()), vec![set(WINDOW, name, own() + 1)]),
            What::Count => (plain(Type::Int.into()), there(vec![set(WINDOW, name, own() + 1)])),
            What::Least | What::Greatest => {
                let better = if what == What::Least { given().lt(own()) } else { given().gt(own()) };
                let none = if ty.nullable { own().is_null() } else { fresh() };
                let put = vec![set(WINDOW, name, given())];
                // A comparison with None has no value, so it comes only where there is one.
                (perhaps(ty), there(vec![when(none.or(better), put)]))
            }
            What::First => (perhaps(ty), vec![when(fresh(), vec![set(WINDOW, name, given())])]),
            What::Last => (perhaps(ty), vec![set(WINDOW, name, given())]),
            What::Best(_) => (plain(ty), Vec::new()),
            What::At(_) => (perhaps(ty), Vec::new()),
            What::Any | What::All => {
                let starts = what == What::All;
                let meets = if starts { !present() } else { present() };
                let put = vec![set(WINDOW, name, !starts)];
                let definition = column(name, Type::Bool, false, Some(Value::Bool(starts)));
                (definition, there(vec![when(meets, put)]))
            }
            What::Values if ty.ty == Type::Bool => {
                (self.windowed(name, Type::Int, what), there(vec![add(name, present().call(Function::Int, []))]))
            }
            What::Present => (self.windowed(name, Type::Int, what), there(vec![add(name, 1.into())])),
            What::Values | What::Distinct | What::Moments | What::Synopsis(_) => {
                (self.windowed(name, ty.ty, what), there(vec![add(name, present())]))
            }
        }
    }

    /// Returns a windowed column over the window.
    fn windowed(&self, name: &str, ty: Type, what: What) -> ColumnDef {
        let spans = |length, slide| {
            let (span, slide) = (self.span(length), Some(self.span(slide)));
            match what {
                What::Moments => WindowDef::Moments { span, slide },
                _ => WindowDef::Span { span, slide, distinct: what == What::Distinct },
            }
        };
        if let What::Synopsis(of) = what {
            // Elsewhere a row stands for one window.
            let slices = self.kind.slices(self.time);
            return ColumnDef { window: Some(WindowDef::Synopsis { of, slices }), ..column(name, ty, false, None) };
        }
        let of = match self.kind {
            Kind::Tumbling { length, .. } => spans(length, length),
            Kind::Sliding { length, every, .. } => spans(length, every),
            Kind::Calendar(_) | Kind::Session { .. } => spans(2 * ONE_SLICE, ONE_SLICE),
            Kind::Counting { count } => WindowDef::Last(count),
        };
        ColumnDef { window: Some(of), ..column(name, ty, false, None) }
    }
}

/// Returns the type of a value over the fields of an event; it must not fail.
fn pure(value: &Expr, scope: &mut Scope<'_>) -> Checked<ColumnType> {
    let typed = scope.expression(value)?;
    match scope.reasons.first() {
        Some(reason) => Err(Fault::new(format!("{value} could fail: {reason}"))
            .hint("compute it in a map, and take windows of the mapped stream")),
        None => Ok(typed.ty),
    }
}

fn add(column: &str, value: Expr) -> Stmt {
    super::writing::add(WINDOW, column, value)
}
