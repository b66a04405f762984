"""summary as a user meets it: inputs of all kinds, columns, depth, pictures, errors, the model left alone."""

import dataclasses
import io
import json
import logging
import sys
import types

import pytest
import torch
from torch import nn

import hookline
from hookline import summary
from hookline.testing import untouched
from tests.support.resnet import ResNet18


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.Dropout()), nn.Linear(8, 2))


def rows(found, *keys):
    return [tuple(row[key] for key in keys) for row in found.rows]


# Inputs


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, mask=None, *, scale=1.0):
        y = self.fc(x) * scale
        return y if mask is None else y.masked_fill(mask, 0)


class TakesDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch):
        return {"y": self.fc(batch["x"]), "parts": [batch["extra"][0], None, "text"]}


def test_keywords_shapes_and_structures():
    mask = torch.zeros(2, 4, dtype=torch.bool)
    for found in (
        summary(Masked(), torch.ones(2, 4), mask=mask, scale=2.0),
        summary(Masked(), (2, 4), mask=mask, scale=2.0),
        summary(Masked(), {"x": torch.ones(2, 4), "mask": mask, "scale": 2.0}),
    ):
        assert found.total_macs == 32 and found.rows[1]["output"] == [2, 4]
    found = summary(TakesDict(), {"x": (2, 4), "extra": [(3, 5)]})
    assert found.rows[0]["input"] == [{"x": [2, 4], "extra": [[3, 5]]}]
    assert found.rows[0]["output"] == {"y": [2, 4], "parts": [[3, 5], None, "text"]}


def test_dtypes():
    assert summary(nn.Linear(4, 2).half(), (3, 4), real=False).rows[0]["activation_bytes"] == 3 * 2 * 2
    two = types.SimpleNamespace()

    class Two(nn.Module):
        def forward(self, ids, x):
            two.dtypes = ids.dtype, x.dtype
            return x

    summary(Two(), (2,), (3,), dtype=["int32", torch.float64])
    assert two.dtypes == (torch.int32, torch.float64)
    with pytest.raises(hookline.InvalidArgument, match="fewer entries"):
        summary(Two(), (2,), (3,), dtype=["int32"])
    with pytest.raises(hookline.InvalidArgument, match="1 entries more"):
        summary(Two(), (2,), (3,), dtype=["int32"] * 3)
    with pytest.raises(hookline.InvalidArgument, match="negative"):
        summary(Two(), (2, -1), (3,))


def test_shapes_for_a_table_of_ids_are_integers():
    found = summary(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), (2, 3))
    assert found.total_macs == 2 * 3 * 8 and "int64" in found.notes[0] and found.to_dict()["total_params"] == 46


def test_hugging_face_models():
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    model = BertModel(config)
    ids = torch.ones(2, 7, dtype=torch.long)
    with untouched(model):
        by_shape = summary(model, (2, 7))
        by_dict = summary(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert (
        by_shape.total_macs
        == by_dict.total_macs
        == 2 * (2 * (7 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 49 * 32) + 32 * 32)
    )
    assert by_dict.rows[0]["output"]["last_hidden_state"] == [2, 7, 32]
    assert by_shape.notes == by_dict.notes == []


class Learner:
    """What summary needs of fastai's: a model, and loaders that give a batch."""

    def __init__(self, model, *batch, n_inp=None):
        self.model = model
        self.dls = types.SimpleNamespace(one_batch=lambda: batch)
        if n_inp is not None:
            self.dls.n_inp = n_inp


def test_a_learner_brings_its_batch():
    x, y = torch.ones(16, 4), torch.ones(16, 2)
    assert summary(Learner(small(), x, y)).rows[0]["input"] == [[16, 4]]
    found = summary(Learner(Masked(), x, torch.zeros(16, 4, dtype=torch.bool), y, n_inp=2))
    assert found.rows[0]["input"] == [[16, 4], [16, 4]]


def test_tensor_subclasses_are_inputs_too():
    class Image(torch.Tensor):
        pass

    assert summary(small(), torch.ones(3, 4).as_subclass(Image)).total_macs == 3 * (32 + 64 + 16)


# Where it runs


def test_nothing_is_computed_by_default():
    touched = []

    class Spy(nn.Module):
        def forward(self, x):
            touched.append(type(x).__name__)
            return x @ x

    summary(Spy(), (4, 4))
    summary(Spy(), torch.ones(4, 4), real=True)
    assert touched == ["FakeTensor", "Tensor"]


def test_what_fake_tensors_cannot_do_runs_for_real_and_says_so():
    class Depends(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            x = self.norm(self.fc(x))
            return x * 2 if x.sum() > 0 else torch.from_numpy(x.detach().numpy())

    model = Depends()
    with untouched(model):
        found = summary(model, (3, 4))
    assert found.total_macs == 48
    assert "ran with real tensors, because fake ones failed" in found.notes[0]
    assert "ran with real tensors" in found.to_text()


def test_meta_models_run_and_say_where_they_are():
    model = small().to("meta")
    with untouched(model, parameters=False):
        found = summary(model, (3, 4))
    assert found.total_macs == 3 * (32 + 64 + 16) and found.rows[1]["device"] == "meta"
    with pytest.raises(hookline.InvalidArgument, match="meta device"):
        summary(model, (3, 4), real=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own import
def test_compiled_models_are_summarised_as_they_are_written():
    plain = small()
    macs = summary(plain, (3, 4)).total_macs
    wrapped = torch.compile(plain, backend="eager")
    assert summary(wrapped, (3, 4)).total_macs == macs
    plain.compile(backend="eager")
    with untouched(plain):
        assert summary(plain, (3, 4)).total_macs == macs
    assert summary(plain).total_params == sum(p.numel() for p in plain.parameters())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is deprecated, and still about
def test_script_modules_run_for_real():
    found = summary(torch.jit.script(small().eval()), (3, 4))
    assert found.total_macs == 3 * (32 + 64 + 16) and "ScriptModule" in found.notes[0]


def test_what_a_forward_leaves_behind_is_taken_back():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(()))
            self.history, self.by_name, self.plain = [1], {"a": 1}, torch.ones(4)

        def forward(self, x):
            self.last = self.fc(x)
            self.history.append(x)
            self.by_name["b"] = x
            self.seen += 1
            self.plain = self.plain + 1
            self.fc.eval()
            return self.last * self.plain + torch.rand(())

    for real in (False, True):
        model = Keeps()
        plain = model.plain
        with untouched(model):
            summary(model, (3, 4), real=real)
        assert not hasattr(model, "last") and model.history == [1] and model.by_name == {"a": 1}
        assert model.plain is plain and model.seen == 0


def test_inputs_that_a_forward_writes_to_stay():
    class Writes(nn.Module):
        def forward(self, x, y):
            x.add_(1)
            return x * y.requires_grad_()

    x, y = torch.zeros(3), torch.ones(3)
    for real in (False, True):
        summary(Writes(), x, y, real=real)
        assert torch.equal(x, torch.zeros(3)) and not y.requires_grad


def test_a_recording_that_is_open_does_not_see_it():
    model = small()
    with hookline.record(model) as rec:
        model(torch.ones(1, 4))
        summary(model, (3, 4))
    assert all(len(rec[name].calls) == 1 for name in rec.names)


def test_hooks_of_others_stay_and_run():
    model = small()
    seen = []
    handle = model[0].register_forward_hook(lambda m, a, o: seen.append(tuple(o.shape)))
    with untouched(model):
        summary(model, (3, 4))
    assert seen == [(3, 8)]
    handle.remove()


def test_weight_norm_and_other_parametrisations():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)), nn.ReLU())
    with untouched(model):
        found = summary(model, (3, 4))
    assert found.total_params == sum(p.numel() for p in model.parameters()) and found.total_macs == 3 * 32


# Columns, depth, pictures


def test_depth_folds_what_is_below():
    found = summary(small(), (3, 4), depth=1)
    assert rows(found, "name", "params", "macs") == [
        ("", 0, 0),
        ("0", 40, 96),
        ("1", 0, 0),
        ("2", 72, 192),
        ("3", 18, 48),
    ]
    assert rows(summary(small(), (3, 4), depth=0), "params", "macs") == [(130, 336)]
    for wrong in (-1, 1.5, "2", True):
        with pytest.raises(hookline.InvalidArgument, match="depth"):
            summary(small(), (3, 4), depth=wrong)


def test_columns_are_chosen_and_a_wrong_one_names_the_near():
    text = summary(small(), (3, 4), columns=["name", "input", "dtype", "trainable", "flops", "device"]).to_text()
    assert text.splitlines()[1].split() == ["Name", "Input", "Dtype", "Trainable", "FLOPs", "Device"]
    assert text.splitlines()[4].split() == ["0", "3x4", "float32", "yes", "192", "cpu"]
    with pytest.raises(hookline.InvalidArgument, match=r"'parms'. Did you mean 'params'"):
        summary(small(), (3, 4), columns="name,parms")


def test_trainable_of_a_part():
    model = small()
    model[0].bias.requires_grad_(False)
    model[3].requires_grad_(False)
    text = summary(model, (3, 4), columns="name,trainable").to_text()
    assert [line.split()[1:] for line in text.splitlines()[3:5]] == [["in", "part"], ["in", "part"]]
    assert summary(model).trainable_params == 32 + 72 and summary(model).to_dict()["trainable_params"] == 104


def test_the_table_in_plain_text():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.weight = nn.Linear(4, 4), nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.fc(self.fc(x))

    model = nn.Sequential(nn.Linear(4, 4), Twice())
    assert str(summary(model, (3, 4))).splitlines() == [
        "-" * 59,
        "Name      Type        Output  Params  MACs    Share",
        "-" * 59,
        "(model)   Sequential  3x4         43   144  100.0 %",
        "0         Linear      3x4         20    48   33.3 %",
        "1         Twice       3x4         23    96   66.7 %",
        "1 itself                           3",
        "1.fc      Linear      3x4         20    48   33.3 %",
        "1.fc      Linear      3x4               48   33.3 %  call 2",
        "-" * 59,
        "Parameters   43 (all trainable), 172 B",
        "Compute      144 MACs = 288 FLOPs for 3x4 in training mode",
        "Activations  144 B put out by modules",
        "Training     832 B = 172 B weights + 172 B gradients + 344 B Adam + 144 B kept for backward",
    ]


def test_a_deep_model_shows_what_fits_a_screen_and_keeps_all():
    found = summary(ResNet18(), (1, 3, 224, 224))
    text = found.to_text()
    assert len(text.splitlines()) < 45 and "depth=4 shows all" in text
    assert "layer1.0 " in text and "layer1.0.conv1" not in text
    assert len(found.rows) == 76  # 75 calls as in the seed, and the model
    assert "layer2.0.downsample.0" in summary(ResNet18(), (1, 3, 224, 224), depth=4).to_text()


def test_a_terminal_gets_colours_and_a_pipe_does_not(monkeypatch):
    found = summary(small(), (3, 4))
    assert "\x1b[" not in str(found)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    in_colour = str(found)
    assert "\x1b[" in in_colour and "█" in in_colour and "Linear" in in_colour


def test_a_narrow_terminal_cuts_no_number_and_no_name():
    from rich.console import Console

    class Wide(nn.Module):
        def forward(self, x):
            return {"a_result_with_a_long_name": x, "another_one_of_them": x}

    model = nn.Sequential(nn.Sequential(nn.Linear(1000, 1000), Wide()))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary(model, (1000, 1000)))
    text = console.export_text()
    assert "1,001,000" in text and "100.0 %" in text and "0.1 " in text and "…" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_notebook_gets_html_that_is_escaped():
    class Odd(nn.Module):
        def forward(self, x):
            return {"<b>": x}

    html = summary(nn.Sequential(nn.Linear(4, 4), Odd()), (3, 4))._repr_html_()
    assert html.count("<tr") == html.count("</tr>") and "<b>:" not in html and "&lt;b&gt;: 3x4" in html
    assert "http" not in html


def test_data():
    found = summary(small(), (3, 4))
    data = found.to_dict()
    assert list(data) == [
        *[
            "rows",
            "total_params",
            "trainable_params",
            "total_macs",
            "param_bytes",
            "activation_bytes",
            "unknown_ops",
        ]
    ]
    assert json.loads(json.dumps(data)) == data
    frame = found.to_pandas()
    assert frame.params.sum() == found.total_params and frame.macs.sum() == found.total_macs
    assert frame.groupby("type").macs.sum()["Linear"] == found.total_macs


def test_without_pandas_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hookline.MissingExtra, match=r"hookline\[pandas\]"):
        summary(small()).to_pandas()


# Bad input


def test_a_wrong_shape_names_the_module_and_shows_the_rest(caplog):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(5, 2)))
    with untouched(model), caplog.at_level(logging.DEBUG), pytest.raises(hookline.ForwardError) as caught:
        summary(model, (2, 3))
    error = caught.value
    assert error.site == "2.0" and error.arguments == "2x4"
    assert str(error).startswith(
        "'2.0' (Linear) raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)"
    )
    assert "What reached it: 2x4." in str(error) and "0        Linear      2x4" in str(error)
    assert isinstance(error.__cause__, RuntimeError) and isinstance(error, RuntimeError)
    assert rows(error.summary, "name", "output")[1:3] == [("0", [2, 4]), ("1", [2, 4])]
    assert not caplog.records  # torch logs errors of fake tensors with a traceback each


def test_a_missing_input_and_a_forward_that_raises():
    class Raises(nn.Module):
        def forward(self, x):
            raise KeyError("nothing here")

    with pytest.raises(
        hookline.ForwardError, match=r"own forward \(MultiheadAttention\) raised TypeError.*missing 2"
    ):
        summary(nn.MultiheadAttention(8, 2), (3, 8))
    with pytest.raises(
        hookline.ForwardError, match=r"'1' \(Raises\) raised KeyError: 'nothing here'\nWhat.*: 2x4\."
    ):
        summary(nn.Sequential(nn.Linear(3, 4), Raises()), (2, 3))


def test_a_wrong_shape_on_meta_is_told_too():
    with pytest.raises(hookline.ForwardError, match="'0' \\(Linear\\)"):
        summary(nn.Sequential(nn.Linear(3, 4)).to("meta"), (2, 5))


def test_interrupts_pass_and_leave_the_model_alone():
    class Stops(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = nn.Sequential(nn.BatchNorm1d(4), Stops())
    with untouched(model), pytest.raises(KeyboardInterrupt):
        summary(model, (3, 4))


def test_what_is_no_model_is_refused():
    with pytest.raises(hookline.InvalidArgument, match="expected a model"):
        summary([1, 2], (3,))


def test_a_part_whose_error_is_caught():
    class Tries(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad, self.good = nn.Linear(7, 7), nn.Linear(4, 4)

        def forward(self, x):
            try:
                return self.bad(x)
            except RuntimeError:
                return self.good(x)

    found = summary(Tries(), (3, 4))
    assert found.total_macs == 48
    assert rows(found, "name", "macs", "note") == [("", 0, ""), ("bad", 0, "did not return"), ("good", 48, "")]


def test_rows_are_plain_data():
    @dataclasses.dataclass
    class Out:
        a: torch.Tensor
        n: int = 3

    class Makes(nn.Module):
        def forward(self, x):
            return Out(x)

    assert summary(Makes(), (2, 2)).rows[0]["output"] == {"a": [2, 2], "n": 3}


def offloaded(model, *, by_hooks):
    """`model` as accelerate's cpu_offload leaves it: weights on meta, brought in for each call and taken out."""

    def put(module, name, tensor):
        old = module._parameters[name]
        module._parameters[name] = type(old)(tensor, requires_grad=old.requires_grad)

    def attach(module, kept):
        def bring(*_):
            for name, tensor in kept.items():
                put(module, name, tensor.to("cpu"))

        def take(*_):
            for name in kept:
                put(module, name, module._parameters[name].to("meta"))

        def forward(*args, _forward=module.forward):
            bring()
            output = _forward(*args)
            take()
            return output

        take()
        if by_hooks:
            module.register_forward_pre_hook(bring)
            module.register_forward_hook(take)
        else:
            module.forward = forward

    for module in model.modules():
        if kept := {name: p.detach() for name, p in module.named_parameters(recurse=False)}:
            attach(module, kept)
    return model


@pytest.mark.parametrize("by_hooks", [True, False])
def test_weights_that_are_brought_in_for_each_call_are_seen(by_hooks):
    def net():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))

    model, plain = offloaded(net(), by_hooks=by_hooks), net()
    assert str(summary(model, (2, 3, 8, 8))) == str(summary(plain, (2, 3, 8, 8)))
    assert all(p.is_meta and type(p) is nn.Parameter for p in model.parameters())
    assert model(torch.ones(2, 3, 8, 8)).shape == (2, 2)
