#include "transpiler/distribute/endpoints.h"

#include <algorithm>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringSet.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::transpiler {
namespace endpoints_parts {
namespace {

std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}

// A name or an address; those of version 6 are in brackets. Other separators than the comma would
// make one endpoint of two.
bool is_host(llvm::StringRef host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.drop_front().drop_back();
  return !host.empty() &&
         host.find_first_of(bracketed ? ";,/@[] \t" : ":;,/@[] \t") == llvm::StringRef::npos;
}

}  // namespace
}  // namespace endpoints_parts

StatusOr<std::vector<std::string>> split_endpoints(llvm::StringRef list, llvm::StringRef field) {
  using namespace endpoints_parts;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  list.split(parts, ',');
  std::vector<std::string> out;
  llvm::StringSet<> seen;
  for (const llvm::StringRef part : parts) {
    const llvm::StringRef endpoint = part.trim();
    const auto [host, port] = endpoint.rsplit(':');
    uint32_t number = 0;
    if (!is_host(host) || port.getAsInteger(10, number) || number > 65535) {
      return InvalidArgument("{} has '{}' (expected host:port with a port up to 65535)",
                             view(field), view(endpoint));
    }
    if (!seen.insert(endpoint).second)
      return InvalidArgument("{} names '{}' twice", view(field), view(endpoint));
    out.push_back(endpoint.str());
  }
  return out;
}

StatusOr<int64_t> parse_trainer_count(const std::string& trainers) {
  int64_t count = 0;
  if (llvm::StringRef(trainers).getAsInteger(10, count) || count < 1) {
    return InvalidArgument("trainers must be a positive number with servers (found {})",
                           in_quotes(trainers));
  }
  if (count > kMaxTrainers) {
    return InvalidArgument("trainers must be at most {} (found {})", kMaxTrainers, count);
  }
  return count;
}

StatusOr<std::vector<std::string>> other_endpoints(const std::vector<std::string>& endpoints,
                                                   const std::string& current, int64_t trainer_id) {
  std::vector<std::string> others;
  std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(others),
               [&](const std::string& endpoint) { return endpoint != current; });
  if (others.size() == endpoints.size()) {
    return InvalidArgument("current_endpoint {} is not one of the {} trainers", in_quotes(current),
                           endpoints.size());
  }
  const auto owner = std::ranges::find(endpoints, current) - endpoints.begin();
  if (owner != trainer_id) {
    return InvalidArgument("current_endpoint {} is that of trainer {}, but trainer_id is {}",
                           in_quotes(current), owner, trainer_id);
  }
  return others;
}

}  // namespace millrace::transpiler
