"""Site: an address in a model, the name of a module and what is read there.

Written as text it is `name:kind`; the kind may be left out and is then the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hookline.errors import InvalidArgument

KINDS = ("input", "kwargs", "output", "grad_input", "grad_kwargs", "grad_output")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a value crosses: a module's dotted name ("" is the model itself) and a kind.

    >>> Site.parse("encoder.3.mlp:grad_output")
    Site(name='encoder.3.mlp', kind='grad_output')
    >>> str(Site("encoder.3.mlp"))
    'encoder.3.mlp:output'
    """

    name: str
    kind: str = "output"

    def __str__(self) -> str:
        return f"{self.name}:{self.kind}"

    @classmethod
    def parse(cls, text: str) -> Site:
        """The Site that `text` names; InvalidArgument where the kind is not one of KINDS."""
        name, colon, kind = text.rpartition(":")
        if not colon:
            return cls(text)
        if kind not in KINDS:
            raise InvalidArgument(
                f"{text!r} asks for {kind!r}, which is not a kind of value; "
                f"the kinds are {', '.join(KINDS)}. Write it as 'name:kind'."
            )
        return cls(name, kind)


class Recorded:
    """What has an attribute for each kind: a recorded site or call, whose value `edit` may put elsewhere."""


def label_of(row: Mapping[str, Any]) -> str:
    """What a row of statistics is shown as: its site, with the number of the call from the second on.

    >>> label_of({"site": "fc", "call": 1}), label_of({"site": "", "call": 0})
    ('fc #1', '(model)')
    """
    name = row["site"] or "(model)"
    return f"{name} #{row['call']}" if row["call"] else name
