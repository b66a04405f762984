"""The numpy backend: arrays, for statistics and files where no framework is. It has no models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends.capabilities import capabilities
from hookline.backends.defaults import Defaults
from hookline.backends.protocol import TensorBackend
from hookline.errors import InvalidArgument


class NumpyBackend(Defaults):
    """What recordings are read into where their own framework is not installed."""

    name = "numpy"
    tensor: type = np.ndarray
    framework = capabilities()["numpy"]

    def is_model(self, thing: Any) -> bool:
        return False

    def host(self, tensor: NDArray[Any]) -> NDArray[Any]:
        return tensor

    def from_host(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def detached(self, tensor: NDArray[Any]) -> NDArray[Any]:
        return tensor

    def snapshot(self, tensor: NDArray[Any], device: Any = None, dtype: Any = None) -> NDArray[Any]:
        return tensor.copy() if dtype is None else tensor.astype(dtype)

    def fitted(self, value: NDArray[Any], old: NDArray[Any]) -> NDArray[Any]:
        return value.astype(old.dtype)

    def dtype(self, dtype: Any) -> np.dtype[Any] | None:
        try:
            return None if dtype is None else np.dtype(dtype)
        except TypeError as error:
            raise InvalidArgument(f"dtype: expected one of numpy's or its name, got {dtype!r}: {error}") from None


BACKEND: TensorBackend = NumpyBackend()
