"""Finding the application in a user's file, for the command line."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from .app import App
from .errors import LoadError
from .names import type_name

__all__ = ["load"]


def load(path: str, name: str | None = None) -> App:
    """The application of the file ``path``: the one called ``name``, or the only one.

    The file is imported with its folder on the module path, as Python does with a script; its name
    is not ``__main__``. Raises ``LoadError``, and what the file itself raises.
    """
    if not os.path.isfile(path):
        hint = f"; did you mean {path}.py?" if os.path.isfile(f"{path}.py") else ""
        raise LoadError(f"there is no file {path}{hint}")
    module = _import(os.path.realpath(path))
    if name is not None:
        return _named(module, path, name)
    found = {n: v for n, v in vars(module).items() if isinstance(v, App)}
    different = {id(a): n for n, a in found.items()}
    if not different:
        raise LoadError(f"{path} has no application; write 'app = tm.App(\"name\")' in it")
    if len(different) > 1:
        names = ", ".join(different.values())
        first = next(iter(different.values()))
        raise LoadError(f"{path} has several applications: {names}; choose one: {path}:{first}")
    return next(iter(found.values()))


def _named(module: ModuleType, path: str, name: str) -> App:
    value = getattr(module, name, None)
    if not isinstance(value, App):
        what = "is not defined" if not hasattr(module, name) else f"is {type_name(value)}, not a tm.App"
        raise LoadError(f"'{name}' in {path} {what}")
    return value


def _import(file: str) -> ModuleType:
    folder, stem = os.path.dirname(file), os.path.splitext(os.path.basename(file))[0]
    name = stem if stem.isidentifier() and stem not in sys.modules else f"_tidemill_app_{stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError(f"{file} is no Python file; its name should end in .py")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    # Classes look their module up while they are defined.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
