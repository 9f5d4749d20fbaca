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
from .serving import Interrupted, interruptible

EXIT_PROGRAM = 1
"""The exit code where the user's file or its plan is at fault."""

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> int:
    """Runs the command; returns its exit code (docs/command-line.md lists them)."""
    try:
        _take_descriptors()
        with interruptible() if sys.argv[1:2] in (["run"], ["serve"]) else nullcontext():
            return _native.main(sys.argv, load)
    except KeyboardInterrupt as interrupt:
        _say("error: interrupted before the first event\n")
        return 128 + interrupt.signal if isinstance(interrupt, Interrupted) else EXIT_INTERRUPTED
    except Exception as error:
        _say(_account_of(error))
        return EXIT_PROGRAM


def _take_descriptors() -> None:
    """Opens those of the standard streams that are closed, so that no file gets their numbers, and what is written to
    a stream never goes into a file. None is opened for writing, so that a sink that would write to it is refused."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The least number that is free is taken, so it is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)


def _say(text: str) -> None:
    # None where it was closed when the process began.
    if sys.stderr is not None:
        sys.stderr.write(text)


def _account_of(error: Exception) -> str:
    """Returns the message for an error while the application was loaded: the place in the user's file, then the
    fault."""
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
