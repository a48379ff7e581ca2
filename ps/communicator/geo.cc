#include "ps/communicator/geo.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/communicator/merge.h"

namespace millrace::ps {
namespace {

// delta = (live - old) / trainers, old += delta, over some elements.
template <typename T>
void difference(const T* live, T* old, T* delta, int64_t count, int trainers) {
  const T divisor = static_cast<T>(trainers);
  for (int64_t i = 0; i < count; ++i) {
    delta[i] = (live[i] - old[i]) / divisor;
    old[i] += delta[i];
  }
}

// live += server - old, old = server
template <typename T>
void catch_up(const T* server, T* live, T* old, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    live[i] += server[i] - old[i];
    old[i] = server[i];
  }
}

// Calls body with a null pointer of the element type, for dispatch by type.
template <typename Body>
void with_type(DType dtype, Body&& body) {
  if (dtype == DType::kFloat64) {
    body(static_cast<double*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}

// Adds a delta that the servers had not applied yet to their response.
void add_missing(const Value& delta, Value& answer) {
  if (const auto* const dense = delta.get_if<Tensor>()) {
    auto& to = *answer.get_if<Tensor>();
    with_type(to.dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      add_elements(dense->data<T>(), to.data<T>(), to.numel());
    });
    return;
  }
  const auto& from = *delta.get_if<SelectedRows>();
  auto& to = *answer.get_if<SelectedRows>();
  const int64_t width = kernels::row_width(to.value);
  for (size_t i = 0; i < to.rows.size(); ++i) {
    const auto at = std::lower_bound(from.rows.begin(), from.rows.end(), to.rows[i]);
    if (at == from.rows.end() || *at != to.rows[i]) continue;
    with_type(to.value.dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      add_elements(from.value.data<T>() + (at - from.rows.begin()) * width,
                   to.value.data<T>() + static_cast<int64_t>(i) * width, width);
    });
  }
}

Status other_form(const std::string& var, const Value& answer, const Tensor& live) {
  return {StatusCode::kExecution, fmt::format("'{}' is {} here, but the servers sent {}", var,
                                              describe(live), describe(answer))};
}

Status check_form(const std::string& var, const Value& answer, const Tensor& live) {
  const auto* const dense = answer.get_if<Tensor>();
  const auto* const rows = answer.get_if<SelectedRows>();
  if (rows != nullptr && rows->rows.empty()) return Ok();
  const Tensor& given = dense != nullptr ? *dense : rows->value;
  const bool fits = given.dtype() == live.dtype() &&
                    (dense != nullptr ? given.dims() == live.dims()
                                      : kernels::row_width(given) == kernels::row_width(live));
  return fits ? Ok() : other_form(var, answer, live);
}

// Applies the servers' values; of a table, only the rows that they sent.
Status take_over(const std::string& var, const Value& answer, Tensor& live, Tensor& old) {
  const auto* const dense = answer.get_if<Tensor>();
  const auto* const rows = answer.get_if<SelectedRows>();
  const int64_t width = kernels::row_width(live);
  Status status;
  with_type(live.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (dense != nullptr) {
      catch_up(dense->data<T>(), live.data<T>(), old.data<T>(), live.numel());
      return;
    }
    for (size_t i = 0; i < rows->rows.size(); ++i) {
      const int64_t row = rows->rows[i];
      if (row < 0 || row >= live.dim(0)) {
        status = {StatusCode::kExecution,
                  fmt::format("the servers sent row {} of '{}', which has {} rows", row, var,
                              live.dim(0))};
        return;
      }
      catch_up(rows->value.data<T>() + static_cast<int64_t>(i) * width,
               live.data<T>() + row * width, old.data<T>() + row * width, width);
    }
  });
  return status;
}

}  // namespace

Geo::Geo(const CommContexts& receive, int trainers, Sender& sender)
    : trainers_(trainers), sender_(sender) {
  for (const auto& [name, context] : receive) {
    Param param;
    param.context = &context;
    param.vars = context.vars();
    for (const std::string& var : param.vars) index_.emplace(var, params_.size());
    param.touched.resize(std::max<size_t>(1, context.split_endpoints.size()));
    params_.push_back(std::move(param));
  }
}

int64_t Geo::find(std::string_view var) const {
  const auto found = index_.find(var);
  return found == index_.end() ? -1 : static_cast<int64_t>(found->second);
}

StatusOr<Tensor*> Geo::find_live(const std::string& var, Scope& scope) {
  Value* const value = scope.find(var);
  Tensor* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return NotFound("'{}' has no value", var);
  if (tensor->dtype() != DType::kFloat32 && tensor->dtype() != DType::kFloat64)
    return Unimplemented("geo is not implemented for '{}', which is {}", var, describe(*tensor));
  MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));  // it may be in the memory of a GPU
  return tensor;
}

Status Geo::begin(Scope& scope) {
  for (Param& param : params_) {
    param.old.resize(param.vars.size());
    for (size_t i = 0; i < param.vars.size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(Tensor* const live, find_live(param.vars[i], scope));
      MILLRACE_RETURN_IF_ERROR(param.old[i].copy_from(*live));
    }
    for (auto& rows : param.touched) rows.clear();
    param.on_way.clear();
    param.answers.clear();
    param.taken = param.applied = param.sent = 0;
  }
  return Ok();
}

size_t Geo::shard_of(const Param& param, int64_t row) const {
  const CommContext& context = *param.context;
  if (param.touched.size() == 1) return 0;
  if (context.is_distributed || context.sections.size() != param.touched.size())
    return static_cast<size_t>(row) % param.touched.size();
  size_t shard = 0;
  int64_t end = context.sections[0];
  while (row >= end && shard + 1 < param.touched.size()) end += context.sections[++shard];
  return shard;
}

Status Geo::record(size_t index, const Value& ids) {
  Param& param = params_[index];
  const auto* const tensor = ids.get_if<Tensor>();
  const auto* const gradient = ids.get_if<SelectedRows>();
  std::span<const int64_t> trained;
  if (gradient != nullptr) {
    trained = gradient->rows;
  } else if (tensor != nullptr && tensor->initialized() && tensor->dtype() == DType::kInt64) {
    trained = tensor->values<int64_t>();
  } else {
    return {StatusCode::kExecution,
            fmt::format("ids of '{}' are {}, expected i64 or a gradient of selected rows",
                        param.context->var_name, describe(ids))};
  }
  const Tensor& old = param.old.front();
  const int64_t height = old.rank() > 0 ? old.dim(0) : 0;
  for (const int64_t id : trained) {
    if (id < 0) continue;
    if (id >= height)
      return {StatusCode::kExecution,
              fmt::format("id {} is out of range for '{}', which has {} rows", id,
                          param.context->var_name, height)};
    param.touched[shard_of(param, id)].push_back(id);
  }
  return Ok();
}

std::vector<int64_t> Geo::take_rows(Param& param) {
  std::vector<int64_t> all;
  for (std::vector<int64_t>& rows : param.touched) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    all.insert(all.end(), rows.begin(), rows.end());
    rows.clear();
  }
  std::sort(all.begin(), all.end());
  return all;
}

StatusOr<Value> Geo::take_rows_of(Param& param, const Tensor& live) {
  Value delta;
  std::vector<int64_t> touched = take_rows(param);
  auto& rows = delta.as<SelectedRows>();
  rows.height = live.dim(0);
  rows.rows = std::move(touched);
  Dims dims(live.dims().begin(), live.dims().end());
  dims[0] = static_cast<int64_t>(rows.rows.size());
  MILLRACE_RETURN_IF_ERROR(rows.value.resize(live.dtype(), dims));
  const int64_t width = kernels::row_width(live);
  with_type(live.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (size_t i = 0; i < rows.rows.size(); ++i)
      difference(live.data<T>() + rows.rows[i] * width,
                 param.old.front().data<T>() + rows.rows[i] * width,
                 rows.value.data<T>() + static_cast<int64_t>(i) * width, width, trainers_);
  });
  return delta;
}

StatusOr<std::vector<Value>> Geo::take_delta(size_t index, Scope& scope) {
  Param& param = params_[index];
  std::vector<Value> deltas;
  for (size_t i = 0; i < param.vars.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const live, find_live(param.vars[i], scope));
    Tensor& old = param.old[i];
    if (live->dtype() != old.dtype() || live->dims() != old.dims())
      return Status(StatusCode::kExecution,
                    fmt::format("'{}' was {} at the start, but is {} now", param.vars[i],
                                describe(old), describe(*live)));
    if (param.context->is_sparse) {
      MILLRACE_ASSIGN_OR_RETURN(Value rows, take_rows_of(param, *live));
      deltas.push_back(std::move(rows));
      continue;
    }
    auto& dense = deltas.emplace_back().as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(dense.resize(live->dtype(), live->dims()));
    with_type(live->dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      difference(live->data<T>(), old.data<T>(), dense.data<T>(), live->numel(), trainers_);
    });
  }
  ++param.taken;
  if (param.applied + 1 < param.taken) {  // a response that lacks this delta may arrive
    Answer& sent = param.on_way.emplace_back();
    sent.deltas = param.taken;
    for (const Value& delta : deltas) {
      MILLRACE_ASSIGN_OR_RETURN(Value copy, clone(delta));
      sent.values.push_back(std::move(copy));
    }
  }
  return deltas;
}

Status Geo::exchange(size_t index, const CommContext& send, std::span<Value> delta,
                     Deadline deadline) {
  Param& param = params_[index];
  const auto* const sparse = delta.front().get_if<SelectedRows>();
  if (sparse == nullptr || !sparse->rows.empty())
    MILLRACE_RETURN_IF_ERROR(sender_.send(send, delta, deadline));
  Answer answer;
  answer.deltas = ++param.sent;
  answer.values.resize(param.vars.size());
  if (param.context->is_sparse) {
    MILLRACE_RETURN_IF_ERROR(sender_.receive_changed(
        *param.context, answer.values.front().as<SelectedRows>(), deadline));
  } else {
    MILLRACE_RETURN_IF_ERROR(sender_.receive(*param.context, answer.values, deadline));
  }
  const std::lock_guard lock(mutex_);
  // Of a dense parameter, only the newest response matters.
  if (!param.context->is_sparse) param.answers.clear();
  param.answers.push_back(std::move(answer));
  return Ok();
}

Status Geo::apply(Scope& scope) {
  for (Param& param : params_) {
    std::vector<Answer> answers;
    {
      const std::lock_guard lock(mutex_);
      answers.swap(param.answers);
    }
    if (answers.empty()) continue;
    for (Answer& answer : answers) MILLRACE_RETURN_IF_ERROR(apply_answer(param, answer, scope));
  }
  return Ok();
}

Status Geo::apply_answer(Param& param, Answer& answer, Scope& scope) {
  std::erase_if(param.on_way, [&](const Answer& sent) { return sent.deltas <= answer.deltas; });
  param.applied = answer.deltas;
  for (size_t i = 0; i < param.vars.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const live, find_live(param.vars[i], scope));
    Value& value = answer.values[i];
    MILLRACE_RETURN_IF_ERROR(check_form(param.vars[i], value, *live));
    for (const Answer& sent : param.on_way) add_missing(sent.values[i], value);
    MILLRACE_RETURN_IF_ERROR(take_over(param.vars[i], value, *live, param.old[i]));
  }
  return Ok();
}

}  // namespace millrace::ps
