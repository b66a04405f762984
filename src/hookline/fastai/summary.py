"""fastai's helpers to look at a model: the same names and results, without fastai.

Unlike fastai's they leave the model in the modes it had, and the random generator as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model, Tree
from hookline.backends.protocol import Backend
from hookline.backends.undoing import Undoing, tidied
from hookline.errors import InvalidArgument
from hookline.fastai.hooks import Hooks, hook_outputs
from hookline.trees import leaves, map_leaves

WIDTH = 64


def dummy_eval(m: Any, size: tuple[int, ...] = (64, 64)) -> Any:
    """The output of `m`, in eval mode, for one random image of that size with the channels it takes.

    >>> import torch
    >>> dummy_eval(torch.nn.Conv2d(3, 8, 3, padding=1), (10, 12)).shape
    torch.Size([1, 8, 10, 12])
    """
    backend = resolve(m)
    return _evaluated(backend, m, [backend.random_input(m, (1, _channels(m), *size))])


def _channels(m: Any) -> int:
    """The channels that the first convolution takes."""
    for _, module in resolve(m).named_modules(m):
        weight = getattr(module, "weight", None)
        if weight is not None and len(getattr(weight, "shape", ())) == 4:
            return int(weight.shape[1])
    raise InvalidArgument(
        f"{type(m).__name__} has no convolution over images (no weight of 4 dimensions), so the channels of a "
        "dummy image are not known. Call the model on an input of your own."
    )


def model_sizes(m: Any, size: tuple[int, ...] = (64, 64)) -> list[list[int]]:
    """The shape of what each part of `m` puts out for a dummy image.

    >>> from torch import nn
    >>> model_sizes(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)))
    [[1, 16, 64, 64], [1, 32, 32, 32]]
    """
    parts = m if hasattr(m, "__iter__") else m.children()
    return [_shape(stored) for stored in _stored_by(hook_outputs, parts, run=partial(dummy_eval, m, size))]


def num_features_model(m: Any) -> int:
    """The number of features (channels) that `m` puts out, found with images from 32 x 32 upwards.

    >>> from torch import nn
    >>> num_features_model(nn.Sequential(nn.Conv2d(5, 4, 3), nn.Conv2d(4, 3, 3)))
    3
    """
    size = 32
    while True:
        try:
            return model_sizes(m, (size, size))[-1][1]
        except InvalidArgument:
            raise
        except Exception:  # too small for this model, perhaps
            size *= 2
            if size > 2048:
                raise


def has_params(m: Any) -> bool:
    """Whether `m` has at least one parameter."""
    return any(module.parameters for module in resolve(m).modules_of(m))


def total_params(m: Any) -> tuple[int, bool]:
    """The number of parameters of `m`, each once, and whether the first of them is trained.

    >>> from torch import nn
    >>> total_params(nn.Linear(10, 32)), total_params(nn.BatchNorm2d(20, affine=False))
    ((352, True), (0, False))
    """
    found = {parameter.key: parameter for module in resolve(m).modules_of(m) for parameter in module.parameters}
    first = next(iter(found.values()), None)
    return sum(parameter.count for parameter in found.values()), first is not None and first.trainable


def layer_info(learn: Any, *xb: Any, same: bool = False) -> list[tuple[Any, ...]]:
    """(type, parameters, trained, output shape) of each layer without parts, for the first item of the batch `xb`.

    With `same` there is a fifth entry, as in fastai 2.8: whether the output has the shape of the input, but for
    the batch. `learn` is a Learner, anything with a `.model`, or a model.

    >>> import torch
    >>> layer_info(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU()), torch.ones(8, 3), same=True)
    [('Linear', 20, True, [1, 5], False), ('ReLU', 0, False, [1, 5], True)]
    """
    model = getattr(learn, "model", learn)
    backend = resolve(model)

    def told(layer: Any, inputs: Any, output: Tree) -> tuple[Any, ...]:
        info = (type(layer).__name__, *total_params(layer), map_leaves(_shape, output, backend.tensor))
        return (*info, _keeps_shape(inputs, output)) if same else info

    first = map_leaves(lambda tensor: tensor[:1], xb, backend.tensor)
    stored = _stored_by(Hooks, _leaves(model), told, run=partial(_evaluated, backend, model, first))
    return [info for info in stored if info is not None]


@tidied
def _stored_by(undoing: Undoing, kind: Callable[..., Hooks], *args: Any, run: Callable[[], Any]) -> list[Any]:
    """What hooks of that kind have stored once `run` has run; they are off the model again."""
    hooks = undoing.enter_context(kind(*args))
    run()
    return hooks.stored


def _evaluated(backend: Backend, model: Model, args: Tree) -> Any:
    with backend.evaluating(model):
        return model(*args)


def _keeps_shape(inputs: tuple[Any, ...], output: Tree) -> bool:
    """Whether a tensor came out that has the shape of the first one that went in, but for the batch."""
    shapes = [tuple(value.shape[1:]) for value in (*inputs[:1], output) if hasattr(value, "shape")]
    return len(shapes) == 2 and shapes[0] == shapes[1]


def _leaves(model: Model) -> Iterator[Any]:
    named = list(resolve(model).named_modules(model))
    holders = {name.rpartition(".")[0] for name, _ in named if name}
    seen: set[int] = set()
    for name, module in named:
        if name not in holders and id(module) not in seen:
            seen.add(id(module))
            yield module


class PrettyString(str):
    """Text that shows itself as it is, also at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def module_summary(learn: Any, *xb: Any) -> PrettyString:
    """fastai's table of layers for the batch `xb`; `hookline.summary` tells more."""
    model = getattr(learn, "model", learn)
    tensors = list(leaves(xb, resolve(model).tensor))
    if not tensors:
        raise InvalidArgument("module_summary needs a batch: module_summary(learn, x).")
    batch = int(tensors[0].shape[0])
    infos = layer_info(learn, *xb)
    heavy, light = "=" * WIDTH, "_" * WIDTH
    lines = [f"{type(model).__name__} (Input shape: {[_joined(list(t.shape), batch) for t in tensors]})", heavy]
    lines += [f"{'Layer (type)':<20} {'Output Shape':<20} {'Param #':<10} {'Trainable':<10}", heavy]
    for kind, count, trained, shape in infos:
        lines += [f"{kind:<20} {_text(shape, batch)[:19]:<20} {count:<10,} {trained!s:<10}", light]
    total, trainable = sum(info[1] for info in infos), sum(info[1] for info in infos if info[2])
    lines += ["", f"Total params: {total:,}", f"Total trainable params: {trainable:,}"]
    lines += [f"Total non-trainable params: {total - trainable:,}", "", ""]
    return PrettyString("\n".join(lines))


def _text(shape: Any, batch: int) -> str:
    if isinstance(shape, list) and all(type(size) is int for size in shape):
        return _joined(shape, batch)
    return str([_text(part, batch) for part in (shape.values() if isinstance(shape, dict) else shape or ())])


def _joined(shape: list[int], batch: int) -> str:
    """`16 x 50`: the batch's own size comes first, since one item of it was run."""
    return " x ".join(map(str, [batch, *shape[1:]]))


def _shape(value: Any) -> Any:
    if hasattr(value, "shape"):
        return list(value.shape)
    return [_shape(part) for part in (value.values() if isinstance(value, dict) else value or ())]
