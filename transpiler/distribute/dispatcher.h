#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// What a dispatcher knows about a slice.
struct Placeable {
  std::string name;     ///< name of the slice
  size_t variable = 0;  ///< slices of one variable have the same number
  int64_t bytes = 0;    ///< memory on the server: the slice and its optimizer state
  double work = 0;      ///< floating-point operations of one update
};

/// Assigns slices to servers. Two slices of one variable never share a server while another server
/// is free.
///
/// dispatch() continues where the last call ended; reset() starts over.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// Server index for each slice, in [0, number of servers).
  virtual std::vector<int32_t> dispatch(llvm::ArrayRef<Placeable> slices) = 0;
  virtual void reset() = 0;
};

/// "RoundRobin": in turn. "HashName": by the stable hash of the name (XXH64 of its bytes with seed
/// 0, modulo the number of servers; if that server already holds a slice of the variable, the next
/// free server). "Balanced": heaviest slice first, to the least loaded server, by the larger of its
/// shares of bytes and of work. Errors: kInvalidArgument for an unknown name (suggests the nearest
/// one) or if there are no servers.
StatusOr<std::unique_ptr<Dispatcher>> make_dispatcher(const std::string& split_method,
                                                      size_t servers);

}  // namespace millrace::transpiler
