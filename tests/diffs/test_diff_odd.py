"""hookline.diff of models that are unlike the usual ones, and of what happens while it runs."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.testing import untouched


def chain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def scaled(model, name, factor=1.1):
    """A copy with one weight that is another."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        dict(twin.named_parameters())[name].mul_(factor)
    return twin


class Recursive(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, depth=3):
        return self.layer(x) if depth == 0 else self(self.layer(x), depth - 1)


class Direct(nn.Module):
    """Calls a part's forward, which no hook sees."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer.forward(x)


class Threaded(nn.Module):
    """Runs its parts in threads of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        outputs = {}

        def run(part):
            with torch.no_grad():
                outputs[part] = part(x)

        threads = [threading.Thread(target=run, args=(part,)) for part in (self.a, self.b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outputs[self.a] + outputs[self.b]


class Manifold(nn.Module):
    """Gives structures, numbers of all kinds, and nothing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x), None, {"mask": x > 0, "complex": torch.complex(x, x), "empty": x[:0], "number": 3}


class Masked(nn.Module):
    """Fills a mask with the smallest number of the dtype."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop = nn.Linear(4, 4), nn.Identity()

    def forward(self, x):
        h = self.layer(x)
        mask = torch.zeros_like(h).masked_fill(torch.eye(4)[: len(h)].bool(), torch.finfo(h.dtype).min)
        return (h + self.drop(mask)).softmax(-1)


class Cached(nn.Module):
    """Fills a dict of its caller's."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.keep = Keeper()

    def forward(self, x):
        cache: dict = {}
        for row in x:
            out = self.keep(self.layer(row), cache)
        return out


class Keeper(nn.Module):
    def forward(self, x, cache):
        cache["sum"] = cache.get("sum", 0) + x
        return cache["sum"] * 2


X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.mark.parametrize(
    ("model", "weight", "site", "cause"),
    [
        (Recursive(), "layer.weight", "layer", "weights"),
        (Direct(), "layer.weight", "", "weights"),
        (Threaded(), "b.0.weight", "b.0", "weights"),
        (Manifold(), "layer.bias", "layer", "weights"),
        (Masked(), "layer.weight", "layer", "weights"),
        (Cached(), "layer.weight", "layer", "weights"),
        (nn.LSTM(4, 6, 2), "weight_hh_l1", "", "weights"),
        (
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            "parametrizations.weight.original0",
            "parametrizations.weight",
            "weights",
        ),
        (nn.DataParallel(chain()), "module.2.weight", "module.2", "weights"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_same_and_different(model, weight, site, cause):
    with untouched(model):
        assert not hookline.diff(model, copy.deepcopy(model), X)
    d = hookline.diff(model, scaled(model, weight), X)
    assert (d.first.site, d.first.born, d.causes[0].name) == (site, True, cause), str(d)


def test_numbers_that_are_handed_over_are_the_callers():
    class Pooled(nn.Module):
        def forward(self, x, width=2, mode="mean"):
            return x.unfold(-1, width, 1).mean(-1)[..., :3]

    class Caller(nn.Module):
        def __init__(self, *given, **named):
            super().__init__()
            self.pool, self._given, self._named = Pooled(), given, named

        def forward(self, x):
            return self.pool(x, *self._given, **self._named) * 2

    d = hookline.diff(Caller(2), Caller(1), X)
    assert d.first.site == "" and d.causes[0].name == "code" and "A hands it 2, B 1" in d.causes[0].sentence
    assert not hookline.diff(Caller(2), Caller(width=2), X)


def test_structures_that_lead_back_to_themselves():
    class Linked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.pick = nn.Linear(4, 4), Picked()

        def forward(self, x):
            ring = [self.layer(x)]
            ring.append(ring)
            return self.pick(ring)["first"]

    class Picked(nn.Module):
        def forward(self, ring):
            return {"first": ring[1][0] * 2, "ring": ring}

    model = Linked()
    assert not hookline.diff(model, copy.deepcopy(model), X)
    assert hookline.diff(model, scaled(model, "layer.weight"), X).first.site == "layer"


def test_a_mask_of_the_smallest_numbers_is_the_same_in_other_dtypes():
    model = Masked()
    assert not hookline.diff((model, X), (copy.deepcopy(model).double(), X.double()))
    assert not hookline.diff((model, X), (copy.deepcopy(model).bfloat16(), X.bfloat16()))


def test_attention_whose_parts_are_never_called():
    a = nn.MultiheadAttention(8, 2, batch_first=True)
    q = torch.randn(2, 5, 8)
    d = hookline.diff((a, (q, q, q)), (scaled(a, "out_proj.weight"), (q, q, q)))
    assert d.first.site == "" and "out_proj.weight" in d.causes[0].sentence


def test_checkpoints_and_sparse_gradients():
    class Saving(nn.Module):
        def __init__(self, saves):
            super().__init__()
            self.a, self.b, self._saves = nn.Linear(4, 4), nn.Linear(4, 4), saves

        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=False) if self._saves else self.a(x))

    one, two = Saving(False), Saving(True)
    two.load_state_dict(one.state_dict())
    assert not hookline.diff(one, two, X.clone().requires_grad_(), loss=lambda out: out.sum())
    words = nn.Embedding(10, 4, sparse=True)
    ids = torch.tensor([1, 2])
    assert not hookline.diff(words, copy.deepcopy(words), ids, loss=lambda out: out.sum())


def test_a_frozen_part_has_no_gradient():
    a = chain()
    b = copy.deepcopy(a)
    b[2].requires_grad_(False)
    d = hookline.diff(a, b, X, loss=lambda out: out.sum())
    assert d.first.kind == "param_grad" and d.first.site.startswith("2.") and d.causes[0].name == "setting"
    b.requires_grad_(False)
    with pytest.raises(hookline.InvalidArgument, match="nothing that the loss depends on needs a gradient"):
        hookline.diff(b, copy.deepcopy(b), X, loss=lambda out: out.sum())


def test_what_a_model_raises_is_the_models_own_and_nothing_is_left():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.BatchNorm1d(4)
            self._calls = 0

        def forward(self, x):
            self._calls += 1
            raise KeyboardInterrupt if self._calls else ValueError

    model = Fails()
    with untouched(model), pytest.raises(KeyboardInterrupt):
        hookline.diff(model, model, X)


@pytest.mark.parametrize("number", range(6))
def test_an_interrupt_in_any_run_leaves_both_models_as_they_were(number):
    a = chain()
    b = scaled(a, "0.weight")
    runs = []

    def interrupting(module, args):
        runs.append(module)
        if len(runs) > number:
            raise KeyboardInterrupt

    hooks = [model.register_forward_pre_hook(interrupting) for model in (a, b)]
    with untouched(a), untouched(b), pytest.raises(KeyboardInterrupt):
        hookline.diff(a, b, X)
    assert [hookline.installed(model) for model in (a, b)] == [[], []]
    for hook in hooks:
        hook.remove()


def test_other_recordings_and_other_threads_do_not_see_it():
    a = chain()
    b = scaled(a, "2.weight")
    stop, outputs = threading.Event(), []

    def serve():
        while not stop.is_set():
            outputs.append(a(X))

    wanted = a(X)
    thread = threading.Thread(target=serve)
    with hookline.record(a) as rec:
        a(X)
        thread.start()
        d = hookline.diff(a, b, X)
        stop.set()
        thread.join()
    assert d  # calls of the other thread are recorded too, so what is first may be another call
    assert all(torch.equal(one, wanted) for one in outputs)
    assert torch.equal(rec["0"].calls[0].output, a[0](X))


def test_inference_mode_and_autocast():
    a = chain()
    with torch.inference_mode():
        assert not hookline.diff(a, copy.deepcopy(a), X)

    class Cast(nn.Module):
        def __init__(self, model, on):
            super().__init__()
            self.model, self._on = model, on

        def forward(self, x):
            with torch.autocast("cpu", enabled=self._on):
                return self.model(x)

    d = hookline.diff(Cast(a, False), Cast(copy.deepcopy(a), True), X)
    assert not d and {one.verdict for one in d.unmatched} == {"dtype"}


def test_recordings_from_files_are_compared_without_a_run(tmp_path):
    a = chain()
    b = scaled(a, "2.weight")
    for name, model in (("a", a), ("b", b), ("again", a)):
        with hookline.record(model, inputs=True) as rec:
            model(X)
        rec.save(tmp_path / f"{name}.safetensors")
    d = hookline.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (d.first.site, d.first.born, d.first.estimated) == ("2", True, True)
    assert not hookline.diff(tmp_path / "a.safetensors", tmp_path / "again.safetensors")
    with pytest.raises(hookline.RunError, match="there is no run in"):
        hookline.diff(tmp_path / "a.safetensors", tmp_path)
    with hookline.watch(a, to=tmp_path / "run"):
        a(X)
    with pytest.raises(hookline.InvalidArgument, match="expected two of a kind, got a recording and a run"):
        hookline.diff(tmp_path / "a.safetensors", tmp_path / "run")


def test_recordings_with_nothing_in_common(tmp_path):
    a, b = chain(), nn.Sequential()
    b.add_module("other", nn.Flatten(0))
    with hookline.record(a, ["0", "2"]) as one:
        a(X)
    with hookline.record(b, "other") as two:
        b(torch.ones(3, 5, dtype=torch.int64))
    with pytest.raises(hookline.InvalidArgument, match=r"no site in common.*map="):
        hookline.diff(one, two)


class Mapped(nn.Module):
    """Calls its parts inside of a transform of torch.func."""

    def __init__(self, transform):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))
        self.transform = transform

    def forward(self, x):
        return self.transform(self.parts)(x)


TRANSFORMS = {
    "vmap": (torch.func.vmap, (3, 4)),
    "jacrev": (torch.func.jacrev, (4,)),
    "vmap of grad": (lambda fn: torch.func.vmap(torch.func.grad(lambda x: fn(x).sum())), (3, 4)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_calls_inside_of_a_transform_are_compared_and_not_run_with_other_values(transform):
    fn, shape = TRANSFORMS[transform]
    model, x = Mapped(fn), torch.linspace(-1, 1, 12)[: 12 if len(shape) == 2 else 4].reshape(shape)
    assert hookline.diff(model, copy.deepcopy(model), x).first is None
    d = hookline.diff(model, scaled(model, "parts.0.weight"), x)
    assert d.first is not None and (d.first.site, d.first.kind) == ("parts.0", "output")
    assert "parts.0.weight" in d.causes[0].sentence
    assert any("inside of a transform" in note for note in d.notes)


class Nesting(nn.Module):
    """Nested tensors come by its part, and at its end if it does not pad them."""

    def __init__(self, pads):
        super().__init__()
        self.part, self.pads = nn.Identity(), pads

    def forward(self, x):
        nested = self.part(torch.nested.nested_tensor([x[0], x[1][:1]]))
        return nested.to_padded_tensor(0.0) if self.pads else nested


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_told_and_never_called_equal():
    x = torch.ones(2, 2)
    with pytest.raises(hookline.Unsupported, match="can't be read"):
        hookline.diff(Nesting(False), Nesting(False), x)
    d = hookline.diff(Nesting(True), Nesting(True), x)
    assert d.first is None and any("not compared: 'part'" in note for note in d.notes)
    assert hookline.diff((Nesting(True), x), (Nesting(True), x * 2)).first is not None
