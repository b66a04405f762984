"""Modules: the tree of a torch model, and why a module of it may stay silent."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.backends.torch.compat import uncompiled
from hookline.backends.torch.compiled.classes import remarks_on_compiled


def walk(module: nn.Module, name: str = "") -> list[tuple[str, nn.Module]]:
    """(name, module) for every module under every name, parents first; what torch.compile wrapped, unwrapped.

    `named_modules(remove_duplicate=False)` does the same and never ends where a module holds its parent.
    """
    found: list[tuple[str, nn.Module]] = []
    _walk_into(found, uncompiled(module), name, ())
    return found


def _walk_into(found: list[tuple[str, nn.Module]], module: nn.Module, name: str, above: tuple[int, ...]) -> None:
    # Into a list, not by generators in generators: each module would pass through all that are above it.
    found.append((name, module))
    if id(module) in above:
        return
    inside = (*above, id(module))
    dot = f"{name}." if name else ""
    for child, part in module._modules.items():
        if part is None or id(part) in above:
            continue
        inner = uncompiled(part)
        if inner._modules:
            _walk_into(found, inner, dot + child, inside)
        else:
            found.append((dot + child, inner))


def every_module(model: nn.Module) -> list[nn.Module]:
    """What `list(model.modules())` is, without a generator for each module."""
    found: dict[int, nn.Module] = {}
    waiting: list[nn.Module] = [model]
    while waiting:
        module = waiting.pop()
        if id(module) in found:
            continue
        if type(module).named_modules is not nn.Module.named_modules:  # it has parts of its own choice
            return list(model.modules())
        found[id(module)] = module
        if module._modules:
            waiting += [part for part in reversed(module._modules.values()) if part is not None]
    return list(found.values())


def why_silent(modules: dict[str, Any], name: str, silent: Collection[str] = ()) -> str | None:
    """What the code of the module and its parents tells of a module that never fired.

    The code of a parent that is `silent` itself tells nothing: it did not run, or nobody knows what did.
    """
    module = modules[name]
    if name and isinstance(modules.get(name.rpartition(".")[0]), torch.jit.ScriptModule):
        return "it is part of a ScriptModule, which runs without Python's module calls"
    if _was_replaced(modules, name):
        return REPLACED
    if has_no_forward(module):
        return f"{type(module).__name__} only holds modules and has no forward of its own"
    path, _, own = name.rpartition(".")
    while name:
        if path not in silent and (told := _told_by(modules[path], own, module)) is not None:
            return told
        if not path:
            break
        path, _, outer = path.rpartition(".")
        own = f"{outer}.{own}"
    return None


APPEARED = "it has got parts since the block began, and calls of these are not seen"
REPLACED = "another module has taken its place since the block began, and calls of that one are not seen"


def _was_replaced(modules: dict[str, Any], name: str) -> bool:
    """Whether the module that is now where `name` leads is another one."""
    path, _, own = name.rpartition(".")
    parent = modules.get(path) if name else None
    if parent is None or isinstance(parent, torch.jit.ScriptModule):  # TorchScript's parts stay
        return False
    now = parent._modules.get(own)
    return now is not None and uncompiled(now) is not modules[name]


def _told_by(parent: nn.Module, own: str, module: nn.Module) -> str | None:
    """What the forward of `parent` does with `self.<own>`, which is `module`, other than to call it."""
    kind: type = type(parent)
    uses = _uses_in_forward(kind)
    if (line := uses.get(f"{own}.forward()")) is not None:
        return f"{kind.__name__}.forward calls self.{own}.forward directly ({line})"
    if f"{own}()" in uses:
        return None  # it is called there: what else is done with it is not the reason
    if not any(use.startswith(f"{own}.") for use in uses):
        return None
    for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        methods = (line for use, line in uses.items() if use.startswith(f"{own}.{name}.") and use.endswith("()"))
        if (line := uses.get(f"{own}.{name}") or next(methods, None)) is not None:
            return (
                f"{kind.__name__}.forward takes self.{own}.{name} and computes with it itself ({line}); "
                "the module is never called"
            )
    return None


def remarks(modules: dict[str, Any], sites: Collection[str] | None = None) -> dict[str, str]:
    """What looking changed: {site: sentence}. With `sites` it may be left out of others."""
    found: dict[str, str] = {}
    looked_at = modules
    if sites is not None and 2 * len(sites) < len(modules):
        near = {name for site in sites for name in (site, site.rpartition(".")[0])}
        looked_at = {name: modules[name] for name in near if name in modules}
    for name, module in looked_at.items():
        if parts := module._modules:
            dot = f"{name}." if name else ""
            if changed := _changed_parts(modules, dot, module, parts):
                found |= {dot + own: REPLACED for own in changed.replaced}
                if changed.new:
                    found.setdefault(name, f"{APPEARED}: {changed.new}")
            if isinstance(module, nn.TransformerEncoderLayer) and not module.training and _can_fuse(module):
                found[name] = (
                    "torch runs this layer as one fused kernel in eval mode without gradients; with hooks in "
                    "it, it runs module by module, which can differ in the last digits"
                )
    for module, remark in remarks_on_compiled():
        found |= {name: remark for name, other in modules.items() if other is module}
    return found


class _Changed(NamedTuple):
    """The names of parts that are others than when the block began, and of those that were not there."""

    replaced: list[str]
    new: list[str]


def _changed_parts(modules: dict[str, Any], dot: str, module: nn.Module, parts: Any) -> _Changed | None:
    if isinstance(module, torch.jit.ScriptModule):  # TorchScript's parts stay
        return None
    changed = _Changed([], [])
    for own, part in list(parts.items()):
        before = modules.get(dot + own)
        if part is before or part is None:
            continue
        if before is None:
            changed.new.append(own)
        elif uncompiled(part) is not before:
            changed.replaced.append(own)
    return changed if changed.new or changed.replaced else None


def _can_fuse(layer: nn.TransformerEncoderLayer) -> bool:
    attention = layer.self_attn
    return bool(
        attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and layer.activation_relu_or_gelu
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


def has_no_forward(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):  # its class answers to no question about a forward
        return not hasattr(module, "forward")
    # The class first: `vars` of a module makes Python 3.11 build a real __dict__; see `compat.hook_dicts`.
    return type(module).forward is nn.Module.forward and "forward" not in vars(module)


@lru_cache(maxsize=512)
def _uses_in_forward(kind: type) -> dict[str, str]:
    """What a class's forward reads and calls of its self: {"fc.weight": "model.py:12", "fc()": "model.py:13"}.

    Whole chains only: who asks for `self.fc.weight.dtype` does not compute with the weight.
    """
    try:
        lines, start = inspect.getsourcelines(kind.forward)  # type: ignore[attr-defined]
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, AttributeError):  # no source: a C function, a REPL
        return {}
    file = (inspect.getsourcefile(kind.forward) or "").rpartition("/")[2]  # type: ignore[attr-defined]
    nodes = list(ast.walk(tree))
    itself = next((node.arg for node in nodes if isinstance(node, ast.arg)), "self")
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    chains = {
        node: dotted
        for node in nodes
        if isinstance(node, (ast.Attribute, ast.Subscript)) and (dotted := _dotted(node, itself))
    }
    links = {node.value for node in chains}
    uses: dict[str, str] = {}
    for node, dotted in chains.items():
        if node not in links:
            uses.setdefault(f"{dotted}()" if node in called else dotted, f"{file}:{start + node.lineno - 1}")
    return uses


def _dotted(node: ast.expr, itself: str) -> str:
    """`fc.weight` for the expression `self.fc.weight`, `layers.0.weight` for `self.layers[0].weight`."""
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == itself:
            return node.attr
        inner = _dotted(node.value, itself)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = _dotted(node.value, itself)
        return f"{inner}.{node.slice.value!s}" if inner else ""
    return ""
