"""What of torch is spared by interrupts, and what has to be as it was afterwards."""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any

import torch
import torch.optim.optimizer as optimizers
from torch.autograd.variable import Variable
from torch.nn.utils import clip_grad
from torch.utils.hooks import RemovableHandle

from hookline.backends.changing import changing
from hookline.backends.torch.unseen import unseen_threads
from hookline.hooks import weights
from hookline.hooks.session import opened
from hookline.testing.interrupting import SOURCE


def ends_the_process(frame: FrameType | None) -> bool:
    """Whether torch asks a dispatch mode for a device here, where C++ lets no exception pass, whosever it is."""
    while frame is not None and frame.f_code.co_filename.startswith(SOURCE):
        if frame.f_code.co_name == "__torch_dispatch__":
            return frame.f_locals["func"] is torch.ops.prim.device.default
        frame = frame.f_back
    return False


def state() -> dict[str, Any]:
    """What of torch and of hookline is one for the process, and is to be as it was."""
    # After an error, torch keeps what was left of a backward until the next one begins.
    torch.ones(1, requires_grad=True).sum().backward()
    return {
        "engine": type(Variable._execution_engine),
        "registration": RemovableHandle.__init__,
        "backward": (torch.autograd.backward, torch.autograd.grad),
        "clipping": (
            clip_grad._clip_grads_with_norm_,
            clip_grad.clip_grad_value_,
            torch.nn.utils.clip_grad_value_,
        ),
        "scaler": (torch.amp.GradScaler.scale, torch.amp.GradScaler.step),
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
