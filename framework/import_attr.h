#pragma once

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "framework/wire.h"

// Reading of attributes, the most frequent messages of a program file.
namespace millrace {

/// Calls each(value) for every varint of a packed field. Errors: kInvalidProgram if the last one is
/// truncated.
/// \param packed  content of the field, without its tag and length
/// \param what    name of the field for the message
/// \param each    called with a uint64_t; signed numbers are its two's complement
template <typename Each>
Status wire_each_varint(llvm::StringRef packed, std::string_view what, Each each) {
  while (!packed.empty()) {
    uint64_t value = 0;
    uint32_t shift = 0;
    size_t used = 0;
    while (used < packed.size() && used < 10) {
      const auto byte = static_cast<uint8_t>(packed[used++]);
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      shift += 7;
      if ((byte & 0x80U) == 0) {
        shift = 0;
        break;
      }
    }
    // the last byte had the continuation bit, or the number is longer than ten bytes
    if (shift != 0) return InvalidProgram("malformed program: truncated packed {}", what);
    each(value);
    packed = packed.drop_front(used);
  }
  return Ok();
}

/// Decodes the attribute messages of one program. Most attributes of a program occur many times
/// with identical bytes ("op_role 0"), so short ones are decoded once and shared.
class AttrReader {
 public:
  explicit AttrReader(NameTable& names) : names_(names) {}

  /// \param message  encoded Attr message; need not outlive the call
  /// Errors: kInvalidProgram if it is truncated, lacks name or type, or has a type that does not
  /// exist.
  StatusOr<Attr> read(llvm::StringRef message);

 private:
  StatusOr<Attr> decode(llvm::StringRef message);

  NameTable& names_;             ///< of the program that is read
  llvm::StringMap<Attr> cache_;  ///< decoded attributes by their wire bytes
};

}  // namespace millrace
