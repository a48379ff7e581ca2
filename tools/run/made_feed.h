#pragma once

#include <optional>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/tensor.h"

namespace millrace::tools {

/// A feed that is made instead of read: `zeros`, or `random:SEED` (floats uniform in [-1, 1), bools
/// and integers 0 or 1), or `random:SEED:HIGH` (integers uniform in [0, HIGH)), after the dims and
/// the type where the program leaves them open: `x=8x13xf32=random:7`. Unknown dims are 1 else.
///
/// \param name  of the var
/// \param text  what stands behind "name="
/// \returns nothing if the text is no such feed but a file's name
/// Errors: kUsage naming what is wrong with the text; kResource.
StatusOr<std::optional<Tensor>> make_feed(llvm::StringRef name, llvm::StringRef text,
                                          const Program& program);

}  // namespace millrace::tools
