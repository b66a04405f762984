"""ActivationStats: mean, std and near-zero share of activations over a training, with fastai's definitions.

Upstream: HookCallback, which knows when a batch is over. Downstream: plots that fastai's users know.
"""

from __future__ import annotations

from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Tensor
from hookline.errors import InvalidArgument
from hookline.fastai.callback import HookCallback
from hookline.plots.axes import new_axes, pyplot
from hookline.trees import leaves


class ActivationStats(HookCallback):
    """Records mean, std and the share of values near zero of the outputs of `modules`, batch by batch.

    `stats` has an entry for each recorded training batch, ceil(n / every) of n: a list with a dict for each
    module, or None where it gave no tensor. As in fastai, near zero means x <= 0.05, so every negative value
    is, and the histogram (`with_hist`) has 40 bins from 0 to 10; `hookline.watch` has the |x| <= 0.05 kind.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with ActivationStats(every=4).attach(model) as stats:
    ...     for _ in range(5):
    ...         model(torch.ones(5, 3)).sum().backward()
    ...         _ = optimizer.step()
    >>> len(stats.stats), len(stats.stats[0]), sorted(stats.stats[0][0])
    (2, 2, ['mean', 'near_zero', 'std'])
    """

    _reduces = True

    def __init__(self, with_hist: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.with_hist = with_hist
        self.stats: list[list[Any]] = []
        self._fresh = True

    def before_fit(self) -> None:
        """Hooks the modules; the first training batch begins new stats."""
        super().before_fit()
        self._fresh = True  # not emptied here: a Learner calls this for a mere validation too

    def hook(self, m: Any, i: Any, o: Any) -> Any:
        """The statistics of the first tensor in `o`, as tensors on its device; None where there is no tensor."""
        tensors = list(leaves(o, resolve(m).tensor))
        if not tensors:
            return None
        x = tensors[0].detach().float()
        count = x.numel()
        near = (x <= 0.05).sum()
        found = {
            "mean": x.mean(),
            "std": x.std() if count > 1 else x.new_tensor(float("nan")),  # torch would warn each time
            "near_zero": near.to(_widest(near)) / count,
        }
        if self.with_hist:
            found["hist"] = x.histc(40, 0, 10)
        return found

    def after_batch(self) -> None:
        """Takes what the hooks stored over into `stats`."""
        if self._wanted() and self.hooks is not None:
            if self._fresh:
                self.stats, self._fresh = [], False
            self.stats.append(_fetched(self.hooks.stored))
        super().after_batch()

    def layer_stats(self, idx: int) -> list[list[float]]:
        """Means, stds and near-zero shares of module number `idx`, each over the recorded batches."""
        nothing = {"mean": float("nan"), "std": float("nan"), "near_zero": float("nan")}
        return [[(batch[idx] or nothing)[name] for batch in self.stats] for name in nothing]

    def hist(self, idx: int) -> Any:
        """The histograms of module number `idx` as log(1 + count): a tensor of 40 bins x recorded batches."""
        import torch

        found: list[Any] = [(batch[idx] or {}).get("hist") for batch in self.stats]
        if not found or any(hist is None for hist in found):
            raise InvalidArgument(
                f"module {idx} has no histograms: "
                + ("it gave no tensor." if self.with_hist and found else "use ActivationStats(with_hist=True).")
            )
        return torch.stack(found).t().float().log1p()

    def color_dim(self, idx: int, figsize: tuple[float, float] = (10, 5), ax: Any = None) -> Any:
        """The Axes with the colourful dimension of module number `idx`: a column for each recorded batch."""
        image = self.hist(idx)
        ax = new_axes(ax, figsize)
        ax.imshow(image, origin="lower")
        ax.axis("off")
        return ax

    def plot_layer_stats(self, idx: int) -> Any:
        """Three Axes with the mean, std and near-zero share of module number `idx`."""
        lines = self.layer_stats(idx)
        axes = pyplot().subplots(1, 3, figsize=(12, 3), layout="constrained")[1]
        for line, ax, title in zip(lines, axes, ("mean", "std", "% near zero"), strict=True):
            ax.plot(line)
            ax.set_title(title)
        return axes


def _fetched(stored: list[Any]) -> list[Any]:
    """What hooks stored with scalar tensors as numbers and others on the CPU, after one transfer a device."""
    import torch

    scalars: dict[Any, list[tuple[dict[str, Any], str]]] = {}
    entries = [dict(entry) if isinstance(entry, dict) else entry for entry in stored]
    for entry in entries:
        for name, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, torch.Tensor):
                if value.ndim == 0:
                    scalars.setdefault(value.device, []).append((entry, name))
                else:
                    entry[name] = value.cpu()
    for places in scalars.values():
        values = torch.stack([entry[name].to(_widest(entry[name])) for entry, name in places])
        for (entry, name), number in zip(places, values.tolist(), strict=True):
            entry[name] = number
    return entries


def _widest(tensor: Tensor) -> Any:
    """The widest float dtype on the tensor's device."""
    import torch

    return torch.float32 if tensor.device.type == "mps" else torch.float64
