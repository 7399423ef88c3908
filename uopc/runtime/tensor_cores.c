/* What tensor cores compute: operands are decoded to tiles of floats, multiplied, and put back.
 *
 * f32 tiles do for all types but f64: products of two numbers of at most 11 significant bits are
 * exact in f32 (fmaf keeps those beyond its range, too), and so are sums of 32 products of 8-bit
 * integers.  Sections named here are those of the PTX ISA 9.0.  Little-endian, as GPUs are. */
#include "tensor_cores.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  LANES = 32,
  ROWS = 16,      /* of one warp's A and D; an f64 MMA has 8 and goes its own way */
  MOST_K = 32,    /* elements: K_BYTES of an 8-bit type */
  K_BYTES = 32,   /* of a row of A or B, at most */
  COLUMNS = 32,   /* of B and D that are decoded and multiplied at a time */
  CORE = 8,       /* rows of a core matrix, and rows and columns of an ldmatrix tile */
  QUAD = 4,       /* lanes that share a row of A and D, or a column of B */
  WORD_BYTES = 4  /* of a register */
};

/* An operand's elements as they are packed, rows of k or, MN-major, of m or n; and their values. */
typedef struct { unsigned char at[COLUMNS * K_BYTES]; } Packed;
typedef struct { float at[COLUMNS * MOST_K]; } Values;
typedef struct { float at[MOST_K][COLUMNS]; } TileB; /* [k][n]: sums run over n in parallel */
typedef struct { float at[ROWS][COLUMNS]; } TileD;   /* [m][n] */

static int smaller(int a, int b) { return a < b ? a : b; }

static const unsigned char* of_lane(const void* registers, long stride, int lane) {
  return (const unsigned char*)registers + lane * stride;
}

/* ---- number formats ("Fundamental Types" and "Alternate Floating-Point Data Formats") */

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static const uint32_t F32_INFINITY = 0x7F800000, F32_QUIET_NAN = 0x7FC00000;
static const uint32_t TF32_KEPT = 0xFFFFE000; /* sign, 8 bits of exponent, 10 of mantissa */

/* A shorter format's exponent and mantissa are put where f32 has them, and the value is multiplied
 * by 2 to the difference of the biases: exact for subnormal numbers, too. */
static float from_f16(uint32_t half) {
  const float magnitude = float_of((half & 0x7FFF) << 13) * 0x1p112f; /* biases 127 and 15 */
  const uint32_t beyond = (half & 0x7C00) == 0x7C00 ? F32_INFINITY : 0; /* Inf and NaN */
  return float_of(bits_of(magnitude) | beyond | (half & 0x8000) << 16);
}

/* e4m3 has no Inf and one NaN of each sign. */
static float from_e4m3(uint32_t byte) {
  const float magnitude = float_of((byte & 0x7F) << 20) * 0x1p120f; /* biases 127 and 7 */
  const uint32_t beyond = (byte & 0x7F) == 0x7F ? F32_QUIET_NAN : 0;
  return float_of(bits_of(magnitude) | beyond | (byte & 0x80) << 24);
}

static float from_e5m2(uint32_t byte) { return from_f16(byte << 8); } /* the upper half of an f16 */

/* To the nearest f16, ties to even; every NaN becomes the canonical one. */
static uint32_t to_f16(float value) {
  const uint32_t sign = bits_of(value) >> 16 & 0x8000;
  const uint32_t magnitude = bits_of(value) & 0x7FFFFFFF;
  const uint32_t smallest_normal = 0x38800000, infinity = 0x7C00, nan = 0x7FFF; /* 2^-14 */
  if (magnitude > F32_INFINITY) return nan;
  if (magnitude < smallest_normal) /* a unit of 0.5f is f16's smallest subnormal: + rounds */
    return sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
  const uint32_t even = magnitude >> 13 & 1;
  const uint32_t rounded = (magnitude + 0xFFF + even) >> 13;
  const uint32_t rebiased = rounded - ((127 - 15) << 10);
  return sign | (rebiased < infinity ? rebiased : infinity);
}

static int bytes_of(TcType type) {
  switch (type) {
    case TC_E4M3: case TC_E5M2: case TC_S8: case TC_U8: return 1;
    case TC_F16: case TC_BF16: return 2;
    case TC_F64: return 8;
    default: return 4;
  }
}

static void decode(TcType type, const Packed* packed, int count, Values* to) {
  const unsigned char* bytes = packed->at;
  float* values = to->at;
  uint16_t half;
  uint32_t word;
  switch (type) {
    case TC_F16:
      for (int i = 0; i < count; ++i) {
        memcpy(&half, bytes + i * 2, sizeof half);
        values[i] = from_f16(half);
      }
      break;
    case TC_BF16:
      for (int i = 0; i < count; ++i) {
        memcpy(&half, bytes + i * 2, sizeof half);
        values[i] = float_of((uint32_t)half << 16);
      }
      break;
    case TC_TF32:
      for (int i = 0; i < count; ++i) {
        memcpy(&word, bytes + i * 4, sizeof word);
        values[i] = float_of(word & TF32_KEPT);
      }
      break;
    case TC_E4M3: for (int i = 0; i < count; ++i) values[i] = from_e4m3(bytes[i]); break;
    case TC_E5M2: for (int i = 0; i < count; ++i) values[i] = from_e5m2(bytes[i]); break;
    case TC_S8: for (int i = 0; i < count; ++i) values[i] = (int8_t)bytes[i]; break;
    case TC_U8: for (int i = 0; i < count; ++i) values[i] = bytes[i]; break;
    default: break; /* no type of A and B */
  }
}

/* ---- operands in registers */

/* "Matrix Fragments for mma" and wgmma's "Register Fragments": the four lanes of a quad hold
 * neighbouring words of one row (of A, or of B's n); a lane's next word is of the row 8 below, if
 * there is one (halves is 2), and then of what follows along k. */
static void pack_registers(const void* registers, long stride, int halves, int row_bytes,
                           Packed* packed) {
  const int groups = row_bytes / (QUAD * WORD_BYTES);
  for (int lane = 0; lane < LANES; ++lane) {
    const unsigned char* words = of_lane(registers, stride, lane);
    for (int i = 0; i < groups * halves; ++i) {
      const int row = i % halves * CORE + lane / QUAD;
      const int along = i / halves * QUAD + lane % QUAD;
      memcpy(packed->at + row * row_bytes + along * WORD_BYTES, words + i * WORD_BYTES, WORD_BYTES);
    }
  }
}

/* ---- operands in shared memory */

/* A piece is 16 neighbouring bytes of a row of k, or, transposed, of m or n at one k.  Pieces are
 * in the order of their first row, then of k. */
typedef struct {
  int elements; /* of a piece */
  int along_k;  /* pieces for the same first row */
  int transposed;
} Pieces;

static Pieces pieces_of(int element_bytes, int k, int transposed) {
  const int elements = TC_PIECE_BYTES / element_bytes;
  return (Pieces){elements, transposed ? k : k / elements, transposed};
}

static int piece_count(Pieces of, int rows) {
  return rows * of.along_k / (of.transposed ? of.elements : 1);
}

static int piece_row(Pieces of, int piece) {
  return piece / of.along_k * (of.transposed ? of.elements : 1);
}

static int piece_k(Pieces of, int piece) {
  return piece % of.along_k * (of.transposed ? 1 : of.elements);
}

/* K-major pieces become rows of k, in their order; MN-major ones rows of `rows` elements. */
static void pack_pieces(Pieces of, const unsigned char* shared, const unsigned* addresses, int rows,
                        Packed* packed) {
  const int count = piece_count(of, rows);
  for (int piece = 0; piece < count; ++piece) {
    const int first = of.transposed ? piece_k(of, piece) * rows + piece_row(of, piece)
                                    : piece * of.elements;
    const int at = first * TC_PIECE_BYTES / of.elements;
    memcpy(packed->at + at, shared + addresses[piece], TC_PIECE_BYTES);
  }
}

/* "Matrix Descriptor Format" of wgmma; base offsets are 0.  All in bytes. */
typedef struct {
  unsigned start, leading, stride;
  unsigned swizzle; /* the width of its pattern, 0 for none */
} Descriptor;

static Descriptor decode_descriptor(unsigned long long bits) {
  enum { FIELD = 0x3FFF, UNIT = 16, START = 0, LEADING = 16, STRIDE = 32, SWIZZLE = 62 };
  static const unsigned swizzles[] = {0, 128, 64, 32};
  return (Descriptor){
      (unsigned)(bits >> START & FIELD) * UNIT,
      (unsigned)(bits >> LEADING & FIELD) * UNIT,
      (unsigned)(bits >> STRIDE & FIELD) * UNIT,
      swizzles[bits >> SWIZZLE & 3],
  };
}

/* "Swizzling Modes" of tensor copies: the number of a 16-byte chunk in the pattern's width is XORed
 * with that of its line of 128 bytes. */
static unsigned swizzled(unsigned address, unsigned mode) {
  enum { LINE = 128, CHUNK = 16 };
  return mode ? address ^ address / LINE % (mode / CHUNK) * CHUNK : address;
}

/* "Strides" of wgmma.  Core matrices are 8 rows of 16 bytes.  K-major: stride leads from 8 rows to
 * the next 8; without a swizzle, leading from 16 bytes of k to the next 16. */
static unsigned k_major_address(Descriptor of, unsigned row, unsigned k_byte) {
  const unsigned width = of.swizzle ? of.swizzle : TC_PIECE_BYTES;
  const unsigned along_k = of.swizzle ? k_byte : k_byte / TC_PIECE_BYTES * of.leading;
  return swizzled(of.start + row % CORE * width + row / CORE * of.stride + along_k, of.swizzle);
}

/* MN-major: a memory row holds one k.  With a swizzle, stride leads from 8 k to the next 8 and
 * leading from a row's width of m or n to the next; without one, the other way round. */
static unsigned mn_major_address(Descriptor of, unsigned row_byte, unsigned k) {
  const unsigned width = of.swizzle ? of.swizzle : TC_PIECE_BYTES;
  const unsigned next_row = of.swizzle ? of.leading : of.stride;
  const unsigned next_k = of.swizzle ? of.stride : of.leading;
  const unsigned along_row = row_byte % width + row_byte / width * next_row;
  return swizzled(of.start + along_row + k % CORE * width + k / CORE * next_k, of.swizzle);
}

int tc_operand_pieces(unsigned long long descriptor, int first_row, int rows, int k,
                      int element_bytes, int transposed, unsigned* addresses) {
  const Descriptor operand = decode_descriptor(descriptor);
  const Pieces of = pieces_of(element_bytes, k, transposed);
  const int count = piece_count(of, rows);
  for (int piece = 0; piece < count; ++piece) {
    const int row = first_row + piece_row(of, piece), at_k = piece_k(of, piece);
    addresses[piece] =
        transposed ? mn_major_address(operand, (unsigned)(row * element_bytes), (unsigned)at_k)
                   : k_major_address(operand, (unsigned)row, (unsigned)(at_k * element_bytes));
  }
  return count;
}

/* ---- accumulators and products */

/* "Matrix Fragments for mma" and "Accumulator Fragments" of wgmma: a lane's elements are two
 * neighbours of row lane / 4, two of the row 8 below, then the same of the next 8 columns. */
static int element_row(int lane, int element) { return lane / QUAD + element / 2 % 2 * CORE; }

static int element_column(int lane, int element) {
  return lane % QUAD * 2 + element % 2 + element / 4 * CORE;
}

static int elements_of_lane(int columns) { return ROWS * columns / LANES; }

/* Columns first_column ... of a warp's accumulator. */
typedef struct {
  TcType type;
  unsigned char* registers;
  long stride;
  int first_column, columns;
} Accumulator;

static unsigned char* first_element(const Accumulator* of, int lane) {
  const int bytes = bytes_of(of->type) * elements_of_lane(of->first_column);
  return of->registers + lane * of->stride + bytes;
}

static void load_accumulator(const Accumulator* from, TileD* tile) {
  const int count = elements_of_lane(from->columns);
  for (int lane = 0; lane < LANES; ++lane) {
    const unsigned char* place = first_element(from, lane);
    for (int i = 0; i < count; ++i) {
      float* value = &tile->at[element_row(lane, i)][element_column(lane, i)];
      if (from->type == TC_F16) {
        uint16_t half;
        memcpy(&half, place + i * 2, sizeof half);
        *value = from_f16(half);
      } else {
        memcpy(value, place + i * 4, sizeof *value);
      }
    }
  }
}

static void store_accumulator(const Accumulator* to, const TileD* tile) {
  const int count = elements_of_lane(to->columns);
  for (int lane = 0; lane < LANES; ++lane) {
    unsigned char* place = first_element(to, lane);
    for (int i = 0; i < count; ++i) {
      const float value = tile->at[element_row(lane, i)][element_column(lane, i)];
      if (to->type == TC_F16) {
        const uint16_t half = (uint16_t)to_f16(value);
        memcpy(place + i * 2, &half, sizeof half);
      } else {
        memcpy(place + i * 4, &value, sizeof value);
      }
    }
  }
}

/* A tile of whole numbers to an i32 accumulator, which wraps. */
static void store_integers(const Accumulator* to, int keep, const TileD* tile) {
  const int count = elements_of_lane(to->columns);
  for (int lane = 0; lane < LANES; ++lane) {
    unsigned char* place = first_element(to, lane);
    for (int i = 0; i < count; ++i) {
      const float value = tile->at[element_row(lane, i)][element_column(lane, i)];
      uint32_t sum = 0;
      if (keep) memcpy(&sum, place + i * 4, sizeof sum);
      sum += (uint32_t)(int32_t)value;
      memcpy(place + i * 4, &sum, sizeof sum);
    }
  }
}

/* The values of A: element (m, k) is at m * row_step + k * k_step. */
typedef struct {
  Values values;
  int row_step, k_step;
} OperandA;

/* D += A B, k ascending.  Called with a constant number of columns. */
static inline void multiply(const OperandA* a, const TileB* b, int columns, int k, TileD* d) {
  for (int row = 0; row < ROWS; ++row) {
    const float* factors = a->values.at + row * a->row_step;
    float sums[COLUMNS];
    for (int column = 0; column < columns; ++column) sums[column] = d->at[row][column];
    for (int i = 0; i < k; ++i)
      for (int column = 0; column < columns; ++column)
        sums[column] = fmaf(factors[i * a->k_step], b->at[i][column], sums[column]);
    for (int column = 0; column < columns; ++column) d->at[row][column] = sums[column];
  }
}

/* D = A B + (keep ? D : 0) of one block of columns, CORE or up to COLUMNS. */
static void accumulate(const Accumulator* accumulator, const OperandA* a, const TileB* b, int k,
                       int keep) {
  const int integers = accumulator->type == TC_S32;
  TileD d = {0};
  if (keep && !integers) load_accumulator(accumulator, &d);
  if (accumulator->columns == CORE)
    multiply(a, b, CORE, k, &d);
  else
    multiply(a, b, COLUMNS, k, &d);
  if (integers)
    store_integers(accumulator, keep, &d);
  else
    store_accumulator(accumulator, &d);
}

/* Rows of k to TileB's columns. */
static void transpose(const Values* rows, int count, int k, TileB* b) {
  for (int i = 0; i < k; ++i)
    for (int row = 0; row < count; ++row) b->at[i][row] = rows->at[row * k + i];
}

/* ---- mma.sync */

/* "Matrix Fragments for mma.m8n8k4 with .f64": one element of A and of B a lane, two of D. */
static void multiply_f64(void* accumulator, long accumulator_stride, const void* a, long a_stride,
                         const void* b, long b_stride) {
  for (int lane = 0; lane < LANES; ++lane)
    for (int i = 0; i < 2; ++i) {
      const int first_a = element_row(lane, i) * QUAD, first_b = element_column(lane, i) * QUAD;
      unsigned char* place = (unsigned char*)accumulator + lane * accumulator_stride;
      double sum, factor_a, factor_b;
      place += sizeof sum * (size_t)i;
      memcpy(&sum, place, sizeof sum);
      for (int k = 0; k < QUAD; ++k) {
        memcpy(&factor_a, of_lane(a, a_stride, first_a + k), sizeof factor_a);
        memcpy(&factor_b, of_lane(b, b_stride, first_b + k), sizeof factor_b);
        sum = fma(factor_a, factor_b, sum);
      }
      memcpy(place, &sum, sizeof sum);
    }
}

/* A from registers, as mma.sync and wgmma have it. */
static void a_of_registers(const TcAtom* atom, const void* registers, long stride, OperandA* a) {
  Packed packed;
  pack_registers(registers, stride, ROWS / CORE, atom->k * bytes_of(atom->a), &packed);
  decode(atom->a, &packed, ROWS * atom->k, &a->values);
  a->row_step = atom->k;
  a->k_step = 1;
}

void tc_mma_sync(const TcAtom* atom, void* accumulator, long accumulator_stride, const void* a,
                 long a_stride, const void* b, long b_stride) {
  if (atom->accumulator == TC_F64) {
    multiply_f64(accumulator, accumulator_stride, a, a_stride, b, b_stride);
    return;
  }
  const Accumulator d = {atom->accumulator, accumulator, accumulator_stride, 0, CORE};
  OperandA operand_a;
  Packed packed_b;
  Values values_b;
  TileB tile_b;
  a_of_registers(atom, a, a_stride, &operand_a);
  pack_registers(b, b_stride, 1, atom->k * bytes_of(atom->b), &packed_b);
  decode(atom->b, &packed_b, CORE * atom->k, &values_b);
  transpose(&values_b, CORE, atom->k, &tile_b);
  accumulate(&d, &operand_a, &tile_b, atom->k, 1);
}

/* ---- wgmma */

static void a_of_pieces(const TcAtom* atom, const unsigned char* shared, const unsigned* addresses,
                        int transposed, OperandA* a) {
  Packed packed;
  pack_pieces(pieces_of(bytes_of(atom->a), atom->k, transposed), shared, addresses, ROWS, &packed);
  decode(atom->a, &packed, ROWS * atom->k, &a->values);
  a->row_step = transposed ? 1 : atom->k;
  a->k_step = transposed ? ROWS : 1;
}

/* `columns` columns of B, whose pieces start at addresses. */
static void b_of_pieces(const TcAtom* atom, const unsigned char* shared, const unsigned* addresses,
                        int transposed, int columns, TileB* b) {
  Packed packed;
  Values values;
  const Pieces of = pieces_of(bytes_of(atom->b), atom->k, transposed);
  pack_pieces(of, shared, addresses, columns, &packed);
  decode(atom->b, &packed, columns * atom->k, &values);
  if (!transposed) {
    transpose(&values, columns, atom->k, b);
    return;
  }
  for (int i = 0; i < atom->k; ++i)
    memcpy(b->at[i], values.at + i * columns, sizeof(float) * (size_t)columns);
}

void tc_wgmma(const TcAtom* atom, void* accumulator, long accumulator_stride,
              const void* a_registers, long a_stride, const unsigned char* shared,
              const unsigned* a_pieces, int a_transposed, const unsigned* b_pieces,
              int b_transposed, int keep) {
  const Pieces of_b = pieces_of(bytes_of(atom->b), atom->k, b_transposed);
  OperandA a;
  TileB b = {0}; /* columns beyond the last are multiplied, too */
  if (a_registers)
    a_of_registers(atom, a_registers, a_stride, &a);
  else
    a_of_pieces(atom, shared, a_pieces, a_transposed, &a);
  for (int first = 0; first < atom->n; first += COLUMNS) {
    const int columns = smaller(COLUMNS, atom->n - first);
    const Accumulator d = {atom->accumulator, accumulator, accumulator_stride, first, columns};
    b_of_pieces(atom, shared, b_pieces + piece_count(of_b, first), b_transposed, columns, &b);
    accumulate(&d, &a, &b, atom->k, keep);
  }
}

/* ---- ldmatrix and stmatrix */

/* "ldmatrix", "stmatrix": a lane's register of a tile holds elements 2 (lane % 4) and the next of
 * row lane / 4, or, transposed, of column lane / 4.  The byte offset of one of the two. */
static unsigned tile_place(const unsigned* rows, int tile, int lane, int which, int transposed) {
  const int across = lane / QUAD, along = lane % QUAD * 2 + which;
  const int row = transposed ? along : across, column = transposed ? across : along;
  return rows[tile * CORE + row] + (unsigned)column * (unsigned)sizeof(uint16_t);
}

void tc_ldmatrix(unsigned* registers, long stride, const unsigned char* shared,
                 const unsigned* rows, int tiles, int transposed) {
  for (int lane = 0; lane < LANES; ++lane)
    for (int tile = 0; tile < tiles; ++tile) {
      uint16_t pair[2];
      for (int which = 0; which < 2; ++which)
        memcpy(&pair[which], shared + tile_place(rows, tile, lane, which, transposed),
               sizeof pair[which]);
      memcpy((unsigned char*)registers + lane * stride + tile * WORD_BYTES, pair, sizeof pair);
    }
}

void tc_stmatrix(unsigned char* shared, const unsigned* rows, const unsigned* registers,
                 long stride, int tiles, int transposed) {
  for (int lane = 0; lane < LANES; ++lane)
    for (int tile = 0; tile < tiles; ++tile) {
      uint16_t pair[2];
      memcpy(pair, of_lane(registers, stride, lane) + tile * WORD_BYTES, sizeof pair);
      for (int which = 0; which < 2; ++which)
        memcpy(shared + tile_place(rows, tile, lane, which, transposed), &pair[which],
               sizeof pair[which]);
    }
}
