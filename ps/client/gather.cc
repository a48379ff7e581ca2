#include "ps/client/gather.h"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/errors.h"

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

int64_t elements_of_gather(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Checks that slices cover each element of a var exactly once.
Status check_ends(const std::string& name, const std::map<int64_t, int64_t>& ends,
                  int64_t elements) {
  int64_t covered = 0;
  for (const auto& [begin, end] : ends) {
    if (begin != covered)
      return InvalidData("a slice of '{}' begins at element {}, expected {}", name, begin, covered);
    covered = end;
  }
  if (covered == elements) return Ok();
  return InvalidData("the slices of '{}' have {} elements, expected {}", name, covered, elements);
}

StatusOr<Value> join(llvm::ArrayRef<OriginSlices> origins, const OriginSlices& origin,
                     std::vector<Value> pieces) {
  const auto* const first = pieces.front().get_if<Tensor>();
  const int64_t elements = elements_of_gather(origin.origin.shape);
  if (first == nullptr || first->numel() == elements) return std::move(pieces.front());
  Value joined;
  auto& whole = joined.as<Tensor>();
  const Dims dims(origin.origin.shape.begin(), origin.origin.shape.end());
  MILLRACE_RETURN_IF_ERROR(whole.resize(first->dtype(), dims));
  int64_t end = 0;                  // of the previous slice
  std::map<int64_t, int64_t> ends;  // of the slices, by their first element
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto* const piece = pieces[i].get_if<Tensor>();
    const DistributedVar& slice = *origin.slices[i];
    int64_t begin = slice.offset;
    if (!slice.is_slice)
      begin = offset_beside_param(origins, origin.origin, slice.endpoint,
                                  piece == nullptr ? -1 : piece->numel());
    if (begin < 0 && !slice.is_slice) begin = end;
    if (piece == nullptr || piece->dtype() != first->dtype() || begin < 0 ||
        begin > elements - piece->numel()) {
      return InvalidData("slice {} of '{}' is {}, which does not fit into {}", i,
                         origin.origin.name, describe(pieces[i]), describe(whole));
    }
    std::memcpy(whole.raw() + begin * dtype_size(first->dtype()), piece->raw(),
                static_cast<size_t>(piece->bytes()));
    end = begin + piece->numel();
    if (piece->numel() > 0 && !ends.try_emplace(begin, end).second)
      return InvalidData("two slices of '{}' begin at element {}", origin.origin.name, begin);
  }
  MILLRACE_RETURN_IF_ERROR(check_ends(origin.origin.name, ends, elements));
  return joined;
}

// The parameter of optimizer state: the state's name starts with that of its parameter.
const OriginSlices* param_of(llvm::ArrayRef<OriginSlices> origins,
                             const transpiler::VarFacts& state) {
  const OriginSlices* param = nullptr;
  for (const OriginSlices& each : origins) {
    const bool is_longer = param == nullptr || each.origin.name.size() > param->origin.name.size();
    if (each.vtype == "Param" && each.origin.shape == state.shape && is_longer &&
        llvm::StringRef(state.name).startswith(each.origin.name + "_"))
      param = &each;
  }
  return param;
}

}  // namespace

int64_t offset_beside_param(llvm::ArrayRef<OriginSlices> origins, const transpiler::VarFacts& state,
                            const std::string& endpoint, int64_t elements) {
  const OriginSlices* const param = param_of(origins, state);
  if (param == nullptr) return -1;
  for (const DistributedVar* const slice : param->slices) {
    if (slice->endpoint == endpoint && elements_of_gather(slice->slice.shape) == elements)
      return slice->is_slice ? slice->offset : 0;
  }
  return -1;
}

StatusOr<const DistributedVar*> slice_beside_param(llvm::ArrayRef<OriginSlices> origins,
                                                   const transpiler::VarFacts& state,
                                                   const std::string& endpoint) {
  const OriginSlices* const param = param_of(origins, state);
  const DistributedVar* found = nullptr;
  for (const OriginSlices& each : origins) {
    if (param != nullptr ? &each != param : each.origin.shape != state.shape) continue;
    for (const DistributedVar* const slice : each.slices) {
      if (slice->endpoint != endpoint || !slice->is_slice) continue;
      if (found != nullptr &&
          (found->offset != slice->offset || found->slice.shape != slice->slice.shape))
        return InvalidData(
            "the slice of '{}' on {} is not known: it may be that of '{}' or of '{}'", state.name,
            endpoint, found->slice.name, slice->slice.name);
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
  std::vector<std::pair<std::string, std::string>> places;
  for (const std::string& endpoint : slices.properties.endpoints)
    places.emplace_back(endpoint, slices.properties.distributed_lookup_table);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Value> parts, fetch(client, places));
  Value joined;
  auto& whole = joined.as<Tensor>();
  for (const Value& part : parts) {
    const auto* const rows = part.get_if<SelectedRows>();
    if (rows == nullptr) return InvalidData("a server's shard of the table is {}", describe(part));
    if (!whole.initialized()) {
      Dims dims(rows->value.dims().begin(), rows->value.dims().end());
      dims[0] = rows->height;
      MILLRACE_RETURN_IF_ERROR(whole.resize(rows->value.dtype(), dims));
      std::memset(whole.raw(), 0, static_cast<size_t>(whole.bytes()));
    }
    const int64_t bytes = whole.dim(0) == 0 ? 0 : whole.bytes() / whole.dim(0);
    for (size_t i = 0; i < rows->rows.size(); ++i) {
      if (rows->rows[i] < 0 || rows->rows[i] >= whole.dim(0)) continue;
      std::memcpy(whole.raw() + rows->rows[i] * bytes,
                  rows->value.raw() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
    }
  }
  return joined;
}

StatusOr<std::map<std::string, Value>> gather_vars(Client& client, const SlicesFile& slices,
                                                   const std::vector<std::string>& names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  std::map<std::string, Value> vars;
  const std::vector<OriginSlices> origins = transpiler::slices_by_origin(slices.overview);
  for (const OriginSlices& origin : origins) {
    if (!wanted.contains(origin.origin.name)) continue;
    std::vector<std::pair<std::string, std::string>> places;
    for (const DistributedVar* const slice : origin.slices)
      places.emplace_back(slice->endpoint, slice->slice.name);
    MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> pieces, fetch(client, places));
    MILLRACE_ASSIGN_OR_RETURN(vars[origin.origin.name], join(origins, origin, std::move(pieces)));
  }
  return vars;
}

StatusOr<std::map<std::string, Value>> gather_vars(Client& client, const SlicesFile& slices) {
  const std::string& table = slices.properties.distributed_lookup_table;
  std::vector<std::string> names;
  for (const OriginSlices& origin : transpiler::slices_by_origin(slices.overview))
    if (origin.origin.name != table) names.push_back(origin.origin.name);
  StatusOr<std::map<std::string, Value>> vars = gather_vars(client, slices, names);
  if (!vars.ok()) return vars;
  MILLRACE_ASSIGN_OR_RETURN(auto schedule, gather_schedule(client, slices));
  vars->merge(schedule);
  if (table.empty()) return vars;
  MILLRACE_ASSIGN_OR_RETURN((*vars)[table], gather_table(client, slices));
  return vars;
}

}  // namespace millrace::ps
