"""The requests of the command to a server."""

from __future__ import annotations

import os

from .client import connect

__all__ = ["savepoint"]

_TOKEN = "TIDEMILL_TOKEN"
"""The variable of the environment with the token of a user."""


def savepoint(url: str, name: str, ca: str | os.PathLike[str] | None) -> int:
    """Has a server make a savepoint of this name; returns its epoch."""
    with connect(url, token=os.environ.get(_TOKEN), ca=ca) as client:
        return client.savepoint(name).epoch
