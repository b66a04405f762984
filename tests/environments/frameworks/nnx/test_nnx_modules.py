"""NNX models: names, copies, pickles, state, summaries; and the documents of other frameworks, told in NNX."""

import copy
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import hookline

from .models import Chain, Mlp, Relu, Shared, Times


class Nest(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Linear(2, 2, rngs=rngs)
        self.tied = self.stem
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs), nnx.relu])
        self.named = nnx.Dict(x=nnx.Linear(2, 2, rngs=rngs))
        self.pair = nnx.data((Relu(), Relu()))
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        x = self.layers[1](self.layers[0](self.tied(x)))
        return self.drop(self.pair[1](self.pair[0](self.named["x"](x))))


def test_names_are_in_order_of_definition_owners_first():
    model = Nest(nnx.Rngs(0))
    names = ["", "stem", "layers", "layers.0", "named", "named.x", "pair.0", "pair.1", "drop"]
    with hookline.record(model, inputs=True) as rec:
        model(jnp.ones((1, 2)))
    assert [entry.site for entry in rec.audit()] == names
    assert rec.names == ["stem", "layers.0", "named.x", "pair.0", "pair.1", "drop", ""]
    assert rec["tied"] is rec["stem"]
    assert "only holds modules" in rec.audit()["layers"].why


def test_a_model_that_holds_its_owner_ends():
    model = Chain()
    model.first.owner = nnx.data(model)
    assert [name for name, _ in hookline.backends.resolve(model).named_modules(model)][:2] == ["", "first"]


def test_state_and_split_are_untouched_by_hooks():
    model = Mlp()
    before = jax.tree.leaves(nnx.state(model))
    keys = [path for path, _ in nnx.to_flat_state(nnx.state(model))]
    with hookline.record(model):
        assert [path for path, _ in nnx.to_flat_state(nnx.state(model))] == keys
        graph, state = nnx.split(model)
        merged = nnx.merge(graph, state)
        assert isinstance(merged.fc1, nnx.Linear)
    assert all(a is b for a, b in zip(before, jax.tree.leaves(nnx.state(model)), strict=True))
    assert nnx.graphdef(model) == nnx.graphdef(Mlp())


@pytest.mark.parametrize("copied", [copy.deepcopy, nnx.clone, lambda model: nnx.merge(*nnx.split(model))])
def test_a_copy_called_outside_of_transforms_is_nobodys(copied):
    model = Mlp()
    with hookline.record(model) as rec, hookline.edit(model, {"fc1": lambda output: output * 0}):
        twin = copied(model)
        np.testing.assert_array_equal(twin(jnp.ones((1, 4))), Mlp()(jnp.ones((1, 4))))
        assert len(rec) == 0
        assert hookline.installed(twin) == []
        with hookline.record(twin, "fc1") as mine:
            twin(jnp.ones((1, 4)))
        assert len(mine["fc1"].calls) == 1
        assert len(rec) == 0


def test_a_deep_copy_has_the_classes_it_had():
    model = Chain()
    with hookline.record(model) as rec:
        twin = copy.deepcopy(model)
        assert [type(twin), type(twin.block.inner)] == [Chain, Times]
        nnx.jit(lambda model, x: model(x))(twin, jnp.ones(2))
    assert len(rec) == 0


def test_a_hooked_model_is_pickled_as_one_without_hooks():
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    with hookline.record(model), hookline.edit(model, {"": lambda output: output * 0}):
        data = pickle.dumps(model)
    assert b"hookline" not in data
    twin = pickle.loads(data)
    assert type(twin) is nnx.Linear
    np.testing.assert_array_equal(twin(jnp.ones((1, 2))), model(jnp.ones((1, 2))))


def test_a_pickle_loads_where_hookline_is_missing(tmp_path):
    model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    with hookline.record(model):
        (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    code = (
        "import sys, pickle; sys.modules['hookline'] = None\n"
        f"model = pickle.load(open({str(tmp_path / 'model.pickle')!r}, 'rb'))\n"
        "import numpy as np; print(model(np.ones((1, 2), np.float32)).shape, type(model.layers[0]).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 3) Linear\n", done.stderr


def test_summary_runs_on_shapes_and_leaves_random_streams_alone():
    model = Nest(nnx.Rngs(0))
    count = model.drop.rngs.count[...]
    found = hookline.summary(model, (7, 2))
    rows = {row["name"]: row for row in found.rows}
    assert rows["layers.0"]["output"] == [7, 2]
    assert found.total_params == 3 * 6
    assert model.drop.rngs.count[...] == count
    huge = hookline.summary(nnx.Linear(10, 10, rngs=nnx.Rngs(0)), (10**9, 10))
    assert huge.rows[0]["output"] == [10**9, 10]
    table = hookline.summary(nnx.Embed(5, 3, rngs=nnx.Rngs(0)), (2,))
    assert table.rows[0]["output"] == [2, 3]  # taken for integers
    with pytest.raises(hookline.ForwardError, match=r"'stem' \(Linear\) raised"):
        hookline.summary(model, (7, 3))
    with pytest.raises(hookline.Unsupported, match="XLA counts the cost of whole programs"):
        hookline.summary(model, (7, 2), columns="name,macs")
    assert hookline.installed(model) == []


def test_the_source_of_a_call_is_shown_while_it_is_hooked():
    model = Mlp()
    with hookline.record(model):
        assert "return self.fc2(self.act(self.fc1(x)))" in str(hookline.source(model))


def test_recordings_are_saved_and_loaded(tmp_path):
    model = Mlp()
    with hookline.record(model, inputs=True, grads=True) as rec:
        nnx.grad(lambda model, x: model(x).sum())(model, jnp.ones((2, 4)))
    loaded = hookline.load_recording(rec.save(tmp_path / "acts.safetensors"))
    assert isinstance(loaded["fc1"].output, jax.Array)
    np.testing.assert_array_equal(loaded["fc1"].output, rec["fc1"].output)
    np.testing.assert_array_equal(loaded["fc2"].grad_input[0], rec["fc2"].grad_input[0])


def test_a_recorded_value_outlives_a_donated_buffer():
    model = Times(2)
    eat = jax.jit(lambda x: x + 1, donate_argnums=0)
    with hookline.record(model) as rec:
        out = model(jnp.ones(3))
        eat(out)
    np.testing.assert_array_equal(rec[""].output, jnp.full(3, 2.0))


def test_values_are_moved_and_cast():
    model = Mlp()
    with hookline.record(model, dtype="bfloat16", device="cpu") as rec:
        model(jnp.ones((2, 4)))
    assert rec["fc1"].output.dtype == jnp.bfloat16
    with pytest.raises(hookline.InvalidArgument, match="no device of JAX"):
        hookline.record(model, device="elsewhere")
    with pytest.raises(hookline.InvalidArgument, match="no dtype of JAX"):
        hookline.record(model, dtype="float99")


def test_two_threads_do_not_see_each_others_calls():
    model, seen = Chain(), {}
    both = threading.Barrier(2)

    def work(factor):
        with hookline.record(model, "first") as rec:
            both.wait()
            model(jnp.ones(2) * factor)
            both.wait()
        seen[factor] = [float(call.output[0]) for call in rec["first"].calls]

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {1: [2.0], 10: [20.0]}


def test_hooks_as_fastai_has_them():
    model = Mlp()
    with hookline.Hooks([model.fc1, model.act], lambda module, inputs, output: output.shape) as hooks:
        nnx.jit(lambda model, x: model(x))(model, jnp.ones((5, 4)))
        model(jnp.ones((2, 4)))
    assert [tuple(hook.stored) for hook in hooks] == [(2, 3), (2, 3)]


def test_a_linen_module_is_refused():
    with pytest.raises(hookline.InvalidArgument, match=r"a flax\.nnx\.Module"):
        hookline.record(linen.Dense(3))


def test_a_model_that_is_never_called_in_the_block():
    model = Shared()
    with hookline.record(model) as rec:
        pass
    assert all(
        "not called in this block" in entry.why and "jax.clear_caches()" in entry.why for entry in rec.audit()
    )


# The examples of seed 001 (MindSpore) and seed 000 (MXNet), where JAX has the same thing


class Net(nnx.Module):
    """y = x * x; mul = HookBackward on it, as in MindSpore's document."""

    def __init__(self, hook):
        self.hook = hook

    def __call__(self, x, y):
        z = x * y
        z = self.hook(z)
        return z * y


def test_hook_backward_as_in_mindsporess_document():
    seen = []
    net = Net(hookline.HookBackward(lambda grads: seen.append(float(grads[0]))))
    grads = jax.grad(lambda x, y: net(x, y), argnums=(0, 1))(jnp.float32(1), jnp.float32(2))
    assert seen == [2.0]
    assert tuple(map(float, grads)) == (4.0, 4.0)


def test_a_forward_pre_hook_and_a_forward_hook_as_in_mindspores_document():
    model, log = Times(3), []

    def pre(module, args):
        log.append(("pre", float(args[0])))
        return (args[0] * 5,)

    def post(module, args, output):
        log.append(("post", float(args[0]), float(output)))
        return output * 7

    first = hookline.register_forward_pre_hook(model, pre)
    second = hookline.register_forward_hook(model, post)
    assert float(model(jnp.float32(1))) == 105
    assert log == [("pre", 1.0), ("post", 5.0, 15.0)]
    first.remove()
    second.remove()
    assert float(model(jnp.float32(1))) == 3


@pytest.mark.parametrize(("pre", "post"), [(1, 1), (1, 7), (5, 1), (5, 7)])
def test_backward_hooks_give_the_numbers_of_the_four_combinations(pre, post):
    class Outer(nnx.Module):
        def __init__(self):
            self.c = Times(3.0)

        def __call__(self, x):
            return self.c(x) * 11

    net, seen = Outer(), {}
    hookline.register_forward_pre_hook(net, lambda module, args: (args[0] * pre,), "c")
    hookline.register_forward_hook(net, lambda module, args, output: output * post, "c")

    def before(module, grad_output):
        seen["before"] = float(grad_output[0])

    def after(module, grad_input, grad_output):
        seen["input"], seen["output"] = float(grad_input[0]), float(grad_output[0])

    hookline.register_backward_pre_hook(net, before, "c")
    hookline.register_backward_hook(net, after, "c")
    dx = jax.grad(net)(jnp.float32(1))
    assert seen == {"before": 11.0, "output": 11.0, "input": 33.0 * post}
    assert float(dx) == 33 * pre * post


def test_a_handle_detaches_as_in_mxnets_document():
    model, shapes = Mlp(), []
    handle = hookline.register_forward_hook(model, lambda module, args, output: shapes.append(output.shape), "*")
    model(jnp.ones((3, 4)))
    handle.detach()
    model(jnp.ones((3, 4)))
    assert shapes == [(3, 3), (3, 3), (3, 2)]
