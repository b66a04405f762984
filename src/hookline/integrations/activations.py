"""HookCallback and ActivationStats: fastai's, in a fastai Learner and in any other loop.

Same names, arguments and results as fastai's. They need no fastai: a Learner takes any object that has
a `name` and an `order` and is called with the names of events. In a plain loop a stand-in for the Learner
calls them, so that a subclass works in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from hookline.backends import resolve
from hookline.errors import InvalidArgument
from hookline.hooks.stored import Hooks
from hookline.integrations.guard import Guard
from hookline.integrations.loop import Loop
from hookline.plots.axes import new_axes, pyplot
from hookline.schedule import every as every_so_many
from hookline.trees import leaves


class HookCallback:
    """Has `hook(module, input, output)` called on `modules` during training; `hooks.stored` are its results.

    `hook` comes by a subclass or as an argument. `modules` are by default those that have parameters of
    their own. With `every`, they are hooked in one training batch out of so many only. `is_forward`,
    `detach` and `cpu` are those of `Hooks`. Hooks go when training ends, unless `remove_end` is False, and
    when it raises.

    In fastai: `Learner(..., cbs=HookCallback(hook=f))`. Anywhere else, where a batch is what happens up to
    an optimizer step:

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with HookCallback(hook=lambda module, input, output: output.shape).attach(model) as callback:
    ...     model(torch.ones(5, 3)).sum().backward()
    ...     _ = optimizer.step()
    >>> callback.hooks.stored
    [torch.Size([5, 2])]
    """

    order = -20
    """Before fastai's TrainEvalCallback (-10), which counts `train_iter` on when a batch ends."""
    run = True
    """fastai's switch: False until the end of a fit leaves a callback out of it."""
    learn: Any = None
    hooks: Hooks | None = None
    _reduces = False  # whether what the hook returns is small, so that moving it beats moving its input

    def __init__(
        self,
        modules: Iterable[Any] | None = None,
        every: int | None = None,
        remove_end: bool = True,
        is_forward: bool = True,
        detach: bool = True,
        cpu: bool = True,
        hook: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        if every is not None:
            every_so_many(every)  # raises where it is no number of batches
        self.modules = None if modules is None else list(modules)
        self.every, self.remove_end = every, remove_end
        self.is_forward, self.detach, self.cpu = is_forward, detach, cpu
        if hook is not None:
            self.hook = hook  # type: ignore[assignment, method-assign]
        elif type(self).hook is HookCallback.hook:
            raise InvalidArgument(
                f"{type(self).__name__} has no hook: give hook=function, or define hook(self, m, i, o) "
                "in a subclass."
            )
        self._guard: Guard | None = None

    def hook(self, m: Any, i: Any, o: Any) -> Any:
        """What to keep of a call of module `m` with input `i` and output `o`, or of their gradients."""
        raise NotImplementedError

    # The events of a fit

    def before_fit(self) -> None:
        """Hooks the modules."""
        if self.modules is None:
            self.modules = layers_of(self.model)
        self._remove()
        if self.every is None:
            self._register()

    def before_batch(self) -> None:
        """Hooks the modules for this batch, if it is one of `every` so many."""
        if self.every is not None and self._wanted():
            self._register()

    def after_batch(self) -> None:
        """Takes the hooks of this batch off again."""
        if self.every is not None and self._wanted():
            self._remove()

    def after_fit(self) -> None:
        """Takes the hooks off."""
        if self.remove_end or self.every is not None:
            self._remove()

    def _wanted(self) -> bool:
        return bool(self.training) and (self.every is None or self.train_iter % self.every == 0)

    def _register(self) -> None:
        self._remove()
        cpu = self.cpu and not self._reduces
        self.hooks = Hooks(self.modules or [], self.hook, self.is_forward, self.detach, cpu)

    def _remove(self) -> None:
        if self.hooks is not None:
            self.hooks.remove()

    # In a plain loop

    def attach(self, model: Any) -> Self:
        """This callback, to be used in a `with` statement around a loop that trains `model`."""
        self.learn = Loop(model, self)
        return self

    def __enter__(self) -> Self:
        if not isinstance(self.learn, Loop):
            raise InvalidArgument(
                f"{type(self).__name__} is not attached: `with callback.attach(model):` is wanted, "
                "or `Learner(..., cbs=callback)` in fastai."
            )
        try:
            self.learn.begin()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.learn.end(failed=error is not None)
        if error is not None:
            self._remove()

    # What a Learner wants of a callback

    def __call__(self, event: str) -> None:
        """Runs the method of that event, if there is one."""
        if event == "before_fit" and not isinstance(self.learn, Loop):
            self._guarded()
        if self.run and (method := getattr(type(self), event, None)) is not None:
            method(self)
        if event == "after_fit":
            self.run = True
            if self._guard is not None:
                self._guard.remove()
                self._guard = None

    @property
    def name(self) -> str:
        """What it is called in a Learner: `activation_stats` for ActivationStats."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__.removesuffix("Callback")).lower() or "callback"

    def _guarded(self) -> None:
        # A Learner tells its callbacks of its own Cancel...Exceptions and of no other.
        from hookline.integrations.fastai import signals

        if self._guard is not None:
            self._guard.remove()
        self._guard = Guard(self.learn, "_with_events", self._failed, signals())

    def _failed(self) -> None:
        self._remove()
        if self._guard is not None:
            self._guard.remove()
            self._guard = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.learn is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; outside of a training there is no learner to ask."
            )
        return getattr(self.learn, name)

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or a Learner that is exported, has neither live hooks nor a guard.
        return vars(self) | {"hooks": None, "_guard": None}

    def __repr__(self) -> str:
        return type(self).__name__


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


def layers_of(model: Any) -> list[Any]:
    """The modules of a model that have parameters of their own, each once, in order of definition.

    >>> from torch import nn
    >>> layers_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2)))
    [Linear(in_features=2, out_features=2, bias=True), BatchNorm1d(2, ...)]
    """
    backend = resolve(model)
    each = {id(module): module for _, module in backend.named_modules(model)}
    return [
        module
        for module in each.values()
        if backend.own_parameters(module) or getattr(module, "weight", None) is not None
    ]


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


def _widest(tensor: Any) -> Any:
    """The widest float dtype on the tensor's device."""
    import torch

    return torch.float32 if tensor.device.type == "mps" else torch.float64
