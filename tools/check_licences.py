"""Holds the dependencies to ``deny.toml``: licences, bans and sources.

Run by ``make lint``. ``cargo deny check`` does the same and looks up advisories, which needs their database; where it
is installed, ``make lint`` runs it, too. Licences are expressions of SPDX, also with the old ``/`` in place of ``OR``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
TOKEN = re.compile(r"\(|\)|[^\s()]+")


class Rules(NamedTuple):
    """Licences that are allowed, crates that are not, and those of which there may be one version."""

    allowed: set[str]
    banned: set[str]
    single: set[str]


def main() -> int:
    rules = read_rules((ROOT / "deny.toml").read_text(encoding="utf-8"))
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    packages = json.loads(found)["packages"]
    faults = [*faults_of(packages, rules)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(packages)} crates, {len(faults)} against deny.toml")
    return 1 if faults else 0


def read_rules(text: str) -> Rules:
    """Returns the rules of a ``deny.toml``. Raises ``ValueError`` where it has no list of licences or bans."""
    text = re.sub(r"#.*", "", text)
    allow, deny = (re.search(rf"^{name} = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL) for name in ("allow", "deny"))
    if not allow or not deny:
        raise ValueError("deny.toml has no list 'allow', or no list 'deny'")
    bans = re.findall(r'\{ name = "(.*?)"(.*?)\}', deny[1])
    return Rules(
        allowed=set(re.findall(r'"(.*?)"', allow[1])),
        banned={name for name, how in bans if "deny-multiple-versions" not in how},
        single={name for name, how in bans if "deny-multiple-versions = true" in how},
    )


def faults_of(packages: list[dict[str, Any]], rules: Rules) -> Iterator[str]:
    """Yields which crates are against the rules, and how."""
    versions = defaultdict(set)
    for package in packages:
        name, version, licence = package["name"], package["version"], package["license"]
        versions[name].add(version)
        if package["source"] not in (None, REGISTRY):
            yield f"{name} {version} comes from {package['source']}"
        if name in rules.banned:
            yield f"{name} {version} is banned"
        if not licence:
            yield f"{name} {version} states no licence"
        elif not is_allowed(licence, rules.allowed):
            yield f"{name} {version} has the licence {licence}"
    for name in sorted(rules.single & versions.keys()):
        if len(versions[name]) > 1:
            yield f"{name} is there in several versions: {', '.join(sorted(versions[name]))}"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Returns whether an expression of SPDX can be met by licences that are allowed."""
    tokens = TOKEN.findall(expression.replace("/", " OR "))

    def alternatives() -> bool:
        value = all_of()
        while tokens[:1] == ["OR"]:
            del tokens[0]
            value = all_of() or value
        return value

    def all_of() -> bool:
        value = one()
        while tokens[:1] == ["AND"]:
            del tokens[0]
            value = one() and value
        return value

    def one() -> bool:
        if not tokens:
            return False
        name = tokens.pop(0)
        if name == "(":
            value = alternatives()
            return tokens[:1] == [")"] and bool(tokens.pop(0)) and value
        if tokens[:1] == ["WITH"] and len(tokens) > 1:
            name = f"{name} WITH {tokens[1]}"
            del tokens[:2]
        return name in allowed

    return alternatives() and not tokens


if __name__ == "__main__":
    sys.exit(main())
