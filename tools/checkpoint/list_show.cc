#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/folder.h"
#include "jobs/checkpoint/servers.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/common/program_options.h"
#include "tools/inspect/params.h"

namespace millrace::tools {
namespace {

// One line of `list`.
struct ListShowRow {
  io::CheckpointEntry entry;
  int64_t server = -1;  // the server that wrote the snapshot; -1: a checkpoint of a run
  std::string time;     // from the manifest; empty if there is none
  std::string wrong;    // why the manifest cannot be read
  int64_t ranks = 0;
  size_t tensors = 0;
  uint64_t bytes = 0;
};

std::string modification_time(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return utc_time(std::chrono::system_clock::from_time_t(facts.st_mtime));
}

ListShowRow row_of(const CheckpointFlags& flags, const io::CheckpointEntry& entry, int64_t server) {
  ListShowRow row;
  row.entry = entry;
  row.server = server;
  if (!entry.complete) return row;
  row.time = modification_time(entry.folder + "/" + std::string(io::kManifestName));
  const auto checkpoint =
      io::Checkpoint::open(entry.folder, jobs::load_options(flags.source, entry.folder));
  if (!checkpoint.ok()) {
    row.wrong = checkpoint.status().message();
    return row;
  }
  if (server >= 0) {
    const StatusOr<int64_t> applied = jobs::applied_steps(*checkpoint);
    if (!applied.ok()) row.wrong = applied.status().message();
    if (applied.ok()) row.entry.step = *applied;
  }
  row.ranks = checkpoint->manifest().world_size;
  row.tensors = checkpoint->manifest().value_names().size();
  row.bytes = checkpoint->manifest().bytes();
  return row;
}

std::string list_text(const std::vector<ListShowRow>& rows) {
  const bool servers = !rows.empty() && rows.front().server >= 0;
  const auto server_column = [&](const std::string& text) {
    return servers ? fmt::format("{:>6}  ", text) : std::string();
  };
  std::string out = server_column("server");
  out += fmt::format("{:>12}  {:24}  {:9}  {:>6}  {:>8}  {:>12}\n", "step", "time", "complete",
                     "ranks", "tensors", "bytes");
  for (const ListShowRow& row : rows) {
    const char* const state = !row.entry.complete ? "no" : row.wrong.empty() ? "yes" : "damaged";
    out += server_column(std::to_string(row.server));
    out += fmt::format("{:>12}  {:24}  {:9}  {:>6}  {:>8}  {:>12}\n", row.entry.step, row.time,
                       state, row.ranks, row.tensors, row.bytes);
    if (!row.wrong.empty()) out += fmt::format("{:>14}{}\n", "", printable(row.wrong));
  }
  return out;
}

std::string list_json(const std::vector<ListShowRow>& rows, const std::string& path) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoints").member("version", 1);
  out.end_object().member("folder", path).key("checkpoints").begin_array();
  for (const ListShowRow& row : rows) {
    out.begin_object();
    if (row.server >= 0) out.member("server", row.server);
    out.member("step", row.entry.step).member("folder", row.entry.folder);
    out.member("complete", row.entry.complete).member("readable", row.wrong.empty());
    if (!row.wrong.empty()) out.member("error", row.wrong);
    if (!row.time.empty()) out.member("time", row.time);
    out.member("ranks", row.ranks).member("tensors", static_cast<uint64_t>(row.tensors));
    out.member("bytes", row.bytes).end_object();
  }
  return out.end_array().end_object().take();
}

// ---- show

void write_dims(JsonWriter& out, const char* key, const Dims& dims) {
  out.key(key).begin_array().inline_array();
  for (const int64_t dim : dims) out.value(dim);
  out.end_array();
}

std::string dims_text(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string parts_text(const io::Manifest& manifest, const io::StoredTensor& tensor) {
  std::string out;
  for (const io::StoredChunk& chunk : tensor.chunks) {
    out += fmt::format("  slice at {} of shape {}: bytes {} to {} of {}\n",
                       dims_text(chunk.box.offset), dims_text(chunk.box.shape), chunk.data.begin,
                       chunk.data.end,
                       printable(manifest.files[static_cast<size_t>(chunk.data.file)].name));
  }
  return out;
}

std::string value_text(const io::Manifest& manifest, const std::string& name,
                       const std::vector<jobs::ParamFacts>& facts) {
  std::string out = params_text(facts);
  if (const io::StoredTensor* const tensor = manifest.find(name))
    return out + parts_text(manifest, *tensor);
  const io::StoredArray* const array = manifest.find_array(name);
  for (size_t i = 0; array != nullptr && i < array->written.size(); ++i) {
    if (array->written[i]) {
      out += parts_text(manifest, *manifest.find(io::array_element_name(name, i)));
    } else {
      out += fmt::format("  element {} was never written\n", i);
    }
  }
  return out;
}

void write_facts(JsonWriter& out, const jobs::ParamFacts& facts) {
  out.begin_object().member("name", facts.name).member("dtype", dtype_name(facts.dtype));
  write_dims(out, "dims", facts.dims);
  if (!facts.lod.empty()) out.member("lod", facts.lod);
  out.member("bytes", facts.bytes);
  if (facts.has_range)
    out.member("min", facts.min).member("max", facts.max).member("mean", facts.mean);
  out.member("nan", facts.nan);
}

void write_slices(JsonWriter& out, const std::vector<jobs::TensorSource::Slice>& slices) {
  out.key("slices").begin_array();
  for (const jobs::TensorSource::Slice& slice : slices) {
    out.begin_object().member("server", static_cast<uint64_t>(slice.server));
    out.member("name", slice.name).member("first", slice.first).member("count", slice.count);
    out.end_object();
  }
  out.end_array();
}

std::string slices_text(const std::vector<jobs::TensorSource::Slice>& slices) {
  std::string out;
  for (const jobs::TensorSource::Slice& slice : slices) {
    out += fmt::format("  {} elements starting at {}: {} of server {}\n", slice.count, slice.first,
                       printable(slice.name), slice.server);
  }
  return out;
}

std::string show_json(const std::string& path, const std::vector<jobs::ParamFacts>& facts,
                      const io::Manifest* manifest, const jobs::TensorSource& source) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoint").member("version", 1);
  out.end_object().member("path", path);
  if (manifest != nullptr) {
    out.member("step", manifest->step).member("ranks", static_cast<int64_t>(manifest->world_size));
    out.key("user").begin_object();
    for (const auto& [name, text] : manifest->user) out.member(name, text);
    out.end_object().key("records").begin_array();
    for (const io::StoredRecord& record : manifest->records) {
      out.begin_object().member("name", record.name);
      out.member("rank", static_cast<int64_t>(record.rank));
      out.member("bytes", record.data.size()).end_object();
    }
    out.end_array();
  }
  out.key("tensors").begin_array();
  for (const jobs::ParamFacts& fact : facts) {
    write_facts(out, fact);
    const io::StoredTensor* const tensor =
        manifest == nullptr ? nullptr : manifest->find(fact.name);
    if (tensor != nullptr) {
      out.key("parts").begin_array();
      for (const io::StoredChunk& chunk : tensor->chunks) {
        out.begin_object();
        write_dims(out, "offset", chunk.box.offset);
        write_dims(out, "shape", chunk.box.shape);
        out.member("file", manifest->files[static_cast<size_t>(chunk.data.file)].name);
        out.member("begin", chunk.data.begin).member("end", chunk.data.end).end_object();
      }
      out.end_array();
    }
    if (source.form() == "servers") write_slices(out, source.slices(fact.name));
    out.end_object();
  }
  return out.end_array().end_object().take();
}

std::string show_head(const io::Manifest& manifest) {
  std::string out =
      fmt::format("step {}, {} rank{}, {} file{}, {}\n", manifest.step, manifest.world_size,
                  manifest.world_size == 1 ? "" : "s", manifest.files.size(),
                  manifest.files.size() == 1 ? "" : "s", byte_text(manifest.bytes()));
  for (const auto& [name, text] : manifest.user)
    out += fmt::format("note {}: {}\n", printable(name), printable(text));
  for (const io::StoredRecord& record : manifest.records) {
    out += fmt::format("record {} of rank {}: {} bytes\n", printable(record.name), record.rank,
                       record.data.size());
  }
  return out;
}

}  // namespace

StatusOr<int> checkpoint_list(Tool& tool, const CheckpointFlags& flags) {
  const std::string& path = flags.paths[0];
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return NotFound("no such folder").in_file(path);
  std::vector<ListShowRow> rows;
  const std::vector<std::string> servers = jobs::server_folders(path);
  for (size_t i = 0; i < std::max<size_t>(servers.size(), 1); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const auto entries,
                              jobs::list_steps(flags.source, servers.empty() ? path : servers[i]));
    for (const io::CheckpointEntry& entry : entries) {
      rows.push_back(row_of(flags, entry, servers.empty() ? -1 : static_cast<int64_t>(i)));
    }
  }
  MILLRACE_RETURN_IF_ERROR(
      tool.write_output(tool.common().json ? list_json(rows, path) : list_text(rows)));
  return kDone;
}

StatusOr<int> checkpoint_show(Tool& tool, const CheckpointFlags& flags) {
  if (flags.paths.size() > 1 && !flags.vars.empty())
    return Status(StatusCode::kUsage, "show: expected TENSOR or --vars, found both");
  MILLRACE_ASSIGN_OR_RETURN(const auto source, jobs::open_source(flags.source, flags.paths[0]));
  MILLRACE_RETURN_IF_ERROR(jobs::check_read(flags.source, source->form()));
  std::optional<io::Checkpoint> checkpoint;
  if (source->form() == "checkpoint") {
    MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                              jobs::resolve_checkpoint(flags.source, flags.paths[0]));
    MILLRACE_ASSIGN_OR_RETURN(
        checkpoint, io::Checkpoint::open(folder, jobs::load_options(flags.source, folder)));
  }
  const auto wanted = name_globs(flags.vars);
  std::vector<jobs::ParamFacts> facts;
  {
    ByteProgress progress = progress_of(tool, flags, "show", source->bytes());
    for (const std::string& name : source->names()) {
      if (flags.paths.size() > 1 ? name != flags.paths[1] : wanted && !wanted(name)) continue;
      MILLRACE_RETURN_IF_ERROR(flags.source.proceed());
      MILLRACE_ASSIGN_OR_RETURN(const Value value, source->load(name));
      const size_t before = facts.size();
      jobs::add_param_facts(name, value, facts);
      for (size_t i = before; i < facts.size(); ++i)
        progress.add(static_cast<uint64_t>(facts[i].bytes));
    }
  }
  const std::vector<std::string> names = source->names();
  if (flags.paths.size() > 1 && !std::ranges::binary_search(names, flags.paths[1])) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string nearest = nearest_name(flags.paths[1], views);
    Status status = NotFound("no tensor {}", in_quotes(flags.paths[1])).in_file(flags.paths[0]);
    return nearest.empty()
               ? std::move(status)
               : std::move(status).with_hint(fmt::format("did you mean '{}'?", nearest));
  }
  if (wanted && facts.empty())
    return NotFound("no variable matches --vars {}", in_quotes(flags.vars)).in_file(flags.paths[0]);
  const io::Manifest* const manifest = checkpoint ? &checkpoint->manifest() : nullptr;
  std::string text;
  if (tool.common().json) {
    text = show_json(flags.paths[0], facts, manifest, *source);
  } else if (flags.paths.size() > 1 && manifest != nullptr) {
    text = value_text(*manifest, flags.paths[1], facts);
  } else if (flags.paths.size() > 1) {
    text = params_text(facts) + slices_text(source->slices(flags.paths[1]));
  } else {
    text = (manifest == nullptr ? std::string() : show_head(*manifest)) + params_text(facts);
  }
  MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  return kDone;
}

}  // namespace millrace::tools
