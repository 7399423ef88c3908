"""The file as text: whole, safe, the same each time, and asking nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import escape

from tests.inspect import sample
from uopc.inspect.gpus import GPUS
from uopc.inspect.page import model, page, plots, warp_pictures, words
from uopc.inspect.page.user_code import user_files
from uopc.inspect.records import (
    AccessReport,
    Advice,
    Boundary,
    How,
    PassReport,
    ProgramReport,
    ResourceReport,
    SourceLine,
)

SAMPLES = [sample.rows, sample.matmul, sample.strided, sample.several]
NASTY = "</script><b onclick='x()'>&amp;\"\u2028</style><!--"
VOID = {"meta", "input", "br"}


class Outline(HTMLParser):
    """What a browser would see: tags with attributes, and the text of chosen ones."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [a[name] or "" for _, a in self.tags if name in a]


@cache
def outline(made: Callable[[], ProgramReport]) -> Outline:
    return Outline(page(made()))


def nasty() -> ProgramReport:
    """Markup wherever a user has a say."""
    report = sample.strided().launches[0]
    line = SourceLine(f"// {NASTY}", (0,), (f"{NASTY}.py:3",), (0,))
    access = replace(report.accesses[0], memory=NASTY, index=NASTY, gate=NASTY, pattern=NASTY)
    changed = replace(
        report,
        name=NASTY,
        source=(line, *report.source),
        accesses=(access, *report.accesses[1:]),
        warnings=(Advice(NASTY, NASTY, NASTY, 0, report.opts),),
        passes=(PassReport(NASTY, NASTY, NASTY, ((NASTY, 1),)), *report.passes),
        roofline=replace(report.roofline, gpu=NASTY, times_s=((NASTY, 1e-6),)),
        resources=replace(report.resources, mix=((NASTY, 3),), remarks=(NASTY,)),
        decisions=tuple(replace(d, why=NASTY, value=NASTY) for d in report.decisions),
    )
    return ProgramReport(NASTY, (changed, changed), (Boundary(0, NASTY, 1), Boundary(-1, NASTY)))


# ---- whole
@pytest.mark.parametrize("made", [*SAMPLES, nasty])
def test_tags_are_closed_and_links_lead_somewhere(made: Callable[[], ProgramReport]) -> None:
    found = outline(made)
    assert found.open == []
    ids = found.attributes("id")
    assert len(ids) == len(set(ids))
    for href in found.attributes("href"):
        assert href.startswith("#") and href[1:] in ids, href
    for name in ("aria-labelledby", "data-copy"):
        assert set(found.attributes(name)) <= set(ids)


@pytest.mark.parametrize("made", SAMPLES)
def test_pictures_are_well_formed_and_described(made: Callable[[], ProgramReport]) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(made()), re.S)
    assert len(pictures) >= 6
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("role") == "img" and root.get("aria-label")
        assert "NaN" not in picture and "inf" not in picture.replace("info", "")


def test_all_parts_are_there() -> None:
    text = page(sample.rows())
    report = sample.rows().launches[0]
    for title in ("Passes", "Source", "Memory accesses", "Occupancy", "Roofline", "Decisions"):
        assert f">{title}</h2>" in text
    for p in report.passes:
        assert escape(p.why) in text
        assert (f"after: {p.name}<" in text) == (p.changed and p.name != "index")
    assert text.count('class="panel access"') == len(report.accesses)
    found = outline(sample.rows)
    code = "\n".join(found.texts["code"])
    for line in report.source:
        assert line.text in code
    assert "add-zero" in text and "choose.rows.local" in text
    assert "def numerator(x: UOp) -&gt; UOp:" in re.sub(r"</?i.*?>", "", text)


def test_several_launches_and_their_boundaries() -> None:
    text = page(sample.several())
    assert text.count('class="panel launch"') == 2
    assert "the second one reads it by columns (1 MiB)" in text
    assert "a reduction is computed once" in text
    assert "which move 3 MiB" in text
    assert "The program" not in page(sample.rows())


def test_the_worst_access_stands_first() -> None:
    first, second = model.launches(sample.strided(), ())[0].accesses
    assert (first.access.op, first.each, first.least, first.used) == ("LOAD", "32", "4", "12%")
    assert first.bad and not second.bad
    text = page(sample.strided())
    assert text.index('href="#k0-a0" data-pick') < text.index('href="#k0-a1" data-pick')


def test_opts_can_be_copied_as_they_are_given() -> None:
    report = sample.matmul().launches[0]
    (made,) = model.launches(sample.matmul(), ())
    assert set(json.loads(made.opts)) == {"plan"}
    everything = json.loads(report.opts.to_json())
    assert json.loads(made.opts)["plan"] == everything["plan"]


# ---- safe
def test_what_users_write_stays_text() -> None:
    text = page(nasty())
    found = outline(nasty)
    assert not {"b"} & {tag for tag, a in found.tags if "onclick" in a}
    assert text.count("<script>") == 1 and text.count("<style>") == 1
    assert text.count("</script>") == 1 + len(nasty().launches)
    assert text.count("</style>") == 1
    assert "<!--" not in text and "<b onclick" not in text
    assert NASTY.replace("\u2028", "") in "".join(found.texts["h1"]).replace("\u2028", "")


def test_data_for_the_script_may_stand_in_html() -> None:
    data = {"a": [NASTY, 3, None]}
    text = model.safe_json(data)
    assert json.loads(text) == data
    assert text.isascii() and not set(text) & set("<>&")


def test_links_of_lines() -> None:
    report = sample.rows().launches[0]
    files = user_files(o for line in report.source for o in line.origins)
    links = json.loads(model.links(report, files))
    named = model.origins(files)
    assert len(links) == len(report.source)
    for (nodes, users), line in zip(links, report.source, strict=True):
        assert tuple(nodes) == line.nodes
        assert tuple(named[u] for u in users) == line.origins


@pytest.mark.parametrize("made", [*SAMPLES, nasty])
def test_nothing_is_asked_of_a_network(made: Callable[[], ProgramReport]) -> None:
    text = page(made())
    assert "://" not in text.replace(NASTY, "")
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\b\s*\(", text)
    assert {tag for tag, a in outline(made).tags if "src" in a or "style" in a} == set()


def test_the_policy_allows_these_two_texts_alone() -> None:
    text = page(sample.rows())
    (policy,) = [
        a["content"] or ""
        for tag, a in outline(sample.rows).tags
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


# ---- the same
@pytest.mark.parametrize("made", SAMPLES)
def test_equal_reports_give_equal_bytes(made: Callable[[], ProgramReport]) -> None:
    first, again = page(made()), page(replace(made()))
    assert first == again
    assert len(first.encode()) < 2_000_000


# ---- what is missing is said
def test_what_is_not_known_is_said() -> None:
    report = sample.strided().launches[0]
    unknown = replace(
        report.accesses[0], how=How.UNKNOWN, requests=0, sectors=0, least_sectors=0, lanes=()
    )
    bare = replace(
        report,
        accesses=(unknown,),
        resources=ResourceReport(missing="no NVRTC is installed", mix_missing="no nvdisasm"),
        roofline=replace(report.roofline, gpu="", times_s=(), operations=()),
        decisions=(),
        passes=(),
        warnings=(),
        source=(),
    )
    text = page(ProgramReport("bare", (bare,)))
    assert Outline(text).open == []
    for said in (
        *("Not known: no NVRTC is installed", "Instructions are not counted: no nvdisasm"),
        *("data decides, and no arrays were given", "No GPU was named to compare with."),
        *("Which rule chose what is not recorded", "Nothing about this kernel is clearly wrong"),
        "The kernel names no line of yours",
    ):
        assert said in text


def test_a_copy_has_no_point_under_the_roof() -> None:
    roof = replace(sample.rows().launches[0].roofline, operations=())
    assert plots.roofline_plot(roof) is None


def test_roofs_are_the_gpus_peaks() -> None:
    roof = sample.rows().launches[0].roofline
    assert [r.unit for r in plots.roofs(roof)] == ["sfu", "fp32"]
    assert plots.roofs(roof)[1].per_s == GPUS["H100"].rate("fp32")
    assert plots.bandwidth(roof) == 3.35e12
    little = replace(roof, operations=(*roof.operations, ("int", 1000)))
    assert plots.roofs(little) == plots.roofs(roof)


def test_roofs_of_another_gpu_come_from_times_and_amounts() -> None:
    roof = replace(sample.rows().launches[0].roofline, gpu="my own")
    assert [r.unit for r in plots.roofs(roof)] == ["sfu", "fp32"]
    assert plots.roofs(roof)[1].per_s == pytest.approx(20_480_000 / 3.1e-7)
    assert plots.bandwidth(roof) == pytest.approx(32_768_000 / 9.8e-6)


def test_lanes_that_are_not_active_are_shown_as_such() -> None:
    report = sample.rows().launches[0]
    (one,) = [a for a in report.accesses if a.space == "shared" and a.store and a.number == 1]
    assert sum(lane is not None for lane in one.lanes) == 1
    (shown,) = [a for a in model.launches(sample.rows(), ())[0].accesses if a.access == one]
    assert "31 lanes (dashed) not active" in shown.caption
    assert shown.picture is not None and "not active: lanes 1–31" in shown.picture
    half = replace(_global(report.accesses), lanes=tuple([*range(0, 64, 4)] + [None] * 16))
    picture = warp_pictures.picture(half)
    assert picture is not None and picture.count("lane asleep") == 16


def test_conflicts_are_named_and_coloured() -> None:
    report = sample.rows().launches[0]
    access = next(a for a in report.accesses if a.space == "shared" and not a.store)
    column = replace(access, lanes=tuple(range(0, 32 * 128, 128)), width_bytes=4)
    picture = warp_pictures.picture(column)
    assert picture is not None and picture.count("cell again") == 31
    assert picture.count(", conflict<") == 31
    assert "31 of them only because" in warp_pictures.caption(column)


def _global(accesses: tuple[AccessReport, ...]) -> AccessReport:
    return next(a for a in accesses if a.space == "global")


# ---- the user's files
def test_lines_of_a_file_with_those_around(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"x{n} = {n}\n" for n in range(1, 21)))
    (found,) = user_files(["a.py:3", "a.py:15", "a.py:3", "no line"], [tmp_path])
    assert [[line.number for line in part] for part in found.parts] == [
        [1, 2, 3, 4, 5],
        [13, 14, 15, 16, 17],
    ]
    assert [line.number for part in found.parts for line in part if line.named] == [3, 15]
    assert found.origins == ("a.py:3", "a.py:15") and not found.missing


def test_the_first_folder_that_has_a_file_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(f"{name} = 1\n")
    (found,) = user_files(["a.py:1"], [tmp_path / "none", tmp_path / "two", tmp_path / "one"])
    assert found.parts[0][0].text.startswith("two")


def test_files_that_cannot_be_shown(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "short.py").write_text("x = 1\n")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "long.py").write_text("#" * (1 << 21))
    named = ["binary.py:1", "short.py:9", "folder.py:1", "long.py:1", "none.py:1", "a\0b.py:1"]
    said = {f.name: f.missing for f in user_files(named, [tmp_path])}
    assert said == {
        "a\0b.py": "cannot be read here",
        "binary.py": "cannot be read here",
        "folder.py": "is no file",
        "long.py": "has more than 1048576 bytes",
        "none.py": "cannot be read here",
        "short.py": "has changed: it is shorter now",
    }


def test_a_box_names_what_fits() -> None:
    report = sample.rows().launches[0]
    access = next(a for a in report.accesses if a.space == "shared" and not a.store)
    for step, width, names in ((2, 2, (">0,1<", ">10+<")), (8, 8, (">0<", ">31<"))):
        given = replace(access, lanes=tuple(range(0, 32 * step, step)), width_bytes=width)
        picture = warp_pictures.picture(given)
        assert picture is not None and all(name in picture for name in names)


def test_what_came_of_a_change_is_said() -> None:
    report = sample.strided().launches[0]
    first, *others = report.warnings
    tried = replace(first, tried="16 sectors instead of 64")
    text = page(ProgramReport("tried", (replace(report, warnings=(tried, *others)),)))
    assert f"{first.mend}. Tried: 16 sectors instead of 64</p>" in text
    assert text.count("Tried: ") == 1


def test_walls_of_no_height_are_no_bars_and_values_stand_over_lines() -> None:
    roof = sample.rows().launches[0].roofline
    flat = replace(roof, times_s=(*roof.times_s, ("latency", 0.0)))
    picture = str(plots.times(flat))
    assert picture == str(plots.times(roof)) and "memory" in picture
    value = words.time(dict(roof.times_s)["L2"])
    assert picture.rindex("<line") < picture.index(f">{value}</text>")
