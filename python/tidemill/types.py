"""The types of fields, as the plan knows them."""

from __future__ import annotations

import decimal
from dataclasses import dataclass, replace
from typing import Any, overload

from . import ir
from .errors import SchemaError

__all__ = ["Decimal", "FieldType", "ListType", "ScalarType"]

DECIMAL_DIGITS_MAX = 18
"""Most digits of a decimal: its unscaled value fits 64 bits."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ScalarType:
    """The type of one value. ``kind`` is the plan's name: bool, int, float, decimal, time, str, bytes."""

    kind: str
    digits: int = 0
    scale: int = 0
    nullable: bool = False

    def optional(self) -> ScalarType:
        """Returns the type with ``None`` allowed."""
        return replace(self, nullable=True)

    def to_json(self) -> ir.ColumnType:
        """The plan's ``ColumnType``."""
        ty: ir.Type = self.kind
        if self.kind == "decimal":
            ty = {"decimal": {"digits": self.digits, "scale": self.scale}}
        return {"type": ty, "nullable": self.nullable}

    def __str__(self) -> str:
        names = {"time": "Time", "decimal": f"Decimal({self.digits}, {self.scale})"}
        return names.get(self.kind, self.kind) + (" | None" if self.nullable else "")

    # ``tm.Decimal(12, 2) | None`` in an annotation that Python evaluates.
    def __or__(self, other: object) -> ScalarType:
        if other is None or other is type(None):
            return self.optional()
        return NotImplemented

    __ror__ = __or__


@dataclass(frozen=True)
class ListType:
    """Any number of elements: of one nameless column, or of the named columns of an event class."""

    columns: tuple[tuple[str, ScalarType], ...]
    element: type | None = None

    def to_json(self) -> ir.ScalarType | ir.StructItem:
        """The plan's ``ListItem``."""
        if self.element is None:
            return {"scalar": self.columns[0][1].to_json()}
        return {"struct": [(name, ty.to_json()) for name, ty in self.columns]}

    def __str__(self) -> str:
        return f"list[{self.element.__name__ if self.element else self.columns[0][1]}]"


FieldType = ScalarType | ListType


@overload
def Decimal(digits: int, scale: int, /) -> Any: ...
@overload
def Decimal(value: str | int | decimal.Decimal, /) -> decimal.Decimal: ...
def Decimal(first: str | int | decimal.Decimal, scale: int | None = None, /) -> Any:
    """Exact decimals, for money.

    ``tm.Decimal(12, 2)`` in a class body is the type with 12 digits, 2 of them after the point
    (at most 18 digits). ``tm.Decimal("9.99")`` is a value, inside of a transaction and outside.
    Inside of a transaction ``tm.Decimal(n, 2)`` turns the int ``n`` into a decimal of scale 2.

    Type checkers take no call for a type: ``Annotated[decimal.Decimal, tm.Decimal(12, 2)]`` is the same to both.
    """
    if scale is None:
        try:
            return decimal.Decimal(first)
        except decimal.InvalidOperation:
            raise SchemaError(f"{first!r} is not a decimal", "write a text such as tm.Decimal('9.99')") from None
    sizes = all(isinstance(n, int) and not isinstance(n, bool) for n in (first, scale))
    if not sizes or not (1 <= int(first) <= DECIMAL_DIGITS_MAX and 0 <= scale <= int(first)):
        raise SchemaError(
            f"Decimal({first!r}, {scale!r}) is not a decimal type",
            f"write tm.Decimal(digits, scale) with 1 to {DECIMAL_DIGITS_MAX} digits and scale at most digits",
        )
    return ScalarType("decimal", int(first), scale)
