"""Builds what is written in C where there is a compiler; without one, hookline installs without it."""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """The kernel is a shared library for ctypes: it has no PyInit function that could be exported."""

    def get_export_symbols(self, ext):
        return [] if ext is kernel else super().get_export_symbols(ext)


# No -march: the kernel finds out at run time what the processor can. Comparisons may be reordered (they
# raise no exceptions that anybody sees), or the compiler does not vectorise them.
FLAGS = [] if sys.platform == "win32" else ["-std=c11", "-O3", "-fno-trapping-math", "-fno-math-errno"]

kernel = Extension(
    "hookline.lines._kernel",
    sources=["src/hookline/lines/_kernel.c"],
    depends=[f"src/hookline/lines/_kernel{part}.h" for part in ("", "_blocks", "_layout")],
    extra_compile_args=FLAGS,
    optional=True,
)

again = Extension("hookline.backends._again", sources=["src/hookline/backends/_again.c"], optional=True)

setup(ext_modules=[kernel, again], cmdclass={"build_ext": BuildLibrary})
