"""Recording: what a `record` block kept, to read, audit, save and load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from hookline.audit import Audit, AuditEntry
from hookline.errors import NoSuchSite
from hookline.recording.calls import SiteRecord


class Recording:
    """What was recorded, by site; `names` are in order of execution."""

    def __init__(self, sites: list[SiteRecord], backend: str) -> None:
        self.backend = backend
        self.settle: Callable[[], None] | None = None  # while the block is open: waits for what is on its way
        self._asked = {site.name: site for site in sites}
        self._fired: dict[str, SiteRecord] = {}
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
        from hookline.recording.saving import save_recording

        return save_recording(self, Path(path))

    def add(self, site: SiteRecord) -> None:
        """Takes a site that was not known when the recording began: an operator that ran."""
        self._asked[site.name] = site

    def fire(self, site: SiteRecord) -> None:
        """Notes that `site` fired for the first time."""
        self._fired.setdefault(site.name, site)

    def _settled(self) -> None:
        if self.settle is not None:
            self.settle()

    def __repr__(self) -> str:
        return f"<recording of {len(self._fired)} sites, {sum(len(s.calls) for s in self._asked.values())} calls>"
