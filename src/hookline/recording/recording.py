"""Recording: what a `record` block kept, to read, audit, save and load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, overload

from hookline.audit import Audit, AuditEntry
from hookline.errors import NoSuchSite
from hookline.recording.calls import SiteRecord
from hookline.recording.saving import save_recording

T = TypeVar("T")


class Recording(Mapping[str, SiteRecord]):
    """What was recorded, by site: a mapping of the sites that fired, in order of execution.

    A site that was asked for and stayed silent is no member of it, but can be looked up: its `why` tells why. Two
    recordings are equal if they are the same object.
    """

    __eq__ = object.__eq__  # a mapping's own would compare tensors
    __hash__ = object.__hash__

    def __init__(self, sites: list[SiteRecord], backend: str, fired: dict[str, SiteRecord] | None = None) -> None:
        self.backend = backend
        self._settle: Callable[[], None] | None = None  # while the block is open: waits for what is on its way
        self._asked = {site.name: site for site in sites}
        self._fired = {} if fired is None else fired
        self._aliases = {alias: site for site in sites for alias in site.aliases}

    @property
    def names(self) -> list[str]:
        """The names of the sites that fired, in the order in which they first did."""
        self._settled()
        return list(self._fired)

    @property
    def ops(self) -> list[str]:
        """The names of those that are operators, `layer1.0.conv1/convolution`, in the same order."""
        return [name for name, site in self._fired.items() if site.op]

    def __getitem__(self, name: str) -> SiteRecord:
        """The site of that name, or one that goes by it; NoSuchSite where none was asked for."""
        self._settled()
        site = self._asked.get(name) or self._aliases.get(name)
        if site is None:
            raise NoSuchSite(name, self._asked, "(These are the sites that this recording was asked for.)")
        return site

    @overload
    def get(self, name: str, default: None = None) -> SiteRecord | None: ...
    @overload
    def get(self, name: str, default: T) -> SiteRecord | T: ...
    def get(self, name: str, default: T | None = None) -> SiteRecord | T | None:
        """The site of that name if it fired, else `default`."""
        if name not in self:
            return default
        return self[name]

    def __contains__(self, name: object) -> bool:
        self._settled()
        return name in self._fired or (name in self._aliases and self._aliases[name].name in self._fired)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        self._settled()
        return len(self._fired)

    def audit(self) -> Audit:
        """For every site that was asked for: fired so many times, or never, and why."""
        self._settled()
        return Audit(AuditEntry(site.name, len(site.calls), site.why) for site in self._asked.values())

    def save(self, path: str | Path) -> Path:
        """Writes the recording to one safetensors file; `load_recording` reads it back."""
        return save_recording(self, Path(path))

    def _add(self, site: SiteRecord) -> None:
        """Takes a site that was not known when the recording began: an operator that ran."""
        self._asked[site.name] = site

    def _fire(self, site: SiteRecord) -> None:
        """Notes that `site` fired for the first time."""
        self._fired.setdefault(site.name, site)

    def _settled(self) -> None:
        if self._settle is not None:
            self._settle()

    def __repr__(self) -> str:
        return f"<recording of {len(self._fired)} sites, {sum(len(s.calls) for s in self._asked.values())} calls>"
