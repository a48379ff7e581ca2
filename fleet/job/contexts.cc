#include "fleet/job/contexts.h"

#include "framework/names.h"

namespace millrace::fleet {
namespace {

ps::CommContext sparse_context(const transpiler::SparseTablePlan& table,
                               const std::vector<std::string>& endpoints, int role_id) {
  ps::CommContext context;
  context.var_name = table.var.grad;
  for (size_t i = 0; i < endpoints.size(); ++i)
    context.split_varnames.push_back(names::block(table.var.param, static_cast<int64_t>(i)));
  context.split_endpoints = endpoints;
  context.sections = table.dims;
  context.origin_varnames = {table.var.grad};
  context.trainer_id = role_id;
  context.is_sparse = true;
  context.is_distributed = table.is_distributed;
  context.table_id = table.table_id;
  return context;
}

ps::CommContext dense_context(const std::string& name, std::vector<std::string> grads,
                              int64_t elements, int role_id, int table_id) {
  ps::CommContext context;
  context.var_name = name;
  context.split_varnames = {name};
  context.split_endpoints = {kDenseEndpoint};
  context.sections = {elements};
  context.origin_varnames = std::move(grads);
  context.trainer_id = role_id;
  context.table_id = table_id;
  return context;
}

}  // namespace

ps::CommContexts send_contexts(const transpiler::TablePlan& plan,
                               const std::vector<std::string>& endpoints, int role_id) {
  ps::CommContexts contexts;
  for (const transpiler::SparseTablePlan& table : plan.sparse)
    contexts[table.var.grad] = sparse_context(table, endpoints, role_id);
  for (const transpiler::DenseTablePlan& table : plan.dense) {
    std::vector<std::string> grads;
    for (const transpiler::TrainedVar& var : table.vars) grads.push_back(var.grad);
    const std::string name = table.context_name();
    ps::CommContext context =
        dense_context(name, std::move(grads), table.elements, role_id, table.table_id);
    context.is_datanorm_table = table.is_data_norm;
    contexts[name] = std::move(context);
  }
  return contexts;
}

ps::CommContexts split_send_contexts(const transpiler::TablePlan& plan,
                                     const std::vector<std::string>& endpoints, int role_id,
                                     const std::map<std::string, int64_t>& elements) {
  ps::CommContexts contexts;
  int table_id = 0;
  for (const transpiler::SparseTablePlan& table : plan.sparse) {
    contexts[table.var.grad] = sparse_context(table, endpoints, role_id);
    table_id = table.table_id + 1;
  }
  for (const transpiler::DenseTablePlan& table : plan.dense) {
    for (const transpiler::TrainedVar& var : table.vars) {
      const auto count = elements.find(var.grad);
      contexts[var.grad] = dense_context(
          var.grad, {var.grad}, count == elements.end() ? 0 : count->second, role_id, table_id++);
    }
  }
  return contexts;
}

ps::CommContext step_context(const std::vector<std::string>& endpoints, int role_id, int table_id) {
  ps::CommContext context;
  context.var_name = kStepCounter;
  context.split_varnames.assign(endpoints.size(), kStepCounter);
  context.split_endpoints = endpoints;
  context.sections.assign(endpoints.size(), 1);
  context.origin_varnames = {kStepCounter};
  context.trainer_id = role_id;
  context.table_id = table_id;
  context.is_tensor_table = true;
  return context;
}

std::map<int32_t, std::vector<std::string>> dense_receives(const transpiler::TablePlan& plan) {
  std::map<int32_t, std::vector<std::string>> tables;
  for (const transpiler::DenseTablePlan& table : plan.dense) {
    std::vector<std::string>& params = tables[table.table_id];
    for (const transpiler::TrainedVar& var : table.vars) params.push_back(var.param);
  }
  return tables;
}

std::map<int32_t, std::vector<std::string>> sparse_receives(const transpiler::TablePlan& plan) {
  std::map<int32_t, std::vector<std::string>> tables;
  for (const transpiler::SparseTablePlan& table : plan.sparse)
    tables[table.table_id] = {table.var.param};
  return tables;
}

}  // namespace millrace::fleet
