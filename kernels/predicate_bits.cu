// Predicate bits: compare a nullable column with a literal, and set one bit per row where the comparison is TRUE.
//
// Contract, the same for the three kernels below (named after the types of column and literal):
//   values      [n_rows]  the column, its Arrow offset already added
//   validity    Arrow validity bitmap, or null when no row is NULL; row 0 is at bit `bit_offset`
//   literal     what each value is compared with
//   comparison  a code of cer_comparison
//   bit         0..63: which predicate of this plane of words
//   words       [n_rows]  ORed with 1 << bit where the comparison is TRUE (so not where the value is NULL), and
//               otherwise left alone; predicate i of a query belongs to plane i / 64, bit i % 64
// Launch with any one-dimensional grid. A row is written by one thread only, so no atomics are needed; kernels on
// the same plane must run on the same stream.
#include "common.cuh"

template <typename Column, typename Literal>
CER_DEVICE void cer_predicate_bits(const Column* values, const cer_u8* validity, cer_i64 bit_offset, cer_i64 n_rows,
                                   Literal literal, cer_i32 comparison, cer_i32 bit, cer_u64* words) {
  const cer_u64 mask = 1ULL << bit;
  for (cer_i64 row = CER_FIRST_ROW; row < n_rows; row += CER_ROW_STEP) {
    if (cer_is_valid(validity, bit_offset, row) &&
        cer_compare(comparison, static_cast<Literal>(values[row]), literal)) {
      words[row] |= mask;
    }
  }
}

CER_KERNEL cer_predicate_bits_i64_i64(const cer_i64* values, const cer_u8* validity, cer_i64 bit_offset,
                                      cer_i64 n_rows, cer_i64 literal, cer_i32 comparison, cer_i32 bit,
                                      cer_u64* words) {
  cer_predicate_bits(values, validity, bit_offset, n_rows, literal, comparison, bit, words);
}

CER_KERNEL cer_predicate_bits_i64_f64(const cer_i64* values, const cer_u8* validity, cer_i64 bit_offset,
                                      cer_i64 n_rows, double literal, cer_i32 comparison, cer_i32 bit,
                                      cer_u64* words) {
  cer_predicate_bits(values, validity, bit_offset, n_rows, literal, comparison, bit, words);
}

CER_KERNEL cer_predicate_bits_f64_f64(const double* values, const cer_u8* validity, cer_i64 bit_offset,
                                      cer_i64 n_rows, double literal, cer_i32 comparison, cer_i32 bit,
                                      cer_u64* words) {
  cer_predicate_bits(values, validity, bit_offset, n_rows, literal, comparison, bit, words);
}
