#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/communicator/sender.h"

namespace millrace::ps::testing {

/// A dense float tensor.
inline Value dense(std::vector<float> values, std::vector<int64_t> dims = {}) {
  Value value;
  if (dims.empty()) dims = {static_cast<int64_t>(values.size())};
  Tensor tensor = *Tensor::create(DType::kFloat32, dims);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  value.as<Tensor>() = std::move(tensor);
  return value;
}

inline Value ids(std::vector<int64_t> rows) {
  Value value;
  Tensor tensor = *Tensor::create(DType::kInt64, {static_cast<int64_t>(rows.size()), 1});
  std::copy(rows.begin(), rows.end(), tensor.data<int64_t>());
  value.as<Tensor>() = std::move(tensor);
  return value;
}

inline Value selected(std::vector<int64_t> rows, std::vector<float> values, int64_t height) {
  Value value;
  auto& to = value.as<SelectedRows>();
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t width = count == 0 ? 1 : static_cast<int64_t>(values.size()) / count;
  to.height = height;
  to.rows = std::move(rows);
  to.value = *Tensor::create(DType::kFloat32, {count, width});
  std::copy(values.begin(), values.end(), to.value.data<float>());
  return value;
}

inline std::vector<float> floats(const Value& value) {
  const auto* const rows = value.get_if<SelectedRows>();
  const Tensor& tensor = rows != nullptr ? rows->value : *value.get_if<Tensor>();
  const auto all = tensor.values<float>();
  return {all.begin(), all.end()};
}

/// Servers in the memory of a test, shared by the senders of its trainers: vars by name, to which
/// sent values are added (times `rate`).
struct FakeServers {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::vector<float>> vars;  ///< by the trainer's name of the var
  std::map<std::string, std::string> targets;      ///< var of a gradient; default: the same name
  std::map<std::string, std::vector<std::vector<float>>> log;  ///< sent values, by var
  std::map<std::string, std::vector<std::vector<int64_t>>> row_log;
  std::map<std::string, std::map<int, std::set<int64_t>>> changed_rows;  ///< by trainer
  std::vector<std::string> barriers;
  float rate = 1;
  int trainers = 1;
  int64_t width = 1;        ///< elements per row
  bool is_blocked = false;  ///< sends wait until it is false
  Status failure;           ///< of all calls
  int receives = 0;

  void block(bool now) {
    const std::lock_guard lock(mutex);
    is_blocked = now;
    changed.notify_all();
  }
  template <typename Ready>
  bool wait(Ready ready) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), ready);
  }
};

class FakeSender final : public Sender {
 public:
  explicit FakeSender(FakeServers& servers, int trainer = 0)
      : servers_(servers), trainer_(trainer) {}

  Status send(const CommContext& context, std::span<Value> values, Deadline deadline) override {
    std::unique_lock lock(servers_.mutex);
    if (!servers_.changed.wait_until(lock, deadline, [&] { return !servers_.is_blocked; }))
      return {StatusCode::kDistributed, "the fake server does not answer"};
    MILLRACE_RETURN_IF_ERROR(servers_.failure);
    const std::vector<std::string> names = context.vars();
    for (size_t i = 0; i < names.size(); ++i) take(names[i], values[i]);
    servers_.changed.notify_all();
    return Ok();
  }

  Status receive(const CommContext& context, std::span<Value> values, Deadline) override {
    const std::lock_guard lock(servers_.mutex);
    MILLRACE_RETURN_IF_ERROR(servers_.failure);
    const std::vector<std::string> names = context.vars();
    for (size_t i = 0; i < names.size(); ++i) values[i] = dense(servers_.vars[names[i]]);
    ++servers_.receives;
    servers_.changed.notify_all();
    return Ok();
  }

  Status receive_changed(const CommContext& context, SelectedRows& rows, Deadline) override {
    const std::lock_guard lock(servers_.mutex);
    MILLRACE_RETURN_IF_ERROR(servers_.failure);
    auto& changed = servers_.changed_rows[context.var_name][trainer_];
    std::vector<float> values;
    for (const int64_t row : changed) {
      const auto& all = servers_.vars[context.var_name];
      values.insert(values.end(), all.begin() + row * servers_.width,
                    all.begin() + (row + 1) * servers_.width);
    }
    Value result = selected({changed.begin(), changed.end()}, values, 0);
    rows = std::move(*result.get_if<SelectedRows>());
    changed.clear();
    ++servers_.receives;
    return Ok();
  }

  Status set(const CommContext& context, std::span<const Value* const> values, Deadline) override {
    const std::lock_guard lock(servers_.mutex);
    const std::vector<std::string> names = context.vars();
    for (size_t i = 0; i < values.size(); ++i) servers_.vars[names[i]] = floats(*values[i]);
    return Ok();
  }

  Status barrier(CommBarrier kind, Deadline) override {
    const std::lock_guard lock(servers_.mutex);
    servers_.barriers.emplace_back(barrier_name(kind));
    return servers_.failure;
  }

 private:
  void take(const std::string& name, const Value& value) {
    const auto known = servers_.targets.find(name);
    const std::string target = known == servers_.targets.end() ? name : known->second;
    std::vector<float>& var = servers_.vars[target];
    if (const auto* const rows = value.get_if<SelectedRows>()) {
      servers_.row_log[name].push_back(rows->rows);
      const float* from = rows->value.data<float>();
      for (const int64_t row : rows->rows) {
        for (int64_t k = 0; k < servers_.width; ++k)
          var[static_cast<size_t>(row * servers_.width + k)] += servers_.rate * *from++;
        for (int t = 0; t < servers_.trainers; ++t) servers_.changed_rows[target][t].insert(row);
      }
    } else if (value.get_if<Tensor>()->dtype() == DType::kInt64) {
      servers_.row_log[name].push_back({*value.get_if<Tensor>()->data<int64_t>()});
      return;
    } else {
      const std::vector<float> all = floats(value);
      var.resize(all.size());
      for (size_t i = 0; i < all.size(); ++i) var[i] += servers_.rate * all[i];
    }
    servers_.log[name].push_back(floats(value));
  }

  FakeServers& servers_;
  int trainer_;
};

/// A context of one var that is not sliced.
inline CommContext context(const std::string& name, bool is_sparse = false) {
  CommContext made;
  made.var_name = name;
  made.split_varnames = {name};
  made.split_endpoints = {"127.0.0.1:1"};
  made.is_sparse = is_sparse;
  return made;
}

inline CommContexts contexts(const std::vector<CommContext>& list) {
  CommContexts made;
  for (const CommContext& one : list) made.emplace(one.var_name, one);
  return made;
}

}  // namespace millrace::ps::testing
