"""The licences of others that are in the package, ``tools/notices.py``."""

import pytest
from conftest import load_tool

tool = load_tool("notices")


@pytest.fixture
def crate(tmp_path):
    """Makes a crate with these files; gives its description."""

    def make(name, authors=(), **files):
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        manifest = str(tmp_path / name / "Cargo.toml")
        return {"name": name, "version": "1.0.0", "license": "MIT", "authors": [*authors], "manifest_path": manifest}

    return make


def test_a_text_is_there_once_below_all_that_have_it(crate):
    crates = [crate("two", LICENSE="Take it.\n"), crate("one", COPYING="Take it."), crate("other", NOTICE="By me.")]
    text = tool.notices(crates)
    assert text.count("Take it.") == 1
    assert text.index("one 1.0.0 (MIT)\ntwo 1.0.0 (MIT)") < text.index("Take it.") < text.index("By me.")


def test_every_file_of_a_licence_is_there_and_no_other(crate):
    files = {"LICENSE-MIT": "first", "LICENCE.md": "second", "UNLICENSE": "third", "README.md": "fourth"}
    text = tool.notices([crate("one", **files)])
    assert all(part in text for part in ("first", "second", "third"))
    assert "fourth" not in text


def test_a_crate_without_a_file_has_its_expression(crate):
    text = tool.notices([crate("one", authors=["Ada"]), crate("two")])
    assert "Licence: MIT\nBy Ada" in text
    assert "Licence: MIT\nBy the authors of two" in text


def test_what_is_linked_is_found():
    linked = {name for name, _ in tool.linked_crates()}
    assert {"pyo3", "arrow-array", "ring", "cranelift-codegen"} <= linked
    assert not {"loom", "proptest", "tidemill-runtime"} & linked
    described = {(package["name"], package["version"]) for package in tool.packages()}
    assert tool.linked_crates() <= described
