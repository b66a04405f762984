"""Has a build of torch for CUDA be imported without CUDA: `python cuda.py FOLDER_OF_TORCH`.

The index has torch for CUDA only, and its libraries are several gigabytes that nothing on a CPU ever calls. In
their place torch gets libraries of the same names in which every function says that there is no device.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

OF_CUDA = re.compile(r"_*(cu|nccl|nv)\w*")
NO_DEVICE = 100
"""What CUDA calls cudaErrorNoDevice."""

Wanted = dict[str, dict[str, set[str]]]
"""Of each library the functions that are wanted of it, by the version that they are asked for in."""


def stand_in(torch: Path) -> list[str]:
    """Makes the libraries that the torch in this folder misses; returns their names."""
    folder = torch / "lib"
    libraries = [path for path in sorted(folder.glob("*.so*")) if path.name.startswith(("libtorch", "libc10"))]
    missing = sorted({name for path in libraries for name in _needed(path)} - {p.name for p in folder.iterdir()})
    wanted: Wanted = defaultdict(lambda: defaultdict(set))
    for path in libraries:
        for name, version in _undefined(path):
            # Functions without a version may come from any library that is loaded.
            wanted[version if version in missing else missing[0]][version].add(name)
    for name in missing:
        _build(folder / name, wanted[name])
    return missing


def _needed(path: Path) -> list[str]:
    lines = _read("-d", path)
    names = [found[1] for line in lines if (found := re.search(r"\(NEEDED\).*\[(.+)\]", line))]
    return [name for name in names if OF_CUDA.match(name.removeprefix("lib"))]


def _undefined(path: Path) -> list[tuple[str, str]]:
    """(name, version) of each function of CUDA that a library wants from others."""
    rows = [line.split() for line in _read("--dyn-syms", path)]
    symbols = [row[7].split("@") for row in rows if len(row) > 7 and row[6] == "UND"]
    return [(name, "".join(version)) for name, *version in symbols if OF_CUDA.fullmatch(name)]


def _read(what: str, path: Path) -> list[str]:
    done = subprocess.run(["readelf", "-W", what, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _function(name: str) -> str:
    if name.endswith(("String", "Name")):
        return f'const char *{name}(void) {{ return "no CUDA"; }}\n'
    return f"long {name}(void) {{ return {NO_DEVICE}; }}\n"


def _build(path: Path, wanted: dict[str, set[str]]) -> None:
    functions = sorted({name for names in wanted.values() for name in names})
    code = "".join(map(_function, functions))
    versions = "".join(f"{v} {{ {'; '.join(sorted(names))}; }};\n" for v, names in wanted.items() if v)
    script = path.with_suffix(".versions")
    script.write_text(versions)
    own = [f"-Wl,--version-script={script}"] if versions else []
    command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", f"-Wl,-soname={path.name}", *own, "-o", str(path)]
    subprocess.run(command, input=code, text=True, check=True)
    script.unlink()


if __name__ == "__main__":
    print(*stand_in(Path(sys.argv[1])))
