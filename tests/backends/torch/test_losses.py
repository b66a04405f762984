"""What is heard of a torch training: losses, learning rates, gradient norms, scales; nothing of it is changed."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.autograd.variable import Variable
from torch.nn.utils import clip_grad, clip_grad_norm_, clip_grad_value_
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.backends.torch import numbers
from hookline.backends.torch.losses import hear_losses
from hookline.backends.undoing import Undoing
from hookline.lines import kernel_in_use
from hookline.lines.sheet import Sheet
from hookline.watching import numbers as watched_numbers


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def batches(count, size=4):
    chance = torch.Generator().manual_seed(1)
    return [torch.randn(size, 3, generator=chance) for _ in range(count)]


def values(watch, name):
    return watch.scalars()[name].values.tolist()


def trained(model, xs, w=None, **how):
    """The losses of a plain training of the model."""
    optimizer = how.get("optimizer") or torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    losses = []
    for x in xs:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        losses.append(loss.item())
        loss.backward()
        if "clip" in how:
            how["clip"](model.parameters())
        optimizer.step()
    return losses


def test_the_loss_the_rates_and_the_norm_of_each_step_are_heard():
    model = net()
    with hookline.watch(model) as w:
        losses = trained(model, batches(3))
    found = w.scalars()
    assert found["loss"].values.tolist() == losses and found["loss"].steps.tolist() == [0, 1, 2]
    assert values(w, "backwards") == [1, 1, 1]
    assert values(w, "lr") == [0.1] * 3 and values(w, "weight_decay") == [0.01] * 3
    assert values(w, "stale_grads") == [0, 0] and "grad_norm_clipped" not in found
    assert len(set(values(w, "batch"))) == 3
    used = [row["l2"] for row in w.rows("2.weight", kind="param_grad")]
    assert all(norm > own for norm, own in zip(values(w, "grad_norm"), used, strict=True))


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "clipped", "adam", "compiled"])
def test_a_training_is_the_same_to_the_bit(every, kind):
    plain = net()
    watched = copy.deepcopy(plain)
    ends = []
    for model, is_watched in ((plain, False), (watched, True)):
        run = torch.compile(model, backend="aot_eager") if kind == "compiled" else model
        how = {"clip": lambda params: clip_grad_norm_(params, 0.01)} if kind == "clipped" else {}
        if kind == "adam":
            how["optimizer"] = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(3)
        if is_watched:
            with hookline.watch(run, every=every) as w:
                losses = trained(run, batches(4), **how)
        else:
            losses = trained(run, batches(4), **how)
        ends.append((losses, [one.detach().clone() for one in model.parameters()], torch.rand(1)))
    (a, ours, chance), (b, theirs, same) = ends
    assert a == b and all(map(torch.equal, ours, theirs)) and torch.equal(chance, same)
    assert values(w, "loss") == a[::every]


@pytest.mark.usefixtures("nobody_observes")
def test_what_was_replaced_is_back():
    before = (torch.autograd.backward, nn.utils.clip_grad_value_, clip_grad._clip_grads_with_norm_)
    scaler = (torch.amp.GradScaler.scale, torch.amp.GradScaler.step)
    model = net()
    with hookline.watch(model):
        trained(model, batches(1))
    del model
    assert before == (torch.autograd.backward, nn.utils.clip_grad_value_, clip_grad._clip_grads_with_norm_)
    assert scaler == (torch.amp.GradScaler.scale, torch.amp.GradScaler.step)
    assert type(Variable._execution_engine).__module__ != "hookline.backends.torch.engine"


@pytest.mark.parametrize("how", ["norm", "value", "all", "with norm"])
def test_norms_before_and_after_clipping(how):
    model, seen = net(), []

    def clip(params):
        params = list(params)
        seen.append(nn.utils.get_total_norm([one.grad for one in params]).item())
        if how == "norm":
            clip_grad_norm_(iter(params), 0.01)  # the name that was imported long before
        elif how == "all":
            clip_grad_norm_(params[0], 0.001)
            clip_grad_norm_(params, 0.01)
        elif how == "with norm":
            nn.utils.clip_grads_with_norm_(params, 0.01, torch.tensor(seen[-1]))
        else:
            nn.utils.clip_grad_value_(params, 0.001)
        seen.append(nn.utils.get_total_norm([one.grad for one in params]).item())

    with hookline.watch(model) as w:
        trained(model, batches(2), clip=clip)
    assert values(w, "grad_norm") == pytest.approx(seen[::2], rel=1e-6)
    assert values(w, "grad_norm_clipped") == pytest.approx(seen[1::2], rel=1e-6)
    assert seen[1] < seen[0]


def test_clipping_of_another_model_is_not_told():
    model, other = net(), net(1)
    other(batches(1)[0]).sum().backward()
    with hookline.watch(model) as w:
        trained(model, batches(1), clip=lambda params: clip_grad_value_(other.parameters(), 1e-3))
    assert "grad_norm" in w.scalars() and "grad_norm_clipped" not in w.scalars()


def test_accumulated_micro_batches_are_one_step():
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        for number, x in enumerate(batches(6)):
            loss = model(x).square().mean() / 3
            losses.append(loss.item())
            loss.backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    assert values(w, "backwards") == [3, 3] and values(w, "stale_grads") == [0]
    assert values(w, "loss") == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3])


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_left_over_are_seen(to_none):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        for number, x in enumerate(batches(4)):
            if number != 2:
                optimizer.zero_grad(set_to_none=to_none)
            model(x).square().mean().backward()
            optimizer.step()
    assert values(w, "stale_grads") == [0, 1, 0]


def test_a_closure_is_heard_each_time_it_runs():
    model, losses = net(), []
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x = batches(1)[0]

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        losses.append(loss.item())
        loss.backward()
        return loss

    with hookline.watch(model) as w:
        optimizer.step(closure)
    assert len(losses) > 1 and values(w, "backwards") == [len(losses)]
    assert values(w, "loss") == pytest.approx([sum(losses) / len(losses)])
    assert values(w, "lr") == [0.1] and "weight_decay" not in w.scalars()


def test_of_two_optimizers_all_groups_are_numbered():
    model = net()
    first = torch.optim.SGD([{"params": [model[0].weight]}, {"params": [model[0].bias], "lr": 0.2}], lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=torch.tensor(0.3))
    with hookline.watch(model) as w:
        for x in batches(2):
            model(x).square().mean().backward()
            first.step()
            second.step()
            second.param_groups[0]["lr"].mul_(0.5)
            model.zero_grad()
    found = w.scalars()
    assert "lr" not in found and [found[f"lr/{n}"].steps.tolist() for n in range(3)] == [[0, 1]] * 3
    assert found["lr/1"].values.tolist() == [0.2, 0.2]
    assert found["lr/2"].values.tolist() == pytest.approx([0.3, 0.15])


def test_of_a_pair_of_models_each_watch_hears_its_own_losses():
    maker, judge = nn.Linear(2, 3), net()
    makers, judges = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.SGD(judge.parameters(), lr=0.1)
    made, judged = [], []
    with hookline.watch(maker) as of_maker, hookline.watch(judge) as of_judge:
        for x in batches(3):
            judges.zero_grad()
            loss = judge(x).mean() - judge(maker(x[:, :2]).detach()).mean()
            judged.append(loss.item())
            loss.backward()
            judges.step()
            makers.zero_grad()
            loss = judge(maker(x[:, :2])).mean()
            made.append(loss.item())
            loss.backward()
            makers.step()
    assert values(of_maker, "loss") == made and values(of_maker, "stale_grads") == [0, 0]
    # A loss of the maker leads through the judge as well; it comes before the judge's of the next step.
    pairs = [(made[n] + judged[n + 1]) / 2 for n in range(2)]
    assert values(of_judge, "loss")[:3] == pytest.approx([judged[0], *pairs])
    assert values(of_judge, "stale_grads")[:2] == [0, 0]


def test_gradients_that_are_returned_count_where_they_are_the_parameters():
    model, losses = net(), []
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.1)
    with hookline.watch(model) as w:
        for x in batches(2):
            x.requires_grad_()
            torch.autograd.grad(model(x).sum(), x)  # of the input: no training
            loss = model(x).square().mean()
            losses.append(loss.item())
            for one, grad in zip(params, torch.autograd.grad(loss, params), strict=True):
                one.grad = grad
            optimizer.step()
    assert values(w, "loss") == losses and values(w, "backwards") == [1, 1]


def test_a_penalty_on_gradients_is_no_loss_of_its_own():
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        for x in batches(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            loss = loss + sum(grad.square().sum() for grad in grads)
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
    assert values(w, "loss") == losses and values(w, "backwards") == [1, 1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_that_runs_again_is_no_loss(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            x = checkpoint(self.a, x, use_reentrant=reentrant)
            return checkpoint(self.b, x, use_reentrant=reentrant)

    model, losses = Checkpointed(), []
    with hookline.watch(model) as w:
        for x in batches(2):
            loss = model(x.requires_grad_()).square().mean()
            losses.append(loss.item())
            loss.backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert values(w, "loss") == losses and values(w, "backwards") == [1, 1]


@pytest.mark.parametrize("given", [True, False])
def test_a_scaled_loss_is_told_without_its_factor(given):
    model, losses = net(), []
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, scaler=scaler if given else None) as w:
        for x in batches(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update(32.0)
    assert values(w, "loss") == losses and values(w, "loss_scale") == [64, 32]
    norms = [sum(row["l2"] ** 2 for row in w.rows(kind="param_grad", step=step)) ** 0.5 for step in range(2)]
    assert values(w, "grad_norm") == pytest.approx(norms, rel=1e-5)


def test_losses_are_heard_with_their_line_and_shape():
    model, other, told = net(), net(1), []
    undoing = Undoing()
    hear_losses(undoing, model, lambda loss: told.append(loss._replace(tensors=())), lambda: True)
    out = model(batches(1)[0])
    out.backward(torch.ones_like(out))
    torch.autograd.backward([model(torch.ones(1, 3)).sum(), model(torch.zeros(1, 3)).sum()])
    other(torch.ones(1, 3)).sum().backward()
    undoing.close()
    model(torch.ones(1, 3)).sum().backward()
    first, second = told
    mean = out.detach().double().mean().item()  # in float32 it rounds: the numbers nearly cancel out
    assert first.shape == (4, 1) and first.value == pytest.approx(mean, rel=1e-12) and first.accumulates
    assert second.value == pytest.approx((model(torch.ones(1, 3)) + model(torch.zeros(1, 3))).item())
    assert [loss.line.split(":")[0] for loss in told] == ["test_losses.py"] * 2
    assert int(second.line.split(":")[1]) == int(first.line.split(":")[1]) + 1


def test_a_compiled_model_is_heard():
    model = net()
    compiled = torch.compile(model, backend="aot_eager")
    with hookline.watch(compiled) as w:
        losses = trained(compiled, batches(3))
    assert values(w, "loss") == losses and len(set(values(w, "batch"))) == 3


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own
def test_a_step_that_is_compiled_with_its_backward_is_heard():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="aot_eager")
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.01)
        return loss

    losses = []
    with hookline.watch(model) as w:
        for x in batches(3):
            losses.append(step(x).item())
            optimizer.step()
            optimizer.zero_grad()
    assert values(w, "loss") == pytest.approx(losses)


def total(grads):
    return nn.utils.get_total_norm([grad.double() for grad in grads]).item()


@pytest.mark.parametrize("where", ["**", "0", "1"])
@pytest.mark.parametrize("how", [{}, {"params": False}, {"histogram": False}, {"fingerprint": True}], ids=str)
def test_the_norm_is_that_of_all_gradients_whichever_are_watched(where, how):
    model, norms = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, where, **how) as w:
        for x in batches(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            norms.append(total(one.grad for one in model.parameters()))
            optimizer.step()
    assert values(w, "grad_norm") == pytest.approx(norms, rel=1e-6)


def test_the_norm_has_the_same_digits_whichever_are_watched():
    """Else two runs would seem to differ that watch other sites."""
    found = []
    for where, how in (("**", {}), ("0", {}), ("1", {}), ("**", {"params": False}), ("**", {"histogram": False})):
        torch.manual_seed(0)
        model = net()
        with hookline.watch(model, where, **how) as w:
            trained(model, batches(3))
        found.append(values(w, "grad_norm"))
    assert all(norms == found[0] for norms in found) and len(found[0]) == 3


def test_what_was_reduced_for_the_rows_is_not_gone_through_again(monkeypatch):
    reduced, by_torch, computed = [], [], numbers.gradient_norms

    class Noted(Sheet):
        def reduce(self, tensor, extra=()):
            reduced.append(tensor)
            return super().reduce(tensor, extra)

    def noted(parameters):
        some = list(parameters)
        by_torch.extend(some)
        return computed(some)

    monkeypatch.setattr(watched_numbers, "Sheet", Noted)
    monkeypatch.setattr(numbers, "gradient_norms", noted)
    model = net()
    with hookline.watch(model, "0"):
        trained(model, batches(3))
    # Of the two layers one is watched; and none has gradients when a backward begins.
    without_kernel = kernel_in_use() == "torch"
    assert (len(by_torch), len(reduced)) == ((3 * 4, 0) if without_kernel else (0, 3 * 2))


def test_the_norm_of_two_optimizers_that_share_a_parameter_is_that_of_the_gradients_now():
    model, norms = net(), []
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD([model[0].weight, *model[2].parameters()], lr=0.1)
    with hookline.watch(model) as w:
        for x in batches(2):
            first.zero_grad()
            second.zero_grad()
            model(x).square().mean().backward()
            first.step()
            model[0].weight.grad.data.mul_(3)  # in a way that nobody counts
            norms.append(total(one.grad for one in model.parameters()))
            second.step()
    assert values(w, "grad_norm") == pytest.approx(norms, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_has_such_a_norm(bad):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        model(batches(1)[0]).square().mean().backward()
        model[0].weight.grad[0, 0] = bad
        optimizer.step()
    (norm,) = values(w, "grad_norm")
    assert norm == bad or (norm != norm and bad != bad)


def test_the_norm_of_a_step_that_failed_is_not_taken_for_that_of_the_next():
    class Fails(torch.optim.SGD):
        fails = True

        @torch.no_grad()
        def step(self, closure=None):
            if self.fails:
                raise ValueError("no step")
            return super().step(closure)

    model = net()
    optimizer = Fails(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        model(batches(1)[0]).square().mean().backward()
        with pytest.raises(ValueError, match="no step"):
            optimizer.step()
        for one in model.parameters():
            one.grad.data.mul_(2)
        norm = total(one.grad for one in model.parameters())
        optimizer.fails = False
        optimizer.step()
    assert values(w, "grad_norm")[-1] == pytest.approx(norm, rel=1e-6)


def test_sparse_gradients_have_a_norm():
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        model(torch.tensor([1, 1, 2])).sum().backward()
        norm = model.weight.grad.to_dense().norm().item()
        optimizer.step()
    assert values(w, "grad_norm") == pytest.approx([norm])


def test_the_first_batch_that_is_trained_on_is_the_one_that_counts():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    same, other = batches(2)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model

        def forward(self, *, x):
            return self.net(x)

    whole = Named()
    with hookline.watch(whole) as w:
        for x in (same, other, same):
            with torch.no_grad():
                whole.eval()(x=other + 1)
            whole.train()(x=x).sum().backward()
            optimizer.step()
    _, a, b, c = values(w, "batch")  # the first call, before any training, is a step of its own
    assert a == c != b and 0 <= a < 2**32


def test_a_failure_is_told_once_and_the_training_goes_on(monkeypatch):
    def breaks(*args):
        raise ValueError("broken")

    monkeypatch.setattr("hookline.backends.torch.numbers.gradient_norms", breaks)
    model = net()
    with warnings.catch_warnings(record=True) as told, hookline.watch(model) as w:
        warnings.simplefilter("always")
        losses = trained(model, batches(3))
    assert values(w, "loss") == losses and "grad_norm" not in w.scalars()
    assert sum("the gradient norm" in str(one.message) for one in told) == 1


def test_each_of_two_watches_on_one_model_has_all():
    model = net()
    with hookline.watch(model) as first:
        with hookline.watch(model, every=2) as second:
            losses = trained(model, batches(3))
        losses += trained(model, batches(1))
    assert values(first, "loss") == losses and values(second, "loss") == losses[:3:2]
