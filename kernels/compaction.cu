// Concatenation of tiles that were compacted separately (select.cuh), without gaps and in order.
//
// Tiles are taken in groups of CER_GROUP: cer_group_tiles computes the offset of each tile in its group, cer_sum_groups
// the offset of each group, and cer_pack_tiles moves the rows. None waits for another thread.
//
// Reference: numpy.cumsum of the counts, and concatenation of the tiles.
#include "common.cuh"

enum { CER_GROUP = 256, CER_GROUP_ROUNDS = CER_GROUP / CER_LANES, CER_SUM_ROUNDS = 8 };

// counts   [n_tiles]   rows in each tile
// offsets  [n_tiles]   written: offset of each tile in its group
// totals   [n groups]  written: rows in each group
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_group_tiles(const cer_i32* __restrict__ counts, cer_i64 n_tiles, cer_i32* __restrict__ offsets,
                           cer_u64* __restrict__ totals) {
  for (cer_i64 group = CER_WARP; group * CER_GROUP < n_tiles; group += CER_WARPS) {
    cer_i32 count[CER_GROUP_ROUNDS];
    CER_UNROLL
    for (cer_i32 k = 0; k < CER_GROUP_ROUNDS; ++k) {
      const cer_i64 tile = group * CER_GROUP + k * CER_LANES + CER_LANE;
      count[k] = tile < n_tiles ? counts[tile] : 0;
    }
    cer_i32 before = 0;
    CER_UNROLL
    for (cer_i32 k = 0; k < CER_GROUP_ROUNDS; ++k) {
      const cer_i64 tile = group * CER_GROUP + k * CER_LANES + CER_LANE;
      const cer_i32 up_to = cer_sum_up_to_lane(count[k]);
      if (tile < n_tiles) offsets[tile] = before + up_to - count[k];
      before += cer_of_last_lane(up_to);
    }
    if (CER_LANE == 0) totals[group] = static_cast<cer_u64>(before);
  }
}

// totals   [n_groups + 1]  rows in each group; written: rows in the groups before, and last those in all of them
// One warp does it.
CER_KERNEL cer_sum_groups(cer_u64* __restrict__ totals, cer_i64 n_groups) {
  if (CER_WARP != 0) return;
  cer_i32 before = 0;
  for (cer_i64 first = 0; first < n_groups; first += CER_SUM_ROUNDS * CER_LANES) {
    cer_i32 total[CER_SUM_ROUNDS];  // read at once, as reads of memory take long
    CER_UNROLL
    for (cer_i32 k = 0; k < CER_SUM_ROUNDS; ++k) {
      const cer_i64 group = first + k * CER_LANES + CER_LANE;
      total[k] = group < n_groups ? static_cast<cer_i32>(totals[group]) : 0;
    }
    CER_UNROLL
    for (cer_i32 k = 0; k < CER_SUM_ROUNDS; ++k) {
      const cer_i64 group = first + k * CER_LANES + CER_LANE;
      const cer_i32 up_to = cer_sum_up_to_lane(total[k]);
      if (group < n_groups) totals[group] = static_cast<cer_u64>(before + up_to - total[k]);
      before += cer_of_last_lane(up_to);
    }
  }
  if (CER_LANE == 0) totals[n_groups] = static_cast<cer_u64>(before);
}

// symbols, rows            [n_tiles * CER_TILE]  tile t begins at CER_TILE * t
// counts, offsets, totals  as above, totals summed up
// to_symbols, to_rows      [sum of counts]  written
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_pack_tiles(const cer_i32* __restrict__ symbols, const cer_i32* __restrict__ rows,
                          const cer_i32* __restrict__ counts, const cer_i32* __restrict__ offsets,
                          const cer_u64* __restrict__ totals, cer_i64 n_tiles, cer_i32* __restrict__ to_symbols,
                          cer_i32* __restrict__ to_rows) {
  for (cer_i64 tile = CER_WARP; tile < n_tiles; tile += CER_WARPS) {
    const cer_i64 to = static_cast<cer_i64>(totals[tile / CER_GROUP]) + offsets[tile];
    for (cer_i64 k = CER_LANE; k < counts[tile]; k += CER_LANES) {
      to_symbols[to + k] = symbols[tile * CER_TILE + k];
      to_rows[to + k] = rows[tile * CER_TILE + k];
    }
  }
}
