#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "framework/base/status.h"

namespace millrace {

/// The same error with the var set in its location; the other location fields stay.
/// An ok status stays ok.
inline Status of_var(Status status, std::string_view name) {
  Location location = status.location();
  location.var = name;
  return std::move(status).at(std::move(location));
}

}  // namespace millrace
