"""Looking: at a few steps of a training, what its loss depends on and what it does not.

At such a step each module tells which nodes made its output, and the loss's graph is walked when backward is
called: what is not met was computed in vain. Of one step the operators are looked at as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Backend, FunctionTap, Label, Needs, Placement
from hookline.backends.undoing import Undoing
from hookline.backends.wired import Node, OperatorLook, Walked, WiringSource
from hookline.wiring import Look, Wiring

MOST_LOOKS = 5
SECOND_LOOK = 10
"""So many looks there are; the second at this recorded step, others when gradients go missing or come back."""
MOST_BACKWARDS = 8
MOST_NODES = 64
"""So many backwards of a step are walked, and so many nodes of a module's outputs are remembered."""
OUTPUTS = Needs(inputs=False, replaces=False)
INPUTS = Needs(outputs=False, replaces=False)


class Output:
    """What is known of a module's outputs at the step that is looked at."""

    __slots__ = ("could", "nodes")

    def __init__(self) -> None:
        self.nodes: set[Node] = set()
        self.could = False


class Looking:
    """Makes the looks, and notes what they show in a wiring."""

    def __init__(
        self,
        wiring: Wiring,
        source: WiringSource | None,
        backend: Backend,
        line: Callable[[], str],
    ) -> None:
        self._wiring, self._source, self._backend, self._line = wiring, source, backend, line
        self.leaves: set[int] = set()
        """The ids of what the losses of this step depend on; empty where nobody looked."""
        self._taps: Undoing | None = None
        self._outputs: dict[str, Output] = {}
        self._walked: list[Walked] = []
        self._depends: list[bool | None] = []
        self._operators: OperatorLook | None = None
        self._looked_at_operators = False
        self._eval: OperatorLook | None = None
        self._eval_is_over = False
        self._steps = 0
        self._is_wanted = True
        self._without: set[str] | None = None

    # Which steps

    def switch(self, wanted: bool, modules: Mapping[str, Any], safely: Callable[..., None]) -> None:
        """The next step is recorded, or not: taps for a look go on, or off.

        `safely(function, ...)` calls one and raises nothing. It is handed over here and not kept: a watch that is
        over has no cycles.
        """
        looks = wanted and self._is_wanted and len(self._wiring.looks) < MOST_LOOKS
        looks = looks and (self._taps is not None or self._may_train())
        if looks and self._taps is None:
            self._begin(modules, safely)
        elif looks and self._taps is not None and self._walked and self._is_compiled():
            self._taps.close()  # compiled since: taps that go off while it is called have that call unseen
        elif not looks and self._taps is not None:
            self.close()

    def _may_train(self) -> bool:
        return self._source is not None and self._source.makes_graphs()

    def gradients(self, without: set[str]) -> None:
        """The parameters that had no gradient at a step: where they are others than before, it is looked again."""
        self._steps += 1
        if (self._without is not None and without != self._without) or self._steps == SECOND_LOOK - 1:
            self._is_wanted = True
        self._without = without

    def _begin(self, modules: Mapping[str, Any], safely: Callable[..., None]) -> None:
        assert self._source is not None
        self._taps = taps = Undoing()
        if self._source.is_compiled():
            return  # taps would have it compiled anew; the loss is looked at all the same
        label = partial(Label, "watch", "watching of the wiring", placed_at=self._line())
        root = FunctionTap(partial(safely, self._call_begins), label(""), after=False, needs=INPUTS)
        placements = [Placement(modules[""], root)] if "" in modules else []
        for name, module in {id(one): (name, one) for name, one in reversed(list(modules.items()))}.values():
            tap = FunctionTap(partial(safely, self._saw, name), label(name), kwargs=False, needs=OUTPUTS)
            placements.append(Placement(module, tap))
        if not self._looked_at_operators:
            self._operators = self._source.look_at_operators()
        self._backend.attach(taps, placements)

    def _saw(self, name: str, module: Any, args: Any, output: Any) -> None:
        if self._source is None or self._backend.in_recompute(True):
            return
        if self._operators is not None:
            self._operators.module_ended(name, output)
        nodes, could = self._source.nodes_of(output)
        known = self._outputs.setdefault(name, Output())
        known.could = known.could or could
        if len(known.nodes) < MOST_NODES:
            known.nodes.update(nodes)

    def _call_begins(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._operators is None or self._walked or not self._backend.is_training(module):
            return
        if self._is_compiled():  # since the taps were placed
            self._operators = None
        else:
            self._operators.start((args, kwargs))

    def _is_compiled(self) -> bool:
        return self._source is None or self._source.is_compiled()

    def close(self) -> None:
        """Nothing is looked at any more."""
        for one in (self._operators, self._eval):
            if one is not None:
                one.stop()
        self._eval = None
        if self._taps is not None:
            self._taps.close()
            self._taps = None

    # Dropout in eval mode

    def begin_eval(self, modules: Mapping[str, Any]) -> None:
        """A forward in eval mode begins; the first one is looked at, if every module is in that mode."""
        if self._eval_is_over or self._source is None:
            return
        if any(self._source.modes(modules.values())):
            return
        if self._eval is None:
            self._eval = self._source.look_at_operators()
        if self._eval is None:
            self._eval_is_over = True
        else:
            self._eval.start(evaluating=True)

    def end_eval(self) -> None:
        """It has ended."""
        if self._eval is not None and not self._eval.is_elsewhere():
            self._eval.stop()
            self._wiring.dropout_in_eval += self._eval.dropped
            self._eval, self._eval_is_over = None, True

    # A look

    def loss(self, tensors: tuple[Tensor, ...], params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A backward begins; parameters that it comes to and that the model holds in lists only."""
        if self._taps is None or self._source is None or len(self._walked) >= MOST_BACKWARDS:
            return {}
        if self._operators is not None:
            self._depends.append(self._operators.on_input(tensors))
            self._operators.stop()
        walked = self._source.walked(tensors)
        self._walked.append(walked)
        self.leaves |= walked.leaves
        return self._note_outside(params, walked.leaves)

    def finish(
        self, step: int, modules: Mapping[str, Any], params: Mapping[str, Tensor], grads: set[str] | None
    ) -> bool:
        """The step is over, and the parameters in `grads` had a gradient; whether there was a look."""
        walked, self._walked = self._walked, []
        outputs, self._outputs = self._outputs, {}
        depends, self._depends = self._depends, []
        self.leaves = set()
        if self._operators is not None:
            self._operators.stop()
        if not walked:
            return False
        self._is_wanted = False
        operators = self._operators
        self._operators, self._looked_at_operators = None, True
        self._judge(step, walked, outputs, depends, operators, modules, params, grads)
        self.close()
        return True

    def _judge(
        self,
        step: int,
        walked: list[Walked],
        outputs: dict[str, Output],
        depends: list[bool | None],
        operators: OperatorLook | None,
        modules: Mapping[str, Any],
        params: Mapping[str, Tensor],
        grads: set[str] | None,
    ) -> None:
        assert self._source is not None
        leaves = {one for each in walked for one in each.leaves}
        maybe = {one for each in walked for one in each.maybe}
        nodes = {one for each in walked for one in each.nodes}
        is_whole = all(one.is_whole for one in walked)
        divided = [one.divided for one in walked]
        look = Look(
            step,
            divided=True if True in divided else None if None in divided else False,
            operators=walked[0].operators,
            is_overlap=walked[0].is_overlap,
        )
        self._wiring.looks.append(look)
        for name, tensor in params.items():
            self._wiring.params[name].in_loss = _either(
                self._wiring.params[name].in_loss,
                _is_in(id(tensor), leaves, maybe, is_whole, None if grads is None else name in grads),
            )
        known = [self._wiring.params[name].in_loss for name in params]
        look.on_params = True if True in known else None if None in known or not known else False
        look.on_input = True if True in depends else None if None in depends or not depends else False
        for name, output in outputs.items():
            if output.nodes:
                now = bool(output.nodes & nodes)
                module = self._wiring.modules[name]
                module.in_loss = _either(module.in_loss, now if now or (is_whole and not maybe) else None)
        if operators is not None:
            look.broadcast, look.double_softmax = operators.broadcast, operators.double_softmax
            look.risky, look.activations = operators.risky, operators.activations
            look.padding = operators.padding
        for name, tensor in params.items():
            if self._wiring.params[name].in_loss is False and self._source.trainable([tensor]) == [True]:
                self._note_cut(name, tensor, outputs, operators)
        look.in_vain = self._in_vain(name for name in modules if name in outputs)
        if look.on_input is False and look.in_vain not in ([], [""]):
            look.on_input = None  # by a way that no operator shows: a list of numbers, an array of numpy

    def _in_vain(self, names: Iterable[str]) -> list[str]:
        """The outermost modules with parameters that the loss does not depend on, and that are not cut off."""
        ran = [name for name in names if self._wiring.modules[name].in_loss is not None]
        if "" in ran and not any(self._wiring.modules[name].in_loss for name in ran):
            return [""]  # also where a penalty on the weights reaches all of them
        cut = [one.module for one in self._wiring.params.values() if one.cut_line]  # used, and without gradients
        untrained = [one.module for one in self._wiring.params.values() if one.in_loss is False and one.trainable]
        return _outermost(
            name
            for name in ran
            if not self._wiring.modules[name].in_loss
            and any(_is_within(one, name) for one in untrained)
            and not any(_is_within(one, name) for one in cut)
        )

    def _note_cut(
        self, name: str, tensor: Tensor, outputs: Mapping[str, Output], operators: OperatorLook | None
    ) -> None:
        """Notes where the graph is cut between a parameter that gets no gradient and the loss."""
        parameter = self._wiring.params[name]
        if parameter.module not in outputs or (operators is None and parameter.cut_line):
            return  # what an earlier look knows, which may have seen the operators too, is more
        parameter.cut = self._cut_by_outputs(parameter.module, outputs)
        if operators is not None and (cut := operators.cut_of(tensor)) is not None:
            says_more = "has no graph" in parameter.cut
            parameter.cut = f"{cut.words}; {parameter.cut}" if says_more else cut.words
            parameter.cut_line = cut.line

    def _cut_by_outputs(self, module: str, outputs: Mapping[str, Output]) -> str:
        path = [module]
        while path[-1]:
            path.append(path[-1].rpartition(".")[0])
        called = [one for one in path if one in outputs and outputs[one].could]
        without = [one for one in called if not outputs[one].nodes]
        if without and without[0] == module:  # as far up as there is none
            top = module
            for one in called:
                if outputs[one].nodes:
                    break
                top = one
            return f"the output of {top or 'the model'!r} has no graph: it was detached or computed under no_grad"
        if without:
            return f"the output of {without[0] or 'the model'!r} has no graph: it was detached"
        unused = [one for one in called if self._wiring.modules[one].in_loss is False]
        return f"the loss does not depend on the output of {unused[-1] or 'the model'!r}" if unused else ""

    def _note_outside(self, params: Mapping[str, Tensor], leaves: set[int]) -> dict[str, Tensor]:
        """Notes modules and parameters that ran and that the model holds in lists only."""
        assert self._source is not None
        found: dict[str, Tensor] = {}
        known = {id(tensor) for tensor in params.values()}
        for place, (module, held) in self._source.outside().items():
            ran = {name: one for name, one in held.items() if id(one) in leaves and id(one) not in known}
            if not ran:
                continue
            if module is not None:
                noted = self._wiring.modules.setdefault(place, self._source.described(module))
                noted.outside, noted.counted, noted.in_loss = place, False, True
            for name, tensor in ran.items():
                owner = place if module is not None else place.rpartition(".")[0]
                noted_as = self._source.described_parameter(tensor, owner)
                self._wiring.params.setdefault(name, noted_as).in_loss = True
            found |= ran
        return found


def _is_in(key: int, leaves: set[int], maybe: set[int], is_whole: bool, has_grad: bool | None) -> bool | None:
    """Whether the loss depends on a tensor: by the graph, and where that does not show all, by the gradient."""
    if key in leaves:
        return True
    if key in maybe or not is_whole:
        return has_grad
    return False


def _either(before: bool | None, now: bool | None) -> bool | None:
    """What is known after one more look: what was in the loss once, is."""
    return True if before or now else now if before is None else before


def _is_within(name: str, outer: str) -> bool:
    return not outer or f"{name}.".startswith(f"{outer}.")


def _outermost(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        if not any(_is_within(name, one) for one in found):
            found.append(name)
    return found
