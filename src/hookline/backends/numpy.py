"""The numpy backend: arrays, for statistics and files where no framework is. It has no models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends.capabilities import capabilities
from hookline.backends.common import Common


class NumpyBackend(Common):
    """What recordings are read into where their own framework is not installed."""

    name = "numpy"
    tensor = np.ndarray
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


BACKEND = NumpyBackend()
