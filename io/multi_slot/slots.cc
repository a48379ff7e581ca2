#include "io/multi_slot/slots.h"

#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "io/multi_slot/cell_rules.h"

namespace millrace::io {
namespace {

using nlohmann::json;

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

Status check_slot_fields(const json& object, const Slot& slot, bool delimited) {
  for (const auto& [key, value] : object.items()) {
    const bool known = key == "name" || key == "type" || key == "is_dense" || key == "is_used" ||
                       key == "shape" || (delimited && is_cell_field(key));
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
  MILLRACE_RETURN_IF_ERROR(take_from_var(program, slot, has_type));
  if (object.is_object()) {
    MILLRACE_RETURN_IF_ERROR(check_slot_fields(object, slot, format.delimited));
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
  if (format.delimited) MILLRACE_RETURN_IF_ERROR(parse_cell_rule(object, slot));
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
  if (key == "pipe_command" && value != "cat" && value != "")
    return Unimplemented("pipe_command {}: pipe its output to --files - instead", value.dump());
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
  MILLRACE_RETURN_IF_ERROR(read_count(root, "batch_size", file.batch_size));
  MILLRACE_RETURN_IF_ERROR(read_count(root, "thread_num", file.readers));
  return parse_format(root, file.format);
}

}  // namespace

size_t Slot::width() const {
  size_t width = 1;
  for (const int64_t dim : dims) width *= static_cast<size_t>(dim);
  return width;
}

StatusOr<SlotsFile> parse_slots(std::string_view text, const Program& program) {
  const json root = json::parse(text, nullptr, false);
  if (root.is_discarded()) return InvalidData("not valid JSON");
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
