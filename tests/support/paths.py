"""Where things lie in this repository, wherever a test lies."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
"""A process that a test starts needs this in `sys.path` to import `tests`."""
SOURCE = ROOT / "src" / "hookline"
DATA = Path(__file__).parent / "data"
