// Kernel of the selection of a query: the template of select.cuh, instantiated with the struct cer_query generated
// before this file.
#ifndef CER_QUERY_SELECT_CUH
#define CER_QUERY_SELECT_CUH
#include "inputs.cuh"
#include "select.cuh"

CER_KERNEL cer_query_select(CER_INPUTS in, cer_i64 n_rows, cer_i64 first_tile, const cer_u64* keys,
                            const cer_i32* values, cer_u64 mask, cer_i32* symbols, cer_i32* rows, cer_i32* counts,
                            cer_u64* first_unseen) {
  cer_select_of_rows<cer_query>(cer_in(in), n_rows, first_tile, keys, values, mask, symbols, rows, counts, first_unseen);
}

#endif  // CER_QUERY_SELECT_CUH
