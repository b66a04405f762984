"""The command line: one file here for each command, found by its name.

A command's file has a click command called `command`. It imports nothing heavy at its top, and uses
the public names of hookline only; `hookline --help` imports no framework.
"""
