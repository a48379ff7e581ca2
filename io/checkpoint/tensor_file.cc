#include "io/checkpoint/tensor_file.h"

#include <charconv>
#include <set>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/json.h"
#include "io/normalize_bools.h"
#include "io/output_file.h"

namespace millrace::io {
namespace {

constexpr const char* kLodKey = "lod:";
constexpr const char* kRowsKey = "rows:";
constexpr const char* kRowsEnding = ".rows";

Status of_var(Status status, const std::string& path, const std::string& name) {
  Location location = status.location();
  location.file = path;
  location.var = name;
  return std::move(status).at(std::move(location));
}

std::string lod_text(const Lod& lod) {
  JsonWriter out(0);
  out.begin_array();
  for (const LodLevel& level : lod.levels()) {
    out.begin_array();
    for (const int64_t offset : level) out.value(offset);
    out.end_array();
  }
  return out.end_array().take();
}

StatusOr<Lod> parse_lod(const std::string& text, int64_t rows) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue value, parse_json(text));
  const auto* const items = value.get_if<JsonItems>();
  if (items == nullptr) return InvalidData("the LoD is no list");
  std::vector<LodLevel> levels;
  for (const JsonValue& item : *items) {
    auto offsets = item.counts();
    if (!offsets) return InvalidData("a LoD level is no list of numbers");
    levels.push_back(*std::move(offsets));
  }
  Lod lod(std::move(levels));
  MILLRACE_RETURN_IF_ERROR(lod.check(rows));
  return lod;
}

// What the header holds, and whose bytes each entry is.
struct Plan {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::pair<std::string, bool>> owners;  // value and whether its rows
};

Plan plan_of(const std::vector<TensorFileEntry>& entries) {
  Plan plan;
  plan.metadata["format"] = "millrace";
  for (const TensorFileEntry& entry : entries) {
    plan.entries.push_back({entry.name, entry.dtype, entry.dims, 0, 0});
    plan.owners[entry.name] = {entry.name, false};
    if (!entry.lod.empty()) plan.metadata[kLodKey + entry.name] = lod_text(entry.lod);
    if (entry.kind != VarKind::kSelectedRows) continue;
    plan.metadata[kRowsKey + entry.name] = std::to_string(entry.height);
    const std::string rows = entry.name + kRowsEnding;
    plan.entries.push_back({rows, DType::kInt64, {entry.dims[0]}, 0, 0});
    plan.owners[rows] = {entry.name, true};
  }
  return plan;
}

Status write_entry(OutputFile& file, const SafetensorsEntry& entry, bool rows, const Value& value) {
  std::string_view bytes;
  const auto* const table = value.get_if<SelectedRows>();
  const auto* const tensor = table == nullptr ? value.get_if<Tensor>() : &table->value;
  if (table != nullptr && rows) {
    bytes = {reinterpret_cast<const char*>(table->rows.data()), table->rows.size() * 8};
  } else if (tensor != nullptr) {
    bytes = {reinterpret_cast<const char*>(tensor->raw()), static_cast<size_t>(tensor->bytes())};
  }
  if (bytes.size() != entry.end - entry.begin)
    return Internal("expected {} bytes, found {}", entry.end - entry.begin, bytes.size());
  return file.write({&bytes, 1});
}

}  // namespace

StatusOr<TensorFile> TensorFile::open(const std::string& path) {
  TensorFile opened;
  MILLRACE_ASSIGN_OR_RETURN(opened.file_, system_file_calls()->open(path));
  MILLRACE_ASSIGN_OR_RETURN(opened.header_, read_safetensors_header(*opened.file_));
  for (size_t i = 0; i < opened.header_.entries.size(); ++i)
    opened.entries_[opened.header_.entries[i].name] = i;
  for (const auto& [key, text] : opened.header_.metadata) {
    if (!key.starts_with(kRowsKey)) continue;
    const std::string name = key.substr(std::string_view(kRowsKey).size());
    const auto values = opened.entries_.find(name);
    const auto rows = opened.entries_.find(name + kRowsEnding);
    const bool there = values != opened.entries_.end() && rows != opened.entries_.end();
    if (!there) return of_var(InvalidData("selected rows without values or rows"), path, name);
    const SafetensorsEntry& numbers = opened.header_.entries[rows->second];
    const SafetensorsEntry& facts = opened.header_.entries[values->second];
    if (numbers.dtype != DType::kInt64 || numbers.dims.size() != 1 || facts.dims.empty() ||
        facts.dims[0] != numbers.dims[0])
      return of_var(InvalidData("the row numbers do not fit the values"), path, name);
  }
  return opened;
}

std::vector<std::string> TensorFile::names() const {
  std::set<std::string> names;
  for (const auto& [name, index] : entries_) names.insert(name);
  for (const auto& [key, text] : header_.metadata) {
    if (key.starts_with(kRowsKey))
      names.erase(key.substr(std::string_view(kRowsKey).size()) + kRowsEnding);
  }
  return {names.begin(), names.end()};
}

uint64_t TensorFile::bytes() const {
  return header_.entries.empty() ? 0 : header_.entries.back().end - header_.data_begin;
}

StatusOr<Tensor> TensorFile::read(const SafetensorsEntry& entry) const {
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(entry.dtype, entry.dims));
  MILLRACE_RETURN_IF_ERROR(
      file_->read(entry.begin, {tensor.raw(), static_cast<size_t>(tensor.bytes())}));
  normalize_bools(tensor);
  return tensor;
}

StatusOr<Value> TensorFile::load(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return of_var(NotFound("no such tensor"), file_->path(), name);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, read(header_.entries[found->second]));
  Value value;
  const auto height = header_.metadata.find(kRowsKey + name);
  if (height != header_.metadata.end()) {
    SelectedRows& table = value.as<SelectedRows>();
    const std::string& text = height->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), table.height);
    if (error != std::errc() || end != text.data() + text.size() || table.height < 0)
      return of_var(InvalidData("the height of the rows is no number"), file_->path(), name);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor rows,
                              read(header_.entries[entries_.find(name + kRowsEnding)->second]));
    const auto numbers = rows.values<int64_t>();
    table.rows.assign(numbers.begin(), numbers.end());
    for (const int64_t row : numbers) {
      if (row < 0 || (table.height > 0 && row >= table.height))
        return of_var(InvalidData("row {} of {}", row, table.height), file_->path(), name);
    }
    table.value = std::move(tensor);
    return value;
  }
  if (const auto lod = header_.metadata.find(kLodKey + name); lod != header_.metadata.end()) {
    StatusOr<Lod> parsed = parse_lod(lod->second, tensor.rank() == 0 ? 0 : tensor.dim(0));
    if (!parsed.ok()) return of_var(std::move(parsed).status(), file_->path(), name);
    tensor.set_lod(*std::move(parsed));
  }
  value.as<Tensor>() = std::move(tensor);
  return value;
}

StatusOr<TensorFileEntry> tensor_file_entry(const std::string& name, const Value& value) {
  TensorFileEntry entry;
  entry.name = name;
  entry.kind = value.kind();
  const auto* const rows = value.get_if<SelectedRows>();
  const auto* const tensor = rows == nullptr ? value.get_if<Tensor>() : &rows->value;
  if (tensor == nullptr) {
    Location location;
    location.var = name;
    return Unimplemented("safetensors files hold tensors and selected rows, found {}",
                         describe(value))
        .at(std::move(location));
  }
  entry.dtype = tensor->dtype();
  entry.dims.assign(tensor->dims().begin(), tensor->dims().end());
  if (rows != nullptr) {
    entry.height = rows->height;
  } else {
    entry.lod = tensor->lod();
  }
  return entry;
}

Status write_tensor_file(const std::string& path, const std::vector<TensorFileEntry>& entries,
                         const std::function<StatusOr<Value>(const std::string&)>& load,
                         Replace replace) {
  Plan plan = plan_of(entries);
  StatusOr<std::string> header = lay_out_safetensors(plan.entries, plan.metadata);
  if (!header.ok()) return std::move(header).status().in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, replace));
  const std::string_view piece = *header;
  MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  for (const SafetensorsEntry& entry : plan.entries) {
    const auto& [owner, rows] = plan.owners[entry.name];
    MILLRACE_ASSIGN_OR_RETURN(const Value value, load(owner));
    MILLRACE_RETURN_IF_ERROR(of_var(write_entry(file, entry, rows, value), path, owner));
  }
  return file.commit(true);
}

}  // namespace millrace::io
