#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "framework/base/status.h"
#include "ps/transport/codec.h"
#include "ps/transport/grpc.h"
#include "ps/transport/memory_budget.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// The memory that calls of one listener may take, by caller. Callers that the handler does not
/// know share a small budget of their own, so that they cannot take that of the job; each known
/// trainer has a limit within the budget of all. Thread-safety: all members.
class Admission {
 public:
  /// \param handler  must outlive the object
  Admission(const GrpcOptions& options, const Handler& handler);

  /// Decides about a call by its envelope. Errors: those of Handler::knows().
  StatusOr<MessageGrant> admit(const Request& envelope);
  /// The budget of unknown callers.
  [[nodiscard]] MemoryBudget& unknown() { return unknown_; }
  [[nodiscard]] const Handler& handler() const { return handler_; }

 private:
  const uint64_t max_bytes_per_peer_;
  const Handler& handler_;
  MemoryBudget all_;
  MemoryBudget unknown_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<MemoryBudget>> peers_;  ///< by trainer
};

}  // namespace millrace::ps
