// Guards of many queries over the rows of a block, as bits: 32 rows to a word, the first row of a word lowest.
//
// Nothing is generated for a set: its patterns, comparisons and guards are data. Each test of a column has a line of
// words, with 1 for the rows that satisfy it, which are never NULL; a guard is computed from these lines word by word.
// `in` holds addresses and numbers at the places that each kernel names; cer_gpu/predicates/cuda/guard_sets.py writes
// it. All words but those of the guards' rows are 0 behind the last row.
//
// Reference: cer_gpu/expressions/targets/numpy.py, and find_globs (cer_gpu/backend/string_codes/scanning.py).
#include "columns.cuh"
#include "globs.cuh"
#include "numbers.cuh"

enum { CER_STACK = 16, CER_SPAN = 16 };

// A bit of a line of words, set by any number of threads at once.
CER_DEVICE void cer_set_row(cer_u32* line, cer_i64 row) {
  const cer_u32 bit = 1u << (row & 31);
  if ((line[row >> 5] & bit) == 0) cer_set_bits(line + (row >> 5), bit);
}

// The words of a range become 0.
CER_KERNEL cer_clear(cer_u32* words, cer_i64 n_words) {
  for (cer_i64 k = CER_WARP * CER_LANES + CER_LANE; k < n_words; k += CER_WARPS * CER_LANES) words[k] = 0;
}

// ---- texts --------------------------------------------------------------------------------------------------------

// Writes texts one behind the other, each behind a mark, with marks up to the next one.
//   in[0..1]  offsets [n + 1], and 1 if they are int64, 0: int32
//   in[2]     data: the byte at the first offset
//   in[3..4]  validity bits (0: no text is NULL), and the bit of the first text
//   in[5]     n
//   in[6..7]  folds, and their number (0: texts stay as they are)
//   in[8]     begins [n + 1]  written
//   in[9]     ends [n]        written; -1: NULL
//   in[10]    laid [bytes + n + 1]  written
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_lay_texts(const cer_u64* __restrict__ in) {
  const bool is_large = in[1] != 0;
  const cer_u8* const data = reinterpret_cast<const cer_u8*>(in[2]);
  const cer_i32* const folds = reinterpret_cast<const cer_i32*>(in[6]);
  const cer_i32 n_folds = static_cast<cer_i32>(in[7]);
  const cer_i64 n = static_cast<cer_i64>(in[5]);
  cer_i64* const begins = reinterpret_cast<cer_i64*>(in[8]);
  cer_i64* const ends = reinterpret_cast<cer_i64*>(in[9]);
  cer_u8* const laid = reinterpret_cast<cer_u8*>(in[10]);
  const cer_i64 base = is_large ? cer_load<cer_i64>(in[0], 0) : cer_load<cer_i32>(in[0], 0);
  for (cer_i64 text = CER_WARP; text < n; text += CER_WARPS) {
    const cer_i64 from = (is_large ? cer_load<cer_i64>(in[0], text) : cer_load<cer_i32>(in[0], text)) - base;
    const cer_i64 to = (is_large ? cer_load<cer_i64>(in[0], text + 1) : cer_load<cer_i32>(in[0], text + 1)) - base;
    const cer_i64 shift = text + 1;
    const bool valid = cer_is_valid(in[3], static_cast<cer_i64>(in[4]), text);
    bool is_ascii = true;
    for (cer_i64 first = from; valid && first < to; first += CER_LANES) {
      const cer_i64 k = first + CER_LANE;
      if (cer_ballot(k < to && data[k] >= 0x80)) is_ascii = false;
    }
    if (CER_LANE == 0) {
      begins[text] = from + shift;
      laid[from + shift - 1] = CER_MARK;
      if (text == n - 1) {
        begins[n] = to + shift + 1;
        laid[to + shift] = CER_MARK;
      }
      cer_i64 end = valid ? to + shift : -1;
      if (valid && !is_ascii) {  // one after the other: a folded character may have fewer bytes
        cer_i64 at = from + shift;
        for (cer_i64 k = from; k < to;) {
          const cer_i32 length = cer_length(data, k, to), character = cer_character(data, k, length);
          if ((length > 1 || character < 0x80) && character < n_folds) {
            at = cer_write_character(laid, at, folds[character]);
          } else {
            for (cer_i32 i = 0; i < length; ++i) laid[at++] = data[k + i] < CER_MARK ? data[k + i] : CER_MARK - 1;
          }
          k += length;
        }
        end = at;
        for (; at < to + shift; ++at) laid[at] = CER_MARK;
      }
      ends[text] = end;
    }
    if (is_ascii) {
      for (cer_i64 k = from + CER_LANE; k < to; k += CER_LANES) {
        const cer_u8 byte = valid ? data[k] : static_cast<cer_u8>(CER_MARK);
        laid[k + shift] = valid && n_folds > 0 ? static_cast<cer_u8>(folds[byte]) : byte;
      }
    }
  }
}

// Finds the pieces of patterns by their grams. The tests of a pattern that its piece decides get the text's bit; of
// another, the text becomes a candidate.
//   in[0..1]   laid, and its bytes
//   in[2..4]   begins [n + 1], ends [n], n
//   in[5]      bits that are 1 in a gram
//   in[6..7]   filter, and 64 less the bits that number it
//   in[8..9]   slots, and the number of the last one
//   in[10..12] keys, entries, pieces
//   in[13]     line of the candidates of each pattern; -1: its piece decides
//   in[14..15] test_begins [patterns + 1], tests: of each pattern
//   in[16]     lines of candidates
//   in[17]     lines of tests
//   in[18]     words of a line
//   in[19]     met [tests]: 1 for a test with a bit
//   in[20]     bits by which products are shifted to number slots
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_find_pieces(const cer_u64* __restrict__ in) {
  const cer_u8* const laid = reinterpret_cast<const cer_u8*>(in[0]);
  const cer_i64* const begins = reinterpret_cast<const cer_i64*>(in[2]);
  const cer_u8* const pieces = reinterpret_cast<const cer_u8*>(in[12]);
  const cer_i32* const test_begins = reinterpret_cast<const cer_i32*>(in[14]);
  cer_u32* const candidates = reinterpret_cast<cer_u32*>(in[16]);
  cer_u32* const lines = reinterpret_cast<cer_u32*>(in[17]);
  const cer_i64 n_bytes = static_cast<cer_i64>(in[1]), n_words = static_cast<cer_i64>(in[18]);
  const cer_u64 gram = in[5], filter = in[6], filter_shift = in[7], slots = in[8], last_slot = in[9];
  for (cer_i64 span = CER_WARP * CER_LANES + CER_LANE; span * CER_SPAN < n_bytes; span += CER_WARPS * CER_LANES) {
    const cer_i64 first = span * CER_SPAN, behind = first + CER_SPAN < n_bytes ? first + CER_SPAN : n_bytes;
    cer_u64 word = 0;
    for (cer_i64 at = first < 3 ? 0 : first - 3; at < first; ++at) word = word << 8 | laid[at];
    for (cer_i64 at = first; at < behind; ++at) {
      word = word << 8 | laid[at];
      const cer_u64 key = word & gram;
      const cer_u64 product = key * 0x9E3779B97F4A7C15ULL;
      if (!cer_bit(filter, static_cast<cer_i64>(product >> filter_shift))) continue;
      const cer_i64 slot = static_cast<cer_i64>(product >> in[20] & last_slot);
      cer_i64 text = -1;
      for (cer_i32 entry = cer_load<cer_i32>(slots, slot); entry < cer_load<cer_i32>(slots, slot + 1); ++entry) {
        if (cer_load<cer_u32>(in[10], entry) != key) continue;
        if (text < 0) {  // the last one that begins at this place or before
          cer_i64 low = 0, high = static_cast<cer_i64>(in[4]);
          while (high - low > 1) {
            const cer_i64 middle = (low + high) / 2;
            if (begins[middle] <= at) low = middle;
            else high = middle;
          }
          text = low;
        }
        const cer_i32 pattern = cer_load<cer_i32>(in[11], 4 * entry), piece = cer_load<cer_i32>(in[11], 4 * entry + 1);
        const cer_i32 length = cer_load<cer_i32>(in[11], 4 * entry + 2) - piece;
        const cer_i64 start = at + 1 - cer_load<cer_i32>(in[11], 4 * entry + 3);
        bool same = start >= begins[text] - 1 && start + length <= cer_load<cer_i64>(in[3], text) + 1;
        for (cer_i32 k = 0; same && k < length; ++k) same = pieces[piece + k] == laid[start + k];
        if (!same) continue;
        const cer_i32 line = cer_load<cer_i32>(in[13], pattern);
        if (line >= 0) {
          cer_set_row(candidates + line * n_words, text);
          continue;
        }
        for (cer_i32 k = test_begins[pattern]; k < test_begins[pattern + 1]; ++k) {
          const cer_i32 test = cer_load<cer_i32>(in[15], k);
          cer_set_row(lines + test * n_words, text);
          reinterpret_cast<cer_u8*>(in[19])[test] = 1;
        }
      }
    }
  }
}

// Compares whole patterns with their candidates.
//   in[0]      laid
//   in[1..3]   begins [n + 1], ends [n], n
//   in[4..5]   patterns to compare, and their number
//   in[6]      lines of the candidates of these patterns; 0: each text is one
//   in[7..10]  signs, begins of patterns, begins of classes, ranges
//   in[11..12] test_begins [patterns + 1], tests: of each pattern
//   in[13..15] lines of tests, words of a line, met [tests]
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_match_globs(const cer_u64* __restrict__ in) {
  const cer_u8* const laid = reinterpret_cast<const cer_u8*>(in[0]);
  const cer_globs globs = {reinterpret_cast<const cer_i32*>(in[7]), reinterpret_cast<const cer_i32*>(in[8]),
                           reinterpret_cast<const cer_i32*>(in[9]), reinterpret_cast<const cer_i32*>(in[10])};
  const cer_u32* const candidates = reinterpret_cast<const cer_u32*>(in[6]);
  const cer_i32* const test_begins = reinterpret_cast<const cer_i32*>(in[11]);
  cer_u32* const lines = reinterpret_cast<cer_u32*>(in[13]);
  const cer_i64 n = static_cast<cer_i64>(in[3]), n_words = static_cast<cer_i64>(in[14]);
  const cer_i64 n_all = static_cast<cer_i64>(in[5]) * n_words * 32;
  for (cer_i64 k = CER_WARP * CER_LANES + CER_LANE; k < n_all; k += CER_WARPS * CER_LANES) {
    const cer_i64 text = k % (32 * n_words);
    if (text >= n || (candidates != nullptr && !(candidates[k >> 5] >> (k & 31) & 1))) continue;
    const cer_i32 pattern = cer_load<cer_i32>(in[4], k / (32 * n_words));
    const cer_i64 end = cer_load<cer_i64>(in[2], text);
    if (end < 0 || !cer_glob_fits(globs, pattern, laid, cer_load<cer_i64>(in[1], text), end)) continue;
    for (cer_i32 i = test_begins[pattern]; i < test_begins[pattern + 1]; ++i) {
      const cer_i32 test = cer_load<cer_i32>(in[12], i);
      cer_set_row(lines + test * n_words, text);
      reinterpret_cast<cer_u8*>(in[15])[test] = 1;
    }
  }
}

// The lines of tests by row, of those by value of a dictionary.
//   in[0..1]  codes [n rows] int32 (-1: NULL), n rows
//   in[2..3]  lines by value, words of one
//   in[4..6]  lines by row (0 before), words of one, number of tests
//   in[7]     met [tests]: 1 for a test with a bit
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_spread_codes(const cer_u64* __restrict__ in) {
  const cer_i64 n_rows = static_cast<cer_i64>(in[1]), n_words = static_cast<cer_i64>(in[5]);
  const cer_i64 n_all = static_cast<cer_i64>(in[6]) * n_words;
  for (cer_i64 at = CER_WARP; at < n_all; at += CER_WARPS) {
    const cer_i64 test = at / n_words, first = at % n_words * 32;
    if (cer_load<cer_u8>(in[7], test) == 0) continue;
    cer_u32 word = 0;
    for (cer_i32 k = 0; k < 32; k += CER_LANES) {
      const cer_i64 row = first + k + CER_LANE;
      const cer_i32 code = row < n_rows ? cer_load<cer_i32>(in[0], row) : -1;
      const cer_u64 line = in[2] + 4 * test * in[3];
      word |= cer_ballot(code >= 0 && cer_bit(line, code)) << k;
    }
    if (CER_LANE == 0) reinterpret_cast<cer_u32*>(in[4])[at] = word;
  }
}

// ---- numbers ------------------------------------------------------------------------------------------------------

enum { CER_EQ, CER_NE, CER_LT, CER_LE, CER_GT, CER_GE, CER_KNOWN };
enum { CER_I1, CER_I2, CER_I4, CER_I8, CER_U1, CER_U2, CER_U4, CER_U8, CER_F4, CER_F8, CER_BITS };

template <typename T>
CER_DEVICE bool cer_compared(cer_u64 op, T a, T b) {
  switch (op) {
    case CER_EQ: return cer_eq(a, b);
    case CER_NE: return cer_ne(a, b);
    case CER_LT: return cer_lt(a, b);
    case CER_LE: return cer_le(a, b);
    case CER_GT: return cer_gt(a, b);
    default: return cer_ge(a, b);
  }
}

CER_DEVICE cer_i64 cer_stored_integer(const cer_u64* __restrict__ of, cer_i64 row) {
  const cer_i64 at = row * static_cast<cer_i64>(of[5]);
  switch (of[4]) {
    case CER_I1: return cer_load<cer_i8>(of[0], at);
    case CER_I2: return cer_load<cer_i16>(of[0], at);
    case CER_I4: return cer_load<cer_i32>(of[0], at);
    case CER_U1: return cer_load<cer_u8>(of[0], at);
    case CER_U2: return cer_load<cer_u16>(of[0], at);
    case CER_U4: return cer_load<cer_u32>(of[0], at);
    case CER_BITS: return cer_bit(of[0], static_cast<cer_i64>(of[1]) + row);
    default: return cer_load<cer_i64>(of[0], at);
  }
}

// The lines of tests of numbers.
//   tests  [n_tests, 9]  of each: values, bit of the first value, validity bits (0: no row is NULL), the first row's bit
//                        among them, type of the stored values, values from one row to the next, operator, the bits
//                        of the constant, and 1 for a negation
//   lines  [n_tests, n_words]  written
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_test_numbers(const cer_u64* __restrict__ tests, cer_i64 n_tests, cer_i64 n_rows, cer_i64 n_words,
                            cer_u32* __restrict__ lines) {
  for (cer_i64 at = CER_WARP; at < n_tests * n_words; at += CER_WARPS) {
    const cer_u64* const of = tests + 9 * (at / n_words);
    const cer_i64 first = at % n_words * 32;
    cer_u32 word = 0;
    for (cer_i32 k = 0; k < 32; k += CER_LANES) {
      const cer_i64 row = first + k + CER_LANE;
      bool holds = false;
      if (row < n_rows) {
        const bool valid = cer_is_valid(of[2], static_cast<cer_i64>(of[3]), row);
        if (of[6] == CER_KNOWN) {
          holds = valid != (of[8] != 0);
        } else if (valid) {
          bool compared;
          if (of[4] == CER_F4 || of[4] == CER_F8) {
            const cer_i64 place = row * static_cast<cer_i64>(of[5]);
            const cer_f64 value = of[4] == CER_F4 ? static_cast<cer_f64>(cer_load<cer_f32>(of[0], place))
                                                  : cer_load<cer_f64>(of[0], place);
            compared = cer_compared(of[6], value, cer_f64_of_bits(of[7]));
          } else if (of[4] == CER_U8) {
            compared = cer_compared(of[6], cer_load<cer_u64>(of[0], row * static_cast<cer_i64>(of[5])), of[7]);
          } else {
            compared = cer_compared(of[6], cer_stored_integer(of, row), static_cast<cer_i64>(of[7]));
          }
          holds = compared != (of[8] != 0);
        }
      }
      word |= cer_ballot(holds) << k;
    }
    if (CER_LANE == 0) lines[at] = word;
  }
}

// ---- guards -------------------------------------------------------------------------------------------------------

// Steps of a guard, on a stack of words: the step in the lowest three bits, and above them the number of a line.
enum { CER_PUSH, CER_PUSH_ALL, CER_PUSH_NONE, CER_AND_LINE, CER_OR_LINE, CER_AND_NOT_LINE, CER_AND, CER_OR };

// The rows of each guard, as bits, and their number.
//   begins  [n_guards + 1]  first step of each
//   steps                   that leave one word; at most CER_STACK words are on the stack
//   lines   [lines, n_words]
//   found   [n_guards, n_words]  written
//   counts  [n_guards]  0 before; the rows of each
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_find_guards(const cer_i32* __restrict__ begins, const cer_i32* __restrict__ steps, cer_i64 n_guards,
                           const cer_u32* __restrict__ lines, cer_i64 n_rows, cer_i64 n_words,
                           cer_u32* __restrict__ found, cer_u32* counts) {
  for (cer_i64 k = CER_WARP * CER_LANES + CER_LANE; k < n_guards * n_words; k += CER_WARPS * CER_LANES) {
    const cer_i64 guard = k / n_words, word = k % n_words;
    cer_u32 stack[CER_STACK] = {0}, top = 0;
    cer_i32 depth = -1;
    for (cer_i32 at = begins[guard]; at < begins[guard + 1]; ++at) {
      const cer_i32 step = steps[at] & 7;
      const cer_i64 line = static_cast<cer_i64>(steps[at] >> 3) * n_words + word;
      if (step <= CER_PUSH_NONE) {
        if (depth >= 0) stack[depth] = top;
        ++depth;
        top = step == CER_PUSH ? lines[line] : step == CER_PUSH_ALL ? 0xffffffffu : 0;
      } else if (step == CER_AND_LINE) {
        top &= lines[line];
      } else if (step == CER_OR_LINE) {
        top |= lines[line];
      } else if (step == CER_AND_NOT_LINE) {
        top &= ~lines[line];
      } else {
        --depth;
        top = step == CER_AND ? stack[depth] & top : stack[depth] | top;
      }
    }
    const cer_i64 n_left = n_rows - 32 * word;
    if (n_left < 32) top &= (1u << n_left) - 1u;
    found[k] = top;
    if (top != 0) cer_add_to(counts + guard, static_cast<cer_u32>(cer_count_bits(top)));
  }
}

// The rows of each guard, ascending.
//   found  [n_guards, n_words]
//   firsts [n_guards + 1]  place of the first row of each
//   rows   written
// Launch with any one-dimensional grid of whole warps.
CER_KERNEL cer_write_rows(const cer_u32* __restrict__ found, const cer_i64* __restrict__ firsts, cer_i64 n_guards,
                          cer_i64 n_words, cer_i32* __restrict__ rows) {
  for (cer_i64 guard = CER_WARP; guard < n_guards; guard += CER_WARPS) {
    cer_i64 to = firsts[guard];
    const cer_i64 behind = firsts[guard + 1];
    for (cer_i64 first = 0; first < n_words && to < behind; first += CER_LANES) {
      const cer_i64 word = first + CER_LANE;
      cer_u32 left = word < n_words ? found[guard * n_words + word] : 0;
      const cer_i32 n = cer_count_bits(left), up_to = cer_sum_up_to_lane(n);
      cer_i64 at = to + up_to - n;
      while (left != 0) {
        rows[at++] = static_cast<cer_i32>(32 * word + cer_count_bits((left & (0u - left)) - 1u));
        left &= left - 1u;
      }
      to += cer_of_last_lane(up_to);
    }
  }
}
