"""Tree: from the facts of a run to rows, one for each call of a module, each thing counted once.

Upstream: the facts of a backend. Downstream: Summary, which shows rows and adds them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from hookline.backends.facts import CallFact, ModuleFact, ParameterFact


@dataclass(slots=True)
class Cost:
    """What adds up over rows."""

    params: int = 0
    trainable_params: int = 0
    param_bytes: int = 0
    trainable_bytes: int = 0
    macs: int = 0
    activation_bytes: int = 0
    saved_bytes: int = 0

    def __iadd__(self, other: Cost) -> Cost:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))
        return self

    def __add__(self, other: Cost) -> Cost:
        total = Cost()
        total += self
        total += other
        return total


@dataclass(slots=True)
class Row:
    """A call of a module, or a module that is not called, with what is below it.

    `own` is what it costs itself, `whole` with everything below. A parameter is counted in the first
    row that has it. `call` numbers the calls of one module from 1; it is 0 where there is none.
    """

    name: str
    type: str
    depth: int = 0
    call: int = 0
    input: Any = None
    kwargs: Any = None
    output: Any = None
    returned: bool = False
    note: str = ""
    own: Cost = field(default_factory=Cost)
    whole: Cost = field(default_factory=Cost)
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    children: list[Row] = field(default_factory=list)

    def walk(self) -> Iterator[Row]:
        """This row and all below it, in order of execution."""
        yield self
        for child in self.children:
            yield from child.walk()

    def cut(self, depth: int) -> Row:
        """A copy down to that depth; what was below a row is the row's own there."""
        copy = Row(**{part.name: getattr(self, part.name) for part in fields(self)})
        if self.depth >= depth:
            copy.own, copy.children = self.whole, []
        else:
            copy.children = [child.cut(depth) for child in self.children]
        return copy


def tree_of(modules: list[ModuleFact], calls: list[CallFact] | None) -> Row:
    """The root row: of a run where there are calls, of the model's structure where there are none."""
    builder = _Builder(modules)
    if calls:
        builder.add_calls(calls)
        builder.add_uncalled()
    else:
        builder.add_structure()
    root = builder.root
    assert root is not None
    builder.count(root)
    return root


class _Builder:
    def __init__(self, modules: list[ModuleFact]) -> None:
        self.root: Row | None = None
        self._modules = {module.name: module for module in modules}
        self._known = self._modules | {alias: module for module in modules for alias in module.aliases}
        self._row_of: dict[str, Row] = {}  # by a module's name: the row in which it stands first
        self._module_of: dict[int, ModuleFact] = {}
        self._owner: dict[int, str] = {}
        self._calls: dict[str, int] = {}

    # From a run

    def add_calls(self, calls: list[CallFact]) -> None:
        rows: list[Row] = []
        holders: dict[tuple[int, str], Row] = {}
        for call in calls:
            parent = None if call.parent is None else rows[call.parent]
            row = self._row(
                call.name,
                self._modules[call.module],
                parent if parent is None else self._under(parent, call, holders),
            )
            row.call = self._calls[call.module] = self._calls.get(call.module, 0) + 1
            row.input, row.kwargs, row.output = call.input, call.kwargs, call.output
            row.own.macs = call.macs
            row.own.activation_bytes, row.own.saved_bytes = call.activation_bytes, call.saved_bytes
            if row.call > 1:
                row.note = f"call {row.call}"
            row.returned = call.finished is not None
            if not row.returned:
                row.note = "did not return"
            rows.append(row)

    def _under(self, parent: Row, call: CallFact, holders: dict[tuple[int, str], Row]) -> Row:
        """The row to put a call under: its caller's, or that of a ModuleList in between."""
        prefix = f"{parent.name}." if parent.name else ""
        between = call.name.removeprefix(prefix).split(".")[:-1] if call.name.startswith(prefix) else []
        for number in range(len(between)):
            name = prefix + ".".join(between[: number + 1])
            module = self._known.get(name)
            if module is None or module.callable:
                continue
            key = id(parent), name
            if key not in holders:
                holders[key] = self._row(name, module, parent)
            parent = holders[key]
        return parent

    def add_uncalled(self) -> None:
        for name, module in self._modules.items():
            if name not in self._row_of:
                holds_nothing = not module.callable and not module.parameters
                if holds_nothing and any(other.startswith(f"{name}.") for other in self._row_of):
                    continue  # a ModuleList whose parts somebody else called
                row = self._row(name, module, self._row_of[self._above(name)])
                row.note = module.hidden or ("never called" if module.callable else "")

    def _above(self, name: str) -> str:
        """The nearest module above that has a row."""
        while name:
            name = name.rpartition(".")[0]
            module = self._known.get(name)
            if module is not None and module.name in self._row_of:
                return module.name
        return ""

    # From the structure alone

    def add_structure(self) -> None:
        for name, module in self._modules.items():
            above = None if not name else self._row_of[self._above(name)]
            self._row(name, module, above)
        for module in self._modules.values():
            for alias in module.aliases:
                holder = self._known.get(alias.rpartition(".")[0])
                # The parts of something shared are not shown again.
                if holder is not None and alias.rpartition(".")[0] == holder.name:
                    self._row(alias, module, self._row_of[holder.name]).note = f"is {module.name}"

    # Both

    def _row(self, name: str, module: ModuleFact, above: Row | None) -> Row:
        row = Row(name, module.type, 0 if above is None else above.depth + 1)
        if above is None:
            self.root = row
        else:
            above.children.append(row)
        self._row_of.setdefault(module.name, row)
        self._module_of[id(row)] = module
        return row

    def count(self, row: Row) -> tuple[set[str], set[str]]:
        """Fills `own` and `whole`, and the dtypes and devices of parameters; each parameter once."""
        module = self._module_of[id(row)]
        tied = []
        if self._row_of[module.name] is row:
            for parameter in module.parameters:
                first = self._owner.setdefault(parameter.key, f"{module.name}.{parameter.name}".lstrip("."))
                if first == f"{module.name}.{parameter.name}".lstrip("."):
                    _add(row.own, parameter)
                else:
                    tied.append(f"{parameter.name} is {first}")
        if tied:
            row.note = "; ".join([*tied, *([row.note] if row.note else [])])
        dtypes = {parameter.dtype for parameter in module.parameters}
        devices = {parameter.device for parameter in module.parameters}
        row.whole = Cost() + row.own
        for child in row.children:
            below = self.count(child)
            dtypes |= below[0]
            devices |= below[1]
            row.whole += child.whole
        row.dtypes, row.devices = tuple(sorted(dtypes)), tuple(sorted(devices))
        return dtypes, devices


def _add(cost: Cost, parameter: ParameterFact) -> None:
    cost.params += parameter.count
    cost.param_bytes += parameter.nbytes
    if parameter.trainable:
        cost.trainable_params += parameter.count
        cost.trainable_bytes += parameter.nbytes
