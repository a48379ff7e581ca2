#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// What a dispatcher may know of a slice.
struct Placeable {
  std::string name;     ///< name of the slice
  size_t variable = 0;  ///< slices of one variable have the same number
  int64_t bytes = 0;    ///< held on the server: the slice and its optimizer state
  double work = 0;      ///< floating-point operations of one update
};

/// Deals slices to servers. Two slices of one variable never share a server while another one is
/// free.
///
/// dispatch() continues where the last call ended until reset().
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// Server index for each slice, in [0, number of servers).
  virtual std::vector<int32_t> dispatch(llvm::ArrayRef<Placeable> slices) = 0;
  virtual void reset() = 0;
};

/// "RoundRobin": in turn. "HashName": by the stable hash of the name (XXH64 with seed 0 of its
/// bytes, modulo the number of servers; the next free server where that one already holds a slice
/// of the variable). "Balanced": heaviest first to the least loaded server, by the larger of its
/// shares of bytes and of work. Errors: kInvalidArgument for another name (with the nearest one) or
/// without servers.
StatusOr<std::unique_ptr<Dispatcher>> make_dispatcher(const std::string& split_method,
                                                      size_t servers);

}  // namespace millrace::transpiler
