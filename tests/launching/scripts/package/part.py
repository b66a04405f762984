"""A module of the package, and one that can be run."""

import sys


def told(name):
    return f"told {name}"


if __name__ == "__main__":
    from . import __doc__ as said

    print(said, sys.argv, __spec__.name, __package__)
