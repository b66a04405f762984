"""Ops: the operators of a compiled model, told while its graphs run.

Every module that is listened to gets a class of its own (classes.py), so that torch compiles the model anew,
once. While it does, inductor hands over each graph of ATen operators, and operators that look at values are put
into it (inserting.py). The graphs of the model as it was stay cached, and are used again when nobody listens.
"""

from __future__ import annotations

from collections.abc import Container

from torch import nn

from hookline.backends.operators import OpListener
from hookline.backends.protocol import Label
from hookline.backends.torch.compat import uncompiled
from hookline.backends.torch.compiled import inductor
from hookline.backends.torch.compiled.entry import around_compiled
from hookline.backends.torch.compiled.listened import Subscription, listened_model
from hookline.backends.undoing import Undoing


def hook_compiled(
    undoing: Undoing,
    entry: nn.Module,
    modules: dict[int, tuple[str, nn.Module]],
    inside: Container[int],
    listener: OpListener,
    label: Label,
) -> None:
    """Has `listener` told of the operators of those modules of `entry` that are `inside`."""
    root = uncompiled(entry)
    names = {key: name for key, (name, _) in modules.items()}
    model = listened_model(root, names)
    subscription = Subscription(listener, frozenset(name for key, name in names.items() if key in inside), label)
    inductor.install(undoing)
    undoing.noted(model.tell, subscription, False)
    model.tell(subscription, True)
    around_compiled(undoing, entry, model.called)
