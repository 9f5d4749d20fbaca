//! The words and signs of a text, and the stack that they are parsed on.
//!
//! # Invariant
//!
//! A text is parsed, understood and freed by recursion that is no deeper than its number of words and signs: so that number
//! is bounded before, and all of this is done on a stack with [`STACK_BYTES_EACH`] for each of them. A long text has a thread
//! of its own, so that the connections of others go on meanwhile.

use super::error::{PgError, PgResult, code};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::thread;
use tokio::sync::oneshot;

/// The most words and signs of a text.
pub const WORDS_MAX: usize = 6_000;
/// The stack of the thread of all connections.
pub const STACK_BYTES: usize = 16 << 20;
/// The bytes of stack that a word or sign may take: more than four times what any of the shapes in the tests takes without
/// optimization.
const STACK_BYTES_EACH: usize = 64 << 10;
/// The bytes that the thread of the connections needs beside.
const OWN_BYTES: usize = 4 << 20;
/// The most words of a text that the thread of the connections parses.
const SHORT_MAX: usize = (STACK_BYTES - OWN_BYTES) / STACK_BYTES_EACH;

/// A text as words and signs, without spaces and comments.
pub struct Words(Vec<TokenWithSpan>);

impl Words {
    /// Splits a text into words and signs.
    pub fn of(text: &str) -> PgResult<Words> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
        let mut tokens = tokens.map_err(|error| syntax(&error.to_string()))?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        let count = tokens.len();
        if count > WORDS_MAX {
            let message = format!("the statement has {count} words and signs, and {WORDS_MAX} are allowed");
            return Err(PgError::new(code::TOO_LARGE, message).hint("give long values as parameters"));
        }
        Ok(Words(tokens))
    }

    /// Returns the signs and words in their order.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().map(|token| &token.token)
    }

    /// Parses the statements, and gives them to `with`, on a stack that suffices for both.
    pub async fn with<T: Send + 'static>(
        self,
        with: impl FnOnce(&[ast::Statement]) -> T + Send + 'static,
    ) -> PgResult<T> {
        if self.0.len() <= SHORT_MAX {
            return self.parsed().map(|statements| with(&statements));
        }
        let (to, done) = oneshot::channel();
        let stack = STACK_BYTES_EACH * self.0.len() + OWN_BYTES;
        let work = move || _ = to.send(self.parsed().map(|statements| with(&statements)));
        let busy = |_| PgError::busy("too many long statements are read at once");
        thread::Builder::new().name("statement".into()).stack_size(stack).spawn(work).map_err(busy)?;
        done.await.map_err(|_| PgError::new(code::TOO_LARGE, "the statement cannot be read"))?
    }

    fn parsed(self) -> PgResult<Vec<ast::Statement>> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(self.0);
        parser.parse_statements().map_err(|error| match error {
            ParserError::RecursionLimitExceeded => PgError::new(code::TOO_LARGE, "the statement is nested too deeply"),
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => syntax(&message),
        })
    }
}

fn syntax(message: &str) -> PgError {
    PgError::new(code::SYNTAX, format!("syntax error: {}", message.trim_start_matches("sql parser error: ")))
}

#[cfg(test)]
mod tests {
    use super::super::catalog::{Catalog, keep};
    use super::super::catalogs;
    use super::super::given::Given;
    use super::super::understand;
    use super::*;

    /// A piece of the grammar that may be repeated: what stands before, the piece, and what stands after.
    const REPEATED: &[[&str; 3]] = &[
        ["select 1 from a", " join a", ""],
        ["select 1 from a", " join a on true", ""],
        ["select 1 from a", " natural join a", ""],
        ["select 1 from a", " left join a using (b)", ""],
        ["select 1 from a", " cross join a", ""],
        ["select 1 from a", " join lateral f(1)", ""],
        ["select 1 from a", ", a", ""],
        ["select 1", " union select 1", ""],
        ["select 1", " union all select 1", ""],
        ["select 1", " except select 1", ""],
        ["select 1", "+1", ""],
        ["select 1", " and 1", ""],
        ["select 1", " or 1", ""],
        ["select 1", " || 1", ""],
        ["select 1", " = 1", ""],
        ["select 1", " is null", ""],
        ["select 1", " collate c", ""],
        ["select 1", "::int", ""],
        ["select 1", " between 1 and 1", ""],
        ["select 1", " in (1)", ""],
        ["select 1", " at time zone 'x'", ""],
        ["select 1", " like 1", ""],
        ["select 1", " operator(a.+) 1", ""],
        ["select a", "[1]", ""],
        ["select a", ".a", " from a"],
        ["select a", " -> 'a'", ""],
        ["select 1", ", 1", ""],
        ["select 1", ", sum(1) over (order by a)", ""],
        ["with t as (select 1)", ", t as (select 1)", " select 1"],
        ["select f(", "x -> ", "1)"],
        ["select f(", "(x, y) -> ", "1)"],
        ["select 1 where 1 in (1", ", 1", ")"],
        ["values (1)", ", (1)", ""],
        ["select case", " when 1 then 1", " end"],
        ["select 1 order by 1", ", 1", ""],
        ["select 1 group by 1", ", grouping sets ((1))", ""],
        ["", "select 1;", ""],
        ["", "begin;", ""],
        ["select ", "- ", "1"],
        ["select ", "not ", "1"],
        ["select ", "interval ", "'1'"],
        ["select ", "date ", "'1'"],
        ["", "explain ", "select 1"],
        ["", "prepare x as ", "select 1"],
        ["select null::int", "[]", ""],
        ["call f(1", ", 1", ")"],
        ["set x = 1", ", 1", ""],
        ["select 1 from a", " tablesample system (1)", ""],
        ["select 1 from a", " pivot (sum(b) for c in (1))", ""],
        ["create table a (b int", ", b int check (1 = 1)", ")"],
        ["insert into a values (1)", ", (1)", ""],
        ["grant a", ", a", " on a to a"],
    ];

    /// One that may be nested: before, what opens, what is inside, what closes, and after.
    const NESTED: &[[&str; 5]] = &[
        ["select ", "(", "1", ")", ""],
        ["select ", "f(", "1", ")", ""],
        ["select ", "coalesce(", "1", ", 1)", ""],
        ["select ", "(select ", "1", ")", ""],
        ["select ", "exists (select ", "1", ")", ""],
        ["select * from ", "(select * from ", "a", ") x", ""],
        ["select * from ", "(a join ", "a", ")", ""],
        ["select ", "case when ", "1", " then 1 end", ""],
        ["select ", "array[", "1", "]", ""],
        ["select ", "cast(", "1", " as int)", ""],
        ["select ", "1 in (", "1", ")", ""],
        ["select null::", "array<", "int", ">", ""],
        ["select null::", "struct<a ", "int", ">", ""],
        ["", "with a as (", "select 1", ") select 1", ""],
        ["select ", "sum(1) over (order by ", "1", ")", ""],
        ["select ", "extract(day from ", "1", ")", ""],
        ["", "(", "select 1", ")", ""],
        ["", "if 1 then ", "select 1;", " end if;", ""],
        ["select ", "{'a': ", "1", "}", ""],
        ["select ", "1 = any(array[", "1", "])", ""],
    ];

    /// Returns the most of its stack that the thread has used, in bytes.
    fn stack_used() -> usize {
        let local = 0u8;
        let at = std::hint::black_box(&raw const local) as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the maps of the process");
        let mut is_ours = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Ok(start), Ok(end))) =
                range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)))
            {
                is_ours = (start..end).contains(&at);
            }
            if is_ours && let Some(size) = line.strip_prefix("Rss:") {
                return size.trim().trim_end_matches(" kB").parse::<usize>().expect("a size") << 10;
            }
        }
        panic!("no map has the stack");
    }

    /// Does everything with a text that is done before it is given to the engine.
    fn read(text: &str) {
        let catalog = Catalog { keep: keep(), procedures: Vec::new(), tables: Vec::new(), streams: Vec::new() };
        let Ok(statements) = Words::of(text).and_then(Words::parsed) else { return };
        for statement in &statements {
            let own = statement.to_string();
            let _ = understand::prepare(&catalog, Some(statement), &[], Some(&own));
            let _ = catalogs::rewritten(statement, &catalog, &|_| Ok(Given::Null));
        }
    }

    /// Returns the share of its stack that a text takes, on a thread of its own.
    fn share(text: String) -> f64 {
        let count = Words::of(&text).expect("it is no longer than allowed").0.len();
        let stack = STACK_BYTES_EACH * count + OWN_BYTES;
        let measured = thread::Builder::new().stack_size(stack).spawn(move || {
            read(&text);
            stack_used()
        });
        let used = measured.expect("a thread").join().expect("it ends");
        used.saturating_sub(OWN_BYTES) as f64 / (STACK_BYTES_EACH * count) as f64
    }

    /// Returns the number of repetitions that the number of words allows.
    fn times(parts: &[&str], of: usize) -> usize {
        let words = |text: &str| Words::of(text).map_or(1, |words| words.0.len().max(1));
        let all: usize = parts.iter().map(|part| words(part)).sum();
        (WORDS_MAX - all) / of
    }

    #[test]
    fn each_shape_has_room_on_its_stack() {
        let words = |text: &str| Words::of(text).map_or(1, |words| words.0.len().max(1));
        let mut greatest = (0.0, String::new());
        let mut note = |text: String| {
            let share = share(text.clone());
            if share > greatest.0 {
                greatest = (share, text[..40.min(text.len())].to_owned());
            }
        };
        for [before, piece, after] in REPEATED {
            note(format!("{before}{}{after}", piece.repeat(times(&[before, after], words(piece)))));
        }
        for [before, opens, inside, closes, after] in NESTED {
            // The parser counts what is nested, and refuses more than some.
            for depth in [12, 20, 45, times(&[before, inside, after], words(opens) + words(closes))] {
                note(format!("{before}{}{inside}{}{after}", opens.repeat(depth), closes.repeat(depth)));
                note(format!("{before}{}", opens.repeat(depth)));
            }
        }
        assert!(greatest.0 < 0.25, "{} of the stack: {}", greatest.0, greatest.1);
        // A stack use of nothing would mean that the measurement does not work.
        assert!(greatest.0 > 0.001, "{}", greatest.0);
    }

    #[test]
    fn too_many_words_are_refused_before_they_are_parsed() {
        let text = format!("select 1{}", "+1".repeat(WORDS_MAX));
        assert_eq!(Words::of(&text).err().map(|error| error.code), Some(code::TOO_LARGE));
        assert!(Words::of(&"/*".repeat(400_000)).is_err());
    }
}
