"""Numbers: what is one number at a step, the loss or a learning rate say; hookline's own and the user's.

They become rows of kind "scalar". What a framework has on a device is read when the step ends, in one go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from hookline.backends.protocol import Backend, HeardLoss
from hookline.errors import InvalidArgument
from hookline.histograms import Histograms
from hookline.lines.kernel import active
from hookline.lines.sheet import Sheet
from hookline.reporting import report
from hookline.rows import COUNTS, FLOATS, SCALAR, Rows
from hookline.watching.clock import StepClock
from hookline.watching.steps import Gathered

NEAR_ZERO = 0.05
"""As in every row."""
BEFORE = {"batch", "batch_rms", "loaders_begun"}
"""What is known of a step before anything is computed."""


class StepNumbers:
    """The numbers of the step under way; a backend tells hookline's own (`hearing.NumbersListener`).

    A user's are kept at any step, and stand before hookline's of the same name.
    """

    def __init__(self, backend: Backend, clock: StepClock) -> None:
        self._backend, self._clock = backend, clock
        self.are_kept = False
        """Whether the step under way is one that is recorded."""
        self.additions = 0
        """How many numbers came so far, in all steps."""
        self._losses: dict[bool, list[Any]] = {True: [], False: []}
        self._own: dict[str, Any] = {}
        self._logged: dict[int, dict[str, Any]] = {}
        self._has_batch = False
        self.norms: dict[int, float] = {}
        """Of gradients that were measured for the step under way, by their ids."""
        self._broken: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to keep: not for a batch of which nothing came, since its forward failed."""
        return bool(self._own.keys() - BEFORE or self._logged or any(self._losses.values()))

    # What comes

    @property
    def now(self) -> int:
        return self._clock.now

    def wanted(self) -> bool:
        return self.are_kept

    def guarded(self, what: str, work: Callable[[], None]) -> None:
        """Does work for some numbers; a failure is told once, and ends these."""
        if what in self._broken:
            return
        try:
            work()
        except Exception as error:  # training goes on, whatever it is
            self._broken.add(what)
            report(f"watch: {what}", work, error, "it is not kept any more")

    def hear_loss(self, loss: HeardLoss) -> None:
        self.additions += 1
        self._losses[loss.accumulates].append(loss.value)

    def tell(self, name: str, value: Any) -> None:
        self.additions += 1
        if value is None:
            self._own.pop(name, None)
        else:
            self._own[name] = value

    def norms_of(self, gradients: Sequence[Any]) -> dict[int, float]:
        """See `hearing.NumbersListener`. What was measured is given once, and all by the kernel: whichever
        parameters are watched, the norm of all has the same digits."""
        found, self.norms = self.norms, {}
        others = [] if active() is None else [one for one in gradients if id(one) not in found]
        sheet = Sheet(histogram=False, lines=len(others))
        norms = sheet.norms([sheet.reduce(one) for one in others])
        return found | {id(one): norm for one, norm in zip(others, norms, strict=True) if norm is not None}

    def batch(self, inputs: Any, *, training: bool) -> None:
        """What comes into the model: the first batch of the step that is trained on counts, or the first."""
        if not self.wanted() or self._has_batch or ("batch" in self._own and not training):
            return
        self._has_batch = training
        self.guarded("the fingerprint of the batch", lambda: self.tell("batch", self._backend.fingerprint(inputs)))
        self.guarded("the scale of the batch", lambda: self.tell("batch_rms", self._backend.scale(inputs)))

    def log(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Numbers of the user's; InvalidArgument for what is none."""
        found = {name: number_of(self._backend, name, value) for name, value in numbers.items()}
        self.additions += len(found)
        self._logged.setdefault(step, {}).update(found)

    # What goes

    def rows(self, step: int, rank: int, *, so_far: bool = False) -> Rows | None:
        """The rows of the step and of what was logged; None without any. They go, unless it is `so_far`."""
        if not (self or self._own):
            return None
        by_step = {number: dict(values) for number, values in self._logged.items()}
        by_step[step] = self._of_step() | by_step.get(step, {})
        if not so_far:
            self.forget()
        named = [(number, name, value) for number, values in by_step.items() for name, value in values.items()]
        read: list[float] = []
        self.guarded("scalars", lambda: read.extend(self._backend.read_numbers([value for *_, value in named])))
        if len(read) < len(named):
            return None
        return rows_of([(number, name, value) for (number, name, _), value in zip(named, read, strict=True)], rank)

    def _of_step(self) -> dict[str, Any]:
        """Hookline's own. Gradients that were returned are those of a training only where no parameter got any."""
        losses = self._losses[True] or self._losses[False]
        found = dict(self._own)
        if losses:
            found["backwards"] = len(losses)
            if None not in losses:
                found["loss"] = losses[0] if len(losses) == 1 else sum(losses) / len(losses)
        return found

    def forget(self) -> None:
        """The step is over."""
        self._losses, self._own, self._logged = {True: [], False: []}, {}, {}
        self._has_batch = False


def rows_of_step(
    gathered: Gathered, numbers: StepNumbers, step: int, rank: int, *, so_far: bool = False
) -> tuple[Rows | None, Rows | None]:
    """The rows of a step that ends, and its scalars; None for what it has not. `so_far`: if it ended now."""
    rows = None
    if gathered:
        rows = gathered.rows_so_far(step, rank) if so_far else gathered.rows(step, rank)
    elif not numbers and not so_far:
        numbers.forget()
    return rows, numbers.rows(step, rank, so_far=so_far)


def rows_of(numbers: list[tuple[int, str, float]], rank: int) -> Rows:
    """The rows of (step, name, number).

    >>> [(row["site"], row["step"], row["mean"], row["nan"]) for row in rows_of([(3, "loss", 0.5)], rank=0)]
    [('loss', 3, 0.5, 0)]
    """
    values = np.asarray([value for *_, value in numbers], np.float64)
    size, zero = np.abs(values), values == 0
    columns = {
        **dict.fromkeys(("mean", "min", "max"), values),
        **dict.fromkeys(("absmax", "l2"), size),
        "std": np.zeros(len(values)),
        "near_zero": (size <= NEAR_ZERO).astype(np.float64),
        "count": np.ones(len(values)),
        "zeros": zero,
        "nan": np.isnan(values),
        "inf": np.isinf(values),
    }
    return Rows(
        [(name, SCALAR, 0, "train") for _, name, _ in numbers],
        np.asarray([step for step, *_ in numbers], np.int64),
        np.asarray([columns[name] for name in COUNTS], np.int64),
        np.asarray([columns[name] for name in FLOATS], np.float64),
        Histograms.none(len(numbers)),
        [{}] * len(numbers),
        rank,
    )


def number_of(backend: Backend, name: str, value: Any) -> Any:
    """A number that was logged, a tensor's not waited for; InvalidArgument where it is none."""
    shape = getattr(value, "shape", None)
    try:
        if isinstance(value, backend.tensor):
            if shape is not None and tuple(shape) == ():
                return backend.as_number(value)
        elif isinstance(value, Real) or shape == ():
            return float(value)
    except Exception as error:  # a tensor of another framework, a complex number
        raise InvalidArgument(f"log({name}=...): this {type(value).__name__} is no number: {error}") from None
    what = type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
    raise InvalidArgument(
        f"log({name}=...): expected a number, or a tensor or array of shape (), got a {what}. "
        "Give loss.mean(), or float(...), say."
    )


def checked_config(config: Any) -> dict[str, Any] | None:
    """Settings as JSON has them; InvalidArgument where they are none.

    >>> checked_config({"lr": 0.1, "sizes": (3, 4)})
    {'lr': 0.1, 'sizes': [3, 4]}
    >>> checked_config({"model": {"act": len}})
    Traceback (most recent call last):
    hookline.errors.InvalidArgument: config['model']['act']: a builtin_function_or_method can't be kept ...
    """
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise InvalidArgument(f"config: expected a dict of settings, got a {type(config).__name__}.")
    found: dict[str, Any] = _as_json(config, "config", ())
    return found


def _as_json(value: Any, where: str, above: tuple[int, ...]) -> Any:
    """The same in dicts, lists, texts and numbers."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if id(value) in above:
        raise InvalidArgument(f"{where} leads back to itself, and can't be kept as JSON.")
    above = (*above, id(value))
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one, f"{where}[{key!r}]", above) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(one, f"{where}[{number}]", above) for number, one in enumerate(value)]
    what = f"a {type(value).__name__}"
    if isinstance(value, float):
        what = str(value)
    elif isinstance(value, Mapping):
        what = "a dict whose keys are not all texts"
    raise InvalidArgument(
        f"{where}: {what} can't be kept as JSON. Give texts, numbers, True, False, None, and lists and dicts of "
        "these; str(...) of anything else."
    )
