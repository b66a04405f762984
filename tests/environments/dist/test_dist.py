"""What is published: an archive of the sources and a wheel, what they hold, and that both install. `make dist`."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "hookline"
TOOLS = Path(sys.executable).parent


def run(*command, **options):
    """What a command prints; where it fails, the test does, and shows it."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with the archive and the wheel that was built of the archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="session")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(built):
    (path,) = built.glob("*.tar.gz")
    return path


@pytest.fixture
def install(sdist, tmp_path):
    """Installs the archive with these environment variables; gives the folder."""

    def into(**variables):
        run(
            *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"),
            *("--no-cache-dir", "--target", tmp_path / "site", sdist),
            env={**os.environ, **variables},
        )
        return tmp_path / "site"

    return into


def works(site, kernel):
    """Runs installed.py with that hookline."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return run(sys.executable, ROOT / "tests" / "environments" / "dist" / "installed.py", kernel, env=environment, cwd=site)


def names(wheel):
    return zipfile.ZipFile(wheel).namelist()


def test_one_wheel_serves_python_3_11_and_all_later_ones(wheel):
    assert re.fullmatch(r"hookline-[\d.]+-cp311-abi3-\w+\.whl", wheel.name), wheel.name
    run(TOOLS / "abi3audit", "--strict", wheel)


def test_a_wheel_holds_the_package_and_nothing_else(wheel):
    inside = {name for name in names(wheel) if ".dist-info/" not in name}
    expected = {
        f"hookline/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".pyi", ".js", ".css", ".html", ".svg"} or path.name == "py.typed"
    }
    inside_backends = ("_again", "_direct", "_entries", "_tap", "_under_way", "torch/eager/_calls", "torch/grads/_simple")
    parts = (*(f"backends/{name}" for name in inside_backends), "diffs/_apart", "lines/_kernel")
    compiled = {f"hookline/{part}.abi3.so" for part in parts}
    assert inside == expected | compiled
    assert "hookline/py.typed" in inside and "hookline/static/index.html" in inside


def test_no_path_of_the_machine_that_built_is_in_it(wheel, sdist):
    here = [str(ROOT).encode(), str(Path.home()).encode() + b"/", sys.prefix.encode()]
    with zipfile.ZipFile(wheel) as archive:
        told = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(sdist) as archive:
        told |= {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}
    assert [name for name, data in told.items() if any(path in data for path in here)] == []


def test_the_archive_holds_what_builds_and_tests_hookline(sdist):
    with tarfile.open(sdist) as archive:
        inside = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
    told = run("git", "ls-files", "src", "tests", "docs", cwd=ROOT)
    assert set(told.split()) <= inside
    assert {"setup.py", "pyproject.toml", "Makefile", "constraints.txt", "LICENSE", "README.md"} <= inside
    assert [name for name in inside if name.endswith((".so", ".pyd", ".pyc"))] == []


def test_what_the_index_asks_for_is_there(wheel, sdist):
    run(TOOLS / "twine", "check", "--strict", wheel, sdist)
    run(TOOLS / "check-wheel-contents", wheel)


def test_the_citation_is_one():
    run(TOOLS / "cffconvert", "--validate", "--infile", ROOT / "CITATION.cff")


def test_it_installs_with_a_compiler(install):
    assert works(install(), "native").startswith("hookline ")


def test_it_installs_without_a_compiler(install):
    site = install(CC="false", CXX="false")
    assert list(site.rglob("*.so")) == []
    assert works(site, "python").startswith("hookline ")
    doctor = subprocess.run(
        [sys.executable, "-m", "hookline", "doctor", "--json"],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "no C compiler was found" in json.loads(doctor.stdout)["kernel_why"]
