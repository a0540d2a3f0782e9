// Values, NULLs, comparisons and arithmetic: the meaning that every backend and the tests' reference share.
//
// NVRTC, nvcc and (with -DCER_HOST_SHIM) a plain C++17 compiler build this file; NVRTC has no <cstdint>, so the
// integer types are named here. All names start with cer_ to stay clear of the C library.
//
// The meaning:
// - int64 add, subtract, multiply and negate wrap around (two's complement).
// - int64 division truncates toward zero; the remainder has the sign of the dividend. Dividing by zero gives NULL.
//   INT64_MIN / -1 = 0 (as in Arrow) and INT64_MIN % -1 = 0.
// - float64 follows IEEE 754, each operation rounded once (never contracted to a fused multiply-add);
//   % is fmod; division by zero gives an infinity or NaN, not NULL.
// - int64 with float64: the integer is converted to float64 first (nearest, ties to even), also in comparisons.
// - NaN compares false with everything, but != is true; -0.0 equals 0.0.
#ifndef CER_COMMON_CUH
#define CER_COMMON_CUH

#ifdef CER_HOST_SHIM
#include <cmath>
#define CER_DEVICE inline
#define CER_KERNEL extern "C" void
#define CER_FIRST_ROW 0
#define CER_ROW_STEP 1
#else
#define CER_DEVICE __device__ __forceinline__
#define CER_KERNEL extern "C" __global__ void
// a grid-stride loop: any one-dimensional launch covers every row
#define CER_FIRST_ROW (static_cast<cer_i64>(blockIdx.x) * blockDim.x + threadIdx.x)
#define CER_ROW_STEP (static_cast<cer_i64>(gridDim.x) * blockDim.x)
#endif

typedef unsigned char cer_u8;
typedef int cer_i32;
typedef long long cer_i64;
typedef unsigned long long cer_u64;
static_assert(sizeof(cer_i32) == 4 && sizeof(cer_i64) == 8 && sizeof(cer_u64) == 8, "integer sizes");

// The codes of comparisons; the host passes the same numbers.
enum cer_comparison { CER_EQ = 0, CER_NE = 1, CER_LT = 2, CER_LE = 3, CER_GT = 4, CER_GE = 5 };

// Whether `row` is not NULL, by an Arrow validity bitmap (least significant bit first) whose row 0 is at bit
// `bit_offset`; a null pointer means that no row is NULL.
CER_DEVICE bool cer_is_valid(const cer_u8* validity, cer_i64 bit_offset, cer_i64 row) {
  if (validity == nullptr) return true;
  const cer_i64 bit = bit_offset + row;
  return (validity[bit >> 3] >> (bit & 7)) & 1;
}

// a `comparison` b, for T = cer_i64 or double; false for a code that is none.
template <typename T>
CER_DEVICE bool cer_compare(cer_i32 comparison, T a, T b) {
  switch (comparison) {
    case CER_EQ: return a == b;
    case CER_NE: return a != b;
    case CER_LT: return a < b;
    case CER_LE: return a <= b;
    case CER_GT: return a > b;
    case CER_GE: return a >= b;
    default: return false;
  }
}

CER_DEVICE double cer_to_f64(cer_i64 a) { return static_cast<double>(a); }

// Signed overflow is undefined in C++, unsigned is not: wrap through cer_u64.
CER_DEVICE cer_i64 cer_add_i64(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) + static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_sub_i64(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) - static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_mul_i64(cer_i64 a, cer_i64 b) {
  return static_cast<cer_i64>(static_cast<cer_u64>(a) * static_cast<cer_u64>(b));
}

CER_DEVICE cer_i64 cer_neg_i64(cer_i64 a) { return cer_sub_i64(0, a); }

// a / b; a zero divisor clears *valid (which otherwise stays as it was) and gives 0.
CER_DEVICE cer_i64 cer_div_i64(cer_i64 a, cer_i64 b, bool* valid) {
  if (b == 0) {
    *valid = false;
    return 0;
  }
  // 0 and INT64_MIN are their own negatives, and 0 is the quotient of both
  if (b == -1) return a == cer_neg_i64(a) ? 0 : -a;
  return a / b;
}

// a % b; a zero divisor clears *valid (which otherwise stays as it was) and gives 0.
CER_DEVICE cer_i64 cer_mod_i64(cer_i64 a, cer_i64 b, bool* valid) {
  if (b == 0) {
    *valid = false;
    return 0;
  }
  return b == -1 ? 0 : a % b;
}

// The _rn intrinsics keep the device compiler from contracting a * b + c, which would round once instead of twice.
#ifdef CER_HOST_SHIM
CER_DEVICE double cer_add_f64(double a, double b) { return a + b; }
CER_DEVICE double cer_sub_f64(double a, double b) { return a - b; }
CER_DEVICE double cer_mul_f64(double a, double b) { return a * b; }
CER_DEVICE double cer_div_f64(double a, double b) { return a / b; }
#else
CER_DEVICE double cer_add_f64(double a, double b) { return __dadd_rn(a, b); }
CER_DEVICE double cer_sub_f64(double a, double b) { return __dsub_rn(a, b); }
CER_DEVICE double cer_mul_f64(double a, double b) { return __dmul_rn(a, b); }
CER_DEVICE double cer_div_f64(double a, double b) { return __ddiv_rn(a, b); }
#endif

CER_DEVICE double cer_neg_f64(double a) { return -a; }

CER_DEVICE double cer_mod_f64(double a, double b) { return fmod(a, b); }

#endif  // CER_COMMON_CUH
