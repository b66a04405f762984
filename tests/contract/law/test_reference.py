"""The reference is right: by hand on small modules, and by torch's full backward hooks where those work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.contract.law.asking import Run
from tests.contract.law.comparing import difference, shown, unmatched, zeros_or_none
from tests.contract.law.generate import PLAIN, networks
from tests.contract.law.networks import Call, Compute, Keep, Module, Nest, Program, Statement, Write
from tests.contract.law.reference import by_hand
from tests.contract.law.running import law


def one(*body: Statement, result: Nest, arguments: tuple[Nest, ...] = ("v0",), **program: Any) -> Program:
    """A network of a module with that body, whose only input is x0 at all arguments."""
    options = {"used": ("",), **program}
    return Program((Module(arguments, body, result),), ("inner",), ("x0",) * len(arguments), 0, **options)


def slopes(value: torch.Tensor, seed: int) -> torch.Tensor:
    """The derivative of what the loss makes of a value."""
    numbers = torch.sin(torch.arange(9, dtype=value.dtype) * 1.7 + seed).view(3, 3)
    return (value * numbers).cos() * numbers


X = torch.sin(torch.arange(9, dtype=torch.float64) * 1.7 + 20).view(3, 3)


def test_outputs_that_depend_on_each_other_have_their_own_gradients():
    program = one(Compute("v1", "{0} * 2", ("v0",)), result=("tuple", ("v1", "v1 + 1")), used=("[0]", "[1]"))
    (call,) = by_hand(program).calls
    a, b = slopes(X * 2, 40), slopes(X * 2 + 1, 41)
    assert not difference(call.grad_output, (a, b)) and not difference(call.grad_input, (2 * (a + b),))


def test_what_is_kept_aside_counts_for_the_input_and_not_for_the_output():
    (call,) = by_hand(one(Compute("v1", "{0} * 2", ("v0",)), Keep("v1"), result="v1")).calls
    out, kept = slopes(X * 2, 40), slopes(X * 2, 70)
    assert not difference(call.grad_output, out) and not difference(call.grad_input, (2 * (out + kept),))


def test_one_tensor_at_two_arguments_has_two_shares():
    program = one(Compute("v2", "{0} * 2 + {1} * 7", ("v0", "v1")), result="v2", arguments=("v0", "v1"))
    (call,) = by_hand(program).calls
    out = slopes(X * 9, 40)
    assert not difference(call.grad_input, (2 * out, 7 * out))


def test_a_value_that_is_written_to_is_told_as_it_left():
    child = Module(("v0",), (Compute("v1", "{0} * 2", ("v0",)),), "v1")
    calls = Call(0, ("v0",), 0, (("v1", ""),), 0)
    root = Module(("v0",), (calls, Write("v1", "{0}.mul_(5)")), "v1")
    reference = by_hand(Program((child, root), ("inner",), ("x0",), 0, ("",)))
    out = slopes(X * 10, 40)
    assert not difference(reference.of("")[0].grad_output, out)
    assert not difference(reference.of("m0")[0].grad_output, 5 * out)
    assert not difference(reference.of("m0")[0].grad_input, (10 * out,))


def test_factors_of_a_container_and_its_part_multiply_and_are_seen():
    child = Module(("v0",), (Compute("v1", "{0} * 2", ("v0",)),), "v1")
    root = Module(("v0",), (Call(0, ("v0",), 0, (("v1", ""),), 0),), "v1")
    factors = {("", "grad_output"): 3.0, ("m0", "grad_input"): 5.0, ("", "grad_input"): 7.0}
    program = Program((child, root), ("leaf",), ("x0",), 0, ("",))
    reference = by_hand(program, lambda name, kind, number: factors.get((name, kind), 1.0))
    out = slopes(X * 2, 40)
    assert not difference(reference.of("")[0].grad_output, 3 * out)
    assert not difference(reference.of("m0")[0].grad_input, (30 * out,))
    assert not difference(reference.of("")[0].grad_input, (210 * out,))
    assert not difference(reference.inputs, [210 * out])


def test_a_printed_network_runs_on_its_own(capsys):
    program = one(Compute("v1", "{0} * self.w", ("v0",)), result=("dict", ("v1", "None")), used=("['a']",))
    exec(compile(program.source, "<printed>", "exec", dont_inherit=True), {"__name__": "__main__"})
    reference = by_hand(program)
    assert str(reference.loss.item()) in capsys.readouterr().out


Told = dict[str, list[tuple[Any, Any]]]


def by_torchs_hooks(program: Program) -> Told:
    """What torch's full backward hooks are called with, by module."""
    run, told = Run(program), {}
    for name, module in run.model.named_modules():
        told[name] = []
        module.register_full_backward_hook(lambda module, *grads, name=name: told[name].append(grads))
    run.both()
    return told


def in_a_tuple(output: Any) -> tuple[Any, ...]:
    return output if isinstance(output, tuple) else (output,)


# torch says that no input needs a gradient.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@law(networks(PLAIN), examples=40)
def test_torchs_full_backward_hooks_say_the_same(program):
    told = by_torchs_hooks(program)
    reference = by_hand(program)
    for name, calls in told.items():
        wanted = [(call.grad_input, in_a_tuple(call.grad_output)) for call in reference.of(name) if call.reached]
        over, left = unmatched(calls, wanted, difference)
        # torch fills up with zeros and goes on with these where nothing came from; and it tells nothing
        # where no gradient comes to an input that needs one.
        over = [one for one in over if not zeros_or_none(one[1])]
        left = [one for one in left if not zeros_or_none(one[0])]
        assert not over and not left, f"{name!r}: {list(map(shown, over))}, wanted {list(map(shown, left))}"
