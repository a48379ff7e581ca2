#pragma once

#include <string>
#include <utility>

#include "framework/base/status.h"

namespace millrace::ps {

/// An op that talks to servers could not do its work. \returns kExecution
inline Status failed(std::string message) {
  return {StatusCode::kExecution, std::move(message)};
}

}  // namespace millrace::ps
