#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/block_runner.h"
#include "framework/op.h"
#include "ps/client/failed.h"
#include "ps/ops/trainer_ops.h"
#include "ps/ops/typed_tables.h"
#include "ps/slices/row_routes.h"

// prefetch and distributed_lookup_table: look up rows of tables on servers. Source:
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

StatusOr<Control> make_prefetch(const Link& link, const KernelSetup& setup) {
  MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
  const auto endpoints = setup.attr<Strings>("epmap");
  std::vector<std::string> ids;
  for (const llvm::StringRef name : setup.op().input("X")) ids.push_back(name.str());
  const kernels::ArgRange in = setup.inputs("X");
  const kernels::ArgRange out = setup.outputs("Out");
  if (endpoints.size() != ids.size() || in.count != out.count) {
    return setup.error(
        "found {} endpoints and {} outputs for the ids of {} servers, expected one each",
        endpoints.size(), out.count, ids.size());
  }
  return Control([=](ControlContext& ctx) -> Status {
    std::vector<Client::Call> calls;
    for (int32_t i = 0; i < in.count; ++i) {
      const auto k = static_cast<size_t>(i);
      const RequestItem item{ids[k], &ctx.args.in_value(in, i), nullptr};
      Client::Call& call = calls.emplace_back(endpoints[k], protocol::Prefetch{{}, {item}});
      call.reply.values.push_back(std::move(ctx.args.out_value(out, i)));
    }
    MILLRACE_RETURN_IF_ERROR(link->client().call_all(calls));
    for (int32_t i = 0; i < out.count; ++i) {
      auto& values = calls[static_cast<size_t>(i)].reply.values;
      if (values.size() != 1) return failed("the server did not return rows");
      ctx.args.out_value(out, i) = std::move(values.front());
    }
    return Ok();
  });
}

// A table that is split into ranges of rows, one range per server.
struct RemoteTable {
  Strings names;
  Strings endpoints;
  std::vector<int64_t> ends;  // one past the last row of each slice
  int64_t padding = -1;
  std::optional<DType> dtype;   // where the op has the attribute
  bool keeps_last_dim = false;  // keep the last dim of ids [.., 1], as newer programs do
  kernels::ArgRange ids;
  kernels::ArgRange out;

  // reused from step to step
  RowRoutes routes;
  std::vector<Value> requests;  // rows of each slice, relative to its first row
  std::vector<Value> answers;   // those rows, in memory reused from earlier responses
  std::vector<size_t> asked;    // the slice of each call
};

// Collects the distinct rows of all ids, by slice.
Status collect_ids(const ControlContext& ctx, RemoteTable& table) {
  size_t count = 0;
  for (int32_t k = 0; k < table.ids.count; ++k) {
    const auto* const ids = ctx.args.in_value(table.ids, k).get_if<Tensor>();
    if (ids == nullptr || !ids->initialized() || ids->dtype() != DType::kInt64) {
      return failed(fmt::format("Ids[{}] must be i64, found {}", k,
                                describe(ctx.args.in_value(table.ids, k))));
    }
    count += static_cast<size_t>(ids->numel());
  }
  table.routes.begin(table.ends, count);
  for (int32_t k = 0; k < table.ids.count; ++k) {
    const auto ids = ctx.args.in_value(table.ids, k).get_if<Tensor>()->values<int64_t>();
    if (const std::optional<int64_t> bad = table.routes.add(ids, table.padding)) {
      return failed(fmt::format("Ids[{}] has {}, but the table has rows 0 to {}", k, *bad,
                                table.ends.back() - 1));
    }
  }
  return Ok();
}

Status ask(TrainerLink& link, RemoteTable& table, std::vector<Client::Call>& calls) {
  table.asked.clear();
  table.requests.resize(table.names.size());
  table.answers.resize(table.names.size());
  for (size_t k = 0; k < table.names.size(); ++k) {
    const std::vector<int64_t>& rows = table.routes.rows(k);
    // servers are only asked for rows that they hold, but at least one must return the row width
    if (rows.empty() && !(table.routes.distinct() == 0 && k == 0)) continue;
    auto& ids = table.requests[k].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(ids.resize(DType::kInt64, {static_cast<int64_t>(rows.size()), 1}));
    std::copy(rows.begin(), rows.end(), ids.data<int64_t>());
    const RequestItem item{table.names[k], &table.requests[k], nullptr};
    Client::Call& call =
        calls.emplace_back(table.endpoints[k], protocol::Prefetch{table.names[k], {item}});
    table.asked.push_back(k);
    call.reply.values.push_back(std::move(table.answers[k]));
  }
  return link.client().call_all(calls);
}

// Moves the responses to where the next ones will be received. \returns one of them
StatusOr<const Tensor*> take_answers(RemoteTable& table, std::vector<Client::Call>& calls) {
  const Tensor* like = nullptr;
  for (size_t i = 0; i < calls.size(); ++i) {
    Client::Call& call = calls[i];
    const size_t k = table.asked[i];
    const auto count = static_cast<int64_t>(table.routes.rows(k).size());
    const auto* const answer =
        call.reply.values.size() == 1 ? call.reply.values.front().get_if<Tensor>() : nullptr;
    if (answer == nullptr || answer->rank() == 0 || answer->dim(0) != count ||
        (like != nullptr && (answer->dtype() != like->dtype() ||
                             answer->dims().drop_front() != like->dims().drop_front()))) {
      return failed(fmt::format("the server at {} did not return {} rows of '{}'", call.endpoint,
                                count, table.names[k]));
    }
    table.answers[k] = std::move(call.reply.values.front());
    like = table.answers[k].get_if<Tensor>();
  }
  return like;
}

// Copies rows of any width; rows of common sizes are copied without calling memcpy.
void copy_found_rows(llvm::ArrayRef<RowRoutes::Place> places, llvm::ArrayRef<const std::byte*> from,
                     size_t bytes, std::byte* to) {
  constexpr size_t kChunk = 32;
  const bool in_chunks = bytes % kChunk == 0 && bytes <= 8 * kChunk;
  for (const RowRoutes::Place& place : places) {
    if (place.slice < 0) {
      std::memset(to, 0, bytes);
    } else {
      const std::byte* const row =
          from[static_cast<size_t>(place.slice)] + static_cast<size_t>(place.position) * bytes;
      if (in_chunks) {
        for (size_t i = 0; i < bytes; i += kChunk) std::memcpy(to + i, row + i, kChunk);
      } else {
        std::memcpy(to, row, bytes);
      }
    }
    to += bytes;
  }
}

Status write_outputs(ControlContext& ctx, const RemoteTable& table, const Tensor& like) {
  if (table.dtype && *table.dtype != like.dtype()) {
    return failed(fmt::format("attribute 'dtype' is {}, but '{}' has rows of {}",
                              dtype_name(*table.dtype), table.names.front(),
                              dtype_name(like.dtype())));
  }
  const int64_t width = like.rank() < 2 ? 1 : like.dim(-1);
  const auto bytes = static_cast<size_t>(width * dtype_size(like.dtype()));
  std::vector<const std::byte*> from;
  for (const Value& answer : table.answers) {
    const auto* const rows = answer.get_if<Tensor>();
    from.push_back(rows == nullptr ? nullptr : rows->raw());
  }
  llvm::ArrayRef<RowRoutes::Place> places = table.routes.places();
  for (int32_t k = 0; k < table.out.count; ++k) {
    const Tensor& ids = *ctx.args.in_value(table.ids, k).get_if<Tensor>();
    Dims dims(ids.dims().begin(), ids.dims().end());
    if (!table.keeps_last_dim && !dims.empty() && dims.back() == 1) dims.pop_back();
    dims.push_back(width);
    auto& to = ctx.args.out_value(table.out, k).as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(to.resize(like.dtype(), dims));
    to.set_lod(ids.lod());
    const auto count = static_cast<size_t>(ids.numel());
    copy_found_rows(places.take_front(count), from, bytes, to.raw());
    places = places.drop_front(count);
  }
  return Ok();
}

StatusOr<Control> make_lookup(const Link& link, const KernelSetup& setup) {
  MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
  if (setup.attr<Strings>("table_names").empty()) return make_typed_lookup(link, setup);
  auto table = std::make_shared<RemoteTable>();
  table->names = setup.attr<Strings>("table_names");
  table->endpoints = setup.attr<Strings>("endpoints");
  table->ends = setup.attr<std::vector<int64_t>>("height_sections");
  if (table->names.size() != table->endpoints.size() || table->names.size() != table->ends.size()) {
    return setup.error(
        "attributes 'table_names', 'endpoints' and 'height_sections' have {}, {} and {} entries",
        table->names.size(), table->endpoints.size(), table->ends.size());
  }
  std::partial_sum(table->ends.begin(), table->ends.end(), table->ends.begin());
  table->padding = setup.attr<int64_t>("padding_idx");
  if (setup.op().has_attr("dtype")) table->dtype = setup.dtype_attr("dtype");
  table->keeps_last_dim = setup.attr<std::string>("lookup_table_version") == "lookup_table_v2";
  table->ids = setup.inputs("Ids");
  table->out = setup.outputs("Outputs");
  if (table->ids.count != table->out.count || table->ids.count == 0)
    return setup.error("found {} outputs for {} ids, expected one per id", table->out.count,
                       table->ids.count);
  return Control([link, table](ControlContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(collect_ids(ctx, *table));
    std::vector<Client::Call> calls;
    MILLRACE_RETURN_IF_ERROR(ask(*link, *table, calls));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const like, take_answers(*table, calls));
    return write_outputs(ctx, *table, *like);
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
