"""Loads of parameters that tell the caches that no one will want these bytes again."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.kernels import axpy, indexed, param
from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.passes.linearize import linearize
from uopc.passes.rangeify import rangeify_kernel
from uopc.pipeline import compile, lower
from uopc.render.cuda import render_cuda
from uopc.runtime.nvrtc import compile_cubin
from uopc.uop.node import UOp
from uopc.uop.text import parse, show

WIDE = Opts(gpu=True, local={0: 32}, vector={0: 4}, streaming=True)
ONE = Opts(gpu=True, local={0: 32}, streaming=True)


def text(body: UOp, opts: Opts) -> str:
    return str(render_cuda(linearize(lower(indexed(body), opts)), "kern", "sm_90"))


def test_loads_are_hinted() -> None:
    assert text(axpy(128), WIDE).count("__ldcs((const float4*)&p0[") == 1
    assert "__ldcs(&p0[" in text(axpy(128), ONE) and "cs(&p10[" not in text(axpy(128), ONE)


def test_only_where_it_is_asked_for() -> None:
    assert "cs(" not in text(axpy(128), replace(WIDE, streaming=False))


@pytest.mark.parametrize("n", [100, 127])
def test_guards_and_ragged_ends_keep_theirs(n: int) -> None:
    cuda = text(axpy(n), WIDE)
    assert len(re.findall(r"__ldcs", cuda)) == len(re.findall(r"\bp0\[", cuda))


@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.f16, dtypes.f64, dtypes.i64, dtypes.f8e4m3])
@pytest.mark.parametrize("opts", [WIDE, ONE], ids=["wide", "one"])
def test_every_size_has_its_function(dtype: DType, opts: Opts) -> None:
    vector = ((0, 16 // dtype.itemsize),) if opts.vector else ()
    cuda = text(param(0, 128, dtype=dtype).flip((0,)).flip((0,)), replace(opts, vector=vector))
    assert "__ldcs" in cuda
    compile_cubin(cuda, "kern", "sm_80")


def test_what_is_read_and_written_has_none() -> None:
    """The compiler may move hinted loads past stores."""
    x, y = param(0, 128), param(1, 128)
    value = x + y
    root = rangeify_kernel(KernelBody((Output(value, x),), (128,), {value: (0,)}))
    cuda = str(render_cuda(linearize(lower(root, WIDE)), "kern", "sm_90"))
    assert "__ldcs((const float4*)&p1[" in cuda and "&p0[" in cuda
    assert "__ldcs((const float4*)&p0[" not in cuda


def test_others_ignore_it_and_the_graph_travels() -> None:
    sink = lower(indexed(axpy(128)), WIDE)
    assert "streaming=yes" in show(sink) and parse(show(sink)) is sink
    plain = compile(axpy(128), replace(WIDE, streaming=False), "emulated").steps[0].runs
    assert str(compile(axpy(128), WIDE, "emulated").steps[0].runs) == str(plain)
