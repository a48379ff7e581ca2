#include "interchange/from_pir/load.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "framework/base/file.h"
#include "interchange/from_pir/source.h"
#include "io/byte_source.h"

namespace millrace::interchange {
namespace {

StatusOr<io::ParamValues> read_params(const PirFiles& files, const PirSource& source) {
  const std::vector<io::ParamSpec> specs = source.parameters();
  if (specs.empty()) return io::ParamValues();
  std::string path = files.params;
  if (path.empty()) path = std::filesystem::path(files.program).replace_extension(".pdiparams");
  MILLRACE_ASSIGN_OR_RETURN(const io::ByteSource bytes, io::ByteSource::open(path));
  return io::load_combined(bytes, specs, {.threads = files.threads});
}

}  // namespace

StatusOr<ImportedModel> load_pir(const PirFiles& files, const PirImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, read_file(files.program, files.max_bytes));
  StatusOr<PirSource> source = PirSource::read(bytes);
  if (!source.ok()) return std::move(source).status().in_file(files.program);
  MILLRACE_ASSIGN_OR_RETURN(io::ParamValues params, read_params(files, *source));
  StatusOr<ImportedModel> model = import_pir(*source, std::move(params), options);
  if (!model.ok()) return std::move(model).status().in_file(files.program);
  return model;
}

bool is_pir_file(const std::string& path) {
  std::array<char, 256> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), start.size());
  return pir::is_pir({start.data(), static_cast<size_t>(file.gcount())});
}

}  // namespace millrace::interchange
