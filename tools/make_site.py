"""Collects the documents for the site that ``make site`` builds, and checks what was built.

    python3 tools/make_site.py collect TARGET    the pages, below TARGET/site-source, and TARGET/mkdocs.yml
    python3 tools/make_site.py check SITE        every link of the site leads to a page, a file or a place in a page

The documents stay as they are read in the repository. Here a link to a source file leads to a copy of it, one to a
folder to a list of its files, and a block that is a file has its name as title. Pages of the reference are made of
the docstrings of what ``tidemill`` exports: one that ``REFERENCE`` does not name is refused. ``llms.txt`` lists the
pages with what each is about, and ``llms-full.txt`` has their text.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
# Pages by section, as names of files in docs/ or in the root. What is in docs/ and not here comes under the last.
PAGES = {
    "Begin": ["README.md", "install.md", "tutorial.md"],
    "Use": ["language.md", "command-line.md", "server.md", "kafka.md", "reliability.md", "compatibility.md"],
    "Understand": [
        "formalism.md",
        "architecture.md",
        "time.md",
        "sessions.md",
        "data.md",
        "scheduling.md",
        "recovery.md",
    ],
    "Reasons": ["decisions.md", "invariants.md", "glossary.md"],
    "Measure": ["performance.md", "benchmarks.md", "figures.md", "windows.md", "sources.md", "s-store.md"],
    "Take part": ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"],
}
LAST = "Use"
# The names that the package exports, by page of the reference.
REFERENCE = {
    "Applications": "App Table Row Event key column event_time caller index Index",
    "Streams": "Source Stream Derived Transaction Clock Ticks StreamJoin StreamWindow",
    "Bodies of transactions": "require abort emit",
    "Values": "Decimal Time days hours minutes seconds milliseconds microseconds truncate",
    "Windows": "Window window Windows tumbling sliding session counting Aggregate",
    "Connectors": "Connector connector csv jsonl parquet ipc kafka null SourceConnector SinkConnector",
    "Generators": "generator Generated choice constant nullable sequence uniform zipf",
    "Results": "RunSummary Collected",
    "Sessions and servers": "Session AsyncSession Snapshot Follower Flushed Released Savepoint Reply Server Client "
    "Opened "
    "connect",
    "Errors": "TidemillError PlanError CompileError SchemaError LoadError RunError Aborted BusyError GoneError "
    "IdempotencyError MissedError",
}
BESIDE = {"Tests of applications": "tidemill.testing"}
UNDOCUMENTED = {"__version__"}

FENCE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]*)((?:#[^)\s]*)?\))")
# The indentation of what belongs to an item of a list; pages want four spaces.
INDENT = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
HEADING = re.compile(r"^# (.*)$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("collect", "check"):
        print("usage: make_site.py collect TARGET | make_site.py check SITE", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    faults = collect(folder) if arguments[0] == "collect" else [*dead_links(folder)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


def collect(target: Path) -> list[str]:
    """Writes the pages and the order of them. Returns what the reference lacks."""
    source = target / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    tracked = tracked_files(ROOT)
    nav, titles = [], {}
    for section, files in sections().items():
        for file in files:
            text = (ROOT / file).read_text(encoding="utf-8")
            titles[page_of(file)] = (title_of(file, text), about(text))
            (source / page_of(file)).write_text(as_page(file, text, tracked, source), encoding="utf-8")
        nav.append({section: [{titles[page_of(file)][0]: page_of(file)} for file in files]})
    for file in tracked:
        if file.startswith("docs/") and file.endswith((".png", ".svg")):
            copy(file, source / file.removeprefix("docs/"))
    nav.append({"Reference": [{title: page} for title, page in reference_pages(source)]})
    write_llms(source, nav, titles)
    configuration = {"INHERIT": os.path.relpath(ROOT / "mkdocs.yml", target), "nav": nav}
    configuration |= {"docs_dir": "site-source", "site_dir": "site"}
    configuration["plugins"] = {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "python")]}}}}
    # JSON is YAML, too.
    (target / "mkdocs.yml").write_text(json.dumps(configuration), encoding="utf-8")
    return reference_faults()


def tracked_files(root: Path) -> list[str]:
    """Returns the paths of the files that git tracks or would track."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in found.split("\0") if name and (root / name).is_file())


def sections() -> dict[str, list[str]]:
    """Returns the pages by section, as paths in the repository."""
    named = {file for files in PAGES.values() for file in files}
    found = {s: [f if (ROOT / f).is_file() else f"docs/{f}" for f in files] for s, files in PAGES.items()}
    found[LAST] += [f"docs/{file.name}" for file in sorted(ROOT.glob("docs/*.md")) if file.name not in named]
    return found


def page_of(file: str) -> str:
    """Returns the name of the page that a document becomes."""
    return "index.md" if file == "README.md" else Path(file).name


def title_of(file: str, text: str) -> str:
    heading = HEADING.search(BLOCK.sub("", text))
    return heading[1] if heading else Path(file).stem


def about(text: str) -> str:
    """Returns the first sentence below the title of a document."""
    for part in BLOCK.sub("", text).split("\n\n")[1:]:
        if re.match(r"\w", part):
            return re.split(r"(?<=[.:])\s", LINK.sub("](", " ".join(part.split())).replace("[", "").replace("](", ""))[
                0
            ]
    return ""


def as_page(file: str, text: str, tracked: list[str], source: Path) -> str:
    """Returns a document as a page: its links lead to pages and copies, its files have titles."""
    pages = {known: page_of(known) for files in sections().values() for known in files}

    def link(found: re.Match[str]) -> str:
        target = found[2]
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(file), target))
        if path in pages:
            return f"{found[1]}{pages[path]}{found[3]}"
        if path.endswith((".png", ".svg")):
            return f"{found[1]}{path.removeprefix('docs/')}{found[3]}"
        return f"{found[1]}{copy_of(path, tracked, source)})"

    return FENCE.sub(r'```\1 title="\2"', of_prose(text, lambda prose: LINK.sub(link, INDENT.sub("    ", prose))))


def of_prose(text: str, change: Callable[[str], str]) -> str:
    """Returns a document with what is outside of its blocks changed."""
    parts, end = [], 0
    for block in BLOCK.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join(parts) + change(text[end:])


def copy_of(path: str, tracked: list[str], source: Path) -> str:
    """Copies a source file, or all files of a folder and a list of them. Returns where it is in the site."""
    if (ROOT / path).is_file():
        copy(path, source / "files" / as_text(path))
        return f"files/{as_text(path)}"
    inside = [file for file in tracked if file.startswith(f"{path}/") and not Path(file).name.startswith(".")]
    for file in inside:
        copy(file, source / "files" / as_text(file))
    listing = source / "files" / path / "index.md"
    listing.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"- [`{f.removeprefix(path + '/')}`]({as_text(f).removeprefix(path + '/')})" for f in inside]
    listing.write_text(
        f"---\nsearch: {{exclude: true}}\n---\n# `{path}`\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    return f"files/{path}/index.md"


def as_text(path: str) -> str:
    """Returns a name under which a browser shows a source file, and the site takes it for no page."""
    return path if path.endswith((".html", ".txt", ".json", ".csv")) else f"{path}.txt"


def copy(file: str, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / file, to)


def reference_pages(source: Path) -> Iterator[tuple[str, str]]:
    """Writes the pages of the reference. Yields their titles and names."""
    (source / "reference").mkdir()
    places = {
        alias.name: node.module
        for node in ast.walk(exports())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    # A name is taken from the module that defines it, since a module may have the name of a function.
    entries = {
        title: [f"tidemill.{places[name]}.{name}" for name in names.split()] for title, names in REFERENCE.items()
    }
    entries |= {title: [module] for title, module in BESIDE.items()}
    for title, names in entries.items():
        page = f"reference/{title.lower().replace(' ', '-')}.md"
        (source / page).write_text(f"# {title}\n\n" + "\n\n".join(f"::: {n}" for n in names) + "\n", encoding="utf-8")
        yield title, page


def exports() -> ast.Module:
    """Returns the module that says what the package exports."""
    return ast.parse((ROOT / "python" / "tidemill" / "__init__.py").read_text(encoding="utf-8"))


def reference_faults() -> list[str]:
    """Returns how the reference differs from what the package exports."""
    (exported,) = (
        ast.literal_eval(node.value)
        for node in exports().body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    shown = [name for names in REFERENCE.values() for name in names.split()]
    faults = [f"REFERENCE of tools/make_site.py lacks {n}" for n in exported if n not in {*shown, *UNDOCUMENTED}]
    faults += [
        f"REFERENCE of tools/make_site.py has {n}, which tidemill does not export" for n in shown if n not in exported
    ]
    return faults + [
        f"REFERENCE of tools/make_site.py has {n} twice" for n in sorted({n for n in shown if shown.count(n) > 1})
    ]


def write_llms(source: Path, nav: list[dict[str, list[dict[str, str]]]], titles: dict[str, tuple[str, str]]) -> None:
    """Writes the list of pages for language models, and their text in one file."""
    index = [
        "# Tidemill",
        "",
        f"> {titles['index.md'][1]}",
        "",
        "The text of all pages is in [llms-full.txt](llms-full.txt).",
    ]
    whole = []
    for section in nav:
        for name, pages in section.items():
            index += ["", f"## {name}", ""]
            for page in pages:
                for title, file in page.items():
                    told = titles.get(file, (title, ""))[1]
                    index.append(f"- [{title}]({file.removesuffix('.md')}.html)" + (f": {told}" if told else ""))
                    if file in titles:
                        whole.append((source / file).read_text(encoding="utf-8"))
    (source / "llms.txt").write_text("\n".join(index) + "\n", encoding="utf-8")
    (source / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


class Page(HTMLParser):
    """The links of a page, and the places in it that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the place and the link of an element."""
        named = {name: value for name, value in attrs if value}
        self.places |= {named[name] for name in ("id", "name") if name in named}
        self.links += [named[name] for name in ("href", "src") if name in named]


def dead_links(site: Path) -> Iterator[str]:
    """Yields the links of a site that lead nowhere."""
    pages = {
        p.resolve(): Page(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html")) if p.name != "404.html"
    }
    count = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            where = path.relative_to(site.resolve())
            if not target.is_relative_to(site.resolve()) or not target.is_file():
                yield f"{where} links to {link}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{where} links to {link}, and there is no such place"
    print(f"{len(pages)} pages, {count} links")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
