#include "io/checkpoint/tensor_file.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/of_var.h"
#include "framework/base/text.h"
#include "io/checkpoint/arrays.h"
#include "io/json.h"
#include "io/normalize_bools.h"
#include "io/output_file.h"

namespace millrace::io {
namespace tensor_file {
namespace {

constexpr const char* kLodKey = "lod:";
constexpr const char* kRowsKey = "rows:";
constexpr const char* kRowsEnding = ".rows";
constexpr const char* kDtypeKey = "dtype:";
constexpr const char* kArrayKey = "array:";

Status with_var_name(Status status, const std::string& path, const std::string& name) {
  return of_var(std::move(status), name).in_file(path);
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
  if (items == nullptr) return InvalidData("the LoD is not a list");
  std::vector<LodLevel> levels;
  for (const JsonValue& item : *items) {
    auto offsets = item.counts();
    if (!offsets) return InvalidData("a LoD level is not a list of numbers");
    levels.push_back(*std::move(offsets));
  }
  Lod lod(std::move(levels));
  MILLRACE_RETURN_IF_ERROR(lod.check(rows));
  return lod;
}

// The value that an entry belongs to.
struct Owner {
  std::string value;
  bool rows = false;     // true: the row numbers of selected rows
  int64_t element = -1;  // index of the element of an array
};

// The content of the header.
struct Plan {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::map<std::string, Owner> owners;  // by entry name

  void add(const TensorFileEntry& entry, Owner owner) {
    SafetensorsEntry stored = stored_form({entry.name, entry.dtype, entry.dims, 0, 0});
    if (stored.dtype != entry.dtype) metadata[kDtypeKey + entry.name] = dtype_name(entry.dtype);
    if (!entry.lod.empty()) metadata[kLodKey + entry.name] = lod_text(entry.lod);
    entries.push_back(std::move(stored));
    owners[entry.name] = std::move(owner);
  }
};

Plan plan_of(const std::vector<TensorFileEntry>& entries) {
  Plan plan;
  plan.metadata["format"] = "millrace";
  for (const TensorFileEntry& entry : entries) {
    if (entry.kind == VarKind::kLodTensorArray) {
      plan.metadata[kArrayKey + entry.name] = std::to_string(entry.elements.size());
      for (size_t i = 0; i < entry.elements.size(); ++i) {
        const TensorFileEntry& element = entry.elements[i];
        if (!element.name.empty()) plan.add(element, {entry.name, false, static_cast<int64_t>(i)});
      }
      continue;
    }
    plan.add(entry, {entry.name});
    if (entry.kind != VarKind::kSelectedRows) continue;
    plan.metadata[kRowsKey + entry.name] = std::to_string(entry.height);
    const std::string rows = entry.name + kRowsEnding;
    plan.entries.push_back({rows, DType::kInt64, {entry.dims[0]}, 0, 0});
    plan.owners[rows] = {entry.name, true};
  }
  return plan;
}

Status write_entry(OutputFile& file, const SafetensorsEntry& entry, const Owner& owner,
                   const Value& value) {
  std::string_view bytes;
  const auto* const table = value.get_if<SelectedRows>();
  const auto* tensor = table == nullptr ? value.get_if<Tensor>() : &table->value;
  if (const auto* const array = value.get_if<TensorArray>();
      array != nullptr && owner.element >= 0 && owner.element < static_cast<int64_t>(array->size()))
    tensor = &(*array)[static_cast<size_t>(owner.element)];
  if (table != nullptr && owner.rows) {
    bytes = {reinterpret_cast<const char*>(table->rows.data()), table->rows.size() * 8};
  } else if (tensor != nullptr) {
    bytes = {reinterpret_cast<const char*>(tensor->raw()), static_cast<size_t>(tensor->bytes())};
  }
  if (bytes.size() != entry.end - entry.begin)
    return Internal("expected {} bytes, found {}", entry.end - entry.begin, bytes.size());
  return file.write({&bytes, 1});
}

std::optional<size_t> length_of(const std::string& text) {
  size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good ? std::optional(length) : std::nullopt;
}

}  // namespace
}  // namespace tensor_file

StatusOr<TensorFile> TensorFile::open(const std::string& path) {
  TensorFile opened;
  MILLRACE_ASSIGN_OR_RETURN(opened.file_, system_file_calls()->open(path));
  MILLRACE_ASSIGN_OR_RETURN(opened.header_, read_safetensors_header(*opened.file_));
  for (size_t i = 0; i < opened.header_.entries.size(); ++i)
    opened.entries_[opened.header_.entries[i].name] = i;
  MILLRACE_RETURN_IF_ERROR(opened.read_dtypes(path));
  MILLRACE_RETURN_IF_ERROR(opened.check_rows(path));
  MILLRACE_RETURN_IF_ERROR(opened.check_arrays(path));
  return opened;
}

const SafetensorsEntry* TensorFile::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &header_.entries[found->second];
}

// Restores the original dtype of entries that stored_form() has changed.
Status TensorFile::read_dtypes(const std::string& path) {
  using namespace tensor_file;
  for (const auto& [key, text] : header_.metadata) {
    if (!key.starts_with(kDtypeKey)) continue;
    const std::string name = key.substr(std::string_view(kDtypeKey).size());
    const auto place = entries_.find(name);
    const auto dtype = parse_dtype(text);
    if (place == entries_.end() || !dtype) {
      return with_var_name(
          InvalidData("element type {}: expected a known type, for a tensor of the file",
                      in_quotes(text)),
          path, name);
    }
    SafetensorsEntry& entry = header_.entries[place->second];
    SafetensorsEntry own = entry;
    own.dtype = *dtype;
    if (!own.dims.empty()) own.dims.pop_back();
    const SafetensorsEntry stored = stored_form(own);
    if (stored.dtype != entry.dtype || stored.dims != entry.dims || own.dtype == entry.dtype) {
      return with_var_name(
          InvalidData("element type {} does not fit {} of shape [{}]", dtype_name(*dtype),
                      dtype_name(entry.dtype), fmt::join(entry.dims, ", ")),
          path, name);
    }
    entry = own;
  }
  return Ok();
}

Status TensorFile::check_rows(const std::string& path) const {
  using namespace tensor_file;
  for (const auto& [key, text] : header_.metadata) {
    if (!key.starts_with(kRowsKey)) continue;
    const std::string name = key.substr(std::string_view(kRowsKey).size());
    const SafetensorsEntry* const values = find(name);
    const SafetensorsEntry* const rows = find(name + kRowsEnding);
    if (values == nullptr || rows == nullptr)
      return with_var_name(InvalidData("selected rows without values or row numbers"), path, name);
    if (rows->dtype != DType::kInt64 || rows->dims.size() != 1 || values->dims.empty() ||
        values->dims[0] != rows->dims[0])
      return with_var_name(InvalidData("the row numbers do not fit the values"), path, name);
  }
  return Ok();
}

// Missing elements were never written. The limit on missing elements bounds the memory for a false
// length.
Status TensorFile::check_arrays(const std::string& path) {
  using namespace tensor_file;
  constexpr size_t kMostMissing = 65536;
  for (const auto& [key, text] : header_.metadata) {
    if (!key.starts_with(kArrayKey)) continue;
    const std::string name = key.substr(std::string_view(kArrayKey).size());
    const std::optional<size_t> length = length_of(text);
    if (!length || *length > entries_.size() + kMostMissing || find(name) != nullptr) {
      return with_var_name(
          InvalidData(
              "array of {} elements: expected a length that is plausible for the {} tensors of "
              "the file, and no tensor of that name",
              in_quotes(text), entries_.size()),
          path, name);
    }
    arrays_[name] = *length;
  }
  return Ok();
}

std::vector<std::string> TensorFile::names() const {
  using namespace tensor_file;
  std::set<std::string> names;
  for (const auto& [name, index] : entries_) names.insert(name);
  for (const auto& [key, text] : header_.metadata) {
    if (key.starts_with(kRowsKey))
      names.erase(key.substr(std::string_view(kRowsKey).size()) + kRowsEnding);
  }
  for (const auto& [name, length] : arrays_) {
    for (size_t i = 0; i < length; ++i) names.erase(array_element_name(name, i));
  }
  for (const auto& [name, length] : arrays_) names.insert(name);
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

StatusOr<SelectedRows> TensorFile::load_rows(const std::string& name,
                                             const std::string& height) const {
  using namespace tensor_file;
  SelectedRows table;
  const auto [end, error] =
      std::from_chars(height.data(), height.data() + height.size(), table.height);
  if (error != std::errc() || end != height.data() + height.size() || table.height < 0) {
    return with_var_name(
        InvalidData("height {} of the selected rows is not a number", in_quotes(height)),
        file_->path(), name);
  }
  MILLRACE_ASSIGN_OR_RETURN(const Tensor rows, read(*find(name + kRowsEnding)));
  const auto numbers = rows.values<int64_t>();
  table.rows.assign(numbers.begin(), numbers.end());
  for (const int64_t row : numbers) {
    if (row < 0 || (table.height > 0 && row >= table.height)) {
      return with_var_name(InvalidData("row {}: expected 0 to {}", row, table.height - 1),
                           file_->path(), name);
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(table.value, read(*find(name)));
  return table;
}

StatusOr<Tensor> TensorFile::load_tensor(const std::string& name) const {
  using namespace tensor_file;
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, read(*find(name)));
  if (const auto lod = header_.metadata.find(kLodKey + name); lod != header_.metadata.end()) {
    StatusOr<Lod> parsed = parse_lod(lod->second, tensor.rank() == 0 ? 0 : tensor.dim(0));
    if (!parsed.ok()) return with_var_name(std::move(parsed).status(), file_->path(), name);
    tensor.set_lod(*std::move(parsed));
  }
  return tensor;
}

StatusOr<Value> TensorFile::load(const std::string& name) const {
  using namespace tensor_file;
  Value value;
  if (const auto array = arrays_.find(name); array != arrays_.end()) {
    TensorArray& elements = value.as<TensorArray>();
    elements.resize(array->second);
    for (size_t i = 0; i < elements.size(); ++i) {
      const std::string element = array_element_name(name, i);
      if (find(element) == nullptr) continue;
      MILLRACE_ASSIGN_OR_RETURN(elements[i], load_tensor(element));
    }
    return value;
  }
  if (find(name) == nullptr) return with_var_name(NotFound("no such tensor"), file_->path(), name);
  if (const auto rows = header_.metadata.find(kRowsKey + name); rows != header_.metadata.end()) {
    MILLRACE_ASSIGN_OR_RETURN(value.as<SelectedRows>(), load_rows(name, rows->second));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(value.as<Tensor>(), load_tensor(name));
  }
  return value;
}

StatusOr<TensorFileEntry> tensor_file_entry(const std::string& name, const Value& value) {
  TensorFileEntry entry;
  entry.name = name;
  entry.kind = value.kind();
  const auto take = [](const Tensor& tensor, TensorFileEntry& to) {
    to.dtype = tensor.dtype();
    to.dims.assign(tensor.dims().begin(), tensor.dims().end());
    to.lod = tensor.lod();
  };
  if (const auto* const tensor = value.get_if<Tensor>()) {
    take(*tensor, entry);
    return entry;
  }
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    take(rows->value, entry);
    entry.lod = {};
    entry.height = rows->height;
    return entry;
  }
  if (const auto* const array = value.get_if<TensorArray>()) {
    for (size_t i = 0; i < array->size(); ++i) {
      TensorFileEntry& element = entry.elements.emplace_back();
      if (!(*array)[i].initialized()) continue;
      element.name = array_element_name(name, i);
      take((*array)[i], element);
    }
    return entry;
  }
  Location location;
  location.var = name;
  return Unimplemented(
             "safetensors files hold dense tensors, selected rows and tensor arrays, found {}",
             describe(value))
      .at(std::move(location));
}

Status write_tensor_file(const std::string& path, const std::vector<TensorFileEntry>& entries,
                         const std::function<StatusOr<Value>(const std::string&)>& load,
                         Replace replace) {
  using namespace tensor_file;
  Plan plan = plan_of(entries);
  StatusOr<std::string> header = lay_out_safetensors(plan.entries, plan.metadata);
  if (!header.ok()) return std::move(header).status().in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, replace));
  const std::string_view piece = *header;
  MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  Value value;
  std::string held;  // name of the value; elements of an array are mostly consecutive
  for (const SafetensorsEntry& entry : plan.entries) {
    const Owner& owner = plan.owners[entry.name];
    if (held != owner.value) {
      value.clear();
      MILLRACE_ASSIGN_OR_RETURN(value, load(owner.value));
      held = owner.value;
    }
    MILLRACE_RETURN_IF_ERROR(
        with_var_name(write_entry(file, entry, owner, value), path, entry.name));
  }
  return file.commit(/*sync=*/true);
}

}  // namespace millrace::io
