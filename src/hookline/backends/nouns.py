"""Nouns: what the methods of a backend take and give back.

What a framework calls these is its own affair: the names are for whoever reads, not for a type checker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Model: TypeAlias = Any
"""What a user hands over: the module at the root of a tree."""

Module: TypeAlias = Any
"""A part of a model that is called; the model itself is one."""

Tensor: TypeAlias = Any
"""An instance of `Backend.tensor`."""

Tree: TypeAlias = Any
"""Tensors in a structure (`hookline.trees`): arguments, an output; also a single tensor."""

GradSink = Callable[[Sequence[int], Tensor], "Tensor | None"]
"""Called with (slots, gradient): the positions at which one tensor occurs. A result replaces the gradient."""

JointSink = Callable[[list[Tensor]], "list[Tensor] | None"]
"""Takes the gradients of all places, None where there is none; may return others."""

HeardSite = tuple[str, Module, Callable[[str, Tensor], None]]
"""The name of a site, its module, and a sink for (name of a parameter, its gradient)."""

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape, and strides in elements."""

Address = tuple[int, int, str, Layout | None]
"""Address, number of elements, dtype ("float32", "float64", "float16" or "bfloat16") and the layout of a
tensor's values in this process's memory; None as layout where they lie behind each other."""

Copying = tuple[object, object, Callable[..., Any], type, Callable[[Tensor], bool], Callable[[], bool]]
"""What C needs to keep a tensor (`_direct_keep.h`): the function that does, DLPack's table, the function that has
a tensor made of what is kept, the class of tensors that the table tells of, a function that says of a tensor
whether its memory has other signs, and one that says whether what is made now is of use only now."""

ExchangeRule = tuple[object, tuple[type, ...], Callable[[Tensor], bool]]
"""DLPack's table of C functions, the types of tensors that it may be asked of, and what tells that the memory of
such a tensor has other values than it."""
