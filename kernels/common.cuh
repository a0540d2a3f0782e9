// Types of all kernels, and the differences between a GPU and the host: threads, and communication within a warp.
//
// NVRTC, nvcc and (with -DCER_HOST_SHIM) a plain C++17 compiler build these files; NVRTC has no <cstdint>, so the
// integer types are named here. All names start with cer_ to stay clear of the C library.
//
// On the host there is one warp of one lane, so a kernel is a loop over all rows; the tests also emulate a warp of 32
// lanes, by defining CER_LANES and the names that go with it before this file.
#ifndef CER_COMMON_CUH
#define CER_COMMON_CUH

typedef unsigned char cer_u8;
typedef signed char cer_i8;
typedef unsigned short cer_u16;
typedef short cer_i16;
typedef unsigned int cer_u32;
typedef int cer_i32;
typedef unsigned long long cer_u64;
typedef long long cer_i64;
typedef double cer_f64;
static_assert(sizeof(cer_u16) == 2 && sizeof(cer_i32) == 4 && sizeof(cer_i64) == 8, "integer sizes");

// Rows that one warp compacts by itself.
enum { CER_TILE = 1024 };

#ifdef CER_HOST_SHIM

#include <cmath>
#include <cstring>
#define CER_DEVICE inline
#define CER_KERNEL extern "C" void
#define CER_UNROLL
#ifndef CER_LANES
#define CER_LANES 1
#define CER_LANE 0
#define CER_WARP 0
#define CER_WARPS 1
CER_DEVICE cer_u32 cer_ballot(bool holds) { return holds; }
CER_DEVICE cer_i32 cer_shifted_up(cer_i32 value, cer_i32) { return value; }
CER_DEVICE cer_i32 cer_of_last_lane(cer_i32 value) { return value; }
#endif
CER_DEVICE cer_i32 cer_count_bits(cer_u32 bits) { return __builtin_popcount(bits); }
CER_DEVICE void cer_lower(cer_u64* target, cer_u64 value) {
  if (value < *target) *target = value;
}
CER_DEVICE void cer_set_bits(cer_u32* target, cer_u32 bits) { *target |= bits; }
CER_DEVICE void cer_add_to(cer_u32* target, cer_u32 value) { *target += value; }
CER_DEVICE cer_f64 cer_f64_of_bits(cer_u64 bits) {
  cer_f64 value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
CER_DEVICE cer_i64 cer_bits_of_f64(cer_f64 value) {
  cer_i64 bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

#else

#define CER_DEVICE __device__ __forceinline__
#define CER_KERNEL extern "C" __global__ void
#define CER_UNROLL _Pragma("unroll")
// one-dimensional launches of whole warps
#define CER_LANES 32
#define CER_LANE (static_cast<cer_i32>(threadIdx.x & 31u))
#define CER_WARP ((static_cast<cer_i64>(blockIdx.x) * blockDim.x + threadIdx.x) >> 5)
#define CER_WARPS ((static_cast<cer_i64>(gridDim.x) * blockDim.x) >> 5)
// All lanes of a warp must call each of the next three functions together.
// Bit k is set if `holds` in lane k.
CER_DEVICE cer_u32 cer_ballot(bool holds) { return __ballot_sync(0xffffffffu, holds); }
// The value of the lane `by` places below; the lowest lanes get their own.
CER_DEVICE cer_i32 cer_shifted_up(cer_i32 value, cer_i32 by) { return __shfl_up_sync(0xffffffffu, value, by); }
CER_DEVICE cer_i32 cer_of_last_lane(cer_i32 value) { return __shfl_sync(0xffffffffu, value, CER_LANES - 1); }
CER_DEVICE cer_i32 cer_count_bits(cer_u32 bits) { return __popc(bits); }
// *target = min(*target, value), by any number of threads at once.
CER_DEVICE void cer_lower(cer_u64* target, cer_u64 value) { atomicMin(target, value); }
// *target |= bits and *target += value, likewise.
CER_DEVICE void cer_set_bits(cer_u32* target, cer_u32 bits) { atomicOr(target, bits); }
CER_DEVICE void cer_add_to(cer_u32* target, cer_u32 value) { atomicAdd(target, value); }
CER_DEVICE cer_f64 cer_f64_of_bits(cer_u64 bits) { return __longlong_as_double(static_cast<cer_i64>(bits)); }
CER_DEVICE cer_i64 cer_bits_of_f64(cer_f64 value) { return __double_as_longlong(value); }

#endif

// A float32 in memory, of which nothing is defined but its exact conversion to float64. CuPy lets the compiler take
// subnormal float32 for 0 (-ftz=true), and then the language's own conversion would lose them.
struct cer_f32 {
  float value;
#ifdef CER_HOST_SHIM
  CER_DEVICE operator cer_f64() const { return value; }
#else
  CER_DEVICE operator cer_f64() const {
    cer_f64 wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(value));
    return wide;
  }
#endif
};
static_assert(sizeof(cer_f32) == 4 && sizeof(cer_f64) == 8, "float sizes");

// The sum of the values of this lane and those below it; all lanes of a warp must call it together.
CER_DEVICE cer_i32 cer_sum_up_to_lane(cer_i32 value) {
  for (cer_i32 by = 1; by < CER_LANES; by *= 2) {
    const cer_i32 below = cer_shifted_up(value, by);
    if (CER_LANE >= by) value += below;
  }
  return value;
}

#endif  // CER_COMMON_CUH
