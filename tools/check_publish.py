"""Holds what is published to what its registries ask for.

Run by ``make lint``, which also packs the crates:

    python3 tools/check_publish.py

It refuses a published crate without a description, licence, readme, keywords or categories, or with more of them
than crates.io takes; one that needs a crate of this workspace that is not published; one that includes a file
outside of its folder, which is not in its package; versions that differ from one another and from the newest
in ``CHANGELOG.md``; and whatever ``cargo package`` refuses, once ``tools/set_urls.py`` has written an address.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import set_urls

ROOT = Path(__file__).parents[1]
KEYWORDS_MAX = 5
CATEGORIES_MAX = 5
KEYWORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,19}")
INCLUDED = re.compile(r'include_(?:str|bytes)!\("((?:\.\./)+[^"]*)"\)|#\[path = "((?:\.\./)+[^"]*)"\]')
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)
# Tests are left out on purpose.
FAULT = re.compile(r"error|warning: (?!ignoring test)")
# An address that no one has (RFC 2606), for the trial.
ADDRESS = "https://example.org/tidemill/tidemill"


def main() -> int:
    packages = packages_of(ROOT)
    faults = [fault for package in packages for fault in check(package, packages)]
    faults += version_faults(packages, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    faults = faults or packing_faults(packages)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{sum(map(is_published, packages))} published crates, {len(faults)} faults")
    return 1 if faults else 0


def packages_of(root: Path) -> list[dict[str, Any]]:
    """Returns the crates of the workspace, as ``cargo metadata`` describes them."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    found = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    packages: list[dict[str, Any]] = json.loads(found)["packages"]
    return packages


def is_published(package: dict[str, Any]) -> bool:
    """Returns whether a crate is meant for others: null stands for every registry."""
    return package["publish"] is None


def check(package: dict[str, Any], packages: list[dict[str, Any]]) -> Iterator[str]:
    """Yields what is wrong with the manifest of a crate and with its sources."""
    if not is_published(package):
        return
    name = package["name"]
    for field in ("description", "license", "readme", "keywords", "categories", "rust_version"):
        if not package[field]:
            yield f"{name} has no {field}"
    for field, most in (("keywords", KEYWORDS_MAX), ("categories", CATEGORIES_MAX)):
        if len(package[field]) > most:
            yield f"{name} has {len(package[field])} {field}; at most {most} are taken"
    for word in package["keywords"]:
        if not KEYWORD.fullmatch(word):
            yield f"{name}: {word!r} is no keyword of at most 20 letters, digits, '_', '-' and '+'"
    private = {other["name"] for other in packages if not is_published(other)}
    for needed in package["dependencies"]:
        if needed["kind"] != "dev" and needed["name"] in private:
            yield f"{name} is published and needs {needed['name']}, which is not"
    folder = Path(package["manifest_path"]).parent
    for file in sorted(folder.glob("src/**/*.rs")):
        for included in INCLUDED.finditer(file.read_text(encoding="utf-8")):
            path = (file.parent / (included[1] or included[2])).resolve()
            if not path.is_relative_to(folder.resolve()):
                yield f"{file.relative_to(folder.parent)} includes {path.name}, which is outside of {folder.name}"


def version_faults(packages: list[dict[str, Any]], changelog: str) -> list[str]:
    """Returns how the versions differ from one another and from the newest release of the changelog."""
    versions = {package["version"] for package in packages}
    releases = RELEASE.findall(changelog)
    if len(versions) > 1:
        return [f"the crates have different versions: {', '.join(sorted(versions))}"]
    if not releases or releases[0] not in versions:
        newest = releases[0] if releases else "no release"
        return [f"the crates have version {versions.pop()}, and the newest in CHANGELOG.md is {newest}"]
    return []


def packing_faults(packages: list[dict[str, Any]]) -> list[str]:
    """Returns what ``cargo package`` refuses or warns of, on a copy with an address in its manifests."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_tracked(ROOT, copy)
        set_urls.write(copy, ADDRESS)
        chosen = [option for package in packages if is_published(package) for option in ("-p", package["name"])]
        command = ["cargo", "package", "--no-verify", "--allow-dirty", "--target-dir", str(copy / "target"), *chosen]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if FAULT.match(line)]
    return [done.stderr] if done.returncode else [f"cargo package: {line}" for line in said]


def copy_tracked(root: Path, target: Path) -> None:
    """Copies the files that git tracks or would track."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)


if __name__ == "__main__":
    sys.exit(main())
