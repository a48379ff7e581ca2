#include "ps/communicator/comm_context.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/names.h"

namespace millrace::ps {

CommContext dense_table_context(int table_id, std::vector<std::string> names) {
  CommContext context;
  context.var_name = fmt::format("Dense_{}", table_id);
  context.origin_varnames = std::move(names);
  context.table_id = table_id;
  return context;
}

CommContext delta_context(const CommContext& receive) {
  CommContext context = receive;
  for (std::string& name : context.split_varnames) name = names::delta(name);
  return context;
}

Status check_context(const CommContext& context) {
  if (context.var_name.empty()) return InvalidArgument("a context has no name");
  const size_t slices = context.split_varnames.size();
  if (context.table_id < 0 && slices != context.split_endpoints.size())
    return InvalidArgument("context '{}' has {} slices, but {} endpoints", context.var_name, slices,
                           context.split_endpoints.size());
  if (context.table_id < 0 && !context.sections.empty() && slices != context.sections.size())
    return InvalidArgument("context '{}' has {} slices, but {} sections", context.var_name, slices,
                           context.sections.size());
  return Ok();
}

}  // namespace millrace::ps
