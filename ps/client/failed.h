#pragma once

#include <string>
#include <utility>

#include "framework/base/status.h"

namespace millrace::ps {

/// The status of an op that failed while it communicated with servers. \returns kExecution
inline Status failed(std::string message) {
  return {StatusCode::kExecution, std::move(message)};
}

}  // namespace millrace::ps
