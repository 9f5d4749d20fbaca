"""The native module. Only ``tidemill._engine`` and ``tidemill.__main__`` call it."""

from collections.abc import Callable, Mapping
from typing import Any

__version__: str
"""The version of the package, which is that of the crates."""

def analyze(plan_json: str) -> str:
    """Checks and types a plan: ``{"program": ...}`` or ``{"errors": [PlanError, ...]}``. Raises
    ``ValueError`` where the text is not a plan."""

def explain(plan_json: str) -> str:
    """A plan for people to read. Raises ``ValueError`` where it has errors."""

def check_options(options: dict[str, str]) -> tuple[str, str] | None:
    """The first option of a run that is wrong, with what is wrong."""

def batch_from_columns(schema_json: str, columns: list[list[object]], origin: str, first: int) -> Frame:
    """A batch of Python values in the plan's ``Schema``, one list per field. ``...`` is a missing
    value. A row that does not fit is left out and becomes a bad record of ``origin``, numbered from
    ``first``."""

class Declaration:
    """A function, or method, whose ``TidemillError``s do not show the calls inside of it."""

    def __init__(self, function: Callable[..., Any]) -> None: ...
    def __call__(self, *arguments: Any, **named: Any) -> Any: ...

def run(job: Any) -> Outcome:
    """Runs a ``tidemill._engine.Job`` to its end. Raises ``tidemill.RunError``, what an iterator or a
    function of the job raised, and, after the epoch at hand, what a signal's handler raised."""

def start(job: Any) -> Session:
    """Starts a ``tidemill._engine.Job`` as a session. Raises ``tidemill.RunError``."""

def read_state(path: str) -> tuple[str, int, dict[str, Frame]]:
    """A state as it stands: the application's name, an epoch, and the tables by name."""

def read_stream(path: str, stream: str, after: int) -> tuple[int, int, list[tuple[int, Frame]]]:
    """The epoch of the newest checkpoint, the last one, and the events of a stream by epoch."""

class Session:
    """A running application. Every wait raises what a signal's handler raises."""

    @property
    def over(self) -> bool:
        """Whether the run is over."""

    def send(self, source: str, item: object, timeout: float | None, /) -> tuple[int, bool]:
        """Sends an Arrow object or a ``Frame``: the number of its events that were sent in time, and whether these are
        all."""

    def pass_until(self, time: int, /) -> None:
        """Lets the time of day go on to this one, where the job has set it."""

    def punctuate(self, source: str, time: int, /) -> None:
        """No event of a source with a time below comes any more."""

    def idle(self, source: str, /) -> None:
        """A source is silent until its next event."""

    def end(self, source: str, /) -> None:
        """Nothing more is sent to a source."""

    def flush(self, timeout: float | None, /) -> tuple[int, int | None, dict[str, int]]:
        """Waits for the release of what was sent: the epoch, its punctuation, and the held events by source."""

    def tables(self, names: list[str], timeout: float | None, /) -> tuple[int, int | None, list[Frame]]:
        """Copies of tables after one released epoch, with its number and its punctuation."""

    def reads(self, timeout: float | None, /) -> tuple[int, int | None, dict[str, Frame]]:
        """All tables after one released epoch, copied when they are read, with its number and its punctuation."""

    def row(self, name: str, key: list[object], timeout: float | None, /) -> dict[str, Any] | None:
        """The row of a key, if there is one."""

    def savepoint(self, name: str | None, timeout: float | None, /) -> tuple[str, int, int | None]:
        """Makes a savepoint: its name, its released epoch, and the epoch's punctuation."""

    def follow(self, stream: str, after: str | None, waits: bool, events_max: int, /) -> Follower:
        """Follows a stream by its label, from a place on or from now. Raises ``ValueError`` for a text that is no
        place."""

    def summary(self) -> str:
        """The summary so far, as JSON."""

    def stop(self) -> None:
        """Asks the run to end after the current epoch."""

    def close(self, gives_up: bool, /) -> Outcome:
        """Sends nothing more, and waits for the end of the run; unless it gives up, also for room on the disk and for
        file descriptors."""

    def source_of(self, procedure: str, /) -> str:
        """The source that the calls of a transaction are events of. Raises ``tidemill.PlanError``."""

    def call(
        self, procedure: str, item: object, key: str | None, early: bool, timeout: float | None, /
    ) -> list[tuple[int, dict[str, Any] | None, tuple[str, dict[str, Any]] | None]]:
        """Calls a transaction once for each row of an Arrow object or ``Frame``, at most 8,192: by call, the epoch, the
        record that it returned, and, if it aborted, the reason and the values seen. If it is ``early``, as soon as they
        have run."""

def arrow_stream(data: object, /) -> bytes:
    """The bytes of an Arrow stream with the batches of an Arrow object. Raises ``ValueError``."""

class Metrics:
    """What a server counts."""

    def now(self) -> list[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
        """By metric: the name as Prometheus has it, ``counter`` or ``gauge``, what it is, and the counts by labels."""

class Server:
    """A server of a session."""

    @property
    def url(self) -> str:
        """Where it is served."""

    @property
    def postgres_url(self) -> str | None:
        """Where clients of PostgreSQL connect to."""

    @property
    def notice(self) -> str | None:
        """What its user should know, if there is something."""

    def metrics(self) -> Metrics:
        """What it counts."""

    def wait(self) -> None:
        """Waits until the run of the session is over. Raises what a signal's handler raises."""

    def stop(self) -> None:
        """Answers what is under way, and ends."""

def serve(
    session: Session,
    host: str,
    port: int,
    postgres_port: int | None,
    users: str | None,
    tls: tuple[str, str] | None,
    clients: tuple[str, bool] | None,
    jwt: tuple[str, str, str] | None,
    insecure: bool,
    traces: tuple[str, float] | None,
    limits: Mapping[str, float],
    launch: tuple[str, list[str], dict[str, str]] | None,
    /,
) -> Server:
    """Serves a session over HTTP and to clients of PostgreSQL. ``launch``: what processes of queries are started with.
    Raises ``tidemill.RunError``."""

def answer_queries_with(answered: Callable[..., Any], prepare: Callable[[int], None], memory_max: int, /) -> None:
    """Answers the queries of the server that has started this process, until it ends."""

class Follower:
    """A reader of a stream."""

    def place(self) -> str | None:
        """The place after everything that was read."""

    def next(self, timeout: float | None, /) -> tuple[int, int | None, str, Frame | None] | None:
        """The next events with their epoch, its punctuation and the place after them; or how many were missed, and no
        events; or none at the end."""

def main(arguments: list[str], load: Callable[[str, str | None], Any]) -> int:
    """The command line; returns its exit code. ``load(path, name)`` gives the ``App``; what it raises
    comes out."""

class Outcome:
    """The results of a run."""

    @property
    def summary(self) -> str:
        """The runtime's summary as JSON."""

    @property
    def collected(self) -> dict[str, Frame]:
        """The events of each sink of kind ``collect``, by its name."""

    @property
    def tables(self) -> dict[str, Frame]:
        """The rows of each table, in the order of their keys."""

class Frame:
    """Rows as Arrow record batches."""

    @property
    def bad(self) -> list[dict[str, Any]]:
        """The records that did not fit: ``origin``, ``line``, ``column``, ``reason``, ``record``."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def to_pylist(self, limit: int | None = None) -> list[dict[str, Any]]: ...
