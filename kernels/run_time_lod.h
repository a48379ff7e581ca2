#pragma once

#include <optional>

#include <llvm/ADT/StringRef.h>

namespace millrace::kernels {

/// Where the LoD of a dense output comes from when its op runs, for ops in which that is not what
/// their inference says: the original declares LoD levels for programs by one rule, and hands LoD
/// on by another. Found by running every op of the reference corpus and its gradient in the
/// original with a LoD on each of its inputs.
///
/// \param output slot of the output
/// \returns an input slot, whose LoD the output gets even if it has other rows; "": it has none;
/// nullopt: it is as inference says
std::optional<llvm::StringRef> run_time_lod(llvm::StringRef op_type, llvm::StringRef output);

}  // namespace millrace::kernels
