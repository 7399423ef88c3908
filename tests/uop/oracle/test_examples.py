"""Every hand-written kernel of `uopc.examples` means, to the oracle, what its reference says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same
from uopc.examples import EXAMPLES
from uopc.uop.oracle import run
from uopc.uop.spec import Stage, check
from uopc.uop.text import parse, show


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    example = EXAMPLES[name]
    kernel = example.build()
    check(kernel, Stage.LOOPS, gpu=True)
    assert parse(show(kernel)) is kernel
    arrays = example.arrays()
    got = run(kernel, dict(enumerate(arrays)), Stage.LOOPS)
    for slot, want in example.expected(arrays).items():
        if example.order_dependent:
            np.testing.assert_allclose(got[slot], want, rtol=1e-3)
        else:
            assert_same(got[slot], want)
