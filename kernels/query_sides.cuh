// Kernel of the sides of a query's filters: the template of sides.cuh, instantiated with the struct cer_sides generated
// before this file.
#ifndef CER_QUERY_SIDES_CUH
#define CER_QUERY_SIDES_CUH
#include "inputs.cuh"
#include "sides.cuh"

CER_KERNEL cer_query_sides(CER_INPUTS in, const cer_i32* rows, cer_i64 n_rows, cer_i64* sides) {
  cer_sides_of_rows<cer_sides>(cer_in(in), rows, n_rows, sides);
}

#endif  // CER_QUERY_SIDES_CUH
