#include "framework/attribute.h"

#include <bit>
#include <cstring>

namespace millrace {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}
bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

template <typename T>
bool same_bits(llvm::ArrayRef<T> a, llvm::ArrayRef<T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

bool AttrValue::operator==(const AttrValue& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBlock:
    case AttrKind::kBool:
      return integer() == other.integer();
    case AttrKind::kFloat:
      return same_bits(float32(), other.float32());
    case AttrKind::kFloat64:
      return same_bits(float64(), other.float64());
    case AttrKind::kString:
    case AttrKind::kVar:
      return string() == other.string();
    case AttrKind::kInts:
    case AttrKind::kBlocks:
      return ints() == other.ints();
    case AttrKind::kLongs:
      return longs() == other.longs();
    case AttrKind::kFloats:
      return same_bits(floats(), other.floats());
    case AttrKind::kFloat64s:
      return same_bits(float64s(), other.float64s());
    case AttrKind::kStrings:
    case AttrKind::kVars:
      return strings() == other.strings();
    case AttrKind::kBools:
      return bools() == other.bools();
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      return scalars() == other.scalars();
  }
  return false;
}

}  // namespace millrace
