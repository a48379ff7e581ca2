#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/block_runner.h"
#include "framework/op.h"
#include "ps/ops/trainer_ops.h"

// prefetch and distributed_lookup_table: rows of tables that live on servers. Source:
// spec/ps_runtime.md section 6, spec/transpiler.md section 9.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::ArgIndex;
using kernels::KernelSetup;
using Strings = std::vector<std::string>;
using Link = std::shared_ptr<TrainerLink>;

Status failed(std::string message) {
  return {StatusCode::kExecution, std::move(message)};
}

StatusOr<Control> make_prefetch(const Link& link, const KernelSetup& setup) {
  const auto endpoints = setup.attr<Strings>("epmap");
  std::vector<std::string> ids;
  for (const llvm::StringRef name : setup.op().input("X")) ids.push_back(name.str());
  const kernels::ArgRange in = setup.inputs("X");
  const kernels::ArgRange out = setup.outputs("Out");
  if (endpoints.size() != ids.size() || in.count != out.count) {
    return setup.error("{} endpoints and {} outputs for the ids of {} servers", endpoints.size(),
                       out.count, ids.size());
  }
  return Control([=](ControlContext& ctx) -> Status {
    std::vector<Client::Call> calls(ids.size());
    for (int32_t i = 0; i < in.count; ++i) {
      Client::Call& call = calls[static_cast<size_t>(i)];
      call.endpoint = endpoints[static_cast<size_t>(i)];
      call.method = Method::kPrefetch;
      call.items.push_back({ids[static_cast<size_t>(i)], &ctx.args.in_value(in, i), nullptr});
      call.reply.values.push_back(std::move(ctx.args.out_value(out, i)));
    }
    MILLRACE_RETURN_IF_ERROR(link->client().call_all(calls));
    for (int32_t i = 0; i < out.count; ++i) {
      auto& values = calls[static_cast<size_t>(i)].reply.values;
      if (values.size() != 1) return failed("the server answers no rows");
      ctx.args.out_value(out, i) = std::move(values.front());
    }
    return Ok();
  });
}

// A table that is cut into ranges of rows, one a server.
struct RemoteTable {
  Strings names;
  Strings endpoints;
  std::vector<int64_t> ends;  // row behind the last one of each piece
  int64_t padding = -1;
  bool keeps_last_dim = false;  // of ids [.., 1], as newer programs do
  kernels::ArgRange ids;
  kernels::ArgRange out;

  // kept from step to step
  std::vector<int64_t> distinct;
  std::vector<Value> requests;  // ids for each server, from the begin of its piece
  std::vector<size_t> first;    // position in distinct of the first id of each piece
};

// The ids of all inputs, each once, in ascending order.
Status collect_ids(const ControlContext& ctx, RemoteTable& table) {
  table.distinct.clear();
  for (int32_t k = 0; k < table.ids.count; ++k) {
    const auto* const ids = ctx.args.in_value(table.ids, k).get_if<Tensor>();
    if (ids == nullptr || !ids->initialized() || ids->dtype() != DType::kInt64) {
      return failed(fmt::format("Ids[{}] must be i64, found {}", k,
                                describe(ctx.args.in_value(table.ids, k))));
    }
    for (const int64_t id : ids->values<int64_t>()) {
      if (id == table.padding) continue;
      if (id < 0 || id >= table.ends.back()) {
        return failed(fmt::format("Ids[{}] has {}, the table has rows 0 to {}", k, id,
                                  table.ends.back() - 1));
      }
      table.distinct.push_back(id);
    }
  }
  std::sort(table.distinct.begin(), table.distinct.end());
  table.distinct.erase(std::unique(table.distinct.begin(), table.distinct.end()),
                       table.distinct.end());
  return Ok();
}

Status ask(TrainerLink& link, RemoteTable& table, std::vector<Client::Call>& calls) {
  table.requests.resize(table.names.size());
  table.first.resize(table.names.size() + 1);
  auto place = table.distinct.begin();
  for (size_t k = 0; k < table.names.size(); ++k) {
    const auto end = std::lower_bound(place, table.distinct.end(), table.ends[k]);
    table.first[k] = static_cast<size_t>(place - table.distinct.begin());
    auto& ids = table.requests[k].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(ids.resize(DType::kInt64, {end - place, 1}));
    const int64_t begin = k == 0 ? 0 : table.ends[k - 1];
    std::transform(place, end, ids.data<int64_t>(), [&](int64_t id) { return id - begin; });
    // a server that has none of the rows is not asked, but one must tell the width
    if (place != end || (table.distinct.empty() && k == 0)) {
      Client::Call& call = calls.emplace_back();
      call.endpoint = table.endpoints[k];
      call.method = Method::kPrefetch;
      call.text = table.names[k];
      call.number = static_cast<int64_t>(k);
      call.items.push_back({table.names[k], &table.requests[k], nullptr});
    }
    place = end;
  }
  table.first.back() = table.distinct.size();
  return link.client().call_all(calls);
}

// Where the row of each distinct id stands in the answers.
StatusOr<std::vector<const std::byte*>> rows_of(const RemoteTable& table,
                                                const std::vector<Client::Call>& calls) {
  std::vector<const std::byte*> rows(table.distinct.size(), nullptr);
  for (const Client::Call& call : calls) {
    const auto k = static_cast<size_t>(call.number);
    const size_t count = table.first[k + 1] - table.first[k];
    const auto* const answer =
        call.reply.values.size() == 1 ? call.reply.values.front().get_if<Tensor>() : nullptr;
    if (answer == nullptr || answer->rank() == 0 || answer->dim(0) != static_cast<int64_t>(count)) {
      return failed(fmt::format("the server at {} does not answer {} rows of '{}'", call.endpoint,
                                count, call.text));
    }
    const int64_t bytes = count == 0 ? 0 : answer->bytes() / answer->dim(0);
    for (size_t i = 0; i < count; ++i)
      rows[table.first[k] + i] = answer->raw() + static_cast<int64_t>(i) * bytes;
  }
  return rows;
}

Status write_outputs(ControlContext& ctx, const RemoteTable& table, const Tensor& like,
                     const std::vector<const std::byte*>& rows) {
  const int64_t width = like.rank() < 2 ? 1 : like.dim(-1);
  const auto bytes = static_cast<size_t>(width * dtype_size(like.dtype()));
  for (int32_t k = 0; k < table.out.count; ++k) {
    const Tensor& ids = *ctx.args.in_value(table.ids, k).get_if<Tensor>();
    Dims dims(ids.dims().begin(), ids.dims().end());
    if (!table.keeps_last_dim && !dims.empty() && dims.back() == 1) dims.pop_back();
    dims.push_back(width);
    auto& to = ctx.args.out_value(table.out, k).as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(to.resize(like.dtype(), dims));
    to.set_lod(ids.lod());
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const int64_t id = ids.data<int64_t>()[i];
      std::byte* const place = to.raw() + static_cast<size_t>(i) * bytes;
      if (id == table.padding) {
        std::memset(place, 0, bytes);
        continue;
      }
      const auto found = std::lower_bound(table.distinct.begin(), table.distinct.end(), id);
      std::memcpy(place, rows[static_cast<size_t>(found - table.distinct.begin())], bytes);
    }
  }
  return Ok();
}

StatusOr<Control> make_lookup(const Link& link, const KernelSetup& setup) {
  auto table = std::make_shared<RemoteTable>();
  table->names = setup.attr<Strings>("table_names");
  table->endpoints = setup.attr<Strings>("endpoints");
  table->ends = setup.attr<std::vector<int64_t>>("height_sections");
  if (table->names.empty()) {
    return Status(StatusCode::kUnimplemented,
                  fmt::format("look-ups in the typed table {}", setup.attr<int32_t>("table_id")));
  }
  if (table->names.size() != table->endpoints.size() || table->names.size() != table->ends.size()) {
    return setup.error(
        "attributes 'table_names', 'endpoints' and 'height_sections' have {}, {} and {} entries",
        table->names.size(), table->endpoints.size(), table->ends.size());
  }
  std::partial_sum(table->ends.begin(), table->ends.end(), table->ends.begin());
  table->padding = setup.attr<int64_t>("padding_idx");
  table->keeps_last_dim = setup.attr<std::string>("lookup_table_version") == "lookup_table_v2";
  table->ids = setup.inputs("Ids");
  table->out = setup.outputs("Outputs");
  if (table->ids.count != table->out.count || table->ids.count == 0)
    return setup.error("{} outputs for {} ids", table->out.count, table->ids.count);
  return Control([link, table](ControlContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(collect_ids(ctx, *table));
    std::vector<Client::Call> calls;
    MILLRACE_RETURN_IF_ERROR(ask(*link, *table, calls));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<const std::byte*> rows, rows_of(*table, calls));
    return write_outputs(ctx, *table, *calls.front().reply.values.front().get_if<Tensor>(), rows);
  });
}

}  // namespace

void add_lookup_controls(ControlRegistry& registry, const Link& link) {
  registry.add("prefetch", [link](const KernelSetup& setup, BlockRunner& /*runner*/) {
    return make_prefetch(link, setup);
  });
  registry.add("distributed_lookup_table",
               [link](const KernelSetup& setup, BlockRunner& /*runner*/) {
                 return make_lookup(link, setup);
               });
}

}  // namespace millrace::ps
