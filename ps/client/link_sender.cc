#include "ps/client/link_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/errors.h"
#include "ps/ops/row_sections.h"
#include "ps/wire_names.h"

namespace millrace::ps {
namespace {

// Names on the servers of the pieces of the k-th var: a context of one var lists its pieces, one of
// several has a server and a name for each var.
struct Pieces {
  std::vector<std::string> names;
  std::vector<std::string> endpoints;
  std::vector<int64_t> sections;  // empty: not cut
};

StatusOr<Pieces> pieces_of(const CommContext& context, size_t k, size_t count) {
  if (context.table_id >= 0 && context.split_varnames.empty())
    return Unimplemented("'{}' belongs to the typed table {}", context.var_name, context.table_id);
  if (context.split_varnames.size() != context.split_endpoints.size() ||
      context.split_varnames.empty()) {
    return InvalidArgument("'{}' has {} names and {} endpoints on servers", context.var_name,
                           context.split_varnames.size(), context.split_endpoints.size());
  }
  if (count == 1) {
    Pieces pieces{context.split_varnames, context.split_endpoints, {}};
    if (pieces.names.size() > 1) pieces.sections = context.sections;
    return pieces;
  }
  if (count != context.split_varnames.size())
    return InvalidArgument("'{}' has {} vars for {} names on servers", context.var_name, count,
                           context.split_varnames.size());
  return Pieces{{context.split_varnames[k]}, {context.split_endpoints[k]}, {}};
}

// Calls by server, in the order of their first mention.
Client::Call& call_to(std::vector<Client::Call>& calls, const std::string& endpoint,
                      Method method) {
  for (Client::Call& call : calls) {
    if (call.endpoint == endpoint) return call;
  }
  Client::Call& call = calls.emplace_back();
  call.endpoint = endpoint;
  call.method = method;
  return call;
}

Status send_count(Client& client, const CommContext& context, const Value& value) {
  const auto* const number = value.get_if<Tensor>();
  if (number == nullptr || number->dtype() != DType::kInt64 || number->numel() != 1) {
    return InvalidArgument("'{}' must be one i64, a number of steps, found {}", context.var_name,
                           describe(value));
  }
  std::vector<Client::Call> calls;
  for (const std::string& endpoint : context.split_endpoints) {
    Client::Call& call = call_to(calls, endpoint, Method::kCount);
    call.number = *number->data<int64_t>();
    call.items = {{context.vars().front(), nullptr, nullptr}};
  }
  return client.call_all(calls);
}

}  // namespace

Status LinkSender::deliver(const CommContext& context, std::span<const Value* const> values,
                           const std::string& text) {
  std::vector<Client::Call> calls;
  std::vector<std::vector<Value>> cuts(values.size());
  for (size_t k = 0; k < values.size(); ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const Pieces pieces, pieces_of(context, k, values.size()));
    if (!pieces.sections.empty())
      MILLRACE_RETURN_IF_ERROR(cut_rows(*values[k], pieces.sections, cuts[k]));
    for (size_t i = 0; i < pieces.names.size(); ++i) {
      Client::Call& call = call_to(calls, pieces.endpoints[i], Method::kSend);
      call.text = text;
      const Value* const value = pieces.sections.empty() ? values[k] : &cuts[k][i];
      // most pieces of few rows are empty
      const auto* const rows = value->get_if<SelectedRows>();
      if (rows != nullptr && rows->rows.empty()) continue;
      call.items.push_back({pieces.names[i], value, nullptr});
    }
  }
  std::erase_if(calls, [](const Client::Call& call) { return call.items.empty(); });
  return client_->call_all(calls);
}

Status LinkSender::send(const CommContext& context, std::span<Value> values,
                        Deadline /*deadline*/) {
  if (!context.use_send_handler) return send_count(*client_, context, values.front());
  std::vector<const Value*> pointers;
  for (const Value& value : values) pointers.push_back(&value);
  return deliver(context, pointers, "");
}

Status LinkSender::set(const CommContext& context, std::span<const Value* const> values,
                       Deadline /*deadline*/) {
  return deliver(context, values, kSetValues);
}

Status LinkSender::receive(const CommContext& context, std::span<Value> values,
                           Deadline /*deadline*/) {
  std::vector<Client::Call> calls;
  std::vector<std::vector<std::pair<size_t, size_t>>> places(values.size());  // call, position
  for (size_t k = 0; k < values.size(); ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const Pieces pieces, pieces_of(context, k, values.size()));
    for (size_t i = 0; i < pieces.names.size(); ++i) {
      Client::Call& call = call_to(calls, pieces.endpoints[i], Method::kGet);
      places[k].emplace_back(static_cast<size_t>(&call - calls.data()), call.items.size());
      call.items.push_back({pieces.names[i], nullptr, nullptr});
      call.reply.values.emplace_back();
      if (pieces.names.size() == 1) call.reply.values.back() = std::move(values[k]);
    }
  }
  Status status = client_->call_all(calls);
  for (size_t k = 0; k < values.size(); ++k) {
    std::vector<Value> parts;
    for (const auto& [call, position] : places[k]) {
      if (position >= calls[call].reply.values.size())
        return status.ok()
                   ? InvalidData("a server's answer lacks a piece of '{}'", context.var_name)
                   : status;
      parts.push_back(std::move(calls[call].reply.values[position]));
    }
    if (parts.size() == 1) {
      values[k] = std::move(parts.front());
    } else if (status.ok()) {
      MILLRACE_RETURN_IF_ERROR(join_rows(parts, values[k]));
    }
  }
  return status;
}

Status LinkSender::receive_changed(const CommContext& context, SelectedRows& rows,
                                   Deadline /*deadline*/) {
  MILLRACE_ASSIGN_OR_RETURN(const Pieces pieces, pieces_of(context, 0, 1));
  std::vector<Client::Call> calls(pieces.names.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].endpoint = pieces.endpoints[i];
    calls[i].method = Method::kGet;
    calls[i].text = kChangedRows;
    calls[i].items.push_back({pieces.names[i], nullptr, nullptr});
  }
  MILLRACE_RETURN_IF_ERROR(client_->call_all(calls));
  rows.rows.clear();
  rows.height = 0;
  std::vector<const Tensor*> parts;
  for (const Client::Call& call : calls) {
    const auto* const part =
        call.reply.values.size() == 1 ? call.reply.values.front().get_if<SelectedRows>() : nullptr;
    if (part == nullptr)
      return InvalidData("the server at {} does not answer rows of '{}'", call.endpoint,
                         context.var_name);
    for (const int64_t row : part->rows) rows.rows.push_back(rows.height + row);
    rows.height += part->height;
    parts.push_back(&part->value);
  }
  Dims dims(parts.front()->dims().begin(), parts.front()->dims().end());
  dims[0] = static_cast<int64_t>(rows.rows.size());
  MILLRACE_RETURN_IF_ERROR(rows.value.resize(parts.front()->dtype(), dims));
  std::byte* place = rows.value.raw();
  for (const Tensor* const part : parts) {
    if (part->bytes() > 0) std::memcpy(place, part->raw(), static_cast<size_t>(part->bytes()));
    place += part->bytes();
  }
  return Ok();
}

// The first server is where all trainers meet.
Status LinkSender::barrier(CommBarrier kind, Deadline /*deadline*/) {
  const std::vector<std::string> endpoints = client_->endpoints();
  if (endpoints.empty()) return InvalidArgument("there is no server to meet at");
  Client::Call call;
  call.endpoint = endpoints.front();
  call.method = Method::kTableBarrier;
  call.text = kind == CommBarrier::kSend      ? "send"
              : kind == CommBarrier::kReceive ? "receive"
                                              : "init";
  return client_->call(call);
}

}  // namespace millrace::ps
