#include "jobs/checkpoint/reshard_fleet.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fleet/runtime/described_tables.h"
#include "framework/base/errors.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/save_streams.h"
#include "jobs/checkpoint/reshard_tables.h"
#include "jobs/checkpoint/slice_stream.h"
#include "jobs/checkpoint/table_parts.h"
#include "ps/server/calls_record.h"
#include "ps/server/snapshot_identity.h"
#include "ps/table/routing.h"
#include "ps/table/state_parts.h"

// Snapshots of servers that have typed tables only.
namespace millrace::jobs {
namespace reshard_fleet_parts {
namespace {

using Columns = std::map<int, std::vector<fleet::DescribedColumn>>;

int count_of(const FleetServers& job) {
  return static_cast<int>(job.descriptions.size());
}

// Numbers of all tables with state.
StatusOr<std::vector<int>> table_ids(const FleetServers& job) {
  const std::string& text = job.descriptions.front();
  MILLRACE_ASSIGN_OR_RETURN(const auto sparse, fleet::described_sparse_tables(text, {}));
  MILLRACE_ASSIGN_OR_RETURN(const Columns dense, fleet::described_columns(text));
  MILLRACE_ASSIGN_OR_RETURN(const int rate, fleet::described_rate_table(text));
  std::set<int> ids{rate};
  if (!job.is_sync) ids.insert(fleet::step_table_after(rate));
  for (const ps::TypedTable& table : sparse) ids.insert(table.options.table_id);
  for (const auto& [id, columns] : dense) ids.insert(id);
  return std::vector<int>(ids.begin(), ids.end());
}

// What the snapshots of a server say about the job to which they belong.
StatusOr<std::string> identity_of_server(const FleetServers& job, int server) {
  ps::TablesServer facts;
  facts.mode = job.is_sync ? ps::ServerMode::kSync : ps::ServerMode::kAsync;
  facts.server = server;
  facts.trainers = job.workers;
  MILLRACE_ASSIGN_OR_RETURN(
      facts.plan, fleet::described_facts(job.descriptions[static_cast<size_t>(server)], server,
                                         count_of(job), job.workers));
  MILLRACE_ASSIGN_OR_RETURN(facts.tables, table_ids(job));
  return ps::identity_of(facts);
}

// The descriptions of the tables, in order, except for the numbers of workers and servers.
StatusOr<std::vector<std::string>> tables_of(const FleetServers& job) {
  MILLRACE_ASSIGN_OR_RETURN(
      const ps::PlanFacts facts,
      fleet::described_facts(job.descriptions.front(), 0, count_of(job), job.workers));
  const std::regex counts("(trainer_num|sparse_table_cache_file_num): [0-9]+");
  std::vector<std::string> tables;
  for (const std::string& fact : facts) {
    if (fact.starts_with("described table"))
      tables.push_back(std::regex_replace(fact, counts, "$1: N"));
  }
  return tables;
}

Status check_same_job(const FleetServers& from, const FleetServers& to) {
  if (from.is_sync != to.is_sync)
    return InvalidData("the new job is {}synchronous, the one of the snapshots is {}synchronous",
                       to.is_sync ? "" : "not ", from.is_sync ? "" : "not ");
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> old, tables_of(from));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> wanted, tables_of(to));
  if (old.size() != wanted.size())
    return InvalidData("the new job has {} tables, the one of the snapshots {}", wanted.size(),
                       old.size());
  constexpr size_t kShown = 60;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i] == wanted[i]) continue;
    const auto differ = std::ranges::mismatch(old[i], wanted[i]);
    const auto from_word = old[i].rfind(' ', static_cast<size_t>(differ.in1 - old[i].begin()));
    return InvalidData("table {} of the new job has '{}', that of the snapshots '{}'", i,
                       wanted[i].substr(from_word + 1, kShown),
                       old[i].substr(from_word + 1, kShown));
  }
  return Ok();
}

// Distributes the state of a fleet job over the servers of another one.
class FleetReshard {
 public:
  FleetReshard(const FleetSnapshots& from, const FleetServers& to, uint64_t max_bytes)
      : from_(from), to_(to), max_bytes_(max_bytes) {}

  Status open() {
    const std::string& text = to_.descriptions.front();
    MILLRACE_ASSIGN_OR_RETURN(const auto old,
                              fleet::described_sparse_tables(from_.servers().descriptions.front(),
                                                             from_.servers().endpoints));
    MILLRACE_ASSIGN_OR_RETURN(const auto wanted,
                              fleet::described_sparse_tables(text, to_.endpoints));
    MILLRACE_ASSIGN_OR_RETURN(TableReshard rows,
                              TableReshard::open(from_.snapshots(), old, wanted, max_bytes_));
    rows_ = std::make_unique<TableReshard>(std::move(rows));
    MILLRACE_ASSIGN_OR_RETURN(rate_, fleet::described_rate_table(text));
    return Ok();
  }

  StatusOr<std::vector<io::StreamedTensor>> tensors_of(size_t server) const {
    std::vector<io::StreamedTensor> tensors = rows_->tensors_of(server);
    MILLRACE_ASSIGN_OR_RETURN(const Columns dense,
                              fleet::described_columns(to_.descriptions[server]));
    for (const auto& [id, columns] : dense) {
      for (const fleet::DescribedColumn& column : columns) {
        StatusOr<io::StreamedTensor> tensor =
            column.is_scalar ? scalars(id, column) : range(id, column, server);
        if (!tensor.ok())
          return std::move(tensor).status().with_note(fmt::format("in dense table {}", id));
        tensors.push_back(*std::move(tensor));
      }
    }
    const io::Checkpoint& first = from_.snapshots().front();
    MILLRACE_ASSIGN_OR_RETURN(std::vector<float> rate,
                              numbers_of<float>(first, rate_, ps::kRatePart, DType::kFloat32));
    tensors.push_back(
        stream_of(ps::table_item(rate_, ps::kRatePart), DType::kFloat32, std::move(rate)));
    if (to_.is_sync) return tensors;
    // server 0 counts the steps of all workers
    std::vector<int64_t> steps(static_cast<size_t>(to_.workers));
    const int id = fleet::step_table_after(rate_);
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> done,
                              numbers_of<int64_t>(first, id, ps::kStepsPart, DType::kInt64));
    for (const int64_t each : done) steps[0] += server == 0 ? each : 0;
    tensors.push_back(
        stream_of(ps::table_item(id, ps::kStepsPart), DType::kInt64, std::move(steps)));
    return tensors;
  }

 private:
  [[nodiscard]] StatusOr<const io::StoredTensor*> stored(size_t server, int id,
                                                         const std::string& part) const {
    const io::Checkpoint& snapshot = from_.snapshots()[server];
    const io::StoredTensor* const found = snapshot.manifest().find(ps::table_item(id, part));
    if (found != nullptr && found->dims.size() == 1) return found;
    return InvalidData("'{}': expected one dim, found {}", ps::table_item(id, part),
                       found == nullptr ? "nothing" : "another number of dims")
        .in_file(snapshot.folder());
  }

  // A column of the elements of a server.
  [[nodiscard]] StatusOr<io::StreamedTensor> range(int id, const fleet::DescribedColumn& column,
                                                   size_t server) const {
    JoinedVar whole{JoinedVar::Kind::kSliced, DType::kFloat32, {0}, {}};
    for (size_t i = 0; i < from_.snapshots().size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const io::StoredTensor* const part, stored(i, id, column.name));
      whole.slices.push_back({i, part, whole.dims[0]});
      whole.dims[0] += part->dims[0];
    }
    MILLRACE_RETURN_IF_ERROR(check_slices(column.name, whole));
    const ps::DenseRange own =
        ps::dense_range(whole.dims[0], count_of(to_), static_cast<int64_t>(server));
    if (own.count != column.elements)
      return InvalidData("'{}' has {} elements for server {} of the new job, expected {}",
                         column.name, own.count, server, column.elements);
    io::StreamedTensor tensor;
    tensor.name = ps::table_item(id, column.name);
    tensor.dims = {own.count};
    const auto stream =
        std::make_shared<SliceStream>(from_.snapshots(), whole, own.begin, own.count, max_bytes_);
    tensor.read = [stream](uint64_t offset, std::span<std::byte> to) {
      return stream->read(offset, to);
    };
    return tensor;
  }

  // Numbers that are equal on all servers with elements of the table.
  [[nodiscard]] StatusOr<io::StreamedTensor> scalars(int id,
                                                     const fleet::DescribedColumn& column) const {
    std::optional<std::vector<float>> common;
    for (size_t i = 0; i < from_.snapshots().size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const io::StoredTensor* const param, stored(i, id, "Param"));
      MILLRACE_ASSIGN_OR_RETURN(
          std::vector<float> own,
          numbers_of<float>(from_.snapshots()[i], id, column.name, DType::kFloat32));
      // a server without elements gets no pushes, so its scalars count no steps
      const bool counts = param->dims[0] > 0;
      if (common && counts && own != *common)
        return InvalidData("'{}' of server {} differs from that of others, expected equal numbers",
                           column.name, i);
      if (counts || (i + 1 == from_.snapshots().size() && !common)) common = std::move(own);
    }
    if (static_cast<int64_t>(common->size()) != column.elements)
      return InvalidData("'{}' has {} numbers, expected {}", column.name, common->size(),
                         column.elements);
    return stream_of(ps::table_item(id, column.name), DType::kFloat32, *std::move(common));
  }

  const FleetSnapshots& from_;
  const FleetServers& to_;
  uint64_t max_bytes_;
  std::unique_ptr<TableReshard> rows_;
  int rate_ = 0;
};

// The record of a server that has applied all steps before `step`, and has no calls of processes.
std::string calls_at(int64_t step, const FleetServers& job) {
  ps::CallsRecord record;
  record.applied = step;
  record.trainers.resize(static_cast<size_t>(job.workers));
  for (ps::CallsRecord::Trainer& trainer : record.trainers) trainer.sent = trainer.fetched = step;
  return ps::calls_text(record);
}

}  // namespace
}  // namespace reshard_fleet_parts

StatusOr<FleetSnapshots> FleetSnapshots::open(const std::string& root, FleetServers servers,
                                              const SnapshotOptions& options) {
  using namespace reshard_fleet_parts;
  FleetSnapshots opened;
  opened.servers_ = std::move(servers);
  MILLRACE_ASSIGN_OR_RETURN(opened.step_, open_snapshots(root, opened.servers_.descriptions.size(),
                                                         options, opened.snapshots_));
  for (int i = 0; i < count_of(opened.servers_); ++i) {
    const io::Checkpoint& snapshot = opened.snapshots_[static_cast<size_t>(i)];
    MILLRACE_ASSIGN_OR_RETURN(const std::string expected, identity_of_server(opened.servers_, i));
    MILLRACE_ASSIGN_OR_RETURN(const std::string found, snapshot.load_record(ps::kIdentityRecord));
    if (Status status = ps::check_identity(found, expected); !status.ok())
      return std::move(status).in_file(snapshot.folder());
  }
  return opened;
}

uint64_t FleetSnapshots::bytes() const {
  uint64_t sum = 0;
  for (const io::Checkpoint& snapshot : snapshots_) sum += snapshot.manifest().bytes();
  return sum;
}

Status reshard_fleet(const FleetSnapshots& from, const FleetServers& to, const std::string& output,
                     uint64_t max_bytes, io::CheckpointSaveOptions options) {
  using namespace reshard_fleet_parts;
  MILLRACE_RETURN_IF_ERROR(check_same_job(from.servers(), to));
  options.step = from.step();
  FleetReshard reshard(from, to, max_bytes);
  MILLRACE_RETURN_IF_ERROR(reshard.open());
  for (int i = 0; i < count_of(to); ++i) {
    const auto server = static_cast<size_t>(i);
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<io::StreamedTensor> tensors,
                              reshard.tensors_of(server));
    MILLRACE_ASSIGN_OR_RETURN(const std::string identity, identity_of_server(to, i));
    MILLRACE_RETURN_IF_ERROR(io::save_streams(
        tensors, {{ps::kCallsRecord, calls_at(from.step(), to)}, {ps::kIdentityRecord, identity}},
        {{"endpoint", to.endpoints[server]}, {"applied", std::to_string(from.step())}},
        io::checkpoint_folder(fmt::format("{}/server-{}", output, i), from.step()), options));
  }
  return Ok();
}

}  // namespace millrace::jobs
