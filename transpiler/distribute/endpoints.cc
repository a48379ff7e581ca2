#include "transpiler/distribute/endpoints.h"

#include <algorithm>

#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::transpiler {

StatusOr<std::vector<std::string>> list_endpoints(llvm::StringRef list, llvm::StringRef field) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  list.split(parts, ',');
  std::vector<std::string> out;
  for (const llvm::StringRef part : parts) {
    const std::string endpoint = part.trim().str();
    if (endpoint.empty()) {
      return InvalidArgument("'{}' has an empty endpoint in {}, expected ip:port,ip:port,...",
                             field.str(), quoted(list.str()));
    }
    out.push_back(endpoint);
  }
  std::vector<std::string> sorted = out;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return InvalidArgument("'{}' lists endpoint {} twice", field.str(), quoted(*twice));
  }
  return out;
}

StatusOr<std::vector<std::string>> other_endpoints(const std::vector<std::string>& endpoints,
                                                   const std::string& current) {
  std::vector<std::string> others;
  std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(others),
               [&](const std::string& endpoint) { return endpoint != current; });
  if (others.size() == endpoints.size()) {
    return InvalidArgument("current_endpoint {} is not one of the {} trainers", quoted(current),
                           endpoints.size());
  }
  return others;
}

}  // namespace millrace::transpiler
