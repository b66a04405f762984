"""Row summary: what a model is, beside torchinfo; one forward of the model for scale.

Peak memory is told beside each timing: by how much a fresh process grows in its first run on the
model, after one on a model of one layer. That one loads what torch needs for fake tensors, 1.4 s.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.models import gpt2, resnet50

Run = Callable[[nn.Module, torch.Tensor], Any]
Build = Callable[[], tuple[nn.Module, torch.Tensor]]
NOTE = (
    "Goals are for hookline.summary, which has shapes, parameters, MACs and what a backward keeps of every call. "
    "'Peak' is how much a fresh process grows in its first run."
)


def tables() -> Iterator[Table]:
    yield _table("Summary of ResNet-50 (1 x 3 x 224 x 224)", resnet50, 150)
    if find_spec("transformers") is not None:
        yield _table("Summary of GPT-2 (64 tokens)", gpt2, 250)
        yield _table("Summary of Llama-7B on the meta device (128 tokens)", llama_7b, 1000)


def llama_7b() -> tuple[nn.Module, torch.Tensor]:
    """Llama-7B without memory, and 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(use_cache=False)).eval()
        return model, torch.zeros(1, 128, dtype=torch.int64)


def _table(title: str, build: Build, milliseconds: float) -> Table:
    model, x = build()
    goal = Goal(milliseconds, "unit", text=f"<= {milliseconds:g} ms, <= 20 MB")

    def case(name: str, run: Run, says: Callable[[Any], str], **more: Any) -> Case:
        def remark(result: Any) -> str:
            return f"{says(result)}, peak {in_own_process(run, build):.0f} MB"

        return Case(name, partial(run, model, x), remark=remark, **more)

    cases = [
        case("hookline.summary", hookline.summary, _hookline_says, goal=goal),
        case("torchinfo", torchinfo_summary, _torchinfo_says, needs="torchinfo"),
        case("hookline.trace", hookline.trace, lambda result: f"{len(result)} calls"),
        Case("one forward, for scale", partial(_forward, model, x)),
    ]
    return Table(title, cases, absolute=True, rounds=7, note=NOTE)


def _forward(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(x)


def torchinfo_summary(model: nn.Module, x: torch.Tensor) -> Any:
    import torchinfo

    return torchinfo.summary(model, input_data=x, verbose=0, device=x.device)


def _torchinfo_says(found: Any) -> str:
    return f"{found.total_params:,} parameters, {found.total_mult_adds / 1e9:.4g} GMACs"


def _hookline_says(found: Any) -> str:
    return f"{found.total_params:,} parameters, {found.total_macs / 1e9:.4g} GMACs"


def in_own_process(run: Run, build: Build) -> float:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(growth, run, build).result()


def growth(run: Run, build: Build) -> float:
    """The same, on one thread."""
    torch.set_num_threads(1)
    return growth_here(run, build)


def growth_here(run: Run, build: Build) -> float:
    """Megabytes by which this process's peak exceeds what it had before the run (Linux)."""
    model, x = build()
    run(nn.Sequential(nn.Linear(2, 2)), torch.zeros(1, 2))
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = status("VmRSS")
        run(model, x)
        return status("VmHWM") - before
    except OSError:
        return float("nan")


def status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(found[1]) / 1e3 if found is not None else float("nan")
