"""Writes the address of the repository into what is published: manifests, and links of the README.

    python3 tools/set_urls.py https://HOST/OWNER/NAME [FOLDER]

Run on the copy of a release, before ``make wheel`` and ``cargo publish``. The address is a parameter, since
the sources state none: a fork publishes its own. FOLDER is the root of the copy, this repository by default.

It adds ``repository`` and ``documentation`` to the manifest of each published crate, ``[project.urls]`` to
``pyproject.toml``, and makes links to files absolute in ``README.md``, which package indexes show alone.
A second run is refused.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ADDRESS = re.compile(r"https://[\w.-]+(?:/[\w.-]+)+")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or not ADDRESS.fullmatch(arguments[0].rstrip("/")):
        print("usage: set_urls.py https://HOST/OWNER/NAME [FOLDER]", file=sys.stderr)
        return 2
    root = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).parents[1]
    try:
        write(root, arguments[0].rstrip("/"))
    except ValueError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


def write(root: Path, address: str) -> None:
    """Writes the address into all files below a root. Raises ``ValueError`` where it is there already."""
    version = version_of(root)
    add_to_project(root / "pyproject.toml", address, version)
    for manifest in published(root):
        add_to_crate(manifest, address)
    readme = root / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), address, version), encoding="utf-8")


def version_of(root: Path) -> str:
    """Returns the version of all crates and of the package."""
    return re.findall(r'^version = "(.*)"', (root / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[0]


def published(root: Path) -> list[Path]:
    """Returns the manifests of the crates that are meant for others."""
    manifests = sorted(root.glob("crates/*/Cargo.toml"))
    return [file for file in manifests if "\npublish = false\n" not in file.read_text(encoding="utf-8")]


def add_to_crate(manifest: Path, address: str) -> None:
    text = manifest.read_text(encoding="utf-8")
    if "\nrepository = " in text:
        raise ValueError(f"{manifest} has a repository")
    name = re.findall(r'^name = "(.*)"', text, re.MULTILINE)[0]
    urls = f'repository = "{address}"\ndocumentation = "https://docs.rs/{name}"\n'
    text = text.replace("readme.workspace = true\n", f"readme.workspace = true\n{urls}", 1)
    manifest.write_text(text, encoding="utf-8")


def add_to_project(file: Path, address: str, version: str) -> None:
    text = file.read_text(encoding="utf-8")
    if "[project.urls]" in text:
        raise ValueError(f"{file} has urls")
    of_version = f"{address}/blob/v{version}"
    urls = {
        "Repository": address,
        "Documentation": f"{of_version}/docs/tutorial.md",
        "Changelog": f"{of_version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    file.write_text(text.replace("[tool.maturin]", f"[project.urls]\n{lines}\n[tool.maturin]", 1), encoding="utf-8")


def absolute(text: str, address: str, version: str) -> str:
    """Returns a Markdown text whose links to files of the repository are absolute."""
    return LINK.sub(lambda link: f"]({address}/blob/v{version}/{link[1]})", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
