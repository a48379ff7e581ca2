#include "ps/table/table_sender.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/table/typed_table.h"

namespace millrace::ps {
namespace {

// Concatenates the elements of the vars.
StatusOr<std::vector<float>> flatten(const CommContext& context,
                                     std::span<const Value* const> values) {
  std::vector<float> all;
  const std::vector<std::string> vars = context.vars();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* const tensor = values[i]->get_if<Tensor>();
    if (tensor == nullptr || tensor->dtype() != DType::kFloat32)
      return InvalidArgument("'{}' of dense table {} is {}, expected f32", vars[i],
                             context.table_id, describe(*values[i]));
    const auto elements = tensor->values<float>();
    all.insert(all.end(), elements.begin(), elements.end());
  }
  return all;
}

// Calls body with the ids of rows [0, rows), a few megabytes of rows at a time.
template <typename Body>
Status for_rows(int64_t rows, Body&& body) {
  constexpr int64_t kRowsAtOnce = 65'536;
  std::vector<int64_t> ids;
  for (int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
    ids.resize(static_cast<size_t>(std::min(kRowsAtOnce, rows - begin)));
    std::iota(ids.begin(), ids.end(), begin);
    MILLRACE_RETURN_IF_ERROR(body(std::span<const int64_t>(ids)));
  }
  return Ok();
}

}  // namespace

StatusOr<const SparseLayout*> TableSender::layout_of(const CommContext& context) const {
  const auto found = layouts_.find(context.table_id);
  if (found != layouts_.end()) return &found->second;
  return NotFound("context '{}': table {} is not a sparse table", context.var_name,
                  context.table_id);
}

Status TableSender::send(const CommContext& context, std::span<Value> values, Deadline) {
  if (context.is_tensor_table || !context.use_send_handler) {
    const auto* const steps = values[0].get_if<Tensor>();
    if (steps == nullptr || steps->dtype() != DType::kInt64 || steps->numel() != 1)
      return InvalidArgument("'{}' is {}, expected a number of steps", context.var_name,
                             describe(values[0]));
    return client_->count_steps(context.table_id, *steps->data<int64_t>());
  }
  if (const auto* const rows = values[0].get_if<SelectedRows>()) {
    if (link_ != nullptr)
      return Unimplemented(
          "'{}' is a gradient of rows, which the communicator of a synchronous job "
          "does not send",
          context.var_name);
    MILLRACE_ASSIGN_OR_RETURN(const SparseLayout* const layout, layout_of(context));
    return send_rows(*layout, *rows);
  }
  std::vector<const Value*> all;
  for (const Value& value : values) all.push_back(&value);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> grads, flatten(context, all));
  if (link_ != nullptr) return keep(context.table_id, grads);
  return client_->push_dense(context.table_id, grads);
}

Status TableSender::send_rows(const SparseLayout& layout, const SelectedRows& rows) {
  if (rows.rows.empty()) return Ok();
  if (rows.value.dtype() != DType::kFloat32)
    return InvalidArgument("table {} takes f32, found {}", layout.table_id, describe(rows.value));
  const auto values = rows.value.values<float>();
  if (layout.push_labels == 0) return client_->push_sparse(layout, rows.rows, values);
  constexpr size_t kHead = 3;  // slot, show, click
  const auto width = static_cast<size_t>(kernels::row_width(rows.value));
  std::vector<float> pushed(rows.rows.size() * (width + kHead));
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    float* const to = pushed.data() + i * (width + kHead);
    to[1] = 1;
    std::copy_n(values.data() + i * width, width, to + kHead);
  }
  return client_->push_sparse(layout, rows.rows, pushed);
}

Status TableSender::receive(const CommContext& context, std::span<Value> values, Deadline) {
  const std::vector<std::string> vars = context.vars();
  int64_t elements = 0;
  for (size_t i = 0; i < vars.size(); ++i) {
    auto& tensor = values[i].as<Tensor>();
    if (const auto dims = dims_.find(vars[i]); dims != dims_.end()) {
      MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, dims->second));
    } else if (!tensor.initialized()) {
      return NotFound("the dims of '{}' of table {} are unknown", vars[i], context.table_id);
    }
    elements += tensor.numel();
  }
  if (const auto layout = layouts_.find(context.table_id); layout != layouts_.end())
    return receive_rows(layout->second, *values[0].get_if<Tensor>());
  std::vector<float> all(static_cast<size_t>(elements));
  MILLRACE_RETURN_IF_ERROR(client_->pull_dense(context.table_id, all));
  const float* from = all.data();
  for (Value& value : values) {
    auto& tensor = *value.get_if<Tensor>();
    std::copy_n(from, tensor.numel(), tensor.data<float>());
    from += tensor.numel();
  }
  return Ok();
}

// Receives all rows of a table that trainers hold as a whole (geo).
Status TableSender::receive_rows(const SparseLayout& layout, Tensor& table) {
  if (table.dtype() != DType::kFloat32 || table.rank() != 2 || table.dim(1) != layout.pull_width)
    return InvalidArgument("table {} has rows of {} floats, found {}", layout.table_id,
                           layout.pull_width, describe(table));
  return for_rows(table.dim(0), [&](std::span<const int64_t> ids) {
    const auto width = static_cast<size_t>(table.dim(1));
    const std::span<float> rows(table.data<float>() + ids.front() * table.dim(1),
                                ids.size() * width);
    return client_->pull_sparse(layout, ids, rows, /*training=*/false);
  });
}

Status TableSender::set_rows(const SparseLayout& layout, const Tensor& table) {
  const int64_t width = kernels::row_width(table);
  return for_rows(table.rank() > 0 ? table.dim(0) : 1, [&](std::span<const int64_t> ids) {
    const std::span<const float> rows(table.data<float>() + ids.front() * width,
                                      ids.size() * static_cast<size_t>(width));
    return client_->set_sparse(layout, ids, rows);
  });
}

Status TableSender::receive_changed(const CommContext& context, SelectedRows& rows, Deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const SparseLayout* const layout, layout_of(context));
  return client_->pull_changed(*layout, rows);
}

Status TableSender::set(const CommContext& context, std::span<const Value* const> values,
                        Deadline) {
  if (const auto layout = layouts_.find(context.table_id); layout != layouts_.end()) {
    const auto* const table = values[0]->get_if<Tensor>();
    if (table == nullptr || table->dtype() != DType::kFloat32)
      return InvalidArgument("table {} takes f32, found {}", context.table_id,
                             describe(*values[0]));
    return set_rows(layout->second, *table);
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> all, flatten(context, values));
  return client_->set_dense(context.table_id, all);
}

Status TableSender::barrier(CommBarrier kind, Deadline) {
  if (link_ == nullptr) return client_->barrier(kind);
  if (kind == CommBarrier::kSend) return finish_step();
  // nothing changes on the servers before this trainer sends again
  return kind == CommBarrier::kReceive ? Ok() : client_->barrier(kind);
}

Status TableSender::keep(int table_id, std::span<const float> grads) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> parts, client_->dense_by_server(grads));
  const std::lock_guard lock(mutex_);
  kept_[table_id] = std::move(parts);
  return Ok();
}

Status TableSender::finish_step() {
  std::vector<TrainerLink::Parcel> parcels;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, parts] : kept_) {
    for (size_t server = 0; server < parts.size(); ++server) {
      if (parts[server].initialized())
        parcels.push_back({endpoints_[server], table_grads_item(id), &parts[server]});
    }
  }
  link_->keep(parcels);
  MILLRACE_RETURN_IF_ERROR(link_->send_barrier(endpoints_));
  MILLRACE_RETURN_IF_ERROR(link_->fetch_barrier(endpoints_));
  kept_.clear();
  return Ok();
}

}  // namespace millrace::ps
