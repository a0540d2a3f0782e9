// The inputs of a query, which kernels get by value: the compiler then takes them for constants, and reads no memory to
// find a column. CER_N_INPUTS is defined before this file; where it is not, as there are too many, and on the host, a
// kernel gets their address.
#ifndef CER_INPUTS_CUH
#define CER_INPUTS_CUH
#include "common.cuh"

#if defined(CER_N_INPUTS) && !defined(CER_HOST_SHIM)
struct cer_inputs {
  cer_u64 at[CER_N_INPUTS];
};
#define CER_INPUTS const __grid_constant__ cer_inputs
CER_DEVICE const cer_u64* cer_in(const cer_inputs& in) { return in.at; }
#else
#define CER_INPUTS const cer_u64* __restrict__
CER_DEVICE const cer_u64* cer_in(const cer_u64* in) { return in; }
#endif

#endif  // CER_INPUTS_CUH
