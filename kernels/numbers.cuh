// Comparisons and arithmetic, as every backend and the tests' reference define them.
//
// - int64 add, subtract, multiply, negate and divide are for operands whose results fit; where they may not, by the types
//   of the columns, operands are wide: 128 bits in two's complement. Values of NULL rows mean nothing, and may wrap around.
// - Division truncates toward zero; the remainder has the sign of the dividend. By zero both give 0 here, which the
//   caller makes NULL.
// - float64 follows IEEE 754, each operation rounded once (never contracted to a fused multiply-add); % is fmod;
//   division by zero gives an infinity or NaN, not NULL.
// - An integer that meets a float is converted first (nearest, ties to even). Numbers of unlike types, scales and units
//   that are to be compared exactly become wide first.
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
  if (b == -1) return cer_neg(a);
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

CER_DEVICE cer_wide cer_wide_of(cer_u64 high, cer_u64 low) {
  const cer_wide wide = {static_cast<cer_i64>(high), low};
  return wide;
}

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

CER_DEVICE cer_wide cer_add(cer_wide a, cer_wide b) {
  const cer_u64 low = a.low + b.low;
  const cer_wide sum = {
      static_cast<cer_i64>(static_cast<cer_u64>(a.high) + static_cast<cer_u64>(b.high) + (low < b.low ? 1 : 0)), low};
  return sum;
}

CER_DEVICE cer_wide cer_mul(cer_wide a, cer_wide b) {
  const cer_wide lows = cer_product(a.low, b.low);
  const cer_u64 crossed = static_cast<cer_u64>(a.high) * b.low + a.low * static_cast<cer_u64>(b.high);
  const cer_wide product = {static_cast<cer_i64>(static_cast<cer_u64>(lows.high) + crossed), lows.low};
  return product;
}

CER_DEVICE cer_wide cer_neg(cer_wide a) {
  const cer_u64 low = 0ULL - a.low;
  const cer_wide negative = {static_cast<cer_i64>(~static_cast<cer_u64>(a.high) + (low == 0 ? 1 : 0)), low};
  return negative;
}

CER_DEVICE cer_wide cer_abs(cer_wide a) { return a.high < 0 ? cer_neg(a) : a; }

CER_DEVICE bool cer_is_short(cer_wide a) { return a.high == (static_cast<cer_i64>(a.low) < 0 ? -1 : 0); }

CER_DEVICE cer_wide cer_long(cer_i64 a) {
  const cer_wide wide = {a < 0 ? -1 : 0, static_cast<cer_u64>(a)};
  return wide;
}

// The quotient of absolute values, and the remainder: long division, bit by bit.
CER_DEVICE cer_wide cer_divided(cer_wide a, cer_wide b, cer_wide& rest) {
  cer_u64 high = static_cast<cer_u64>(a.high), low = a.low, rest_high = 0, rest_low = 0;
  const cer_u64 divisor_high = static_cast<cer_u64>(b.high), divisor_low = b.low;
  for (int bit = 0; bit < 128; ++bit) {
    rest_high = (rest_high << 1) | (rest_low >> 63);
    rest_low = (rest_low << 1) | (high >> 63);
    high = (high << 1) | (low >> 63);
    low <<= 1;
    if (rest_high > divisor_high || (rest_high == divisor_high && rest_low >= divisor_low)) {
      rest_high -= divisor_high + (rest_low < divisor_low ? 1 : 0);
      rest_low -= divisor_low;
      low |= 1;
    }
  }
  rest.high = static_cast<cer_i64>(rest_high);
  rest.low = rest_low;
  const cer_wide quotient = {static_cast<cer_i64>(high), low};
  return quotient;
}

CER_DEVICE cer_wide cer_div(cer_wide a, cer_wide b) {
  if (b.high == 0 && b.low == 0) return b;
  if (b.high == -1 && b.low == ~0ULL) return cer_neg(a);
  if (cer_is_short(a) && cer_is_short(b)) return cer_long(static_cast<cer_i64>(a.low) / static_cast<cer_i64>(b.low));
  cer_wide rest;
  const cer_wide quotient = cer_divided(cer_abs(a), cer_abs(b), rest);
  return (a.high < 0) != (b.high < 0) ? cer_neg(quotient) : quotient;
}

CER_DEVICE cer_wide cer_mod(cer_wide a, cer_wide b) {
  if (cer_is_short(a) && cer_is_short(b)) {
    return cer_long(cer_mod(static_cast<cer_i64>(a.low), static_cast<cer_i64>(b.low)));
  }
  if (b.high == 0 && b.low == 0) return b;
  cer_wide rest;
  cer_divided(cer_abs(a), cer_abs(b), rest);
  return a.high < 0 ? cer_neg(rest) : rest;
}

// The nearest float64, ties to even: a bit that stands for all that are lost decides ties.
CER_DEVICE cer_f64 cer_to_f64(cer_wide a) {
  if (cer_is_short(a)) return static_cast<cer_f64>(static_cast<cer_i64>(a.low));
  const cer_wide magnitude = cer_abs(a);
  cer_u64 high = static_cast<cer_u64>(magnitude.high), low = magnitude.low, lost = 0;
  cer_f64 scale = 1.0;
  for (; high != 0; high >>= 1) {
    lost |= low & 1;
    low = (low >> 1) | (high << 63);
    scale *= 2.0;
  }
  const cer_f64 found = static_cast<cer_f64>(low | lost) * scale;
  return a.high < 0 ? -found : found;
}

CER_DEVICE bool cer_eq(cer_wide a, cer_wide b) { return a.high == b.high && a.low == b.low; }
CER_DEVICE bool cer_ne(cer_wide a, cer_wide b) { return !cer_eq(a, b); }
CER_DEVICE bool cer_lt(cer_wide a, cer_wide b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }
CER_DEVICE bool cer_le(cer_wide a, cer_wide b) { return !cer_lt(b, a); }
CER_DEVICE bool cer_gt(cer_wide a, cer_wide b) { return cer_lt(b, a); }
CER_DEVICE bool cer_ge(cer_wide a, cer_wide b) { return !cer_lt(a, b); }

// -1, 0 or 1 where a float is less than, equal to or greater than a wide integer, compared exactly; 2 for NaN.
CER_DEVICE cer_i32 cer_float_order(cer_f64 a, cer_wide b) {
  if (a != a) return 2;
  const cer_f64 whole = floor(a);
  if (whole >= 170141183460469231731687303715884105728.0) return 1;
  if (whole < -170141183460469231731687303715884105728.0) return -1;
  const bool is_short = whole >= -9223372036854775808.0 && whole < 9223372036854775808.0;
  const cer_f64 high = is_short ? 0.0 : floor(whole / 18446744073709551616.0);  // exact, as is the rest
  const cer_wide floored =
      is_short ? cer_long(static_cast<cer_i64>(whole))
               : cer_wide_of(static_cast<cer_u64>(static_cast<cer_i64>(high)),
                             static_cast<cer_u64>(whole - high * 18446744073709551616.0));
  if (cer_eq(floored, b)) return whole < a ? 1 : 0;
  return cer_lt(floored, b) ? -1 : 1;
}

CER_DEVICE bool cer_eq(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 0; }
CER_DEVICE bool cer_ne(cer_f64 a, cer_wide b) { return cer_float_order(a, b) != 0; }
CER_DEVICE bool cer_lt(cer_f64 a, cer_wide b) { return cer_float_order(a, b) < 0; }
CER_DEVICE bool cer_le(cer_f64 a, cer_wide b) { return cer_float_order(a, b) <= 0; }
CER_DEVICE bool cer_gt(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 1; }
CER_DEVICE bool cer_ge(cer_f64 a, cer_wide b) { return cer_float_order(a, b) == 0 || cer_float_order(a, b) == 1; }

#endif  // CER_NUMBERS_CUH
