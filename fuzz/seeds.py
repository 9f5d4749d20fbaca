"""Writes the inputs that the search begins with: the conversations of ``python/tests/test_server_fuzz.py``."""

import sys
from pathlib import Path

FUZZ = Path(__file__).parent
sys.path.insert(0, str(FUZZ.parent / "python/tests"))

from test_server_fuzz import CONVERSATIONS, REQUESTS  # noqa: E402

for name, inputs in (("http", REQUESTS), ("postgres", CONVERSATIONS)):
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, pieces in enumerate(inputs):
        (folder / f"{number}").write_bytes(b"".join(pieces))
