"""Statements that are made from a grammar: each production repeated and nested, alone and mixed with others, and cut.

A production is a template. A hole such as ``{expr}`` stands for what another production makes; ``{expr|, }`` for one or
more, with what stands between them. The first production of a kind is its leaf, which fills the holes that a statement
does not go on in. Both parsers read what the grammar makes: that of the server's statements (PostgreSQL's dialect) and that
of its queries (DuckDB's). Most of it is no statement of either, as soon as it is repeated: what matters is that both say so.

A statement is made by walking from hole to hole until the walk is back at a kind where it was: what lies between is the unit
that is repeated. So a template with a hole of its own kind nests (``({expr})``) or repeats (``{expr} + 1``), a list repeats
its elements, and longer walks mix productions.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

WORDS_MAX = 6_000
"""The most words and signs of a statement (docs/server.md#limits)."""
BYTES_MAX = 1 << 20
"""The most bytes of a query."""

GRAMMAR: dict[str, list[str]] = {
    "statement": [
        "{query}",
        "{query}; {statement}",
        "explain {statement}",
        "explain analyze {statement}",
        "explain (analyze, format json) {statement}",
        "prepare p as {statement}",
        "prepare p ({type|, }) as {statement}",
        "execute p ({expr|, })",
        "execute p({expr|, }) using {expr|, }",
        "deallocate p",
        "call deposit({argument|, })",
        "call note({expr})",
        "insert into accounts values {row|, }",
        "insert into accounts ({name|, }) {query}",
        "insert into accounts values (1) on conflict (id) do update set {assign|, } where {expr}",
        "insert into accounts values (1) returning {item|, }",
        "update accounts set {assign|, } from {from|, } where {expr}",
        "delete from accounts using {from|, } where {expr}",
        "merge into accounts using {from} on {expr} {merge| }",
        "create table t ({column|, })",
        "create table t as {query}",
        "create temporary view v as {query}",
        "create materialized view v as {query}",
        "create index i on accounts ({expr|, }) where {expr}",
        "create function f({argument|, }) returns {type} return {expr}",
        "create function f() returns int begin atomic {statement|; }; end",
        "create macro f({name|, }) as {expr}",
        "create macro f(a) as table {query}",
        "create type t as enum ({string|, })",
        "create type t as ({field|, })",
        "create domain d as {type} check ({expr})",
        "create schema s {schema| }",
        "create trigger t before insert on accounts for each row when ({expr}) execute function f({expr|, })",
        "create policy p on accounts using ({expr})",
        "create role r {option| }",
        "alter table accounts {alter|, }",
        "drop table {table|, }",
        "truncate {table|, }",
        "begin; {statement}; commit",
        "savepoint {name}; {statement}",
        "rollback to {name}",
        "set x = {setting|, }",
        "set local x to {setting|, }",
        "set search_path = {name|, }",
        "show {name|.}",
        "reset {name}",
        "discard all",
        "listen {name}",
        'listen "deposit.committed"; {statement}',
        "notify {name}, {string}",
        "unlisten *",
        "declare c cursor for {query}",
        "fetch 10 from {name}",
        "copy ({query}) to stdout",
        "copy accounts ({name|, }) from stdin with ({copyoption|, })",
        "grant {right|, } on {table|, } to {name|, }",
        "revoke {right|, } on {table|, } from {name|, }",
        "lock table {table|, }",
        "vacuum {table}",
        "analyze {table}",
        "if {expr} then {statement}; end if",
        "if {expr} then {statement|; }; {elseif| } else {statement}; end if",
        "while {expr} do {statement}; end while",
        "case {expr} {casewhen| } end case",
        "return {expr}",
        "raise {expr}",
        "pivot accounts on {expr|, } using sum(balance)",
        "pivot ({query}) on {name|, } using {expr|, } group by {name|, }",
        "unpivot accounts on {expr|, }",
        "unpivot ({query}) on {expr|, } into name a value b",
        "describe {statement}",
        "summarize {query}",
        "pragma {name}",
        "attach {string} as {name}",
        "install {name}",
        "load {string}",
        "use {name|.}",
        "checkpoint {name}",
        "export database {string}",
        "comment on table accounts is {string}",
        "do {string}",
        "kill {expr}",
        "{statement}",
        "/* {comment} */ {statement}",
        "-- {comment}\n{statement}",
    ],
    "query": [
        "select {expr} from accounts",
        "select {item|, } from {from|, }",
        "select distinct {item|, } from {from}",
        "select distinct on ({expr|, }) {item} from {from}",
        "select all {item} from {from} where {expr}",
        "select {item} from {from} where {expr} group by {group|, } having {expr}",
        "select {item} from {from} group by all order by all",
        "select {item} from {from} window {windowname|, }",
        "select {item} from {from} qualify {expr}",
        "select {item} from {from} using sample {number} percent",
        "select {item} from {from} order by {order|, }",
        "select {item} from {from} limit {expr} offset {expr}",
        "select {item} from {from} fetch first {number} rows only",
        "select {item} from {from} for update of {table|, }",
        "select {item} into {name} from {from}",
        "select {expr}",
        "from {from} select {item|, }",
        "from {from}",
        "values {row|, }",
        "table {table}",
        "({query})",
        "{query} union select 1",
        "{query} union all {query}",
        "{query} union by name {query}",
        "{query} intersect {query}",
        "{query} except {query}",
        "{query} except all select 1",
        "select 1 union {query}",
        "{query} order by {order|, } limit {number}",
        "{query} limit {number}",
        "with {cte|, } {query}",
        "with recursive {cte|, } {query}",
        "with recursive t(i) as ({query} union all select i + 1 from t where {expr}) select * from t",
        "with t as materialized ({query}) {query}",
        "with t as ({query}) select * from t",
        "with t as (insert into accounts values (1) returning {item}) {query}",
    ],
    "item": [
        "{expr}",
        "*",
        "{table}.*",
        "{expr} as a",
        "a: {expr}",
        "* exclude ({name|, })",
        "* replace ({expr} as {name})",
        "* rename ({name} as a)",
        "columns({expr})",
        "columns(* exclude ({name|, }))",
        "unnest({expr})",
    ],
    "from": [
        "accounts",
        "items",
        "{from} a",
        "{from} as a(b, c)",
        "({query}) a",
        "({from})",
        "({from}, accounts)",
        "lateral ({query}) a",
        "{from} join accounts using (id)",
        "{from} join {from} on {expr}",
        "{from} join accounts",
        "{from} left join {from} on {expr}",
        "{from} right outer join accounts a on {expr}",
        "{from} full join accounts a using ({name|, })",
        "{from} cross join accounts",
        "{from} cross join {from}",
        "{from} natural join accounts",
        "{from} natural full join {from}",
        "{from} positional join accounts",
        "{from} asof join items a on {expr}",
        "{from} semi join accounts using (id)",
        "{from} anti join {from} on {expr}",
        "{from} inner join lateral ({query}) a on {expr}",
        "{from}, accounts",
        "{from}, lateral (select {expr}) a",
        "({from} join {from} on {expr})",
        "accounts join ({from}) on {expr}",
        "unnest({expr|, }) with ordinality",
        "unnest([{expr|, }]) a",
        "range({expr}) a",
        "generate_series({expr}, 10) a(b)",
        "rows from ({call|, })",
        "{call}",
        "(values {row|, }) a(b)",
        "accounts tablesample {number} percent",
        "{from} tablesample system (1)",
        "{from} pivot (sum(balance) for id in ({string|, }))",
        "{from} pivot (sum({expr}) for id in (1))",
        "{from} unpivot (a for b in ({name|, }))",
        "json_table({expr}, {string} columns ({column|, }))",
        "only (accounts)",
        "pg_catalog.pg_class a",
        "pg_type a join {from} on {expr}",
        "information_schema.columns a",
        "deposit({argument|, })",
    ],
    "call": ["abs({expr})", "f({expr|, })", "deposit({argument|, })", "range({expr|, })", "schema.f({expr})"],
    "expr": [
        "1",
        "balance",
        "null",
        "{string}",
        "{number}",
        "{table}.{name}",
        "{name|.}",
        "$1",
        "$1::{type}",
        "?",
        "({expr})",
        "({expr}, 1)",
        "({expr|, })",
        "row({expr|, })",
        "{expr} + 1",
        "{expr} + {expr}",
        "{expr} - {expr}",
        "{expr} * {expr}",
        "1 / {expr}",
        "{expr} // {expr}",
        "{expr} % {expr}",
        "{expr} ^ {expr}",
        "{expr} ** {expr}",
        "{expr} || {expr}",
        "{expr} & 1 | {expr}",
        "{expr} << 1 >> {expr}",
        "- {expr}",
        "+ {expr}",
        "~ {expr}",
        "@ {expr}",
        "!! {expr}",
        "{expr} !",
        "not {expr}",
        "{expr} and true",
        "{expr} and {expr}",
        "{expr} or {expr}",
        "true or not {expr}",
        "{expr} = 1",
        "{expr} = {expr}",
        "{expr} <> {expr}",
        "{expr} < {expr}",
        "{expr} >= {expr}",
        "{expr} is null",
        "{expr} is not null",
        "{expr} isnull",
        "{expr} is true",
        "{expr} is distinct from {expr}",
        "{expr} is not distinct from 1",
        "{expr} between 0 and 1",
        "{expr} between {expr} and {expr}",
        "{expr} not between symmetric 0 and {expr}",
        "{expr} in ({expr|, })",
        "{expr} not in (1)",
        "{expr} in ({query})",
        "1 in ({expr|, })",
        "{expr} like {string}",
        "{expr} not ilike {expr} escape 'x'",
        "{expr} similar to {expr}",
        "{expr} glob {expr}",
        "{expr} ~ {expr}",
        "{expr} !~~* {expr}",
        "{expr} operator(pg_catalog.+) 1",
        "{expr} operator(pg_catalog.=) {expr}",
        "{expr} = any({expr})",
        "{expr} = any({query})",
        "1 = any(array[{expr|, }])",
        "{expr} > all({query})",
        "{expr} -> 'a'",
        "{expr} -> {expr}",
        "{expr} ->> 'a'",
        "{expr} #>> {expr}",
        "{expr} @> {expr}",
        "{expr} ? {expr}",
        "{expr}::bigint",
        "{expr}::{type}",
        "cast({expr} as {type})",
        "try_cast({expr} as {type})",
        "{type} {string}",
        "date {string}",
        "timestamp with time zone {string}",
        "interval {string}",
        "interval ({expr}) day",
        "interval {expr} day",
        "interval '1' year to month",
        "{expr} at time zone 'UTC'",
        "{expr} at time zone {expr}",
        "{expr} collate nocase",
        "collation for ({expr})",
        "{expr}[1]",
        "{expr}[{expr}]",
        "{expr}[{expr}:{expr}]",
        "{expr}[1:{expr}:2]",
        "{expr}.a",
        "({expr}).{name|.}",
        "({expr}).*",
        "[{expr|, }]",
        "[{expr}]",
        "array[{expr|, }]",
        "array({query})",
        "array[{expr}]",
        "{'a': {expr}}",
        "{{entry|, }}",
        "map {{entry|, }}",
        "map([{expr|, }], [{expr|, }])",
        "struct_pack({named|, })",
        "[{expr} for a in {expr}]",
        "[a for a in {expr} if {expr}]",
        "list_transform({expr}, lambda a: 1)",
        "list_transform([1], lambda a: {expr})",
        "list_transform([1], a -> {expr})",
        "list_filter({expr}, (a, b) -> {expr})",
        "list_reduce([1, 2], lambda a, b: {expr})",
        "f(a -> {expr})",
        "abs({expr})",
        "coalesce({expr}, 1)",
        "coalesce({expr|, })",
        "nullif({expr}, {expr})",
        "greatest({expr|, })",
        "concat({expr|, })",
        "f({argument|, })",
        "length(repeat({string}, {expr}))",
        "json_extract({expr}, '$.a')",
        "regexp_matches({string}, {string})",
        "date_trunc('day', {expr})",
        "if({expr}, {expr}, {expr})",
        "{expr} if {expr} else {expr}",
        "case when {expr} then 1 end",
        "case when 1 then {expr} else {expr} end",
        "case {expr} {casewhen| } else {expr} end",
        "case {casewhen| } end",
        "sum({expr})",
        "sum(distinct {expr})",
        "count(*) filter (where {expr})",
        "list({expr} order by {order|, })",
        "string_agg({expr}, ',' order by {order})",
        "percentile_cont(0.5) within group (order by {expr})",
        "quantile_cont({expr}, [{number|, }])",
        "sum({expr}) over ()",
        "sum(1) over ({window})",
        "row_number() over (partition by {expr|, } order by {order|, })",
        "lag({expr}) ignore nulls over w",
        "grouping({expr|, })",
        "extract(day from {expr})",
        "substring({expr} from {expr} for {expr})",
        "position({expr} in {expr})",
        "overlay({expr} placing {expr} from 1)",
        "trim(both {expr} from {expr})",
        "ceil({expr} to day)",
        "({query})",
        "exists ({query})",
        "not exists (select 1 where {expr})",
        "(select {expr})",
        "(select max(balance) from accounts where {expr})",
        "unique ({query})",
        "columns({expr})",
        "columns(lambda a: {expr})",
        "cast({expr} as struct({field|, }))",
        "current_date",
        "tidemill_epoch() + {expr}",
        "x'{digits}'",
        "{digits}",
        "0.{digits}",
        "1e{digits}",
        "e{string}",
        "u&{string}",
        "$tag${comment}$tag$",
        '"{comment}"',
    ],
    "type": [
        "int",
        "{type}[]",
        "{type}[1]",
        "{type} array",
        "array<{type}>",
        "struct<a {type}>",
        "struct<{field|, }>",
        "struct({field|, })",
        "row({field|, })",
        "map(int, {type})",
        "map({type}, {type})",
        "union({field|, })",
        "list({type})",
        "nested({field|, })",
        "tuple({type|, })",
        "nullable({type})",
        "enum({string|, })",
        "decimal({number}, 2)",
        "numeric",
        "varchar({digits})",
        "character varying(10)",
        "double precision",
        "timestamp(3) with time zone",
        "interval day to second",
        "bit varying({number})",
        "{name|.}",
        "f({number|, })",
        "setof {type}",
    ],
    "field": ["a {type}", "{name} {type}"],
    "cte": [
        "t as ({query})",
        "t(a, b) as ({query})",
        "t as materialized ({query})",
        "t as not materialized ({query})",
        "t(a) using key (a) as ({query})",
        "t as (with {cte|, } select 1)",
        "t as ({query}) search depth first by a set b",
        "t as ({query}) cycle a set b using c",
    ],
    "order": ["{expr}", "{expr} desc", "{expr} asc nulls first", "{expr} using <", "{expr} collate nocase desc"],
    "group": [
        "{expr}",
        "()",
        "rollup ({expr|, })",
        "cube ({expr|, })",
        "grouping sets ({group|, })",
        "grouping sets (({expr|, }))",
        "({expr|, })",
    ],
    "window": [
        "order by {expr}",
        "partition by {expr|, }",
        "w partition by {expr} order by {order|, }",
        "order by {expr} rows between {expr} preceding and {expr} following",
        "order by {expr} range between interval {expr} day preceding and current row exclude ties",
        "order by {expr} groups {number} preceding",
    ],
    "windowname": ["w as ({window})"],
    "casewhen": ["when 1 then 2", "when {expr} then {expr}"],
    "elseif": ["elseif 1 then select 1;", "elseif {expr} then {statement};"],
    "row": ["(1)", "({expr|, })", "({expr})", "row({expr|, })"],
    "entry": ["'a': 1", "'a': {expr}", "{expr}: {expr}"],
    "named": ["a := 1", "a := {expr}"],
    "argument": [
        "1",
        "{expr}",
        "account => {expr}",
        "amount => 1",
        "idempotency_key => {expr}",
        "variadic {expr}",
        "{string}",
        "$1",
        "in a {type} default {expr}",
    ],
    "assign": ["balance = 1", "balance = {expr}", "(balance, id) = ({query})", "({name|, }) = row({expr|, })"],
    "merge": [
        "when matched then delete",
        "when matched and {expr} then update set {assign|, }",
        "when not matched then insert ({name|, }) values ({expr|, })",
    ],
    "column": [
        "a int",
        "a {type}",
        "a {type} default {expr} check ({expr})",
        "a int references accounts ({name|, })",
        "a int generated always as ({expr}) stored",
        "check ({expr})",
        "primary key ({name|, })",
        "unique ({name|, })",
        "constraint {name} foreign key ({name|, }) references accounts",
        "nested path {string} columns ({column|, })",
        "a int path {string}",
    ],
    "alter": [
        "add column a int",
        "add column {column}",
        "alter column a set default {expr}",
        "alter column a type {type} using {expr}",
        "drop column {name}",
    ],
    "schema": ["create table t (a int)", "create view v as {query}", "create table t ({column|, })"],
    "option": ["login", "password {string}", "in role {name|, }", "connection limit {number}"],
    "copyoption": ["header", "format csv", "null {string}", "force_quote ({name|, })"],
    "setting": ["1", "{string}", "{name}", "{number}", "({setting|, })", "{expr}"],
    "right": ["select", "insert ({name|, })", "all privileges"],
    "table": ["accounts", "items", "bank.public.accounts", "{name|.}"],
    "name": ["a", "balance", '"a b"', '"{comment}"', "a{digits}", "\u00e9\u00df\u4e2d"],
    "string": ["'a'", "'{comment}'", "'{string2|}'", "'{escape|}'", "'a' 'b'"],
    "string2": ["''", "%", "_", "(", ")*", "[", "{", '"', "\\", "\u4e2d", "a|"],
    "escape": ["\\\\", "\\u0041", "%a", "(a", "{'a':", "[["],
    "comment": ["a", "{comment}a", "/* {comment} */", "/*{comment}", "-{comment}", "$a${comment}", "--{comment}"],
    "number": ["1", "0.5", "1e10", "-1", "9223372036854775808", "1_000", "{digits}"],
    "digits": ["1", "{digits}9", "{digits}0"],
}

_HOLE = re.compile(r"\{([a-z0-9]+)(?:\|([^}]*))?\}")
_WORD = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|::|\|\||->>?|[<>!=]=|<>|=>|[^\w\s]")


@dataclass(frozen=True)
class _Hole:
    kind: str
    between: str | None
    """The text between the elements of a list."""


Template = tuple["str | _Hole", ...]


def _template(text: str) -> Template:
    parts: list[str | _Hole] = []
    at = 0
    for found in _HOLE.finditer(text):
        if found[1] in GRAMMAR:
            parts += [text[at : found.start()], _Hole(found[1], found[2])]
            at = found.end()
    return (*parts, text[at:])


_TEMPLATES = {kind: [_template(text) for text in texts] for kind, texts in GRAMMAR.items()}


@dataclass(frozen=True)
class Step:
    """From a production to what stands in one of its holes."""

    kind: str
    production: int
    hole: int

    @property
    def _hole(self) -> _Hole:
        hole = _TEMPLATES[self.kind][self.production][self.hole]
        assert isinstance(hole, _Hole)
        return hole

    @property
    def to(self) -> str:
        """The kind of the hole."""
        return self._hole.kind

    @property
    def between(self) -> str | None:
        """Returns the text between the elements, where a list is wanted."""
        return self._hole.between

    def around(self, filled: Filling) -> tuple[str, str]:
        """Returns the texts before and after the hole."""
        parts = _TEMPLATES[self.kind][self.production]
        texts = [part if isinstance(part, str) else filled(part.kind) for part in parts]
        return "".join(texts[: self.hole]), "".join(texts[self.hole + 1 :])


STEPS = [
    Step(kind, number, at)
    for kind, templates in _TEMPLATES.items()
    for number, template in enumerate(templates)
    for at, part in enumerate(template)
    if isinstance(part, _Hole)
]
"""All that the grammar can be walked by."""
_FROM: dict[str, list[Step]] = {kind: [step for step in STEPS if step.kind == kind] for kind in GRAMMAR}


class Filling:
    """Fills the holes that a statement does not go on in."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self, kind: str, depth: int = 2) -> str:
        templates = _TEMPLATES[kind]
        chosen = templates[0] if depth == 0 or self._rng.random() < 0.8 else self._rng.choice(templates)
        if depth == 0 and any(isinstance(part, _Hole) for part in chosen):
            depth = 1  # A leaf whose holes are leaves.
        return "".join(part if isinstance(part, str) else self(part.kind, depth - 1) for part in chosen)


def way(start: str, end: str, rng: random.Random) -> list[Step] | None:
    """A shortest way from a kind to another, one of those that there are."""
    found: dict[str, list[Step]] = {start: []}
    edge = [start]
    while edge and end not in found:
        after: dict[str, list[list[Step]]] = {}
        for kind in edge:
            for step in _FROM[kind]:
                if step.to not in found:
                    after.setdefault(step.to, []).append([*found[kind], step])
        found |= {kind: rng.choice(ways) for kind, ways in after.items()}
        edge = list(after)
    return found.get(end)


@dataclass(frozen=True)
class Pump:
    """The text before, the unit with its inside cut out, the inside, and the text after."""

    before: str
    opens: str
    inside: str
    closes: str
    after: str

    def text(self, times: int, is_closed: bool = True) -> str:
        """The unit so often; without its ends if it is not closed."""
        begun = self.before + self.opens * times + self.inside
        return begun + self.closes * times + self.after if is_closed else begun

    def times_max(self, words: int | None = None, size: int | None = None) -> int:
        """Returns how often it may be repeated for this number of words, or of bytes."""
        rest, unit = self.before + self.inside + self.after, self.opens + self.closes
        if words is not None:
            return max(1, (words - len(_WORD.findall(rest))) // max(1, len(_WORD.findall(unit))))
        assert size is not None
        return max(1, (size - len(rest.encode())) // max(1, len(unit.encode())))


def pump(steps: list[Step], rng: random.Random) -> Pump | None:
    """The pump that begins with these steps. None where there is no way back to their begin."""
    filled = Filling(rng)
    first, last = steps[0].kind, steps[-1]
    before, after = _along(_context(first, rng), filled)
    if last.between is not None:
        # A list repeats its elements, where the way does not lead on.
        opens, closes = _along(steps, filled)
        element = filled(last.to) + last.between
        return Pump(before + opens, element, filled(last.to, 1), "", closes + after)
    back = way(last.to, first, rng)
    if back is None:
        return None
    opens, closes = _along([*steps, *back], filled)
    return Pump(before, opens, filled(first), closes, after)


def _context(kind: str, rng: random.Random) -> list[Step]:
    """A way from a statement to a kind: mostly one through a query, since those alone are more than read."""
    through_query = way("query", kind, rng)
    if through_query is not None and rng.random() < 0.8:
        return through_query
    return way("statement", kind, rng) or []


def _along(steps: list[Step], filled: Filling) -> tuple[str, str]:
    before, after = "", ""
    for step in steps:
        opens, closes = step.around(filled)
        before, after = before + opens, closes + after
    return before, after


@dataclass(frozen=True)
class Statement:
    """One for each protocol: as long as its limits allow at most."""

    seed: int
    of: str
    """The productions that are repeated."""
    postgres: str
    http: str


def statement(seed: int) -> Statement:
    """The statement of a seed. As many first seeds as there are steps repeat each step alone, as often as is allowed."""
    rng = random.Random(seed)
    is_alone = seed < len(STEPS)
    while True:
        steps = [STEPS[seed] if is_alone else rng.choice(STEPS)]
        while not is_alone and rng.random() < 0.5 and len(steps) < 4 and _FROM[steps[-1].to]:
            steps.append(rng.choice(_FROM[steps[-1].to]))
        made = pump(steps, rng)
        if made is None and is_alone:
            # It is not nested in itself: it is used as it is.
            before, after = _along([*_context(steps[0].kind, rng), *steps], Filling(rng))
            made = Pump(before, "", Filling(rng)(steps[-1].to), "", after)
        if made is not None:
            break
    of = " ".join(f"{step.kind}:{GRAMMAR[step.kind][step.production]!r}" for step in steps)
    is_closed = is_alone or rng.random() < 0.85
    cut = 1.0 if is_alone or rng.random() < 0.8 else rng.random()
    times = None if is_alone else rng.choice(TIMES)
    share = rng.random()
    texts = []
    for most in (made.times_max(words=WORDS_MAX), made.times_max(size=BYTES_MAX)):
        text = made.text(most if times is None else min(most, rng.choice([times, round(most**share)])), is_closed)
        texts.append(text[: round(len(text) * cut)])
    return Statement(seed, of, *texts)


TIMES = [None, None, None, 2, 10, 40, 60, 100, 300, 700, 990, 1_500, 3_000]
"""The numbers of times that a unit is repeated: some about the depths that parsers allow. None for as often as the
limits allow."""
