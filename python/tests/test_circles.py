"""tools/check_circles.py finds circles of imports, in whichever way files name each other's items."""

from pathlib import Path

import pytest
from conftest import TOOLS, load_tool

check_circles = load_tool("check_circles")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / "crates/example/src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def ring(count: int, arrow: str) -> dict[str, str]:
    """Files that each import the next one."""
    modules = "".join(f"mod f{n};\n" for n in range(count))
    return {"lib.rs": modules} | {f"f{n}.rs": arrow.format((n + 1) % count) for n in range(count)}


ARROWS = [
    "use crate::f{0}::Item;",
    "use crate::{{\n    f{0}::{{Item, Other}},\n}};",
    "use super::f{0}::*;",
    "fn f() -> crate::f{0}::Item {{ super::f{0}::make() }}",
]


@pytest.mark.parametrize("arrow", ARROWS)
def test_a_circle_of_more_than_five_files_is_refused(tmp_path, arrow):
    write(tmp_path, ring(5, arrow))
    assert check_circles.check(tmp_path) == []
    write(tmp_path, ring(6, arrow))
    [fault] = check_circles.check(tmp_path)
    assert fault == "crate example: 6 files import each other in a circle: " + ", ".join(f"f{n}.rs" for n in range(6))


def test_an_item_is_sought_where_it_is_defined(tmp_path):
    # Through the façade, each names the next one.
    facade = "".join(f"mod f{n};\npub use f{n}::Item{n};\n" for n in range(6))
    files = {f"f{n}.rs": f"use crate::Item{(n + 1) % 6};" for n in range(6)}
    write(tmp_path, {"lib.rs": facade, **files})
    assert "6 files" in check_circles.check(tmp_path)[0]
    # All need what the façade itself defines, and it uses them.
    users = "".join(f"mod f{n};\nuse f{n}::go;\n" for n in range(5))
    write(tmp_path, {"lib.rs": users + "pub struct Shared;", **{f"f{n}.rs": "use crate::Shared;" for n in range(5)}})
    assert "6 files" in check_circles.check(tmp_path)[0]


# A façade's line for each file, and the file.
FACADES = [
    ("pub use f{0}::Item{0};", "pub struct Item{0};\nuse crate::Item{1};"),
    ("pub use f{0}::Item as Item{0};", "pub struct Item;\nuse crate::Item{1};"),
    ("pub use f{0}::{{self as g{0}, Item as Item{0}}};", "pub struct Item;\nfn f() {{ crate::g{1}::Item }}"),
    ("pub use f{0}::*;", 'pub(crate) unsafe extern "C" fn make{0}() {{}}\nuse crate::make{1};'),
    ("mod g{0} {{}}\npub(crate) use f{0}::{{*}};", "pub enum Item{0} {{ One }}\nuse crate::Item{1}::One;"),
    ("pub use again::*;", "pub trait Item{0} {{}}\nuse crate::Item{1};"),
]


@pytest.mark.parametrize(("line", "file"), FACADES, ids=[line for line, _ in FACADES])
def test_re_exports_are_followed(tmp_path, line, file):
    facade = "mod again;\n" + "".join(f"mod f{n};\n{line.format(n)}\n" for n in range(6))
    files = {f"f{n}.rs": file.format(n, (n + 1) % 6) for n in range(6)}
    again = "".join(f"pub use crate::f{n}::*;\n" for n in range(6))
    write(tmp_path, {"lib.rs": facade, "again.rs": again, **files})
    [fault] = check_circles.check(tmp_path)
    assert fault.startswith("crate example: 6 files import each other in a circle: f0.rs")


def test_a_name_hides_those_of_globs(tmp_path):
    # Each file defines a Mutex of its own, but that of the façade is std's.
    facade = "pub use std::sync::Mutex;\n" + "".join(f"mod f{n};\npub use f{n}::*;\n" for n in range(6))
    files = {f"f{n}.rs": f"pub struct Mutex;\nuse crate::Item{(n + 1) % 6};\npub struct Item{n};" for n in range(5)}
    write(tmp_path, {"lib.rs": facade, "f5.rs": "pub struct Item5;\nuse crate::Mutex;", **files})
    assert check_circles.check(tmp_path) == []


def test_what_the_model_checker_takes_is_not_counted(tmp_path):
    files = ring(6, "use crate::f{0}::Item;")
    files["lib.rs"] = files["lib.rs"].replace("mod f3;", '#[cfg(feature = "loom")]\npub(crate) mod f3;')
    write(tmp_path, files)
    assert check_circles.check(tmp_path) == []


def test_what_is_no_import_is_not_counted(tmp_path):
    write(tmp_path, ring(6, '// use crate::f{0}::Item;\n/* crate::f{0}::Item */\nconst A: &str = "crate::f{0}";'))
    assert check_circles.check(tmp_path) == []
    write(
        tmp_path,
        ring(6, "fn f<'a>() {{}}\n#[cfg(test)]\nmod tests {{\n    use crate::f{0}::Item;\n    fn g() {{}}\n}}\n"),
    )
    assert check_circles.check(tmp_path) == []


def test_this_repository_has_no_large_circles():
    assert check_circles.check(TOOLS.parent) == []
