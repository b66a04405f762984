"""Hook point: a place in forward code at which a gradient is heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.backends.protocol import Backend, JointSink


class Point:
    """Called with tensors it gives them back, as they are; their gradients come by here in the backward.

    Where forward code is compiled, this call is what a backend looks for.
    """

    def __call__(self, *tensors: Any) -> Any:
        backend, sink = self.listening(tensors)
        tapped = backend.tapped(tensors, sink)
        return tapped[0] if len(tapped) == 1 else tapped

    def listening(self, tensors: tuple[Any, ...]) -> tuple[Backend, JointSink]:
        """The backend of these tensors, and who gets the gradients of all of them at once."""
        raise NotImplementedError
