#include "fleet/runtime/fleet_server.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>
#include <llvm/ADT/StringRef.h>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_geo_table.h"
#include "ps/table/table_files.h"
#include "ps/table/table_handler.h"
#include "ps/table/tensor_table.h"

namespace millrace::fleet {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

// The servers of fleet jobs have no programs, but Service takes its settings from an op.
std::unique_ptr<Program> serving_program(const ServerSetup& setup, bool is_sync) {
  constexpr int32_t kSync = 0;
  constexpr int32_t kAsync = 1;
  auto program = Program::create();
  const Block& nothing = program->add_block(0);
  Op& op = program->root().append_op("listen_and_serv");
  op.set_attr("optimize_blocks", AttrValue::of_blocks({nothing.index()}));
  op.set_int("Fanin", setup.workers);
  op.set_int("pserver_id", setup.server);
  op.set_int("distributed_mode", is_sync ? kSync : kAsync);
  return program;
}

}  // namespace

Status check_hybrid_service(const ps::ServerOptions& service, bool is_sync) {
  if (service.elastic)
    return Unimplemented(
        "service.elastic with dense_gradients all_reduce, which needs all trainers");
  if (service.snapshot_root.empty()) return Ok();
  if (!is_sync)
    return Unimplemented(
               "service.snapshot_root with dense_gradients all_reduce in an asynchronous job: "
               "snapshots of servers lack the dense parameters, which trainers keep")
        .with_hint("save the whole job at its end");
  if (service.snapshot_interval.count() > 0)
    return Unimplemented(
        "service.snapshot_interval with dense_gradients all_reduce, whose trainers keep the dense "
        "parameters of multiples of service.snapshot_every");
  if (service.snapshot_every == 0)
    return InvalidArgument(
        "service.snapshot_root with dense_gradients all_reduce: expected service.snapshot_every, "
        "the steps between snapshots");
  return Ok();
}

StatusOr<std::unique_ptr<FleetServer>> FleetServer::create(ServerSetup setup) {
  std::unique_ptr<FleetServer> server(new FleetServer());
  MILLRACE_ASSIGN_OR_RETURN(server->tables_,
                            make_described_tables(setup.description, setup.tables));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> sparse,
                            described_sparse_tables(setup.description, {}));
  for (const ps::TypedTable& table : sparse) server->sparse_[table.options.table_id] = table;
  server->has_dense_ = std::ranges::any_of(server->tables_->ids(), [&](int id) {
    return dynamic_cast<ps::DenseTable*>(server->tables_->find(id)) != nullptr;
  });
  server->tables_->set_files(*server);
  setup.service.tables = server->tables_.get();
  MILLRACE_ASSIGN_OR_RETURN(setup.service.plan, described_facts(setup.description, setup.server,
                                                                setup.servers, setup.workers));
  server->runtime_ = executor::make_runtime(setup.service.files_root);
  server->program_ = serving_program(setup, server->tables_->has_steps());
  server->setup_ = std::move(setup);
  return server;
}

ps::TableShare FleetServer::share_of(int id) const {
  const auto sparse = sparse_.find(id);
  return {setup_.server, setup_.servers, sparse == sparse_.end() ? 1 : sparse->second.shard_num};
}

Status FleetServer::save_table(int id, const std::string& folder, int mode, Replace replace) {
  ps::Table* const table = tables_->find(id);
  if (auto* const sparse = dynamic_cast<ps::SparseTable*>(table))
    return ps::save_table(*sparse, folder, share_of(id), mode, replace);
  if (auto* const dense = dynamic_cast<ps::DenseTable*>(table))
    return ps::save_table(*dense, folder, share_of(id), replace);
  return NotFound("this server has no table {}", id);
}

// A crash may have left files of two different saves, each of which is valid on its own.
Status FleetServer::check_manifest(int id, const std::string& folder) const {
  const std::string path = io::params_manifest_path(folder);
  if (!io::may_exist(path)) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxManifestBytes));
  StatusOr<io::ParamsManifest> manifest = io::parse_params_manifest(text);
  if (!manifest.ok()) return std::move(manifest).status().in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                            ps::table_parts(folder, id, share_of(id)));
  for (const std::string& part : parts) {
    // names in the manifest are relative to the folder that a server was allowed to use
    const std::string tail = "/" + std::filesystem::relative(part, folder).string();
    for (const io::ParamsManifest::TablePart& listed : manifest->tables) {
      if (!llvm::StringRef("/" + listed.file).endswith(tail)) continue;
      MILLRACE_ASSIGN_OR_RETURN(const io::ParamsManifest::File found, io::file_facts(part, tail));
      if (found.size == listed.size && found.checksum == listed.checksum) continue;
      return InvalidData("expected {} bytes with checksum {} by {}, found {} with {}", listed.size,
                         listed.checksum.text(), path, found.size, found.checksum.text())
          .in_file(part);
    }
  }
  return Ok();
}

Status FleetServer::load_table(int id, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(check_manifest(id, folder));
  ps::Table* const table = tables_->find(id);
  if (auto* const sparse = dynamic_cast<ps::SparseTable*>(table)) {
    MILLRACE_RETURN_IF_ERROR(ps::load_table(*sparse, folder, share_of(id)));
    if (!has_dense_) ++loaded_;
    return Ok();
  }
  auto* const dense = dynamic_cast<ps::DenseTable*>(table);
  if (dense == nullptr) return NotFound("this server has no table {}", id);
  MILLRACE_RETURN_IF_ERROR(ps::load_table(*dense, folder, share_of(id)));
  dense->note_set();
  ++loaded_;
  return Ok();
}

Status FleetServer::load(const std::string& folder, const std::vector<std::string>& tables) {
  if (!io::is_folder(folder))
    return NotFound("the folder of tables does not exist").in_file(folder);
  std::vector<int> ids = tables.empty() ? tables_->ids() : std::vector<int>();
  // workers set the rate, and count the steps of this run
  std::erase_if(ids, [&](int id) {
    const ps::Table* const table = tables_->find(id);
    return dynamic_cast<const ps::RateTable*>(table) != nullptr ||
           dynamic_cast<const ps::TensorTable*>(table) != nullptr;
  });
  for (const std::string& name : tables) {
    const auto found = std::ranges::find_if(
        sparse_, [&](const auto& table) { return table.second.param == name; });
    if (found != sparse_.end()) {
      ids.push_back(found->first);
      continue;
    }
    std::vector<std::string> known;
    for (const auto& [id, table] : sparse_) known.push_back(table.param);
    return InvalidArgument("'{}' is not a sparse table of the job, which has [{}]", name,
                           fmt::join(known, ", "));
  }
  for (const int id : ids) MILLRACE_RETURN_IF_ERROR(load_table(id, folder));
  return Ok();
}

Status FleetServer::check_folder_allowed(int id, const char* action) const {
  if (!setup_.service.files_root.empty()) return Ok();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("table {} cannot be {}: no folder was allowed", id, action))
      .with_hint("pserver --allow-dir DIR lets it use files below a folder");
}

Status FleetServer::load(const ps::protocol::LoadTable& what, bool repeat) {
  MILLRACE_RETURN_IF_ERROR(check_folder_allowed(what.table, "loaded"));
  // trainers would mistake the loaded rows for changes of other trainers
  if (dynamic_cast<ps::SparseGeoTable*>(tables_->find(what.table)) != nullptr)
    return Unimplemented("loading geo table {} while the job runs is not implemented", what.table);
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                            io::path_below(setup_.service.files_root, what.folder));
  return repeat ? Ok() : load_table(what.table, folder);
}

StatusOr<ps::protocol::SavedFile> FleetServer::save(const ps::protocol::SaveTable& what,
                                                    bool repeat) {
  MILLRACE_RETURN_IF_ERROR(check_folder_allowed(what.table, "saved"));
  const std::string& root = setup_.service.files_root;
  const std::string file = ps::table_file(what.folder, what.table, setup_.server);
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::make_path_below(root, file));
  // a repeat reports the file that the first call wrote
  if (!repeat) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::path_below(root, what.folder));
    MILLRACE_RETURN_IF_ERROR(
        save_table(what.table, folder, what.mode, what.replaces ? Replace::kYes : Replace::kNo));
  }
  return io::file_facts(path, file);
}

Status FleetServer::serve(ps::Transport& transport, const std::string& endpoint,
                          const std::function<void(const std::string&)>& on_ready) {
  Op& op = *program_->root().op_vector().front();
  op.set_string("endpoint", endpoint);  // for messages
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Service> service,
                            ps::Service::create(*runtime_, op, scope_, setup_.service));
  if (metrics_ != nullptr) service->publish_to(*metrics_);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Listener> listener,
                            transport.listen(endpoint, *service));
  {
    const std::lock_guard lock(mutex_);
    running_ = service.get();
    if (stopped_) service->stop();
  }
  if (on_ready) on_ready(listener->endpoint());
  Status status = service->serve();
  const std::lock_guard lock(mutex_);
  running_ = nullptr;
  return status;
}

void FleetServer::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (running_ != nullptr) running_->stop();
}

}  // namespace millrace::fleet
