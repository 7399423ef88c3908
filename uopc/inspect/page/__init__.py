"""One HTML file about a kernel or a program: passes, text, accesses, occupancy, roofline, choices.

The file holds all it needs and asks no network for anything; its security policy forbids that, and
any script or style but its own.  It is readable without scripts.  Equal reports, and equal files of
the user, give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from uopc.inspect.page import model, words
from uopc.inspect.records import ProgramReport


def page(program: ProgramReport, folders: Sequence[Path] = (Path(),)) -> str:
    """The text of the HTML file.

    Lines of the user's files that the kernel names are read and shown, where they can be read;
    folders: where the files are looked for, one after the other.
    """
    style, script = _text("page.css"), _text("page.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            program=program,
            launches=model.launches(program, folders),
            whole=[b for b in program.boundaries if b.kernel < 0],
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
        )
    )


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, and nothing runs but these two texts."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["words"] = words
    return made
