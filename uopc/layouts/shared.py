"""Tiles in shared memory: swizzles, slabs, and the descriptors through which wgmma reads them.

Source: PTX ISA 9.0, tensor copies ("Swizzling Modes") and wgmma ("Strides", "Matrix Descriptor
Format").
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.errors import UsageError
from uopc.layouts.fragment import Value

#: how an operand lies in memory: contiguous along k, or along m (of A) or n (of B)
K_MAJOR = "K"
MN_MAJOR = "MN"
#: a tensor copy's place in shared memory is a multiple of this (PTX ISA, cp.async.bulk.tensor)
TMA_SHARED_ALIGNMENT = 128
#: bytes of the pattern: 0 for none
SWIZZLES = (0, 32, 64, 128)
_LINE = 128
_CHUNK = 16


def swizzle(offset: Value, mode: int, element_bytes: int = 1) -> Value:
    """Where tensor copies and descriptors of a swizzle mode put the byte (or element) at `offset`.

    The number of the 16-byte chunk within `mode` bytes is XORed with that of the 128-byte line, so
    that 8 rows of one column lie in different banks.  offset counts elements of element_bytes
    from an address that is a multiple of 8 * mode bytes.  It is its own inverse.
    Source: PTX ISA, "Swizzling Modes" of tensor copies.
    """
    if mode not in SWIZZLES:
        raise UsageError(f"swizzle: there is no mode of {mode} bytes; there are {SWIZZLES}")
    if not mode:
        return offset
    line, chunk = _LINE // element_bytes, _CHUNK // element_bytes
    which = (offset // line) % (mode // _CHUNK)
    return offset ^ (which if chunk == 1 else which * chunk)


@dataclass(frozen=True)
class SharedTile:
    """A tile of rows x columns in shared memory, contiguous along columns.

    Swizzled, rows are exactly `swizzle` bytes wide, and a wider tile is several such slabs one
    after another; that is what one tensor copy a slab writes, or one copy of a box
    (slabs, rows, slab_columns).  pad: elements left free after each row (unswizzled only).
    slab: columns of a slab, 0 for the swizzle's, or all.
    """

    rows: int
    columns: int
    element_bytes: int
    swizzle: int = 0
    pad: int = 0
    slab: int = 0

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise UsageError(f"{self}: {fault}")

    def _fault(self) -> str:
        if self.swizzle not in SWIZZLES:
            return f"swizzle is one of {SWIZZLES}"
        if self.swizzle and (self.pad or self.slab not in (0, self.swizzle // self.element_bytes)):
            return f"a swizzled row has {self.swizzle} bytes, no pad and no other slab"
        if self.columns % self.slab_columns:
            return f"columns are not whole slabs of {self.slab_columns}"
        return ""

    @property
    def slab_columns(self) -> int:
        if self.swizzle:
            return self.swizzle // self.element_bytes
        return self.slab or self.columns

    @property
    def slabs(self) -> int:
        return self.columns // self.slab_columns

    @property
    def pitch(self) -> int:
        """Elements from one row of a slab to the next."""
        return self.slab_columns + self.pad

    @property
    def size(self) -> int:
        """Elements of memory, pads included."""
        return self.slabs * self.rows * self.pitch

    @property
    def size_bytes(self) -> int:
        return self.size * self.element_bytes

    @property
    def alignment(self) -> int:
        """Bytes that its base must be a multiple of: the swizzle's period, or a tensor copy's."""
        return 8 * self.swizzle or TMA_SHARED_ALIGNMENT

    def linear(self, row: Value, column: Value) -> Value:
        """Elements from the base before the swizzle: what descriptors add to their start."""
        if self.slabs == 1:
            return row * self.pitch + column
        slab = column // self.slab_columns * (self.rows * self.pitch)
        return slab + row * self.pitch + column % self.slab_columns

    def index(self, row: Value, column: Value) -> Value:
        """Elements from the base: where (row, column) lies."""
        return swizzle(self.linear(row, column), self.swizzle, self.element_bytes)


@dataclass(frozen=True)
class OperandTile:
    """Rows of m (or n) by columns of k of a product's operand, and how they lie in shared memory.

    tile: its memory.  major: K_MAJOR where the tile's rows are those of m (n), MN_MAJOR where each
    holds one k.
    """

    tile: SharedTile
    major: str

    @property
    def rows(self) -> int:
        """Elements along m (n)."""
        return self.tile.rows if self.major == K_MAJOR else self.tile.columns

    @property
    def k(self) -> int:
        """Elements along k."""
        return self.tile.columns if self.major == K_MAJOR else self.tile.rows

    def index(self, row: Value, k: Value) -> Value:
        """Elements from the base: where (row, k) lies."""
        return self.tile.index(row, k) if self.major == K_MAJOR else self.tile.index(k, row)


#: addresses and offsets of a descriptor are 14 bits of 16-byte units
_FIELD_BYTES = 1 << 18
#: descriptor codes of the swizzle modes (the tensor map's are the other way round)
_DESCRIPTOR_MODE = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Descriptor:
    """Where wgmma finds an operand in shared memory.  All in bytes.

    start: address of the operand's first element.  leading, stride: between core matrices, see
    `address`.  Bits: 0-13 start / 16, 16-29 leading / 16, 32-45 stride / 16, 49-51 base offset,
    62-63 swizzle mode.  The base offset is 0 where tiles start on the swizzle's period.
    Source: PTX ISA, wgmma, "Matrix Descriptor Format".
    """

    start: int
    leading: int
    stride: int
    swizzle: int = 0
    base_offset: int = 0

    def fault(self) -> str:
        """What the hardware would not take, or "": alignment and size of every field."""
        if self.swizzle not in SWIZZLES:
            return f"swizzle is {self.swizzle} bytes; there are {SWIZZLES}"
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if value % _CHUNK or not 0 <= value < _FIELD_BYTES:
                return f"{name} is {value} bytes; it is a multiple of 16 below {_FIELD_BYTES}"
        if self.base_offset:
            return f"base offset is {self.base_offset}; start tiles at a multiple of 1024 bytes"
        if self.swizzle and self.start % (8 * self.swizzle) >= self.swizzle:
            return (
                f"start {self.start} lies in row {self.start % (8 * self.swizzle) // self.swizzle} "
                f"of a {self.swizzle}-byte swizzle; operands start in row 0 of its 8 rows"
            )
        return ""

    def encode(self) -> int:
        """The 64 bits.  Raises UsageError for fields that `fault` names."""
        if fault := self.fault():
            raise UsageError(f"{self}: {fault}")
        return (
            self.start >> 4
            | self.leading >> 4 << 16
            | self.stride >> 4 << 32
            | self.base_offset << 49
            | _DESCRIPTOR_MODE[self.swizzle] << 62
        )

    @staticmethod
    def decode(bits: int) -> Descriptor:
        mode = next(mode for mode, code in _DESCRIPTOR_MODE.items() if code == bits >> 62 & 3)
        start, leading, stride = ((bits >> place & 0x3FFF) << 4 for place in (0, 16, 32))
        return Descriptor(start, leading, stride, mode, bits >> 49 & 7)

    def address(self, row: Value, k: Value, element_bytes: int, major: str) -> Value:
        """Byte address of element (row, k) of one instruction's operand; row counts m, or n.

        Core matrices are 8 rows of 16 bytes.  K-major: stride is from 8 rows to the next 8;
        swizzled, k runs on within a row of `swizzle` bytes and leading is not used; else leading is
        from 16 bytes of k to the next 16.  MN-major: a row holds one k; swizzled, stride is from 8
        k to the next 8 and leading from one row width of m, n to the next; else stride is
        from 8 m, n to the next 8 and leading from 8 k to the next 8.
        Source: PTX ISA, wgmma, "Strides"; CUTLASS mma_traits_sm90_gmma.hpp, make_gmma_desc.
        """
        width = self.swizzle or _CHUNK
        if major == K_MAJOR:
            offset = row % 8 * width + row // 8 * self.stride
            k_bytes = k * element_bytes
            if self.swizzle:
                offset = offset + k_bytes
            else:
                offset = offset + k_bytes % _CHUNK + k_bytes // _CHUNK * self.leading
        else:
            per_row = width // element_bytes
            next_row, next_k = (
                (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
            )
            offset = row % per_row * element_bytes + row // per_row * next_row
            offset = offset + k % 8 * width + k // 8 * next_k
        return swizzle(self.start + offset, self.swizzle)


def operand_descriptor(
    tile: SharedTile, major: str, start: int = 0, row: int = 0, k: int = 0
) -> Descriptor:
    """The descriptor of the operand whose element (0, 0) is (row, k) of a tile at `start`.

    A K-major tile has rows m or n and columns k; an MN-major one rows k and columns m or n.
    Without a swizzle its slabs are 16 bytes wide.  Only `start` depends on (row, k): moving on adds
    tile.linear(...) * element_bytes // 16 to the encoded bits.
    Raises UsageError where the tile is no canonical layout or (row, k) starts no operand.
    """
    if fault := _operand_fault(tile, major, start, row, k):
        raise UsageError(f"operand_descriptor of {tile}, {major}-major, at ({row}, {k}): {fault}")
    width = tile.swizzle or _CHUNK
    slab_bytes = tile.rows * width
    at = tile.linear(row, k) if major == K_MAJOR else tile.linear(k, row)
    if tile.swizzle:
        leading = _CHUNK if major == K_MAJOR else slab_bytes
        stride = 8 * width
    else:
        leading, stride = (slab_bytes, 8 * width)
        if major == MN_MAJOR:
            leading, stride = stride, leading
    return Descriptor(start + at * tile.element_bytes, leading, stride, tile.swizzle)


def _operand_fault(tile: SharedTile, major: str, start: int, row: int, k: int) -> str:
    if major not in (K_MAJOR, MN_MAJOR):
        return f"majors are {K_MAJOR!r} and {MN_MAJOR!r}"
    if major == MN_MAJOR and tile.element_bytes != 2:
        return "only 16-bit operands can be MN-major: transpose it on the way in"
    width = tile.swizzle or _CHUNK
    if tile.slab_columns * tile.element_bytes != width or tile.pad:
        return f"its rows have to be {width} bytes wide: set slab or swizzle"
    if start % tile.alignment:
        return f"it starts at {start}, which is no multiple of {tile.alignment}"
    if tile.rows % 8:
        return f"it has {tile.rows} rows; core matrices have 8"
    if major == K_MAJOR and (row % 8 or k * tile.element_bytes % 32):
        return "operands start at multiples of 8 rows and of 32 bytes of k"
    if major == MN_MAJOR and (k % 8 or row % tile.slab_columns):
        return f"operands start at multiples of 8 k and of {tile.slab_columns} rows"
    return ""
