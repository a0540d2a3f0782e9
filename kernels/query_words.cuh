// Kernel of the words of a query: the template of select.cuh, instantiated with the struct cer_query generated before
// this file.
#ifndef CER_QUERY_WORDS_CUH
#define CER_QUERY_WORDS_CUH
#include "inputs.cuh"
#include "select.cuh"

CER_KERNEL cer_query_words(CER_INPUTS in, cer_i64 first, cer_i64 n_rows, cer_query::word* words) {
  cer_words_of_rows<cer_query>(cer_in(in), first, n_rows, words);
}

#endif  // CER_QUERY_WORDS_CUH
