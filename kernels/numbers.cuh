// Comparisons and arithmetic, as every backend and the tests' reference define them.
//
// - int64 add, subtract, multiply and negate wrap around (two's complement).
// - int64 division truncates toward zero; the remainder has the sign of the dividend. By zero both give 0 here, which
//   the caller makes NULL. INT64_MIN / -1 = 0 (as in Arrow) and INT64_MIN % -1 = 0.
// - float64 follows IEEE 754, each operation rounded once (never contracted to a fused multiply-add); % is fmod;
//   division by zero gives an infinity or NaN, not NULL.
// - An integer that meets a float is converted first (nearest, ties to even). int64 and uint64 are compared exactly.
// - NaN compares false with everything, but <> is true; -0.0 equals 0.0.
//
// Reference: cer_gpu/predicates/numbers.py and the operators of Python over NumPy's arrays.
#ifndef CER_NUMBERS_CUH
#define CER_NUMBERS_CUH
#include "common.cuh"

// ---- comparisons: two values of one type, or an int64 and a uint64 -------------------------------------------------

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

// C++ would convert a negative number to a large one
CER_DEVICE bool cer_eq(cer_i64 a, cer_u64 b) { return a >= 0 && static_cast<cer_u64>(a) == b; }
CER_DEVICE bool cer_ne(cer_i64 a, cer_u64 b) { return !cer_eq(a, b); }
CER_DEVICE bool cer_lt(cer_i64 a, cer_u64 b) { return a < 0 || static_cast<cer_u64>(a) < b; }
CER_DEVICE bool cer_le(cer_i64 a, cer_u64 b) { return a < 0 || static_cast<cer_u64>(a) <= b; }
CER_DEVICE bool cer_gt(cer_i64 a, cer_u64 b) { return !cer_le(a, b); }
CER_DEVICE bool cer_ge(cer_i64 a, cer_u64 b) { return !cer_lt(a, b); }

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

CER_DEVICE cer_f64 cer_mod(cer_f64 a, cer_f64 b) { return fmod(a, b); }

#endif  // CER_NUMBERS_CUH
