#include "tools/checkpoint/source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "framework/base/errors.h"
#include "io/byte_source.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/tensor_file.h"
#include "io/model_folder.h"
#include "io/npz.h"
#include "io/original/original_checkpoint.h"
#include "tools/checkpoint/servers.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(io::Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& tensor : checkpoint_.manifest().tensors) names.push_back(tensor.name);
    return names;
  }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    return checkpoint_.load(name);
  }
  [[nodiscard]] uint64_t bytes() const override { return checkpoint_.manifest().bytes(); }
  [[nodiscard]] std::string form() const override { return "checkpoint"; }

 private:
  io::Checkpoint checkpoint_;
};

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(io::TensorFile file) : file_(std::move(file)) {}
  [[nodiscard]] std::vector<std::string> names() const override { return file_.names(); }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    return file_.load(name);
  }
  [[nodiscard]] uint64_t bytes() const override { return file_.bytes(); }
  [[nodiscard]] std::string form() const override { return "safetensors"; }

 private:
  io::TensorFile file_;
};

class OriginalSource final : public TensorSource {
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

// Values that were read at once.
class ValuesSource final : public TensorSource {
 public:
  ValuesSource(io::ParamValues values, std::string form)
      : values_(std::move(values)), form_(std::move(form)) {}
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, value] : values_) names.push_back(name);
    return names;
  }
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const override {
    const auto found = values_.find(name);
    if (found == values_.end()) return NotFound("no var '{}'", name);
    return clone(found->second);
  }
  [[nodiscard]] uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& [name, value] : values_) {
      if (const auto* const tensor = value.get_if<Tensor>())
        sum += static_cast<uint64_t>(tensor->bytes());
      if (const auto* const rows = value.get_if<SelectedRows>())
        sum += static_cast<uint64_t>(rows->value.bytes());
    }
    return sum;
  }
  [[nodiscard]] std::string form() const override { return form_; }

 private:
  io::ParamValues values_;
  std::string form_;
};

template <typename Source, typename... Args>
std::unique_ptr<TensorSource> make_source(Args&&... args) {
  return std::make_unique<Source>(std::forward<Args>(args)...);
}

// "checkpoint", "original" or "fluid-separate".
std::string form_of_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path + "/" + std::string(io::kManifestName), error)) return "checkpoint";
  const auto entries = io::list_checkpoints(path);
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

// The vars of a folder of one file a var: those of the program, else every file.
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

StatusOr<std::unique_ptr<TensorSource>> open_params(const Tool& tool, const CheckpointFlags& flags,
                                                    const std::string& path,
                                                    const std::string& form) {
  const io::LoadOptions options{.threads = tool.common().threads};
  if (form == "fluid-separate") {
    MILLRACE_ASSIGN_OR_RETURN(const auto specs, specs_of_folder(tool, flags, path));
    MILLRACE_ASSIGN_OR_RETURN(auto values, io::load_separate(path, specs, options));
    return make_source<ValuesSource>(std::move(values), form);
  }
  if (form == "npz") {
    MILLRACE_ASSIGN_OR_RETURN(auto values, io::read_values(path));
    return make_source<ValuesSource>(std::move(values), form);
  }
  if (flags.program.empty()) {
    return Status(StatusCode::kUsage, "a combined parameter file holds no names")
        .in_file(path)
        .with_hint("--program says which program it belongs to");
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, flags.program));
  MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource file, io::ByteSource::open(path));
  MILLRACE_ASSIGN_OR_RETURN(auto values,
                            io::load_combined(file, io::persistables_of(*program), options));
  return make_source<ValuesSource>(std::move(values), form);
}

}  // namespace

TensorSource::~TensorSource() = default;

std::vector<TensorSource::Slice> TensorSource::slices(const std::string& /*name*/) const {
  return {};
}

StatusOr<std::unique_ptr<TensorSource>> open_source(const Tool& tool, const CheckpointFlags& flags,
                                                    const std::string& path) {
  std::string form = flags.from;
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("no such file or folder").in_file(path);
  if (!flags.slices.empty() && fs::is_directory(path + "/server-0", error))
    return open_servers(tool, path, flags.slices);
  if (form == "auto") {
    if (fs::is_directory(path, error)) {
      form = form_of_folder(path);
    } else {
      MILLRACE_ASSIGN_OR_RETURN(form, form_of_file(path));
    }
  }
  if (form == "checkpoint") {
    MILLRACE_ASSIGN_OR_RETURN(const std::string folder, resolve_checkpoint(tool, flags, path));
    MILLRACE_ASSIGN_OR_RETURN(auto checkpoint,
                              io::Checkpoint::open(folder, {.threads = tool.common().threads}));
    return make_source<CheckpointSource>(std::move(checkpoint));
  }
  if (form == "original") {
    // Files from outside in a format that others execute: only where somebody asks for it.
    if (flags.command != "convert") {
      return Status(StatusCode::kUsage, "a distributed checkpoint of the original")
          .in_file(path)
          .with_hint("checkpoint convert --to checkpoint makes one that all commands read");
    }
    MILLRACE_ASSIGN_OR_RETURN(auto checkpoint, io::OriginalCheckpoint::open(path, flags.unique_id));
    return make_source<OriginalSource>(std::move(checkpoint));
  }
  if (form == "safetensors") {
    MILLRACE_ASSIGN_OR_RETURN(auto file, io::TensorFile::open(path));
    return make_source<SafetensorsSource>(std::move(file));
  }
  return open_params(tool, flags, path, form);
}

}  // namespace millrace::tools
