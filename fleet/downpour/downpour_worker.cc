#include "fleet/downpour/downpour_worker.h"

#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {
namespace {

namespace desc = pslib_desc;

// The table of that id, new or from the user's file, without its vars.
template <typename Tables>
auto& fresh_table(Tables& tables, int id) {
  for (auto& table : tables) {
    if (table.table_id() != id) continue;
    table.Clear();
    table.set_table_id(id);
    return table;
  }
  auto& table = *tables.Add();
  table.set_table_id(id);
  return table;
}

std::set<std::string> without(const std::vector<std::string>& names,
                              const std::set<std::string>& left_out) {
  std::set<std::string> kept;
  for (const std::string& name : names) {
    if (left_out.count(name) == 0) kept.insert(name);
  }
  return kept;
}

}  // namespace

DownpourWorker::DownpourWorker(int window, const desc::DownpourTrainerParameter* start)
    : desc_(start != nullptr ? std::make_unique<desc::DownpourTrainerParameter>(*start)
                             : std::make_unique<desc::DownpourTrainerParameter>()) {
  if (window == 1) return;
  desc_->set_push_sparse_per_batch(window);
  desc_->set_push_dense_per_batch(window);
}

DownpourWorker::DownpourWorker(DownpourWorker&&) noexcept = default;
DownpourWorker::~DownpourWorker() = default;

Status DownpourWorker::add_sparse_table(int table_id, const std::vector<SlotVars>& slots) {
  for (const desc::SparseTableParameter& table : desc_->sparse_table()) {
    if (table.table_id() != table_id) continue;
    for (const SlotVars& slot : slots) {
      if (std::count(table.slot_key().begin(), table.slot_key().end(), slot.key) == 0)
        return InvalidArgument("sparse table {} of the description has no slot '{}'", table_id,
                               slot.key);
    }
  }
  desc::SparseTableParameter& table = fresh_table(*desc_->mutable_sparse_table(), table_id);
  for (const bool with_gradient : {true, false}) {
    for (const SlotVars& slot : slots) {
      if (slot.has_gradient != with_gradient) continue;
      table.add_slot_key(slot.key);
      table.add_slot_value(slot.value);
      if (with_gradient) table.add_slot_gradient(names::grad(slot.value));
    }
  }
  return Ok();
}

void DownpourWorker::add_dense_table(int table_id, const std::vector<std::string>& params,
                                     const std::vector<std::string>& grads,
                                     const std::vector<std::string>& embeddings) {
  std::set<std::string> left_out;
  for (const std::string& name : embeddings) {
    left_out.insert(name);
    left_out.insert(names::grad(name));
  }
  desc::DenseTableParameter& table = fresh_table(*desc_->mutable_dense_table(), table_id);
  for (const std::string& name : without(params, left_out)) table.add_dense_variable_name(name);
  for (const std::string& name : without(grads, left_out))
    table.add_dense_gradient_variable_name(name);
}

void DownpourWorker::skip_ops(const std::vector<std::string>& types) {
  if (desc_->skip_op_size() > 0) return;
  for (const std::string& type : types) desc_->add_skip_op(type);
}

}  // namespace millrace::fleet
