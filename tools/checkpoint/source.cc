#include "tools/checkpoint/source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "framework/base/errors.h"
#include "io/byte_source.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/tensor_file.h"
#include "io/model_folder.h"
#include "io/npz.h"
#include "io/original/original_checkpoint.h"
#include "jobs/checkpoint/servers.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

class CheckpointSource final : public jobs::TensorSource {
 public:
  explicit CheckpointSource(io::Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] std::vector<std::string> names() const override {
    return checkpoint_.manifest().value_names();
  }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    return checkpoint_.load(name);
  }
  // Read from the manifest.
  [[nodiscard]] StatusOr<io::TensorFileEntry> facts(const std::string& name) const override {
    const io::StoredArray* const array = checkpoint_.manifest().find_array(name);
    if (array == nullptr) return facts_of_tensor(name);
    io::TensorFileEntry entry;
    entry.name = name;
    entry.kind = VarKind::kLodTensorArray;
    for (size_t i = 0; i < array->written.size(); ++i) {
      entry.elements.emplace_back();
      if (!array->written[i]) continue;
      MILLRACE_ASSIGN_OR_RETURN(entry.elements.back(),
                                facts_of_tensor(io::array_element_name(name, i)));
    }
    return entry;
  }
  [[nodiscard]] uint64_t bytes() const override { return checkpoint_.manifest().bytes(); }
  [[nodiscard]] std::string form() const override { return "checkpoint"; }

 private:
  [[nodiscard]] StatusOr<io::TensorFileEntry> facts_of_tensor(const std::string& name) const {
    const io::StoredTensor* const tensor = checkpoint_.manifest().find(name);
    if (tensor == nullptr) return NotFound("no tensor '{}'", name).in_file(checkpoint_.folder());
    const bool rows = tensor->kind == io::StoredTensor::Kind::kSelectedRows;
    io::TensorFileEntry entry;
    entry.name = name;
    entry.kind = rows ? VarKind::kSelectedRows : VarKind::kLodTensor;
    entry.dtype = tensor->dtype;
    entry.dims = tensor->dims;
    entry.lod = tensor->lod;
    entry.height = tensor->height;
    return entry;
  }

  io::Checkpoint checkpoint_;
};

// One file with all tensors; a File finds them by name.
template <typename File>
class ArchiveSource final : public jobs::TensorSource {
 public:
  ArchiveSource(File file, const char* form) : file_(std::move(file)), form_(form) {}
  [[nodiscard]] std::vector<std::string> names() const override { return file_.names(); }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    return file_.load(name);
  }
  [[nodiscard]] uint64_t bytes() const override { return file_.bytes(); }
  [[nodiscard]] std::string form() const override { return form_; }

 private:
  File file_;
  const char* form_;
};

class OriginalSource final : public jobs::TensorSource {
 public:
  explicit OriginalSource(io::OriginalCheckpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& tensor : checkpoint_.tensors()) names.push_back(tensor.name);
    return names;
  }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    const auto found = std::ranges::find(checkpoint_.tensors(), name, &io::OriginalTensor::name);
    if (found == checkpoint_.tensors().end()) return NotFound("no tensor '{}'", name);
    Value value;
    MILLRACE_ASSIGN_OR_RETURN(value.as<Tensor>(), checkpoint_.load(*found));
    return value;
  }
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& tensor : checkpoint_.tensors()) {
      sum += static_cast<uint64_t>(io::Box::whole(tensor.dims).numel() * dtype_size(tensor.dtype));
    }
    return sum;
  }
  [[nodiscard]] std::string form() const override { return "original"; }

 private:
  io::OriginalCheckpoint checkpoint_;
};

class CombinedSource final : public jobs::TensorSource {
 public:
  CombinedSource(io::CombinedParams params, io::LoadOptions options)
      : params_(std::move(params)), options_(options) {}
  [[nodiscard]] std::vector<std::string> names() const override { return params_.names(); }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    return params_.load(name, options_);
  }
  [[nodiscard]] uint64_t bytes() const override { return params_.bytes(); }
  [[nodiscard]] std::string form() const override { return "fluid-combined"; }

 private:
  io::CombinedParams params_;
  io::LoadOptions options_;
};

class SeparateSource final : public jobs::TensorSource {
 public:
  SeparateSource(std::string folder, std::vector<io::ParamSpec> specs, io::LoadOptions options)
      : folder_(std::move(folder)), options_(options) {
    for (io::ParamSpec& spec : specs) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, spec] : specs_) names.push_back(name);
    return names;
  }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    const auto spec = specs_.find(name);
    if (spec == specs_.end()) return NotFound("no var '{}'", name).in_file(folder_);
    MILLRACE_ASSIGN_OR_RETURN(auto values, io::load_separate(folder_, spec->second, options_));
    return std::move(values.begin()->second);
  }
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t sum = 0;
    std::error_code error;
    for (const auto& [name, spec] : specs_) {
      const uintmax_t size = fs::file_size(folder_ + "/" + name, error);
      if (!error) sum += size;
    }
    return sum;
  }
  [[nodiscard]] std::string form() const override { return "fluid-separate"; }

 private:
  std::string folder_;
  std::map<std::string, io::ParamSpec> specs_;
  io::LoadOptions options_;
};

template <typename Source, typename... Args>
std::unique_ptr<jobs::TensorSource> make_source(Args&&... args) {
  return std::make_unique<Source>(std::forward<Args>(args)...);
}

// "checkpoint", "original" or "fluid-separate".
std::string form_of_folder(const CheckpointFlags& flags, const std::string& path) {
  if (has_manifest(flags, path)) return "checkpoint";
  const auto entries = list_steps(flags, path);
  if (entries.ok() && !entries->empty()) return "checkpoint";
  return io::has_original_metadata(path) ? "original" : "fluid-separate";
}

StatusOr<std::string> form_of_file(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource file, io::ByteSource::open(path));
  std::array<std::byte, 9> begin{};
  if (file.size() >= begin.size()) {
    MILLRACE_RETURN_IF_ERROR(file.read(0, begin).in_file(path));
    if (begin[0] == std::byte{'P'} && begin[1] == std::byte{'K'}) return std::string("npz");
    if (begin[8] == std::byte{'{'} || path.ends_with(".safetensors"))
      return std::string("safetensors");
  }
  return std::string(path.ends_with(".safetensors") ? "safetensors" : "fluid-combined");
}

// The variables of a folder with one file per variable: those of the program, or one per file.
StatusOr<std::vector<io::ParamSpec>> specs_of_folder(const Tool& tool, const CheckpointFlags& flags,
                                                     const std::string& path) {
  if (!flags.program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, flags.program));
    return io::persistables_of(*program);
  }
  std::vector<io::ParamSpec> specs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = fs::relative(it->path(), path).string();
    if (!it->is_regular_file() || name == "__model__" || name.ends_with(".pdmodel")) continue;
    specs.push_back({name, VarKind::kLodTensor, {}, {}});
  }
  if (error) return IoError("cannot list: {}", error.message()).in_file(path);
  std::ranges::sort(specs, {}, &io::ParamSpec::name);
  if (specs.empty()) return NotFound("the folder holds no files").in_file(path);
  return specs;
}

StatusOr<std::unique_ptr<jobs::TensorSource>> open_params(const Tool& tool,
                                                          const CheckpointFlags& flags,
                                                          const std::string& path,
                                                          const std::string& form) {
  const io::LoadOptions options{.threads = tool.common().threads};
  if (form == "fluid-separate") {
    MILLRACE_ASSIGN_OR_RETURN(const auto specs, specs_of_folder(tool, flags, path));
    return make_source<SeparateSource>(path, specs, options);
  }
  if (form == "npz") {
    MILLRACE_ASSIGN_OR_RETURN(auto file, io::NpzFile::open(path));
    return make_source<ArchiveSource<io::NpzFile>>(std::move(file), "npz");
  }
  if (flags.program.empty()) {
    return Status(StatusCode::kUsage, "a combined parameter file does not contain names")
        .in_file(path)
        .with_hint("give the program that it belongs to with --program");
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, flags.program));
  MILLRACE_ASSIGN_OR_RETURN(auto params,
                            io::CombinedParams::open(path, io::persistables_of(*program)));
  return make_source<CombinedSource>(std::move(params), options);
}

}  // namespace

StatusOr<std::unique_ptr<jobs::TensorSource>> open_source(const Tool& tool,
                                                          const CheckpointFlags& flags,
                                                          const std::string& path) {
  std::string form = flags.from;
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("no such file or folder").in_file(path);
  if (!flags.slices.empty() && fs::is_directory(path + "/server-0", error))
    return jobs::open_servers(path, flags.slices, snapshot_options(tool));
  if (form == "auto") {
    if (fs::is_directory(path, error)) {
      form = form_of_folder(flags, path);
    } else {
      MILLRACE_ASSIGN_OR_RETURN(form, form_of_file(path));
    }
  }
  if (form == "checkpoint") {
    MILLRACE_ASSIGN_OR_RETURN(const std::string folder, resolve_checkpoint(tool, flags, path));
    MILLRACE_ASSIGN_OR_RETURN(auto checkpoint,
                              io::Checkpoint::open(folder, load_options(tool, flags, folder)));
    return make_source<CheckpointSource>(std::move(checkpoint));
  }
  if (form == "original") {
    // Third-party files in a format whose usual reader executes code; read only on explicit
    // request.
    if (flags.command != "convert") {
      return Status(StatusCode::kUsage, "a distributed checkpoint of the original")
          .in_file(path)
          .with_hint("convert it with: checkpoint convert --to checkpoint");
    }
    MILLRACE_ASSIGN_OR_RETURN(auto checkpoint, io::OriginalCheckpoint::open(path, flags.unique_id));
    return make_source<OriginalSource>(std::move(checkpoint));
  }
  if (form == "safetensors") {
    MILLRACE_ASSIGN_OR_RETURN(auto file, io::TensorFile::open(path));
    return make_source<ArchiveSource<io::TensorFile>>(std::move(file), "safetensors");
  }
  return open_params(tool, flags, path, form);
}

}  // namespace millrace::tools
