"""From the annotations of a class body to field types."""

from __future__ import annotations

import types
import typing
from datetime import datetime
from types import FunctionType
from typing import Any

from .errors import SchemaError
from .types import FieldType, ListType, ScalarType
from .windows import Window, WindowType

_SCALAR_TYPES = "int, float, bool, str, bytes, tm.Time, tm.Decimal(digits, scale), and 'X | None' of these"
ROW_TYPES = _SCALAR_TYPES + ", tm.Window[...] of a scalar"
EVENT_TYPES = _SCALAR_TYPES + ", list[...] of a scalar or of an event class"

_SCALARS = {
    int: ScalarType("int"),
    float: ScalarType("float"),
    bool: ScalarType("bool"),
    str: ScalarType("str"),
    bytes: ScalarType("bytes"),
    datetime: ScalarType("time"),
}


class UnresolvedError(Exception):
    """An annotation names something that is not defined (yet)."""


def evaluate(annotation: object, namespaces: tuple[dict[str, Any], dict[str, Any]]) -> object:
    """The object that an annotation means, where it is a text (a forward reference, or a module with
    ``from __future__ import annotations``)."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        # The text is the user's own source, evaluated where Python itself would evaluate it.
        return eval(annotation, *namespaces)
    except NameError as error:
        raise UnresolvedError(str(error)) from None


class AnnotationReader:
    """Reads the annotations of one class. ``place`` in messages is ``Class.field``."""

    def __init__(self, owner: str, lists_allowed: bool, namespaces: tuple[dict[str, Any], dict[str, Any]]) -> None:
        self._owner = owner
        self._lists_allowed = lists_allowed
        self._namespaces = namespaces
        self._allowed = EVENT_TYPES if lists_allowed else ROW_TYPES

    def of_function(self, function: FunctionType) -> AnnotationReader:
        """Returns a reader for the annotations of a function's parameters, which refer to names where it was
        defined."""
        owner = function.__name__ if function.__name__.isidentifier() else self._owner
        return AnnotationReader(owner, False, (function.__globals__, self._namespaces[1]))

    def field_type(self, name: str, annotation: object) -> FieldType | WindowType:
        """The type of a field. Raises ``SchemaError``, or ``UnresolvedError`` for a forward reference."""
        annotation = evaluate(annotation, self._namespaces)
        if annotation is list or typing.get_origin(annotation) is list:
            return self._list_type(name, annotation)
        if annotation is Window or typing.get_origin(annotation) is Window:
            return self._window_type(name, annotation)
        return self._scalar(name, annotation)

    def _refuse(self, name: str, annotation: object) -> SchemaError:
        plain = isinstance(annotation, type) and typing.get_origin(annotation) is None
        shown = getattr(annotation, "__name__", "") if plain else str(annotation)
        return SchemaError(f"{self._owner}.{name} has the type {shown}", f"allowed are {self._allowed}")

    def _scalar(self, name: str, annotation: object) -> ScalarType:
        annotation = evaluate(annotation, self._namespaces)
        if isinstance(annotation, ScalarType):
            return annotation
        if typing.get_origin(annotation) is typing.Annotated:
            return self._annotated(name, annotation)
        if typing.get_origin(annotation) in (typing.Union, types.UnionType):
            return self._optional(name, annotation)
        if isinstance(annotation, type) and annotation in _SCALARS:
            return _SCALARS[annotation]
        raise self._refuse(name, annotation)

    def _annotated(self, name: str, annotation: Any) -> ScalarType:
        for extra in annotation.__metadata__:
            if isinstance(extra, ScalarType):
                return extra
        return self._scalar(name, annotation.__origin__)

    def _optional(self, name: str, annotation: object) -> ScalarType:
        arms = typing.get_args(annotation)
        rest = [arm for arm in arms if arm is not type(None)]
        if len(rest) != 1 or len(arms) != 2:
            raise self._refuse(name, annotation)
        return self._scalar(name, rest[0]).optional()

    def _window_type(self, name: str, annotation: object) -> WindowType:
        if self._lists_allowed:
            hint = "windows are columns of rows; an event has a value"
            raise SchemaError(f"{self._owner}.{name} is a window, which events cannot hold", hint)
        arguments = typing.get_args(annotation)
        if len(arguments) != 1:
            raise SchemaError(f"{self._owner}.{name} is a window of nothing", "write tm.Window[float]")
        return WindowType(self._scalar(name, arguments[0]))

    def _list_type(self, name: str, annotation: object) -> ListType:
        arguments = typing.get_args(annotation)
        if not self._lists_allowed:
            hint = "keep a table with a row per element, or put the list into an event"
            raise SchemaError(f"{self._owner}.{name} is a list, which rows cannot hold", hint)
        if len(arguments) != 1:
            raise SchemaError(f"{self._owner}.{name} is a list of nothing", "write list[int] or list[Line]")
        element = evaluate(arguments[0], self._namespaces)
        columns_of = getattr(element, "__tidemill_columns__", None)
        if columns_of is None:
            return ListType((("", self._scalar(name, element)),))
        if not isinstance(element, type) or columns_of() is None:
            hint = "make it a subclass of tm.Event with scalar fields"
            raise SchemaError(f"{self._owner}.{name} is a list of {element}, which no list can hold", hint)
        return ListType(columns_of(), element)
