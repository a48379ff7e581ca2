#pragma once

#include <optional>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/tensor.h"

namespace millrace::jobs {

/// A generated feed: `zeros`, `random:SEED` (floats uniform in [-1, 1), bools and integers 0 or 1),
/// or `random:SEED:HIGH` (integers uniform in [0, HIGH)). Dims and type may precede it; they are
/// necessary if the program does not declare the var: `x=8x13xf32=random:7`. Otherwise unknown dims
/// are 1.
///
/// \param name  of the var
/// \param text  the text after "name="
/// \returns nothing if the text is not such a feed, but the name of a file
/// Errors: kUsage with what is wrong in the text; kResource.
StatusOr<std::optional<Tensor>> make_feed(llvm::StringRef name, llvm::StringRef text,
                                          const Program& program);

}  // namespace millrace::jobs
