#include "io/multi_slot/arrow_rows.h"

#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace arrow_rows {
namespace {

constexpr size_t kShownTextBytes = 24;

// A schema that is released at the end of the block.
class OwnedSchema {
 public:
  OwnedSchema() = default;
  OwnedSchema(const OwnedSchema&) = delete;
  OwnedSchema& operator=(const OwnedSchema&) = delete;
  ~OwnedSchema() {
    if (schema.release != nullptr) schema.release(&schema);
  }
  ArrowSchema schema{};
};

std::string shown(const ArrowCell& cell) {
  if (const auto* const text = std::get_if<std::string_view>(&cell))
    return fmt::format("'{}'", text->substr(0, kShownTextBytes));
  if (const auto* const real = std::get_if<double>(&cell)) return fmt::format("{}", *real);
  if (const auto* const large = std::get_if<uint64_t>(&cell)) return fmt::format("{}", *large);
  if (const auto* const whole = std::get_if<int64_t>(&cell)) return fmt::format("{}", *whole);
  return "no value";
}

Status bad_value(const Slot& slot, const std::string& column, std::string_view expected,
                 const ArrowCell& cell) {
  return InvalidData("slot '{}', column '{}': expected {}, found {}", slot.name, column, expected,
                     shown(cell));
}

Status no_value(const Slot& slot, const std::string& column) {
  return InvalidData("slot '{}', column '{}': the value is missing and the slot has no default",
                     slot.name, column);
}

// False if the cell is not a finite number.
bool to_float(const ArrowCell& cell, float& value) {
  if (const auto* const text = std::get_if<std::string_view>(&cell))
    return parse_cell_float(*text, value);
  if (const auto* const real = std::get_if<double>(&cell)) value = static_cast<float>(*real);
  if (const auto* const large = std::get_if<uint64_t>(&cell)) value = static_cast<float>(*large);
  if (const auto* const whole = std::get_if<int64_t>(&cell)) value = static_cast<float>(*whole);
  return std::isfinite(value);
}

// The value before buckets. A number that a function of text hashes is hashed as its digits.
bool to_id(const ArrowCell& cell, const CellRule& rule, uint64_t& value) {
  if (const auto* const text = std::get_if<std::string_view>(&cell))
    return hash_cell(*text, rule, value);
  if (std::holds_alternative<double>(cell) || rule.hash == CellHash::kHexadecimal) return false;
  const auto* const large = std::get_if<uint64_t>(&cell);
  value = large != nullptr ? *large : static_cast<uint64_t>(std::get<int64_t>(cell));
  if (rule.hash == CellHash::kNone) return true;
  const fmt::format_int digits =
      large != nullptr ? fmt::format_int(*large) : fmt::format_int(std::get<int64_t>(cell));
  return hash_cell({digits.data(), digits.size()}, rule, value);
}

const char* expected_id(const CellRule& rule) {
  if (rule.hash == CellHash::kNone) return "a whole number";
  return rule.hash == CellHash::kHexadecimal ? "text with a hexadecimal number"
                                             : "text or a whole number";
}

}  // namespace
}  // namespace arrow_rows

ArrowRows::ArrowRows(std::span<const Slot> slots, const ValueCounts* counts)
    : slots_(slots), counts_(counts) {}

ArrowRows::~ArrowRows() {
  release_array();
  if (stream_.release != nullptr) stream_.release(&stream_);
}

void ArrowRows::release_array() {
  if (array_.release != nullptr) array_.release(&array_);
  array_ = {};
}

Status ArrowRows::stream_error(const char* call, int error) {
  const char* const message =
      stream_.get_last_error == nullptr ? nullptr : stream_.get_last_error(&stream_);
  return IoError(
      "the Arrow stream failed in {}: {}", call,
      message != nullptr ? message : std::error_code(error, std::generic_category()).message());
}

Status ArrowRows::open(const ArrowOpener& open) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<ArrowArrayStream> from, open());
  if (from == nullptr || from->release == nullptr)
    return InvalidData("the Arrow stream has been released, so it has been read before");
  stream_ = std::exchange(*from, {});
  if (stream_.get_schema == nullptr || stream_.get_next == nullptr)
    return InvalidData("the Arrow stream lacks a function");
  arrow_rows::OwnedSchema owned;
  if (const int error = stream_.get_schema(&stream_, &owned.schema); error != 0)
    return stream_error("get_schema", error);
  if (owned.schema.release == nullptr)
    return InvalidData("the Arrow stream has returned a schema that is released");
  return find_columns(owned.schema);
}

StatusOr<size_t> ArrowRows::find_column(const ArrowSchema& schema, const Slot& slot,
                                        const std::string& name) {
  int64_t found = -1;
  for (int64_t c = 0; c < schema.n_children; ++c) {
    const char* const other = schema.children[c]->name;
    if (name != (other == nullptr ? "" : other)) continue;
    if (found >= 0)
      return InvalidData("slot '{}': the stream has two columns '{}'", slot.name, name);
    found = c;
  }
  if (found < 0) return InvalidData("slot '{}': the stream has no column '{}'", slot.name, name);
  for (size_t c = 0; c < children_.size(); ++c)
    if (children_[c] == found) return c;
  StatusOr<ArrowColumn> column = ArrowColumn::create(*schema.children[found]);
  if (!column.ok())
    return Status(column.status().code(),
                  fmt::format("slot '{}': {}", slot.name, column.status().message()));
  columns_.push_back(*std::move(column));
  children_.push_back(found);
  return columns_.size() - 1;
}

Status ArrowRows::find_columns(const ArrowSchema& schema) {
  if (schema.format == nullptr || std::string_view(schema.format) != "+s" ||
      schema.dictionary != nullptr)
    return InvalidData("expected an Arrow stream of structs ('+s'), found '{}'",
                       schema.format == nullptr ? "" : schema.format);
  schema_children_ = schema.n_children;
  if (schema.n_children < 0 || (schema.n_children > 0 && schema.children == nullptr))
    return InvalidData("the schema of the Arrow stream has {} children", schema.n_children);
  for (int64_t c = 0; c < schema.n_children; ++c)
    if (schema.children[c] == nullptr)
      return InvalidData("child {} of the schema of the Arrow stream is a null pointer", c);
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].is_used) continue;
    Source source{s, {}};
    for (const std::string& name : slots_[s].cells.names) {
      MILLRACE_ASSIGN_OR_RETURN(const size_t column, find_column(schema, slots_[s], name));
      source.columns.push_back(column);
    }
    sources_.push_back(std::move(source));
  }
  return Ok();
}

// The rows of the stream are those of a struct; its offset also applies to its children.
Status ArrowRows::bind_array() {
  constexpr int64_t kMaxLength = int64_t{1} << 56;
  if (array_.length < 0 || array_.length > kMaxLength || array_.offset < 0 ||
      array_.offset > kMaxLength)
    return InvalidData("an array of the Arrow stream has length {} and offset {}", array_.length,
                       array_.offset);
  if (array_.null_count > 0)
    return InvalidData("an array of the Arrow stream has {} rows that are null", array_.null_count);
  if (array_.n_children != schema_children_ || (schema_children_ > 0 && array_.children == nullptr))
    return InvalidData("an array of the Arrow stream has {} columns, its schema has {}",
                       array_.n_children, schema_children_);
  for (size_t c = 0; c < columns_.size(); ++c) {
    const ArrowArray* const child = array_.children[children_[c]];
    if (child == nullptr)
      return InvalidData("column '{}': the array is a null pointer", columns_[c].name());
    MILLRACE_RETURN_IF_ERROR(columns_[c].bind(*child, array_.offset + array_.length));
  }
  return Ok();
}

Status ArrowRows::next_array() {
  release_array();
  row_ = 0;
  if (const int error = stream_.get_next(&stream_, &array_); error != 0)
    return stream_error("get_next", error);
  return array_.release == nullptr ? Ok() : bind_array();
}

StatusOr<bool> ArrowRows::next() {
  ++row_;
  while (array_.release == nullptr || row_ >= array_.length) {
    MILLRACE_RETURN_IF_ERROR(next_array());
    if (array_.release == nullptr) return false;
  }
  ++number_;
  return true;
}

Status ArrowRows::append_floats(const Source& source, SlotColumn& to) {
  const Slot& slot = slots_[source.slot];
  for (const size_t c : source.columns) {
    const ArrowColumn& column = columns_[c];
    const auto add = [&](const ArrowCell& cell) -> Status {
      float value = 0;
      const bool missing = std::holds_alternative<std::monostate>(cell);
      if (missing && !slot.cells.missing) return arrow_rows::no_value(slot, column.name());
      if (missing) value = static_cast<float>(*slot.cells.missing);
      if (!missing && !arrow_rows::to_float(cell, value))
        return arrow_rows::bad_value(slot, column.name(), "a finite number", cell);
      to.floats.push_back(value);
      return Ok();
    };
    MILLRACE_RETURN_IF_ERROR(column.for_each(array_.offset + row_, add));
  }
  to.ends.push_back(static_cast<int64_t>(to.floats.size()));
  return Ok();
}

Status ArrowRows::append_ids(const Source& source, SlotColumn& to) {
  const Slot& slot = slots_[source.slot];
  const CellRule& rule = slot.cells;
  for (const size_t c : source.columns) {
    const ArrowColumn& column = columns_[c];
    const auto add = [&](const ArrowCell& cell) -> Status {
      if (std::holds_alternative<std::monostate>(cell)) {
        if (!rule.missing_id) return arrow_rows::no_value(slot, column.name());
        to.ids.push_back(*rule.missing_id);
        return Ok();
      }
      uint64_t value = 0;
      if (!arrow_rows::to_id(cell, rule, value))
        return arrow_rows::bad_value(slot, column.name(), arrow_rows::expected_id(rule), cell);
      to.ids.push_back(id_of(value, source.slot, rule, counts_));
      return Ok();
    };
    MILLRACE_RETURN_IF_ERROR(column.for_each(array_.offset + row_, add));
  }
  to.ends.push_back(static_cast<int64_t>(to.ids.size()));
  return Ok();
}

Status ArrowRows::append(SlotRows& to) {
  to.columns.resize(slots_.size());
  for (const Source& source : sources_) {
    const Slot& slot = slots_[source.slot];
    SlotColumn& column = to.columns[source.slot];
    const int64_t before = column.ends.empty() ? 0 : column.ends.back();
    MILLRACE_RETURN_IF_ERROR(slot.is_float ? append_floats(source, column)
                                           : append_ids(source, column));
    const int64_t values = column.ends.back() - before;
    if (slot.is_dense && values != static_cast<int64_t>(slot.width()))
      return InvalidData("slot '{}': expected {} values, found {}", slot.name, slot.width(),
                         values);
  }
  ++to.rows;
  return Ok();
}

Status ArrowRows::count(ValueCounts& to) {
  for (const Source& source : sources_) {
    const Slot& slot = slots_[source.slot];
    if (slot.cells.min_count == 0) continue;
    for (const size_t c : source.columns) {
      const ArrowColumn& column = columns_[c];
      const auto add = [&](const ArrowCell& cell) -> Status {
        uint64_t value = 0;
        if (std::holds_alternative<std::monostate>(cell)) return Ok();
        if (!arrow_rows::to_id(cell, slot.cells, value))
          return arrow_rows::bad_value(slot, column.name(), arrow_rows::expected_id(slot.cells),
                                       cell);
        to.add(source.slot, value);
        return Ok();
      };
      MILLRACE_RETURN_IF_ERROR(column.for_each(array_.offset + row_, add));
    }
  }
  return Ok();
}

}  // namespace millrace::io
