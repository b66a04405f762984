"""Facts: what a run's file tells of itself, checked before anybody uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from hookline.errors import RunError
from hookline.rows import SERIES
from hookline.runfiles.frames import LARGEST, Damaged
from hookline.runfiles.schema import StoredRecording
from hookline.wiring import Wiring

LONGEST = 10_000
"""So long a name may be."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _are_modules(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 and all(_is_name(part) for part in one) for one in value
    )


def _is_audit(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, list)
        and len(one) == 3
        and _is_name(one[0])
        and _is_whole(one[1])
        and (one[2] is None or _is_text(one[2]))
        for one in value
    )


def _is_wiring(value: Any) -> bool:
    try:
        Wiring.from_json(value)
    except RunError:
        return False
    return True


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


TEXTS = ("hookline", "python", "started", "ended", "end", "error", "journal", "by", "backend")
KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "version": (_is_whole, "a whole number"),
    "rank": (_is_whole, "a whole number"),
    "process": (_is_whole, "a whole number"),
    "dropped": (_is_whole, "a whole number"),
    "sites": (_are_modules, "a list of names and types"),
    "config": (_is_dict, "a dict of settings"),
    "audit": (_is_audit, "a list of names, numbers and reasons"),
    "wiring": (_is_wiring, "what Wiring.to_json gives"),
    **dict.fromkeys(TEXTS, (_is_text, "a text")),
}
"""What is used of the facts, and what each has to be; others are handed on as they are."""


def checked_facts(found: dict[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """The facts from their JSON, and what is wrong with those that are left out."""
    facts: dict[str, Any] = {}
    wrong: list[str] = []
    for name, text in found.items():
        try:
            value = loaded(text)
            check, wanted = KINDS.get(name, (None, ""))
            if check is not None and not check(value):
                raise Damaged(f"expected {wanted}")
            facts[name] = value
        except Damaged as error:
            wrong.append(f"the fact {name[:100]!r} is left out: {error}")
    if "rank" not in facts and (match := re.match(r"rank(\d{1,9})-", file)):
        facts["rank"] = int(match[1])
    return facts, wrong


def checked_series(site: Any, kind: Any, call: Any, mode: Any) -> dict[str, Any]:
    """{site, kind, call, mode}; Damaged where they are not names and a number."""
    if not all(_is_name(name) for name in (site, kind, mode)):
        raise Damaged(f"its names are no texts of at most {LONGEST:,} letters")
    if not _is_whole(call):
        raise Damaged("the number of its call is no number")
    return dict(zip(SERIES, (site, kind, call, mode), strict=True))


def checked_recording(file: Any, step: Any, made: Any, sites: Any) -> StoredRecording:
    """What is noted of a recording; Damaged where it is something else, or its file is not in the run's folder."""
    if not isinstance(file, str) or not re.fullmatch(r"[\w.-]{1,200}\.safetensors", file) or file[0] == ".":
        raise Damaged(f"{str(file)[:100]!r} is no name of a recording's file")
    if not (step is None or _is_whole(step)) or not _is_text(made):
        raise Damaged("its step or time is none")
    names = loaded(sites)
    if not isinstance(names, list) or not all(_is_name(name) for name in names):
        raise Damaged("its sites are no list of names")
    return StoredRecording(file, step, made, names)


def loaded(text: Any) -> Any:
    """What JSON says; Damaged where it is none. NaN and Infinity, which JSON has not, are texts."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"it is no JSON ({error})") from error
