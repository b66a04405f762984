"""Imports inside of hookline: no cycles, and none put off to a function but for a written reason."""

import ast

from tests.support.paths import SOURCE

LATE = {
    "hookline": "the command line answers --help without loading anything",
    "hookline.launching.attaching": "numpy, which a script may prepare for, is loaded when it trains",
    "hookline.launching.crash": "nothing is loaded before a script that it does not load itself",
    "hookline.launching.judging": "nothing is loaded before a script that it does not load itself",
    "hookline.launching.telling": "nothing is loaded before a script that it does not load itself",
    "hookline.page.serve": "a server is loaded by who wants the page",
    "hookline.plots.overview": "matplotlib is optional",
    "hookline.probing.making": "torch is loaded by who probes a model of it",
    "hookline.runfiles.store": "SQLite is loaded by who stores",
    "hookline.runs.diagnosing": "SQLite is loaded by who reads a run: the baseline of a watch",
}
"""What may be imported inside of a function, and why."""


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in SOURCE.rglob("*.py")}


def below(nodes):
    return {id(inner) for node in nodes for inner in ast.walk(node)}


def imports(path):
    """(module of hookline, whether a function imports it); but for what only a type checker sees."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    unseen = below(
        statement
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
    )
    late = below(node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    for node in nodes:
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in MODULES else node.module for name in full]
        else:
            continue
        yield from ((name, id(node) in late) for name in found if name in MODULES)


GRAPH = {name: {found for found, _ in imports(path)} - {name} for name, path in MODULES.items()}


def reachable(start):
    seen, left = set(), [start]
    while left:
        for name in GRAPH[left.pop()] - seen:
            seen.add(name)
            left.append(name)
    return seen


def test_no_module_imports_itself_through_others():
    after = {name: reachable(name) for name in GRAPH}
    cycles = {
        frozenset({name, *(other for other in after[name] if name in after[other])})
        for name in GRAPH
        if name in after[name]
    }
    assert [sorted(cycle) for cycle in cycles] == []


def test_imports_inside_of_functions_have_a_reason():
    late = {name: {found for found, is_late in imports(path) if is_late} for name, path in MODULES.items()}
    wrong = {name: sorted(found - set(LATE)) for name, found in late.items() if found - set(LATE)}
    assert wrong == {}
    assert set(LATE) == {found for each in late.values() for found in each}, "a reason for what nobody does"
