// Sides of join predicates: 64 bits for each side of each relevant row, by the struct that is generated for a
// query:
//
//   struct cer_sides {
//     enum { n_sides = ... };    number of sides, at most 63
//     // writes the sides of a row, and returns the bits of those that are not NULL
//     static cer_u64 of_row(const cer_u64* in, cer_i64 row, cer_i64* side);
//   };
//
// Reference: Raw and OrderKey (cer_gpu/expressions/side_columns.py).
#ifndef CER_SIDES_CUH
#define CER_SIDES_CUH
#include "columns.cuh"
#include "numbers.cuh"

// The bits of a number, as an int64.
CER_DEVICE cer_i64 cer_bits(cer_i64 a) { return a; }
CER_DEVICE cer_i64 cer_bits(cer_u64 a) { return static_cast<cer_i64>(a); }
CER_DEVICE cer_i64 cer_bits(cer_f64 a) { return cer_bits_of_f64(a); }

// An int64 in the order of the numbers of one type; -0.0 and 0.0 are one number.
CER_DEVICE cer_i64 cer_order(cer_i64 a) { return a; }
CER_DEVICE cer_i64 cer_order(cer_u64 a) { return static_cast<cer_i64>(a ^ 0x8000000000000000ULL); }
CER_DEVICE cer_i64 cer_order(cer_f64 a) {
  const cer_i64 bits = cer_bits_of_f64(cer_add(a, 0.0));
  return bits < 0 ? bits ^ 0x7FFFFFFFFFFFFFFFLL : bits;
}

// False for NaN, which has no place in the order.
CER_DEVICE bool cer_has_order(cer_i64) { return true; }
CER_DEVICE bool cer_has_order(cer_u64) { return true; }
CER_DEVICE bool cer_has_order(cer_f64 a) { return a == a; }

// The sides of some rows.
//   rows   [n_rows]
//   sides  [n_rows, 1 + n_sides]  written: the bits of the sides that are not NULL, then the sides
// Launch with any one-dimensional grid of whole warps.
template <typename Sides>
CER_DEVICE void cer_sides_of_rows(const cer_u64* __restrict__ in, const cer_i32* __restrict__ rows, cer_i64 n_rows,
                                  cer_i64* __restrict__ sides) {
  for (cer_i64 k = CER_WARP * CER_LANES + CER_LANE; k < n_rows; k += CER_WARPS * CER_LANES) {
    cer_i64 side[Sides::n_sides];
    cer_i64* const to = sides + k * (1 + Sides::n_sides);
    to[0] = static_cast<cer_i64>(Sides::of_row(in, rows[k], side));
    for (cer_i32 s = 0; s < Sides::n_sides; ++s) to[1 + s] = side[s];
  }
}

#endif  // CER_SIDES_CUH
