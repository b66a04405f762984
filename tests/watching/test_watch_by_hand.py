"""What a trainer may tell a watch: steps that no torch optimizer does, forwards that don't call the model."""

import torch
from torch import nn

from hookline.watching.watch import watch


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_parts_called_without_the_model():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, "0", grads=False, params=False) as w:
        for _ in range(2):
            model[0](torch.ones(5, 3)).sum().backward()
            model[0](torch.ones(5, 3)).sum().backward()
            optimizer.step()
        model.eval()
        model[0](torch.ones(7, 3))
    assert [(row["step"], row["call"], row["mode"], row["count"]) for row in w.rows()] == [
        (0, 0, "train", 20),
        (0, 1, "train", 20),
        (1, 0, "train", 20),
        (1, 1, "train", 20),
        (2, 0, "eval", 28),
    ]


def test_a_new_forward_is_the_same_call_again():
    model = small()
    with watch(model, "0", grads=False, params=False) as w:
        for _ in range(3):
            w.new_forward()
            model[0](torch.ones(5, 3))
    assert [(row["call"], row["count"]) for row in w.rows()] == [(0, 60)]


def test_steps_told_by_hand():
    model = small()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    with watch(model, every=2) as w:
        w.steps_by_hand()
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(5, 3)).sum().backward()
            w.before_step()
            optimizer.step()  # it is torch's, and not heard any more: each step would count twice
            w.after_step()
    assert sorted({row["step"] for row in w.rows()}) == [0, 2]
    gradient, update = w.rows("2.bias", kind="param_grad", step=0), w.rows("2.bias", kind="update", step=0)
    assert gradient[0]["mean"] == 5.0 and update[0]["mean"] == -2.5


def test_gradients_and_parameters_given():
    model = small()
    shown = {"mine": model[0].bias, "frozen": model[2].bias}
    with watch(model, "0", params=lambda: shown) as w:
        w.steps_by_hand()
        model(torch.ones(5, 3)).sum().backward()
        w.before_step({id(model[0].bias): torch.full((4,), 7.0)})
        w.after_step()
    assert [row["site"] for row in w.rows(kind="param")] == ["mine", "frozen"]
    assert [(row["site"], row["mean"]) for row in w.rows(kind="param_grad")] == [("mine", 7.0)]


def test_modules_given():
    model = small()
    with watch(model, "first", modules=[("", model), ("first", model[0])], params=False) as w:
        model(torch.ones(5, 3)).sum().backward()
    assert {(row["site"], row["kind"]) for row in w.rows()} == {("first", "output"), ("first", "grad_output")}
