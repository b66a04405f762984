"""Every example of MXNet's document on hooks, run with hookline, prints what the document prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DENSE = """
[[ 0.11254273  0.11162187  0.02200389 -0.04842059  0.09531345  0.00880495
  -0.07610667  0.1562067   0.14192852  0.04463106]
 [ 0.11254273  0.11162187  0.02200389 -0.04842059  0.09531345  0.00880495
  -0.07610667  0.1562067   0.14192852  0.04463106]
 [ 0.11254273  0.11162187  0.02200389 -0.04842059  0.09531345  0.00880495
  -0.07610667  0.1562067   0.14192852  0.04463106]]
<NDArray 3x10 @cpu(0)>
"""
HYBRID = """
[[-0.05979988 -0.16349721]
 [-0.05979988 -0.16349721]]
<NDArray 2x2 @cpu(0)>
"""
OUTPUT = "dense_dense0_fwd_output\nFullyConnected\n"
INPUTS = "".join(f"dense_dense0_fwd_{name}\nFullyConnected\n" for name in ("data", "weight", "bias"))

EXPECTED = {
    "pre-forward hook": f"Dense(None -> 10, linear)\nDense(None -> 10, linear)\n{DENSE}",
    "detached": DENSE,
    "post-forward hook": f"Dense(5 -> 10, linear)\n{DENSE}",
    "callback hook, monitor_all": INPUTS + OUTPUT + HYBRID,
    "callback hook, outputs only": OUTPUT + HYBRID,
    "removed": HYBRID,
}
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture(scope="module")
def printed():
    here = Path(__file__).parent
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", here / "seed_document.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=here,
    )
    assert ran.returncode == 0, ran.stderr
    parts = ran.stdout.split("== ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


@pytest.mark.parametrize("example", EXPECTED)
def test_an_example_prints_what_the_document_prints(printed, example):
    found, wanted = printed[example], EXPECTED[example]
    # The document's numbers are of another machine: the last of eight digits may differ.
    assert NUMBER.sub("#", found).split() == NUMBER.sub("#", wanted).split()
    numbers = [float(number) for number in NUMBER.findall(found)]
    assert numbers == pytest.approx([float(number) for number in NUMBER.findall(wanted)], rel=1e-6)


def test_no_example_is_left_out(printed):
    assert printed.keys() == EXPECTED.keys()
