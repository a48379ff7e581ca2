#include "io/params_manifest.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/byte_source.h"
#include "io/json.h"
#include "io/paths.h"

namespace millrace::io {
namespace params_manifest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "millrace.params";
constexpr int64_t kParamsManifestVersion = 1;
constexpr const char* kParamsManifestEnding = ".manifest.json";
constexpr int64_t kMaxBytes = int64_t{1} << 28U;

std::string last_component(const std::string& path) {
  return fs::path(path).filename().string();
}

Status missing(const char* name) {
  return InvalidData("member '{}' is missing or has the wrong type", name);
}

StatusOr<std::string> read_text(const JsonValue& object, const char* name) {
  const auto* const string = object.find_as<std::string>(name);
  if (string == nullptr) return missing(name);
  return *string;
}

// Reads size and checksum, which files and parts of tables both have.
template <typename Facts>
Status read_facts(const JsonValue& object, Facts& facts) {
  const JsonValue* const size = object.find("size");
  const auto bytes = size == nullptr ? std::nullopt : size->count();
  if (!bytes) return missing("size");
  facts.size = static_cast<uint64_t>(*bytes);
  MILLRACE_ASSIGN_OR_RETURN(const std::string digits, read_text(object, "xxh3_128"));
  const auto checksum = Checksum::parse(digits);
  if (!checksum)
    return InvalidData("expected a checksum of 32 digits, found {}", in_quotes(digits));
  facts.checksum = *checksum;
  return Ok();
}

StatusOr<const JsonItems*> read_list(const JsonValue& object, const char* name) {
  const auto* const items = object.find_as<JsonItems>(name);
  if (items == nullptr) return missing(name);
  return items;
}

StatusOr<ParamsManifest::File> read_file_entry(const JsonValue& object) {
  ParamsManifest::File file;
  MILLRACE_ASSIGN_OR_RETURN(file.name, read_text(object, "name"));
  MILLRACE_RETURN_IF_ERROR(read_facts(object, file));
  if (object.find("vars") == nullptr) return file;
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const vars, read_list(object, "vars"));
  for (const JsonValue& var : *vars) {
    const auto* const name = var.get_if<std::string>();
    if (name == nullptr) return missing("vars");
    file.vars.push_back(*name);
  }
  return file;
}

StatusOr<ParamsManifest::TablePart> read_table_part(const JsonValue& object) {
  ParamsManifest::TablePart part;
  MILLRACE_ASSIGN_OR_RETURN(part.table, read_text(object, "table"));
  MILLRACE_ASSIGN_OR_RETURN(part.endpoint, read_text(object, "endpoint"));
  MILLRACE_ASSIGN_OR_RETURN(part.file, read_text(object, "file"));
  MILLRACE_RETURN_IF_ERROR(read_facts(object, part));
  return part;
}

Status write_manifest(const std::string& target, const ParamsManifest& manifest, bool sync) {
  return write_file_atomically(params_manifest_path(target), params_manifest_text(manifest),
                               Replace::kYes, sync ? Flush::kYes : Flush::kNo);
}

// The manifest for a target; nullopt if there is none.
StatusOr<std::optional<ParamsManifest>> find_manifest(const std::string& target) {
  const std::string path = params_manifest_path(target);
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<ParamsManifest>();
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  StatusOr<ParamsManifest> manifest = parse_params_manifest(text);
  if (!manifest.ok()) return std::move(manifest).status().in_file(path);
  return std::optional(*std::move(manifest));
}

Status compare(const std::string& path, const std::string& target,
               const ParamsManifest::File& expected, CheckFiles how) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return Ok();  // loading the file will report the error
  const auto differs = [&](Status status) {
    return std::move(status).in_file(path).with_hint(fmt::format(
        "remove '{}' if the file was changed on purpose", params_manifest_path(target)));
  };
  if (size != expected.size) {
    return differs(
        InvalidData("expected {} bytes as its manifest says, found {}", expected.size, size));
  }
  if (how == CheckFiles::kSizes) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const ParamsManifest::File found, file_facts(path, expected.name));
  if (found.checksum == expected.checksum) return Ok();
  return differs(InvalidData("expected checksum {} as its manifest says, found {}",
                             expected.checksum.text(), found.checksum.text()));
}

}  // namespace
}  // namespace params_manifest

std::string params_manifest_path(std::string_view target) {
  while (target.size() > 1 && target.back() == '/') target.remove_suffix(1);
  return std::string(target) + params_manifest::kParamsManifestEnding;
}

std::string params_manifest_text(const ParamsManifest& manifest) {
  using namespace params_manifest;
  JsonWriter out(1);
  out.begin_object();
  out.key("schema")
      .begin_object()
      .member("name", kSchema)
      .member("version", kParamsManifestVersion);
  out.end_object().key("files").begin_array();
  for (const ParamsManifest::File& file : manifest.files) {
    out.begin_object().member("name", file.name).member("size", file.size);
    out.member("xxh3_128", file.checksum.text());
    if (!file.vars.empty()) {
      out.key("vars").begin_array();
      for (const std::string& var : file.vars) out.value(var);
      out.end_array();
    }
    out.end_object();
  }
  out.end_array().key("tables").begin_array();
  for (const ParamsManifest::TablePart& part : manifest.tables) {
    out.begin_object().member("table", part.table).member("endpoint", part.endpoint);
    out.member("file", part.file).member("size", part.size);
    out.member("xxh3_128", part.checksum.text()).end_object();
  }
  return out.end_array().end_object().take();
}

StatusOr<ParamsManifest> parse_params_manifest(std::string_view bytes) {
  using namespace params_manifest;
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue root, parse_json(bytes, {.max_depth = 6}));
  const JsonValue* const schema = root.find("schema");
  if (schema == nullptr) return missing("schema");
  MILLRACE_ASSIGN_OR_RETURN(const std::string name, read_text(*schema, "name"));
  const JsonValue* const version = schema->find("version");
  const auto number = version == nullptr ? std::nullopt : version->count();
  if (name != kSchema || !number)
    return InvalidData("expected schema {}, found {}", kSchema, in_quotes(name));
  if (*number != kParamsManifestVersion)
    return Unimplemented("manifest of version {}: this build reads {}", *number,
                         kParamsManifestVersion);
  ParamsManifest manifest;
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const files, read_list(root, "files"));
  for (const JsonValue& item : *files) {
    MILLRACE_ASSIGN_OR_RETURN(ParamsManifest::File file, read_file_entry(item));
    manifest.files.push_back(std::move(file));
  }
  std::ranges::sort(manifest.files, {}, &ParamsManifest::File::name);
  MILLRACE_ASSIGN_OR_RETURN(const JsonItems* const tables, read_list(root, "tables"));
  for (const JsonValue& item : *tables) {
    MILLRACE_ASSIGN_OR_RETURN(ParamsManifest::TablePart part, read_table_part(item));
    manifest.tables.push_back(std::move(part));
  }
  return manifest;
}

std::vector<std::string> names_of(llvm::ArrayRef<ParamSpec> specs) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : specs) names.push_back(spec.name);
  return names;
}

StatusOr<ParamsManifest::File> file_facts(const std::string& path, std::string name) {
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource source, ByteSource::open(path));
  ParamsManifest::File file;
  file.name = std::move(name);
  file.size = static_cast<uint64_t>(source.size());
  ChecksumStream stream;
  std::vector<std::byte> piece(std::min<uint64_t>(file.size, uint64_t{1} << 18U));
  for (uint64_t at = 0; at < file.size; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), file.size - at));
    MILLRACE_RETURN_IF_ERROR(source.read(at, part).in_file(path));
    stream.add(part);
  }
  file.checksum = stream.value();
  return file;
}

Status write_folder_manifest(const std::string& folder, llvm::ArrayRef<std::string> names,
                             std::vector<ParamsManifest::TablePart> tables, bool sync) {
  ParamsManifest manifest;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, path_below(folder, name));
    MILLRACE_ASSIGN_OR_RETURN(ParamsManifest::File file, file_facts(path, name));
    manifest.files.push_back(std::move(file));
  }
  std::ranges::sort(manifest.files, {}, &ParamsManifest::File::name);
  manifest.tables = std::move(tables);
  return params_manifest::write_manifest(folder, manifest, sync);
}

Status write_file_manifest(const std::string& path, llvm::ArrayRef<std::string> vars, bool sync) {
  using namespace params_manifest;
  ParamsManifest manifest;
  MILLRACE_ASSIGN_OR_RETURN(ParamsManifest::File file, file_facts(path, last_component(path)));
  file.vars = vars.vec();
  manifest.files.push_back(std::move(file));
  return write_manifest(path, manifest, sync);
}

void forget_manifests(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(params_manifest_path(path), error);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) std::filesystem::remove(params_manifest_path(folder), error);
}

Status check_folder(const std::string& folder, llvm::ArrayRef<std::string> names, CheckFiles how) {
  using namespace params_manifest;
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ParamsManifest> manifest, find_manifest(folder));
  if (!manifest) return Ok();
  for (const std::string& name : names) {
    const auto file =
        std::ranges::lower_bound(manifest->files, name, {}, &ParamsManifest::File::name);
    if (file == manifest->files.end() || file->name != name) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, path_below(folder, name));
    MILLRACE_RETURN_IF_ERROR(compare(path, folder, *file, how));
  }
  return Ok();
}

Status check_file(const std::string& path, llvm::ArrayRef<std::string> vars) {
  using namespace params_manifest;
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ParamsManifest> manifest, find_manifest(path));
  if (!manifest || manifest->files.empty()) return Ok();
  const ParamsManifest::File& file = manifest->files.front();
  const auto [expected, found] =
      std::mismatch(file.vars.begin(), file.vars.end(), vars.begin(), vars.end());
  if (expected != file.vars.end() || found != vars.end()) {
    const auto name = [](auto at, auto end) {
      return at == end ? std::string("nothing") : "'" + *at + "'";
    };
    return InvalidData("var {} of {}: expected {} as its manifest says, found {}",
                       expected - file.vars.begin() + 1, file.vars.size(),
                       name(expected, file.vars.end()), name(found, vars.end()))
        .in_file(path);
  }
  return compare(path, path, file, CheckFiles::kBytes);
}

}  // namespace millrace::io
