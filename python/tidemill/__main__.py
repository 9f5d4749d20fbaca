"""The ``tidemill`` command, also ``python -m tidemill``. Arguments are parsed by the native module."""

from __future__ import annotations

import sys
import traceback

from . import _native
from .errors import CompileError, TidemillError
from .loading import load

EXIT_FAULT = 1
"""The exit code where the user's file, the plan or the run is at fault."""


def main() -> int:
    """Runs the command; returns its exit code."""
    try:
        return _native.main(sys.argv, load)
    except CompileError as error:
        sys.stderr.write("".join(traceback.format_exception_only(type(error), error)))
    except TidemillError as error:
        sys.stderr.write(f"tidemill: {error}\n")
    return EXIT_FAULT


if __name__ == "__main__":
    sys.exit(main())
