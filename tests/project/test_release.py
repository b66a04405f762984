"""What has to agree before a version is tagged: version, changelog and citation; .ci/run and the workflows."""

import re

import pytest

import hookline
from tests.support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def headings():
    """(version, date) of each heading of the changelog, the newest first."""
    return re.findall(r"^## (\S+)(?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def cited(field):
    (value,) = re.findall(rf"^{field}: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    return value


def test_version_changelog_and_citation_agree():
    (unreleased, _), (version, date), *_ = headings()
    assert unreleased == "Unreleased"
    assert hookline.__version__ == version == cited("version")
    assert date == cited("date-released") and re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_versions_of_the_changelog_come_down():
    numbers = [tuple(int(part) for part in version.split(".")) for version, _ in headings()[1:]]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == len(numbers)


def test_the_version_is_written_once():
    written = [ROOT / "pyproject.toml", ROOT / "setup.py", *(ROOT / "src").rglob("*.py")]
    pattern = re.compile(rf"""(?i)version\w*\s*[:=]\s*["']{re.escape(hookline.__version__)}["']""")
    assert [path.name for path in written if pattern.search(path.read_text())] == ["version.py"]


def targets():
    """What can be made: names before a colon in the Makefile."""
    return {
        name
        for line in re.findall(r"^([\w %-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
        for name in line.split()
    }


def commands(workflow):
    """What a workflow runs: the text behind each `run:`."""
    return re.findall(r"^\s*(?:- )?run: (.+)$", workflow.read_text(), re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_the_makefile_has(workflow):
    ran = commands(workflow)
    assert ran
    for command in ran:
        assert command == ".ci/run" or command.startswith("make "), command
        for word in re.match(r"(?:\.ci/run|make)((?: [\w-]+(?![\w=-]))*)", command)[1].split():
            assert word in targets() or word == "--silent", command
    for listed in re.findall(r"target: \[(.+)\]", workflow.read_text()):
        assert set(listed.split(", ")) <= targets()


def test_the_forge_runs_all_that_has_to_pass():
    lines = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    wanted = {word for line in lines for word in re.sub(r"-j \d+|--[\w-]+", "", line).split()}
    wanted -= {"packages", "environments"}  # set-up: a target that needs some of it makes that
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    listed = {name for names in re.findall(r"target: \[(.+)\]", text) for name in names.split(", ")}
    assert len(wanted) >= 9 and wanted <= targets()
    assert wanted <= listed | {command.removeprefix("make ") for command in commands(WORKFLOWS[0])}


def test_actions_of_others_are_pinned():
    used = [name for path in WORKFLOWS for name in re.findall(r"uses: (\S+)", path.read_text())]
    assert used
    assert [name for name in used if not re.search(r"^\./|@[0-9a-f]{40}$", name)] == []


def test_what_is_left_out_of_the_quick_tests_is_there():
    (listed,) = re.findall(r"^SLOW := ((?:.+\\\n)*.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    slow = set(listed.replace("\\", "").split())
    there = {path.name for folder in ("tests", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert len(slow) > 10 and slow <= there, slow - there
