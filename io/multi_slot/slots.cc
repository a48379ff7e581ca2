#include "io/multi_slot/slots.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "io/check_json.h"

namespace millrace::io {
namespace {

using nlohmann::json;

constexpr size_t kMaxColumns = size_t{1} << 20U;

struct HashName {
  std::string_view name;
  CellHash hash;
};

constexpr HashName kHashNames[] = {
    {"none", CellHash::kNone},   {"hexadecimal", CellHash::kHexadecimal},
    {"xxh64", CellHash::kXxh64}, {"fnv1a", CellHash::kFnv1a},
    {"crc32", CellHash::kCrc32}, {"murmur3", CellHash::kMurmur3}};

Status wrong(const Slot& slot, std::string_view key, std::string_view expected, const json& found) {
  return InvalidData("slot '{}': field '{}': expected {}, found {}", slot.name, key, expected,
                     found.dump());
}

bool parse_number(std::string_view text, size_t& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc() && end == text.data() + text.size();
}

// 14, "14" or "1:13", ends included.
Status read_columns(const json& object, Slot& slot) {
  const auto it = object.is_object() ? object.find("columns") : object.end();
  if (!object.is_object() || it == object.end())
    return InvalidData("slot '{}': expected a field 'columns'", slot.name);
  const std::string text = it->is_string() ? it->get<std::string>() : it->dump();
  const size_t colon = std::min(text.find(':'), text.size());
  size_t last = 0;
  const std::string_view all = text;
  const bool valid = parse_number(all.substr(0, colon), slot.cells.first) &&
                     (colon == all.size() ? (last = slot.cells.first, true)
                                          : parse_number(all.substr(colon + 1), last)) &&
                     last >= slot.cells.first && last < kMaxColumns;
  if (!valid) return wrong(slot, "columns", "COLUMN or FIRST:LAST, from 0", *it);
  slot.cells.count = last - slot.cells.first + 1;
  return Ok();
}

// A name or a list of names; without it the name of the slot.
Status read_column_names(const json& object, Slot& slot) {
  const auto it = object.is_object() ? object.find("columns") : object.end();
  if (!object.is_object() || it == object.end()) {
    slot.cells.names = {slot.name};
    return Ok();
  }
  const json list = it->is_string() ? json::array({*it}) : *it;
  const bool valid =
      list.is_array() && !list.empty() &&
      std::all_of(list.begin(), list.end(), [](const json& name) { return name.is_string(); });
  if (!valid) return wrong(slot, "columns", "the name of a column or a list of names", *it);
  slot.cells.names = list.get<std::vector<std::string>>();
  return Ok();
}

// Reads a whole number from `least` on, if there is one.
template <typename T>
Status read_whole(const json& object, const char* key, const Slot& slot, int64_t least, T& to) {
  const auto it = object.find(key);
  if (it == object.end()) return Ok();
  const bool small =
      it->is_number_integer() && !it->is_number_unsigned() && it->get<int64_t>() >= least;
  const bool large = it->is_number_unsigned() &&
                     it->get<uint64_t>() >= static_cast<uint64_t>(std::max<int64_t>(least, 0)) &&
                     it->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (!small && !large) return wrong(slot, key, fmt::format("a whole number from {}", least), *it);
  to = it->get<T>();
  return Ok();
}

Status read_default(const json& object, Slot& slot) {
  const auto it = object.find("default");
  if (it == object.end()) return Ok();
  if (slot.is_float) {
    if (!it->is_number()) return wrong(slot, "default", "a number", *it);
    slot.cells.missing = it->get<double>();
    return Ok();
  }
  if (!it->is_number_integer()) return wrong(slot, "default", "a whole number", *it);
  slot.cells.missing_id = it->get<int64_t>();
  return Ok();
}

Status read_hash(const json& object, Slot& slot) {
  const auto it = object.find("hash");
  if (it == object.end()) return Ok();
  CellRule& cells = slot.cells;
  if (!it->is_object()) return wrong(slot, "hash", "an object with 'function'", *it);
  for (const auto& [key, value] : it->items()) {
    if (key != "function" && key != "buckets" && key != "first" && key != "prefix" && key != "seed")
      return InvalidData("slot '{}': unknown field 'hash.{}'", slot.name, key);
  }
  const std::string name =
      it->value("function", json()).is_string() ? it->value("function", "") : "";
  const auto* const found = std::find_if(std::begin(kHashNames), std::end(kHashNames),
                                         [&](const HashName& each) { return each.name == name; });
  if (found == std::end(kHashNames))
    return wrong(slot, "hash.function", "none, hexadecimal, xxh64, fnv1a, murmur3 or crc32",
                 it->value("function", json()));
  cells.hash = found->hash;
  const json prefix = it->value("prefix", json(""));
  if (!prefix.is_string()) return wrong(slot, "hash.prefix", "text", prefix);
  cells.prefix = prefix.get<std::string>();
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  MILLRACE_RETURN_IF_ERROR(read_whole(*it, "buckets", slot, 1, cells.buckets));
  MILLRACE_RETURN_IF_ERROR(read_whole(*it, "first", slot, kLowest, cells.first_id));
  MILLRACE_RETURN_IF_ERROR(read_whole(*it, "seed", slot, 0, cells.seed));
  const bool is_number = cells.hash == CellHash::kNone || cells.hash == CellHash::kHexadecimal;
  if (is_number && (!cells.prefix.empty() || cells.seed != 0))
    return InvalidData("slot '{}': hash '{}' has neither prefix nor seed", slot.name, name);
  const bool is_short = cells.hash == CellHash::kMurmur3 || cells.hash == CellHash::kCrc32;
  if (is_short && cells.seed > UINT32_MAX)
    return InvalidData("slot '{}': hash '{}' has a seed of 32 bits", slot.name, name);
  if (cells.buckets == 0 && cells.first_id != 0)
    return InvalidData("slot '{}': 'hash.first' needs 'hash.buckets'", slot.name);
  return Ok();
}

// True for a field of the file that describes its lines.
bool is_format_field(std::string_view key) {
  return key == "format" || key == "separator" || key == "header" || key == "columns";
}

// True for a field of a slot that describes its cells.
bool is_cell_field(std::string_view key) {
  return key == "columns" || key == "default" || key == "hash" || key == "min_count" ||
         key == "rare";
}

// Reads the fields of is_format_field().
Status parse_format(const json& root, TextFormat& format) {
  const json kind = root.value("format", json("multi_slot"));
  if (kind != "multi_slot" && kind != "delimited" && kind != "arrow")
    return InvalidData("format: expected multi_slot, delimited or arrow, found {}", kind.dump());
  format.delimited = kind == "delimited";
  format.arrow = kind == "arrow";
  for (const char* const key : {"separator", "header", "columns"}) {
    if (!format.delimited && root.contains(key))
      return InvalidData("{}: only with \"format\": \"delimited\"", key);
  }
  const json separator = root.value("separator", json("\t"));
  const std::string text = separator.is_string() ? separator.get<std::string>() : "";
  if (text.size() != 1 || text == "\n" || text == "\r")
    return InvalidData("separator: expected one byte, found {}", separator.dump());
  format.separator = text.front();
  const json header = root.value("header", json(false));
  if (!header.is_boolean())
    return InvalidData("header: expected true or false, found {}", header.dump());
  format.header = header.get<bool>();
  const json columns = root.value("columns", json(uint64_t{0}));
  if (!columns.is_number_unsigned() || columns.get<uint64_t>() > kMaxColumns)
    return InvalidData("columns: expected the number of cells of a line, found {}", columns.dump());
  format.columns = columns.get<size_t>();
  return Ok();
}

// Reads the fields of is_cell_field() into Slot::cells. A dense slot of delimited text without a
// shape has one number per column; columns of a stream may have lists.
Status parse_cell_rule(const json& object, Slot& slot, const TextFormat& format) {
  MILLRACE_RETURN_IF_ERROR(format.arrow ? read_column_names(object, slot)
                                        : read_columns(object, slot));
  if (!object.is_object()) return Ok();
  MILLRACE_RETURN_IF_ERROR(read_default(object, slot));
  CellRule& cells = slot.cells;
  if (slot.is_float) {
    for (const char* const key : {"hash", "min_count", "rare"}) {
      if (object.contains(key))
        return InvalidData("slot '{}': field '{}': only for ids", slot.name, key);
    }
  }
  MILLRACE_RETURN_IF_ERROR(read_hash(object, slot));
  MILLRACE_RETURN_IF_ERROR(read_whole(object, "min_count", slot, 1, cells.min_count));
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  MILLRACE_RETURN_IF_ERROR(read_whole(object, "rare", slot, kLowest, cells.rare_id));
  if (object.contains("rare") != (cells.min_count > 0))
    return InvalidData("slot '{}': expected both 'min_count' and 'rare', or neither", slot.name);
  if (!slot.is_dense || format.arrow) return Ok();
  if (slot.dims.empty() && cells.count > 1) slot.dims = {static_cast<int64_t>(cells.count)};
  if (slot.width() != cells.count)
    return InvalidData("slot '{}': expected {} columns for its dims, found {}", slot.name,
                       slot.width(), cells.count);
  return Ok();
}

// Sets the number of columns if it is not stated: one more than the last that a slot has.
Status check_columns(std::span<const Slot> slots, TextFormat& format) {
  size_t needed = 0;
  for (const Slot& slot : slots) {
    const size_t end = slot.cells.first + slot.cells.count;
    if (format.columns > 0 && end > format.columns)
      return InvalidData("slot '{}': column {} does not exist, a line has {} columns", slot.name,
                         end - 1, format.columns);
    needed = std::max(needed, end);
  }
  if (format.columns == 0) format.columns = needed;
  return Ok();
}

constexpr size_t kMaxDims = 9;
constexpr int64_t kMaxWidth = int64_t{1} << 31;

Status check_dims(Slot& slot) {
  if (!slot.dims.empty() && slot.dims[0] == -1) slot.dims.erase(slot.dims.begin());
  if (slot.dims.size() > kMaxDims)
    return InvalidData("slot '{}': expected at most {} dims, found {}", slot.name, kMaxDims,
                       slot.dims.size());
  int64_t width = 1;
  for (const int64_t dim : slot.dims) {
    if (dim < 1 || dim > kMaxWidth || width > kMaxWidth / dim)
      return InvalidData("slot '{}': expected dims above 0 after the first, found {}", slot.name,
                         dim);
    width *= dim;
  }
  return Ok();
}

// Takes type and dims from the var with the name of the slot.
Status take_from_var(const Program& program, Slot& slot, bool& has_type) {
  const Var* const var = program.root().find_var(slot.name);
  if (var == nullptr) return Ok();
  slot.is_dense = var->lod_level() == 0;
  if (slot.is_dense) slot.dims.assign(var->dims().begin(), var->dims().end());
  has_type = var->dtype() == DType::kFloat32 || var->dtype() == DType::kInt64;
  slot.is_float = var->dtype() == DType::kFloat32;
  if (has_type) return Ok();
  return InvalidData("slot '{}': expected a var of float32 or int64, found {}", slot.name,
                     dtype_name(var->dtype()));
}

template <typename T>
Status read_field(const json& object, const char* key, const Slot& slot, T& to) {
  const auto it = object.find(key);
  if (it == object.end()) return Ok();
  try {
    to = it->get<T>();
    return Ok();
  } catch (const json::exception&) {
    return InvalidData("slot '{}': field '{}' has the wrong type", slot.name, key);
  }
}

Status read_type(const json& object, Slot& slot, bool& has_type) {
  std::string type;
  MILLRACE_RETURN_IF_ERROR(read_field(object, "type", slot, type));
  if (type.empty()) return Ok();
  has_type = true;
  slot.is_float = type == "float" || type == "float32";
  if (slot.is_float || type == "uint64" || type == "int64") return Ok();
  return InvalidData("slot '{}': expected type float or uint64, found '{}'", slot.name, type);
}

Status check_slot_fields(const json& object, const Slot& slot, bool has_cells) {
  for (const auto& [key, value] : object.items()) {
    const bool known = key == "name" || key == "type" || key == "is_dense" || key == "is_used" ||
                       key == "shape" || (has_cells && is_cell_field(key));
    if (!known) return InvalidData("slot '{}': unknown field '{}'", slot.name, key);
  }
  return Ok();
}

StatusOr<Slot> parse_slot(const json& object, size_t place, const Program& program,
                          const TextFormat& format) {
  Slot slot;
  const json* const name =
      object.is_object() && object.contains("name") ? &object["name"] : &object;
  if (!name->is_string()) return InvalidData("slot {}: expected a name", place);
  slot.name = name->get<std::string>();
  bool has_type = false;
  const bool has_cells = format.delimited || format.arrow;
  MILLRACE_RETURN_IF_ERROR(take_from_var(program, slot, has_type));
  if (object.is_object()) {
    MILLRACE_RETURN_IF_ERROR(check_slot_fields(object, slot, has_cells));
    MILLRACE_RETURN_IF_ERROR(read_type(object, slot, has_type));
    MILLRACE_RETURN_IF_ERROR(read_field(object, "is_dense", slot, slot.is_dense));
    MILLRACE_RETURN_IF_ERROR(read_field(object, "is_used", slot, slot.is_used));
    MILLRACE_RETURN_IF_ERROR(read_field(object, "shape", slot, slot.dims));
  }
  if (!has_type)
    return InvalidData("slot '{}': the program has no var of that name, so it needs a type",
                       slot.name);
  if (!slot.is_dense) slot.dims.clear();
  MILLRACE_RETURN_IF_ERROR(check_dims(slot));
  if (has_cells) MILLRACE_RETURN_IF_ERROR(parse_cell_rule(object, slot, format));
  return slot;
}

// Reads a whole number above 0, if there is one.
template <typename T>
Status read_count(const json& root, const char* key, T& to) {
  const auto it = root.find(key);
  if (it == root.end()) return Ok();
  constexpr int64_t kMost = std::is_same_v<T, int> ? 256 : std::numeric_limits<int64_t>::max();
  if (!it->is_number_integer() || it->get<int64_t>() < 1 || it->get<int64_t>() > kMost)
    return InvalidData("{}: expected a number above 0, found {}", key, it->dump());
  to = it->get<T>();
  return Ok();
}

// Refuses settings of a DataFeedDesc that would change the examples.
Status check_feed_field(const std::string& key, const json& value) {
  if (key == "pipe_command" && !value.is_string())
    return InvalidData("pipe_command: expected text, found {}", value.dump());
  if (key == "name" && value != "MultiSlotDataFeed" && value != "MultiSlotInMemoryDataFeed")
    return Unimplemented("name {}: expected MultiSlotDataFeed or MultiSlotInMemoryDataFeed",
                         value.dump());
  if (key == "input_type" && value != 0)
    return Unimplemented("input_type {}: expected 0, one example a line", value.dump());
  return Ok();
}

Status read_top(const json& root, SlotsFile& file) {
  for (const auto& [key, value] : root.items()) {
    const bool known = key == "slots" || key == "multi_slot_desc" || key == "batch_size" ||
                       key == "thread_num" || key == "name" || key == "pipe_command" ||
                       key == "input_type" || is_format_field(key);
    if (!known) return InvalidData("unknown field '{}'", key);
    MILLRACE_RETURN_IF_ERROR(check_feed_field(key, value));
  }
  file.pipe_command = root.value("pipe_command", "");
  if (file.pipe_command == "cat") file.pipe_command.clear();
  MILLRACE_RETURN_IF_ERROR(read_count(root, "batch_size", file.batch_size));
  MILLRACE_RETURN_IF_ERROR(read_count(root, "thread_num", file.readers));
  MILLRACE_RETURN_IF_ERROR(parse_format(root, file.format));
  if (file.format.arrow && !file.pipe_command.empty())
    return InvalidData("pipe_command: an Arrow stream has no lines");
  return Ok();
}

}  // namespace

size_t Slot::width() const {
  size_t width = 1;
  for (const int64_t dim : dims) width *= static_cast<size_t>(dim);
  return width;
}

StatusOr<SlotsFile> parse_slots(std::string_view text, const Program& program) {
  MILLRACE_RETURN_IF_ERROR(check_json(text));
  const json root = json::parse(text, nullptr, false);
  SlotsFile file;
  const json* list = &root;
  if (root.is_object()) {
    const bool is_desc = root.contains("multi_slot_desc") && root["multi_slot_desc"].is_object();
    const json& holder = is_desc ? root["multi_slot_desc"] : root;
    if (!holder.contains("slots")) return InvalidData("expected a list 'slots'");
    list = &holder["slots"];
    MILLRACE_RETURN_IF_ERROR(read_top(root, file));
  }
  if (!list->is_array() || list->empty()) return InvalidData("expected a list of slots");
  for (const json& object : *list) {
    MILLRACE_ASSIGN_OR_RETURN(Slot slot,
                              parse_slot(object, file.slots.size(), program, file.format));
    for (const Slot& other : file.slots)
      if (other.name == slot.name) return InvalidData("slot '{}' is listed twice", slot.name);
    file.slots.push_back(std::move(slot));
  }
  if (file.format.delimited) MILLRACE_RETURN_IF_ERROR(check_columns(file.slots, file.format));
  return file;
}

}  // namespace millrace::io
