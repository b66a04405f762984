"""Testing: for authors of backends and of code that works with hooks.

`conformance` is the suite that every backend passes; it needs no framework but the one it is run on. `ZOO` has
awkward torch models, and `untouched` proves that a torch model was left as it was.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {"touched": ("Touched", "untouched"), "zoo": ("ZOO", "Specimen")}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "conformance":
        return importlib.import_module("hookline.testing.conformance")
    if name not in _MODULE_OF:
        raise AttributeError(f"hookline.testing has no {name!r}; it has conformance, {', '.join(_MODULE_OF)}.")
    return getattr(importlib.import_module(f"hookline.testing.{_MODULE_OF[name]}"), name)


if TYPE_CHECKING:
    from hookline.testing import conformance as conformance
    from hookline.testing.touched import Touched as Touched
    from hookline.testing.touched import untouched as untouched
    from hookline.testing.zoo import ZOO as ZOO
    from hookline.testing.zoo import Specimen as Specimen
