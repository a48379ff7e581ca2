#include "io/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/json.h"

namespace millrace::io {
namespace safetensors {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kDataAlignment = 64;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, DType>, 12> kTypes = {{
    {"BOOL", DType::kBool},
    {"U8", DType::kUint8},
    {"I8", DType::kInt8},
    {"I16", DType::kInt16},
    {"I32", DType::kInt32},
    {"I64", DType::kInt64},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBfloat16},
    {"F32", DType::kFloat32},
    {"F64", DType::kFloat64},
    {"U64", DType::kSizeT},
    {"C64", DType::kComplex64},
}};

Status at_tensor(Status status, const std::string& path, const std::string& name) {
  Location location;
  location.file = path;
  location.var = name;
  return std::move(status).at(std::move(location));
}

// Size of a tensor in bytes; nullopt beyond int64.
std::optional<uint64_t> byte_count(DType dtype, llvm::ArrayRef<int64_t> dims) {
  int64_t bytes = dtype_size(dtype);
  for (const int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

// JSON strings must be valid UTF-8. Control characters can be escaped.
bool is_utf8(std::string_view text) {
  std::string wide;
  std::ranges::copy_if(text, std::back_inserter(wide),
                       [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
  return printable(wide) == wide;
}

StatusOr<DType> parse_type(const JsonValue* value) {
  const auto* const name = value == nullptr ? nullptr : value->get_if<std::string>();
  if (name == nullptr) return InvalidData("expected member 'dtype' with a string");
  for (const auto& [known, dtype] : kTypes)
    if (known == *name) return dtype;
  return Unimplemented("unsupported dtype {}", in_quotes(*name));
}

Status check_members(const JsonValue& facts) {
  const auto* const members = facts.get_if<JsonMembers>();
  if (members == nullptr) return InvalidData("expected an object, found {}", facts.kind());
  for (const auto& [name, value] : *members) {
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      return InvalidData("member {} is not one of dtype, shape, data_offsets", in_quotes(name));
  }
  return Ok();
}

// begin and end are relative to the start of the data here.
StatusOr<SafetensorsEntry> parse_entry(const std::string& name, const JsonValue& facts,
                                       const SafetensorsLimits& limits, uint64_t data_bytes) {
  if (name.size() > limits.max_name_bytes)
    return InvalidData("a name of {} bytes, above {}", name.size(), limits.max_name_bytes);
  MILLRACE_RETURN_IF_ERROR(check_members(facts));
  SafetensorsEntry entry;
  entry.name = name;
  MILLRACE_ASSIGN_OR_RETURN(entry.dtype, parse_type(facts.find("dtype")));
  const JsonValue* const shape = facts.find("shape");
  const auto dims = shape == nullptr ? std::nullopt : shape->counts();
  if (!dims) return InvalidData("expected member 'shape' with a list of non-negative integers");
  if (dims->size() > limits.max_rank)
    return InvalidData("shape of {} dims, above {}", dims->size(), limits.max_rank);
  entry.dims.assign(dims->begin(), dims->end());
  const JsonValue* const offsets = facts.find("data_offsets");
  const auto range = offsets == nullptr ? std::nullopt : offsets->counts();
  if (!range || range->size() != 2)
    return InvalidData("expected member 'data_offsets' with two non-negative integers");
  entry.begin = static_cast<uint64_t>((*range)[0]);
  entry.end = static_cast<uint64_t>((*range)[1]);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return InvalidData("range [{}, {}]: expected one within the {} bytes of data", entry.begin,
                       entry.end, data_bytes);
  }
  const auto bytes = byte_count(entry.dtype, entry.dims);
  if (!bytes || *bytes != entry.end - entry.begin) {
    return InvalidData(
        "shape [{}] of {} does not fit the range [{}, {}]: expected {} bytes, found {}",
        fmt::join(entry.dims, ", "), safetensors_dtype(entry.dtype), entry.begin, entry.end,
        bytes ? std::to_string(*bytes) : "more than 2^63", entry.end - entry.begin);
  }
  return entry;
}

// Checks that each byte of the data belongs to exactly one tensor.
Status check_cover(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes,
                   const std::string& path) {
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != at) {
      return at_tensor(
          InvalidData("range [{}, {}] {} the tensor before it: expected it to begin at {}",
                      entry.begin, entry.end, entry.begin < at ? "overlaps" : "leaves a gap after",
                      at),
          path, entry.name);
    }
    at = entry.end;
  }
  if (at == data_bytes) return Ok();
  return InvalidData("expected {} bytes of data, found {}: the file is cut off or has bytes left",
                     at, data_bytes)
      .in_file(path);
}

Status read_metadata(const JsonValue& value, std::map<std::string, std::string>& metadata) {
  const auto* const members = value.get_if<JsonMembers>();
  if (members == nullptr)
    return InvalidData("__metadata__: expected an object, found {}", value.kind());
  for (const auto& [name, text] : *members) {
    const auto* const string = text.get_if<std::string>();
    if (string == nullptr)
      return InvalidData("__metadata__ {}: expected a string, found {}", in_quotes(name),
                         text.kind());
    metadata.emplace(name, *string);
  }
  return Ok();
}

StatusOr<std::string> header_text(const ReadableFile& file, const SafetensorsLimits& limits) {
  if (file.size() < kLengthBytes)
    return InvalidData("expected at least {} bytes, found {}", kLengthBytes, file.size());
  std::array<std::byte, kLengthBytes> word{};
  MILLRACE_RETURN_IF_ERROR(file.read(0, word));
  uint64_t length = 0;
  std::memcpy(&length, word.data(), word.size());  // little-endian, like every supported machine
  if (length > file.size() - kLengthBytes) {
    return InvalidData("a header of {} bytes does not fit in the {} bytes after its length", length,
                       file.size() - kLengthBytes);
  }
  if (length > limits.max_header_bytes)
    return InvalidData("a header of {} bytes, above {}", length, limits.max_header_bytes);
  std::string text(length, '\0');
  MILLRACE_RETURN_IF_ERROR(
      file.read(kLengthBytes, std::as_writable_bytes(std::span(text.data(), text.size()))));
  if (text.empty() || text.front() != '{')
    return InvalidData("expected a header that begins with '{{'");
  return text;
}

StatusOr<SafetensorsHeader> parse_header(const ReadableFile& file,
                                         const SafetensorsLimits& limits) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, header_text(file, limits));
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue root, parse_json(text, {.max_depth = 4}));
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  const uint64_t data_bytes = file.size() - header.data_begin;
  const auto* const members = root.get_if<JsonMembers>();
  if (members == nullptr) return InvalidData("expected an object, found {}", root.kind());
  for (const auto& [name, facts] : *members) {
    if (name == kMetadata) {
      MILLRACE_RETURN_IF_ERROR(read_metadata(facts, header.metadata));
      continue;
    }
    StatusOr<SafetensorsEntry> entry = parse_entry(name, facts, limits, data_bytes);
    if (!entry.ok()) return at_tensor(std::move(entry).status(), file.path(), name);
    header.entries.push_back(*std::move(entry));
  }
  // Empty tensors sort before the tensor that begins at the same byte.
  std::ranges::stable_sort(header.entries, [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  MILLRACE_RETURN_IF_ERROR(check_cover(header.entries, data_bytes, file.path()));
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin += header.data_begin;
    entry.end += header.data_begin;
  }
  return header;
}

std::string header_json(const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  JsonWriter out(0);
  out.begin_object();
  if (!metadata.empty()) {
    out.key(kMetadata).begin_object();
    for (const auto& [name, text] : metadata) out.member(name, text);
    out.end_object();
  }
  for (const SafetensorsEntry& entry : entries) {
    out.key(entry.name).begin_object().member("dtype", safetensors_dtype(entry.dtype));
    out.key("shape").begin_array();
    for (const int64_t dim : entry.dims) out.value(dim);
    out.end_array().key("data_offsets").begin_array();
    out.value(entry.begin).value(entry.end).end_array().end_object();
  }
  std::string text = out.end_object().take();
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace
}  // namespace safetensors

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& [name, known] : safetensors::kTypes)
    if (known == dtype) return name;
  return {};
}

StatusOr<SafetensorsHeader> read_safetensors_header(const ReadableFile& file,
                                                    const SafetensorsLimits& limits) {
  StatusOr<SafetensorsHeader> header = safetensors::parse_header(file, limits);
  if (header.ok() || !header.status().location().file.empty()) return header;
  return std::move(header).status().in_file(file.path());
}

SafetensorsEntry stored_form(SafetensorsEntry entry) {
  if (entry.dtype != DType::kComplex128) return entry;
  entry.dtype = DType::kFloat64;
  entry.dims.push_back(2);
  return entry;
}

StatusOr<std::string> lay_out_safetensors(std::vector<SafetensorsEntry>& entries,
                                          const std::map<std::string, std::string>& metadata) {
  using namespace safetensors;
  std::ranges::sort(entries, [](const auto& a, const auto& b) {
    const int64_t left = dtype_size(a.dtype);
    const int64_t right = dtype_size(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
  uint64_t at = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    SafetensorsEntry& entry = entries[i];
    const auto refuse = [&](Status status) { return at_tensor(std::move(status), {}, entry.name); };
    if (entry.name == kMetadata)
      return refuse(InvalidArgument("the name is reserved in safetensors files"));
    if (!is_utf8(entry.name)) return refuse(InvalidArgument("the name is not valid UTF-8"));
    if (safetensors_dtype(entry.dtype).empty()) {
      return refuse(
          Unimplemented("safetensors files have no element type for {}", dtype_name(entry.dtype)));
    }
    if (const size_t most = SafetensorsLimits().max_rank; entry.dims.size() > most)
      return refuse(InvalidArgument("{} dims, above {}", entry.dims.size(), most));
    const auto bytes = byte_count(entry.dtype, entry.dims);
    if (!bytes || __builtin_add_overflow(at, *bytes, &entry.end))
      return refuse(InvalidArgument("dims [{}] are out of range", fmt::join(entry.dims, ", ")));
    entry.begin = std::exchange(at, entry.end);
  }
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    return at_tensor(InvalidArgument("the name occurs twice"), {}, std::string(*twice));
  std::string text = header_json(entries, metadata);
  const uint64_t used = kLengthBytes + text.size();
  text.append((kDataAlignment - used % kDataAlignment) % kDataAlignment, ' ');
  uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  bytes += text;
  for (SafetensorsEntry& entry : entries) {
    entry.begin += bytes.size();
    entry.end += bytes.size();
  }
  return bytes;
}

}  // namespace millrace::io
