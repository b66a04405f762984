"""Launching: attaches to a script that nobody edits, finds what trains in it, and tells the verdict at its end.

Until the script imports a framework, nothing here imports one, nor numpy: a script may set variables of the
environment first that decide how these begin.
"""
