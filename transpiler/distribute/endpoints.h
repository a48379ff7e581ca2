#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// Splits "ip:port,ip:port" at its commas; blanks around an endpoint are dropped.
///
/// \param field  name of the argument, for messages
/// Errors: kInvalidArgument naming the field for an endpoint that is not host:port or is listed
/// twice.
StatusOr<std::vector<std::string>> split_endpoints(llvm::StringRef list, llvm::StringRef field);

/// Maximum number of trainers of a job with servers. Server programs grow with the number of
/// trainers; the limit keeps a mistyped number from exhausting memory.
inline constexpr int64_t kMaxTrainers = 65536;

/// Parses the number of trainers. \param trainers  the argument of transpile() Errors:
/// kInvalidArgument if it is not a number in 1..kMaxTrainers.
StatusOr<int64_t> parse_trainer_count(const std::string& trainers);

/// Returns the list without the endpoint of a trainer. Errors: kInvalidArgument if the endpoint is
/// not in the list, or not at the position of that trainer.
StatusOr<std::vector<std::string>> other_endpoints(const std::vector<std::string>& endpoints,
                                                   const std::string& current, int64_t trainer_id);

}  // namespace millrace::transpiler
