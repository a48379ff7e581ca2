#include "ps/ops/typed_tables.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/block_runner.h"
#include "framework/op.h"
#include "framework/op_attrs.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/client/failed.h"
#include "ps/ops/row_instances.h"
#include "ps/ops/trainer_ops.h"
#include "ps/table/trainer_tables.h"

// Pulls from typed tables and pushes to them. In synchronous jobs, pushes are sent with the other
// gradients of the step, so that they are repeated, rolled back and saved in the same way. In other
// jobs they are sent immediately. Source: spec/fleet.md section 7, spec/ps_runtime.md section 7.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::KernelSetup;
using Link = std::shared_ptr<TrainerLink>;

// The op's attributes must agree with the settings of the table.
Status check_entry(const KernelSetup& setup, const TrainerTables::Entry& entry) {
  const int32_t id = entry.layout.table_id;
  const DType dtype = setup.dtype_attr("dtype");
  if (dtype != DType::kFloat32) {
    return setup.error("attribute 'dtype' is {}, but table {} has rows of {}", dtype_name(dtype),
                       id, dtype_name(DType::kFloat32));
  }
  const bool gives_counts = entry.table.options.accessor.kind == AccessorOptions::Kind::kCtrCommon;
  if (get_attr_or(setup.op(), "use_cvm_op", false) && !gives_counts) {
    return setup.error(
        "attribute 'use_cvm_op' is true, but rows of table {} do not begin with "
        "show and click",
        id);
  }
  const int64_t padding = std::max<int64_t>(-1, setup.attr<int64_t>("padding_idx"));
  const int64_t of_table = entry.table.options.padding.value_or(-1);
  if (padding == of_table) return Ok();
  return setup.error("attribute 'padding_idx' is {}, but that of table {} is {}", padding, id,
                     of_table);
}

StatusOr<const TrainerTables::Entry*> find_table(const Link& link, const KernelSetup& setup) {
  MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
  const auto id = setup.attr<int32_t>("table_id");
  if (link->tables() == nullptr)
    return setup.error("table {} is a typed table, but the job has no tables.json", id);
  MILLRACE_ASSIGN_OR_RETURN(const TrainerTables::Entry* const entry, link->tables()->find(id));
  MILLRACE_RETURN_IF_ERROR(check_entry(setup, *entry));
  return entry;
}

StatusOr<const Tensor*> ids_at(const ControlContext& ctx, kernels::ArgRange range, int32_t k) {
  const auto* const ids = ctx.args.in_value(range, k).get_if<Tensor>();
  if (ids != nullptr && ids->initialized() && ids->dtype() == DType::kInt64) return ids;
  return failed(
      fmt::format("Ids[{}] must be i64, found {}", k, describe(ctx.args.in_value(range, k))));
}

StatusOr<bool> is_synchronous(const Link& link) {
  MILLRACE_ASSIGN_OR_RETURN(const ServerMode mode,
                            link->client().mode_of(link->tables()->endpoints().front()));
  return mode == ServerMode::kSync;
}

struct Lookup {
  const TrainerTables::Entry* entry = nullptr;
  kernels::ArgRange ids;
  kernels::ArgRange out;
  bool keeps_last_dim = false;  // keep the last dim of ids [.., 1], as newer programs do
  // reused from step to step
  std::vector<int64_t> all;
  std::vector<float> rows;
};

Status run_lookup(const Link& link, Lookup& lookup, ControlContext& ctx) {
  lookup.all.clear();
  for (int32_t k = 0; k < lookup.ids.count; ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, ids_at(ctx, lookup.ids, k));
    const auto values = ids->values<int64_t>();
    lookup.all.insert(lookup.all.end(), values.begin(), values.end());
  }
  const auto width = static_cast<size_t>(lookup.entry->layout.pull_width);
  lookup.rows.resize(lookup.all.size() * width);
  // where a step may be repeated, accesses are counted when the step is applied (TableSteps)
  MILLRACE_ASSIGN_OR_RETURN(const bool synchronous, is_synchronous(link));
  MILLRACE_RETURN_IF_ERROR(link->tables()->client().pull_sparse(lookup.entry->layout, lookup.all,
                                                                lookup.rows, !synchronous));
  const float* from = lookup.rows.data();
  for (int32_t k = 0; k < lookup.out.count; ++k) {
    const Tensor& ids = *ctx.args.in_value(lookup.ids, k).get_if<Tensor>();
    Dims dims(ids.dims().begin(), ids.dims().end());
    if (!lookup.keeps_last_dim && !dims.empty() && dims.back() == 1) dims.pop_back();
    dims.push_back(static_cast<int64_t>(width));
    auto& to = ctx.args.out_value(lookup.out, k).as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, dims));
    to.set_lod(ids.lod());
    const size_t count = static_cast<size_t>(ids.numel()) * width;
    std::copy_n(from, count, to.data<float>());
    from += count;
  }
  return Ok();
}

struct Push {
  const TrainerTables::Entry* entry = nullptr;
  kernels::ArgRange ids;
  kernels::ArgRange grads;
  kernels::ArgRange shows;
  kernels::ArgRange clicks;
  std::vector<int32_t> slots;
  int64_t size = 0;  // number of elements of a gradient
  bool deferred = false;
  int64_t pushes = 0;
  // reused from step to step
  std::vector<int64_t> all;
  std::vector<float> values;
  TableClient::RowsByServer by_server;  // must not change until the send barrier
};

// Shows or clicks by instance: one number for all instances, or one for each.
class PerInstance {
 public:
  static StatusOr<PerInstance> read(const ControlContext& ctx, kernels::ArgRange range,
                                    const char* slot) {
    PerInstance result;
    if (range.count == 0) return failed(fmt::format("{} is empty, expected a var", slot));
    const auto* const tensor = ctx.args.in_value(range, 0).get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized() || tensor->numel() == 0)
      return failed(fmt::format("{} holds no value", slot));
    if (tensor->dtype() == DType::kFloat32) {
      result.values_.assign(tensor->values<float>().begin(), tensor->values<float>().end());
    } else if (tensor->dtype() == DType::kInt64) {
      for (const int64_t value : tensor->values<int64_t>())
        result.values_.push_back(static_cast<float>(value));
    } else {
      return failed(fmt::format("{} must be f32 or i64, found {}", slot, describe(*tensor)));
    }
    return result;
  }
  [[nodiscard]] bool covers(size_t instances) const {
    return values_.size() == 1 || values_.size() >= instances;
  }
  [[nodiscard]] float at(size_t instance) const {
    return values_[values_.size() == 1 ? 0 : instance];
  }

 private:
  std::vector<float> values_;
};

// The gradients of all lookups of a table in one var, which the program has changed together.
class GradientRows {
 public:
  GradientRows(SelectedRows merged, int64_t size)
      : merged_(std::move(merged)), zeros_(static_cast<size_t>(size)), left_(merged_.rows.size()) {
    for (size_t i = 0; i < merged_.rows.size(); ++i) rows_[merged_.rows[i]] = i;
  }
  // The gradient of an id at its first occurrence, zeros at later ones: rows of one id are added
  // up. Null for an id without a gradient.
  const float* take(int64_t id) {
    const auto found = rows_.find(id);
    if (found == rows_.end()) return nullptr;
    const size_t row = std::exchange(found->second, kTaken);
    if (row == kTaken) return zeros_.data();
    --left_;
    return merged_.value.data<float>() + row * zeros_.size();
  }
  [[nodiscard]] bool is_all_taken() const { return left_ == 0; }

 private:
  static constexpr size_t kTaken = SIZE_MAX;
  SelectedRows merged_;
  std::vector<float> zeros_;
  size_t left_;
  std::map<int64_t, size_t> rows_;  // position in merged_ by id
};

// Null if each lookup has its own gradient.
StatusOr<std::unique_ptr<GradientRows>> common_gradient(const Push& push,
                                                        const ControlContext& ctx) {
  const Value& value = ctx.args.in_value(push.grads, 0);
  const auto* const rows = value.get_if<SelectedRows>();
  std::unique_ptr<GradientRows> common;
  if (rows == nullptr && push.ids.count == push.grads.count) return common;
  if (rows == nullptr || push.grads.count != 1 || rows->value.dtype() != DType::kFloat32 ||
      rows->value.numel() != static_cast<int64_t>(rows->rows.size()) * push.size)
    return failed(
        fmt::format("Grads: expected one for each of {} lookups, or rows of {} f32, "
                    "found {} ({})",
                    push.ids.count, push.size, push.grads.count, describe(value)));
  MILLRACE_ASSIGN_OR_RETURN(SelectedRows merged, kernels::merged_rows(*rows));
  return std::make_unique<GradientRows>(std::move(merged), push.size);
}

StatusOr<const float*> gradient_at(const Push& push, const ControlContext& ctx, int32_t k,
                                   int64_t ids) {
  const auto* const grad = ctx.args.in_value(push.grads, k).get_if<Tensor>();
  if (grad == nullptr || !grad->initialized() || grad->dtype() != DType::kFloat32 ||
      grad->numel() != ids * push.size)
    return failed(fmt::format("Grads[{}]: expected {} gradients of {} f32, found {}", k, ids,
                              push.size, describe(ctx.args.in_value(push.grads, k))));
  return grad->data<float>();
}

// What the rows of a push have besides their gradients.
struct RowCounts {
  PerInstance shows;
  PerInstance clicks;
  bool with_accesses = false;
};

// Writes the rows of one lookup.
Status write_lookup(Push& push, const ControlContext& ctx, int32_t k, const RowCounts& counts,
                    GradientRows* common) {
  const bool has_stats = push.entry->layout.push_labels > 0;
  const auto kind = push.entry->table.options.accessor.kind;
  // pulled rows of such tables begin with shows and clicks, which have no gradient
  const size_t passed = kind == AccessorOptions::Kind::kCtrCommon ? 2 : 0;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, ids_at(ctx, push.ids, k));
  const float* from = nullptr;
  if (common == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(from, gradient_at(push, ctx, k, ids->numel()));
  }
  StatusOr<std::vector<size_t>> found = instances_of(*ids);
  if (!found.ok()) return failed(fmt::format("Ids[{}]: {}", k, found.status().message()));
  const std::vector<size_t> instances = *std::move(found);
  if (!instances.empty() &&
      !(counts.shows.covers(instances.back() + 1) && counts.clicks.covers(instances.back() + 1)))
    return failed(
        fmt::format("Shows and Clicks have fewer entries than the {} instances of Ids[{}]",
                    instances.back() + 1, k));
  const auto slot = static_cast<size_t>(k) < push.slots.size()
                        ? static_cast<float>(push.slots[static_cast<size_t>(k)])
                        : 0.0F;
  const auto size = static_cast<size_t>(push.size);
  const auto values = ids->values<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const float* const row = common != nullptr ? common->take(values[i]) : from + i * size;
    if (row == nullptr) return failed(fmt::format("Grads have no row for the id {}", values[i]));
    if (has_stats)
      push.values.insert(push.values.end(),
                         {slot, counts.shows.at(instances[i]), counts.clicks.at(instances[i])});
    push.values.insert(push.values.end(), row + passed, row + size);
    if (counts.with_accesses) push.values.push_back(1);
  }
  push.all.insert(push.all.end(), values.begin(), values.end());
  return Ok();
}

// Writes one row per id: the values that the table takes, followed by the number of accesses (1) if
// the caller requests it.
Status write_rows(Push& push, ControlContext& ctx, bool with_accesses) {
  MILLRACE_ASSIGN_OR_RETURN(PerInstance shows, PerInstance::read(ctx, push.shows, "Shows"));
  MILLRACE_ASSIGN_OR_RETURN(PerInstance clicks, PerInstance::read(ctx, push.clicks, "Clicks"));
  const RowCounts counts{std::move(shows), std::move(clicks), with_accesses};
  MILLRACE_ASSIGN_OR_RETURN(const auto common, common_gradient(push, ctx));
  push.all.clear();
  push.values.clear();
  for (int32_t k = 0; k < push.ids.count; ++k)
    MILLRACE_RETURN_IF_ERROR(write_lookup(push, ctx, k, counts, common.get()));
  if (common != nullptr && !common->is_all_taken())
    return failed("Grads have rows of ids that were not looked up");
  return Ok();
}

Status send_with_step(const Link& link, Push& push) {
  const SparseLayout& layout = push.entry->layout;
  MILLRACE_ASSIGN_OR_RETURN(push.by_server, link->tables()->client().rows_by_server(
                                                layout, push.all, push.values,
                                                layout.push_width + 1, layout.push_labels));
  std::vector<TrainerLink::Parcel> parcels;
  for (size_t server = 0; server < push.by_server.rows.size(); ++server) {
    const std::string& endpoint = link->tables()->endpoints()[server];
    if (push.by_server.plan->by_server[server].size == 0) continue;
    parcels.push_back(
        {endpoint, table_keys_item(layout.table_id), &push.by_server.plan->by_server[server].keys});
    parcels.push_back({endpoint, table_rows_item(layout.table_id), &push.by_server.rows[server]});
  }
  if (!push.deferred) return link->send(parcels);
  link->keep(parcels);
  return Ok();
}

Status run_push(const Link& link, Push& push, ControlContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const bool synchronous, is_synchronous(link));
  MILLRACE_RETURN_IF_ERROR(write_rows(push, ctx, synchronous));
  if (synchronous) return send_with_step(link, push);
  TableClient& client = link->tables()->client();
  MILLRACE_RETURN_IF_ERROR(client.push_sparse(push.entry->layout, push.all, push.values));
  // trainer 0 ends the days of the table for all trainers
  const int64_t day = push.entry->table.shrink_every;
  if (day > 0 && ++push.pushes % day == 0 && link->client().options().trainer == 0)
    return client.shrink(push.entry->layout.table_id);
  return Ok();
}

StatusOr<Control> make_push(const Link& link, const KernelSetup& setup) {
  auto push = std::make_shared<Push>();
  MILLRACE_ASSIGN_OR_RETURN(push->entry, find_table(link, setup));
  push->ids = setup.inputs("Ids");
  push->grads = setup.inputs("Grads");  // name_pushed_gradients()
  push->shows = setup.inputs("Shows");
  push->clicks = setup.inputs("Clicks");
  push->slots = setup.attr<std::vector<int32_t>>("slots");
  push->size = setup.attr<int32_t>("size");
  push->deferred = link->ends_steps() || waits_for_send_barrier(setup.op());
  // one var may have the gradients of all lookups
  if ((push->ids.count != push->grads.count && push->grads.count != 1) || push->ids.count == 0)
    return setup.error("found {} gradients for {} ids, expected one per id", push->grads.count,
                       push->ids.count);
  if (push->size != push->entry->layout.pull_width)
    return setup.error("gradients have {} elements, but rows of table {} have {}", push->size,
                       push->entry->layout.table_id, push->entry->layout.pull_width);
  return Control([link, push](ControlContext& ctx) { return run_push(link, *push, ctx); });
}

}  // namespace

StatusOr<Control> make_typed_lookup(const Link& link, const KernelSetup& setup) {
  auto lookup = std::make_shared<Lookup>();
  MILLRACE_ASSIGN_OR_RETURN(lookup->entry, find_table(link, setup));
  lookup->ids = setup.inputs("Ids");
  lookup->out = setup.outputs("Outputs");
  lookup->keeps_last_dim = setup.attr<std::string>("lookup_table_version") == "lookup_table_v2";
  if (lookup->ids.count != lookup->out.count || lookup->ids.count == 0)
    return setup.error("found {} outputs for {} ids, expected one per id", lookup->out.count,
                       lookup->ids.count);
  return Control([link, lookup](ControlContext& ctx) { return run_lookup(link, *lookup, ctx); });
}

void add_typed_table_controls(ControlRegistry& registry, const Link& link) {
  registry.add(
      "distributed_push_sparse",
      [link](const KernelSetup& setup, BlockRunner& /*runner*/) { return make_push(link, setup); });
}

}  // namespace millrace::ps
