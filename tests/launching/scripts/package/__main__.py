"""The package itself."""

import sys

from .part import told

print(told(__name__), __package__, __spec__.name, __file__, sys.argv, sys.path[0])
if "fail" in sys.argv:
    raise ValueError("asked for")
