"""Python constants as values and literals of the plan."""

from __future__ import annotations

import decimal
import enum
import math
from datetime import datetime, timedelta

from . import ir
from .errors import SchemaError
from .names import type_name
from .times import duration_to_microseconds, time_to_microseconds
from .types import DECIMAL_DIGITS_MAX, INT_MAX, INT_MIN, ScalarType

CONSTANT_TYPES = (bool, int, float, str, bytes, type(None), decimal.Decimal, datetime, timedelta)


def is_constant(value: object) -> bool:
    """Returns whether a value can be written into a plan."""
    return isinstance(value.value if isinstance(value, enum.Enum) else value, CONSTANT_TYPES)


def plan_value(value: object) -> ir.Value:
    """The plan's ``Value`` of a constant that is not a decimal. Raises ``ValueError`` with what is wrong."""
    if isinstance(value, enum.Enum):
        return plan_value(value.value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise ValueError(f"the integer {value} does not fit 64 bits")
        return {"int": int(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"the float {value} cannot be a constant")
        return {"float": float(value)}
    if isinstance(value, str):
        return {"str": str(value)}
    if isinstance(value, bytes):
        return {"bytes": list(value)}
    if isinstance(value, datetime):
        return {"time": time_to_microseconds(value)}
    if isinstance(value, timedelta):
        return {"duration": duration_to_microseconds(value)}
    raise ValueError(f"{value!r} is {type_name(value)}, which cannot be a constant")


def decimal_text(value: decimal.Decimal) -> str:
    """A decimal in plain digits. Raises ``ValueError`` where it has none or too many."""
    if not value.is_finite():
        raise ValueError(f"the decimal {value} cannot be a constant")
    text = format(value, "f")
    if len(text.lstrip("-").replace(".", "").lstrip("0")) > DECIMAL_DIGITS_MAX:
        raise ValueError(f"the decimal {value} has more than {DECIMAL_DIGITS_MAX} digits")
    return text


def column_value(value: object, ty: ScalarType) -> ir.Value:
    """The plan's ``Value`` of a default of a column of type ``ty``. Raises ``SchemaError``."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None and ty.nullable:
        return "null"
    try:
        return _typed_value(value, ty)
    except ValueError as error:
        raise SchemaError(f"the default {value!r} does not fit {ty}: {error}") from None


def _typed_value(value: object, ty: ScalarType) -> ir.Value:
    integral = isinstance(value, int) and not isinstance(value, bool)
    if ty.kind == "decimal":
        if not (integral or isinstance(value, decimal.Decimal)):
            raise ValueError("write an int or a tm.Decimal('...')")
        unscaled: ir.DecimalValue = {"decimal": _unscaled(decimal.Decimal(value), ty)}  # type: ignore[arg-type]
        return unscaled
    if ty.kind == "float" and integral:
        value = float(value)  # type: ignore[arg-type]
    encoded = plan_value(value)
    if not isinstance(encoded, dict) or ty.kind not in encoded:
        raise ValueError(f"it is {type_name(value)}")
    return encoded


def _unscaled(value: decimal.Decimal, ty: ScalarType) -> int:
    if not value.is_finite():
        raise ValueError("it is not finite")
    scaled = value.scaleb(ty.scale)
    if scaled != scaled.to_integral_value():
        raise ValueError(f"it has more than {ty.scale} digits after the point")
    if abs(scaled) >= 10**ty.digits:
        raise ValueError(f"it has more than {ty.digits} digits")
    return int(scaled)
