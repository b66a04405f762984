"""Runfiles: the files of a run, written and read. A run may come from anybody, and disks fail: see README.md."""
