"""Quick: classes of taps whose plain calls are done in C (`_tap.c`), or in Python as all others without C."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

Kind = TypeVar("Kind", bound=type)

if TYPE_CHECKING or find_spec("hookline.backends._tap") is not None:
    from hookline.backends._tap import Called as Called
    from hookline.backends._tap import Keeper as Keeper
    from hookline.backends._tap import Keeping as Keeping
    from hookline.backends._tap import Measurer as Measurer
    from hookline.backends._tap import Measuring as Measuring
    from hookline.backends._tap import beware as beware
    from hookline.backends._tap import call_by as call_by
    from hookline.backends._tap import quick as quick

    # Every Python has this function; C has to be told where, since the limited API has it only as of 3.12.
    call_by(ctypes.cast(ctypes.pythonapi.PyVectorcall_Function, ctypes.c_void_p).value or 0)
else:  # there was no compiler when hookline was installed

    class Called:
        pass

    class Keeper:
        def __init__(self, *told: Any) -> None:
            self.recorder, self.target, self.needs, self.keeping, self.name, self.record, self.outputs = told

    class Keeping:
        def __init__(self, *told: Any) -> None:
            self.is_plain = False

    class Measurer:
        pass

    class Measuring:
        def __init__(self, *told: Any) -> None:
            pass

    def beware(*told: Any) -> None:
        pass

    def quick(kind: Any) -> Any:
        kind.__call__ = kind.call_anyhow
        return kind


def quickly_called(kind: Kind) -> Kind:
    """A class of taps whose plain calls are done in C; all others are calls of its method `call_anyhow`.

    `__call__` of the class is that method, as torch.compile looks for it. A class that is derived from this one is
    called by it, and not quickly.
    """
    return quick(kind)
