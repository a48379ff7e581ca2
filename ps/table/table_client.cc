#include "ps/table/table_client.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "framework/base/errors.h"
#include "ps/protocol/pack.h"

namespace millrace::ps {
namespace {

constexpr size_t kRememberedPlans = 8;

Status check_size(const char* what, size_t found, size_t count, int width) {
  const size_t expected = count * static_cast<size_t>(width);
  if (found == expected) return Ok();
  return InvalidArgument("{} floats of {} for {} ids of {}", found, what, count, width);
}

// The tensor of a reply, which must have `elements` elements.
StatusOr<const Tensor*> answered_tensor(int table_id, const TableRequest& request, size_t elements,
                                        DType dtype = DType::kFloat32) {
  const Tensor* const tensor =
      request.reply.values.empty() ? nullptr : request.reply.values[0].get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype() != dtype ||
      static_cast<size_t>(tensor->numel()) != elements)
    return Status(StatusCode::kDistributed,
                  fmt::format("server {} of table {} answered with {}, expected {} elements of {}",
                              request.server, table_id,
                              request.reply.values.empty() ? std::string("nothing")
                                                           : describe(request.reply.values[0]),
                              elements, dtype_name(dtype)));
  return tensor;
}

Status set_steps(Value& value, int64_t steps) {
  auto& tensor = value.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kInt64, {1}));
  *tensor.data<int64_t>() = steps;
  return Ok();
}

// Values by server. Values of equal ids are added up, except for the labels.
StatusOr<std::vector<Value>> merge_by_server(const KeyPlan& plan, std::span<const float> values,
                                             int width, int labels) {
  std::vector<Value> merged(plan.by_server.size());
  std::vector<float*> to(plan.by_server.size());
  const auto row = static_cast<size_t>(width);
  for (size_t server = 0; server < plan.by_server.size(); ++server) {
    MILLRACE_ASSIGN_OR_RETURN(
        Tensor tensor, Tensor::create(DType::kFloat32,
                                      {static_cast<int64_t>(plan.by_server[server].size), width}));
    merged[server].as<Tensor>() = std::move(tensor);
    to[server] = merged[server].get_if<Tensor>()->data<float>();
  }
  std::vector<uint32_t> seen(plan.by_server.size());  // by part: number of rows that have a value
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const KeyPlan::Place place = plan.places[i];
    if (place.server < 0) continue;
    const auto server = static_cast<size_t>(place.server);
    const float* const from = values.data() + i * row;
    float* const sum = to[server] + place.position * row;
    if (place.position == seen[server]) {  // first occurrences are in the order of positions
      ++seen[server];
      std::memcpy(sum, from, row * sizeof(float));
      continue;
    }
    for (size_t k = static_cast<size_t>(labels); k < row; ++k) sum[k] += from[k];
  }
  return merged;
}

}  // namespace

StatusOr<std::shared_ptr<const KeyPlan>> TableClient::plan_of(const SparseLayout& table,
                                                              std::span<const int64_t> ids) {
  {
    const std::lock_guard lock(mutex_);
    for (auto at = plans_.rbegin(); at != plans_.rend(); ++at) {
      const KeyPlan& plan = **at;
      if (plan.shard_num == table.shard_num && plan.padding == table.padding &&
          std::equal(ids.begin(), ids.end(), plan.ids.begin(), plan.ids.end()))
        return *at;
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(KeyPlan made,
                            make_key_plan(ids, table.shard_num, servers(), table.padding));
  auto plan = std::make_shared<const KeyPlan>(std::move(made));
  const std::lock_guard lock(mutex_);
  plans_.push_back(plan);
  if (plans_.size() > kRememberedPlans) plans_.erase(plans_.begin());
  return std::shared_ptr<const KeyPlan>(plan);
}

std::vector<TableRequest> TableClient::to_all(const Request& request) const {
  std::vector<TableRequest> requests;
  for (size_t server = 0; server < servers(); ++server) requests.push_back({server, request, {}});
  return requests;
}

Status TableClient::call_servers(const Request& request) {
  std::vector<TableRequest> requests = to_all(request);
  return caller_->call_all(requests);
}

Status TableClient::pull_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                                std::span<float> rows, bool training) {
  MILLRACE_RETURN_IF_ERROR(check_size("rows", rows.size(), ids.size(), table.pull_width));
  MILLRACE_ASSIGN_OR_RETURN(const auto plan, plan_of(table, ids));
  const PullKind kind = !training               ? PullKind::kQuiet
                        : table.counts_accesses ? PullKind::kCounted
                                                : PullKind::kPlain;
  std::vector<TableRequest> requests;
  std::vector<const float*> answers(plan->by_server.size());
  for (size_t server = 0; server < plan->by_server.size(); ++server) {
    const KeyPlan::ServerKeys& own = plan->by_server[server];
    if (own.size == 0) continue;
    protocol::Pull pull{table.table_id, kind, {{"keys", &own.keys, nullptr}}};
    if (plan->has_repeats && training) pull.args.push_back({"counts", &own.counts, nullptr});
    requests.push_back({server, pack(std::move(pull)), {}});
  }
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(requests));
  const auto width = static_cast<size_t>(table.pull_width);
  for (const TableRequest& request : requests) {
    MILLRACE_ASSIGN_OR_RETURN(
        const Tensor* const tensor,
        answered_tensor(table.table_id, request, plan->by_server[request.server].size * width));
    answers[request.server] = tensor->data<float>();
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const KeyPlan::Place place = plan->places[i];
    float* const to = rows.data() + i * width;
    if (place.server < 0) {
      std::fill_n(to, width, 0.0F);
    } else {
      std::memcpy(to, answers[static_cast<size_t>(place.server)] + place.position * width,
                  width * sizeof(float));
    }
  }
  return Ok();
}

Status TableClient::push_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                                std::span<const float> values) {
  return send_rows(table, ids, values, table.push_width, table.push_labels, PushKind::kUpdate);
}

Status TableClient::set_sparse(const SparseLayout& table, std::span<const int64_t> ids,
                               std::span<const float> rows) {
  return send_rows(table, ids, rows, table.pull_width, 0, PushKind::kValues);
}

Status TableClient::send_rows(const SparseLayout& table, std::span<const int64_t> ids,
                              std::span<const float> values, int width, int labels, PushKind kind) {
  MILLRACE_ASSIGN_OR_RETURN(const RowsByServer split,
                            rows_by_server(table, ids, values, width, labels));
  std::vector<TableRequest> requests;
  for (size_t server = 0; server < split.rows.size(); ++server) {
    const KeyPlan::ServerKeys& own = split.plan->by_server[server];
    if (own.size == 0) continue;
    protocol::Push push{table.table_id,
                        kind,
                        {{"keys", &own.keys, nullptr}, {"values", &split.rows[server], nullptr}}};
    requests.push_back({server, pack(std::move(push)), {}});
  }
  return caller_->call_all(requests);
}

StatusOr<TableClient::RowsByServer> TableClient::rows_by_server(const SparseLayout& table,
                                                                std::span<const int64_t> ids,
                                                                std::span<const float> values,
                                                                int width, int labels) {
  MILLRACE_RETURN_IF_ERROR(check_size("values", values.size(), ids.size(), width));
  RowsByServer split;
  MILLRACE_ASSIGN_OR_RETURN(split.plan, plan_of(table, ids));
  MILLRACE_ASSIGN_OR_RETURN(split.rows, merge_by_server(*split.plan, values, width, labels));
  return split;
}

StatusOr<std::vector<protocol::SavedFile>> TableClient::save(int table_id,
                                                             const std::string& folder, int mode,
                                                             bool replaces) {
  std::vector<TableRequest> requests;
  for (size_t server = 0; server < servers(); ++server) {
    protocol::SaveTable what{table_id, folder, mode, replaces};
    requests.push_back({server, pack(protocol::Checkpoint{std::move(what)}), {}});
  }
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(requests));
  std::vector<protocol::SavedFile> written;
  written.reserve(requests.size());
  for (const TableRequest& request : requests) {
    const std::string position = fmt::format("position {}", request.server);
    MILLRACE_ASSIGN_OR_RETURN(written.emplace_back(),
                              protocol::saved_file(request.reply, position));
  }
  return written;
}

Status TableClient::load(int table_id, const std::string& folder) {
  return call_servers(pack(protocol::Checkpoint{protocol::LoadTable{table_id, folder}}));
}

StatusOr<std::vector<protocol::LoadedTables>> TableClient::count_loaded() {
  std::vector<TableRequest> requests = to_all(pack(protocol::Checkpoint{protocol::CountLoaded{}}));
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(requests));
  std::vector<protocol::LoadedTables> answers;
  answers.reserve(requests.size());
  for (const TableRequest& request : requests) {
    MILLRACE_ASSIGN_OR_RETURN(answers.emplace_back(), protocol::loaded_tables(request.reply));
  }
  return answers;
}

Status TableClient::shrink(int table_id) {
  return call_servers(pack(protocol::Push{table_id, PushKind::kEndDay, {}}));
}

Status TableClient::pull_changed(const SparseLayout& table, SelectedRows& changed) {
  std::vector<TableRequest> requests =
      to_all(pack(protocol::Pull{table.table_id, PullKind::kChangedRows, {}}));
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(requests));
  struct Row {
    int64_t key;
    const float* values;
  };
  std::vector<Row> rows;
  const auto width = static_cast<size_t>(table.pull_width);
  for (const TableRequest& request : requests) {
    const auto* const part =
        request.reply.values.empty() ? nullptr : request.reply.values[0].get_if<SelectedRows>();
    if (part == nullptr || part->value.dtype() != DType::kFloat32 ||
        part->rows.size() * width != static_cast<size_t>(part->value.numel()))
      return {StatusCode::kDistributed, fmt::format("server {} of table {} answered without rows",
                                                    request.server, table.table_id)};
    for (size_t i = 0; i < part->rows.size(); ++i)
      rows.push_back({part->rows[i], part->value.data<float>() + i * width});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
  changed.rows.clear();
  changed.height = rows.empty() ? 0 : rows.back().key + 1;
  MILLRACE_RETURN_IF_ERROR(changed.value.resize(
      DType::kFloat32, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}));
  float* to = changed.value.data<float>();
  for (const Row& row : rows) {
    changed.rows.push_back(row.key);
    to = std::copy_n(row.values, width, to);
  }
  return Ok();
}

Status TableClient::pull_dense(int table_id, std::span<float> values) {
  MILLRACE_ASSIGN_OR_RETURN(
      const std::vector<DenseRange> ranges,
      dense_ranges(static_cast<int64_t>(values.size()), static_cast<int64_t>(servers())));
  std::vector<TableRequest> requests;
  for (size_t server = 0; server < ranges.size(); ++server) {
    if (ranges[server].count > 0)
      requests.push_back({server, pack(protocol::Pull{table_id, PullKind::kPlain, {}}), {}});
  }
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(requests));
  for (const TableRequest& request : requests) {
    const DenseRange& range = ranges[request.server];
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor,
                              answered_tensor(table_id, request, static_cast<size_t>(range.count)));
    std::copy_n(tensor->data<float>(), range.count, values.data() + range.begin);
  }
  return Ok();
}

Status TableClient::push_dense(int table_id, std::span<const float> grads) {
  return send_dense(table_id, grads, PushKind::kUpdate);
}

Status TableClient::set_dense(int table_id, std::span<const float> values) {
  return send_dense(table_id, values, PushKind::kValues);
}

StatusOr<std::vector<Value>> TableClient::dense_by_server(std::span<const float> values) const {
  MILLRACE_ASSIGN_OR_RETURN(
      const std::vector<DenseRange> ranges,
      dense_ranges(static_cast<int64_t>(values.size()), static_cast<int64_t>(servers())));
  std::vector<Value> parts(ranges.size());
  for (size_t server = 0; server < ranges.size(); ++server) {
    const DenseRange& range = ranges[server];
    if (range.count == 0) continue;
    auto& part = parts[server].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(part.resize(DType::kFloat32, {range.count}));
    std::copy_n(values.data() + range.begin, range.count, part.data<float>());
  }
  return parts;
}

Status TableClient::send_dense(int table_id, std::span<const float> values, PushKind kind) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> parts, dense_by_server(values));
  std::vector<TableRequest> requests;
  for (size_t server = 0; server < parts.size(); ++server) {
    if (!parts[server].initialized()) continue;
    protocol::Push push{table_id, kind, {{"values", &parts[server], &parts[server]}}};
    requests.push_back({server, pack(std::move(push)), {}});
  }
  return caller_->call_all(requests);
}

Status TableClient::count_steps(int table_id, int64_t steps) {
  Value number;
  MILLRACE_RETURN_IF_ERROR(set_steps(number, steps));
  return push_to_all(table_id, "steps", number);
}

StatusOr<int64_t> TableClient::take_step(int table_id) {
  Value one;
  MILLRACE_RETURN_IF_ERROR(set_steps(one, 1));
  std::vector<TableRequest> push;
  push.push_back(
      {0, pack(protocol::Push{table_id, PushKind::kUpdate, {{"steps", &one, nullptr}}}), {}});
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(push));
  std::vector<TableRequest> pull;
  pull.push_back({0, pack(protocol::Pull{table_id, PullKind::kPlain, {}}), {}});
  MILLRACE_RETURN_IF_ERROR(caller_->call_all(pull));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const steps,
                            answered_tensor(table_id, pull.front(), 1, DType::kInt64));
  return *steps->data<int64_t>();
}

Status TableClient::set_rate(int table_id, float rate) {
  Value number;
  auto& tensor = number.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {1}));
  *tensor.data<float>() = rate;
  return push_to_all(table_id, "rate", number);
}

Status TableClient::push_to_all(int table_id, const char* what, const Value& value) {
  return call_servers(pack(protocol::Push{table_id, PushKind::kUpdate, {{what, &value, nullptr}}}));
}

Status TableClient::barrier(CommBarrier kind) {
  int64_t phase = 0;
  {
    const std::lock_guard lock(mutex_);
    phase = ++phases_[kind];
  }
  return call_servers(pack(protocol::Barrier{protocol::TableBarrier{kind, phase}}));
}

Status TableClient::leave() {
  return call_servers(pack(protocol::Barrier{protocol::LeaveBarriers{}}));
}

}  // namespace millrace::ps
