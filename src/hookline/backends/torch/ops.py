"""Ops: from the modules that are listened to, to the ways in which their code runs.

Code that runs as written is followed by a dispatch mode (eager/). What inductor compiled is compiled anew
with the listener in it (compiled/ops.py); a model may have parts of both kinds. The backends "eager" and
"aot_eager" of torch.compile, made for debugging, run the same operators as the code itself, so with these a model
runs as written while somebody listens.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from hookline.backends.operators import OpListener
from hookline.backends.protocol import Label
from hookline.backends.torch.compat import compiled, uncompiled
from hookline.backends.torch.compiled.constants import need_version
from hookline.backends.torch.compiled.entry import compiler_of, has_pass_of_its_own, run_as_written
from hookline.backends.torch.compiled.ops import hook_compiled
from hookline.backends.torch.eager.forwards import hook_eager
from hookline.backends.torch.modules import walk
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported

AS_WRITTEN = ("eager", "aot_eager")
Parts = dict[int, tuple[str, nn.Module]]


def hook_operators(
    undoing: Undoing, model: nn.Module, places: dict[str, nn.Module], listener: OpListener, label: Label
) -> None:
    """Has `listener` told of every operator that runs in these modules or their parts."""
    inside: Parts = {}
    for name, module in places.items():
        for below, part in walk(module, name):
            inside.setdefault(id(part), (below, part))
    elsewhere: set[int] = set()
    entries: list[nn.Module] = []
    for name, entry in _entries(model):
        need_version()
        compiler = compiler_of(entry)
        root = uncompiled(entry)
        own = {id(part): (under, part) for under, part in walk(root, name)}
        if compiler in AS_WRITTEN:
            run_as_written(undoing, entry)
        elif compiler == "inductor" and not has_pass_of_its_own(entry):
            elsewhere |= set(own)
            entries.append(entry)
            if any(key in inside for key in own):
                hook_compiled(undoing, entry, own, inside, listener, label)
        else:
            raise _unsupported(name, compiler)
    written = {key: part for key, part in inside.items() if key not in elsewhere}
    if written:
        hook_eager(undoing, uncompiled(model), written, entries, listener, label)


def _entries(module: nn.Module, name: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules that run compiled, as they are: wrapped or with a compiled call."""
    if compiled(module):
        yield name, module
    elif id(module) not in above:
        dot = f"{name}." if name else ""
        for child, part in module._modules.items():
            if part is not None:
                yield from _entries(part, dot + child, (*above, id(module)))


def _unsupported(name: str, compiler: str) -> Unsupported:
    return Unsupported(
        backend="torch",
        feature=f"an op hook on {name or 'the model'!r}, compiled by {compiler!r}",
        why="only inductor lets its graphs be looked at, and that by its post_grad_custom_post_pass",
        instead="compile it with inductor and without such a pass in its options, or with aot_eager or eager",
    )
