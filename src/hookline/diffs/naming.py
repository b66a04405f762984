"""Naming: names of places without what wrappers put into them, and types by what they do.

A wrapper holds a model or a part of it as a child of its own, and has the same output: the place stays the same,
its name does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

WRAPPERS = frozenset(
    {
        "_orig_mod",  # torch.compile
        "_fsdp_wrapped_module",  # FullyShardedDataParallel
        "_checkpoint_wrapped_module",  # checkpoint_wrapper and offload_wrapper
        "_dmp_wrapped_module",  # torchrec's DistributedModelParallel
    }
)
"""Parts of names that belong to a wrapper wherever they stand."""

FIRST = "module"
"""A wrapper's part where it comes first: DataParallel, DistributedDataParallel, AveragedModel. A model's own child
may have this name too."""

_KINDS = (
    ("dense", "linear dense conv1d nondynamicallyquantizablelinear"),  # a Conv1D is dense too in transformers
    ("conv", "conv"),
    ("convtranspose", "convtranspose"),
    ("embedding", "embedding embed"),
    ("batchnorm", "batchnorm syncbatchnorm"),
    ("layernorm", "layernorm"),
    ("groupnorm", "groupnorm"),
    ("instancenorm", "instancenorm"),
    ("rmsnorm", "rmsnorm"),
    ("dropout", "dropout"),
    ("maxpool", "maxpool"),
    ("avgpool", "avgpool"),
    ("globalavgpool", "adaptiveavgpool globalavgpool"),
    ("globalmaxpool", "adaptivemaxpool globalmaxpool"),
    ("flatten", "flatten"),
    ("identity", "identity"),
    ("attention", "multiheadattention"),
    ("lstm", "lstm"),
    ("gru", "gru"),
    ("rnn", "rnn"),
    ("lstmcell", "lstmcell optimizedlstmcell"),
    ("grucell", "grucell"),
    ("rnncell", "rnncell simplecell"),
    ("relu", "relu activation"),  # an Activation of MXNet is any of them
    ("sigmoid", "sigmoid activation"),
    ("tanh", "tanh activation"),
    ("softplus", "softplus activation"),
    ("softsign", "softsign activation"),
    ("leakyrelu", "leakyrelu"),
    ("gelu", "gelu"),
    ("silu", "silu swish"),
    ("elu", "elu"),
    ("selu", "selu"),
    ("prelu", "prelu"),
    ("softmax", "softmax"),
    ("logsoftmax", "logsoftmax"),
)
"""What modules do, and what frameworks call that, in small letters and without a number of dimensions."""

COMPOSED = frozenset({"attention", "lstm", "gru", "rnn", "lstmcell", "grucell", "rnncell"})
"""What one framework has as a module and another, or a user, makes of several."""


def normalised(name: str) -> str:
    """A name without the parts of wrappers; a leading "module" counts as one.

    >>> normalised("_orig_mod.module.layer1._fsdp_wrapped_module.fc")
    'layer1.fc'
    >>> normalised("fc.parametrizations.weight.original"), normalised("head.module.fc")
    ('fc.weight', 'head.module.fc')
    """
    parts = _bare(name).split(".")
    return ".".join(parts[_leading(parts) :])


def places(names: Iterable[str], others: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """For each name of two models, the place that it stands for, which is a name without wrappers.

    "module" is a wrapper's part only where all names of a model lie below it, more often than those of the other,
    and where without it more names have a counterpart: a model may have a child of that name.

    >>> places(["", "fc"], ["", "module", "module.fc"])[1]
    {'': '', 'module': '', 'module.fc': 'fc'}
    >>> places(["", "fc"], ["", "module", "module.fc", "head"])[1]["module.fc"]
    'module.fc'
    """
    ours, theirs = ({name: _bare(name) for name in side} for side in (names, others))
    more = _depth(theirs.values()) - _depth(ours.values())
    shorter = _without_first(ours, -more), _without_first(theirs, more)
    return shorter if _unmatched(*shorter) < _unmatched(ours, theirs) else (ours, theirs)


def parent(name: str) -> str | None:
    """The name of what holds it, None of the model itself.

    >>> parent("a.b"), parent("a"), parent("")
    ('a', '', None)
    """
    return name.rpartition(".")[0] if name else None


@lru_cache(maxsize=4096)
def kinds_of(type_name: str) -> frozenset[str]:
    """What a module of this type does, in words that hold for all frameworks; nothing where it is not known.

    >>> kinds_of("Conv2d") == kinds_of("Conv2D") == kinds_of("Conv"), sorted(kinds_of("Block"))
    (True, [])
    """
    small = type_name.lower()
    names = {small, re.sub(r"[123]d", "", small)}
    return frozenset(kind for kind, known in _KINDS if names & set(known.split()))


def _bare(name: str) -> str:
    """Without the parts that belong to a wrapper in any place."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    if parts[-1:] == ["original"] and parts[-3:-2] == ["parametrizations"]:
        parts[-3:] = [parts[-2]]  # a parametrized weight under its own name
    return ".".join(parts)


def _leading(parts: list[str]) -> int:
    """How many parts at the beginning are a wrapper's."""
    return next((at for at, part in enumerate(parts) if part != FIRST), len(parts))


def _depth(names: Iterable[str]) -> int:
    """How many wrappers a whole model lies in; the wrappers themselves are among the names."""
    split = [name.split(".") for name in names if name]
    inside = [_leading(parts) for parts in split if _leading(parts) < len(parts)]
    return min(inside) if inside else max(map(len, split), default=0)


def _without_first(names: dict[str, str], count: int) -> dict[str, str]:
    if count <= 0:
        return names
    found = {}
    for name, bare in names.items():
        parts = bare.split(".")
        found[name] = ".".join(parts[min(count, _leading(parts)) :])
    return found


def _unmatched(ours: dict[str, str], theirs: dict[str, str]) -> int:
    common = set(ours.values()) & set(theirs.values())
    return sum(place not in common for side in (ours, theirs) for place in side.values())
