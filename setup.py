"""Builds what is written in C where there is a compiler; without one, hookline installs without it.

All parts are built for CPython's stable ABI: one wheel for each platform serves Python 3.11 and all later ones.
"""

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Free-threaded Pythons have another ABI, which is not stable: there, each version builds its own.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")

# No -march: the kernel finds out at run time what the processor can. Comparisons may be reordered (they
# raise no exceptions that anybody sees), or the compiler does not vectorise them.
FLAGS = [] if sys.platform == "win32" else ["-std=c11", "-O3", "-fno-trapping-math", "-fno-math-errno"]

# Loops that say so may add in another order; nothing of OpenMP is needed when they run.
SUMS = [] if sys.platform == "win32" else ["-fopenmp-simd"]

# Nothing for a debugger, where the paths of the machine that builds would be told.
BARE = [] if sys.platform == "win32" else ["-g0"]


def headers(name):
    """The headers of a part."""
    return sorted(map(str, Path("src/hookline").glob(f"{name}*.h")))


class BuildLibrary(build_ext):
    """The kernel is a shared library for ctypes: it has no PyInit function that could be exported."""

    def build_extensions(self):
        # Some Pythons have the folder of their own library searched, which nothing here needs.
        if linker := getattr(self.compiler, "linker_so", None):
            self.compiler.linker_so = [part for part in linker if not part.startswith("-Wl,-rpath")]
        super().build_extensions()

    def get_export_symbols(self, ext):
        return [] if ext is kernel else super().get_export_symbols(ext)


kernel = Extension(
    "hookline.lines._kernel",
    sources=["src/hookline/lines/_kernel.c"],
    depends=headers("lines/_kernel"),
    extra_compile_args=[*FLAGS, *BARE],
    optional=True,
    py_limited_api=STABLE,
)


def part(name, *flags, depends=()):
    """A module for Python, of the one C file of that name and its headers."""
    return Extension(
        f"hookline.{name.replace('/', '.')}",
        sources=[f"src/hookline/{name}.c"],
        depends=[*headers(name), *headers("backends/_object"), *depends],
        extra_compile_args=[*flags, *BARE],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
        optional=True,
        py_limited_api=STABLE,
    )


setup(
    ext_modules=[
        kernel,
        part("backends/_direct"),
        part("backends/_again"),
        part("backends/_tap", depends=headers("backends/_direct")),
        part("backends/_under_way"),
        part("diffs/_apart", *FLAGS, *SUMS),
        part("backends/_entries"),
        part("backends/torch/eager/_calls"),
        part("backends/torch/grads/_simple"),
    ],
    cmdclass={"build_ext": BuildLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
