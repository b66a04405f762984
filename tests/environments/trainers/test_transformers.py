"""WatchCallback and ActivationStats in a real Trainer of Hugging Face."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from hookline import ActivationStats
from hookline.integrations.transformers import WatchCallback
from tests.environments.trainers.helpers import (
    VALIDATED_TWICE,
    as_found,
    assert_nothing_left,
    data,
    same_weights,
    small_model,
    steps_of,
)
from tests.support.rows import same_rows


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small_model()

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": nn.functional.mse_loss(out, labels), "out": out}


def items(batches):
    x, y = data(batches)
    return [{"x": x[number], "labels": y[number]} for number in range(len(x))]


def train(callbacks, tmp_path, batches=6, model=None, resume=None, **options):
    torch.manual_seed(5)
    model = model or Regression()
    arguments = {"num_train_epochs": 1, "max_grad_norm": 0.0, "save_strategy": "no"} | options
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=7,
            **arguments,
        ),
        train_dataset=items(batches),
        eval_dataset=items(3),
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_rows_of_each_step(tmp_path):
    callback = WatchCallback("net.*")
    model = Regression()
    with as_found(model.net):
        trainer = train([callback], tmp_path, model=model)
    rows = callback.rows()
    assert steps_of(rows) == steps_of(rows, "param_grad") == steps_of(rows, "update") == [0, 1, 2, 3, 4, 5]
    assert {row["call"] for row in rows} == {0}
    assert same_rows(callback.watch.rows(), rows)
    assert_nothing_left(model)
    assert "_run_epoch" not in vars(trainer)


def test_training_gives_the_same_weights(tmp_path):
    options = {"max_grad_norm": 0.1, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    plain, watched = Regression(), Regression()
    train([], tmp_path, model=plain, **options)
    callback = WatchCallback(every=2, inputs=True)
    train([callback], tmp_path, model=watched, **options)
    assert steps_of(callback.rows()) == [0, 2, 4]
    assert same_weights(plain, watched) and not same_weights(plain, Regression())


def test_accumulation_merges_micro_batches(tmp_path):
    callback = WatchCallback("net.0")
    train([callback], tmp_path, batches=5, gradient_accumulation_steps=2)
    outputs = callback.rows("net.0", kind="output")
    assert [(row["step"], row["count"]) for row in outputs] == [(0, 128), (1, 128), (2, 64)]


def test_gradients_are_those_after_clipping(tmp_path):
    free, clipped = WatchCallback("net.*"), WatchCallback("net.*")
    train([free], tmp_path, batches=1)
    train([clipped], tmp_path, batches=1, max_grad_norm=0.01)

    def norm(callback):
        return sum(row["l2"] ** 2 for row in callback.rows(kind="param_grad")) ** 0.5

    assert norm(free) > 0.1
    assert norm(clipped) == pytest.approx(0.01, rel=1e-3)


def test_evaluation_is_told_apart(tmp_path):
    callback = WatchCallback("net.3")
    train([callback], tmp_path, batches=2, eval_strategy="epoch", eval_on_start=True, num_train_epochs=2)
    outputs = callback.rows("net.3", kind="output")
    assert [(row["step"], row["mode"], row["count"]) for row in outputs] == VALIDATED_TWICE


def test_bf16(tmp_path):
    callback = WatchCallback("net.0")
    train([callback], tmp_path, batches=3, bf16=True)
    assert steps_of(callback.rows()) == steps_of(callback.rows(), "param_grad") == [0, 1, 2]


class At(TrainerCallback):
    """Does something at an event of step 2."""

    def __init__(self, event, act):
        setattr(self, event, self.run)
        self.act = act

    def run(self, args, state, control, **given):
        if state.global_step == 2:
            self.act(control)


def broken(control):
    raise KeyError("broken")


@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step", "on_step_end"])
def test_an_exception_leaves_nothing(tmp_path, event):
    callback = WatchCallback()
    model = Regression()
    with as_found(model.net), pytest.raises(KeyError):
        train([callback, At(event, broken)], tmp_path, model=model)
    assert steps_of(callback.rows(), "update") == [0, 1]
    assert_nothing_left(model)


def test_an_exception_of_the_model_leaves_nothing(tmp_path):
    class Breaking(Regression):
        calls = 0

        def forward(self, x, labels):
            self.calls += 1
            if self.calls == 3:
                raise KeyError("broken")
            return super().forward(x, labels)

    model = Breaking()
    with pytest.raises(KeyError):
        train([WatchCallback()], tmp_path, model=model)
    assert_nothing_left(model)


def test_an_early_stop(tmp_path):
    def stop(control):
        control.should_training_stop = True

    callback = WatchCallback()
    trainer = train([callback, At("on_step_end", stop)], tmp_path)
    assert steps_of(callback.rows()) == [0, 1]
    assert_nothing_left(trainer.model)


def test_a_resumed_training_goes_on_counting(tmp_path):
    train([], tmp_path, batches=4, save_strategy="steps", save_steps=2)
    callback = WatchCallback()
    train([callback], tmp_path, batches=4, resume=str(tmp_path / "checkpoint-2"))
    assert steps_of(callback.rows()) == [2, 3]


def test_activation_stats_around_a_training(tmp_path):
    model = Regression()
    with ActivationStats(every=2).attach(model) as stats:
        train([], tmp_path, batches=5, model=model)
    assert len(stats.stats) == 3
    assert_nothing_left(model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_language_model(tmp_path, checkpointing):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2, use_cache=False)
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(20, (16, 8))
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        gradient_checkpointing=checkpointing,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    callback = WatchCallback("transformer.h.*.mlp.c_fc", every=2)
    data = [{"input_ids": row, "labels": row} for row in tokens]
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
    for kind in ("output", "grad_output"):
        rows = [(row["site"], row["step"], row["call"], row["count"]) for row in callback.rows(kind=kind)]
        assert sorted(rows) == [(f"transformer.h.{n}.mlp.c_fc", step, 0, 1024) for n in (0, 1) for step in (0, 2)]
    assert steps_of(callback.rows(), "update") == [0, 2]
    assert_nothing_left(model)
