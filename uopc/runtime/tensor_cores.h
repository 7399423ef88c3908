/* The data work of tensor cores for checked emulation: what MMAs, ldmatrix and stmatrix compute.
 *
 * Pure functions of registers and shared memory.  They know nothing of clocks, faults or order, and
 * check nothing: the caller has looked at every address first.
 *
 * Registers of one lane are consecutive; a stride is the number of bytes from one lane's to the
 * next's.  `shared` is a block's shared memory; addresses are byte offsets in it, and its start is
 * taken for a multiple of 1024, as swizzles are functions of the address.  Layouts: uopc/layouts.
 */
#ifndef UOPC_TENSOR_CORES_H
#define UOPC_TENSOR_CORES_H

typedef enum {
  TC_F16, TC_BF16, TC_TF32, TC_E4M3, TC_E5M2, TC_S8, TC_U8, TC_F64, TC_F32, TC_S32
} TcType;

/* a_in_registers counts for wgmma only, whose m is that of its four warps together: 64. */
typedef struct TcAtom {
  int m, n, k;
  TcType a, b, accumulator;
  int a_in_registers;
} TcAtom;

/* As many pieces as the largest operand has: 256 rows of 32 bytes of k. */
enum { TC_PIECE_BYTES = 16, TC_MOST_PIECES = 256 * 32 / TC_PIECE_BYTES };

/* D = A B + D of one warp's mma.sync.
 *
 * Accumulators are f32, i32 or f64 registers, or two f16 packed in 32 bits.  Products of f16, bf16,
 * tf32 and 8-bit floats are exact and are added in f32 to the accumulator, k ascending; an f16
 * accumulator is rounded once, at the end.  Integers are exact and wrap.  f64: fma, k ascending. */
void tc_mma_sync(const TcAtom* atom, void* accumulator, long accumulator_stride, const void* a,
                 long a_stride, const void* b, long b_stride);

/* Where a wgmma operand's pieces of 16 bytes lie in shared memory: rows first_row ... of m or n,
 * all of k; transposed: MN-major.  Writes their addresses in the order in which tc_wgmma takes them
 * and returns how many there are, at most TC_MOST_PIECES. */
int tc_operand_pieces(unsigned long long descriptor, int first_row, int rows, int k,
                      int element_bytes, int transposed, unsigned* addresses);

/* One warp's part of a wgmma: 16 rows of m, all of n.  D = A B + (keep ? D : 0); sums as above.
 *
 * A comes from the pieces of the warp's 16 rows, or from the lanes' registers where a_registers is
 * not null; B from the pieces of all n rows. */
void tc_wgmma(const TcAtom* atom, void* accumulator, long accumulator_stride,
              const void* a_registers, long a_stride, const unsigned char* shared,
              const unsigned* a_pieces, int a_transposed, const unsigned* b_pieces,
              int b_transposed, int keep);

/* ldmatrix and stmatrix of `tiles` 8x8 tiles of 16 bits, plain or .trans, one register a tile.
 * rows[l]: the address of the 16-byte row that lane l names, l < 8 * tiles. */
void tc_ldmatrix(unsigned* registers, long stride, const unsigned char* shared,
                 const unsigned* rows, int tiles, int transposed);
void tc_stmatrix(unsigned char* shared, const unsigned* rows, const unsigned* registers,
                 long stride, int tiles, int transposed);

#endif
