// Access to rows of columns and tables. They lie in Arrow's layout in device memory, at addresses passed as numbers;
// they belong to the caller, and nothing here writes to them.
//
// Reference: cer_gpu/columnar/columns.py and cer_gpu/expressions/targets/numpy.py.
#ifndef CER_COLUMNS_CUH
#define CER_COLUMNS_CUH
#include "common.cuh"

// The value at `index` of an array of T, with the alignment of T.
template <typename T>
CER_DEVICE T cer_load(cer_u64 address, cer_i64 index) {
  return reinterpret_cast<const T*>(address)[index];
}

// A packed boolean, least significant bit first.
CER_DEVICE bool cer_bit(cer_u64 address, cer_i64 bit) { return (cer_load<cer_u8>(address, bit >> 3) >> (bit & 7)) & 1; }

// True if `row` is not NULL, by a validity bitmap with row 0 at bit `first`; address 0: no row is NULL.
CER_DEVICE bool cer_is_valid(cer_u64 address, cer_i64 first, cer_i64 row) {
  return address == 0 || cer_bit(address, first + row);
}

// The index at which to read a table made of a dictionary: its last entry (FALSE) for NULL, and for a code that the
// dictionary does not have.
CER_DEVICE cer_i64 cer_entry(cer_u64 code, bool valid, cer_u64 last) {
  return static_cast<cer_i64>(valid && code < last ? code : last);
}

#endif  // CER_COLUMNS_CUH
