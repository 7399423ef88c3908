"""The chapters' names: the native C renderer.  Re-exports only."""

from uopc.pipeline import render_native as render_c
from uopc.render.c import CRenderer

__all__ = ["CRenderer", "render_c"]
