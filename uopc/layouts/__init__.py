"""Where a tensor core wants each element: fragments, atoms, swizzles, descriptors and box rules.

All of it is data, read by passes, renderers, the emulator and tests alike.  It stands below the IR
and imports none of it; layouts are functions of ints, numpy arrays and UOps alike.

Words: a *fragment* is how the threads of a warp or warpgroup share a tile; an *atom* is one tensor
core instruction; a *move* is an ldmatrix or stmatrix; a *slab* is the part of a tile in shared
memory whose rows are exactly one swizzle pattern wide; *K-major* is contiguous along k, *MN-major*
along m or n.
"""

from uopc.layouts.atom import (
    ATOMS,
    TYPE_NAMES,
    WGMMA_N,
    WGMMA_N_INT8,
    Atom,
    Operand,
    atom_named,
    atoms,
)
from uopc.layouts.fragment import (
    REGISTER,
    THREAD,
    WARP,
    WARPGROUP,
    Digit,
    Fragment,
    Value,
)
from uopc.layouts.move import LDMATRIX, STMATRIX, MatrixAccess, MatrixMove, matrix_access
from uopc.layouts.shared import (
    K_MAJOR,
    MN_MAJOR,
    SWIZZLES,
    TMA_SHARED_ALIGNMENT,
    Descriptor,
    OperandTile,
    SharedTile,
    operand_descriptor,
    swizzle,
)
from uopc.layouts.tensor_map import (
    TMA_DATA_TYPE,
    TMA_GRANULE,
    TMA_INTERLEAVE,
    TMA_L2_PROMOTION,
    TMA_MAX_BOX,
    TMA_MAX_RANK,
    TMA_OOB_FILL,
    TMA_SWIZZLE,
    TensorMapEncoding,
    tma_encoding,
    tma_fault,
)
from uopc.layouts.tf32 import TF32_MASK, to_tf32

__all__ = [
    "ATOMS",
    "K_MAJOR",
    "LDMATRIX",
    "MN_MAJOR",
    "REGISTER",
    "STMATRIX",
    "SWIZZLES",
    "TF32_MASK",
    "THREAD",
    "TMA_DATA_TYPE",
    "TMA_GRANULE",
    "TMA_INTERLEAVE",
    "TMA_L2_PROMOTION",
    "TMA_MAX_BOX",
    "TMA_MAX_RANK",
    "TMA_OOB_FILL",
    "TMA_SHARED_ALIGNMENT",
    "TMA_SWIZZLE",
    "TYPE_NAMES",
    "WARP",
    "WARPGROUP",
    "WGMMA_N",
    "WGMMA_N_INT8",
    "Atom",
    "Descriptor",
    "Digit",
    "Fragment",
    "MatrixAccess",
    "MatrixMove",
    "Operand",
    "OperandTile",
    "SharedTile",
    "TensorMapEncoding",
    "Value",
    "atom_named",
    "atoms",
    "matrix_access",
    "operand_descriptor",
    "swizzle",
    "tma_encoding",
    "tma_fault",
    "to_tf32",
]
