"""From the syntax tree of a Python function to the plan.

``source`` finds the tree of a function in its file; ``scope`` says what a name means; ``expressions``,
``calls``, ``records`` and ``statements`` translate; ``roles`` translates keys; ``functions`` puts it
together. Types are checked by the analysis of the plan, in Rust, which all front ends share.
Code that is wrong whatever its types are is refused here.
"""

from .functions import Compiled, compile_filter, compile_map, compile_transaction

__all__ = ["Compiled", "compile_filter", "compile_map", "compile_transaction"]
