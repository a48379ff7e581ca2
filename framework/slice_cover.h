#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/types.h"
#include "framework/var.h"

namespace millrace {

/// One of the slices of a dense var: consecutive elements, which are whole rows.
struct VarSlice {
  std::string label;           ///< for messages: "'w.block0' on h:1"
  int64_t offset = 0;          ///< elements of the var before the slice
  int64_t elements = 0;        ///< number of elements
  std::optional<DType> dtype;  ///< none: not known
  Dims dims;                   ///< empty: not known; otherwise that many elements
};

/// Checks that slices cover each element of a var exactly once, and have its element type and,
/// except for the number of rows, its dims.
///
/// \param var     name of the var
/// \param dtype   none: not known
/// \param dims    of the whole var
/// \param slices  in order of their elements; slices without elements may be anywhere
/// Errors: kInvalidData naming the var and the slice that does not fit, and whether there is a gap
/// or an overlap before it. Thread-safety: pure.
Status check_slices_cover(llvm::StringRef var, std::optional<DType> dtype,
                          llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<VarSlice> slices);

}  // namespace millrace
