"""The files that are published: versions, metadata, and the addresses that a release writes."""

import re
import subprocess
import sys

import pytest
from conftest import TOOLS, load_tool

import tidemill as tm

check_publish = load_tool("check_publish")
set_urls = load_tool("set_urls")

ROOT = TOOLS.parent
ADDRESS = "https://host.example/owner/name"


def test_the_package_says_its_version():
    manifest = (ROOT / "Cargo.toml").read_text()
    assert tm.__version__ == re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]
    assert tm.__version__ == check_publish.RELEASE.search((ROOT / "CHANGELOG.md").read_text())[1]


@pytest.fixture
def copy(tmp_path):
    check_publish.copy_tracked(ROOT, tmp_path)
    return tmp_path


def write(*arguments):
    command = [sys.executable, TOOLS / "set_urls.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_an_address_is_written_into_all_that_is_published(copy):
    assert write(ADDRESS + "/", copy) == (0, "")
    packages = check_publish.packages_of(copy)
    published = {p["name"]: (p["repository"], p["documentation"]) for p in packages if check_publish.is_published(p)}
    assert published == {name: (ADDRESS, f"https://docs.rs/{name}") for name in published}
    assert "tidemill-connect" in published
    assert all(p["repository"] is None for p in packages if not check_publish.is_published(p))
    assert f'Repository = "{ADDRESS}"' in (copy / "pyproject.toml").read_text()
    readme = (copy / "README.md").read_text()
    assert f"]({ADDRESS}/blob/v{tm.__version__}/docs/tutorial.md)" in readme
    assert "](docs/" not in readme


def test_an_address_is_written_once(copy):
    write(ADDRESS, copy)
    code, said = write(ADDRESS, copy)
    assert code == 1
    assert "pyproject.toml has urls" in said


@pytest.mark.parametrize("address", ["host.example/owner/name", "https://host.example", "https://h/o/n?x=\"'", ""])
def test_what_is_no_address_is_refused(copy, address):
    assert write(address, copy)[0] == 2
    assert "urls" not in (copy / "pyproject.toml").read_text()


def package(**changed):
    made = {
        "name": "tidemill-one",
        "version": "1.0.0",
        "publish": None,
        "description": "One",
        "license": "Apache-2.0",
        "readme": "README.md",
        "keywords": ["one"],
        "categories": ["concurrency"],
        "rust_version": "1.95",
        "dependencies": [],
        "manifest_path": "/nowhere/one/Cargo.toml",
    }
    return made | changed


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"description": None}, "tidemill-one has no description"),
        ({"keywords": list("abcdef")}, "tidemill-one has 6 keywords; at most 5 are taken"),
        ({"keywords": ["two words"]}, "tidemill-one: 'two words' is no keyword of at most"),
        ({"keywords": ["a" * 21]}, "is no keyword of at most"),
        (
            {"dependencies": [{"kind": None, "name": "tidemill-own"}]},
            "tidemill-one is published and needs tidemill-own, which is not",
        ),
    ],
)
def test_what_registries_refuse_is_named(changed, fault):
    own = package(name="tidemill-own", publish=[])
    (found,) = check_publish.check(package(**changed), [own])
    assert fault in found


def test_what_registries_take_is_not_refused():
    for_tests = [{"kind": "dev", "name": "tidemill-own"}]
    own = package(name="tidemill-own", publish=[], description=None)
    assert [*check_publish.check(package(dependencies=for_tests), [own])] == []
    assert [*check_publish.check(own, [own])] == []


def test_a_file_outside_of_the_package_is_named(tmp_path):
    (tmp_path / "one" / "src").mkdir(parents=True)
    (tmp_path / "one" / "src" / "lib.rs").write_text('const A: &str = include_str!("../../two.txt");\n')
    found = [*check_publish.check(package(manifest_path=str(tmp_path / "one" / "Cargo.toml")), [])]
    assert found == ["one/src/lib.rs includes two.txt, which is outside of one"]


def test_versions_that_differ_are_named():
    one, two = package(), package(name="tidemill-two", version="1.1.0")
    changelog = "## [Unreleased]\n\n## [1.0.0] - 2026-01-02\n\n## [0.9.0] - 2026-01-01\n"
    assert check_publish.version_faults([one], changelog) == []
    assert check_publish.version_faults([one, two], changelog) == ["the crates have different versions: 1.0.0, 1.1.0"]
    (fault,) = check_publish.version_faults([two], changelog)
    assert fault == "the crates have version 1.1.0, and the newest in CHANGELOG.md is 1.0.0"


def test_what_is_shipped_has_no_planted_bugs():
    project = (ROOT / "pyproject.toml").read_text()
    (features,) = re.findall(r"^features = (.*)$", project, re.MULTILINE)
    assert features == '["pyo3/extension-module"]'


def test_all_takes_every_extra():
    project = (ROOT / "pyproject.toml").read_text()
    table = project.partition("[project.optional-dependencies]\n")[2].partition("\n\n")[0]
    extras = set(re.findall(r"^(\w+) = ", table, re.MULTILINE)) - {"all"}
    (taken,) = re.findall(r'^all = \["tidemill\[(.*)\]"\]$', table, re.MULTILINE)
    assert set(taken.split(",")) == extras
