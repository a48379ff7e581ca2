#include "ps/transport/call_text.h"

#include <fmt/format.h>

#include "framework/base/text.h"

namespace millrace::ps {

std::string describe_call(const Request& request) {
  std::string text = fmt::format("'{}'", method_name(request.method));
  if (request.items.empty()) return text;
  text += fmt::format(" of '{}'", printable(request.items.front().name));
  if (request.items.size() > 1) text += fmt::format(" and {} more", request.items.size() - 1);
  return text;
}

}  // namespace millrace::ps
