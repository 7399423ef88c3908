"""The demo's kernels answer as numpy does, and it notices where one does not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import environment, own_cache, plain
from uopc import demo, demo_training, printing
from uopc.demo import Digits, Outcome, Ran, Reference, digits, reference, run_on
from uopc.errors import ToolchainError, UsageError
from uopc.pipeline import compile
from uopc.runtime.device import DeviceInfo
from uopc.uop.oracle import evaluate

FEW = 400  # images: the emulator takes a tenth of a second


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def few() -> Digits:
    return digits(FEW)


@pytest.fixture(scope="module")
def wanted(few: Digits) -> Reference:
    return reference(few)


@pytest.fixture(autouse=True)
def _a_short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_training, "STEPS", 3)


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The demo finds these devices and no other."""
    states = [DeviceInfo(n, n in names, f"no {n} here") for n in ("cuda", "emulated", "cpu")]
    monkeypatch.setattr(demo, "devices", lambda: states)


# ---- the data
def test_the_file_and_its_licence_come_with_the_package() -> None:
    data = digits()
    assert data.images.shape == (10_000, 784) and data.images.dtype == np.uint8
    assert data.labels.shape == (10_000,) and set(data.labels) == set(range(10))
    licence = resources.files("uopc").joinpath("data/mnist10k.LICENSE").read_text()
    assert "MIT License" in licence and "Copyright" in licence


def test_the_fewest_images_hold_every_class() -> None:
    labels = digits(demo.FEWEST).parts[1]
    assert set(labels) == set(range(10))


@pytest.mark.parametrize("count", [0, demo.FEWEST - 1, 10_001])
def test_a_count_that_cannot_be(count: int) -> None:
    with pytest.raises(UsageError, match=f"takes 200 to 10000 images, not {count}"):
        digits(count)


def test_a_missing_file_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_DATA", "data/none.npz")
    with pytest.raises(
        ToolchainError, match=r"images are missing .*none\.npz.* Install uopc again"
    ):
        digits()


# ---- the kernels
def test_all_images_on_a_device() -> None:
    data = digits()
    wanted = reference(data)
    outcome = run_on("cpu", data, wanted)
    assert outcome.accuracy == wanted.accuracy == 0.796
    assert outcome.agrees(wanted), outcome


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_every_device_agrees(device: str, few: Digits, wanted: Reference) -> None:
    outcome = run_on(device, few, wanted)
    assert [compared.words for _, compared in outcome.kernels.values()][::2] == [
        "equal bit for bit",
        "equal",
    ]
    assert outcome.agrees(wanted), outcome


@pytest.mark.gpu
def test_the_gpu_agrees() -> None:
    data = digits()
    wanted = reference(data)
    outcome = run_on("cuda", data, wanted)
    assert outcome.agrees(wanted) and outcome.accuracy == 0.796, outcome


def test_the_bodies_mean_what_they_say() -> None:
    """By the oracle, on images of three pixels, with every class once and class 4 twice."""
    labels = np.array([*range(10), 4], np.uint8)
    images = np.arange(33, dtype=np.uint8).reshape(11, 3)
    means = evaluate(demo.means_body(11, 3), {0: labels, 1: images})
    assert means[4].tolist() == [21, 22, 23] and means[9].tolist() == [27, 28, 29]
    distances = evaluate(demo.distances_body(11, 3), {0: images, 1: means})
    x = images.astype(np.float64)
    assert np.allclose(
        distances + (x * x).sum(1)[:, None], ((x[:, None] - means[None]) ** 2).sum(2)
    )
    nearest = evaluate(demo.nearest_body(11), {0: distances})
    assert nearest.tolist() == [0, 1, 2, 3, 3, 5, 6, 4, 8, 9, 9]  # 4 is as near to 3 as to 5


def test_no_kernel_holds_the_one_hot_matrix() -> None:
    """Labels are compared inside: the kernel reads bytes and writes the means."""
    source = compile(demo.means_body(900, 784), target="cpu").source
    assert [(p.dtype.name, p.size) for p in source.params] == [
        ("u8", 900),
        ("u8", 900 * 784),
        ("f32", 7840),
    ]


# ---- what is compared
def test_one_wrong_bit_of_a_mean_is_seen(wanted: Reference) -> None:
    got = wanted.means.copy()
    assert demo.compare_means(got, wanted).agrees
    got.view(np.uint32)[3, 5] ^= 1
    assert demo.compare_means(got, wanted) == demo.Compared(False, "1 of 7,840 differ")


@pytest.mark.parametrize(
    ("factor", "agrees"), [(0.9, True), (-0.9, True), (1.1, False), (np.nan, False)]
)
def test_a_distance_stays_within_its_bound(wanted: Reference, factor: float, agrees: bool) -> None:
    got = wanted.distances.copy()
    got[7, 3] += factor * wanted.bound[7, 3]
    assert demo.compare_distances(got, wanted).agrees is agrees


def test_the_bound_is_tight_enough_to_mean_something(wanted: Reference) -> None:
    assert (wanted.bound < 1e-3 * abs(wanted.distances).max()).all()


def test_a_wrong_class_is_seen(wanted: Reference) -> None:
    got = wanted.nearest.astype(np.int32)
    assert demo.compare_nearest(got, wanted).agrees
    got[0] += 1
    assert demo.compare_nearest(got, wanted).words == "1 of 40 differ"


# ---- the network
def test_the_network_learns_the_digits() -> None:
    trained = demo_training.train(digits().parts, steps=140)
    assert len(trained.losses) == 140 and 2.2 < trained.losses[0] < 2.4
    assert max(trained.losses[-10:]) < 0.7
    assert 0.89 < trained.accuracy < 0.95
    assert trained.kernels.startswith("4 kernels, ")


def test_training_twice_gives_the_same(few: Digits) -> None:
    first, second = (demo_training.train(few.parts, steps=10) for _ in range(2))
    assert first.losses == second.losses and first.accuracy == second.accuracy


def test_batches_are_whole_passes_in_random_order() -> None:
    rows = np.concatenate(demo_training.batches(count=320, steps=10))
    assert sorted(rows[:320]) == sorted(rows[320:]) == list(range(320))
    assert rows[:320].tolist() != rows[320:].tolist()


# ---- what is printed
def test_it_shows_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "cpu")
    out, text = plain()
    assert demo.demo(out, FEW) == 0
    said = text.getvalue()
    assert "A network on the same digits, with Tensor on the cpu" in said
    assert re.search(r"of 256 and 128, 3 steps of 64 images, RMSprop: \S+ m?s with", said)
    losses = [float(n) for n in re.findall(r"\d\.\d\d", re.search(r"loss  (.*)", said)[1])]  # type: ignore[index]  # it is there
    assert len(losses) == 2
    assert re.search(r"^  4 kernels, \d+ bytes moved", said, re.M)
    assert re.search(r"^\d+\.\d% of the test images are right\.$", said, re.M)


def test_without_native_kernels_there_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "emulated")
    out, text = plain()
    assert demo.demo(out, FEW) == 0
    assert "A network" not in text.getvalue()


def test_it_shows_kernels_devices_and_accuracy(
    monkeypatch: pytest.MonkeyPatch, wanted: Reference
) -> None:
    only(monkeypatch, "emulated", "cpu")
    out, text = plain()
    assert demo.demo(out, FEW) == 0
    said = text.getvalue()
    for name in ("means", "distances", "nearest"):
        assert f"{name}(const " in said
        assert (
            len(re.findall(rf"^ (?:emulated|cpu) +{name} +\S+ m?u?s +\S+ m?u?s ", said, re.M)) == 2
        )
    assert said.count('extern "C" __global__') == 3
    assert said.count("registers, ") == said.count("no spills") == said.count("launch  ") == 3
    assert f"{wanted.accuracy:.1%} right" in said
    assert "Not run on cuda: no cuda here" in said
    assert "emulated and cpu: " in said


def test_without_nvrtc_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolchainError("NVRTC is missing. Get it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(printing, "known_archs", missing)
    only(monkeypatch, "cpu")
    out, text = plain()
    assert demo.demo(out, FEW) == 0
    assert text.getvalue().count("resources  unknown: NVRTC is missing. Get it with") == 3


def test_a_device_that_disagrees_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo._timed

    def off_by_one(device: str, name: str, *rest: Any) -> Ran:
        ran = real(device, name, *rest)
        if (device, name) == ("cpu", "nearest"):
            return dataclasses.replace(ran, result=(ran.result + 1) % 10)
        return ran

    monkeypatch.setattr(demo, "_timed", off_by_one)
    only(monkeypatch, "emulated", "cpu")
    out, text = plain()
    assert demo.demo(out, FEW) == 1
    assert "40 of 40 differ" in text.getvalue()
    assert "cpu does not agree with numpy" in text.getvalue()
    assert "emulated: " in text.getvalue()


def test_another_accuracy_fails_it(wanted: Reference) -> None:
    assert Outcome("cpu", {}, wanted.accuracy).agrees(wanted)
    assert not Outcome("cpu", {}, wanted.accuracy + 1e-3).agrees(wanted)


def test_a_device_that_fails_is_told_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "cuda", "cpu")
    broken = ToolchainError("the driver is asleep. Wake it.")

    def timed(device: str, *rest: Any) -> Ran:
        if device == "cuda":
            raise broken
        return real(device, *rest)

    def on_a_cpu(body: Any, target: str, name: str = "kernel") -> Any:
        return compile(body, target="emulated" if target == "cuda" else target, name=name)

    real = demo._timed
    monkeypatch.setattr(demo, "_timed", timed)
    monkeypatch.setattr(demo, "compile", on_a_cpu)
    out, text = plain()
    assert demo.demo(out, FEW) == 1
    assert "cuda failed. ToolchainError: the driver is asleep. Wake it." in text.getvalue()
    assert "cpu: " in text.getvalue()


def test_without_a_compiler_kernels_are_shown_and_nothing_runs(tmp_path: Path) -> None:
    with environment(UOPC_CC="/no/such/cc", UOPC_CACHE_DIR=str(tmp_path)):
        out, text = plain()
        code = demo.demo(out, FEW)
    if "Not run on cuda" not in text.getvalue():
        pytest.skip("a GPU is usable here: the demo runs on it")
    assert code == 1
    assert text.getvalue().count('extern "C" __global__') == 3
    assert "No device is usable: nothing was run." in text.getvalue()
