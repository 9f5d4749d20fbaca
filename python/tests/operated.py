"""A command whose log is read, line by line, while it runs."""

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from server_process import WAIT_SECONDS


class Logged:
    """A command that runs, and what it has logged as JSON."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def until(self, is_wanted):
        """The first line that is wanted; waits for it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = [line for line in list(self.lines) if is_wanted(line)]
            if found:
                return found[0]
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.02)

    def says(self, text):
        """The first line with this in its message; waits for it."""
        return self.until(lambda line: text in line["message"])

    def incidents(self):
        """The kinds of incidents that have begun, in order."""
        return [line["incident"] for line in self.lines if "incident" in line]

    def ended(self, code=0):
        """Waits for the end."""
        assert self.process.wait(WAIT_SECONDS) == code, self.lines
        self._reader.join()


@contextmanager
def logged(folder, *arguments, stdin=subprocess.DEVNULL, **environment):
    """A command that logs JSON."""
    import os

    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill", *map(str, arguments), "--log-format", "json", "--log-level", "debug"],
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield Logged(process)
    finally:
        process.kill()
        process.wait()
