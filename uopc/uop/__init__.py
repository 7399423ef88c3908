"""The IR: nodes, their vocabulary and facts.  Start with `ops`, then `node`."""

from uopc.uop.node import UOp, alu, buffer, memory, prod, range_, sink, toposort, where_from
from uopc.uop.ops import (
    AccessArg,
    AxisType,
    Combine,
    ConstArg,
    IotaArg,
    LaunchArg,
    Ops,
    ParamArg,
    RangeArg,
    ReduceArg,
    ShuffleArg,
    StageArg,
)

__all__ = [
    "AccessArg",
    "AxisType",
    "Combine",
    "ConstArg",
    "IotaArg",
    "LaunchArg",
    "Ops",
    "ParamArg",
    "RangeArg",
    "ReduceArg",
    "ShuffleArg",
    "StageArg",
    "UOp",
    "alu",
    "buffer",
    "memory",
    "prod",
    "range_",
    "sink",
    "toposort",
    "where_from",
]
