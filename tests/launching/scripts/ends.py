"""Each way in which a script can end."""

import os
import sys

how = sys.argv[1]
print("ends", how)
if how == "text":
    sys.exit("text on standard error")
if how == "nothing":
    sys.exit()
if how == "zero":
    raise SystemExit(0)
if how == "object":
    sys.exit([1, 2])
if how.isdigit():
    sys.exit(int(how))
if how == "interrupt":
    raise KeyboardInterrupt
if how == "group":
    raise ExceptionGroup("two", [ValueError("one"), TypeError("other")])
if how == "context":
    try:
        {}["a"]
    except KeyError:
        int("b")
if how == "hook":
    sys.excepthook = lambda kind, error, trace: print(kind.__name__, error, trace.tb_lineno, trace.tb_next)
    raise ValueError("mine")
if how == "os._exit":
    sys.stdout.flush()
    os._exit(5)
if how == "fork":
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        sys.exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
