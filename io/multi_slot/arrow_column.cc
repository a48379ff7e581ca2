#include "io/multi_slot/arrow_column.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::io {
namespace arrow_column {
namespace {

// Larger lengths and offsets would overflow in sums and in numbers of bytes.
constexpr int64_t kMaxLength = std::numeric_limits<int64_t>::max() / 64;
constexpr size_t kShownFormatBytes = 40;
constexpr int32_t kInlineText = 12;

struct Format {
  std::string_view text;
  ArrowStorage storage;
};

constexpr Format kFormats[] = {
    {"n", ArrowStorage::kNull},    {"b", ArrowStorage::kBool},    {"c", ArrowStorage::kInt8},
    {"C", ArrowStorage::kUInt8},   {"s", ArrowStorage::kInt16},   {"S", ArrowStorage::kUInt16},
    {"i", ArrowStorage::kInt32},   {"I", ArrowStorage::kUInt32},  {"l", ArrowStorage::kInt64},
    {"L", ArrowStorage::kUInt64},  {"f", ArrowStorage::kFloat32}, {"g", ArrowStorage::kFloat64},
    {"u", ArrowStorage::kText32},  {"U", ArrowStorage::kText64},  {"vu", ArrowStorage::kTextView},
    {"+l", ArrowStorage::kList32}, {"+L", ArrowStorage::kList64}, {"tdD", ArrowStorage::kInt32},
    {"tdm", ArrowStorage::kInt64}, {"tts", ArrowStorage::kInt32}, {"ttm", ArrowStorage::kInt32},
    {"ttu", ArrowStorage::kInt64}, {"ttn", ArrowStorage::kInt64}, {"tDs", ArrowStorage::kInt64},
    {"tDm", ArrowStorage::kInt64}, {"tDu", ArrowStorage::kInt64}, {"tDn", ArrowStorage::kInt64},
};

// Times with a time zone: "tss:Europe/Berlin".
bool is_timestamp(std::string_view format) {
  return format.size() >= 4 && format.starts_with("ts") && format[3] == ':' &&
         std::string_view("smun").find(format[2]) != std::string_view::npos;
}

// Numbers of buffers, those with views of texts at least.
int64_t buffers_of(ArrowStorage storage) {
  switch (storage) {
    case ArrowStorage::kNull:
      return 0;
    case ArrowStorage::kListFixed:
      return 1;
    case ArrowStorage::kText32:
    case ArrowStorage::kText64:
    case ArrowStorage::kTextView:
      return 3;
    default:
      return 2;
  }
}

bool is_index(ArrowStorage storage) {
  return storage >= ArrowStorage::kInt8 && storage <= ArrowStorage::kUInt64;
}

// Copies a value, which need not be aligned.
template <typename T>
T loaded(const void* from, int64_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + at * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

Status bad_length(std::string_view name, std::string_view what, int64_t found) {
  return InvalidData("column '{}': the array has {} {}", name, what, found);
}

}  // namespace
}  // namespace arrow_column

StatusOr<ArrowColumn> ArrowColumn::create(const ArrowSchema& schema) {
  ArrowColumn column;
  MILLRACE_RETURN_IF_ERROR(column.describe(schema, Level::kTop));
  return column;
}

Status ArrowColumn::describe_format(std::string_view format) {
  format_ = format;
  if (arrow_column::is_timestamp(format)) {
    storage_ = ArrowStorage::kInt64;
    return Ok();
  }
  for (const arrow_column::Format& each : arrow_column::kFormats) {
    if (each.text != format) continue;
    storage_ = each.storage;
    return Ok();
  }
  constexpr std::string_view kFixed = "+w:";
  const std::string_view size = format.substr(std::min(kFixed.size(), format.size()));
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), list_size_);
  if (!format.starts_with(kFixed))
    return Unimplemented("column '{}': the Arrow type '{}'", name_,
                         format.substr(0, arrow_column::kShownFormatBytes));
  if (error != std::errc() || end != size.data() + size.size() || list_size_ < 0 ||
      list_size_ > std::numeric_limits<int32_t>::max())
    return InvalidData("column '{}': expected an Arrow type with the size of lists, found '{}'",
                       name_, format.substr(0, arrow_column::kShownFormatBytes));
  storage_ = ArrowStorage::kListFixed;
  return Ok();
}

Status ArrowColumn::describe(const ArrowSchema& schema, Level level) {
  name_ = schema.name == nullptr ? "" : schema.name;
  if (schema.format == nullptr) return InvalidData("column '{}': the schema has no format", name_);
  MILLRACE_RETURN_IF_ERROR(describe_format(schema.format));
  const bool nested = is_list() ? level != Level::kTop : false;
  if (nested || (schema.dictionary != nullptr && level == Level::kDictionary))
    return Unimplemented("column '{}': the Arrow type '{}' within a list or dictionary", name_,
                         format_);
  if (schema.n_children != (is_list() ? 1 : 0) ||
      (is_list() && (schema.children == nullptr || schema.children[0] == nullptr)))
    return InvalidData("column '{}': a schema of type '{}' with {} children", name_, format_,
                       schema.n_children);
  if (is_list()) {
    items_ = std::make_unique<ArrowColumn>();
    MILLRACE_RETURN_IF_ERROR(items_->describe(*schema.children[0], Level::kItem));
    items_->name_ = name_;
  }
  if (schema.dictionary == nullptr) return Ok();
  if (!arrow_column::is_index(storage_))
    return InvalidData("column '{}': expected whole numbers as indices of a dictionary, found '{}'",
                       name_, format_);
  dictionary_ = std::make_unique<ArrowColumn>();
  MILLRACE_RETURN_IF_ERROR(dictionary_->describe(*schema.dictionary, Level::kDictionary));
  dictionary_->name_ = name_;
  return Ok();
}

// Buffers that values are read from.
Status ArrowColumn::check_buffers() const {
  const int64_t expected = arrow_column::buffers_of(storage_);
  const bool views = storage_ == ArrowStorage::kTextView;
  if (views ? array_->n_buffers < expected : array_->n_buffers != expected)
    return InvalidData("column '{}': expected {} buffers for type '{}', found {}", name_, expected,
                       format_, array_->n_buffers);
  if (expected == 0) return Ok();
  if (array_->buffers == nullptr)
    return InvalidData("column '{}': the array has no buffers", name_);
  if (array_->null_count > 0 && array_->buffers[0] == nullptr)
    return InvalidData("column '{}': {} nulls, but no bits that say which", name_,
                       array_->null_count);
  const int64_t needed = std::min<int64_t>(expected, 2);  // a buffer of texts may be empty
  for (int64_t b = 1; b < needed && array_->length > 0; ++b)
    if (array_->buffers[b] == nullptr)
      return InvalidData("column '{}': buffer {} is a null pointer", name_, b);
  return Ok();
}

Status ArrowColumn::bind(const ArrowArray& array, int64_t rows) {
  array_ = &array;
  if (array.length < 0 || array.length > arrow_column::kMaxLength)
    return arrow_column::bad_length(name_, "length", array.length);
  if (array.offset < 0 || array.offset > arrow_column::kMaxLength)
    return arrow_column::bad_length(name_, "offset", array.offset);
  if (array.null_count < -1 || array.null_count > array.length)
    return arrow_column::bad_length(name_, "null count", array.null_count);
  if (array.length < rows)
    return InvalidData("column '{}': expected {} values, found {}", name_, rows, array.length);
  MILLRACE_RETURN_IF_ERROR(check_buffers());
  if (array.n_children != (is_list() ? 1 : 0) || (is_list() && array.children == nullptr))
    return InvalidData("column '{}': expected {} children for type '{}', found {}", name_,
                       is_list() ? 1 : 0, format_, array.n_children);
  if ((array.dictionary != nullptr) != (dictionary_ != nullptr))
    return InvalidData("column '{}': only one of array and schema has a dictionary", name_);
  if (dictionary_ != nullptr) MILLRACE_RETURN_IF_ERROR(dictionary_->bind(*array.dictionary, 0));
  if (!is_list()) return Ok();
  if (array.children[0] == nullptr)
    return InvalidData("column '{}': the child of the array is a null pointer", name_);
  return items_->bind(*array.children[0], 0);
}

bool ArrowColumn::is_null(int64_t at) const {
  if (storage_ == ArrowStorage::kNull) return true;
  const auto* const bits = static_cast<const uint8_t*>(array_->buffers[0]);
  return bits != nullptr && ((bits[at / 8] >> (at % 8)) & 1) == 0;
}

template <typename T>
T ArrowColumn::stored(int buffer, int64_t at) const {
  return arrow_column::loaded<T>(array_->buffers[buffer], at);
}

StatusOr<ArrowCell> ArrowColumn::text_between(int64_t begin, int64_t end, int64_t last) const {
  if (begin < 0 || end < begin || end > last)
    return InvalidData("column '{}': a text from {} to {} of {} bytes", name_, begin, end, last);
  if (end == begin) return ArrowCell(std::string_view());
  const auto* const bytes = static_cast<const char*>(array_->buffers[2]);
  if (bytes == nullptr) return InvalidData("column '{}': buffer 2 is a null pointer", name_);
  return ArrowCell(std::string_view(bytes + begin, static_cast<size_t>(end - begin)));
}

// A view has a length, and then the text or a prefix of it, the number of its buffer and its
// position there. The last buffer has the sizes of those with texts.
StatusOr<ArrowCell> ArrowColumn::text_view(int64_t at) const {
  const char* const view = static_cast<const char*>(array_->buffers[1]) + at * 16;
  const auto size = arrow_column::loaded<int32_t>(view, 0);
  if (size >= 0 && size <= arrow_column::kInlineText)
    return ArrowCell(std::string_view(view + 4, static_cast<size_t>(size)));
  const auto buffer = arrow_column::loaded<int32_t>(view, 2);
  const auto begin = arrow_column::loaded<int32_t>(view, 3);
  const int64_t texts = array_->n_buffers - 3;
  const void* const sizes = array_->buffers[array_->n_buffers - 1];
  if (size < 0 || buffer < 0 || buffer >= texts || begin < 0 || sizes == nullptr ||
      begin > arrow_column::loaded<int64_t>(sizes, buffer) - size ||
      array_->buffers[2 + buffer] == nullptr)
    return InvalidData("column '{}': a view of {} bytes at {} of buffer {} of {}", name_, size,
                       begin, buffer, texts);
  const auto* const bytes = static_cast<const char*>(array_->buffers[2 + buffer]);
  return ArrowCell(std::string_view(bytes + begin, static_cast<size_t>(size)));
}

// A value that is not null. \param at  with the offset of the array
StatusOr<ArrowCell> ArrowColumn::plain_cell(int64_t at) const {
  const int64_t end = array_->offset + array_->length;
  const auto whole = [](auto value) { return ArrowCell(static_cast<int64_t>(value)); };
  switch (storage_) {
    case ArrowStorage::kBool:
      return whole((stored<uint8_t>(1, at / 8) >> (at % 8)) & 1);
    case ArrowStorage::kInt8:
      return whole(stored<int8_t>(1, at));
    case ArrowStorage::kUInt8:
      return whole(stored<uint8_t>(1, at));
    case ArrowStorage::kInt16:
      return whole(stored<int16_t>(1, at));
    case ArrowStorage::kUInt16:
      return whole(stored<uint16_t>(1, at));
    case ArrowStorage::kInt32:
      return whole(stored<int32_t>(1, at));
    case ArrowStorage::kUInt32:
      return whole(stored<uint32_t>(1, at));
    case ArrowStorage::kInt64:
      return whole(stored<int64_t>(1, at));
    case ArrowStorage::kUInt64:
      return ArrowCell(stored<uint64_t>(1, at));
    case ArrowStorage::kFloat32:
      return ArrowCell(static_cast<double>(stored<float>(1, at)));
    case ArrowStorage::kFloat64:
      return ArrowCell(stored<double>(1, at));
    case ArrowStorage::kText32:
      return text_between(stored<int32_t>(1, at), stored<int32_t>(1, at + 1),
                          stored<int32_t>(1, end));
    case ArrowStorage::kText64:
      return text_between(stored<int64_t>(1, at), stored<int64_t>(1, at + 1),
                          stored<int64_t>(1, end));
    case ArrowStorage::kTextView:
      return text_view(at);
    default:
      return ArrowCell();
  }
}

StatusOr<ArrowCell> ArrowColumn::cell(int64_t row) const {
  const int64_t at = array_->offset + row;
  if (is_null(at)) return ArrowCell();
  MILLRACE_ASSIGN_OR_RETURN(ArrowCell value, plain_cell(at));
  if (dictionary_ == nullptr) return value;
  const int64_t entries = dictionary_->array_->length;
  const auto* const large = std::get_if<uint64_t>(&value);
  const int64_t index = large == nullptr                          ? std::get<int64_t>(value)
                        : *large < static_cast<uint64_t>(entries) ? static_cast<int64_t>(*large)
                                                                  : int64_t{-1};
  if (index < 0 || index >= entries)
    return InvalidData("column '{}': an index outside of a dictionary with {} values", name_,
                       entries);
  return dictionary_->cell(index);
}

// The values of a list, as rows of items_.
Status ArrowColumn::list_range(int64_t at, int64_t& begin, int64_t& end) const {
  const int64_t items = items_->array_->length;
  if (storage_ == ArrowStorage::kListFixed) {
    if (list_size_ > 0 && at >= items / list_size_)
      return InvalidData("column '{}': list {} of {} values in an array of {}", name_, at,
                         list_size_, items);
    begin = at * list_size_;
    end = begin + list_size_;
    return Ok();
  }
  const bool is_short = storage_ == ArrowStorage::kList32;
  begin = is_short ? stored<int32_t>(1, at) : stored<int64_t>(1, at);
  end = is_short ? stored<int32_t>(1, at + 1) : stored<int64_t>(1, at + 1);
  if (begin >= 0 && begin <= end && end <= items) return Ok();
  return InvalidData("column '{}': a list from {} to {} of {} values", name_, begin, end, items);
}

Status ArrowColumn::for_each(int64_t row, llvm::function_ref<Status(const ArrowCell&)> use) const {
  if (!is_list()) {
    MILLRACE_ASSIGN_OR_RETURN(const ArrowCell value, cell(row));
    return use(value);
  }
  const int64_t at = array_->offset + row;
  int64_t begin = 0;
  int64_t end = 0;
  if (!is_null(at)) MILLRACE_RETURN_IF_ERROR(list_range(at, begin, end));
  if (begin == end) return use(ArrowCell());
  for (int64_t i = begin; i < end; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const ArrowCell value, items_->cell(i));
    MILLRACE_RETURN_IF_ERROR(use(value));
  }
  return Ok();
}

}  // namespace millrace::io
