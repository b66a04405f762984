"""Capabilities: what each framework's backend can do, as it declares itself; no framework is imported.

Each file of this folder but `declaring.py` and `table.py` is a framework, listed here by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from hookline.backends.capabilities.declaring import FEATURES as FEATURES
from hookline.backends.capabilities.declaring import YES as YES
from hookline.backends.capabilities.declaring import Framework as Framework
from hookline.backends.capabilities.declaring import No as No
from hookline.backends.capabilities.declaring import answers as answers

_PARTS = {"declaring", "table"}


@cache
def capabilities() -> dict[str, Framework]:
    """Every framework by name, torch first.

    >>> torch = capabilities()["torch"]
    >>> torch.can("record"), torch.models
    (True, 'a torch.nn.Module')
    """
    names = [found.name for found in pkgutil.iter_modules(__path__) if found.name not in _PARTS]
    names.sort(key=lambda name: (name != "torch", name))
    found = (importlib.import_module(f"{__name__}.{name}").FRAMEWORK for name in names)
    return {framework.name: framework for framework in found}
