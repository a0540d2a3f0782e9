// Comparisons and arithmetic, as every backend and the tests' reference define them.
//
// - int64 add, subtract, multiply and negate wrap around (two's complement).
// - int64 division truncates toward zero; the remainder has the sign of the dividend. By zero both give 0 here, which
//   the caller makes NULL. INT64_MIN / -1 = 0 (as in Arrow) and INT64_MIN % -1 = 0.
// - float64 follows IEEE 754, each operation rounded once (never contracted to a fused multiply-add); % is fmod;
//   division by zero gives an infinity or NaN, not NULL.
// - An integer that meets a float is converted first (nearest, ties to even). Numbers of unlike types, scales and units
//   that are to be compared exactly become wide first: 128 bits in two's complement.
// - NaN compares false with everything, but <> is true; -0.0 equals 0.0.
//
// Reference: cer_gpu/expressions/numbers.py and the operators of Python over NumPy's arrays.
#ifndef CER_NUMBERS_CUH
#define CER_NUMBERS_CUH
#include "common.cuh"

// ---- comparisons of two values of one type -------------------------------------------------------------------------

template <typename T>
CER_DEVICE bool cer_eq(T a, T b) { return a == b; }
template <typename T>
CER_DEVICE bool cer_ne(T a, T b) { return a != b; }
template <typename T>
CER_DEVICE bool cer_lt(T a, T b) { return a < b; }
template <typename T>
CER_DEVICE bool cer_le(T a, T b) { return a <= b; }
template <typename T>
CER_DEVICE bool cer_gt(T a, T b) { return a > b; }
template <typename T>
CER_DEVICE bool cer_ge(T a, T b) { return a >= b; }

// ---- conversions ---------------------------------------------------------------------------------------------------

CER_DEVICE cer_f64 cer_to_f64(cer_i64 a) { return static_cast<cer_f64>(a); }
CER_DEVICE cer_f64 cer_to_f64(cer_u64 a) { return static_cast<cer_f64>(a); }
// 2^63 and more wrap around
CER_DEVICE cer_i64 cer_to_i64(cer_u64 a) { return static_cast<cer_i64>(a); }

// ---- int64 ---------------------------------------------------------------------------------------------------------

// Signed overflow is undefined in C++, unsigned is not: wrap through cer_u64.
CER_DEVICE cer_i64 cer_add(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) + static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_sub(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) - static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_mul(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) * static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_neg(cer_i64 a) { return cer_sub(0, a); }
CER_DEVICE cer_i64 cer_abs(cer_i64 a) { return a < 0 ? cer_neg(a) : a; }

CER_DEVICE cer_i64 cer_div(cer_i64 a, cer_i64 b) {
  if (b == 0) return 0;
  // 0 and INT64_MIN are their own negatives, and 0 is the quotient of both
  if (b == -1) return a == cer_neg(a) ? 0 : -a;
  return a / b;
}

CER_DEVICE cer_i64 cer_mod(cer_i64 a, cer_i64 b) { return b == 0 || b == -1 ? 0 : a % b; }

// ---- float64 -------------------------------------------------------------------------------------------------------

// The _rn intrinsics keep the device compiler from contracting a * b + c, which would round once instead of twice.
#ifdef CER_HOST_SHIM
CER_DEVICE cer_f64 cer_add(cer_f64 a, cer_f64 b) { return a + b; }
CER_DEVICE cer_f64 cer_sub(cer_f64 a, cer_f64 b) { return a - b; }
CER_DEVICE cer_f64 cer_mul(cer_f64 a, cer_f64 b) { return a * b; }
CER_DEVICE cer_f64 cer_div(cer_f64 a, cer_f64 b) { return a / b; }
#else
CER_DEVICE cer_f64 cer_add(cer_f64 a, cer_f64 b) { return __dadd_rn(a, b); }
CER_DEVICE cer_f64 cer_sub(cer_f64 a, cer_f64 b) { return __dsub_rn(a, b); }
CER_DEVICE cer_f64 cer_mul(cer_f64 a, cer_f64 b) { return __dmul_rn(a, b); }
CER_DEVICE cer_f64 cer_div(cer_f64 a, cer_f64 b) { return __ddiv_rn(a, b); }
#endif

CER_DEVICE cer_f64 cer_neg(cer_f64 a) { return -a; }
CER_DEVICE cer_f64 cer_abs(cer_f64 a) { return fabs(a); }

CER_DEVICE cer_f64 cer_mod(cer_f64 a, cer_f64 b) { return fmod(a, b); }

// ---- wide integers -------------------------------------------------------------------------------------------------

struct cer_wide {
  cer_i64 high;
  cer_u64 low;
};

// The product of two uint64 in 128 bits, of which the first is the upper half.
CER_DEVICE cer_wide cer_product(cer_u64 a, cer_u64 b) {
  const cer_u64 mask = 0xFFFFFFFFULL;
  const cer_u64 low = (a & mask) * (b & mask), mixed = (a >> 32) * (b & mask) + (low >> 32);
  const cer_u64 other = (a & mask) * (b >> 32) + (mixed & mask);
  const cer_wide product = {static_cast<cer_i64>((a >> 32) * (b >> 32) + (mixed >> 32) + (other >> 32)),
                            (other << 32) | (low & mask)};
  return product;
}

// A number times a positive factor; for a uint64, the product has at most 127 bits.
CER_DEVICE cer_wide cer_widened(cer_u64 a, cer_i64 factor) { return cer_product(a, static_cast<cer_u64>(factor)); }
CER_DEVICE cer_wide cer_widened(cer_i64 a, cer_i64 factor) {
  if (a >= 0) return cer_widened(static_cast<cer_u64>(a), factor);
  const cer_wide product = cer_widened(0ULL - static_cast<cer_u64>(a), factor);
  const cer_u64 low = 0ULL - product.low;
  const cer_wide negative = {static_cast<cer_i64>(~static_cast<cer_u64>(product.high) + (low == 0 ? 1 : 0)), low};
  return negative;
}

CER_DEVICE cer_wide cer_sub(cer_wide a, cer_wide b) {
  const cer_u64 borrow = a.low < b.low ? 1 : 0;
  const cer_wide difference = {
      static_cast<cer_i64>(static_cast<cer_u64>(a.high) - static_cast<cer_u64>(b.high) - borrow), a.low - b.low};
  return difference;
}

CER_DEVICE bool cer_eq(cer_wide a, cer_wide b) { return a.high == b.high && a.low == b.low; }
CER_DEVICE bool cer_ne(cer_wide a, cer_wide b) { return !cer_eq(a, b); }
CER_DEVICE bool cer_lt(cer_wide a, cer_wide b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }
CER_DEVICE bool cer_le(cer_wide a, cer_wide b) { return !cer_lt(b, a); }
CER_DEVICE bool cer_gt(cer_wide a, cer_wide b) { return cer_lt(b, a); }
CER_DEVICE bool cer_ge(cer_wide a, cer_wide b) { return !cer_lt(a, b); }

// -1, 0 or 1 where a float is less than, equal to or greater than the wide integer of an int64 or uint64, compared
// exactly; 2 for NaN.
CER_DEVICE cer_i32 cer_float_order(cer_f64 a, cer_wide b) {
  if (a != a) return 2;
  const cer_f64 whole = floor(a);
  if (whole >= 18446744073709551616.0) return 1;
  if (whole < -9223372036854775808.0) return -1;
  const cer_wide floored = {whole < 0.0 ? -1 : 0, whole < 0.0 ? static_cast<cer_u64>(static_cast<cer_i64>(whole))
                                                              : static_cast<cer_u64>(whole)};
  if (cer_eq(floored, b)) return whole < a ? 1 : 0;
  return cer_lt(floored, b) ? -1 : 1;
}

CER_DEVICE bool cer_eq(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 0; }
CER_DEVICE bool cer_ne(cer_f64 a, cer_wide b) { return cer_float_order(a, b) != 0; }
CER_DEVICE bool cer_lt(cer_f64 a, cer_wide b) { return cer_float_order(a, b) < 0; }
CER_DEVICE bool cer_le(cer_f64 a, cer_wide b) { return cer_float_order(a, b) <= 0; }
CER_DEVICE bool cer_gt(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 1; }
CER_DEVICE bool cer_ge(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 0 || cer_float_order(a, b) == 1; }

// The wide integer of two constants.
CER_DEVICE cer_wide cer_wide_of(cer_u64 high, cer_u64 low) {
  const cer_wide wide = {static_cast<cer_i64>(high), low};
  return wide;
}

#endif  // CER_NUMBERS_CUH
