"""The site of the documents: what ``tools/make_site.py`` collects, and which links it finds dead."""

import json

import pytest
from conftest import TOOLS, load_tool

site = load_tool("make_site")

ROOT = TOOLS.parent


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    target = tmp_path_factory.mktemp("target")
    assert site.collect(target) == []
    return target


def test_every_document_is_a_page(collected):
    pages = {path.name for path in (collected / "site-source").glob("*.md")}
    assert pages >= {path.name for path in ROOT.glob("docs/*.md")} | {"index.md", "CHANGELOG.md"}
    listed = set()
    for section in json.loads((collected / "mkdocs.yml").read_text())["nav"]:
        for entries in section.values():
            listed |= {page for entry in entries for page in entry.values()}
    assert pages <= listed


def test_links_lead_to_pages_and_to_copies(collected):
    source = collected / "site-source"
    index = (source / "index.md").read_text()
    assert "](tutorial.md)" in index
    assert "](files/examples/bank.py.txt)" in index
    assert (source / "files/examples/bank.py.txt").read_bytes() == (ROOT / "examples/bank.py").read_bytes()
    assert "](index.md)" in (source / "install.md").read_text()
    assert '```python title="bank.py"' in index


def test_llms_txt_lists_the_pages(collected):
    listed = (collected / "site-source" / "llms.txt").read_text()
    assert "- [Tutorial](tutorial.html): From an empty folder" in listed
    assert "(reference/applications.html)" in listed
    assert "A bank in twenty lines" in (collected / "site-source" / "llms-full.txt").read_text()


def test_what_belongs_to_an_item_is_in_it():
    text = "- one\n\n  still one\n\n```sh\n  as it is [a](b.py)\n```\n"
    changed = site.of_prose(text, lambda prose: site.INDENT.sub("    ", prose))
    assert changed == "- one\n\n    still one\n\n```sh\n  as it is [a](b.py)\n```\n"


def test_the_reference_has_what_the_package_exports(monkeypatch):
    assert site.reference_faults() == []
    fewer = {title: names.replace("App ", "Gone ") for title, names in site.REFERENCE.items()}
    monkeypatch.setattr(site, "REFERENCE", fewer)
    assert site.reference_faults() == [
        "REFERENCE of tools/make_site.py lacks App",
        "REFERENCE of tools/make_site.py has Gone, which tidemill does not export",
    ]


@pytest.fixture
def built(tmp_path):
    """Writes a site of one page with this link; gives the links that are dead."""

    def dead(link):
        (tmp_path / "one.html").write_text(f'<h1 id="here">One</h1><a href="{link}">a link</a>')
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / "two.html").write_text('<a name="there" href="../one.html#here">One</a>')
        return [*site.dead_links(tmp_path)]

    return dead


@pytest.mark.parametrize(
    "link",
    ["#here", "one.html", "sub/two.html#there", "sub/two.html", "https://host.example/gone", "mailto:a@b.example"],
)
def test_links_that_lead_somewhere(built, link):
    assert built(link) == []


@pytest.mark.parametrize("link", ["gone.html", "sub", "../../etc/hostname", "/gone.html"])
def test_links_that_lead_nowhere(built, link):
    assert built(link) == [f"one.html links to {link}, which is not there"]


@pytest.mark.parametrize("link", ["#gone", "sub/two.html#here"])
def test_links_to_no_place(built, link):
    assert built(link) == [f"one.html links to {link}, and there is no such place"]
