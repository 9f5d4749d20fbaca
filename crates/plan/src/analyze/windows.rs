//! Windowed columns: what is declared, what is added, what is asked.

use super::coerce::constant;
use super::fault::{Checked, Fault};
use super::position::{ONE_SLICE, PositionTime};
use super::scope::{Scope, Site};
use super::types::decimal;
use crate::program::{Expr as Typed, Node, WordOp};
use crate::{Aggregate, Ask, ColumnDef, Expr, Keep, LoopId, RoleId, Slices, Synopsis, Window, WindowDef, WindowPart};
use tidemill_model::{ColumnType, Type, Value};

/// The most values that a window of a number of last values may have: an add moves all of them.
const LAST_MAX: i64 = 1 << 16;

/// A span of time, its length in the unit of the event time.
#[derive(Clone, Copy, PartialEq)]
struct Span {
    length: i64,
    /// The type of the event time.
    time: Type,
}

/// Returns the window of a column.
pub(super) fn declared(def: &ColumnDef, window: &WindowDef) -> Checked<Window> {
    let (name, value) = (&def.name, def.ty.ty);
    if def.key || def.default.is_some() {
        let what = if def.key { "the key" } else { "a default" };
        return Err(Fault::new(format!("'{name}' is a window and {what}")).hint("a window begins empty"));
    }
    if def.ty.nullable {
        return Err(Fault::new(format!("the values of the window '{name}' may be None"))
            .hint("add a value only where there is one"));
    }
    let keep = match window {
        WindowDef::Last(count @ 1..=LAST_MAX) => Keep::Last(*count),
        WindowDef::Last(count) => {
            return Err(
                Fault::new(format!("'{name}' keeps the last {count} values")).hint(format!("keep 1 to {LAST_MAX}"))
            );
        }
        WindowDef::Span { span, slide, distinct } => {
            let slices = slices(name, span, slide.as_ref())?;
            if *distinct { Keep::Distinct(slices) } else { Keep::Slices(slices) }
        }
        WindowDef::Moments { span, slide } => Keep::Moments(slices(name, span, slide.as_ref())?),
        WindowDef::Synopsis { of, slices: None } => Keep::Synopsis(*of, None),
        WindowDef::Synopsis { of, slices: Some((span, slide)) } => {
            Keep::Synopsis(*of, Some(slices(name, span, Some(slide))?))
        }
        WindowDef::Records { span, slide } => Keep::Records(slices(name, span, slide.as_ref())?),
        WindowDef::Latest { span, slide } => Keep::Latest(slices(name, span, slide.as_ref())?),
    };
    let fits = match keep {
        Keep::Slices(_) => value.is_word() || value == Type::Float,
        Keep::Distinct(_) => value.is_word() || value.is_bytes(),
        Keep::Records(_) | Keep::Latest(_) => value == Type::Bytes,
        Keep::Moments(_) => matches!(value, Type::Int | Type::Float | Type::Decimal { .. }),
        Keep::Synopsis(Synopsis::Buckets, _) => matches!(value, Type::Int | Type::Float | Type::Decimal { .. }),
        Keep::Synopsis(..) => value.is_word() || value.is_bytes(),
        Keep::Last(_) => value.is_word() || value == Type::Float || value.is_bytes(),
    };
    if fits {
        return Ok(Window { value, keep });
    }
    let hint = match (keep, value) {
        (Keep::Records(_) | Keep::Latest(_), _) => "a record is bytes",
        (Keep::Moments(_), _) => "only numbers have variances",
        (Keep::Synopsis(Synopsis::Buckets, _), _) => "only numbers have quantiles",
        (_, Type::Bool) => "keep an int, as in int(x)",
        (Keep::Distinct(_) | Keep::Synopsis(..), _) => {
            "floats that are nearly equal are different; use a Decimal or an int"
        }
        _ => "of texts the distinct ones can be kept: distinct=True",
    };
    Err(Fault::new(format!("the window '{name}' keeps {value}")).hint(hint))
}

fn slices(name: &str, span: &Value, slide: Option<&Value>) -> Checked<Slices> {
    let whole = duration(&format!("the window '{name}'"), span)?;
    let slide = match slide {
        None => Span { length: 1, ..whole },
        Some(slide) => duration(&format!("the slide of '{name}'"), slide)?,
    };
    if slide.time != whole.time || whole.length % slide.length != 0 {
        let slices = Slices { count: 1, slide: slide.length, time: slide.time };
        let (span, slide) = (crate::print::literal(span), slices.span(1));
        return Err(Fault::new(format!("the window '{name}' of {span} is no whole number of slides of {slide}"))
            .hint("give a slide that divides it"));
    }
    Ok(Slices { count: whole.length / slide.length, slide: slide.length, time: whole.time })
}

fn duration(what: &str, span: &Value) -> Checked<Span> {
    match span {
        Value::Duration(length @ 1..) => Ok(Span { length: *length, time: Type::Time }),
        Value::Int(length @ 1..) => Ok(Span { length: *length, time: Type::Int }),
        other => Err(Fault::new(format!("{what} has a span of {}", crate::print::literal(other)))
            .hint("a span is a duration greater than zero, or an int where the event time is one")),
    }
}

impl Scope<'_> {
    /// Returns a window with one more value.
    pub fn window_with(
        &mut self,
        role: RoleId,
        element: Option<LoopId>,
        column: usize,
        value: &Expr,
    ) -> Checked<Typed> {
        let (name, window) = self.window_of(role, column)?;
        let typed = self.expression(value)?;
        let value = self.store(typed, window.value.into(), value, &format!("a value of {name}"))?;
        let time = self.window_time(role, &name, &window)?;
        let cell = Box::new(self.read(role, element, column));
        let node = Node::WindowAdd { window, cell, time: Box::new(time), value: Box::new(value) };
        Ok(Typed { ty: Type::Bytes.into(), node })
    }

    /// Returns an aggregate of a window, or of a part of it.
    pub fn window(
        &mut self,
        surface: &Expr,
        role: &str,
        column: &str,
        part: Option<&WindowPart>,
        aggregate: Aggregate,
    ) -> Checked<Typed> {
        if self.site != Site::Body {
            return Err(Fault::new(format!("{surface} is asked outside of a body"))
                .hint("keys are made from the event, or are columns of a row"));
        }
        let (role, element) = self.role(role)?;
        let column = self.column(role, column)?;
        let (name, window) = self.window_of(role, column)?;
        let within = within(&name, &window, part)?;
        let ty = answer(&name, &window, aggregate)?;
        let reason = match aggregate {
            Aggregate::Sum if window.value != Type::Float => self.overflow(window.value, surface),
            _ => self.reasons.never(),
        };
        let time = Box::new(self.window_time(role, &name, &window)?);
        let cell = Box::new(self.read(role, element, column));
        Ok(Typed { ty, node: Node::WindowRead { window, cell, time, within, aggregate, reason } })
    }

    /// Returns an expression for what is asked of a synopsis.
    pub fn synopsis(&mut self, role: &str, column: &str, ask: Ask, argument: &Expr) -> Checked<Typed> {
        if self.site != Site::Body {
            return Err(Fault::new(format!("{role}.{column} is read outside of a body")));
        }
        let (role, element) = self.role(role)?;
        let column = self.column(role, column)?;
        let (name, window) = self.window_of(role, column)?;
        if !matches!(window.keep, Keep::Synopsis(of, _) if of == ask.of()) {
            return Err(Fault::new(format!("{name} is {window}, which is not asked for {ask}")));
        }
        let of = match ask {
            Ask::Value | Ask::Times | Ask::Distinct => Type::Int,
            Ask::Quantile => Type::Float,
            Ask::Frequency => window.value,
        };
        let given = self.expression(argument)?;
        let given = self.store(given, of.into(), argument, "what is asked for")?;
        let ty = match ask {
            Ask::Value => ColumnType::optional(window.value),
            Ask::Quantile => ColumnType::optional(Type::Float),
            Ask::Times | Ask::Distinct | Ask::Frequency => Type::Int.into(),
        };
        let within = within(&name, &window, None)?;
        let time = Box::new(self.window_time(role, &name, &window)?);
        let (cell, argument) = (Box::new(self.read(role, element, column)), Box::new(given));
        Ok(Typed { ty, node: Node::SynopsisRead { window, cell, time, within, ask, argument } })
    }

    /// Returns an expression for the place of a record of a window.
    pub fn next_record(&mut self, role: &str, column: &str, part: Option<&WindowPart>, after: &Expr) -> Checked<Typed> {
        let (window, cell, time) = self.records(role, column)?;
        let within = within(&format!("{role}.{column}"), &window, part)?;
        let (cell, time, after) = (Box::new(cell), Box::new(time), Box::new(self.offset(after)?));
        Ok(Typed { ty: Type::Int.into(), node: Node::WindowNext { window, cell, time, within, after } })
    }

    /// Returns a value of a record of a window.
    pub fn record_field(
        &mut self,
        role: &str,
        column: &str,
        at: &Expr,
        (of, field): (usize, usize),
        ty: ColumnType,
    ) -> Checked<Typed> {
        let (_, cell, _) = self.records(role, column)?;
        if field >= of || matches!(ty.ty, Type::Null | Type::Duration) {
            return Err(Fault::new(format!("the value {field} of a record of {of} is {ty}")));
        }
        let at = Box::new(self.offset(at)?);
        Ok(Typed { ty, node: Node::WindowField { cell: Box::new(cell), at, of, field } })
    }

    /// Types values as a record.
    pub fn pack(&mut self, values: &[Expr]) -> Checked<Typed> {
        let values = values.iter().map(|value| self.expression(value)).collect::<Checked<Vec<_>>>()?;
        match values.iter().find(|value| matches!(value.ty.ty, Type::Null | Type::Duration)) {
            Some(value) => Err(Fault::new(format!("a value of a record is {}", value.ty))),
            None => Ok(Typed { ty: Type::Bytes.into(), node: Node::Pack(values) }),
        }
    }

    /// Returns the place of a record that an expression gives.
    fn offset(&mut self, at: &Expr) -> Checked<Typed> {
        match self.operand(at)? {
            typed if typed.ty.ty == Type::Int => Ok(typed),
            typed => Err(Fault::new(format!("a record stands at an int, but {at} is {}", typed.ty)).at(at.span)),
        }
    }

    /// Returns a window of records with its cell and the time.
    fn records(&mut self, role: &str, column: &str) -> Checked<(Window, Typed, Typed)> {
        if self.site != Site::Body {
            return Err(Fault::new(format!("{role}.{column} is read outside of a body")));
        }
        let (role, element) = self.role(role)?;
        let column = self.column(role, column)?;
        let (name, window) = self.window_of(role, column)?;
        if !window.is_of_records() {
            return Err(Fault::new(format!("{name} is no window of records")));
        }
        let time = self.window_time(role, &name, &window)?;
        Ok((window, self.read(role, element, column), time))
    }

    /// Returns the shown name of `role.column`, and its window.
    fn window_of(&self, role: RoleId, column: usize) -> Checked<(String, Window)> {
        let definition = &self.table(role).columns[column];
        let name = format!("{}.{}", self.roles[role].name, definition.name);
        let Some(window) = definition.window else {
            return Err(Fault::new(format!("{name} is {}, not a window", definition.ty))
                .hint("declare the column as a window to keep values of the recent past"));
        };
        Ok((name, window))
    }

    /// Returns the time of the event, where the window needs it. Where a row stands for one window, all values have the
    /// same.
    fn window_time(&mut self, role: RoleId, name: &str, window: &Window) -> Checked<Typed> {
        let Some(slices) = window.slices() else { return Ok(constant(Type::Int, Value::Int(0))) };
        if self.table(role).is_hidden && slices.slide == ONE_SLICE {
            return Ok(constant(slices.time, Value::from_word(slices.time, 0)));
        }
        if self.event_time.is_none() && self.is_late {
            let fault =
                Fault::new(format!("{name} is a window over time, and late events do not hold that of their position"));
            return Err(fault.hint("take windows of the late events, or keep the last so many values"));
        }
        let Some(PositionTime { field, shift }) = self.event_time else {
            return Err(Fault::new(format!("{name} is a window over time, but the event has none"))
                .hint("declare the event time, or keep the last so many values"));
        };
        let ty = self.event.fields[field].scalar_type().expect("an event time is a scalar");
        if ty.ty != slices.time {
            let (has, unit) = if ty.ty == Type::Int { ("an int", "ints") } else { ("a Time", "durations") };
            return Err(Fault::new(format!("the event time is {has}, but {name} is a window of another unit"))
                .hint(format!("give its span and slide as {unit}")));
        }
        let time = Typed { ty, node: Node::Field(field) };
        if shift == 0 {
            return Ok(time);
        }
        let (left, right) = (Box::new(time), Box::new(constant(ty.ty, Value::Int(shift))));
        // The window that holds the time has bounds, which were computed.
        let reason = self.reasons.never();
        Ok(Typed { ty, node: Node::Word { op: WordOp::Add, left, right, reason } })
    }
}

/// Returns the number of slices or values of a part of a window.
fn within(name: &str, window: &Window, part: Option<&WindowPart>) -> Checked<i64> {
    match (part, window.keep) {
        (None, Keep::Last(count)) => Ok(count),
        (Some(WindowPart::Last(count)), Keep::Last(all)) if (1..=all).contains(count) => Ok(*count),
        (Some(WindowPart::Last(count)), Keep::Last(all)) => {
            Err(Fault::new(format!("{name} keeps the last {all} values, not {count}"))
                .hint("ask for fewer, or keep more"))
        }
        (Some(WindowPart::Last(_)), _) => Err(Fault::new(format!("{name} keeps a span of time, not the last values"))
            .hint(format!("write {name}.window(span), or keep the last values"))),
        (Some(WindowPart::Span(_)), Keep::Last(_)) => {
            Err(Fault::new(format!("{name} keeps the last values, not a span of time"))
                .hint(format!("write {name}.last(count), or keep a span")))
        }
        (None, Keep::Synopsis(_, None)) => Ok(1),
        (part, _) => {
            let slices = window.slices().expect("it keeps a span of time");
            let Some(WindowPart::Span(span)) = part else { return Ok(slices.count) };
            let Span { length, time } = duration(name, span)?;
            let count = length / slices.slide;
            if time == slices.time && length % slices.slide == 0 && count <= slices.count {
                return Ok(count);
            }
            let (slide, longest) = (slices.span(1), slices.span(slices.count));
            Err(Fault::new(format!("{name} cannot be asked for {}", crate::print::literal(span)))
                .hint(format!("its slides are {slide}, its span is {longest}: ask for whole slides within it")))
        }
    }
}

/// Returns the type of an aggregate.
fn answer(name: &str, window: &Window, aggregate: Aggregate) -> Checked<ColumnType> {
    let value = window.value;
    let number = matches!(value, Type::Int | Type::Float | Type::Decimal { .. });
    let refuse = |hint: &str| Err(Fault::new(format!("{name} has no {aggregate}()")).hint(hint));
    match (aggregate, window.keep) {
        (_, Keep::Records(_) | Keep::Latest(_)) => refuse("records are read one by one"),
        (_, Keep::Synopsis(..)) => refuse("it keeps a synopsis: declare a second window"),
        (_, Keep::Moments(_)) if !aggregate.is_spread() => {
            refuse("it keeps what variances need: declare a second window")
        }
        (Aggregate::Distinct, Keep::Slices(_)) => refuse("declare the window with distinct=True"),
        (Aggregate::Distinct, _) if value == Type::Float => {
            refuse("floats that are nearly equal are different; use a Decimal or an int")
        }
        (Aggregate::Distinct, _) => Ok(Type::Int.into()),
        (_, Keep::Distinct(_)) => refuse("it keeps each value once: ask for distinct(), or declare a second window"),
        (Aggregate::Count, _) => Ok(Type::Int.into()),
        (_, Keep::Slices(_)) if aggregate.is_spread() => {
            refuse("it keeps no squares: keep the last values, or take windows over a stream")
        }
        (_, _) if aggregate.is_spread() && number => Ok(ColumnType::optional(Type::Float)),
        (_, _) if aggregate.is_spread() => refuse("only numbers have one"),
        (Aggregate::Sum | Aggregate::Mean, _) if !number => refuse("only numbers have one"),
        (Aggregate::Min | Aggregate::Max, _) if value.is_bytes() => refuse("only numbers and times have one"),
        (Aggregate::Sum, _) => Ok(match value {
            Type::Decimal { scale, .. } => decimal(scale).into(),
            other => other.into(),
        }),
        (Aggregate::Mean, _) if value == Type::Int => Ok(ColumnType::optional(Type::Float)),
        (_, _) => Ok(ColumnType::optional(value)),
    }
}
