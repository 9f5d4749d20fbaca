"""The plugin of pytest that comes with the package: the fixture ``trial`` starts applications on trial.

def test_a_hold_expires(trial):
    mill = trial(app)
    mill.call("hold", seat="1A")
    mill.advance("15m")
    mill.expect_rows("holds", {"seat": "1A", "is_held": False})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .app import App
    from .trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Starts applications on trial, as ``tidemill.testing.start`` does, and ends them with the test.

    With ``durable=True`` an application has a state, in a directory of the test, and may crash and be started again.
    """
    # Importing pytest is no reason to import the engine for those who never ask for the fixture.
    from . import testing

    with ExitStack() as stack:

        def start(app: App, *, durable: bool = False, **options: Any) -> Trial:
            if durable:
                options.setdefault("state", tmp_path / f"state of {app.name}")
            return stack.enter_context(testing.start(app, **options))

        yield start
