#pragma once

#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Old programs have ops that fetch the rows of a table from pservers: attribute remote_prefetch,
/// with the pservers in epmap. Without pservers the table is local, as in the original. Errors:
/// kUnimplemented if there are pservers; the local table would be a different one.
inline Status check_rows_are_here(const KernelSetup& op, llvm::StringRef table_slot) {
  const auto servers = op.attr<std::vector<std::string>>("epmap");
  if (!op.attr<bool>("remote_prefetch") || servers.empty()) return Ok();
  return {StatusCode::kUnimplemented,
          fmt::format("'{}' fetches rows of '{}' from servers (attributes 'remote_prefetch' and "
                      "'epmap' with '{}'), which only distributed_lookup_table can do here",
                      op.def().type().str(), op.op().first_input(table_slot).str(), servers[0])};
}

}  // namespace millrace::kernels
