#include "jobs/checkpoint/servers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/slice_cover.h"
#include "io/checkpoint/folder.h"
#include "jobs/checkpoint/reshard_tables.h"
#include "jobs/checkpoint/typed_values.h"
#include "jobs/config/distribution_facts.h"
#include "jobs/config/typed_tables.h"
#include "ps/client/gather.h"
#include "ps/server/calls_record.h"
#include "ps/server/snapshot_identity.h"
#include "ps/slices/row_places.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {
namespace {

using transpiler::DistributedVar;

// One intact snapshot of a server.
struct Snapshot {
  int64_t applied = 0;  // number of steps that the server had applied
  io::Checkpoint checkpoint;
};

// Newest first; damaged snapshots are logged and left out.
StatusOr<std::vector<Snapshot>> snapshots_of(const std::string& folder,
                                             const SnapshotOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, io::list_checkpoints(folder));
  std::vector<Snapshot> found;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    auto checkpoint = io::Checkpoint::open(entry->folder, {.threads = options.threads});
    Status status = checkpoint.ok() ? Ok() : checkpoint.status();
    if (status.ok()) {
      std::vector<Status> wrong = checkpoint->verify();
      if (!wrong.empty()) status = std::move(wrong.front());
    }
    if (!status.ok()) {
      options.log(LogLevel::kWarning,
                  "skipped: " + status.location().to_string() + ": " + status.message());
      continue;
    }
    MILLRACE_ASSIGN_OR_RETURN(const int64_t applied, applied_steps(*checkpoint));
    found.push_back({applied, *std::move(checkpoint)});
  }
  if (!found.empty()) return found;
  return NotFound("found no snapshot that can be loaded").in_file(folder);
}

// The snapshots of each server, by the server's number.
StatusOr<std::vector<std::vector<Snapshot>>> all_snapshots(const SnapshotOptions& options,
                                                           const std::string& root,
                                                           size_t servers) {
  std::vector<std::vector<Snapshot>> all;
  for (size_t i = 0; i < servers; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(all.emplace_back(),
                              snapshots_of(fmt::format("{}/server-{}", root, i), options));
  }
  return all;
}

// The step to read: the wanted one, or the newest that all servers have.
StatusOr<int64_t> common_step(const std::vector<std::vector<Snapshot>>& all, int64_t wanted,
                              const std::string& root) {
  std::map<int64_t, size_t> servers_at;  // step -> number of servers that have a snapshot of it
  for (const auto& found : all) {
    std::set<int64_t> steps;
    for (const Snapshot& snapshot : found) steps.insert(snapshot.applied);
    for (const int64_t step : steps) ++servers_at[step];
  }
  std::erase_if(servers_at, [&](const auto& entry) { return entry.second != all.size(); });
  if (wanted >= 0) {
    if (servers_at.contains(wanted)) return wanted;
    std::vector<int64_t> steps;
    steps.reserve(servers_at.size());
    for (const auto& [step, count] : servers_at) steps.push_back(step);
    return NotFound("not every server has a snapshot of step {}; common steps: [{}]", wanted,
                    fmt::join(steps, ", "))
        .in_file(root);
  }
  if (!servers_at.empty()) return servers_at.rbegin()->first;
  std::vector<int64_t> newest;
  newest.reserve(all.size());
  for (const auto& found : all) newest.push_back(found.front().applied);
  return InvalidData("the servers have no snapshot of a common step; their newest are of steps {}",
                     fmt::join(newest, ", "))
      .in_file(root);
}

// Slices of another distribution may fit, and rows of servers that slices.json lacks would be lost.
// A snapshot without these records fits any.
Status check_made_for(const transpiler::SlicesFile& slices,
                      const std::vector<ps::TypedTable>& tables, size_t server,
                      const io::Checkpoint& snapshot) {
  std::string layout;
  if (snapshot.manifest().find_record(ps::kIdentityRecord, 0) != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string identity,
                              snapshot.load_record(ps::kIdentityRecord));
    layout = ps::layout_in(identity);
  } else if (snapshot.manifest().find_record(ps::kLayoutRecord, 0) != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(layout, snapshot.load_record(ps::kLayoutRecord));
  }
  if (layout.empty()) return Ok();
  return ps::check_layout(layout, distribution_facts(slices, tables, server))
      .in_file(snapshot.folder());
}

using Kind = JoinedVar::Kind;
using Vars = std::map<std::string, JoinedVar>;

// Offset of state that slices.json lists as whole, but that may be only as large as the slice of
// its parameter.
StatusOr<int64_t> offset_of(llvm::ArrayRef<transpiler::OriginSlices> origins,
                            const DistributedVar& var, int64_t elements) {
  const auto whole = element_count(var.origin.shape);
  if (var.is_slice || !whole || elements == *whole) return var.offset;
  const int64_t offset = ps::offset_beside_param(origins, var, elements);
  if (offset >= 0) return offset;
  return InvalidData("'{}' on {} has {} of {} elements, and no parameter has a slice of that size",
                     var.slice.name, var.endpoint, elements, *whole);
}

// The value of the first server counts. Single numbers of updates may differ: a server moves the
// powers of beta of a sparse table only in steps in which it has rows.
Status tell_difference(const std::vector<io::Checkpoint>& servers, const JoinedVar::Slice& first,
                       const DistributedVar& var, size_t server, const io::StoredTensor& stored,
                       const LogSink& log) {
  if (element_count(var.origin.shape) != 1 || stored.dims != first.stored->dims ||
      stored.dtype != first.stored->dtype)
    return Ok();
  std::array<std::byte, 16> bytes[2] = {};  // the largest type is complex128
  const io::Box box = io::Box::whole(stored.dims);
  const auto size = static_cast<size_t>(dtype_size(stored.dtype));
  MILLRACE_RETURN_IF_ERROR(servers[server].read_box(stored.name, box, {bytes[0].data(), size}));
  MILLRACE_RETURN_IF_ERROR(
      servers[first.server].read_box(first.stored->name, box, {bytes[1].data(), size}));
  if (bytes[0] != bytes[1])
    log(LogLevel::kWarning,
        fmt::format("'{}' of server {} is another one than that of server {}, which counts: "
                    "servers have moved it in different steps",
                    var.origin.name, server, first.server));
  return Ok();
}

// The variables of the overview; `held` receives the names that the servers use for them.
StatusOr<Vars> overview_vars(const transpiler::SlicesFile& file,
                             const std::vector<io::Checkpoint>& servers,
                             std::set<std::string>& held, const LogSink& log) {
  Vars vars;
  std::map<std::string, std::string> absent;  // where slices.json has a var that is not stored
  const std::vector<transpiler::OriginSlices> origins = transpiler::slices_by_origin(file.overview);
  for (const DistributedVar& var : file.overview.vars()) {
    const auto at = std::ranges::find(file.properties.endpoints, var.endpoint);
    if (at == file.properties.endpoints.end())
      return InvalidData("'{}' is on {}, which is not a server of the job", var.slice.name,
                         var.endpoint);
    const auto server = static_cast<size_t>(at - file.properties.endpoints.begin());
    held.insert(var.slice.name);
    // its rows are read by add_table(); it may be empty, and is not stored then
    if (var.origin.name == file.properties.distributed_lookup_table) continue;
    const io::StoredTensor* const stored = servers[server].manifest().find(var.slice.name);
    if (stored == nullptr) absent[var.origin.name] = var.endpoint;
    if (stored == nullptr) continue;
    JoinedVar& joined = vars[var.origin.name];
    const int64_t elements = io::Box::whole(stored->dims).numel();
    const bool is_part = var.is_slice || elements != element_count(var.origin.shape);
    if (!joined.slices.empty() && !is_part) {  // the same value on several servers
      MILLRACE_RETURN_IF_ERROR(
          tell_difference(servers, joined.slices.front(), var, server, *stored, log));
      continue;
    }
    joined.kind = is_part ? Kind::kSliced : Kind::kWhole;
    joined.dtype = stored->dtype;
    joined.dims.assign(var.origin.shape.begin(), var.origin.shape.end());
    if (!is_part) joined.dims = stored->dims;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t offset, offset_of(origins, var, elements));
    joined.slices.push_back({server, stored, offset});
  }
  for (const auto& [name, endpoint] : absent) {
    if (vars.contains(name)) continue;
    return InvalidData("'{}' is on {}, but is in no snapshot", name, endpoint);
  }
  return vars;
}

// The distributed table; each server holds some of its rows.
void add_table(const std::string& name, const std::vector<io::Checkpoint>& servers, Vars& vars) {
  for (size_t i = 0; i < servers.size(); ++i) {
    const io::StoredTensor* const stored = servers[i].manifest().find(name);
    if (stored == nullptr || stored->kind != io::StoredTensor::Kind::kSelectedRows) continue;
    JoinedVar& joined = vars[name];
    joined.kind = Kind::kTable;
    joined.dtype = stored->dtype;
    joined.dims = stored->dims;
    joined.dims[0] = stored->height;
    joined.slices.push_back({i, stored, 0});
  }
}

// Step counters and learning rates are single numbers. Larger tensors that are not listed are
// temporaries of the updates, and have the shapes of slices.
void add_numbers(const std::vector<io::Checkpoint>& servers, const std::set<std::string>& held,
                 Vars& vars) {
  for (size_t i = 0; i < servers.size(); ++i) {
    for (const io::StoredTensor& tensor : servers[i].manifest().tensors) {
      // the rule by which the original tells them apart (spec/distributed_io.md section 3)
      const bool gradient = tensor.name.find("@GRAD") != std::string::npos;
      if (tensor.dims != Dims{1} && !tensor.dims.empty()) continue;
      if (gradient || is_table_part(tensor.name) || held.contains(tensor.name) ||
          vars.contains(tensor.name))
        continue;
      vars[tensor.name] = {Kind::kWhole, tensor.dtype, tensor.dims, {{i, &tensor, 0}}};
    }
  }
}

StatusOr<Value> join_slices(const std::vector<io::Checkpoint>& servers, const std::string& name,
                            const JoinedVar& var) {
  MILLRACE_RETURN_IF_ERROR(check_slices(name, var));
  Value value;
  Tensor& whole = value.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(whole.resize(var.dtype, var.dims));
  const int64_t size = dtype_size(var.dtype);
  for (const JoinedVar::Slice& slice : var.slices) {
    const io::Box box = io::Box::whole(slice.stored->dims);
    MILLRACE_RETURN_IF_ERROR(servers[slice.server].read_box(
        slice.stored->name, box,
        {whole.raw() + slice.offset * size, static_cast<size_t>(box.numel() * size)}));
  }
  return value;
}

// Joins rows in ascending order. A table that has all its rows becomes the dense tensor of a single
// process.
StatusOr<Value> join_table(const std::vector<io::Checkpoint>& servers, const JoinedVar& var) {
  std::vector<SelectedRows> shards;
  for (const JoinedVar::Slice& slice : var.slices) {
    MILLRACE_ASSIGN_OR_RETURN(shards.emplace_back(),
                              servers[slice.server].load_rows(slice.stored->name, {}));
  }
  std::vector<const SelectedRows*> all;
  all.reserve(shards.size());
  for (const SelectedRows& shard : shards) all.push_back(&shard);
  Value value;
  SelectedRows joined;
  MILLRACE_RETURN_IF_ERROR(ps::join_shards(all, joined));
  if (static_cast<int64_t>(joined.rows.size()) == joined.height) {
    value.as<Tensor>() = std::move(joined.value);
  } else {
    value.as<SelectedRows>() = std::move(joined);
  }
  return value;
}

class ServersSource final : public TensorSource {
 public:
  explicit ServersSource(ServerSnapshots snapshots) : snapshots_(std::move(snapshots)) {}

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, joined] : snapshots_.vars()) names.push_back(name);
    return names;
  }
  [[nodiscard]] uint64_t bytes() const override { return snapshots_.bytes(); }
  [[nodiscard]] std::string form() const override { return "servers"; }
  [[nodiscard]] int64_t step() const override { return snapshots_.step(); }
  [[nodiscard]] std::vector<Slice> slices(const std::string& name) const override {
    std::vector<Slice> slices;
    const auto found = snapshots_.vars().find(name);
    if (found == snapshots_.vars().end()) return slices;
    for (const JoinedVar::Slice& slice : found->second.slices) {
      slices.push_back({slice.server, slice.stored->name, slice.offset,
                        io::Box::whole(slice.stored->dims).numel()});
    }
    return slices;
  }

  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    StatusOr<Value> value = snapshots_.load(name);
    if (value.ok()) return value;
    return of_var(std::move(value).status(), name);
  }

 private:
  ServerSnapshots snapshots_;
};

}  // namespace

StatusOr<int64_t> applied_steps(const io::Checkpoint& snapshot) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, snapshot.load_record(ps::kCallsRecord));
  StatusOr<ps::CallsRecord> calls = ps::parse_calls(text);
  if (!calls.ok()) return std::move(calls).status().in_file(snapshot.folder());
  return calls->applied;
}

Status check_slices(const std::string& name, const JoinedVar& var) {
  std::vector<VarSlice> slices;
  for (const JoinedVar::Slice& slice : var.slices) {
    const io::StoredTensor& stored = *slice.stored;
    if (stored.kind != io::StoredTensor::Kind::kDense)
      return Unimplemented("slice '{}' is not a dense tensor", stored.name);
    slices.push_back({fmt::format("'{}' on server {}", stored.name, slice.server), slice.offset,
                      io::Box::whole(stored.dims).numel(), stored.dtype, stored.dims});
  }
  return check_slices_cover(name, var.dtype, var.dims, slices);
}

std::vector<std::string> server_folders(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code error;
  for (;;) {
    std::string folder = fmt::format("{}/server-{}", root, folders.size());
    if (!std::filesystem::is_directory(folder, error)) return folders;
    folders.push_back(std::move(folder));
  }
}

StatusOr<transpiler::SlicesFile> read_slices_of_servers(const std::string& path,
                                                        const SnapshotOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(transpiler::SlicesFile file,
                            read_slices(path, options.max_slices_bytes));
  if (file.properties.endpoints.empty()) return InvalidData("the job has no servers").in_file(path);
  return file;
}

StatusOr<int64_t> open_snapshots(const std::string& root, size_t servers,
                                 const SnapshotOptions& options,
                                 std::vector<io::Checkpoint>& chosen) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<std::vector<Snapshot>> all,
                            all_snapshots(options, root, servers));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t step, common_step(all, options.step, root));
  options.log(LogLevel::kInfo, fmt::format("snapshots of step {}", step));
  for (auto& found : all) {
    const auto at = std::ranges::find(found, step, &Snapshot::applied);
    chosen.push_back(std::move(at->checkpoint));
  }
  return step;
}

StatusOr<ServerSnapshots> ServerSnapshots::open(const std::string& root, const std::string& slices,
                                                const SnapshotOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::SlicesFile file,
                            read_slices_of_servers(slices, options));
  ServerSnapshots opened;
  MILLRACE_ASSIGN_OR_RETURN(opened.step_, open_snapshots(root, file.properties.endpoints.size(),
                                                         options, opened.servers_));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> typed, read_typed_tables(slices));
  for (size_t i = 0; i < opened.servers_.size(); ++i)
    MILLRACE_RETURN_IF_ERROR(check_made_for(file, typed, i, opened.servers_[i]));
  StatusOr<int64_t> before =
      ps::number_in_note(opened.servers_[0].manifest().user, ps::kStepsBeforeNote);
  if (!before.ok()) return std::move(before).status().in_file(opened.servers_[0].folder());
  opened.steps_before_ = *before;
  std::set<std::string> held;
  StatusOr<Vars> vars = overview_vars(file, opened.servers_, held, options.log);
  if (!vars.ok()) return std::move(vars).status().in_file(slices);
  for (auto& [name, var] : *vars) std::ranges::sort(var.slices, {}, &JoinedVar::Slice::offset);
  const std::string& table = file.properties.distributed_lookup_table;
  if (!table.empty()) add_table(table, opened.servers_, *vars);
  MILLRACE_RETURN_IF_ERROR(add_typed_tables(typed, opened.servers_, *vars));
  for (const ps::TypedTable& each : typed) opened.typed_.emplace(each.param, each);
  add_numbers(opened.servers_, held, *vars);
  opened.vars_ = *std::move(vars);
  return opened;
}

uint64_t ServerSnapshots::bytes() const {
  uint64_t sum = 0;
  for (const io::Checkpoint& server : servers_) sum += server.manifest().bytes();
  return sum;
}

StatusOr<Value> ServerSnapshots::load(const std::string& name) const {
  const auto found = vars_.find(name);
  if (found == vars_.end()) return NotFound("no variable '{}'", name);
  const JoinedVar& var = found->second;
  switch (var.kind) {
    case Kind::kSliced:
      return join_slices(servers_, name, var);
    case Kind::kTable:
      return join_table(servers_, var);
    case Kind::kTyped:
      return load_typed_table(typed_.at(name), servers_);
    case Kind::kWhole:
      break;
  }
  return servers_[var.slices[0].server].load(var.slices[0].stored->name);
}

StatusOr<std::unique_ptr<TensorSource>> open_servers(const std::string& root,
                                                     const std::string& slices,
                                                     const SnapshotOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(ServerSnapshots snapshots,
                            ServerSnapshots::open(root, slices, options));
  return std::unique_ptr<TensorSource>(std::make_unique<ServersSource>(std::move(snapshots)));
}

}  // namespace millrace::jobs
