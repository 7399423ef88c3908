"""The chapters' names: Opts, and a body to loops.  Re-exports only."""

from uopc.opts import Opts
from uopc.pipeline import Ctx, cpu_opt_choice
from uopc.pipeline import lower_body as lower

__all__ = ["Ctx", "Opts", "cpu_opt_choice", "lower"]
