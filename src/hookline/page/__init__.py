"""The page: stored runs in a browser, served on this machine or written to one file.

Upstream: runs. Nothing here sees a model or imports a framework; what the browser gets is numbers.
"""
