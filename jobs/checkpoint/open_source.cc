#include "jobs/checkpoint/open_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "io/byte_source.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/tensor_file.h"
#include "io/model_folder.h"
#include "io/npz.h"
#include "io/original/original_checkpoint.h"

namespace millrace::jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<std::string_view, ValuesForm> kForms[] = {
    {"auto", ValuesForm::kAuto},
    {"checkpoint", ValuesForm::kCheckpoint},
    {"safetensors", ValuesForm::kSafetensors},
    {"npz", ValuesForm::kNpz},
    {"fluid-combined", ValuesForm::kFluidCombined},
    {"fluid-separate", ValuesForm::kFluidSeparate},
    {"original", ValuesForm::kOriginal},
};

class CheckpointSource final : public TensorSource {
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
  [[nodiscard]] int64_t step() const override { return checkpoint_.manifest().step; }

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
class ArchiveSource final : public TensorSource {
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

class OriginalSource final : public TensorSource {
 public:
  explicit OriginalSource(io::OriginalCheckpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& tensor : checkpoint_.tensors()) names.push_back(tensor.name);
    std::ranges::sort(names);
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

class CombinedSource final : public TensorSource {
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

class SeparateSource final : public TensorSource {
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
std::unique_ptr<TensorSource> make_source(Args&&... args) {
  return std::make_unique<Source>(std::forward<Args>(args)...);
}

// The folders on other disks of SourceOptions::root and of paths in it; none of other paths.
std::vector<std::string> folders_beside(const SourceOptions& options, const std::string& path) {
  llvm::StringRef rest(path);
  const bool is_root = !options.root.empty() && rest.consume_front(options.root);
  const bool inside =
      is_root && (rest.empty() || rest.front() == '/' || options.root.back() == '/');
  return inside ? options.beside : std::vector<std::string>();
}

ValuesForm form_of_folder(const SourceOptions& options, const std::string& path) {
  if (has_manifest(options, path)) return ValuesForm::kCheckpoint;
  const auto entries = list_steps(options, path);
  if (entries.ok() && !entries->empty()) return ValuesForm::kCheckpoint;
  return io::has_original_metadata(path) ? ValuesForm::kOriginal : ValuesForm::kFluidSeparate;
}

StatusOr<ValuesForm> form_of_file(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource file, io::ByteSource::open(path));
  std::array<std::byte, 9> begin{};
  const bool named = path.ends_with(".safetensors");
  if (file.size() >= begin.size()) {
    MILLRACE_RETURN_IF_ERROR(file.read(0, begin).in_file(path));
    if (begin[0] == std::byte{'P'} && begin[1] == std::byte{'K'}) return ValuesForm::kNpz;
    if (begin[8] == std::byte{'{'} || named) return ValuesForm::kSafetensors;
  }
  return named ? ValuesForm::kSafetensors : ValuesForm::kFluidCombined;
}

StatusOr<std::vector<io::ParamSpec>> specs_of_program(const SourceOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(
      const auto program, read_program(options.program, {.max_bytes = options.max_program_bytes}));
  return io::persistables_of(*program);
}

// The variables of a folder with one file per variable: those of the program, or one per file.
StatusOr<std::vector<io::ParamSpec>> specs_of_folder(const SourceOptions& options,
                                                     const std::string& path) {
  if (!options.program.empty()) return specs_of_program(options);
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

StatusOr<std::unique_ptr<TensorSource>> open_combined(const SourceOptions& options,
                                                      const std::string& path) {
  if (options.program.empty()) {
    return Status(StatusCode::kUsage, "a combined parameter file does not contain names")
        .in_file(path)
        .with_hint("give the program that it belongs to with options.program");
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto specs, specs_of_program(options));
  MILLRACE_ASSIGN_OR_RETURN(auto params, io::CombinedParams::open(path, specs));
  return make_source<CombinedSource>(std::move(params),
                                     io::LoadOptions{.threads = options.threads});
}

StatusOr<std::unique_ptr<TensorSource>> open_original(const SourceOptions& options,
                                                      const std::string& path) {
  if (!options.allow_original) {
    return Status(StatusCode::kUsage, "a distributed checkpoint of the original")
        .in_file(path)
        .with_hint("set options.allow_original");
  }
  MILLRACE_ASSIGN_OR_RETURN(auto checkpoint, io::OriginalCheckpoint::open(path, options.unique_id));
  return make_source<OriginalSource>(std::move(checkpoint));
}

StatusOr<std::unique_ptr<TensorSource>> open_form(const SourceOptions& options,
                                                  const std::string& path, ValuesForm form) {
  switch (form) {
    case ValuesForm::kAuto:
      break;  // the caller has found the form
    case ValuesForm::kCheckpoint: {
      MILLRACE_ASSIGN_OR_RETURN(const std::string folder, resolve_checkpoint(options, path));
      MILLRACE_ASSIGN_OR_RETURN(auto checkpoint,
                                io::Checkpoint::open(folder, load_options(options, folder)));
      return make_source<CheckpointSource>(std::move(checkpoint));
    }
    case ValuesForm::kSafetensors: {
      MILLRACE_ASSIGN_OR_RETURN(auto file, io::TensorFile::open(path));
      return make_source<ArchiveSource<io::TensorFile>>(std::move(file), "safetensors");
    }
    case ValuesForm::kNpz: {
      MILLRACE_ASSIGN_OR_RETURN(auto file, io::NpzFile::open(path));
      return make_source<ArchiveSource<io::NpzFile>>(std::move(file), "npz");
    }
    case ValuesForm::kFluidCombined:
      return open_combined(options, path);
    case ValuesForm::kFluidSeparate: {
      MILLRACE_ASSIGN_OR_RETURN(const auto specs, specs_of_folder(options, path));
      return make_source<SeparateSource>(path, specs, io::LoadOptions{.threads = options.threads});
    }
    case ValuesForm::kOriginal:
      return open_original(options, path);
  }
  return Internal("the form of '{}' is unknown", path);
}

// The folder of one checkpoint, unless another step is wanted or it must verify and does not.
StatusOr<std::string> check_one(const SourceOptions& options, const std::string& folder) {
  if (options.step < 0 && !options.last_good) return folder;
  MILLRACE_ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                            io::Checkpoint::open(folder, load_options(options, folder)));
  if (options.last_good) {
    std::vector<Status> wrong = checkpoint.verify();
    if (!wrong.empty()) return std::move(wrong.front());
  }
  if (options.step < 0 || checkpoint.manifest().step == options.step) return folder;
  return NotFound("options.step: expected a checkpoint of step {}, found one of step {}",
                  options.step, checkpoint.manifest().step)
      .in_file(folder);
}

// An option, whether it is set, and the forms that read it.
struct FormUse {
  const char* option;
  bool is_set;
  std::string_view forms;
};

}  // namespace

Status check_read(const SourceOptions& options, llvm::ArrayRef<std::string> forms) {
  for (const FormUse& use :
       {FormUse{"options.step", options.step >= 0, "checkpoint, servers"},
        {"options.last_good", options.last_good, "checkpoint, servers"},
        {"options.slices", !options.slices.empty(), "servers"},
        {"options.program", !options.program.empty(), "fluid-combined, fluid-separate"},
        {"options.unique_id", options.unique_id >= 0, "original"},
        {"options.beside", !options.beside.empty(), "checkpoint"}}) {
    llvm::SmallVector<llvm::StringRef, 2> readers;
    llvm::StringRef(use.forms).split(readers, ", ");
    const auto reads = [&](llvm::StringRef form) { return llvm::is_contained(readers, form); };
    if (!use.is_set || llvm::any_of(forms, reads)) continue;
    return {StatusCode::kUsage, fmt::format("{} has no effect: it is for {}, found {}", use.option,
                                            use.forms, fmt::join(forms, ", "))};
  }
  return Ok();
}

std::optional<ValuesForm> values_form(std::string_view name) {
  for (const auto& [known, form] : kForms) {
    if (known == name) return form;
  }
  return std::nullopt;
}

std::string_view values_form_name(ValuesForm form) {
  return std::ranges::find(kForms, form, &std::pair<std::string_view, ValuesForm>::second)->first;
}

io::CheckpointLoadOptions load_options(const SourceOptions& options, const std::string& path) {
  return {
      .threads = options.threads, .calls = options.calls, .beside = folders_beside(options, path)};
}

SnapshotOptions snapshot_options(const SourceOptions& options) {
  return {options.threads, options.max_program_bytes, options.log, options.step};
}

bool has_manifest(const SourceOptions& options, const std::string& path) {
  std::vector<std::string> folders = folders_beside(options, path);
  folders.push_back(path);
  return std::ranges::any_of(folders, [](const std::string& folder) {
    std::error_code error;
    return fs::exists(folder + "/" + std::string(io::kManifestName), error);
  });
}

StatusOr<std::vector<io::CheckpointEntry>> list_steps(const SourceOptions& options,
                                                      const std::string& path) {
  return io::list_checkpoints(path, nullptr, folders_beside(options, path));
}

StatusOr<std::string> resolve_checkpoint(const SourceOptions& options, const std::string& path) {
  std::error_code error;
  if (has_manifest(options, path)) return check_one(options, path);
  if (!fs::is_directory(path, error)) return NotFound("no such folder").in_file(path);
  if (options.last_good) {
    MILLRACE_ASSIGN_OR_RETURN(
        const io::LastCheckpoint last,
        io::open_last_checkpoint(path, /*verify=*/true, load_options(options, path)));
    for (const Status& status : last.skipped)
      options.log(LogLevel::kWarning,
                  "skipped: " + status.location().to_string() + ": " + status.message());
    options.log(LogLevel::kInfo, "reads " + last.checkpoint.folder());
    return last.checkpoint.folder();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, list_steps(options, path));
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const bool wanted = options.step < 0 ? entry->complete : entry->step == options.step;
    if (wanted) return entry->folder;
  }
  if (options.step >= 0) return NotFound("no checkpoint of step {}", options.step).in_file(path);
  return NotFound("no checkpoint: there is no {} and no complete step-<n>", io::kManifestName)
      .in_file(path);
}

StatusOr<std::unique_ptr<TensorSource>> open_source(const SourceOptions& options,
                                                    const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("no such file or folder").in_file(path);
  if (!options.slices.empty() && fs::is_directory(path + "/server-0", error)) {
    if (options.from != ValuesForm::kAuto)
      return Status(StatusCode::kUsage, "options.from and options.slices: expected only one");
    return open_servers(path, options.slices, snapshot_options(options));
  }
  ValuesForm form = options.from;
  if (form == ValuesForm::kAuto && fs::is_directory(path, error)) {
    form = form_of_folder(options, path);
  } else if (form == ValuesForm::kAuto) {
    MILLRACE_ASSIGN_OR_RETURN(form, form_of_file(path));
  }
  return open_form(options, path, form);
}

}  // namespace millrace::jobs
