// Reshards the snapshots of servers for the servers of another job.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/row_owner.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/save_streams.h"
#include "jobs/checkpoint/reshard_tables.h"
#include "jobs/checkpoint/rows_stream.h"
#include "jobs/checkpoint/servers.h"
#include "jobs/checkpoint/slice_stream.h"
#include "jobs/config/distribution_facts.h"
#include "ps/client/gather.h"
#include "ps/server/calls_record.h"
#include "ps/server/snapshot_identity.h"
#include "ps/slices/plan_facts.h"
#include "ps/slices/row_places.h"

namespace millrace::jobs {
namespace {

using transpiler::DistributedVar;
using Kind = JoinedVar::Kind;

class ServerReshard {
 public:
  ServerReshard(const ServerSnapshots& from, const transpiler::SlicesFile& to, uint64_t max_bytes)
      : from_(from), to_(to), max_bytes_(max_bytes) {
    for (const DistributedVar& var : to.overview.vars()) listed_.insert(var.origin.name);
  }

  // The tensors that a new server holds.
  StatusOr<std::vector<io::StreamedTensor>> tensors_of(size_t server) const {
    std::vector<io::StreamedTensor> tensors;
    const std::string& table = to_.properties.distributed_lookup_table;
    if (!table.empty()) MILLRACE_RETURN_IF_ERROR(of_var(check_table(), table));
    std::set<std::string> done;
    for (const DistributedVar* const var :
         to_.overview.get_distributed_vars_by_ep(to_.properties.endpoints[server])) {
      if (var->origin.name == table || !done.insert(var->slice.name).second) continue;
      StatusOr<io::StreamedTensor> tensor = slice_for(*var);
      if (!tensor.ok()) return of_var(std::move(tensor).status(), var->origin.name);
      tensors.push_back(*std::move(tensor));
    }
    for (const auto& [name, var] : from_.vars()) {
      if (listed_.contains(name) && name != table) continue;
      if (var.kind == Kind::kTyped) continue;  // with all their state: TableReshard
      StatusOr<io::StreamedTensor> tensor =
          var.kind == Kind::kTable ? rows_for(name, var, server) : all_of(name, var);
      if (!tensor.ok()) return of_var(std::move(tensor).status(), name);
      tensors.push_back(*std::move(tensor));
    }
    return tensors;
  }

 private:
  // Dims of a single element may be written as [] or [1].
  static Status check_type(const transpiler::VarFacts& expected, const JoinedVar& found) {
    const auto stated = static_cast<DType>(expected.dtype);
    const DType dtype = is_valid(stated) ? stated : found.dtype;
    const Dims dims(expected.shape.begin(), expected.shape.end());
    const std::string wanted = ps::type_fact(dtype, dims);
    const std::string there = ps::type_fact(found.dtype, found.dims);
    if (wanted == there) return Ok();
    return InvalidData("expected {}, found {} in the snapshots", wanted, there);
  }

  // The distributed table of the new job.
  [[nodiscard]] Status check_table() const {
    const std::string& name = to_.properties.distributed_lookup_table;
    const auto found = from_.vars().find(name);
    if (found == from_.vars().end()) return NotFound("the snapshots do not have the variable");
    if (found->second.kind != Kind::kTable)
      return Unimplemented(
          "the variable is no distributed table in the snapshots, but in the new job");
    for (const DistributedVar& var : to_.overview.vars())
      if (var.origin.name == name) return check_type(var.origin, found->second);
    return Ok();
  }

  // Offset and dims of what a server holds. Optimizer state that is listed as whole on several
  // servers, but has the shape of a sliced parameter, is sliced like it.
  [[nodiscard]] StatusOr<std::pair<int64_t, std::vector<int64_t>>> held_by(
      const DistributedVar& var) const {
    const auto elsewhere = [&](const DistributedVar& other) {
      return other.origin.name == var.origin.name && other.endpoint != var.endpoint;
    };
    if (var.is_slice || element_count(var.origin.shape) == 1 ||
        std::ranges::none_of(to_.overview.vars(), elsewhere))
      return std::pair(var.offset, var.slice.shape);
    MILLRACE_ASSIGN_OR_RETURN(
        const DistributedVar* const beside,
        ps::slice_beside_param(transpiler::slices_by_origin(to_.overview), var));
    const DistributedVar& held = beside != nullptr ? *beside : var;
    return std::pair(held.offset, held.slice.shape);
  }

  [[nodiscard]] io::StreamedTensor stream(const std::string& name, const JoinedVar& var, Dims dims,
                                          int64_t first) const {
    io::StreamedTensor tensor;
    tensor.name = name;
    tensor.dtype = var.dtype;
    tensor.dims = std::move(dims);
    const auto slice = std::make_shared<SliceStream>(
        from_.servers(), var, first, io::Box::whole(tensor.dims).numel(), max_bytes_);
    tensor.read = [slice](uint64_t offset, std::span<std::byte> to) {
      return slice->read(offset, to);
    };
    return tensor;
  }

  [[nodiscard]] StatusOr<io::StreamedTensor> slice_for(const DistributedVar& var) const {
    const auto found = from_.vars().find(var.origin.name);
    if (found == from_.vars().end()) return NotFound("the snapshots do not have the variable");
    const JoinedVar& joined = found->second;
    if (joined.kind == Kind::kTable || joined.kind == Kind::kTyped)
      return Unimplemented(
          "the variable is a table of rows in the snapshots and sliced in the new job");
    if (joined.kind == Kind::kSliced)
      MILLRACE_RETURN_IF_ERROR(check_slices(var.origin.name, joined));
    MILLRACE_ASSIGN_OR_RETURN(const auto held, held_by(var));
    const auto& [offset, shape] = held;
    const Dims dims(shape.begin(), shape.end());
    MILLRACE_RETURN_IF_ERROR(check_type(var.origin, joined));
    const int64_t elements = io::Box::whole(dims).numel();
    const int64_t whole = io::Box::whole(joined.dims).numel();
    if (offset < 0 || offset + elements > whole)
      return InvalidData("expected a slice of {} elements, found elements {} to {}", whole, offset,
                         offset + elements);
    return stream(var.slice.name, joined, dims, offset);
  }

  [[nodiscard]] StatusOr<io::StreamedTensor> all_of(const std::string& name,
                                                    const JoinedVar& var) const {
    if (var.kind == Kind::kSliced) MILLRACE_RETURN_IF_ERROR(check_slices(name, var));
    return stream(name, var, var.dims, 0);
  }

  [[nodiscard]] StatusOr<io::StreamedTensor> rows_for(const std::string& name, const JoinedVar& var,
                                                      size_t server) const {
    const auto servers = static_cast<int64_t>(to_.properties.endpoints.size());
    std::vector<ps::RowPlace> places;
    for (size_t i = 0; i < var.slices.size(); ++i) {
      const JoinedVar::Slice& slice = var.slices[i];
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                                from_.servers()[slice.server].load_row_numbers(slice.stored->name));
      ps::add_places(numbers, i, places, [&](int64_t row) {
        return server_of_row(row, servers) == static_cast<int64_t>(server);
      });
    }
    MILLRACE_RETURN_IF_ERROR(ps::sort_places(places));
    io::StreamedTensor tensor;
    tensor.name = name;
    tensor.dtype = var.dtype;
    tensor.dims = var.dims;
    tensor.dims[0] = static_cast<int64_t>(places.size());
    tensor.is_table = true;
    tensor.height = var.dims[0];
    for (const ps::RowPlace& place : places) tensor.rows.push_back(place.row);
    const auto stream =
        std::make_shared<RowsStream>(from_.servers(), var, std::move(places), max_bytes_);
    tensor.read = [stream](uint64_t offset, std::span<std::byte> to) {
      return stream->read(offset, to);
    };
    return tensor;
  }

  const ServerSnapshots& from_;
  const transpiler::SlicesFile& to_;
  uint64_t max_bytes_;
  std::set<std::string> listed_;
};

}  // namespace

Status reshard_snapshots(const ServerSnapshots& from, const transpiler::SlicesFile& to,
                         const std::vector<ps::TypedTable>& tables, const std::string& output,
                         uint64_t max_bytes, io::CheckpointSaveOptions options) {
  options.step = from.step();
  const ServerReshard reshard(from, to, max_bytes);
  MILLRACE_ASSIGN_OR_RETURN(const TableReshard typed, TableReshard::open(from, tables, max_bytes));
  // A server that reads this record loads the values and starts its counts of steps and calls from
  // zero.
  const std::string no_calls = ps::calls_text({});
  const int64_t steps_before = from.steps_before() + from.step();
  for (size_t i = 0; i < to.properties.endpoints.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<io::StreamedTensor> tensors, reshard.tensors_of(i));
    std::ranges::move(typed.tensors_of(i), std::back_inserter(tensors));
    const std::string root = fmt::format("{}/server-{}", output, i);
    const std::string layout =
        fmt::format("{}\n", fmt::join(distribution_facts(to, tables, i), "\n"));
    MILLRACE_RETURN_IF_ERROR(
        io::save_streams(tensors, {{ps::kCallsRecord, no_calls}, {ps::kLayoutRecord, layout}},
                         {{"endpoint", to.properties.endpoints[i]},
                          {"cut_anew_from_step", std::to_string(from.step())},
                          {ps::kStepsBeforeNote, std::to_string(steps_before)}},
                         io::checkpoint_folder(root, from.step()), options));
  }
  return Ok();
}

}  // namespace millrace::jobs
