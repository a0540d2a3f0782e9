// Selection of relevant rows: rows to words to symbols, by the struct that is generated for a query:
//
//   struct cer_query {
//     typedef ... word;          type of one part of a bit vector: cer_u8 or cer_u16 (one part), or cer_u64
//     enum { n_parts = ... };    number of parts of a bit vector
//     static void words(const cer_u64* in, cer_i64 row, word* w);    writes the parts of the bit vector of a row
//   };
//
// `in` holds addresses of columns and tables, constants and first bits, at the places that
// cer_gpu/predicates/cuda/selection.py assigns. One warp takes a tile of CER_TILE rows, and writes its relevant rows, in
// order, from the place of the tile's first row on. compaction.cu closes the gaps.
//
// Reference: GuardWords.words (cer_gpu/predicates/guards.py), then select_by_table or select_by_hash.
#ifndef CER_SELECT_CUH
#define CER_SELECT_CUH
#include "columns.cuh"
#include "numbers.cuh"
#include "symbols.cuh"

// The words of rows first, ..., first + n_rows - 1.
//   words  [n_rows, n_parts]  written
// Launch with any one-dimensional grid of whole warps.
template <typename Query>
CER_DEVICE void cer_words_of_rows(const cer_u64* __restrict__ in, cer_i64 first, cer_i64 n_rows,
                                  typename Query::word* __restrict__ words) {
  for (cer_i64 k = CER_WARP * CER_LANES + CER_LANE; k < n_rows; k += CER_WARPS * CER_LANES) {
    typename Query::word word[Query::n_parts];
    Query::words(in, first + k, word);
    for (cer_i32 part = 0; part < Query::n_parts; ++part) words[k * Query::n_parts + part] = word[part];
  }
}

// The relevant rows of the tiles from `first_tile` on.
//   keys, values, mask    of cer_symbol
//   symbols, rows         [n_rows]  written: counts[t] for tile t, from CER_TILE * t on
//   counts                [n tiles]  written
//   first_unseen          lowered to the first tile with a word without a symbol; the counts from there on are void
// Launch with any one-dimensional grid of whole warps.
template <typename Query>
CER_DEVICE void cer_select_of_rows(const cer_u64* __restrict__ in, cer_i64 n_rows, cer_i64 first_tile,
                                   const cer_u64* __restrict__ keys, const cer_i32* __restrict__ values, cer_u64 mask,
                                   cer_i32* __restrict__ symbols, cer_i32* __restrict__ rows,
                                   cer_i32* __restrict__ counts, cer_u64* first_unseen) {
  for (cer_i64 tile = first_tile + CER_WARP; tile * CER_TILE < n_rows; tile += CER_WARPS) {
    const cer_i64 begin = tile * CER_TILE;
    cer_i32 n_kept = 0;
    bool unseen = false;
    // not unrolled: the code of a query is large, and other warps hide the latency of memory
    for (cer_i32 k = 0; k < CER_TILE; k += CER_LANES) {
      const cer_i64 row = begin + k + CER_LANE;
      cer_i32 symbol = 0;
      if (row < n_rows) {
        typename Query::word word[Query::n_parts];
        Query::words(in, row, word);
        symbol = cer_symbol(word, Query::n_parts, keys, values, mask);
      }
      const cer_u32 relevant = cer_ballot(symbol > 0);
      if (symbol > 0) {
        const cer_i64 at = begin + n_kept + cer_count_bits(relevant & ((1u << CER_LANE) - 1u));
        symbols[at] = symbol;
        rows[at] = static_cast<cer_i32>(row);
      }
      n_kept += cer_count_bits(relevant);
      unseen |= symbol < 0;
    }
    if (CER_LANE == 0) counts[tile] = n_kept;
    if (unseen) cer_lower(first_unseen, static_cast<cer_u64>(tile));
  }
}

#endif  // CER_SELECT_CUH
