#include "ps/client/link_sender.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

// Names on the servers of the slices of the k-th var. A context of one var lists the slices of that
// var. A context of several vars lists one server and one name for each var.
struct SliceNames {
  std::vector<std::string> names;
  std::vector<std::string> endpoints;
  std::vector<int64_t> heights;  // rows of each slice; empty: not split
};

StatusOr<SliceNames> slices_of(const CommContext& context, size_t k, size_t count) {
  if (context.table_id >= 0 && context.split_varnames.empty())
    return Unimplemented("'{}' belongs to typed table {}, which this sender cannot send to",
                         context.var_name, context.table_id);
  if (context.split_varnames.size() != context.split_endpoints.size() ||
      context.split_varnames.empty()) {
    return InvalidArgument(
        "context '{}' has {} server var names and {} endpoints, expected equal numbers of both",
        context.var_name, context.split_varnames.size(), context.split_endpoints.size());
  }
  if (count == 1) {
    SliceNames slices{context.split_varnames, context.split_endpoints, {}};
    if (slices.names.size() > 1) slices.heights = context.sections;
    return slices;
  }
  if (count != context.split_varnames.size())
    return InvalidArgument(
        "context '{}' has {} vars and {} server var names, expected equal numbers",
        context.var_name, count, context.split_varnames.size());
  return SliceNames{{context.split_varnames[k]}, {context.split_endpoints[k]}, {}};
}

Status send_steps(Client& client, const CommContext& context, const Value& value) {
  const auto* const number = value.get_if<Tensor>();
  if (number == nullptr || number->dtype() != DType::kInt64 || number->numel() != 1) {
    return InvalidArgument("'{}' must be a single i64 (a number of steps), found {}",
                           context.var_name, describe(value));
  }
  std::vector<Client::Call> calls;
  for (const std::string& endpoint : context.split_endpoints) {
    const bool known =
        llvm::any_of(calls, [&](const Client::Call& call) { return call.endpoint == endpoint; });
    if (known) continue;
    calls.emplace_back(endpoint, protocol::Count{context.vars().front(), *number->data<int64_t>()});
  }
  return client.call_all(calls);
}

}  // namespace

LinkSender::RowSlices& LinkSender::rows_of(const std::string& var,
                                           llvm::ArrayRef<int64_t> heights) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<RowSlices>& rows = rows_[var];
  if (rows == nullptr) rows = std::make_unique<RowSlices>(heights);
  return *rows;
}

Status LinkSender::add(const CommContext& context, std::span<const Value* const> values,
                       Load& load) {
  for (size_t k = 0; k < values.size(); ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const SliceNames slices, slices_of(context, k, values.size()));
    llvm::ArrayRef<Value> split(*values[k]);
    if (values[k]->holds<SelectedRows>()) {
      RowSlices& own = rows_of(context.var_name, slices.heights);
      load.locks.emplace_back(own.mutex);
      MILLRACE_RETURN_IF_ERROR(own.rows.split(*values[k]));
      split = own.rows.slices();
    } else if (!slices.heights.empty()) {
      Slicer& views = load.tensors.emplace_back(slices.heights, Repeats::kKeep);
      MILLRACE_RETURN_IF_ERROR(views.split(*values[k]));
      split = views.slices();
    }
    for (size_t i = 0; i < slices.names.size(); ++i) {
      SentVars& sent = load.sent.at(slices.endpoints[i]);
      const Value& value = split[split.size() == 1 ? 0 : i];
      // with few rows, most slices are empty
      const auto* const rows = value.get_if<SelectedRows>();
      if (rows != nullptr && rows->rows.empty()) continue;
      sent.vars.push_back({slices.names[i], &value, nullptr});
    }
  }
  return Ok();
}

Status LinkSender::deliver(Load& load, SendKind kind) {
  std::vector<Client::Call> calls;
  for (SentVars& sent : load.sent.entries()) {
    if (!sent.vars.empty())
      calls.emplace_back(sent.endpoint, protocol::Send{kind, std::move(sent.vars)});
  }
  return client_->call_all(calls);
}

Status LinkSender::send(const CommContext& context, std::span<Value> values, Deadline deadline) {
  const Parcel parcel{&context, values};
  return send_all({&parcel, 1}, deadline);
}

Status LinkSender::send_all(std::span<const Parcel> parcels, Deadline /*deadline*/) {
  Load load;
  for (const auto& [context, values] : parcels) {
    if (!context->use_send_handler) {
      MILLRACE_RETURN_IF_ERROR(send_steps(*client_, *context, values.front()));
      continue;
    }
    std::vector<const Value*> pointers;
    for (const Value& value : values) pointers.push_back(&value);
    MILLRACE_RETURN_IF_ERROR(add(*context, pointers, load));
  }
  return deliver(load, SendKind::kGradients);
}

Status LinkSender::set(const CommContext& context, std::span<const Value* const> values,
                       Deadline /*deadline*/) {
  Load load;
  MILLRACE_RETURN_IF_ERROR(add(context, values, load));
  return deliver(load, SendKind::kValues);
}

Status LinkSender::receive(const CommContext& context, std::span<Value> values, Deadline deadline) {
  const Parcel parcel{&context, values};
  return receive_all({&parcel, 1}, deadline);
}

Status LinkSender::receive_all(std::span<const Parcel> parcels, Deadline /*deadline*/) {
  ByServer<WantedVars> wanted;
  struct Want {
    const CommContext* context;
    Value* value;
    std::vector<std::pair<size_t, size_t>> places;  // call, position
  };
  std::vector<Want> wants;
  for (const auto& [context, values] : parcels) {
    for (size_t k = 0; k < values.size(); ++k) {
      MILLRACE_ASSIGN_OR_RETURN(const SliceNames slices, slices_of(*context, k, values.size()));
      Want& want = wants.emplace_back(Want{context, &values[k], {}});
      for (size_t i = 0; i < slices.names.size(); ++i) {
        const size_t index = wanted.index_of(slices.endpoints[i]);
        WantedVars& entry = wanted.entries()[index];
        want.places.emplace_back(index, entry.names.size());
        entry.names.push_back(slices.names[i]);
        entry.memory.emplace_back();
        if (slices.names.size() == 1) entry.memory.back() = std::move(values[k]);
      }
    }
  }
  std::vector<Client::Call> calls;
  for (WantedVars& entry : wanted.entries()) {
    calls.emplace_back(entry.endpoint, protocol::Get{GetKind::kValues, std::move(entry.names)});
    calls.back().reply.values = std::move(entry.memory);
  }
  Status status = client_->call_all(calls);
  for (Want& want : wants) {
    std::vector<Value> parts;
    for (const auto& [call, position] : want.places) {
      if (position >= calls[call].reply.values.size())
        return status.ok() ? InvalidData("a server's response lacks a slice of '{}'",
                                         want.context->var_name)
                           : status;
      parts.push_back(std::move(calls[call].reply.values[position]));
    }
    if (parts.size() == 1) {
      *want.value = std::move(parts.front());
    } else if (status.ok()) {
      MILLRACE_RETURN_IF_ERROR(join_slices(parts, *want.value));
    }
  }
  return status;
}

Status LinkSender::receive_changed(const CommContext& context, SelectedRows& rows,
                                   Deadline /*deadline*/) {
  MILLRACE_ASSIGN_OR_RETURN(const SliceNames slices, slices_of(context, 0, 1));
  std::vector<Client::Call> calls;
  for (size_t i = 0; i < slices.names.size(); ++i)
    calls.emplace_back(slices.endpoints[i],
                       protocol::Get{GetKind::kChangedRows, {slices.names[i]}});
  MILLRACE_RETURN_IF_ERROR(client_->call_all(calls));
  std::vector<Value> parts;
  for (Client::Call& call : calls) {
    if (call.reply.values.size() != 1 || !call.reply.values.front().holds<SelectedRows>())
      return InvalidData("the server at {} did not return rows of '{}'", call.endpoint,
                         context.var_name);
    parts.push_back(std::move(call.reply.values.front()));
  }
  Value whole;
  whole.as<SelectedRows>() = std::move(rows);  // reuses its memory
  MILLRACE_RETURN_IF_ERROR(join_slices(parts, whole));
  rows = std::move(whole.as<SelectedRows>());
  return Ok();
}

// All trainers meet at the first server.
Status LinkSender::barrier(CommBarrier kind, Deadline /*deadline*/) {
  const std::vector<std::string> endpoints = client_->endpoints();
  if (endpoints.empty()) return InvalidArgument("barrier: the client has no servers");
  Client::Call call(endpoints.front(), protocol::Barrier{protocol::ServerBarrier{kind}});
  return client_->call(call);
}

}  // namespace millrace::ps
