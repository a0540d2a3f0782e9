// Patterns of GLOB over texts that lie between marks: characters, whole patterns, and pieces.
//
// A text stands at [begin, end) of `laid`, with a CER_MARK before it and one at `end`.
//
// Reference: cer_gpu/backend/string_codes/scanning.py, which also makes the arrays.
#ifndef CER_GLOBS_CUH
#define CER_GLOBS_CUH
#include "common.cuh"

enum { CER_MARK = 0xFF, CER_ANY_CHARACTER = 256, CER_ANY_RUN = 257, CER_FIRST_CLASS = 258 };

// Patterns as signs: the arrays of Globs.
struct cer_globs {
  const cer_i32* signs;
  const cer_i32* begins;
  const cer_i32* class_begins;
  const cer_i32* ranges;  // [ranges, 2]
};

// Bytes of the character at a place; 1 where UTF-8 has none of as many bytes.
CER_DEVICE cer_i32 cer_length(const cer_u8* data, cer_i64 at, cer_i64 end) {
  const cer_u8 byte = data[at];
  const cer_i32 length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
  return at + length <= end ? length : 1;
}

// Code point of a character of so many bytes.
CER_DEVICE cer_i32 cer_character(const cer_u8* data, cer_i64 at, cer_i32 length) {
  if (length == 1) return data[at];
  cer_i32 code = data[at] & (0xFF >> (length + 1));
  for (cer_i32 i = 1; i < length; ++i) code = code << 6 | (data[at + i] & 0x3F);
  return code;
}

// Writes a character as UTF-8, and returns the place behind it.
CER_DEVICE cer_i64 cer_write_character(cer_u8* laid, cer_i64 at, cer_i32 character) {
  if (character < 0x80) {
    laid[at++] = static_cast<cer_u8>(character);
    return at;
  }
  if (character < 0x800) {
    laid[at++] = static_cast<cer_u8>(0xC0 | character >> 6);
  } else {
    if (character < 0x10000) {
      laid[at++] = static_cast<cer_u8>(0xE0 | character >> 12);
    } else {
      laid[at++] = static_cast<cer_u8>(0xF0 | character >> 18);
      laid[at++] = static_cast<cer_u8>(0x80 | (character >> 12 & 0x3F));
    }
    laid[at++] = static_cast<cer_u8>(0x80 | (character >> 6 & 0x3F));
  }
  laid[at++] = static_cast<cer_u8>(0x80 | (character & 0x3F));
  return at;
}

// True if a character is in one of the ranges of a class.
CER_DEVICE bool cer_in_class(const cer_globs& globs, cer_i32 number, cer_i32 character) {
  for (cer_i32 k = globs.class_begins[number]; k < globs.class_begins[number + 1]; ++k) {
    if (globs.ranges[2 * k] <= character && character <= globs.ranges[2 * k + 1]) return true;
  }
  return false;
}

// True if a pattern matches the whole text.
CER_DEVICE bool cer_glob_fits(const cer_globs& globs, cer_i32 pattern, const cer_u8* laid, cer_i64 begin, cer_i64 end) {
  cer_i32 sign = globs.begins[pattern];
  const cer_i32 last = globs.begins[pattern + 1];
  cer_i64 at = begin;
  cer_i32 after = sign;  // the sign behind the last star, and `tried` where the signs from there on begin
  cer_i64 tried = at;
  bool has_star = false;
  for (;;) {
    if (sign == last) {
      if (at == end) return true;
    } else if (globs.signs[sign] == CER_ANY_RUN) {
      if (++sign == last) return true;
      after = sign, tried = at, has_star = true;
      continue;
    } else if (at < end) {
      const cer_i32 wanted = globs.signs[sign];
      cer_i32 length = 1;
      if (wanted < CER_ANY_CHARACTER) {
        length = laid[at] == wanted ? 1 : 0;
      } else {
        length = cer_length(laid, at, end);
        if (wanted >= CER_FIRST_CLASS &&
            !cer_in_class(globs, wanted - CER_FIRST_CLASS, cer_character(laid, at, length))) {
          length = 0;
        }
      }
      if (length > 0) {
        ++sign;
        at += length;
        continue;
      }
    }
    if (!has_star || tried >= end) return false;
    tried += cer_length(laid, tried, end);
    const cer_i32 wanted = globs.signs[after];
    if (wanted < CER_ANY_CHARACTER) {
      while (tried < end && laid[tried] != wanted) ++tried;
      if (tried == end) return false;
    }
    sign = after, at = tried;
  }
}

#endif  // CER_GLOBS_CUH
