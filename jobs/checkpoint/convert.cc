#include "jobs/checkpoint/convert.h"

#include <utility>

#include <fmt/format.h>

#include "io/checkpoint/arrays.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save_streams.h"
#include "io/npz.h"
#include "io/output_file.h"
#include "io/params_manifest.h"
#include "jobs/checkpoint/write_values.h"

namespace millrace::jobs {
namespace {

// Reads values and reports their bytes.
class ValueReader {
 public:
  ValueReader(const TensorSource& source, const WriteOptions& options)
      : source_(source), options_(options) {}
  [[nodiscard]] StatusOr<Value> operator()(const std::string& name) const {
    MILLRACE_RETURN_IF_ERROR(options_.proceed());
    StatusOr<Value> value = source_.load(name);
    if (value.ok()) options_.progress(io::tensor_bytes(*value));
    return value;
  }
  [[nodiscard]] StatusOr<io::TensorFileEntry> facts(const std::string& name) const {
    MILLRACE_RETURN_IF_ERROR(options_.proceed());
    return source_.facts(name);
  }

 private:
  const TensorSource& source_;
  const WriteOptions& options_;
};

using ValueNames = std::vector<std::string>;

StatusOr<std::vector<io::TensorFileEntry>> facts_of_values(const ValueNames& names,
                                                           const ValueReader& read) {
  std::vector<io::TensorFileEntry> entries;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(io::TensorFileEntry entry, read.facts(name));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Status write_npz_file(const TensorSource& source, const ValueNames& names,
                      const std::string& output, const WriteOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(io::OutputFile file, io::OutputFile::create(output, options.replace));
  const auto write = [&](std::span<const std::string_view> bytes) { return file.write(bytes); };
  MILLRACE_RETURN_IF_ERROR(stream_npz(source, names, write, options));
  return file.commit(options.sync);
}

Status write_checkpoint(const std::string& folder, const std::vector<io::TensorFileEntry>& entries,
                        const ValueReader& read, const WriteOptions& options) {
  io::CheckpointSaveOptions save;
  save.replace = options.replace;
  save.sync = options.sync;
  save.step = options.step;
  save.calls = options.calls;
  return io::save_values(entries, read, folder, save);
}

}  // namespace

Status stream_npz(const TensorSource& source, const ValueNames& names, const ByteSink& sink,
                  const WriteOptions& options) {
  const ValueReader read(source, options);
  io::NpzStream stream([&](std::span<const std::string_view> bytes) -> Status {
    MILLRACE_RETURN_IF_ERROR(options.proceed());
    return sink(bytes);
  });
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, read(name));
    MILLRACE_RETURN_IF_ERROR(stream.add(name, value));
  }
  return stream.finish();
}

Status convert_values(const TensorSource& source, const ValueNames& names, ValuesForm form,
                      const std::string& output, const WriteOptions& options) {
  const ValueReader read(source, options);
  if (form == ValuesForm::kNpz) return write_npz_file(source, names, output, options);
  if (form == ValuesForm::kFluidCombined) {
    MILLRACE_RETURN_IF_ERROR(write_combined(output, names, read, options.replace, options.sync));
    return io::write_file_manifest(output, names, options.sync);
  }
  if (form == ValuesForm::kFluidSeparate) {
    MILLRACE_RETURN_IF_ERROR(write_separate(output, names, read, options.replace, options.sync));
    return io::write_folder_manifest(output, names, {}, options.sync);
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<io::TensorFileEntry> entries,
                            facts_of_values(names, read));
  if (form == ValuesForm::kSafetensors)
    return io::write_tensor_file(output, entries, read, options.replace);
  return write_checkpoint(output, entries, read, options);
}

std::vector<std::string> converted_files(ValuesForm form, const std::string& output,
                                         const ValueNames& names) {
  if (form == ValuesForm::kCheckpoint) return {output + "/" + std::string(io::kManifestName)};
  if (form != ValuesForm::kFluidSeparate) return {output};
  ValueNames paths;
  for (const std::string& name : names) paths.push_back(fmt::format("{}/{}", output, name));
  return paths;
}

}  // namespace millrace::jobs
