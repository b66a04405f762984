"""`hookline.watching()`: what trains inside is found, by whatever sign, and torch is as it was afterwards."""

import gc
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn

import hookline
from hookline.errors import InvalidArgument
from hookline.launching.models import snake


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def places():
    return (
        torch.optim.Optimizer.__init__,
        torch.optim.Optimizer.add_param_group,
        torch.autograd.backward,
        nn.Module.__call__,
        list(sys.meta_path),
    )


@pytest.fixture(autouse=True)
def _as_before():
    before = places()
    yield
    assert places() == before


def test_a_model_that_is_built_inside():
    with hookline.watching(every=2) as w:
        net = small()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 4)
    assert list(w.watches) == ["net"] and w.watches["net"].steps == [0, 2]
    assert hookline.installed(net) == []
    assert w.verdict.startswith("net (Sequential): ")


def test_a_model_whose_optimizer_was_there_before():
    net = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with hookline.watching() as w:
        train(net, optimizer)
    assert w.watches["net"].steps == [0, 1]


def test_an_attribute_names_a_model():
    class Task:
        def __init__(self):
            self._actor = small()
            self.optimizer = torch.optim.SGD(self._actor.parameters(), lr=0.1)

    with hookline.watching() as w:
        task = Task()
        train(task._actor, task.optimizer)
    assert list(w.watches) == ["actor"]


def test_models_of_one_name_are_numbered():
    def one():
        net = small()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, optimizer)
        return net, optimizer

    with hookline.watching() as w:
        kept = one(), one()
    assert list(w.watches) == ["net", "net_2"] and kept


def test_names_of_classes():
    assert [snake(name) for name in ("Net", "ResNet18", "MLPMixer", "_A")] == [
        "net",
        "res_net18",
        "mlp_mixer",
        "a",
    ]


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_a_model_is_named_and_watched_without_its_wrapper(wrap):
    with hookline.watching() as w:
        wrapped = wrap(small())
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        train(wrapped, optimizer)
    (watch,) = w.watches.values()
    assert list(w.watches) == ["wrapped"] and "0" in watch.sites and "module.0" not in watch.sites


def test_two_models_and_a_part_of_one():
    with hookline.watching() as w:
        left, right = small(), small()
        first = torch.optim.SGD(left[2].parameters(), lr=0.1)  # the head alone: the model is its whole tree
        second = torch.optim.SGD(right.parameters(), lr=0.1)
        train(left, first)
        train(right, second, 3)
    assert {name: watch.steps for name, watch in w.watches.items()} == {"left": [0, 1], "right": [0, 1, 2]}


def test_groups_that_are_added_later():
    with hookline.watching() as w:
        net, other = small(), small()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.add_param_group({"params": other.parameters()})
        assert list(w.watches) == ["net", "other"]


def test_an_optimizer_for_each_parameter_is_one_model():
    with hookline.watching() as w:
        net = small()
        optimizers = [torch.optim.SGD([one], lr=0.1) for one in net.parameters()]
        for _ in range(2):
            net(torch.ones(2, 3)).sum().backward()
            for one in optimizers:
                one.step()
    assert w.watches["net"].steps == [0, 1]


def test_an_optimizer_of_one_s_own():
    with hookline.watching() as w:
        net = small()
        for step in range(4):
            net.zero_grad()
            net(torch.randn(2, 3)).sum().backward()
            if step % 2:  # two backwards to a step
                with torch.no_grad():
                    for one in net.parameters():
                        one -= 0.1 * one.grad
        net(torch.randn(2, 3))
    watch = w.watches["net"]
    assert watch.steps == [0, 1, 2]
    assert len(watch.rows("0.weight", kind="update")) == 2


def test_forwards_alone():
    with hookline.watching() as w:
        net = small().eval()
        nn.ReLU()(torch.ones(1))  # without parameters it is no model
        with torch.no_grad():
            net(torch.ones(2, 3))
            net(torch.ones(2, 3))
    assert w.watches["net"].steps == [0, 1]


def test_what_was_only_called_goes_when_something_is_trained(tmp_path):
    with hookline.watching(to=tmp_path / "run") as w:
        extractor, head = small(), nn.Linear(1, 1)
        x = extractor(torch.ones(2, 3)).detach()
        assert list(w.watches) == ["extractor"]
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(2):
            head(x).sum().backward()
            optimizer.step()
        assert list(w.watches) == ["head"] and hookline.installed(extractor) == []
    assert hookline.open_run(tmp_path / "run").meta["model"] == "Linear"


def test_runs_of_several_models_are_in_one_folder(tmp_path):
    with hookline.watching(to=tmp_path / "run"):
        first, second = small(), small()
        optimizers = torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)
        train(first, optimizers[0])
        train(second, optimizers[1], 3)
    assert hookline.open_run(tmp_path / "run").steps == [0, 1]
    assert hookline.open_run(tmp_path / "run" / "second").steps == [0, 1, 2]


def test_a_model_that_was_let_go_is_freed(tmp_path):
    def inner():
        net = small()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        return weakref.ref(net)

    with hookline.watching(to=tmp_path / "run") as w:
        gc.disable()
        try:
            assert inner()() is None
        finally:
            gc.enable()
        again = small()
        optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
        train(again, optimizer)
        assert list(w.watches) == ["again"]


def test_a_variable_that_is_deleted_is_not_kept_by_the_search_for_names(tmp_path):
    def inner():
        big, net = torch.ones(3), small()
        there = weakref.ref(big)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        del big
        assert there() is None
        train(net, optimizer)

    with hookline.watching(to=tmp_path / "run"):
        inner()


NOTHING = """
import hookline, torch
with hookline.watching() as w:
    pass
print(w.verdict)
with hookline.watching() as w:
    loose = torch.ones(2, requires_grad=True)
    torch.optim.SGD([loose], lr=0.1)
print(w.verdict)
with hookline.watching() as w:
    loose.sum().backward()
print(w.verdict)
"""


def test_nothing_is_said_with_a_reason():
    # In a process of its own: optimizers that other tests have left behind would be found.
    done = subprocess.run([sys.executable, "-c", NOTHING], capture_output=True, text=True, check=True)
    called, made, reached = done.stdout.splitlines()
    assert "no module was called" in called
    assert "in no module" in made
    assert "it reached no parameter of a module" in reached


def test_what_fails_with_us_is_told_and_raises_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("hookline.launching.attaching.watch", lambda *args, **options: 1 / 0)
    with hookline.watching() as w, warnings.catch_warnings():
        warnings.simplefilter("error")
        net = small()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
    assert "ZeroDivisionError" in w.verdict


def test_an_error_in_making_an_optimizer_is_the_script_s():
    with hookline.watching() as w, pytest.raises(ValueError, match="Invalid learning rate"):
        torch.optim.SGD(small().parameters(), lr=-1.0)
    assert w.watches == {}


def test_bad_options():
    with pytest.raises(InvalidArgument, match="that is for `watch`"):
        hookline.watching(model=small())
    with pytest.raises(InvalidArgument, match="fail_on='bad'"):
        hookline.Script(__file__, fail_on="bad")
