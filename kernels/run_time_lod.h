#pragma once

#include <optional>

#include <llvm/ADT/StringRef.h>

namespace millrace::kernels {

/// Where the LoD of an op's dense outputs comes from when it runs, for ops in which that is not
/// what their inference says: the original declares LoD levels for programs by one rule, and hands
/// LoD on by another. Found by running every op of the reference corpus in the original with a LoD
/// on each of its inputs.
///
/// \returns an input slot, whose LoD goes to outputs with as many rows; "": outputs have none;
/// nullopt: it is as inference says
std::optional<llvm::StringRef> run_time_lod(llvm::StringRef op_type);

}  // namespace millrace::kernels
