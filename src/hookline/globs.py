"""Globs: patterns over dotted names. `*` and `?` stay within one part of a name, `**` crosses dots."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

WILD = re.compile(r"[*?\[]")
"""What tells a glob from a plain name."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name is meant by `pattern`, a plain name or a glob.

    The name of a model itself is empty: only "" and "**", which crosses everything, mean it.

    >>> [name for name in ("", "fc", "fc.weight") if matcher("*")(name)]
    ['fc']
    """
    matches = glob_pattern(pattern).fullmatch
    return lambda name: bool(matches(name)) and (bool(name) or pattern in ("", "**"))


@lru_cache(maxsize=256)
def glob_pattern(pattern: str) -> re.Pattern[str]:
    """The regex of a glob: `*` and `?` stay within one part of a name, `**` crosses dots.

    >>> [bool(glob_pattern("**.conv?").fullmatch(n)) for n in ("conv1", "layer1.0.conv2", "layer1.conv")]
    [True, True, False]
    """
    out, rest = "", pattern
    starts_part = True
    while rest:
        crosses = starts_part and rest.startswith("**.")
        starts_part = crosses or rest[0] == "."
        if crosses:
            out, rest = out + r"(?:.*\.)?", rest[3:]  # also at the top, where there is no dot
        elif rest.startswith("**"):
            out, rest = out + ".*", rest[2:]
        elif rest[0] == "*":
            out, rest = out + "[^.]*", rest[1:]
        elif rest[0] == "?":
            out, rest = out + "[^.]", rest[1:]
        elif rest[0] == "[" and (end := rest.find("]", 3 if rest[1:2] == "!" else 2)) > 0:
            # fnmatch knows the traps of brackets; like the others, they stay within one part.
            brackets = fnmatch.translate(rest[: end + 1]).removeprefix("(?s:").removesuffix(r")\Z")
            out, rest = out + r"(?!\.)" + brackets, rest[end + 1 :]
        else:
            out, rest = out + re.escape(rest[0]), rest[1:]
    return re.compile(out, re.DOTALL)
