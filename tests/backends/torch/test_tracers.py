"""A hooked model that is traced gives the graph of the plain model, or an error that names hookline."""

import re

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from hookline import Unsupported, edit, record, register_op_hook, skip, watch

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act = nn.Linear(3, 3), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.fc(x)) + x


def net():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(3, 2))


X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def jit(model):
    traced = torch.jit.trace(model, X)
    assert torch.equal(traced(X), net()(X))
    return re.sub(r"#.*|___torch_mangle_\d+\.", "", str(traced.inlined_graph))


def frozen(model):
    graph = torch.jit.freeze(torch.jit.trace(model.eval(), X)).inlined_graph
    return re.sub(r"#.*|___torch_mangle_\d+\.", "", str(graph))


def aot(model):
    from functorch.compile import aot_module, make_boxed_func

    graphs = []
    compile = lambda graph, inputs: graphs.append(graph.code) or make_boxed_func(graph)  # noqa: E731
    aot_module(model, compile)(X.clone()).sum().backward()
    return graphs


def fake(model):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return str(model(mode.from_tensor(X)))


TRACERS = {
    "jit.trace": jit,
    "jit.freeze": frozen,
    "make_fx": lambda model: make_fx(model)(X).code,
    "make_fx without gradients": lambda model: torch.no_grad()(make_fx(model))(X).code,
    "make_fx on fakes": lambda model: make_fx(model, tracing_mode="symbolic", _allow_non_fake_inputs=True)(X).code,
    "make_fx above autograd": lambda model: make_fx(model, pre_dispatch=True)(X).code,
    "make_fx of vmap": lambda model: make_fx(torch.func.vmap(model))(X).code,
    "make_fx of grad": lambda model: make_fx(torch.func.grad(lambda x: model(x).sum()))(X).code,
    "torch.fx": lambda model: torch.fx.symbolic_trace(model).code,
    "aot": aot,
    "fakes": fake,
}
WITHOUT_NUMBERS = {"make_fx on fakes", "torch.fx", "aot", "fakes"}

VERBS = {
    "record": lambda model: record(model, inputs=True),
    "record others": lambda model: record(model, dtype="float64", reduce=lambda t: t * 2),
    "record operators": lambda model: record(model, ops=True),
    "watch": lambda model: watch(model, inputs=True, channels=1, stats=["p99"], grads=False),
    "record gradients": lambda model: record(model, inputs=True, grads=True),
    "watch gradients": lambda model: watch(model, inputs=True),
    "edit": lambda model: edit(model, {"0": lambda out: out}),
}


@pytest.mark.filterwarnings(
    "ignore:watching .* failed and stops. Unsupported:UserWarning"
)  # fakes have no numbers
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("verb", VERBS)
def test_the_graph_is_that_of_the_plain_model(tracer, verb):
    run = TRACERS[tracer]
    model = net()
    with VERBS[verb](model):
        got = run(model)
    assert got == run(net())


@pytest.mark.parametrize("tracer", TRACERS)
def test_what_passed_is_recorded_or_told(tracer):
    model = net()
    with record(model) as rec:
        TRACERS[tracer](model)
    why = rec.audit()["0"].why
    if tracer in WITHOUT_NUMBERS:
        assert why is not None and ("fake tensors" in why or "torch.fx was tracing" in why)
    else:
        assert why is None and torch.equal(rec["0"].output, net()[0](X))


@pytest.mark.parametrize(
    "place",
    [
        lambda model: record(model),
        lambda model: watch(model, inputs=True),
        lambda model: edit(model, {"0": lambda out: out}),
        lambda model: edit(model, {"0": skip}),
        lambda model: register_op_hook(model, lambda op, *rest: None),
    ],
    ids=["record", "watch", "edit", "skip", "op hook"],
)
def test_a_script_of_a_hooked_model_is_refused_with_the_reason(place):
    model = net()
    with place(model), pytest.raises(Unsupported, match=r"(?s)hookline's .*leave the block"):
        torch.jit.script(model)
    torch.jit.script(model)


class Operations(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        self.seen.append(str(fn))
        return fn(*args, **(kwargs or {}))


@pytest.mark.parametrize("verb", VERBS)
def test_dispatch_modes_of_others_see_the_model_alone(verb):
    counts = []
    for hooked in (True, False):
        model = net()
        with Operations() as mode:
            if hooked:
                with VERBS[verb](model):
                    model(X).sum().backward()
            else:
                model(X).sum().backward()
        counts.append(mode.seen)
    assert counts[0] == counts[1]


def test_a_default_device_does_not_decide_where_copies_are():
    model = nn.Sequential(nn.ReLU())
    x = torch.randn(400, 400)
    with record(model) as rec, torch.device("meta"):
        model(x)
    assert torch.equal(rec["0"].output, x.relu())
