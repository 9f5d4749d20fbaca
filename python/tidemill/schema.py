"""``Row`` and ``Event``: classes whose annotated bodies are schemas.

A class is read once, when it is defined; only a class with a forward reference (``list["Line"]``
before ``Line``) is read at its first use. Fields of base classes come first, in order.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from . import ir
from .annotations import AnnotationReader, UnresolvedError
from .errors import SchemaError
from .literals import column_value
from .types import FieldType, ListType, ScalarType
from .windows import WindowSpec, WindowType, window

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Has a meaning for type checkers only."""
        return lambda cls: cls


__all__ = ["Event", "FieldSpec", "Record", "RecordSchema", "Row", "caller", "column", "event_time", "key"]

CALLERS = ("user", "protocol")
"""The facts about its caller that a call has."""

GROUPS_MAX = 8
"""Groups of keys at the most; the plan says the same."""

MISSING: Any = inspect.Parameter.empty
"""Stands for a default that was not given."""


@dataclass(frozen=True)
class _Mark:
    """The value that ``key()``, ``column()``, ``event_time()`` and ``caller()`` leave in a class body."""

    role: str
    groups: int | None = None
    default: object = MISSING
    was: str | None = None
    convert: object = None
    old: object = None
    caller: str | None = None


def key(groups: int | None = None, *, was: str | None = None) -> Any:
    """Marks a column of a ``Row`` as part of the key, in column order. Keys are never null, never
    float, and have no default.

    ``groups`` (2 to 8; one ``int`` column of a table) says that rows fall into this many groups, by the
    column's value modulo their number, and that most transactions use one group: if all roles of
    all transactions on such tables give this column the same expression of the event, each group
    is scheduled separately. It never changes a result.

    ``was`` is as of ``tm.column``.
    """
    return _Mark("key", groups, was=was)


def column(
    *,
    default: Any = MISSING,
    was: str | None = None,
    convert: Callable[[Any], Any] | None = None,
    old: Any = None,
) -> Any:
    """A column of a ``Row``: ``balance: int = tm.column(default=0, was="saldo")``.

    ``default`` is the value of a row that nothing was written to, as after ``=`` alone. ``was`` is the column's name in
    an earlier version of the schema: a state that has no column of its own name, and has that one, keeps its values
    when the version of the application is raised.

    ``convert`` is how values of another type become values of this one then: ``cents: int = tm.column(was="amount",
    convert=to_cents)``, where ``def to_cents(amount: float)`` is compiled like a helper of a transaction. Its parameter
    has the type that the column had, which ``old=float`` says of a lambda; where that has no None, None stays None. If
    it fails for a row, the state is left as it is.
    """
    return _Mark("column", default=default, was=was, convert=convert, old=old)


def event_time() -> Any:
    """Marks the field of an ``Event`` that says when it happened: a ``tm.Time`` or an ``int``."""
    return _Mark("event_time")


def caller(what: Literal["user", "protocol"] = "user") -> Any:
    """Marks a field of the events of ``app.requests`` that says who makes the call: ``by: str | None = tm.caller()``.

    The server fills it in, with the name of the user, or with ``what="protocol"`` with ``"http"`` or ``"postgresql"``;
    clients cannot give it. It is a field like others in all else: it is in the log, in streams and in what ``txn show``
    shows. A field of type ``str`` wants a user, so that a server without users refuses such calls; ``str | None`` has
    None there. A program that calls by ``mill.call`` gives it itself, or leaves it out for None.
    """
    if what not in CALLERS:
        raise SchemaError(f"a caller has no {what!r}", "write tm.caller() or tm.caller('protocol')")
    return _Mark("caller", caller=what)


@dataclass(frozen=True)
class Conversion:
    """The conversion of a column's values to another type."""

    function: FunctionType
    old: ScalarType
    """The type of the values that it takes."""


@dataclass(frozen=True)
class FieldSpec:
    """A field as declared. ``default`` is ``MISSING`` where there is none."""

    name: str
    type: FieldType
    key: bool = False
    event_time: bool = False
    default: object = MISSING
    window: tuple[WindowType, WindowSpec] | None = None
    """The window of a windowed column; the field's ``type`` is that of the bytes that a cell holds."""
    groups: int | None = None
    """The number of groups into which rows fall by a key column that says so."""
    was: str | None = None
    """The name of a column in an earlier version of the schema."""
    caller: str | None = None
    """The fact with which the server fills in the field: ``user`` or ``protocol``; None of other fields."""
    conversion: Conversion | None = None
    """The conversion of a column that had another type in an earlier version of the schema."""

    @property
    def has_default(self) -> bool:
        """Returns whether a default was given."""
        return self.default is not MISSING

    def to_column(self, convert: ir.ConvertDef | None = None) -> ir.ColumnDef:
        """The plan's ``ColumnDef``, with the conversion that was compiled. Scalars only, as the class has checked."""
        assert isinstance(self.type, ScalarType)
        if self.window is not None:
            ty, spec = self.window
            of = ty.value.to_json()
            window = spec._definition
            return {
                "name": self.name,
                "type": of["type"],
                "nullable": of["nullable"],
                "key": False,
                "window": window,
                "was": self.was,
            }
        default = column_value(self.default, self.type) if self.has_default else None
        of = self.type.to_json()
        return {
            "name": self.name,
            "type": of["type"],
            "nullable": of["nullable"],
            "key": self.key,
            "default": default,
            "was": self.was,
            "convert": convert,
        }

    def to_json(self) -> ir.Field:
        """The plan's ``Field``."""
        if isinstance(self.type, ListType):
            return {"name": self.name, "type": {"list": self.type.to_json()}}
        return {"name": self.name, "type": {"scalar": self.type.to_json()}}


@dataclass(frozen=True)
class RecordSchema:
    """The fields of a class, in order."""

    name: str
    fields: tuple[FieldSpec, ...]

    def field(self, name: str) -> FieldSpec | None:
        """The field of that name."""
        return next((f for f in self.fields if f.name == name), None)

    @property
    def event_time(self) -> str | None:
        """The name of the event-time field."""
        return next((f.name for f in self.fields if f.event_time), None)

    @property
    def callers(self) -> ir.CallerFields:
        """The plan's ``CallerFields``."""
        fields: ir.CallerFields = {}
        for spec in self.fields:
            if spec.caller == "user":
                fields["user"] = spec.name
            elif spec.caller == "protocol":
                fields["protocol"] = spec.name
        return fields

    def without_windows(self) -> RecordSchema:
        """The fields that are not windowed columns: those of rows that a table begins with."""
        return RecordSchema(self.name, tuple(f for f in self.fields if f.window is None))

    @property
    def groups(self) -> ir.KeyGroupsDef | None:
        """The plan's ``KeyGroupsDef``."""
        for spec in self.fields:
            if spec.groups is not None:
                return {"column": spec.name, "count": spec.groups}
        return None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(f.name for f in self.fields if f.key)

    def to_json(self) -> ir.Schema:
        """The plan's ``Schema``."""
        return [f.to_json() for f in self.fields]


class Record:
    """The common part of ``Row`` and ``Event``: fields, construction by keyword, equality."""

    __tidemill_schema__: ClassVar[RecordSchema | None] = None
    __tidemill_scope__: ClassVar[dict[str, Any]] = {}
    _tidemill_kind: ClassVar[str] = "record"
    _tidemill_reserved: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__tidemill_schema__ = None
        if cls.__module__.partition(".")[0] == "tidemill":
            return  # Row, Event and Aggregate themselves
        cls.__tidemill_scope__ = _defining_scope(cls)
        # A forward reference is read again at the first use.
        with contextlib.suppress(UnresolvedError):
            schema_of(cls)

    def __init__(self, **values: Any) -> None:
        schema = schema_of(type(self))
        for spec in schema.fields:
            if spec.name in values:
                setattr(self, spec.name, values.pop(spec.name))
            elif spec.has_default:
                setattr(self, spec.name, spec.default)
            else:
                raise SchemaError(f"{schema.name}() lacks the field '{spec.name}'")
        for name in values:
            known = ", ".join(f.name for f in schema.fields)
            raise SchemaError(f"{schema.name} has no field '{name}'", f"it has {known}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inner = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in schema_of(type(self)).fields)
        return f"{type(self).__name__}({inner})"


@dataclass_transform(kw_only_default=True, field_specifiers=(key, column, window))
class Row(Record):
    """The base of table rows: each annotated name is a column.

    ``tm.key()`` marks key columns; ``= value`` is the default of a row that nothing was written to
    (``X | None`` without one has None); ``= tm.column(was="old")`` is a column that had another name.
    Columns are int (64 bits), float, bool, str, bytes, ``tm.Time``, ``tm.Decimal(digits, scale)``, and
    ``X | None``; and ``tm.Window[X]``, declared with ``tm.window(...)``, which keeps recently added values.
    Raises ``SchemaError`` where the class is defined.

    In a transaction body a role also has what is declared here: ``exists``, ``insert``, ``delete``, ``wake``.
    """

    _tidemill_kind: ClassVar[str] = "row"
    _tidemill_reserved: ClassVar[frozenset[str]] = frozenset({"exists", "insert", "delete", "wake"})

    @property
    def exists(self) -> bool:
        """Tells whether the row is there, as of this point of the transaction."""
        raise BodyOnlyError("exists")

    def insert(self, **values: Any) -> None:
        """Makes the row exist, with the columns given and defaults for the rest. Aborts where it exists."""
        raise BodyOnlyError("insert()")

    def delete(self) -> None:
        """Makes the row not exist. Aborts where it does not."""
        raise BodyOnlyError("delete()")

    def wake(self, at: Any) -> None:
        """Has the row woken at an event time: then it is an event of ``table.woken``, before all others of that time.

        A time that is over stands for the next instant. A later ``wake`` of the row takes the place of this one;
        ``wake(None)`` and ``delete()`` cancel it. Aborts where the row is missing; with ``create=True`` makes it for a
        time, and does nothing for None.
        """
        raise BodyOnlyError("wake()")


@dataclass_transform(kw_only_default=True, field_specifiers=(event_time, caller))
class Event(Record):
    """The base of events: each annotated name is a field.

    Fields are as in ``Row``, and also ``list[X]`` of a scalar or of another event class with scalar
    fields. ``tm.event_time()`` marks the field that says when it happened. ``= value`` is the value
    of a field that a record from Python does not have (``X | None`` without one has None). Raises
    ``SchemaError`` where the class is defined.
    """

    _tidemill_kind: ClassVar[str] = "event"

    @classmethod
    def __tidemill_columns__(cls) -> tuple[tuple[str, ScalarType], ...] | None:
        """The columns of a list of these; None if a field is a list itself."""
        columns = [(f.name, f.type) for f in schema_of(cls).fields]
        scalars = tuple((name, ty) for name, ty in columns if isinstance(ty, ScalarType))
        return scalars if len(scalars) == len(columns) and scalars else None


class BodyOnlyError(SchemaError):
    """Something was used outside of a transaction body."""

    def __init__(self, what: str) -> None:
        super().__init__(f"'{what}' has a meaning only inside of a transaction body")


def schema_of(cls: type[Record]) -> RecordSchema:
    """The schema of a class. Raises ``SchemaError``; ``UnresolvedError`` only while the class is
    being defined."""
    if cls.__tidemill_schema__ is None or "__tidemill_schema__" not in cls.__dict__:
        cls.__tidemill_schema__ = _read(cls)
        cls.__tidemill_scope__ = {}
    return cls.__tidemill_schema__


def resolved_schema(cls: type[Record]) -> RecordSchema:
    """As ``schema_of``, for a class that is being used: a name that is still unknown is an error."""
    try:
        return schema_of(cls)
    except UnresolvedError as error:
        raise SchemaError(f"an annotation of {cls.__name__} cannot be resolved: {error}") from None


def _defining_scope(cls: type) -> dict[str, Any]:
    """The local names at the class statement, for annotations that are texts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame = frame.f_back
    return {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _read(cls: type[Record]) -> RecordSchema:
    fields: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__[1:]):
        if issubclass(base, Record) and base.__module__.partition(".")[0] != "tidemill":
            fields.update({f.name: f for f in resolved_schema(base).fields})
    own = _own_annotations(cls)
    module = sys.modules.get(cls.__module__)
    namespaces = (dict(vars(module)) if module else {}, {**cls.__tidemill_scope__, cls.__name__: cls})
    reader = AnnotationReader(cls.__name__, cls._tidemill_kind == "event", namespaces)
    for name, annotation in own.items():
        fields[name] = _field(cls, reader, name, annotation)
    _check_strays(cls, own)
    schema = RecordSchema(cls.__name__, tuple(fields.values()))
    _check_schema(cls, schema)
    return schema


def _own_annotations(cls: type) -> dict[str, Any]:
    def is_class_variable(annotation: object) -> bool:
        if isinstance(annotation, str):
            return annotation.replace("typing.", "").startswith("ClassVar")
        return annotation is ClassVar or typing.get_origin(annotation) is ClassVar

    return {n: a for n, a in inspect.get_annotations(cls).items() if not is_class_variable(a)}


def _field(cls: type[Record], reader: AnnotationReader, name: str, annotation: object) -> FieldSpec:
    place = f"{cls.__name__}.{name}"
    if name in cls._tidemill_reserved:
        raise SchemaError(f"{place} has the name of an operation on rows", "choose another name")
    ty = reader.field_type(name, annotation)
    value = cls.__dict__.get(name, MISSING)
    if isinstance(ty, WindowType) or isinstance(value, WindowSpec):
        return _window_field(place, name, ty, value)
    was = _earlier_name(place, value.was) if isinstance(value, _Mark) else None
    if isinstance(value, _Mark) and value.role != "column":
        _check_mark(cls, place, ty, value)
        is_key, is_time = value.role == "key", value.role == "event_time"
        default = None if value.caller and isinstance(ty, ScalarType) and ty.nullable else MISSING
        return FieldSpec(
            name,
            ty,
            key=is_key,
            event_time=is_time,
            default=default,
            groups=value.groups,
            was=was,
            caller=value.caller,
        )
    if isinstance(value, _Mark):
        if cls._tidemill_kind != "row":
            raise SchemaError(f"{place} is declared with tm.column(...), which events do not have", "write '= value'")
        conversion = _conversion(place, reader, value)
        return FieldSpec(name, ty, default=_default(place, ty, value.default), was=was, conversion=conversion)
    return FieldSpec(name, ty, default=_default(place, ty, value), was=was)


def _conversion(place: str, reader: AnnotationReader, mark: _Mark) -> Conversion | None:
    """Returns the conversion of a column, if it has one. Raises ``SchemaError``."""
    function = mark.convert
    if function is None and mark.old is not None:
        raise SchemaError(f"{place} says what type it had, and not how it is converted", "write convert=function")
    if function is None:
        return None
    if not isinstance(function, FunctionType):
        message = f"{place} is converted by {function!r}, which has no Python source"
        raise SchemaError(message, "write a def or a lambda")
    says = list(inspect.get_annotations(function).items())
    takes = next((annotation for name, annotation in says if name != "return"), None)
    own = reader.of_function(function)
    types = [own.field_type(function.__name__, takes)] if takes is not None else []
    types += [reader.field_type("old", mark.old)] if mark.old is not None else []
    if not types:
        hint = f"annotate its parameter: def {_name(function)}(value: float); or write old=float beside it"
        raise SchemaError(f"{place} is converted by a function that does not say what type it takes", hint)
    if types[0] != types[-1]:
        raise SchemaError(f"{place} is converted by a function of {types[0]}, and had the type {types[-1]} by old=")
    if not isinstance(types[0], ScalarType):
        raise SchemaError(f"{place} is converted from {types[0]}, which no function converts")
    return Conversion(function, types[0])


def _name(function: FunctionType) -> str:
    return "convert" if function.__name__ == "<lambda>" else function.__name__


def _default(place: str, ty: FieldType, value: object) -> object:
    """The default of a field, given what was written for it. Raises ``SchemaError`` where it does not fit."""
    if value is not MISSING:
        if isinstance(ty, ListType):
            raise SchemaError(f"{place} is a list with a default", "lists have none; leave it out")
        try:
            column_value(value, ty)
        except SchemaError as error:
            raise SchemaError(f"{place}: {error.message}", error.hint) from None
    elif isinstance(ty, ScalarType) and ty.nullable:
        value = None
    return value


def _earlier_name(place: str, was: object) -> str | None:
    if was is not None and not isinstance(was, str):
        raise SchemaError(f"{place} was {was!r}, which is no name of a column", 'write was="old"')
    return was


def _window_field(place: str, name: str, ty: FieldType | WindowType, value: object) -> FieldSpec:
    if not isinstance(value, WindowSpec):
        raise SchemaError(f"{place} is a window without a span", "write '= tm.window(\"5m\")'")
    if not isinstance(ty, WindowType):
        raise SchemaError(f"{place} is declared with tm.window(...) but has the type {ty}", f"write tm.Window[{ty}]")
    return FieldSpec(name, ScalarType("bytes"), default=b"", window=(ty, value), was=_earlier_name(place, value._was))


def _check_mark(cls: type[Record], place: str, ty: FieldType, mark: _Mark) -> None:
    if mark.role == "key":
        if cls._tidemill_kind != "row":
            raise SchemaError(f"{place} is marked as a key, which events do not have", "use tm.Row for tables")
        if not isinstance(ty, ScalarType) or ty.nullable or ty.kind == "float":
            hint = "keys are int, bool, str, bytes, tm.Time or tm.Decimal(...), without None"
            raise SchemaError(f"{place} is a key of type {ty}", hint)
        if mark.groups is not None and (ty.kind != "int" or not 2 <= mark.groups <= GROUPS_MAX):
            hint = f"an int column has from 2 to {GROUPS_MAX} groups"
            raise SchemaError(f"{place} is a key of type {ty} in {mark.groups} groups", hint)
    elif mark.role == "caller":
        if cls._tidemill_kind != "event":
            raise SchemaError(f"{place} is marked as the caller, which rows do not have", "use tm.Event for events")
        if not isinstance(ty, ScalarType) or ty.kind != "str":
            raise SchemaError(f"{place} is a caller of type {ty}", "write str, or str | None")
    else:
        if cls._tidemill_kind != "event":
            raise SchemaError(f"{place} is marked as event time, which rows do not have", "use tm.Event for events")
        if not isinstance(ty, ScalarType) or ty.nullable or ty.kind not in ("time", "int"):
            raise SchemaError(f"{place} is an event time of type {ty}", "event times are tm.Time or int, without None")


def _check_strays(cls: type[Record], own: dict[str, Any]) -> None:
    """A value without an annotation was meant as a field."""
    for name, value in cls.__dict__.items():
        described = callable(value) or hasattr(value, "__get__")
        if not (name in own or described or name.startswith("_")) and "ClassVar" not in str(
            inspect.get_annotations(cls).get(name, "")
        ):
            hint = f"write '{name}: {type(value).__name__} = ...'" if not isinstance(value, _Mark) else "annotate it"
            raise SchemaError(f"{cls.__name__}.{name} has a value but no type", hint)


def _check_schema(cls: type[Record], schema: RecordSchema) -> None:
    if not schema.fields:
        raise SchemaError(f"{cls.__name__} has no fields", "annotate some, such as 'amount: int'")
    times = [f.name for f in schema.fields if f.event_time]
    if len(times) > 1:
        raise SchemaError(f"{cls.__name__} has several event times: {', '.join(times)}", "mark one of them")
    for what in CALLERS:
        fields = [f.name for f in schema.fields if f.caller == what]
        if len(fields) > 1:
            raise SchemaError(f"{cls.__name__} has several callers: {', '.join(fields)}", "mark one of them")
