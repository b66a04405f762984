"""Following: whatever trains in this process is found, and watched until it is over."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from hookline.backends.undoing import Undoing
from hookline.errors import HooklineError, NoSuchSite
from hookline.launching.frames import OURS, plain_entries
from hookline.launching.importing import when_imported
from hookline.launching.models import Model, name_for
from hookline.launching.unheard import Unheard

FRAMEWORKS = {"torch": "hookline.backends.torch.discovery"}
"""Who can tell what trains, by the package that a script imports."""
MOST = 16
"""So many models are watched at a time; a script that makes hundreds would drown in files."""


class Following:
    """The models of this process, from `begin` to `end`.

    The first one's run is kept in the folder `to`, that of each further one in a folder of its name inside. With
    None, rows are in memory only. `options` are those of `watch`.
    """

    def __init__(self, to: Path | None, options: Mapping[str, Any]) -> None:
        self.to, self.options = to, dict(options)
        self.models: list[Model] = []
        self.problems: list[str] = []
        """What went wrong with us; told at the end."""
        self.bad_sites: NoSuchSite | None = None
        """The `where` that means nothing in a model of the script."""
        self.seen: set[str] = set()
        """Signs of a training that there were: "torch", "call", "backward", "optimizer"."""
        self.on_framework: Callable[[], None] = lambda: None
        self._undoing = Undoing()
        self._discovery: Any = None
        self._torch: Any = None
        self._process = os.getpid()
        self._busy = threading.local()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Waits for a framework to be imported; one that is there is entered at once."""
        for package in FRAMEWORKS:
            when_imported(self._undoing, package, partial(self._enter, package))

    def _enter(self, package: str) -> None:
        self.seen.add(package)
        self._guarded(f"{package} could not be entered", partial(self._listen, FRAMEWORKS[package]))
        self._guarded("the page could not be shown", self.on_framework)

    def _listen(self, home: str) -> None:
        self._torch = importlib.import_module(home)
        self._discovery = self._torch.Discovery(self._undoing, self)
        plain_entries[:] = [self._torch.plain_entries]

    def look_around(self) -> None:
        """Finds what is there already: models whose optimizers were made before."""
        if self._discovery is not None:
            self._discovery.look_around()

    def end(self) -> None:
        """Leaves every watch and takes everything back; a second time does nothing."""
        self._undoing.close()
        for model in self.models:
            self._leave(model)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that began, and no fork of it."""
        return os.getpid() == self._process

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    # What discovery tells

    def is_known(self, parameters: list[Any]) -> bool:
        """Whether all of these belong to models that are watched, and not only because they were called."""
        watched = [one for one in self.models if not one.is_over and not one.is_guess]
        return bool(parameters) and all(any(one.owns(each) for one in watched) for each in parameters)

    def optimized(self, models: list[Any], optimizer: Any) -> None:
        """An optimizer was made: its models are watched before they are called."""
        self.seen.add("optimizer")
        self._guarded("a model could not be watched", lambda: self._optimized(models, optimizer))

    def _optimized(self, found: list[Any], optimizer: Any) -> None:
        self.let_go()
        for one in found:
            self._attach(one, is_guess=False)
        held = [each for group in optimizer.param_groups for each in group["params"]]
        for model in self.models:
            if any(model.owns(each) for each in held):
                model.unheard = None
                if all(one() is not optimizer for one in model.optimizers):
                    model.optimizers.append(weakref.ref(optimizer, self._optimizer_died))
        if any(not model.is_guess for model in self.models):
            self._discovery.hear(backwards=False, calls=False)

    def trained(self, models: list[Any]) -> None:
        """A backward is about to reach these, and nobody has told of an optimizer."""
        self.seen.add("backward")
        self._guarded("a model could not be watched", lambda: self._trained(models))

    def _trained(self, found: list[Any]) -> None:
        for one in found:
            guessed = next((model for model in self.models if model.is_guess and model.is_of(one)), None)
            if guessed is not None:
                guessed.is_guess = False  # its rows are those of this training, from its first step on
            model = guessed or self._attach(one, is_guess=False)
            if model is not None and model.unheard is None and not model.optimizers:
                model.unheard = Unheard(model.watch, one)
        if any(model.unheard is not None for model in self.models):
            self._discovery.hear(backwards=True, calls=True)  # by which the steps are told apart

    def backward_ended(self) -> None:
        """A backward is over: the next change of the parameters is a step."""
        for unheard in self._unheard():
            self._guarded("a step could not be told", unheard.backward_ended)

    def called(self, module: Any, top: Callable[[], Any]) -> None:
        """A module is called: it may be the model, if nothing was found yet; or a step is over."""
        self.seen.add("call")
        if self.models:
            for unheard in self._unheard():
                self._guarded("a step could not be told", partial(unheard.called, module))
        elif self._torch.has_parameters(module):
            self._guarded("a model could not be watched", lambda: self._attach(top(), is_guess=True))
            self._discovery.hear(backwards=True, calls=False)

    def _unheard(self) -> list[Unheard]:
        return [one.unheard for one in self.models if one.unheard is not None and not one.is_over]

    def _guarded(self, what: str, work: Callable[[], Any]) -> None:
        """Does something of ours in the midst of somebody's training, which goes on whatever happens."""
        if getattr(self._busy, "here", False):
            return
        self._busy.here = True
        try:
            with self._lock:
                work()
        except Exception as error:
            self._problem(f"{what}: {error if isinstance(error, HooklineError) else repr(error)}")
        finally:
            self._busy.here = False

    # Models come and go

    def _attach(self, found: Any, *, is_guess: bool) -> Model | None:
        for model in self.models:
            if model.is_of(found) and not model.is_over and not model.is_guess:
                return model
        self._drop_guesses()
        if sum(not model.is_over for model in self.models) >= MOST:
            self._problem(f"more than {MOST} models train at a time, and only the first {MOST} are watched")
            return None
        from hookline.launching.attaching import watched  # with numpy, which the script may prepare for

        name = name_for(found, [model.name for model in self.models], self._torch.is_around)
        folder = None if self.to is None else self.to / name if self.models else self.to
        try:
            watch = watched(found, folder, self.options)
        except NoSuchSite as error:
            self.bad_sites = error
            return None
        self.models.append(Model(name, found, watch, is_guess=is_guess))
        return self.models[-1]

    def _drop_guesses(self) -> None:
        """What was only called goes, with its run: numbers of steps begin anew with the training."""
        for model in [one for one in self.models if one.is_guess]:
            self._leave(model)
            self.models.remove(model)
            if model.path is not None:
                from hookline.launching.attaching import remove_run

                remove_run(model.path)

    def _leave(self, model: Model) -> None:
        if not model.is_over:
            model.is_over, model.unheard = True, None
            try:
                model.watch.stop()
            except Exception as error:
                self._problem(f"the watch of {model.name} could not be left: {error!r}")

    def _optimizer_died(self, reference: Any) -> None:
        if self.is_here and not _is_ours_under_way():
            self._guarded("a model could not be let go", self.let_go)

    def let_go(self) -> None:
        """Leaves the models whose optimizers are gone, so that they can go too."""
        for model in self.models:
            if not model.is_over and model.is_abandoned:
                self._leave(model)
                if model.path is not None:  # else its rows are in the watch
                    model.watch = None


def _is_ours_under_way() -> bool:
    """Whether something of hookline's runs in this thread, other than what runs the script itself."""
    around = (OURS + "launching/", OURS + "cli/", OURS + "__main__")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OURS) and not file.startswith(around):
            return True
        frame = frame.f_back
    return False
