"""An interrupt at a line of hookline, any of them, and what has to be as it was afterwards."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.optim.optimizer as optimizers
from torch.autograd.variable import Variable
from torch.utils.hooks import RemovableHandle

import hookline
from hookline.backends.changing import changing
from hookline.backends.torch.attribution import unseen_threads
from hookline.hooks import weights
from hookline.hooks.session import opened

SOURCE = str(Path(hookline.__file__).parent)
TESTING = str(Path(SOURCE, "testing"))

Place = tuple[str, str, int]
"""A line, and whether it was run when a block was entered, within it, or when it was left."""


class Action:
    """What is interrupted: something that is attached, used and taken off again."""

    def __init__(self, block: Callable[[Any], AbstractContextManager[Any]], use: Callable[[Any], Any]) -> None:
        self._block, self._use = block, use
        self.phase = ""

    def __call__(self, model: Any) -> None:
        self.phase = "enter"
        with self._block(model):
            self.phase = "use"
            self._use(model)
            self.phase = "leave"
        self.phase = ""

    def lines(self, model: Any) -> list[Place]:
        """Every line of hookline that it runs, as often as it does."""
        found: list[Place] = []

        def at_line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line" and not ends_the_process(frame):
                found.append((self.phase, frame.f_code.co_filename.removeprefix(SOURCE), frame.f_lineno))
            return at_line

        _traced(at_line, lambda: self(model))
        return found

    def cut(self, model: Any, number: int) -> None:
        """Runs it with a KeyboardInterrupt at that line, counted from 0."""
        cut(number + 1, lambda: self(model))


def cut(number: int, action: Callable[[], Any]) -> bool:
    """Runs `action` with a KeyboardInterrupt at that line of hookline, counted from 1; whether it came out."""
    left = number

    def at_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "line" and not ends_the_process(frame):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_line

    try:
        _traced(at_line, action)
    except KeyboardInterrupt:
        return True
    return False


def ends_the_process(frame: FrameType | None) -> bool:
    """Whether torch asks a dispatch mode for a device here, where C++ lets no exception pass, whosever it is."""
    while frame is not None and frame.f_code.co_filename.startswith(SOURCE):
        if frame.f_code.co_name == "__torch_dispatch__":
            return frame.f_locals["func"] is torch.ops.prim.device.default
        frame = frame.f_back
    return False


def _traced(at_line: Callable[..., Any], action: Callable[[], Any]) -> None:
    def at_call(frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        return at_line if file.startswith(SOURCE) and not file.startswith(TESTING) else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        action()
    finally:
        sys.settrace(before)


def state() -> dict[str, Any]:
    """What of torch and of hookline is one for the process, and is to be as it was."""
    # After an error, torch keeps what was left of a backward until the next one begins.
    torch.ones(1, requires_grad=True).sum().backward()
    return {
        "engine": type(Variable._execution_engine),
        "registration": RemovableHandle.__init__,
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "optimizer hooks": [
            list(hooks)
            for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
        ],
        "saved-tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "sessions": list(opened()),
        "weights": list(weights._stacks),
        "unseen": list(unseen_threads),
        "locks": [is_free(changing), is_free(weights._alone)],
        "threads": [thread.name for thread in threading.enumerate() if thread.name.startswith("hookline")],
    }


def is_free(lock: Any) -> bool:
    """Whether another thread could have it now."""
    got: list[bool] = []

    def take() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]
