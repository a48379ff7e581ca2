#pragma once

#include <span>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "framework/base/status.h"
#include "io/multi_slot/slots.h"

// The part of a slots file that describes delimited text; docs/data_files.md has the fields.
namespace millrace::io {

/// True for a field of the file that describes its lines.
bool is_format_field(std::string_view key);
/// True for a field of a slot that describes its cells.
bool is_cell_field(std::string_view key);
/// Reads the fields of is_format_field(). Errors: kInvalidData.
Status parse_format(const nlohmann::json& root, TextFormat& format);
/// Reads the fields of is_cell_field() into Slot::cells. A dense slot without a shape has one
/// number per column. Errors: kInvalidData with the slot.
Status parse_cell_rule(const nlohmann::json& object, Slot& slot);
/// Sets the number of columns if it is not stated: one more than the last that a slot has.
/// Errors: kInvalidData with the slot for a column that a line does not have.
Status check_columns(std::span<const Slot> slots, TextFormat& format);

}  // namespace millrace::io
