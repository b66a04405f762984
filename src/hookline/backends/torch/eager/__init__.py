"""Eager: the operators of models that run as they are written, told by a dispatch mode."""
