"""Gradients in compiled graphs: each place of each call has its own, told once, and replaced alone."""

import contextlib

import pytest
import torch
from torch import nn

import hookline
from hookline.recording.calls import loaded
from hookline.trees import map_leaves
from tests.support.compiled_networks import Network, by_hand, loss_of
from tests.support.models import Calls

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
X = torch.linspace(-1, 1, 6).reshape(2, 3)


def inside(model, compiler="aot_eager"):
    """The model inside of a graph, root included: what it returns leaves the graph."""
    return torch.compile(lambda *args: model(*args), backend=compiler, fullgraph=True)


def assert_alike(found, wanted, where):
    """Zeros may stand for None: a graph gets zeros for each of its outputs that nobody uses."""
    if found is None or wanted is None:
        one = wanted if found is None else found
        assert one is None or not one.any(), where
    else:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, msg=lambda text: f"{where}: {text}")


def assert_recorded(rec, wanted, edited=lambda site, what, place: None):
    for site, calls in wanted.items():
        assert len(rec[site].calls) == len(calls), site
        for number, (call, told) in enumerate(zip(rec[site].calls, calls, strict=True)):
            found = loaded(call._grads_in), loaded(call._grads_out)
            for what, grads, ours in zip(("grad_input", "grad_output"), told, found, strict=True):
                for place, grad in enumerate(grads):
                    change = edited(site, what, place)
                    grad = change(grad) if change is not None and grad is not None else grad
                    assert_alike(ours.get(place), grad, (site, number, what, place))


def run(ran, network):
    x = X.clone().requires_grad_()
    loss = loss_of(ran(x * 1))
    if isinstance(loss, torch.Tensor):
        loss.backward()
    return [x.grad, *(weight.grad for weight in network.parameters())]


NETWORKS = [*((seed, "aot_eager") for seed in range(24)), *((seed, "eager") for seed in range(24, 36))]
NETWORKS += [(seed, "inductor") for seed in range(36, 42)]


@pytest.mark.parametrize(("seed", "compiler"), NETWORKS)
def test_a_recording_of_a_random_network_has_the_gradients_by_hand(seed, compiler, graphs):
    wanted, totals = by_hand(Network(seed), X.clone().requires_grad_())
    network = Network(seed)
    with hookline.record(network, grads=True) as rec:
        grads = run(inside(network, compiler), network)
    assert_recorded(rec, wanted)
    for number, (found, total) in enumerate(zip(grads, totals, strict=True)):
        assert_alike(found, total, number)
    assert graphs() == (1, 0)


@pytest.mark.parametrize(("seed", "compiler"), NETWORKS)
def test_edits_of_a_random_network_replace_each_place_and_compose(seed, compiler, graphs):
    def change(site, what, place):
        # Every second site and kind; a hook on inputs is shown the positional arguments.
        if (len(site) + len(what) + seed) % 2 or (what == "grad_input" and place > 1):
            return None
        return lambda grad: grad * (place + 2) + grad.abs()

    def edit(site, what):
        def changed(grads):
            places = iter(range(99))

            def one(grad):
                place = next(places)
                if not isinstance(grad, torch.Tensor):
                    return grad
                return change(site, what, place)(grad)

            return map_leaves(one, grads, (torch.Tensor, type(None)))

        return changed

    wanted, totals = by_hand(Network(seed), X.clone().requires_grad_(), change)
    network = Network(seed)
    edits = {
        f"{site}:{what}": edit(site, what)
        for site in wanted
        for what in ("grad_input", "grad_output")
        if change(site, what, 0) is not None
    }
    with hookline.edit(network, edits), hookline.record(network, grads=True) as rec:
        grads = run(inside(network, compiler), network)
    assert_recorded(rec, wanted, change)
    for number, (found, total) in enumerate(zip(grads, totals, strict=True)):
        assert_alike(found, total, number)
    assert graphs() == (1, 0)


# Outputs of a graph that are views of its inputs, or of each other


def with_slice(x):
    h = x.sin()
    return h, h[:, :1]


LEAVING = {
    "an output three times": (lambda x: (lambda h: (h, h, h))(x * 1), [3, 5, 7], [15]),
    "two views of the input": (lambda x: (x.view(-1), x.t()), [3, 5], [8]),
    "a slice of the input": (lambda x: (x + 1, x[:, :1]), [3, 5], [3, 8]),
    "a slice of an output": (with_slice, [3, 5], [3, 8]),
    "an output twice": (lambda x: (lambda h: (h, h))(x * 1), [3, 5], [8]),
    "the input": (lambda x: (x,), [3], [3]),
}


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_the_graph_as_a_view_has_its_own_gradient(name, compiler):
    fn, outputs, inputs = LEAVING[name]
    model, seen = Calls(fn), []

    def backward():
        x = torch.zeros(2, 3, requires_grad=True)
        given = inside(model, compiler)(x * 1)
        sum((one * weight).sum() for one, weight in zip(given, (3, 5, 7), strict=False)).backward()
        assert x.grad.unique().tolist() == inputs

    with hookline.record(model, grads=True) as rec:
        backward()
    assert [grad.unique().tolist() for grad in rec[""].grad_output] == [[one] for one in outputs]
    assert rec[""].grad_input[0].unique().tolist() == inputs
    assert "is a copy while its gradient is heard" in rec.audit()[0].why
    with hookline.register_backward_hook(model, lambda m, gin, gout: seen.append((gin, gout))):
        backward()
    ((gin, gout),) = seen
    assert [grad.unique().tolist() for grad in gout] == [[one] for one in outputs]
    assert gin[0].unique().tolist() == inputs


def test_a_plain_output_is_no_copy_and_the_audit_is_silent():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
    graphs = []

    def look(graph, inputs):
        graphs.append(graph)
        return graph

    with hookline.record(model, grads=True) as rec:
        torch.compile(lambda x: model(x), backend=look, fullgraph=True)(X).sum().backward()
    targets = {str(node.target) for node in graphs[0].graph.nodes}
    assert not targets & {"clone", "view_as", "mul_", "hookline.copied"}
    assert [entry.why for entry in rec.audit()] == [None] * 4


# One tensor at several arguments


def test_self_attention_has_three_gradients():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2)
    x = torch.randn(3, 1, 4)
    zeros = [torch.zeros(3, 1, 4, requires_grad=True) for _ in range(3)]
    attention(*(x + zero for zero in zeros))[0].square().sum().backward()
    with hookline.record(attention, "", grads=True) as rec:
        inside(lambda x: attention(x, x, x))(x.clone().requires_grad_() * 1)[0].square().sum().backward()
    torch.testing.assert_close(list(rec[""].grad_input), [zero.grad for zero in zeros])


def test_a_hook_replaces_the_gradient_of_one_argument_alone():
    model, x = Calls(lambda a, b: a * 2 + b * 7), torch.ones(1, requires_grad=True)
    with hookline.register_backward_hook(model, lambda m, gin, gout: (gin[0] * 0, gin[1])):
        inside(lambda h: model(h, h))(x * 1).backward()
    assert x.grad.item() == 7


# Writing in place


class Kept(nn.Module):
    """Returns what it keeps, and is called twice."""

    def forward(self, x):
        self.h = x * 2
        return self.h


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_a_module_that_keeps_its_output_computes_what_it_computes_without_hooks(compiler):
    model = Kept()
    ran = inside(lambda x: (model(x), model(x + 1), model.h * 7), compiler)
    with hookline.record(model, "", grads=True) as rec:
        one, two, kept = ran(torch.ones(1, requires_grad=True) * 1)
        (one * 3 + two * 5 + kept).backward()
    assert [one.item(), two.item(), kept.item()] == [2, 4, 28]
    assert [call.grad_output.item() for call in rec[""].calls] == [3, 5]
    assert [call.grad_input[0].item() for call in rec[""].calls] == [6, 24]


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_an_output_that_is_written_to_later(compiler):
    model = Calls(lambda x: (lambda h: (h, h + 1))(x * 1))

    def forward(x):
        h, more = model(x)
        return h.mul_(10) + more

    x = torch.ones(1, requires_grad=True)
    with hookline.record(model, "", grads=True) as rec:
        inside(forward, compiler)(x * 1).backward()
    assert [grad.item() for grad in rec[""].grad_output] == [10, 1]
    assert rec[""].grad_input[0].item() == 11 == x.grad.item()


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_an_argument_that_the_module_writes_to(compiler):
    model = Calls(lambda x: x.mul_(2) * 3)

    def forward(x):
        h = x * 1
        before = h * 5
        return before + model(h) + h * 7

    x = torch.ones(1, requires_grad=True)
    with hookline.record(model, "", grads=True) as rec:
        inside(forward, compiler)(x * 1).backward()
    # What the module wrote is used behind it too, and is no output of it: the gradient passes the same value.
    assert x.grad.item() == 25 and rec[""].grad_output.item() == 1
    assert rec[""].grad_input[0] is None and "can't be told" in rec.audit()[0].why


def test_replacing_what_cant_be_told_apart_is_refused():
    model = Calls(lambda x: x.mul_(2) * 3)

    def forward(x):
        h = x * 1
        return h * 5 + model(h) + h * 7

    with (
        hookline.register_backward_hook(model, lambda m, gin, gout: (gin[0] * 0,)),
        pytest.raises(hookline.Unsupported, match="written to in place while the same memory is used elsewhere"),
    ):
        inside(forward)(torch.ones(1, requires_grad=True) * 1)


# Compiled autograd


@contextlib.contextmanager
def compiled_autograd():
    from torch._dynamo import compiled_autograd as autograd

    with autograd._enable(torch.compile(backend="aot_eager")):
        yield


def test_compiled_autograd_leaves_recordings_of_eager_models_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with hookline.record(model, grads=True) as wanted:
        model(X).sum().backward()
    with compiled_autograd(), hookline.record(model, grads=True) as rec:
        model(X).sum().backward()
    for name in wanted.names:
        torch.testing.assert_close(rec[name].grad_output, wanted[name].grad_output)


def test_compiled_autograd_would_drop_what_looks_and_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with (
        compiled_autograd(),
        hookline.record(model, grads=True),
        pytest.raises(hookline.Unsupported, match=r"gradients of '.*' in compiled code under compiled autograd"),
    ):
        inside(model)(X)
