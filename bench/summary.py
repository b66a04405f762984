"""Row summary: what a model is, beside torchinfo; one forward of the model for scale.

Peak memory is told beside each timing: by how much the process grew while it ran. The first summary
in a process also loads what torch needs for fake tensors, 1.4 s; the warm-up rounds have paid that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.models import gpt2, resnet50

NOTE = (
    "Goals are for hookline.summary, which has shapes, parameters, MACs and what a backward keeps of every call. "
    "'Peak' is how much the process grew during one run."
)


def tables() -> Iterator[Table]:
    model, x = resnet50()
    yield _table("Summary of ResNet-50 (1 x 3 x 224 x 224)", model, x, 150)
    if find_spec("transformers") is not None:
        model, x = gpt2()
        yield _table("Summary of GPT-2 (64 tokens)", model, x, 250)
        model, x = llama_7b()
        yield _table("Summary of Llama-7B on the meta device (128 tokens)", model, x, 1000)


def llama_7b() -> tuple[nn.Module, torch.Tensor]:
    """Llama-7B without memory, and 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(use_cache=False)).eval()
        return model, torch.zeros(1, 128, dtype=torch.int64)


def _table(title: str, model: nn.Module, x: torch.Tensor, milliseconds: float) -> Table:
    goal = Goal(milliseconds, "unit", text=f"<= {milliseconds:g} ms, <= 20 MB")
    cases = [
        _case("one forward", partial(_forward, model, x), lambda result: ""),
        _case("torchinfo", partial(_torchinfo, model, x), _torchinfo_says, needs="torchinfo"),
        _case("hookline.summary", partial(hookline.summary, model, x), _hookline_says, goal=goal),
        _case("hookline.trace", partial(hookline.trace, model, x), lambda result: f"{len(result)} calls"),
    ]
    return Table(title, cases, absolute=True, rounds=7, note=NOTE)


def _case(name: str, run: Callable[[], Any], says: Callable[[Any], str], **more: Any) -> Case:
    def remark(result: Any) -> str:
        return f"{says(result)}, peak {_growth(run):.0f} MB".removeprefix(", ")

    return Case(name, run, remark=remark, **more)


def _forward(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(x)


def _torchinfo(model: nn.Module, x: torch.Tensor) -> Any:
    import torchinfo

    return torchinfo.summary(model, input_data=x, verbose=0, device=x.device)


def _torchinfo_says(found: Any) -> str:
    return f"{found.total_params:,} parameters, {found.total_mult_adds / 1e9:.4g} GMACs"


def _hookline_says(found: Any) -> str:
    return f"{found.total_params:,} parameters, {found.total_macs / 1e9:.4g} GMACs"


def _growth(run: Callable[[], Any]) -> float:
    """Megabytes by which the peak of the process's memory exceeds what it has now, over one run (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
        run()
        return _status("VmHWM") - before
    except OSError:
        return float("nan")


def _status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(found[1]) / 1e3 if found is not None else float("nan")
