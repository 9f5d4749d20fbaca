"""Holds the documents to the code: every path, command and name in them exists.

Run by ``make lint``. It reads the inline code (between backquotes) and the commands of indented and ``sh``
blocks, and refuses

- a path that no file or folder of the repository has, or ends with (``gate.rs``, ``runtime/src/gate.rs``);
- a name after a path, as in "`gate.rs` (`limit`)" and "`gate.rs`, `limit`", that this file does not define,
  and a path after a crate, as in "`txn`, `graph.rs`", that this crate does not have;
- ``make X``, ``tidemill X``, ``cargo ... -p X --test Y -- Z`` whose target, command, package, test or example
  does not exist, and an ``--option`` that no command has;
- a name (``snake_case``, ``CamelCase``) that the code does not define, ``Type::item`` where no file defines
  the item and has the type, ``krate::item`` where the crate has no such item, and any other ``word`` that
  occurs nowhere in the code outside of comments;
- in ``invariants.md``, a test's name in quotes that is no string of the sources;
- a document that a comment in the code names and that does not exist;
- a crate that the table of crates in ``docs/architecture.md`` leaves out;
- more than ``WORDS_MAX`` words in ``docs/architecture.md``, which is read first: give a part a page of its own.

What is not ours to define stands in ``FOREIGN``, each with its reason. Given up: Python and Rust are not
parsed, so a common word is found somewhere even where the thing that it named is gone. Name things by
their path, or as ``Type::method``, where that matters.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKIPPED = {".git", ".venv", "target", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "shared"}
SOURCES = {".rs", ".py", ".pyi", ".toml", ".sh", ".txt"}

# This file and its test have names that nothing else has.
OWN = {"check_documents.py", "test_documents.py"}
# Names that others define, by reason.
FOREIGN = {
    "the operating system": ["flock", "noauto_da_alloc"],
    "libraries of others": ["try_lock", "SyntaxError", "DeprecationWarning", "redb", "fjall", "jsonwebtoken"],
    "the first line of a manifest": ["tidemill state"],
    "SQL that is answered": ["tidemill_epoch"],
    "variables that are made of the names of options": ["TIDEMILL_CONFIG", "TIDEMILL_SEED_FROM", "TIDEMILL_STATE"],
    "shells": ["elvish", "powershell"],
}
# Words of the document that leads to the others.
WORDS_MAX = 5_000
ALLOWED = set(itertools.chain(*FOREIGN.values()))
DEFINITION = re.compile(
    r"\b(?:fn|struct|enum|trait|type|const|static|mod|union|class|def|macro_rules!|let|let mut)\s+([A-Za-z_]\w*)"
    r"|^\s*(?:pub(?:\([\w:]+\))?\s+)?(?:([A-Za-z_]\w*)\s*[:=](?!:)|([A-Z]\w*)\s*[({,])"
    r"|\"([A-Za-z_]\w*)\"",
    re.MULTILINE,
)
# In a document these stand for what the reader has: `DIR/log`, `tidemill run FILE[:app]`.
PLACEHOLDER = re.compile(
    r"\b(DIR|NAME|FILE|FOLDER|TABLE|POLICY|SOURCE|TIME|POSITION|SAVEPOINT|NNNNNNNN)\b|[<>*…]|\.\.\."
)
EXTENSION = re.compile(r"\.(rs|py|md|toml|sh|txt|lock|yml)$")
NAME = re.compile(r"[A-Za-z_]\w*")
QUALIFIED = re.compile(r"@?[A-Za-z_]\w*((::|\.)[A-Za-z_]\w*)*(\(.*\))?!?")
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n)+")
LINE_COMMENT = {".rs": re.compile(r"//.*"), ".py": re.compile(r"(?<!['\"])#.*"), ".toml": re.compile(r"#.*")}


def main(documents: list[str]) -> int:
    paths = [Path(name).resolve() for name in documents] or [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/*.md"))]
    repository = Repository(ROOT)
    faults = [fault for path in paths for fault in check(path, path.read_text(encoding="utf-8"), repository)]
    if not documents:
        faults += [*unknown_documents(repository), *unlisted_crates(repository), *long_documents(repository)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(paths)} documents, {len(faults)} names that nothing has")
    return 1 if faults else 0


class Repository:
    """The names that documents may use: files, words of the code, commands and options."""

    def __init__(self, root: Path):
        self.root = root
        self.files = [path for path in walk(root) if path.is_file()]
        sources = (path for path in self.files if path.suffix in SOURCES and path.name not in OWN)
        self.code = {path: without_comments(path) for path in sources}
        self.words = {path: set(NAME.findall(text)) for path, text in self.code.items()}
        self.defined = {
            path: {name for found in DEFINITION.findall(text) for name in found if name}
            for path, text in self.code.items()
        }

    @cached_property
    def paths(self) -> set[str]:
        """Every end of the path of a file or folder, also without ``.rs`` and with the crate's ``src`` left out."""
        ends: set[str] = set()
        for file in self.files:
            parts = file.relative_to(self.root).parts
            whole = [parts[:length] for length in range(1, len(parts) + 1)]
            whole += [tuple(part for part in path if part != "src") for path in whole]
            for path in whole:
                for begin in range(len(path)):
                    end = "/".join(path[begin:])
                    ends |= {end, end.removesuffix(".rs")}
        return ends

    @cached_property
    def every_word(self) -> set[str]:
        """The words that occur anywhere in the code."""
        return set().union(*self.words.values())

    @cached_property
    def of_crates(self) -> list[str]:
        """The code of the Rust crates."""
        return [code for file, code in self.code.items() if file.is_relative_to(self.root / "crates")]

    @cached_property
    def every_definition(self) -> set[str]:
        """The names that some file defines, or has as a string."""
        return set().union(*self.defined.values())

    def find(self, path: str) -> list[Path]:
        """The files at the end of whose path this is, or in such a folder."""
        path = path.rstrip("/")
        found = []
        for file in self.code:
            whole = "/" + file.relative_to(self.root).as_posix()
            short = whole.replace("/src/", "/")
            if any(w.endswith((f"/{path}", f"/{path}.rs")) or f"/{path}/" in w for w in (whole, short)):
                found.append(file)
        return found

    def text(self, path: str) -> str:
        """A file's content."""
        return (self.root / path).read_text(encoding="utf-8")

    @cached_property
    def targets(self) -> set[str]:
        """The targets of ``make``."""
        return set(re.findall(r"^([a-z][\w-]*):", self.text("Makefile"), re.MULTILINE))

    @cached_property
    def packages(self) -> set[str]:
        """The packages that ``cargo -p`` takes."""
        manifests = [file for file in self.files if file.name == "Cargo.toml"]
        return {m[1] for file in manifests if (m := re.search(r'^name = "(.*)"', self.code[file], re.MULTILINE))}

    @cached_property
    def options(self) -> set[str]:
        """Long options that the command and the benchmarks define."""
        found = {"--help", "--version"}
        for file, code in self.code.items():
            if file.suffix == ".rs":
                for named, field in re.findall(r"#\[arg\(([^\]]*?\blong\b[^\]]*)\)\]\s*(?:pub )?(\w+):", code):
                    given = re.search(r'long = "(.*?)"', named)
                    found.add("--" + (given[1] if given else field.replace("_", "-")))
        return found

    def commands(self, path: str, name: str = "Command") -> set[str]:
        """The variants of an enum of commands, in a file or a folder, as they are typed."""
        place = self.root / path
        code = "".join(code for file, code in self.code.items() if file == place or file.is_relative_to(place))
        body = re.search(rf"enum {name} \{{\n(.*?)^\}}", code, re.MULTILINE | re.DOTALL)
        return {variant.lower() for variant in re.findall(r"^    (\w+)\b", body[1] if body else "", re.MULTILINE)}


def walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name not in SKIPPED and not path.name.endswith(".egg-info"):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from walk(path)


def without_comments(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    comment = LINE_COMMENT.get(path.suffix)
    return comment.sub("", text) if comment else text


def check(path: Path, text: str, repository: Repository) -> Iterator[str]:
    """Finds the names of a document that the repository does not have."""
    name = path.relative_to(repository.root) if path.is_relative_to(repository.root) else path
    prose = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    shown = {block[2] for block in re.finditer(r"^```(\w+) (\S+)$", text, re.MULTILINE)}
    for block in FENCE.finditer(text):
        if block[1] in ("sh", "console"):
            for line in block[2].splitlines():
                if block[1] == "sh" or line.startswith("$ "):
                    for fault in command_faults(line.removeprefix("$ "), repository, shown):
                        yield f"{place_in(text, name, block.start())}: {fault}"
    for block in INDENTED.finditer(prose):
        for line in block[0].splitlines():
            for fault in command_faults(line.strip(), repository):
                yield f"{place_in(prose, name, block.start())}: {fault}"
    prose = INDENTED.sub(lambda m: "\n" * m[0].count("\n"), prose)
    spans = list(SPAN.finditer(prose))
    for number, span in enumerate(spans):
        words = " ".join(span[2].split())
        if words in shown:
            continue
        faults = span_faults(words, repository)
        if EXTENSION.search(words) and not faults:
            before = spans[number - 1][2] if number and follows(prose, spans[number - 1], span) else ""
            faults = listed_faults(words, before, [*listed_after(prose, spans[number:])], repository)
        for fault in faults:
            yield f"{place_in(prose, name, span.start())}: {fault}"
    if path.name == "invariants.md":
        for quoted in re.finditer(r'"([^"\n]{8,})"', prose):
            if not any(f'"{quoted[1]}' in code or f'{quoted[1]}"' in code for code in repository.of_crates):
                yield f"{place_in(prose, name, quoted.start())}: no string of the sources is {quoted[0]}"


def place_in(text: str, name: Path, position: int) -> str:
    return f"{name}:{text.count(chr(10), 0, position) + 1}"


def span_faults(words: str, repository: Repository) -> list[str]:
    """Returns the faults of a piece of inline code."""
    if words in ALLOWED or (PLACEHOLDER.search(words) and not words.startswith(("tidemill ", "cargo ", "make "))):
        return []
    first = words.split()[0]
    if first in ("make", "cargo", "tidemill", "python", "python3", "pytest") and " " in words:
        return command_faults(words, repository)
    if first.startswith("--"):
        return option_faults(words, repository)
    if " " not in words and ("/" in words or EXTENSION.search(words)):
        return path_faults(words, repository)
    if QUALIFIED.fullmatch(words):
        return name_faults(words.split("(")[0].strip("@!"), repository)
    return []


def path_faults(words: str, repository: Repository) -> list[str]:
    if words.startswith((".", "/", "target/", "~")) or "://" in words:
        return []
    return [f"no file is {one}" for one in braces(words) if one.rstrip("/") not in repository.paths]


def braces(words: str) -> list[str]:
    """``a/{b,c}.rs`` is ``a/b.rs`` and ``a/c.rs``."""
    found = re.search(r"\{(.*?)\}", words)
    if not found:
        return [words]
    return [words[: found.start()] + one + words[found.end() :] for one in found[1].split(",")]


def name_faults(words: str, repository: Repository) -> list[str]:
    parts = [part for part in re.split(r"::|\.", words) if part not in ALLOWED]
    for part in parts:
        looked_for = repository.every_definition if is_distinct(part) else repository.every_word
        if part not in looked_for and part not in repository.paths:
            return [f"no code defines {part}" + (f", of {words}" if part != words else "")]
    if "::" in words and len(parts) > 1:
        crate = repository.root / "crates" / parts[0]
        if crate.is_dir():
            files = [file for file in repository.code if file.is_relative_to(crate)]
            if not all(any(has(repository, file, part) for file in files) for part in parts[1:]):
                return [f"crate {parts[0]} has no {'::'.join(parts[1:])}"]
        elif not any(is_member(repository, file, parts) for file in repository.code):
            return [f"no file defines {parts[-1]} and has {'::'.join(parts[:-1])}"]
    return []


def is_distinct(name: str) -> bool:
    """Returns whether it looks like a name of the code, and not like a word."""
    return "_" in name.strip("_") or bool(re.match(r"[A-Z]\w*[a-z]", name))


def has(repository: Repository, file: Path, name: str) -> bool:
    return name in repository.defined[file] or name in (file.stem, file.parent.name)


def is_member(repository: Repository, file: Path, parts: list[str]) -> bool:
    words = repository.words[file] | {file.stem, file.parent.name}
    return parts[-1] in repository.defined[file] and all(part in words for part in parts[:-1])


def follows(text: str, one: re.Match[str], other: re.Match[str]) -> bool:
    """Returns whether there is only a comma between two pieces of inline code."""
    return bool(re.fullmatch(r",\s+", text[one.end() : other.start()]))


def listed_after(text: str, spans: list[re.Match[str]]) -> Iterator[str]:
    """The names that follow the first of these: "`a.rs`, `B`, `c`" and "`a.rs` (`B`, `c` while it rains)"."""
    if parenthesis := re.match(r"\s\(([^()]*(?:\(\)[^()]*)*)\)", text[spans[0].end() :]):
        yield from (span[2] for span in SPAN.finditer(parenthesis[1]))
    for one, other in itertools.pairwise(spans):
        if not follows(text, one, other) or EXTENSION.search(other[2]):
            return
        yield other[2]


def listed_faults(path: str, crate: str, listed: list[str], repository: Repository) -> list[str]:
    """The names that follow a path must be defined in its code, and the path be in the crate before it."""
    files = [file for one in braces(path) for file in repository.find(one)]
    folder = repository.root / "crates" / crate
    if crate and folder.is_dir():
        files = [file for file in files if file.is_relative_to(folder)]
        if not files:
            return [f"crate {crate} has no {path}"]
    faults = []
    for name in [name.split("(")[0] for name in listed if QUALIFIED.fullmatch(name)]:
        last = re.split(r"::|\.", name)[-1]
        if files and not any(last in repository.defined[file] for file in files):
            faults.append(f"{path} defines no {name}")
    return faults


def option_faults(words: str, repository: Repository) -> list[str]:
    options = re.findall(r"(?<![\w-])--[a-z][\w-]*", words)
    return [f"no command has the option {option}" for option in options if option not in repository.options]


def command_faults(line: str, repository: Repository, shown: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """Returns the faults of a command line of make, cargo, tidemill or python."""
    line = re.sub(r"\s#\s.*", "", line)
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    faults = []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        variable = words.pop(0).partition("=")[0]
        if variable not in repository.every_word:
            faults.append(f"no code reads {variable}")
    return faults + program_faults(words, repository, shown)


def program_faults(words: list[str], repository: Repository, shown: frozenset[str] | set[str]) -> list[str]:
    if not words:
        return []
    if words[0] == "make":
        return make_faults(words[1:], repository)
    if words[0] == "cargo":
        return cargo_faults(words[1:], repository)
    if words[0] == "tidemill":
        return tidemill_faults(words[1:], repository)
    if words[0] in ("python", "python3"):
        files = [word for word in words[1:] if word.endswith(".py") and word not in shown]
        return [f"no file is {file}" for file in files if not (repository.root / file).exists()]
    return []


def make_faults(words: list[str], repository: Repository) -> list[str]:
    faults = []
    for word in words:
        variable, given, _ = word.partition("=")
        if given and variable not in repository.text("Makefile"):
            faults.append(f"the Makefile reads no {variable}")
        elif not given and word not in repository.targets:
            faults.append(f"make has no target {word}")
    return faults


def cargo_faults(words: list[str], repository: Repository) -> list[str]:
    ours, _, theirs = " ".join(words).partition(" -- ")
    faults = []
    package = None
    for flag, value in re.findall(r"(-p|--package|--test|--example|--features)[ =](\S+)", ours):
        if PLACEHOLDER.search(value):
            continue
        if flag in ("-p", "--package"):
            package = value
            if value not in repository.packages:
                faults.append(f"no package is {value}")
        elif flag in ("--test", "--example"):
            folder = flag.removeprefix("--") + "s"
            ends = (f"/{folder}/{value}.rs", f"/{folder}/{value}/main.rs")
            if not any(file.as_posix().endswith(ends) for file in repository.files):
                faults.append(f"no {folder} of a crate is {value}")
        elif not any(re.search(rf"^{value} = \[", code, re.MULTILINE) for code in repository.code.values()):
            faults.append(f"no crate has the feature {value}")
    flat = re.sub(r"-\S+[ =]\S+|-\S+", "", ours.removeprefix("test")) if words[:1] == ["test"] else ""
    for name in flat.split():
        if not any(name in defined for names in repository.defined.values() for defined in names):
            faults.append(f"no test is {name}")
    if package == "tidemill-bench" and theirs:
        command = theirs.split()[0]
        if not command.startswith("-") and command not in repository.commands("bench/src/main.rs"):
            faults.append(f"tidemill-bench has no command {command}")
        faults += option_faults(theirs, repository)
    return faults


def tidemill_faults(words: list[str], repository: Repository) -> list[str]:
    file = "crates/cli/src/arguments"
    faults = option_faults(" ".join(words), repository)
    if words and words[0].isalpha():
        if words[0] not in repository.commands(file):
            faults.append(f"tidemill has no command {words[0]}")
        inner = repository.commands(file, f"{words[0].capitalize()}Command")
        if inner and len(words) > 1 and words[1] not in inner:
            faults.append(f"tidemill {words[0]} has no command {words[1]}")
    return faults


def unknown_documents(repository: Repository) -> Iterator[str]:
    """Documents that comments in the code name and that do not exist."""
    for file in repository.code:
        text = file.read_text(encoding="utf-8", errors="replace")
        for found in re.finditer(r"\bdocs/[\w-]+\.md\b|\bDESIGN\b", text):
            if not (repository.root / found[0]).exists():
                yield f"{file.relative_to(repository.root)}: there is no document {found[0]}"


def long_documents(repository: Repository) -> Iterator[str]:
    """Finds a leading document that has more than ``WORDS_MAX`` words."""
    words = len(repository.text("docs/architecture.md").split())
    if words > WORDS_MAX:
        yield f"docs/architecture.md: {words:,} words, more than {WORDS_MAX:,}: give a part of it a page of its own"


def unlisted_crates(repository: Repository, page: str = "docs/architecture.md") -> Iterator[str]:
    """Crates that the table of crates leaves out."""
    chapter = repository.text(page).partition("\n## Crates\n")[2].partition("\n## ")[0]
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", chapter, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    for package in sorted(repository.packages):
        if package.removeprefix("tidemill-") not in listed:
            yield f"{page}: the table of crates lacks {package}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
