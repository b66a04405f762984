"""Keras 3 on torch: a WatchCallback for `model.fit`.

Keras keeps layers and variables in lists of its own and steps optimizers of its own, so sites are the
layers by their names (`encoder.dense`), parameters their variables (`encoder.dense.kernel`), and a step is
an update that the optimizer really does. Parameter gradients are those that it uses: after accumulation
(`gradient_accumulation_steps`), after unscaling and after `clipnorm` and the like. Decoupled weight decay
comes before what Keras calls the update, and is not part of the `update` rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from hookline.errors import InvalidArgument, Unsupported
from hookline.hooks.select import ModuleTree, Target, select
from hookline.integrations.watcher import Watcher
from hookline.optional import need

_keras = need("keras", "keras")


class WatchCallback(Watcher, _keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    """`model.fit(..., callbacks=[WatchCallback(every=10)])` watches that fit; `rows()` has what it saw.

    Takes the options of `hookline.watch`. An exception in a batch or in an evaluation ends the watching;
    for those of other callbacks or of the data, which Keras tells nobody of, use
    `with WatchCallback() as w: model.fit(..., callbacks=[w])`.
    """

    _stepped: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins to watch: the layers are built."""
        model, optimizer = self.model, self.model.optimizer
        if _keras.backend.backend() != "torch":
            raise InvalidArgument(f"Keras runs on {_keras.backend.backend()} here; expected KERAS_BACKEND=torch.")
        if getattr(model, "jit_compile", False) is True:
            raise Unsupported(
                backend="torch",
                feature="watching a compiled Keras model",
                why="compiled code passes by hooks that come later",
                instead="compile(..., jit_compile=False)",
            )
        layers = list(named_layers(model))
        places = select(ModuleTree(layers), self.where)
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
        each = getattr(inner, "gradient_accumulation_steps", None) or 1
        watch = self.open(
            model,
            first_step=0 if inner is None else int(inner.iterations) // each,
            modules=layers,
            params=partial(parameters_of, places),
            scaler=None if inner is optimizer else LossScale(optimizer),
        )
        for method in ("train_function", "evaluate"):
            self.guard(model, method)
        if inner is not None:
            watch.steps_by_hand()
            vars(inner)[UPDATE] = partial(self._update, getattr(inner, UPDATE))
            self._stepped = inner

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the watching."""
        self.detach()

    def detach(self) -> None:
        """Takes everything off the model and the optimizer; a second time does nothing."""
        inner, self._stepped = self._stepped, None
        if inner is not None:
            vars(inner).pop(UPDATE, None)
        super().detach()

    def _update(self, update: Any, grads: Any, variables: Any, learning_rate: Any) -> None:
        if self.watch is None or not self.is_open:
            update(grads, variables, learning_rate)
            return
        self.watch.before_step({id(v.value): grad for grad, v in zip(grads, variables, strict=True)})
        update(grads, variables, learning_rate)
        self.watch.after_step()


UPDATE = "_backend_update_step"
"""The method of a Keras optimizer that gets the gradients in their final form; called once for each update."""


class LossScale:
    """The scale of a LossScaleOptimizer, asked for as that of a GradScaler is."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def get_scale(self) -> float:
        """The factor by which the loss is multiplied now."""
        return float(self._optimizer.dynamic_scale)


def named_layers(layer: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, layer) for a model and all its layers, parents first."""
    yield name, layer
    for part in layer._flatten_layers(include_self=False, recursive=False):
        yield from named_layers(part, f"{name}.{part.name}" if name else part.name)


def parameters_of(places: list[Target]) -> dict[str, Any]:
    """The tensors of the trainable variables that the layers hold themselves, by `layer.variable`."""
    return {
        f"{place.name}.{variable.name}" if place.name else variable.name: variable.value
        for place in places
        for variable in place.module._trainable_variables
    }
