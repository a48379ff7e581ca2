#include "fleet/runtime/described_bytes.h"

#include "fleet/job/desc_text.h"
#include "fleet/runtime/described_tables.h"
#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"
#include "ps/table/accessor.h"
#include "ps/table/routing.h"
#include "ps/table/update_op.h"

namespace millrace::fleet {
namespace described_bytes_parts {
namespace {

namespace desc = fleet_desc;

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Floats of state for each parameter of the range, without scalars.
int64_t states_of(const desc::UpdateRangeParameter& range) {
  const ps::UpdateOpKind* const kind = ps::find_update_op(range.name());
  if (kind == nullptr) return 0;
  int64_t states = 0;
  for (int i = 0; i < range.params_size() && i < static_cast<int>(kind->states.size()); ++i) {
    if (!kind->states[static_cast<size_t>(i)].is_scalar) ++states;
  }
  return states;
}

void add_dense(const desc::CommonAccessorParameter& table, DescribedBytes& bytes) {
  if (table.dims_size() == 0 || table.dims(0) == 0) return;
  ++bytes.tables;
  bytes.param_bytes += table.dims(0) * kFloat;
  for (const desc::UpdateRangeParameter& range : table.update_ranges())
    bytes.state_bytes += static_cast<int64_t>(range.elements()) * states_of(range) * kFloat;
  if (table.update_ranges_size() > 0) return;
  for (int i = 1; i < table.dims_size() && i < table.params_size(); ++i) {
    if (table.params(i) != "LearningRate") bytes.state_bytes += table.dims(i) * kFloat;
  }
}

// Number of the keys 0 to height - 1 that the server has.
int64_t rows_here(const ps::TypedTable& table, const ps::SparseRouting& routing, int server) {
  int64_t own = 0;
  int64_t own_of_rest = 0;
  const int64_t rest = table.height % table.shard_num;  // servers of keys repeat after shard_num
  for (int64_t key = 0; key < table.shard_num; ++key) {
    if (routing.server_of(key) != server) continue;
    ++own;
    if (key < rest) ++own_of_rest;
  }
  return table.height / table.shard_num * own + own_of_rest;
}

Status add_sparse(const ps::TypedTable& table, int server, int servers, DescribedBytes& bytes) {
  MILLRACE_ASSIGN_OR_RETURN(const ps::SparseRouting routing,
                            ps::SparseRouting::create(table.shard_num, servers));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Accessor> accessor,
                            ps::Accessor::create(table.options.accessor));
  const int64_t rows = rows_here(table, routing, server);
  if (rows > 0) ++bytes.tables;
  const int64_t weights = accessor->pull_floats();
  bytes.param_bytes += rows * weights * kFloat;
  bytes.state_bytes += rows * (accessor->row_floats() - weights) * kFloat;
  return Ok();
}

}  // namespace
}  // namespace described_bytes_parts

StatusOr<DescribedBytes> described_bytes(const std::string& description, int server, int servers) {
  using namespace described_bytes_parts;
  desc::PSParameter all;
  MILLRACE_RETURN_IF_ERROR(parse_description(description, "ps_desc", all));
  DescribedBytes bytes;
  for (const auto& table : all.server_param().downpour_server_param().downpour_table_param()) {
    if (table.type() == desc::PS_DENSE_TABLE) add_dense(table.common(), bytes);
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> sparse,
                            described_sparse_tables(description, {}));
  for (const ps::TypedTable& table : sparse)
    MILLRACE_RETURN_IF_ERROR(add_sparse(table, server, servers, bytes));
  return bytes;
}

}  // namespace millrace::fleet
