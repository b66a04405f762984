"""Operators in recordings and watches."""

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched
from tests.support.compare import same_bits
from tests.support.operators import Bare, net, nothing_is_left


def test_a_recording_keeps_what_a_bare_mode_sees(specimen):
    model, args, kwargs = specimen.seeded()
    if not specimen.steady:
        model(*args, **kwargs)
    torch.manual_seed(1)
    with Bare(model) as bare:
        model(*args, **kwargs)
    torch.manual_seed(1)
    with untouched(model, parameters=False, rng=False), hookline.record(model, ops=True) as rec:
        model(*args, **kwargs)
    calls = sorted((call.order, rec[name].op, call.output) for name in rec.ops for call in rec[name].calls)
    recorded = [
        (op, tensor)
        for _, op, output in calls
        for tensor in (output if isinstance(output, (tuple, list)) else (output,))
        if isinstance(tensor, torch.Tensor)
    ]
    assert [op for op, _ in recorded] == [op for op, _ in bare.seen]
    known = [
        (mine, theirs)
        for (op, mine), (_, theirs) in zip(recorded, bare.seen, strict=True)
        # Nobody knows what is in empty tensors and workspaces; a buffer counts calls.
        if "empty" not in op and mine.is_floating_point()
    ]
    assert all(same_bits(mine, theirs) for mine, theirs in known) and known


def test_sites_of_operators_stand_among_those_of_modules_in_order():
    model, x = net()
    with hookline.record(model, ops=["convolution", "relu_", "addmm"]) as rec:
        model(x)
    assert rec.names == [
        *["conv/convolution", "conv", "norm", "act/relu_", "act", "head/addmm", "head", ""],
    ]
    assert rec.ops == ["conv/convolution", "act/relu_", "head/addmm"]
    assert rec["head/addmm"].op == "aten.addmm" and rec["head"].op == ""
    assert len(rec["head/addmm"].calls) == 2
    assert torch.equal(rec["conv/convolution"].output, rec["conv"].output)
    assert torch.equal(rec["head/addmm"].calls[1].output.view(2, 2, 6, 6), rec[""].output)


def test_values_are_those_that_passed_before_an_in_place_operator():
    model, x = net()
    with hookline.record(model, ops=True, inputs=True) as rec:
        model(x)
    out, mean, rstd = rec["norm/native_layer_norm"].output
    assert out.min() < 0 and torch.equal(rec["act/relu_"].input[0], out)
    assert torch.equal(rec["act/relu_"].output, out.relu()) and mean.shape == rstd.shape
    assert torch.equal(rec["conv/convolution"].input[1], model.conv.weight)


def test_backward_operators_are_kept_with_gradients_only():
    model, x = net()
    with hookline.record(model, ops=True) as rec:
        model(x).sum().backward()
    assert not any("backward" in name for name in rec.ops)
    model.zero_grad()
    with hookline.record(model, ops=True, grads=True) as rec:
        model(x).sum().backward()
    assert torch.equal(rec["conv/convolution_backward"].output[1], model.conv.weight.grad)
    assert rec["conv/convolution_backward"].output[0] is None
    assert nothing_is_left(model)


def test_the_options_of_a_recording_hold_for_operators():
    model, x = net()
    with hookline.record(model, "conv", ops="aten.conv*", reduce=lambda t: t.mean()) as rec:
        model(x)
    assert rec.ops == ["conv/convolution"] and rec["conv/convolution"].output.shape == ()
    with hookline.record(model, "conv", ops=True, dtype="bfloat16") as rec:
        model(x)
    assert rec["conv/convolution"].output.dtype is torch.bfloat16
    with pytest.raises(hookline.RecordingTooLarge), hookline.record(model, ops=True, limit=2000) as rec:
        model(x)
    assert nothing_is_left(model)


def test_a_recording_of_operators_is_saved_and_loaded(tmp_path):
    model, x = net()
    with hookline.record(model, ops=True) as rec:
        model(x)
    loaded = hookline.load_recording(rec.save(tmp_path / "ops.safetensors"))
    assert loaded.names == rec.names and loaded.ops == rec.ops
    assert same_bits(loaded["norm/native_layer_norm"].output, rec["norm/native_layer_norm"].output)


def test_the_audit_tells_of_operators_that_never_ran():
    model, x = net()
    with hookline.record(model, ops=["conv*", "lstm*"]) as rec:
        model(x)
    assert [(entry.site, entry.fired) for entry in rec.audit().silent] == [("*/lstm*", 0)]
    assert "no operator of that name" in rec.audit()["*/lstm*"].why
    assert rec.audit()["conv/convolution"].fired == 1


def test_a_watch_has_rows_of_operators_step_by_step():
    model, x = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hookline.watch(model, ops=True, every=2) as w:
        for _ in range(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert {row["step"] for row in w.rows("head/addmm")} == {0, 2}
    assert {row["call"] for row in w.rows("head/addmm")} == {0, 1}
    assert {row["kind"] for row in w.rows("norm/native_layer_norm")} == {"output", "output1", "output2"}
    assert {row["kind"] for row in w.rows("conv/convolution_backward")} == {"grad1", "grad2"}
    for operator, module in (("conv/convolution", "conv"), ("act/relu_", "act")):
        mine, theirs = w.rows(operator, step=2)[0], w.rows(module, "output", step=2)[0]
        assert {name: mine[name] for name in ("mean", "std", "min", "max", "zeros", "count")} == {
            name: theirs[name] for name in ("mean", "std", "min", "max", "zeros", "count")
        }
    weight = w.rows("conv.weight", "param_grad", step=2)[0]
    assert w.rows("conv/convolution_backward", "grad1", step=2)[0]["l2"] == weight["l2"]
    assert nothing_is_left(model)


def test_a_watch_without_gradients_leaves_backward_operators_alone():
    model, x = net()
    with hookline.watch(model, ops="aten.*conv*", grads=False, params=False) as w:
        model(x).sum().backward()
    assert {(row["site"], row["kind"]) for row in w.rows() if "/" in row["site"]} == {
        ("conv/convolution", "output")
    }


def test_watched_values_that_cannot_be_reduced_stop_one_site_only():
    class Sparse(nn.Module):
        def forward(self, x):
            return x.to_sparse().to_dense() * 2

    model = Sparse()
    with pytest.warns(UserWarning, match=r"watching operator .* failed"), hookline.watch(model, ops=True) as w:
        model(torch.eye(2))
    assert w.rows("/mul")
