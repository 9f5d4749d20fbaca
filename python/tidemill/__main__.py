"""The command ``tidemill``. Its arguments are parsed by the native module."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import nullcontext
from types import TracebackType

from . import _native
from .errors import CompileError, LoadError, TidemillError
from .loading import load
from .serving import interruptible

EXIT_PROGRAM = 1
"""The exit code where the user's file or its plan is at fault."""

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> int:
    """Runs the command; returns its exit code (docs/command-line.md lists them)."""
    try:
        with interruptible() if sys.argv[1:2] == ["serve"] else nullcontext():
            return _native.main(sys.argv, load)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before the first event\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        sys.stderr.write(_account_of(error))
        return EXIT_PROGRAM


def _account_of(error: Exception) -> str:
    """What went wrong while the application was loaded: the place in the user's file, then what."""
    if isinstance(error, LoadError):
        return f"error: {error}\n"
    if isinstance(error, CompileError):
        place = traceback.format_exception_only(type(error), error)[:-1]
        return f"{''.join(place)}error: {error.msg}\n"
    if isinstance(error, TidemillError):
        return f"{''.join(_user_frames(error.__traceback__))}error: {error}\n"
    if isinstance(error, SyntaxError):
        place = traceback.format_exception_only(type(error), error)[:-1]
        return f"{''.join(place)}error: {type(error).__name__}: {error.msg}\n"
    return f"{''.join(_user_frames(error.__traceback__))}error: {type(error).__name__}: {error}\n"


def _user_frames(trace: TracebackType | None) -> list[str]:
    """The calls from the user's file on, without the package's own."""
    package = os.path.dirname(__file__)
    frames = traceback.extract_tb(trace)
    own = [f for f in frames if not f.filename.startswith((package, "<frozen importlib"))]
    return traceback.format_list(own)


if __name__ == "__main__":
    sys.exit(main())
