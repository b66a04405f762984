"""What holds the project together: imports, public names, private names of torch, docs."""

import ast
import inspect
import re
import subprocess
import sys

import pytest

import hookline
from hookline import rows
from tests.support.paths import ROOT, SOURCE

BASE = {
    *{"alone", "audit", "background", "bins", "branches", "bundle", "choosing", "errors", "globs", "guard"},
    *{"histograms", "leaving", "optional", "reporting", "rows", "schedule", "site", "tables", "trees"},
    *{"version", "wiring"},
}
MAY_USE = {
    **{name: set() for name in BASE},
    "background": {"errors", "leaving", "rows"},
    "leaving": {"reporting"},
    "bundle": {"errors"},
    "choosing": {"errors", "rows"},
    "optional": {"errors"},
    "schedule": {"errors"},
    "site": {"errors"},
    "histograms": {"errors"},
    "rows": {"audit", "histograms"},
    "tables": {"optional", "rows"},
    "trees": {"branches"},
    "wiring": {"errors"},
    "backends": BASE,
    "lines": BASE | {"backends"},
    "hooks": BASE | {"backends"},
    "runfiles": BASE,
    "recording": BASE | {"backends", "hooks", "runfiles"},
    "runs": BASE | {"diagnosis", "plots", "recording", "runfiles"},
    "sinks": BASE | {"runfiles"},
    "plots": BASE,
    "watching": BASE
    | {"backends", "diagnosis", "hooks", "lines", "plots", "recording", "runfiles", "runs", "sinks"},
    "diagnosis": BASE,
    "diffs": BASE | {"backends", "diagnosis", "hooks", "plots", "recording", "runs"},
    "page": BASE | {"diagnosis", "diffs", "runs"},
    "probing": BASE | {"backends", "diagnosis", "hooks", "summaries"},
    "summaries": BASE | {"backends", "hooks"},
    "launching": BASE | {"backends", "diagnosis", "page", "runfiles", "runs", "watching"},
    "fastai": BASE | {"backends", "hooks", "plots"},
    "integrations": BASE | {"fastai", "hooks", "sinks", "watching"},
    "exported": BASE | {"backends", "hooks"},
    "testing": BASE | {"backends"},
    "examples": {"optional"},  # a user's code, which knows nothing of hookline
    "cli": set(),  # public names only: `import hookline`
    "__main__": {"cli"},
}
WHERE_A_FRAMEWORK_IS_IMPORTED = {
    "torch": (
        *("backends/torch/", "testing/touched.py", "testing/zoo.py", "fastai/activations.py", "integrations/"),
        "probing/",
    ),
    "mindspore": ("backends/mindspore/",),
    "mxnet": ("backends/mxnet/",),
    "jax": ("backends/nnx/",),
    "flax": ("backends/nnx/",),
    "keras": ("integrations/",),
    "tensorflow": (),
}


def files():
    return sorted(SOURCE.rglob("*.py"))


def imported(path):
    """(module, line) of every import in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names if node.module == "hookline" else ():
                is_part = (SOURCE / alias.name).exists() or (SOURCE / f"{alias.name}.py").exists()
                yield f"hookline.{alias.name}" if is_part else "hookline", node.lineno
            if node.module != "hookline":
                yield node.module, node.lineno


def test_every_folder_imports_only_what_lies_upstream():
    wrong = []
    for path in files():
        folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module, line in imported(path):
            parts = module.split(".")
            if folder in ("cli", "testing") and module == "hookline":
                continue
            if folder != "__init__" and parts[0] == "hookline":
                assert len(parts) > 1, f"{path}:{line} imports the whole package"
                if parts[1] not in MAY_USE[folder] | {folder}:
                    wrong.append(f"{path.relative_to(ROOT)}:{line} reaches into {parts[1]!r}")
    assert not wrong, "\n".join(wrong)


def test_no_folder_may_import_what_it_does_not():
    """An arrow that nobody uses would be used one day, by mistake."""
    unused = {folder: may - BASE for folder, may in MAY_USE.items() if folder not in BASE}
    for path in files():
        folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module, _ in imported(path):
            unused.get(folder, set()).discard(module.removeprefix("hookline.").split(".")[0])
    assert {folder: left for folder, left in unused.items() if left} == {}


def test_the_page_about_the_architecture_is_true():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {
        room: set(re.findall(r"\w+", may)) for room, may in re.findall(r"^\| `(\w+)/` \|.*\|(.*)\|$", text, re.M)
    }
    assert rooms == {name: MAY_USE[name] - BASE for name in rooms}
    assert set(rooms) == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    sources = [str(path.relative_to(ROOT)) for path in [*ROOT.rglob("src/**/*.*"), *ROOT.rglob("tests/**/*.py")]]
    named = set(re.findall(r"`([\w/]+\.(?:py|js|h|c))`", text))
    assert (
        len(named) > 40
        and [name for name in named if not any(f"/{one}".endswith(f"/{name}") for one in sources)] == []
    )


ROOMS_TESTED_ELSEWHERE = {
    "examples": "cli",  # what `hookline demo` trains: test_demo.py
    "integrations": "environments/trainers",  # each needs its trainer
    "testing": "contract",  # the zoo, the conformance suite and `untouched` are what these tests are made of
}
NO_ROOMS = {
    "contract": "what holds over all rooms",
    "environments": "suites that need an environment of their own",
    "nouns": "files at the root of src/hookline",
    "project": "what holds the project together",
    "seeds": "the texts that hookline started from",
    "support": "what several tests share",
}


def test_every_room_has_a_folder_of_tests_and_no_test_lies_elsewhere():
    """Whoever changes a room knows by its name what to run."""
    tests = ROOT / "tests"
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {path.name for path in tests.glob("*.py")} == {"__init__.py", "conftest.py"}
    folders = {path.name for path in tests.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == rooms - set(ROOMS_TESTED_ELSEWHERE) | set(NO_ROOMS)
    for folder in folders - {"support"} | set(ROOMS_TESTED_ELSEWHERE.values()):
        assert list((tests / folder).rglob("test_*.py")), f"tests/{folder} has no tests"


def test_every_module_of_tests_has_a_name_of_its_own_and_a_package():
    """A name alone tells which file is meant, here, in ARCHITECTURE.md and in the Makefile."""
    modules = list((ROOT / "tests").rglob("test_*.py"))
    names = [path.name for path in modules]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []
    assert [str(path) for path in modules if not (path.parent / "__init__.py").exists()] == []


def test_the_columns_of_a_row_are_listed_once():
    """A second list of them would be forgotten when one is added."""
    names = set(rows.STATISTICS)
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files()
        if path != SOURCE / "rows.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Tuple, ast.List, ast.Set))
        and len(names & {one.value for one in node.elts if isinstance(one, ast.Constant)}) > 6
    ]
    assert not wrong, wrong
    words = (SOURCE / "page" / "static" / "words.js").read_text()
    stats = re.search(r"export const STATS = \{(.*?)\n\};", words, re.DOTALL)
    kinds = re.search(r"export const KINDS = \{(.*?)\n\};", words, re.DOTALL)
    assert stats and names | {rows.RATIO, "lost"} == set(re.findall(r"^  (\w+):", stats[1], re.MULTILINE))
    assert kinds and set(rows.KINDS) == set(re.findall(r"^  (\w+):", kinds[1], re.MULTILINE))
    kernel = (SOURCE / "lines" / "_kernel.h").read_text()
    head = re.search(r"double ([\w, ]+);.*\n\s+int64_t ([\w, ]+);\n\} Header;", kernel)
    assert head and rows.HEAD.format == "{}d{}q".format(*(len(names.split(",")) for names in head.groups()))


def test_only_its_backend_imports_a_framework():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files()
        for module, line in imported(path)
        if (places := WHERE_A_FRAMEWORK_IS_IMPORTED.get(module.split(".")[0])) is not None
        and not str(path.relative_to(SOURCE)).startswith(places)
    ]
    assert not wrong, "\n".join(wrong)


PRIVATE = re.compile(
    r"torch\._\w+|\._backward_hooks|\._version\b|\._base\b|\._is_view|\._compiled_call_impl|_sequence_nr|\._grad_fn"
    r"|\._post_accumulate_grad_hooks|\._forward_hooks_always_called"
)


def test_private_names_of_torch_are_in_one_file():
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in files()
        if path.name != "compat.py" and "testing" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_public_names_are_the_agreed_ones():
    assert sorted(hookline.__all__) == sorted(
        [
            *["__version__", "record", "Recording", "load_recording", "edit", "skip", "where", "Site", "Handle"],
            *["register_forward_pre_hook", "register_forward_hook", "register_backward_pre_hook"],
            *["register_backward_hook", "HookBackward", "installed", "register_op_hook", "OpEvent"],
            *["register_post_accumulate_grad_hook"],
            *["register_state_dict_pre_hook", "register_state_dict_post_hook"],
            *["register_load_state_dict_pre_hook", "register_load_state_dict_post_hook"],
            *["Hook", "Hooks", "hook_output", "hook_outputs", "HookCallback", "ActivationStats"],
            *["watch", "Watch", "open_run", "Run", "RunStore", "serve", "report", "health", "Finding"],
            *["Script", "Watching", "watching"],
            *["diagnose", "rule", "found", "Training", "verdict", "Verdict", "FindingRaised", "TrainingStopped"],
            *["probe", "Probed", "Scalar", "Wiring"],
            *["diff", "Diff", "SiteDiff", "Measure", "Cause", "Map", "read_map", "write_map", "propose_map"],
            *["load_weights", "save_weights"],
            *["summary", "Summary", "trace", "Trace", "source"],
            *["dummy_eval", "model_sizes", "num_features_model", "has_params", "total_params", "layer_info"],
            *["module_summary"],
            *["HooklineError", "HookError", "InvalidArgument", "MissingExtra", "NoSuchSite", "NotRecorded"],
            *["RecordingTooLarge", "RunError", "Unsupported", "WrongReplacement", "ForwardError"],
            *["capabilities", "UntestedVersion"],
            *["Audit", "AuditEntry", "Call", "Edits", "Framework", "Label", "Recorder", "Recordings"],
            *["SiteRecord", "Sites", "sites", "Source", "TrainingMemory", "Where"],
        ]
    )
    for name in hookline.__all__:
        assert getattr(hookline, name) is not None
        assert name in dir(hookline)


def test_names_for_type_checkers_are_the_public_ones():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {alias.asname for node in block.body for alias in node.names}
    folders = {"examples", "exported", "lines", "plots", "schedule", "sinks", "testing"}
    assert typed == folders | set(hookline.__all__) - {"__version__"}


PLAIN = {"None", "Any", "Self", "Path", "Callable", "Iterator"}
ELSEWHERE = {
    "Row": "a dict",
    "Reader": "one file of a run, for those that compare runs",
    "Columns": "a dict of arrays",
    "Fn": "the function that was given",
    "Seen": "a series with its numbers, for rules",
    "Node": "a line of a trace, for other people's drawings",
    "PrettyString": "a str",
    "Server": "to be closed, and nothing else",
    "NDArray": "an array of numpy",
    "Loaded": "what `load_weights` did, to be printed",
    "Backend": "of HookBackward, for backends",
    "JointSink": "of HookBackward, for backends",
}
"""What public functions give and nobody needs the name of."""


def returned_names():
    for name in hookline.__all__:
        thing = getattr(hookline, name)
        parts = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
        for part, value in parts:
            function = value.fget if isinstance(value, property) else value
            if inspect.isfunction(function) and not part.startswith("_"):
                told = str(inspect.signature(function).return_annotation)
                yield from ((f"{name}.{part}", word) for word in re.findall(r"\b[A-Z]\w+", told))


def test_what_public_functions_give_can_be_imported():
    missing = {(where, word) for where, word in returned_names() if word not in PLAIN | {*ELSEWHERE}}
    assert not {(where, word) for where, word in missing if not hasattr(hookline, word)}


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match=r"hookline has no 'recrod'.*record"):
        _ = hookline.recrod


@pytest.mark.parametrize(("name", "now"), [(name, now) for name, (_, now) in hookline._OLD.items()])
def test_old_names_work_and_tell_the_new_one(name, now):
    with pytest.warns(DeprecationWarning, match=re.escape(now)):
        found = getattr(hookline, name)
    assert found.__name__ == name and name not in hookline.__all__ and name not in dir(hookline)


def test_every_public_name_is_in_the_docs():
    text = "".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    missing = [name for name in hookline.__all__ if name[0] != "_" and name not in text]
    assert not missing, missing


PROBE = """
import sys, time
before = set(sys.modules)
start = time.process_time()
import hookline
took = time.process_time() - start
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(took, *sorted(loaded & {"torch", "numpy", "safetensors", "transformers", "matplotlib", "jax", "pandas"}))
"""


def test_import_loads_no_framework_and_is_quick():
    times, loaded = [], []
    for _ in range(3):
        out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout
        took, *names = out.split()
        times.append(float(took))
        loaded += names
    assert loaded == []
    assert min(times) <= 0.05, f"import hookline took {min(times) * 1000:.0f} ms"


def test_import_changes_nothing_global():
    code = (
        "import sys, warnings, logging, torch\n"
        "def state(): return (sys.excepthook, torch.Tensor.backward, torch.nn.Module.__call__,"
        " list(warnings.filters), list(logging.root.handlers))\n"
        "before = state()\n"
        "import hookline\n"
        "for name in hookline.__all__: getattr(hookline, name)\n"
        "assert state() == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_are_of_a_size_to_be_read():
    long = {str(p.relative_to(ROOT)): n for p in files() if (n := len(p.read_text().splitlines())) > 400}
    # Two lists: awkward models, and private names of torch, which are to be in one place.
    assert set(long) <= {"src/hookline/testing/zoo.py", "src/hookline/backends/torch/compat.py"}, long
