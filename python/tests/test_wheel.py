"""The check of the package that is passed on, ``tools/try_wheel.py``, on packages that are made up."""

import zipfile

import pytest
from conftest import load_tool

tool = load_tool("try_wheel")

GOOD = "tidemill-0.2.0-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
METADATA = "".join(f"{field}: something\n" for field in tool.FIELDS)


@pytest.fixture
def wheel(tmp_path):
    """Makes a wheel; gives what is wrong with it."""

    def make(name=GOOD, without="", native=b"\x7fELF", metadata=METADATA):
        with zipfile.ZipFile(tmp_path / name, "w") as made:
            for file in tool.FILES:
                if file != without:
                    made.writestr(file, native if file.endswith(".so") else b"")
            made.writestr("tidemill-0.2.0.dist-info/METADATA", metadata)
        return [*tool.content_faults(tmp_path / name), *tool.form_faults(tmp_path / name)]

    return make


@pytest.mark.parametrize("name", [GOOD, "tidemill-0.2.0-cp310-abi3-musllinux_1_2_aarch64.whl"])
def test_a_good_one_passes(wheel, name):
    assert wheel(name) == []


@pytest.mark.parametrize(
    "name", ["tidemill-0.2.0-cp310-abi3-linux_x86_64.whl", "tidemill-0.2.0-cp311-cp311-manylinux_2_17_x86_64.whl"]
)
def test_one_for_this_machine_or_this_python_alone_is_refused(wheel, name):
    assert wheel(name) == [f"{name} is not for the stable ABI of Python 3.10 and a stated system"]


def test_what_it_lacks_is_named(wheel):
    assert wheel(without="tidemill/py.typed") == ["the wheel has no tidemill/py.typed"]
    without = METADATA.replace("Keywords: something\n", "")
    assert wheel(metadata=without) == ["the metadata has no Keywords"]


def test_symbols_and_size_are_refused(wheel, monkeypatch):
    assert wheel(native=b"\x7fELF...\0.symtab\0") == ["tidemill/_native.abi3.so has symbols"]
    monkeypatch.setattr(tool, "BYTES_MAX", 100)
    (fault,) = wheel()
    assert fault.endswith("at most 100 are allowed")


def test_what_readme_shows_is_found():
    files, commands = tool.blocks((tool.ROOT / "README.md").read_text())
    assert set(files) == {"bank.py", "accounts.csv", "transfers.csv"}
    assert [command for command, _ in commands] == ["tidemill run bank.py", "cat done.jsonl"]


def run(folder, monkeypatch, printed):
    """Returns the difference if the command prints this, and README.md shows ``a ... c``."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tidemill").write_text(f"#!/bin/sh\nprintf '%s' '{printed}'\n")
    (folder / "bin" / "tidemill").chmod(0o755)
    (folder / "README.md").write_text("```console\n$ tidemill run bank.py\na ... c\n```\n")
    monkeypatch.setattr(tool, "ROOT", folder)
    return tool.run_readme(folder, folder)[0]


def test_what_differs_from_readme_is_named(tmp_path, monkeypatch):
    assert run(tmp_path / "one", monkeypatch, "a b c") == []
    (fault,) = run(tmp_path / "two", monkeypatch, "a b d")
    assert "$ tidemill run bank.py printed, with exit code 0,\na b d\nand README.md shows\na ... c" in fault
