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
/// Errors: kInvalidArgument naming the field for an endpoint that is no host:port or stands twice.
StatusOr<std::vector<std::string>> split_endpoints(llvm::StringRef list, llvm::StringRef field);

/// Most trainers of a job with servers: programs of servers grow with the number of trainers, so a
/// mistyped one must not take all memory.
inline constexpr int64_t kMaxTrainers = 65536;

/// The number of trainers. \param trainers  the argument of transpile()
/// Errors: kInvalidArgument if it is no number in 1..kMaxTrainers.
StatusOr<int64_t> parse_trainer_count(const std::string& trainers);

/// The list without the endpoint. Errors: kInvalidArgument if the endpoint is not in the list.
StatusOr<std::vector<std::string>> other_endpoints(const std::vector<std::string>& endpoints,
                                                   const std::string& current);

}  // namespace millrace::transpiler
