"""Unheard: the steps of an optimizer that tells nobody of them, such as one written by hand.

After a backward, the parameters change; that is a step. It is over when the model is called again.
"""

from __future__ import annotations

from typing import Any

SAMPLES = 4
"""So many parameters are looked at for a change, the smallest with a gradient."""


class Unheard:
    """Tells a watch of the steps of `model`, from what is seen of its backwards and calls."""

    def __init__(self, watch: Any, model: Any) -> None:
        self._watch = watch
        self._parts = {id(part) for _, part in watch.backend.named_modules(model)}
        self._samples: list[tuple[Any, Any]] = []
        watch.steps_by_hand()

    def backward_ended(self) -> None:
        """Gradients are there: parameters may change from now on."""
        backend = self._watch.backend
        found = [one for one in self._parameters() if backend.gradient(one) is not None]
        if not found:
            return
        self._watch.before_step()
        smallest = sorted(found, key=backend.nbytes)[:SAMPLES]
        self._samples = [(one, backend.snapshot(backend.value_of(one))) for one in smallest]

    def called(self, module: Any) -> None:
        """A module is about to be called: if the parameters have changed since the backward, the step is over."""
        if self._samples and id(module) in self._parts and self._have_changed():
            self._samples = []
            self._watch.after_step()

    def _have_changed(self) -> bool:
        update = self._watch.backend.update_of
        return any(bool((update(one, before) != 0).any()) for one, before in self._samples)

    def _parameters(self) -> list[Any]:
        found: dict[int, Any] = {}
        for target in self._watch._targets:
            for one in self._watch.backend.own_parameters(target.module).values():
                found[id(one)] = one
        return list(found.values())
