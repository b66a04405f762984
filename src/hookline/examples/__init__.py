"""Examples: models with data and a training loop, to try things on; plain torch, without hookline."""

from hookline.examples.digits import Digits

__all__ = ["Digits"]
