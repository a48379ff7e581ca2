#include "tools/checkpoint/servers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/checkpoint/folder.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {
namespace {

using transpiler::DistributedVar;

// One good snapshot of a server.
struct Snapshot {
  int64_t applied = 0;  // steps that the server had carried out
  io::Checkpoint checkpoint;
};

// The record "calls" of a snapshot begins with its form, version and the steps.
StatusOr<int64_t> applied_steps(const io::Checkpoint& checkpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, checkpoint.load_record("calls"));
  std::istringstream in(text);
  std::string form;
  int version = 0;
  int64_t applied = -1;
  in >> form >> version >> applied;
  if (!in || form != "millrace.ps.calls" || version != 1 || applied < 0)
    return InvalidData("no snapshot of a server: its record 'calls' is malformed")
        .in_file(checkpoint.folder());
  return applied;
}

// Newest first; damaged ones are logged and left out.
StatusOr<std::vector<Snapshot>> snapshots_of(const Tool& tool, const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, io::list_checkpoints(folder));
  std::vector<Snapshot> found;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->complete) continue;
    auto checkpoint = io::Checkpoint::open(entry->folder, {.threads = tool.common().threads});
    Status status = checkpoint.ok() ? Ok() : checkpoint.status();
    if (status.ok()) {
      std::vector<Status> wrong = checkpoint->verify();
      if (!wrong.empty()) status = std::move(wrong.front());
    }
    if (!status.ok()) {
      tool.log(LogLevel::kWarning,
               "skipped: " + status.location().to_string() + ": " + status.message());
      continue;
    }
    MILLRACE_ASSIGN_OR_RETURN(const int64_t applied, applied_steps(*checkpoint));
    found.push_back({applied, *std::move(checkpoint)});
  }
  if (!found.empty()) return found;
  return NotFound("there is no snapshot that can be loaded").in_file(folder);
}

// One snapshot a server, all of one step.
StatusOr<std::vector<io::Checkpoint>> common_snapshots(const Tool& tool, const std::string& root,
                                                       size_t servers) {
  std::vector<std::vector<Snapshot>> all;
  std::map<int64_t, size_t> servers_at;  // steps that are there, on how many servers
  for (size_t i = 0; i < servers; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(auto found, snapshots_of(tool, fmt::format("{}/server-{}", root, i)));
    std::set<int64_t> steps;
    for (const Snapshot& snapshot : found) steps.insert(snapshot.applied);
    for (const int64_t step : steps) ++servers_at[step];
    all.push_back(std::move(found));
  }
  const auto common = std::find_if(servers_at.rbegin(), servers_at.rend(),
                                   [&](const auto& entry) { return entry.second == servers; });
  if (common == servers_at.rend()) {
    std::vector<int64_t> newest;
    for (const auto& found : all) newest.push_back(found.front().applied);
    return InvalidData("the servers have no snapshot of one step: the newest are of steps {}",
                       fmt::join(newest, ", "))
        .in_file(root);
  }
  tool.log(LogLevel::kInfo, fmt::format("snapshots of step {}", common->first));
  std::vector<io::Checkpoint> chosen;
  for (auto& found : all) {
    const auto at = std::ranges::find(found, common->first, &Snapshot::applied);
    chosen.push_back(std::move(at->checkpoint));
  }
  return chosen;
}

// A piece of a var: which server has it under which name.
struct Piece {
  size_t server = 0;
  std::string name;
  int64_t offset = 0;  // in elements
};

struct Joined {
  Dims dims;  // of the whole var; unused if there is one piece
  bool sliced = false;
  std::vector<Piece> pieces;  // by offset
};

class ServersSource final : public TensorSource {
 public:
  ServersSource(std::vector<io::Checkpoint> servers, std::map<std::string, Joined> vars)
      : servers_(std::move(servers)), vars_(std::move(vars)) {}

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, joined] : vars_) names.push_back(name);
    return names;
  }
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const io::Checkpoint& server : servers_) sum += server.manifest().bytes();
    return sum;
  }
  [[nodiscard]] std::string form() const override { return "servers"; }

  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    const auto found = vars_.find(name);
    if (found == vars_.end()) return NotFound("no var '{}'", name);
    const Joined& joined = found->second;
    if (!joined.sliced) return servers_[joined.pieces[0].server].load(joined.pieces[0].name);
    StatusOr<Value> value = join(joined);
    if (value.ok()) return value;
    Location location = value.status().location();
    location.var = name;
    return std::move(value).status().at(std::move(location));
  }

 private:
  [[nodiscard]] StatusOr<Value> join(const Joined& joined) const {
    Value value;
    Tensor& whole = value.as<Tensor>();
    int64_t at = 0;
    for (const Piece& piece : joined.pieces) {
      MILLRACE_ASSIGN_OR_RETURN(const Value part, servers_[piece.server].load(piece.name));
      const auto* const tensor = part.get_if<Tensor>();
      if (tensor == nullptr)
        return Unimplemented("slice '{}' is no dense tensor: {}", piece.name, describe(part));
      if (at == 0) MILLRACE_RETURN_IF_ERROR(whole.resize(tensor->dtype(), joined.dims));
      if (piece.offset != at || tensor->dtype() != whole.dtype() ||
          tensor->numel() > whole.numel() - at) {
        return InvalidData("slice '{}': expected one at element {} of {}, found {} at {}",
                           piece.name, at, describe(whole), describe(*tensor), piece.offset);
      }
      const int64_t size = dtype_size(whole.dtype());
      std::memcpy(whole.raw() + at * size, tensor->raw(), static_cast<size_t>(tensor->bytes()));
      at += tensor->numel();
    }
    if (at != whole.numel())
      return InvalidData("expected slices of {} elements, found {}", whole.numel(), at);
    return value;
  }

  std::vector<io::Checkpoint> servers_;
  std::map<std::string, Joined> vars_;
};

// The vars of the overview; `held` receives the names that servers have for them.
StatusOr<std::map<std::string, Joined>> overview_vars(const transpiler::SlicesFile& file,
                                                      const std::vector<io::Checkpoint>& servers,
                                                      std::set<std::string>& held) {
  std::map<std::string, Joined> vars;
  for (const DistributedVar& var : file.overview.vars()) {
    const auto at = std::ranges::find(file.properties.endpoints, var.endpoint);
    if (at == file.properties.endpoints.end())
      return InvalidData("'{}' lives on {}, which is no server of the job", var.slice.name,
                         var.endpoint);
    const auto server = static_cast<size_t>(at - file.properties.endpoints.begin());
    held.insert(var.slice.name);
    // A table that grows may have nothing yet; what is not there is not saved.
    if (servers[server].manifest().find(var.slice.name) == nullptr) continue;
    Joined& joined = vars[var.origin.name];
    if (!joined.pieces.empty() && !var.is_slice) continue;  // alike on several servers
    joined.sliced = var.is_slice;
    joined.dims.assign(var.origin.shape.begin(), var.origin.shape.end());
    joined.pieces.push_back({server, var.slice.name, var.offset});
  }
  for (auto& [name, joined] : vars) std::ranges::sort(joined.pieces, {}, &Piece::offset);
  return vars;
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> open_servers(const Tool& tool, const std::string& root,
                                                     const std::string& slices) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text,
                            read_file(slices, tool.common().max_model_bytes));
  StatusOr<transpiler::SlicesFile> file = transpiler::parse_slices_json(text);
  if (!file.ok()) return std::move(file).status().in_file(slices);
  if (file->properties.endpoints.empty())
    return InvalidData("the job has no servers").in_file(slices);
  MILLRACE_ASSIGN_OR_RETURN(std::vector<io::Checkpoint> servers,
                            common_snapshots(tool, root, file->properties.endpoints.size()));
  std::set<std::string> held;
  StatusOr<std::map<std::string, Joined>> vars = overview_vars(*file, servers, held);
  if (!vars.ok()) return std::move(vars).status().in_file(slices);
  for (size_t i = 0; i < servers.size(); ++i) {
    for (const io::StoredTensor& tensor : servers[i].manifest().tensors) {
      // as the original tells them apart (spec/distributed_io.md section 3)
      const bool gradient = tensor.name.find("@GRAD") != std::string::npos;
      // steps and learning rates are single numbers; larger ones are what updates scribble on, and
      // have the shapes of slices
      if (tensor.dims != Dims{1} && !tensor.dims.empty()) continue;
      if (gradient || held.contains(tensor.name) || vars->contains(tensor.name)) continue;
      (*vars)[tensor.name] = {{}, false, {{i, tensor.name, 0}}};
    }
  }
  return std::unique_ptr<TensorSource>(
      std::make_unique<ServersSource>(std::move(servers), *std::move(vars)));
}

}  // namespace millrace::tools
