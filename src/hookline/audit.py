"""Audit: for every site that was asked for, how often it fired, or why it did not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One site's account; `why` is None where there is nothing to say."""

    site: str
    fired: int
    why: str | None = None

    def __str__(self) -> str:
        return f"{self.site or '(model)'}: {times(self.fired)}" + (f", {self.why}" if self.why else "")


def times(count: int) -> str:
    """How often, in words."""
    return "never" if count == 0 else "once" if count == 1 else f"{count} times"


class Audit(list[AuditEntry]):
    """The entries of all sites; printed, the sites without remarks are counted only.

    >>> print(Audit([AuditEntry("a", 1), AuditEntry("b", 0, "it was never called")]))
    2 sites asked for, 1 fired, 1 silent
      b: never, it was never called
    """

    @property
    def silent(self) -> list[AuditEntry]:
        """The entries that never fired."""
        return [entry for entry in self if entry.fired == 0]

    def __getitem__(self, key):  # type: ignore[no-untyped-def]  # a name, or as in any list
        if isinstance(key, str):
            for entry in self:
                if entry.site == key:
                    return entry
            raise KeyError(key)
        return super().__getitem__(key)

    def __str__(self) -> str:
        silent = len(self.silent)
        head = f"{len(self)} sites asked for, {len(self) - silent} fired, {silent} silent"
        remarks = [f"  {entry}" for entry in self if entry.why]
        return "\n".join([head, *remarks])
