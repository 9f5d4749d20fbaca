"""Refuses circles of imports among more than FILES_MAX files of a crate.

Run by ``make lint``. Files of one circle cannot be understood, tested or moved apart from each other, so a circle
must stay as small as one idea. For each crate, a file points to each file whose items it names, in a ``use`` or
where it needs them; the circles are the strongly connected components of that graph.

An item is sought in the file that defines it: names that a module only re-exports are followed, also under other
names and by globs. A ``pub use`` by itself is therefore not an import, nor is a ``mod``. Tests (``#[cfg(test)]``) are
not looked at, nor is what stands in for the standard library under the model checker.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rust_source import NOISE, without

FILES_MAX = 5
# Re-exports that are followed to an item: they may lead around in a circle.
DEPTH_MAX = 8

MODEL_CHECKER = '#[cfg(feature = "loom")]'
TEST_FILE = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod (\w+);")
TEST_BLOCK = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod \w+ \{")
MODULE = re.compile(r"\bmod (\w+);")
USE = re.compile(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
DEFINITION = re.compile(
    r"""\bpub(?:\([^)]*\))?\s+(?:(?:unsafe|async|const|extern)\s+)*
    (?:fn|struct|enum|union|trait|type|const|static(?:\s+mut)?)\s+(\w+)""",
    re.VERBOSE,
)
INLINE = re.compile(r"(?<![\w:])(\w+(?:::\w+)+)")


class File:
    """A module that has a file."""

    def __init__(self, source: Path, module: tuple[str, ...]) -> None:
        text = source.read_text(encoding="utf-8").replace(MODEL_CHECKER, "#[cfg(test)]")
        text = NOISE.sub(" ", text)
        self.source, self.module = source, module
        self.test_children = set(TEST_FILE.findall(text))
        text = without(TEST_BLOCK, text)
        self.children = [name for name in MODULE.findall(text) if name not in self.test_children]
        self.imports: list[tuple[str, ...]] = []
        self.exports: list[tuple[tuple[str, ...], str]] = []
        for public, tree in USE.findall(text):
            if public:
                self.exports += paths_of(tree)
            else:
                self.imports += [path for path, _ in paths_of(tree)]
        text = USE.sub(" ", text)
        self.defined = set(DEFINITION.findall(text))
        self.imports += [tuple(path.split("::")) for path in INLINE.findall(text)]


def paths_of(tree: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths that a ``use`` names, each with the name that it has from there on: ``*`` for a glob."""
    tree = re.sub(r"\s+", " ", tree).strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        whole, _, name = tree.partition(" as ")
        path = tuple(part.strip() for part in whole.split("::"))
        yield path, name.strip() or path[-1]
        return
    prefix = tuple(part.strip() for part in head.split("::") if part.strip())
    depth, part = 0, ""
    for letter in rest.rpartition("}")[0] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if part.strip():
                for path, name in paths_of(part):
                    own = path == ("self",)
                    yield (prefix if own else prefix + path), (prefix[-1] if own and name == "self" else name)
            part = ""
        else:
            part += letter


class Crate:
    """The files of a crate, by module."""

    def __init__(self, root: Path) -> None:
        self.files: dict[tuple[str, ...], File] = {}
        self.read(root, ())

    def read(self, source: Path, module: tuple[str, ...]) -> None:
        """Reads a module and those in it."""
        file = File(source, module)
        self.files[module] = file
        folder = source.parent if source.name in {"lib.rs", "main.rs", "mod.rs"} else source.with_suffix("")
        for child in file.children:
            for path in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if path.exists():
                    self.read(path, (*module, child))

    def target(self, path: tuple[str, ...], inside: tuple[str, ...], depth: int = 0) -> tuple[str, ...] | None:
        """The module whose file defines what a path in a module stands for; None for what is not of the crate."""
        if path[0] == "crate":
            module, path = (), path[1:]
        elif path[0] in {"self", "super"}:
            module = inside
            while path and path[0] in {"self", "super"}:
                module = module[:-1] if path[0] == "super" else module
                path = path[1:]
        elif (*inside, path[0]) in self.files:
            module = inside
        else:
            return None
        while path and (*module, path[0]) in self.files:
            module, path = (*module, path[0]), path[1:]
        if not path or path == ("*",):
            return module
        return self.defining(path, module, depth) or module

    def defining(self, path: tuple[str, ...], module: tuple[str, ...], depth: int) -> tuple[str, ...] | None:
        """The module that defines what a path below a module stands for, as far as the module says: it defines the
        name itself, or re-exports it."""
        file = self.files[module]
        if path[0] in file.defined or depth > DEPTH_MAX:
            return module
        # A name hides those of globs, also where it is another crate's.
        named = [export for export, name in file.exports if name == path[0]]
        if named:
            found = (self.target(export + path[1:], module, depth + 1) for export in named)
        else:
            globs = (self.target(export, module, depth + 1) for export, name in file.exports if name == "*")
            found = (self.defining(path, inside, depth + 1) for inside in globs if inside not in {None, module})
        return next((other for other in found if other is not None), module if named else None)

    def arrows(self) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
        """The modules that each imports."""
        found = {}
        for module, file in self.files.items():
            targets = {self.target(path, module) for path in file.imports}
            found[module] = {target for target in targets if target is not None and target != module}
        return found

    def circles(self) -> list[list[Path]]:
        """Files that import each other, of each circle, the largest first."""
        components = strongly_connected(self.arrows())
        circles = [sorted(self.files[module].source for module in circle) for circle in components if len(circle) > 1]
        return sorted(circles, key=len, reverse=True)


def strongly_connected(arrows: dict[tuple[str, ...], set[tuple[str, ...]]]) -> list[list[tuple[str, ...]]]:
    """Tarjan's algorithm (SIAM J. Computing 1(2), 1972)."""
    index: dict[tuple[str, ...], int] = {}
    low: dict[tuple[str, ...], int] = {}
    stack: list[tuple[str, ...]] = []
    components = []

    def visit(node: tuple[str, ...]) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            components.append(stack[at:])
            del stack[at:]

    for node in arrows:
        if node not in index:
            visit(node)
    return components


def crates(repository: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted([*repository.glob("crates/*"), repository / "python", repository / "bench"]):
        for root in ("lib.rs", "main.rs"):
            if (folder / "src" / root).exists():
                yield folder.name, folder / "src" / root


def check(repository: Path) -> list[str]:
    faults = []
    for name, root in crates(repository):
        for circle in Crate(root).circles():
            if len(circle) > FILES_MAX:
                files = ", ".join(str(file.relative_to(root.parent)) for file in circle)
                faults.append(f"crate {name}: {len(circle)} files import each other in a circle: {files}")
    return faults


def main() -> int:
    repository = Path(__file__).parents[1]
    if "--all" in sys.argv:
        for name, root in crates(repository):
            for circle in Crate(root).circles():
                print(f"{name}: {len(circle)}: {', '.join(str(file.relative_to(root.parent)) for file in circle)}")
    faults = check(repository)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(faults)} circles of imports among more than {FILES_MAX} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
