#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/op.h"
#include "framework/op_attrs.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// Value of an attribute, converted to T; else the default of the schema; else T{}. A value that
/// does not convert is ignored here, because the verifier has already reported it.
template <typename T>
T read_attr(const OpDef& def, const Op& op, llvm::StringRef name) {
  const AttrValue* const own = op.find_attr(name);
  if (own != nullptr) {
    if (const auto converted = convert_attr(*own, AttrTraits<T>::kKind))
      return attr_cast<T>(*converted);
  }
  const AttrDef* const declared = def.find_attr(name);
  if (declared != nullptr && declared->fallback) {
    if (const auto converted = convert_attr(*declared->fallback, AttrTraits<T>::kKind))
      return attr_cast<T>(*converted);
  }
  return T{};
}

}  // namespace millrace::ops
