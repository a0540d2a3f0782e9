// Lookup of the symbols of words.
//
// A word of at most 16 bits is looked up in a table with an entry for each; a longer one, of `n_parts` uint64, in an
// open-addressing hash table. An event of symbol 0 (quiet) changes nothing; CER_UNSEEN marks a word without a symbol.
//
// Reference: select_by_table, select_by_hash and insert_word (cer_gpu/backend/compaction.py, which makes the tables).
#ifndef CER_SYMBOLS_CUH
#define CER_SYMBOLS_CUH
#include "common.cuh"

enum { CER_UNSEEN = -1 };

// `values` is the table; the other arguments serve longer words.
template <typename Word>
CER_DEVICE cer_i32 cer_symbol(const Word* word, cer_i32, const cer_u64*, const cer_i32* values, cer_u64) {
  return values[*word];
}

// keys    [capacity, n_parts]  capacity a power of two
// values  [capacity]           CER_UNSEEN marks a free slot, and there is always one
// mask    capacity - 1
CER_DEVICE cer_i32 cer_symbol(const cer_u64* word, cer_i32 n_parts, const cer_u64* keys, const cer_i32* values,
                              cer_u64 mask) {
  cer_u64 mixed = 0;
  for (cer_i32 k = 0; k < n_parts; ++k) {
    mixed = (mixed ^ word[k]) * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 29;
  }
  for (cer_u64 slot = mixed & mask;; slot = (slot + 1) & mask) {
    const cer_i32 symbol = values[slot];
    bool same = true;
    for (cer_i32 k = 0; k < n_parts; ++k) same &= keys[slot * n_parts + k] == word[k];
    if (same || symbol < 0) return symbol;
  }
}

#endif  // CER_SYMBOLS_CUH
