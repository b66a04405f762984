"""The wiring of a model that is compiled after the watch has begun: its looks cost no step."""

import pytest
import torch
from torch import nn

import hookline


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_that_is_compiled_inside_of_the_block(fresh_compiler, in_place):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        called = model if in_place else torch.compile(model, backend="aot_eager")
        if in_place:
            model.compile(backend="aot_eager")
        for _ in range(4):
            optimizer.zero_grad()
            called(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert [row["step"] for row in w.rows("2", kind="grad_output")] == [0, 1, 2, 3]
    assert [one.rule for one in w.diagnose() if one.severity != "note"] == []
