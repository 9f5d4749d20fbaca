"""The documents: their programs run and print what they show, and their links lead somewhere.

A block whose first line is ```` ```python bank.py ```` (or ``csv``, ``json``) is a file; a ``console``
block is commands behind ``$`` with what they print. In printed text ``...`` stands for anything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import load_tool

ROOT = Path(__file__).parents[2]
RUN = ["README.md", "docs/server.md", "docs/tutorial.md"]
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(not DOCUMENTS, reason="the documents are not in the package")


def blocks(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, match[1], match[2], match[3]


def commands(block):
    """The commands of a console block, with what each prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def pattern(printed):
    """Matches what a document shows; space at the ends of lines does not count."""
    return "".join(".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", printed.strip()))


def execute(command, folder):
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "100",
    }
    ran = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        encoding="utf-8",
    )
    return ran.returncode, "\n".join(line.rstrip() for line in ran.stdout.strip().splitlines())


@pytest.mark.parametrize("document", RUN)
def test_what_a_document_shows(document, tmp_path):
    ran = 0
    for line, language, name, content in blocks(document):
        if language == "console":
            for command, printed in commands(content):
                code, output = execute(command, tmp_path)
                shown = f"{document}:{line}: $ {command}\n{output}"
                assert re.fullmatch(pattern(printed), output, re.DOTALL), shown
                assert code == 0, shown
                ran += 1
        elif name is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
        else:
            assert language == "sh", f"{document}:{line}: a block of {language} that nothing runs"
    assert ran > 0, f"{document} shows nothing"


def anchors(path):
    """Returns the anchors that links may lead to in a document: its headings, in lower case, with dashes for spaces."""
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links(document):
    path = ROOT / document
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" not in target:
            file = path.parent / target if target else path
            assert file.exists(), f"{document} links to {target}, which is not there"
            if anchor:
                assert anchor in anchors(file), f"{document} links to {target}#{anchor}, and there is no such heading"


@pytest.fixture(scope="module")
def checker():
    """tools/check_documents.py, which ``make lint`` runs over the documents, and the repository as it reads it."""
    module = load_tool("check_documents")
    return module, module.Repository(ROOT)


@pytest.mark.parametrize(
    "written",
    [
        "`crates/txn/src/graph.rs`",
        "`graph.rs` (`Graph`)",
        "`Graph`",
        "`durability::Storage`",
        "`Executor::new`",
        "`tidemill run bank.py --state ./state`",
        "`make test`",
        "`cargo test -p tidemill-txn --test graph`",
        "`TIDEMILL_SEED=1 cargo test -p tidemill-runtime --test differential random_histories`",
        "`cargo run --release -p tidemill-bench -- grid --runs 3`",
    ],
)
def test_what_exists_passes(checker, written):
    module, repository = checker
    assert list(module.check(ROOT / "new.md", written, repository)) == []


@pytest.mark.parametrize(
    "written",
    [
        "`crates/txn/src/graphs.rs`",
        "`graph.rs` (`Committer`)",
        "`graph.rs`, `Graph`, `Committer`",
        "`txn`, `policy.rs`",
        "`GateKeeper`",
        "`gate_keeper`",
        "`durability::Stowage`",
        "`Executor::reticulate`",
        "`tidemill walk bank.py`",
        "`tidemill run bank.py --estate ./state`",
        "`tidemill savepoint crate DIR NAME`",
        "`make tests`",
        "`cargo test -p tidemill-txs`",
        "`cargo test -p tidemill-txn --test graphs`",
        "`cargo test -p tidemill-runtime --test differential random_mysteries`",
        "`cargo run --release -p tidemill-bench -- grids`",
        "`--schedule`",
        "```sh\nmake tests\n```\n",
        "\n\n    cargo test -p tidemill-txs\n\n",
    ],
)
def test_what_does_not_exist_is_found(checker, written):
    module, repository = checker
    assert len(list(module.check(ROOT / "new.md", written, repository))) == 1


def test_a_crate_that_is_not_listed_is_found(checker, monkeypatch):
    module, repository = checker
    monkeypatch.setattr(repository, "packages", {*repository.packages, "tidemill-new"})
    assert len(list(module.unlisted_crates(repository))) == 1


def test_a_leading_document_that_grows_is_found(checker, monkeypatch):
    module, repository = checker
    assert not list(module.long_documents(repository))
    monkeypatch.setattr(module, "WORDS_MAX", 1_000)
    assert len(list(module.long_documents(repository))) == 1


def test_a_test_that_does_not_exist_is_found(checker):
    module, repository = checker
    assert len(list(module.check(ROOT / "invariants.md", '| "no such test of ours" |', repository))) == 1
