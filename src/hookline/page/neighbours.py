"""Neighbours: which user of this machine has sent a request, where the system tells.

A token that stays the same could leak to other users of the machine: one who listens on the page's port while
it is not served gets the browser's cookie. On Linux the kernel says whose connection it is, so that is of no use.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def is_stranger(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether a connection within this machine is of another user than this process's and root.

    False where the system does not tell, and for root, who serves to others.
    """
    if not hasattr(os, "getuid") or os.getuid() == 0:
        return False
    uid = _owner(client, server)
    return uid is not None and uid not in (0, os.getuid())


def _owner(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    ours, theirs = _written(*client), _written(*server)
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1] in ours and fields[2] in theirs:
                return int(fields[7])
    return None


def _written(host: str, port: int) -> set[str]:
    """How the kernel writes an address: words of four bytes in the machine's order, in hexadecimal."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    found = [address, *([mapped] if mapped else [])]
    if isinstance(address, ipaddress.IPv4Address):
        found.append(ipaddress.IPv6Address(f"::ffff:{address}"))
    return {f"{_hexadecimal(one.packed)}:{port:04X}" for one in found}


def _hexadecimal(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
