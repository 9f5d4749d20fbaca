//! The limits of nesting in plans, and a stack for plans that are deep.
//!
//! A sum of five hundred terms is an expression five hundred levels deep, and a chain of `elif` is as many blocks in each
//! other. Everything that works on plans and programs recurs over them, so a plan is refused, at its place, where
//! it is deeper than is stated here, and what is deep works on a stack of its own. Depths are counted without
//! recursion.

use crate::analyze::CHAIN_MAX;
use crate::{Expr, ExprNode, OriginDef, Plan, PlanError, Span, Stmt};

/// Most expressions in each other.
pub const EXPRESSION_DEPTH_MAX: usize = 600;

/// Most blocks in each other: of `if`, `elif`, `else` and loops.
pub const BLOCK_DEPTH_MAX: usize = 400;

/// Most brackets in each other in a plan as text. A plan within the limits above has fewer: four for each block and three
/// for each expression.
const BRACKETS_MAX: usize = 16_000;

const _: () = assert!(4 * BLOCK_DEPTH_MAX + 3 * EXPRESSION_DEPTH_MAX < BRACKETS_MAX / 2);

/// Address space for a stack on which everything within the limits has room; what is not used costs nothing.
const DEEP_STACK: usize = 512 << 20;

/// Runs `work` on a stack that is large enough for any plan or program that is not refused.
///
/// The thread does nothing that its caller does not wait for: no clock, no disk, no other thread sees it.
#[allow(clippy::disallowed_methods, reason = "a stack, not a thread: its caller waits for it")]
pub fn with_deep_stack<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("deep stack".into()).stack_size(DEEP_STACK);
        let running = thread.spawn_scoped(scope, work).expect("there is address space for a stack");
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns whether the brackets of a JSON text are nested deeper than those of a plan may be.
pub(crate) fn text_is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    json.bytes().any(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > BRACKETS_MAX
    })
}

/// Returns an error for each stream and transaction that is nested too deep.
pub(crate) fn check(plan: &Plan) -> Vec<PlanError> {
    let mut errors = Vec::new();
    let mut note = |kind: &str, name: &str, found: Option<TooDeep>| {
        if let Some(TooDeep { what, max, hint, span }) = found {
            let message = format!("{what} are in each other here, more than {max} deep");
            errors.push(PlanError { place: format!("{kind} '{name}'"), message, hint: hint.into(), span });
        }
    };
    for stream in &plan.streams {
        let found = match &stream.origin {
            OriginDef::Source { .. } | OriginDef::Every { .. } | OriginDef::Batch { .. } => None,
            OriginDef::Filter { predicate, .. } => deep_expression([predicate]),
            OriginDef::Map { record, .. } => deep_expression(record.fields.iter().map(|(_, value)| value)),
        };
        note("stream", &stream.name, found);
    }
    for transaction in &plan.transactions {
        let keys = transaction.roles.iter().flat_map(|role| role.key.iter().chain(role.selection.expressions()));
        let own = transaction.over.iter().flat_map(|over| &over.own);
        let own = own.flat_map(|own| std::iter::once(&own.add).chain(&own.merge));
        let deep =
            deep_expression(keys).or_else(|| std::iter::once(&transaction.body).chain(own).find_map(|b| deep_block(b)));
        note("transaction", &transaction.name, deep);
    }
    errors
}

struct TooDeep {
    what: &'static str,
    max: usize,
    hint: &'static str,
    span: Option<Span>,
}

fn deep_block(body: &[Stmt]) -> Option<TooDeep> {
    let mut open: Vec<(&[Stmt], usize, Option<Span>)> = vec![(body, 0, None)];
    while let Some((block, depth, outside)) = open.pop() {
        if depth > BLOCK_DEPTH_MAX {
            let hint = "write an if by itself for each case, or keep the cases in a table";
            return Some(TooDeep { what: "blocks", max: BLOCK_DEPTH_MAX, hint, span: outside });
        }
        for statement in block {
            if let Some(found) = deep_expression(statement.expressions()) {
                return Some(found);
            }
            let span = statement.span.or(outside);
            open.extend(statement.blocks().into_iter().map(|inner| (inner, depth + 1, span)));
        }
    }
    None
}

fn deep_expression<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Option<TooDeep> {
    let mut open: Vec<(&Expr, usize, Option<Span>)> = expressions.into_iter().map(|expr| (expr, 1, None)).collect();
    while let Some((expr, depth, outside)) = open.pop() {
        let span = expr.span.or(outside);
        if depth > EXPRESSION_DEPTH_MAX {
            let hint = "compute a part of it first, into a local variable or in a map";
            return Some(TooDeep { what: "operations", max: EXPRESSION_DEPTH_MAX, hint, span });
        }
        let inside = expr.children();
        let width = inside.len();
        let below = |(i, child)| (child, depth + levels(expr, i, width), span);
        open.extend(inside.into_iter().enumerate().map(below));
    }
    None
}

/// Returns how much deeper than an operation one of its operands lies in the program: `a + b` is one operation there,
/// `min(a, b, c)` is two, and many conditions joined by `and` are joined in pairs.
fn levels(expr: &Expr, operand: usize, width: usize) -> usize {
    let chain = (width - operand).clamp(1, width.max(2) - 1);
    match &expr.node {
        ExprNode::All(_) | ExprNode::Any(_) | ExprNode::In { .. } if width > CHAIN_MAX => {
            CHAIN_MAX + width.ilog2() as usize
        }
        ExprNode::IfElse { .. } => 1,
        _ => chain,
    }
}

impl Plan {
    /// Returns a plan from its JSON text; what is wrong with the text where it is none.
    pub fn from_json(json: &str) -> Result<Plan, String> {
        if text_is_too_deep(json) {
            return Err(format!("it is nested more than {BRACKETS_MAX} levels deep"));
        }
        with_deep_stack(|| {
            let mut reader = serde_json::Deserializer::from_str(json);
            reader.disable_recursion_limit();
            let plan = serde::Deserialize::deserialize(&mut reader).map_err(|error| error.to_string())?;
            reader.end().map_err(|error| error.to_string())?;
            Ok(plan)
        })
    }
}
