"""A Program runs C on numpy arrays, checked where it knows the parameters."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.sources import AXPY_C, AXPY_PARAMS, axpy_c, axpy_cuda, c_source, copy_params
from uopc.config import Config
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import ToolchainError, UsageError
from uopc.runtime import Program


@pytest.mark.parametrize("language", ["c", "emulated"])
def test_it_writes_in_place(tmp_path: Path, language: str) -> None:
    run = Program(axpy_c(language), "axpy", config=Config(cache_dir=tmp_path))
    y, x = np.ones(100, np.float32), np.arange(100, dtype=np.float32)
    run(y, x, 2.0)
    run(y, x, np.float32(0.5))
    assert np.array_equal(y, 1 + 2.5 * x)


@pytest.mark.parametrize("dtype", [d for d in DATA if d.itemsize in (1, 8)][::4], ids=str)
def test_dtypes_go_through_by_their_bytes(tmp_path: Path, dtype: DType) -> None:
    width = dtype.itemsize
    text = (
        "#include <string.h>\n"
        f"int copy(void **args) {{ memcpy(args[0], args[1], {4 * width}); return 0; }}"
    )
    source = c_source(text, "copy", copy_params(dtype, 4))
    out, x = np.zeros(4, dtype.numpy), np.array([0, 1, 1, 0]).astype(dtype.numpy)
    Program(source, config=Config(cache_dir=tmp_path))(out, x)
    assert out.tobytes() == x.tobytes()


def test_nothing_is_compiled_before_a_checked_call(tmp_path: Path) -> None:
    run = Program(axpy_c(), config=Config(cache_dir=tmp_path, cc="/no/such/cc"))
    with pytest.raises(UsageError, match="takes 3 arguments"):
        run(np.zeros(100, np.float32))
    with pytest.raises(ToolchainError, match="no C compiler found"):
        run(np.zeros(100, np.float32), np.zeros(100, np.float32), 1.0)


def test_work_of_no_size_never_runs(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, cc="/no/such/cc")  # so that running would fail
    empty = np.zeros(0, np.float32)
    Program(c_source(AXPY_C, "axpy", copy_params(dtypes.f32, 0)), config=config)(empty, empty)
    idle = c_source(AXPY_C, "axpy", AXPY_PARAMS, grid=(0, 1, 1))
    y = np.zeros(100, np.float32)
    Program(idle, config=config)(y, y + 1, 1.0)
    assert not y.any()


def test_a_bare_text_says_so_once(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="kernel axpy is a bare text") as said:
        run = Program(AXPY_C, "axpy", config=Config(cache_dir=tmp_path))
    assert len(said) == 1 and said[0].filename == __file__
    y, x = np.zeros(100, np.float32), np.ones(100, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(y, x, np.float32(2))
        run(y, x, np.float32(2))
    assert (y == 4).all()
    with pytest.raises(UsageError, match="argument 2: a bare text takes C-contiguous numpy arrays"):
        run(y, x, 2.0)


def test_a_source_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Program(axpy_c(), "axpy")


def test_names_and_languages() -> None:
    with pytest.raises(UsageError, match="defines kernel 'axpy', not 'other'"):
        Program(axpy_c(), "other")
    with pytest.raises(UsageError, match="kernel axpy is cuda text, a Program runs C"):
        Program(axpy_cuda(), "axpy")
    with pytest.raises(UsageError, match="a bare text needs the name of its function"):
        Program(AXPY_C)


def test_only_a_source_can_be_prepared() -> None:
    with pytest.warns(UserWarning):
        bare = Program(AXPY_C, "axpy")
    with pytest.raises(UsageError, match="kernel axpy is a bare text; only a Source can be"):
        bare.prepared()


def test_threads_share_one_compilation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Program(axpy_c(), config=Config(cache_dir=tmp_path, debug=1))
    outs = [np.zeros(100, np.float32) for _ in range(4)]
    x = np.ones(100, np.float32)
    threads = [threading.Thread(target=run, args=(y, x, 3.0)) for y in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((y == 3).all() for y in outs)
    assert capfd.readouterr().err.count("compiled axpy") == 1
