"""Fixtures of the tests of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from uopc.tensor import set_default_device


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def each_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test's default device; "cpu", and a GPU where tests on one are asked for."""
    set_default_device(request.param)
    yield request.param
    set_default_device(None)
