#include "ps/client/gather.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/slice_cover.h"
#include "framework/var.h"
#include "ps/slices/row_places.h"

namespace millrace::ps {
namespace {

using transpiler::DistributedVar;
using transpiler::OriginSlices;
using transpiler::SlicesFile;

// Fetches vars, given as pairs of endpoint and name. Values are in the order of the pairs.
StatusOr<std::vector<Value>> fetch(Client& client,
                                   llvm::ArrayRef<std::pair<std::string, std::string>> places) {
  std::vector<Client::Call> calls;
  for (const auto& [endpoint, name] : places)
    calls.emplace_back(endpoint, protocol::GetNow{{name}});
  MILLRACE_RETURN_IF_ERROR(client.call_all(calls));
  std::vector<Value> values;
  for (Client::Call& call : calls) {
    if (call.reply.values.size() != 1)
      return InvalidData("the server at {} responded with {} vars, expected 1", call.endpoint,
                         call.reply.values.size());
    values.push_back(std::move(call.reply.values.front()));
  }
  return values;
}

// The first element of a slice, as it arrived from its server. Slices of state that is listed as
// whole are where those of its parameter are (-1 if that has none), or one after the other where
// the parameter is not known.
int64_t offset_of(llvm::ArrayRef<OriginSlices> origins, const DistributedVar& slice,
                  const Tensor& tensor, int64_t previous_end) {
  if (slice.is_slice) return slice.offset;
  const int64_t offset = offset_beside_param(origins, slice, tensor.numel());
  return offset < 0 && !slice.param ? previous_end : offset;
}

StatusOr<Value> join(llvm::ArrayRef<OriginSlices> origins, const OriginSlices& origin,
                     std::vector<Value> values) {
  const auto* const first = values.front().get_if<Tensor>();
  const std::string& name = origin.origin.name;
  const Dims dims(origin.origin.shape.begin(), origin.origin.shape.end());
  if (first == nullptr || element_count(dims) == first->numel()) return std::move(values.front());
  std::vector<VarSlice> slices;
  int64_t end = 0;  // of the previous slice
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* const tensor = values[i].get_if<Tensor>();
    const DistributedVar& slice = *origin.slices[i];
    if (tensor == nullptr)
      return InvalidData("slice '{}' of '{}' on {} is {}, expected a dense tensor",
                         slice.slice.name, name, slice.endpoint, describe(values[i]));
    const int64_t offset = offset_of(origins, slice, *tensor, end);
    if (offset < 0)
      return InvalidData("'{}' on {} has {} elements, and '{}' has no slice of that size there",
                         slice.slice.name, slice.endpoint, tensor->numel(), *slice.param);
    if (__builtin_add_overflow(offset, tensor->numel(), &end)) end = 0;  // refused below
    slices.push_back({fmt::format("'{}' on {}", slice.slice.name, slice.endpoint), offset,
                      tensor->numel(), tensor->dtype(),
                      Dims(tensor->dims().begin(), tensor->dims().end())});
  }
  std::vector<VarSlice> sorted = slices;
  std::ranges::stable_sort(sorted, {}, &VarSlice::offset);
  MILLRACE_RETURN_IF_ERROR(check_slices_cover(name, first->dtype(), dims, sorted));
  Value joined;
  auto& whole = joined.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(whole.resize(first->dtype(), dims));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& tensor = *values[i].get_if<Tensor>();
    if (tensor.numel() == 0) continue;
    std::memcpy(whole.raw() + slices[i].offset * dtype_size(first->dtype()), tensor.raw(),
                static_cast<size_t>(tensor.bytes()));
  }
  return joined;
}

// Single numbers of updates, of which each server has its own, end up as one.
void tell_differences(const OriginSlices& origin, llvm::ArrayRef<Value> values,
                      const LogSink& log) {
  const auto* const first = values.front().get_if<Tensor>();
  const Dims dims(origin.origin.shape.begin(), origin.origin.shape.end());
  if (first == nullptr || element_count(dims) != first->numel()) return;
  for (size_t i = 1; i < values.size(); ++i) {
    const auto* const other = values[i].get_if<Tensor>();
    const bool same =
        other != nullptr && other->bytes() == first->bytes() &&
        std::memcmp(other->raw(), first->raw(), static_cast<size_t>(first->bytes())) == 0;
    if (same) continue;
    log(LogLevel::kWarning,
        fmt::format("'{}' on {} is another one than on {}, which counts: servers have moved it in "
                    "different steps",
                    origin.origin.name, origin.slices[i]->endpoint, origin.slices[0]->endpoint));
    return;
  }
}

// The parameter of optimizer state; null if it is not known. Files without that fact leave only the
// names: that of the state starts with that of its parameter.
const OriginSlices* param_of(llvm::ArrayRef<OriginSlices> origins, const DistributedVar& state) {
  const OriginSlices* param = nullptr;
  for (const OriginSlices& each : origins) {
    // tables whose rows trainers fetch have a type of their own
    if (each.vtype == "Optimizer" || each.origin.shape != state.origin.shape) continue;
    const std::string& name = each.origin.name;
    const bool is_longer = param == nullptr || name.size() > param->origin.name.size();
    const bool fits = state.param ? *state.param == name
                                  : llvm::StringRef(state.origin.name).startswith(name + "_");
    if (fits && is_longer) param = &each;
  }
  return param;
}

}  // namespace

int64_t offset_beside_param(llvm::ArrayRef<OriginSlices> origins, const DistributedVar& state,
                            int64_t elements) {
  const OriginSlices* const param = param_of(origins, state);
  if (param == nullptr) return -1;
  for (const DistributedVar* const slice : param->slices) {
    if (slice->endpoint == state.endpoint && element_count(slice->slice.shape) == elements)
      return slice->is_slice ? slice->offset : 0;
  }
  return -1;
}

StatusOr<const DistributedVar*> slice_beside_param(llvm::ArrayRef<OriginSlices> origins,
                                                   const DistributedVar& state) {
  const OriginSlices* const param = param_of(origins, state);
  const DistributedVar* found = nullptr;
  if (param == nullptr && state.param) return found;  // the state is whole
  for (const OriginSlices& each : origins) {
    if (param != nullptr ? &each != param : each.origin.shape != state.origin.shape) continue;
    for (const DistributedVar* const slice : each.slices) {
      if (slice->endpoint != state.endpoint || !slice->is_slice) continue;
      if (found != nullptr &&
          (found->offset != slice->offset || found->slice.shape != slice->slice.shape))
        return InvalidData(
            "the slice of '{}' on {} is not known: it may be that of '{}' or of '{}'",
            state.origin.name, state.endpoint, found->slice.name, slice->slice.name);
      found = slice;
    }
  }
  return found;
}

StatusOr<std::map<std::string, Value>> gather_schedule(Client& client, const SlicesFile& slices) {
  std::map<std::string, Value> values;
  const llvm::ArrayRef<DistributedVar> vars(slices.overview.vars());
  const std::vector<std::string>& names = slices.properties.schedule;
  const std::vector<std::string>& servers = slices.properties.endpoints;
  if (names.empty() || servers.empty()) return values;
  // All servers that update parameters run the schedule, and all servers if none updates any.
  const std::string& server = vars.empty() ? servers.front() : vars.front().endpoint;
  std::vector<std::pair<std::string, std::string>> places;
  places.reserve(names.size());
  for (const std::string& name : names) places.emplace_back(server, name);
  MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> found, fetch(client, places));
  for (size_t i = 0; i < names.size(); ++i) values[names[i]] = std::move(found[i]);
  return values;
}

StatusOr<Value> gather_table(Client& client, const SlicesFile& slices) {
  const std::string& name = slices.properties.distributed_lookup_table;
  std::vector<std::pair<std::string, std::string>> places;
  for (const std::string& endpoint : slices.properties.endpoints)
    places.emplace_back(endpoint, name);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Value> parts, fetch(client, places));
  std::vector<const SelectedRows*> shards;
  for (const Value& part : parts) {
    shards.push_back(part.get_if<SelectedRows>());
    if (shards.back() == nullptr)
      return InvalidData("a server's shard of '{}' is {}", name, describe(part));
  }
  Value joined;
  if (shards.empty()) return joined;
  SelectedRows whole;
  MILLRACE_RETURN_IF_ERROR(of_var(join_shards(shards, whole), name));
  for (int64_t row = 0; row < whole.height; ++row) {
    const auto at = static_cast<size_t>(row);
    if (at >= whole.rows.size() || whole.rows[at] != row)
      return InvalidData("no server has row {} of '{}', which has {} rows", row, name,
                         whole.height);
  }
  joined.as<Tensor>() = std::move(whole.value);
  return joined;
}

StatusOr<std::map<std::string, Value>> gather_vars(Client& client, const SlicesFile& slices,
                                                   const std::vector<std::string>& names,
                                                   const LogSink& log) {
  const std::set<std::string> wanted(names.begin(), names.end());
  std::map<std::string, Value> vars;
  const std::vector<OriginSlices> origins = transpiler::slices_by_origin(slices.overview);
  for (const OriginSlices& origin : origins) {
    if (!wanted.contains(origin.origin.name)) continue;
    std::vector<std::pair<std::string, std::string>> places;
    for (const DistributedVar* const slice : origin.slices)
      places.emplace_back(slice->endpoint, slice->slice.name);
    MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> values, fetch(client, places));
    tell_differences(origin, values, log);
    MILLRACE_ASSIGN_OR_RETURN(vars[origin.origin.name], join(origins, origin, std::move(values)));
  }
  return vars;
}

StatusOr<std::map<std::string, Value>> gather_vars(Client& client, const SlicesFile& slices,
                                                   const LogSink& log) {
  const std::string& table = slices.properties.distributed_lookup_table;
  std::vector<std::string> names;
  for (const OriginSlices& origin : transpiler::slices_by_origin(slices.overview))
    if (origin.origin.name != table) names.push_back(origin.origin.name);
  StatusOr<std::map<std::string, Value>> vars = gather_vars(client, slices, names, log);
  if (!vars.ok()) return vars;
  MILLRACE_ASSIGN_OR_RETURN(auto schedule, gather_schedule(client, slices));
  vars->merge(schedule);
  if (table.empty()) return vars;
  MILLRACE_ASSIGN_OR_RETURN((*vars)[table], gather_table(client, slices));
  return vars;
}

}  // namespace millrace::ps
