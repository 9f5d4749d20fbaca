"""tools/check_circles.py finds circles of imports, in whichever way files name each other's items."""

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("check_circles", REPOSITORY / "tools/check_circles.py")
check_circles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_circles)


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


def test_what_is_no_import_is_not_counted(tmp_path):
    write(tmp_path, ring(6, '// use crate::f{0}::Item;\n/* crate::f{0}::Item */\nconst A: &str = "crate::f{0}";'))
    assert check_circles.check(tmp_path) == []
    write(
        tmp_path,
        ring(6, "fn f<'a>() {{}}\n#[cfg(test)]\nmod tests {{\n    use crate::f{0}::Item;\n    fn g() {{}}\n}}\n"),
    )
    assert check_circles.check(tmp_path) == []


def test_this_repository_has_no_large_circles():
    assert check_circles.check(REPOSITORY) == []
