"""What a script sees of how it was started; no framework in it."""

import atexit
import os
import pickle
import sys
import threading
from pathlib import Path


class Thing:
    pass


print(__name__, __file__, __spec__, __package__, type(__loader__), __builtins__, __doc__, __annotations__)
print(sorted(name for name in globals() if name.startswith("__")), __loader__.path, __loader__.name)
print(sys.argv, sys.path, Path.cwd(), sys.flags, sys.stdin.read())
print(pickle.loads(pickle.dumps(Thing)) is Thing, sys.modules["__main__"].Thing is Thing)
print(
    sys.excepthook is sys.__excepthook__,
    [one.name for one in threading.enumerate()],
    "numpy" in sys.modules,
    "torch" in sys.modules,
)
atexit.register(lambda: print("last", "__file__" in globals(), Thing))
os.chdir("/")
