"""From the syntax tree of a Python function to the plan.

``source`` finds the tree of a function in its file; ``scope`` says what a name means; ``expressions``,
``calls``, ``aggregates``, ``records`` and ``statements`` translate; ``roles`` translates keys; ``helpers`` puts
functions in the place of their calls; ``functions`` puts it together, ``joins`` for joins, ``reading`` for filters
and maps with roles, and ``conversions`` for columns that a migration converts;
``callers`` finds the call that gives these roles; ``marks`` knows of which file a place is.
Types are checked by the analysis of the plan, in Rust, which all front ends share.
Code that is wrong whatever its types are is refused here.
"""

from .conversions import compile_conversions
from .functions import Compiled, Over, compile_filter, compile_map, compile_transaction, compile_window
from .joins import Joined, compile_join
from .reading import Passed, Reading, compile_reading_filter, compile_reading_map

__all__ = [
    "Compiled",
    "Joined",
    "Over",
    "Passed",
    "Reading",
    "compile_conversions",
    "compile_filter",
    "compile_join",
    "compile_map",
    "compile_reading_filter",
    "compile_reading_map",
    "compile_transaction",
    "compile_window",
]
