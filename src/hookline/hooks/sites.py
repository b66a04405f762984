"""sites: what a `where` means in a model, before anything is attached."""

from __future__ import annotations

from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.hooks.select import ModuleTree, select


class Sites(dict[str, str]):
    """The chosen sites in order of definition: {name: type of the module}; `aliases` has their other names.

    >>> Sites({"": "Net", "fc": "Linear", "out": "Linear"}, {"out": ("last", "head")})
    3 sites
      (model)  Net
      fc       Linear
      out      Linear  also last, head
    """

    def __init__(self, types: dict[str, str], aliases: dict[str, tuple[str, ...]]) -> None:
        super().__init__(types)
        self.aliases = aliases

    def __repr__(self) -> str:
        names = [name or "(model)" for name in self]
        wide, wide_type = max(map(len, names), default=0), max(map(len, self.values()), default=0)
        lines = [f"{len(self)} site{'s' if len(self) != 1 else ''}"]
        for shown, (name, kind) in zip(names, self.items(), strict=True):
            others = ", ".join(other or "(model)" for other in self.aliases.get(name, ()))
            text = f"  {shown:<{wide}}  {kind:<{wide_type}}" + (f"  also {others}" if others else "")
            lines.append(text.rstrip())
        return "\n".join(lines)


def sites(model: Model, where: Any = "**") -> Sites:
    """The Sites that `where` selects, as `record`, `watch` and the other verbs understand it; nothing is attached.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> sites(model)
    3 sites
      (model)  Sequential
      0        Linear
      1        ReLU
    >>> list(sites(model, torch.nn.ReLU))
    ['1']
    """
    targets = select(ModuleTree(resolve(model).named_modules(model)), where)
    return Sites(
        {target.name: type(target.module).__name__ for target in targets},
        {target.name: target.aliases for target in targets if target.aliases},
    )
