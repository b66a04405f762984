"""Ports of torch models to NNX: weights carried over, recordings kept for the comparison, diffs of their own."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import hookline
from tests.environments.frameworks import porting


class Vision(nnx.Module):
    """Names of its own, channels last, the activation a function."""

    def __init__(self, epsilon=1e-5):
        rngs = nnx.Rngs(0)
        self.stem = nnx.Conv(3, 4, (3, 3), padding="VALID", rngs=rngs)
        self.bn = nnx.BatchNorm(4, use_running_average=True, epsilon=epsilon, rngs=rngs)
        self.grow = nnx.ConvTranspose(4, 5, (3, 3), (2, 2), padding="VALID", rngs=rngs)
        self.head = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.grow(jax.nn.relu(self.bn(self.stem(x)))).mean((1, 2)))


class Text(nnx.Module):
    def __init__(self, approximate=False):
        rngs = nnx.Rngs(0)
        self.tokens = nnx.Embed(11, 8, rngs=rngs)
        self.ln = nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs)
        self.mixing = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)
        self.approximate = approximate

    def __call__(self, ids):
        x = self.tokens(ids)
        x = x + self.mixing(self.ln(x))
        return x + self.narrow(jax.nn.gelu(self.wide(x), approximate=self.approximate))


X = {
    "vision": jnp.asarray(porting.X["vision"].transpose(0, 2, 3, 1)),
    "text": jnp.asarray(porting.X["text"]),
}
PORTS = {
    "vision": Vision,
    "text": Text,
    "vision-wrong": lambda: Vision(epsilon=1e-2),
    "text-wrong": lambda: Text(approximate=True),
}


def recorded(port, tmp_path):
    model, name = PORTS[port](), port.partition("-")[0]
    porting.load(model, name, tmp_path)
    with hookline.record(model, inputs=True) as rec:
        model(X[name])
    return rec


@pytest.mark.parametrize("port", PORTS)
def test_a_port_has_torchs_weights_and_is_kept(port, tmp_path):
    rec = recorded(port, tmp_path)
    assert porting.keep(rec, "nnx", port).exists()
    assert rec[""].type == type(PORTS[port]()).__name__


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "narrow")])
def test_two_recordings_part_where_the_mistake_is(port, site, tmp_path):
    right, wrong = recorded(port, tmp_path), recorded(f"{port}-wrong", tmp_path)
    assert not hookline.diff(right, recorded(port, tmp_path))
    found = hookline.diff(right, wrong)
    assert found and found.first.site == site


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "")])
def test_two_models_part_where_the_mistake_is(port, site, tmp_path):
    models = [PORTS[port](), PORTS[port](), PORTS[f"{port}-wrong"]()]
    for model in models:
        porting.load(model, port, tmp_path)
    assert not hookline.diff(models[0], models[1], X[port])
    found = hookline.diff(models[0], models[2], X[port])
    assert found and found.first.site == site and found.first.born


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: nnx.GroupNorm(4, 2, rngs=nnx.Rngs(0)), {"weight", "bias"}),
        (lambda: nnx.InstanceNorm(4, rngs=nnx.Rngs(0)), {"weight", "bias"}),
        (lambda: nnx.RMSNorm(4, rngs=nnx.Rngs(0)), {"weight"}),
        (nnx.PReLU, {"weight"}),
    ],
)
def test_weights_have_torchs_names(make, names, tmp_path):
    assert set(porting.load_file(hookline.save_weights(make(), tmp_path / "w.safetensors"))) == names


def test_a_transposed_convolution_that_is_turned_already(tmp_path):
    """With transpose_kernel its kernel is (*kernel, out, in), and not turned around."""
    kept = {"weight": porting.WEIGHTS["vision"]["up.weight"], "bias": porting.WEIGHTS["vision"]["up.bias"]}
    porting.save_file(kept, tmp_path / "w.safetensors")
    x = X["vision"][..., :1].repeat(4, -1)
    results = []
    for turned in (False, True):
        up = nnx.ConvTranspose(4, 5, (3, 3), (2, 2), padding="VALID", transpose_kernel=turned, rngs=nnx.Rngs(0))
        hookline.load_weights(up, tmp_path / "w.safetensors")
        results.append(up(x))
    assert jnp.allclose(*results, atol=1e-5)


def test_weights_that_do_not_fit_are_listed_and_nothing_is_written(tmp_path):
    model = Vision()
    model.head = nnx.Linear(5, 4, rngs=nnx.Rngs(0))
    before = jnp.array(model.stem.kernel[...])
    with pytest.raises(hookline.InvalidArgument, match=r"of another shape|not placed"):
        porting.load(model, "vision", tmp_path)
    assert (model.stem.kernel[...] == before).all()


def test_a_proposed_map_pairs_all_modules(tmp_path):
    one = recorded("vision", tmp_path)
    found = hookline.propose_map(one, one, tmp_path / "map.toml")
    assert [rule.a for rule in found.rules] == [rule.b for rule in found.rules] == one.names
    assert not hookline.diff(one, one, map=tmp_path / "map.toml")
