#include "io/param_header.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/base/errors.h"
#include "framework/wire.h"

namespace millrace::io {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kWindow = 16384;       // one read covers the header and all of a small var
constexpr uint64_t kMaxLodLevels = 1024;  // known files have at most 3
constexpr uint64_t kMaxDescriptor = 65536;
constexpr size_t kParamHeaderMaxRank = 9;  // maximum rank in the original

namespace tensor_field {
constexpr uint32_t kDataType = 1, kDims = 2;
}

Status add_dim(Dims& dims, uint64_t value) {
  const auto dim = static_cast<int64_t>(value);
  if (dim < 0) return InvalidData("dim {}: expected at least 0, found {}", dims.size(), dim);
  if (dims.size() == kParamHeaderMaxRank)
    return InvalidData("expected at most {} dims", kParamHeaderMaxRank);
  dims.push_back(dim);
  return Ok();
}

// A packed list of numbers in one field, the alternative encoding of dims.
Status add_packed(Dims& dims, llvm::StringRef bytes) {
  uint64_t value = 0;
  unsigned shift = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (shift > 63) return InvalidData("a dim above 64 bits");
    value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
    shift += 7;
    if ((byte & 0x80U) != 0) continue;
    MILLRACE_RETURN_IF_ERROR(add_dim(dims, value));
    value = 0;
    shift = 0;
  }
  return shift == 0 ? Ok() : InvalidData("a dim that is cut off");
}

// Message VarType.TensorDesc.
Status parse_descriptor(llvm::StringRef bytes, ParamHeader& header) {
  wire::Reader reader(bytes);
  wire::Field field;
  bool has_type = false;
  while (reader.next(field)) {
    if (field.number == tensor_field::kDataType && field.type == wire::Type::kVarint) {
      header.dtype = static_cast<DType>(field.varint);
      if (field.varint > 1000 || dtype_size(header.dtype) == 0)
        return InvalidData("expected the number of an element type, found {}", field.varint);
      has_type = true;
    } else if (field.number == tensor_field::kDims && field.type == wire::Type::kVarint) {
      MILLRACE_RETURN_IF_ERROR(add_dim(header.dims, field.varint));
    } else if (field.number == tensor_field::kDims && field.type == wire::Type::kBytes) {
      MILLRACE_RETURN_IF_ERROR(add_packed(header.dims, field.bytes));
    }
  }
  if (reader.failed()) return InvalidData("{}", reader.error());
  return has_type ? Ok() : InvalidData("it names no element type");
}

Status check_rows(const ParamHeader& header) {
  const auto count = static_cast<int64_t>(header.rows.size());
  if (header.dims.empty() || header.dims[0] != count) {
    return InvalidData("expected dim 0 to be the {} rows, found {}", count,
                       header.dims.empty() ? "rank 0" : std::to_string(header.dims[0]));
  }
  for (const int64_t row : header.rows) {
    if (row < 0 || row >= header.height)
      return InvalidData("expected rows from 0 to {}, found {}", header.height - 1, row);
  }
  return Ok();
}

template <typename T>
void put_param_header(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
void put_array(std::string& out, llvm::ArrayRef<T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Writes the tensor version and descriptor, which are between LoD or rows and the elements.
void put_descriptor(std::string& out, DType dtype, llvm::ArrayRef<int64_t> dims) {
  std::string descriptor;
  wire::put_int(descriptor, tensor_field::kDataType, static_cast<int64_t>(dtype));
  for (const int64_t dim : dims) wire::put_int(descriptor, tensor_field::kDims, dim);
  put_param_header<uint32_t>(out, 0);
  put_param_header<int32_t>(out, static_cast<int32_t>(descriptor.size()));
  out += descriptor;
}

}  // namespace

ParamReader::ParamReader(const ByteSource& source, uint64_t begin) : source_(&source), at_(begin) {}

// Makes the window hold `bytes` bytes starting at at_; they must be within the file.
Status ParamReader::fill(uint64_t bytes) {
  const uint64_t end = window_begin_ + window_.size();
  if (at_ >= window_begin_ && at_ <= end && bytes <= end - at_) return Ok();
  window_.resize(std::min(std::max(bytes, kWindow), left()));
  window_begin_ = at_;
  const Status status = source_->read(at_, window_);
  if (!status.ok()) window_.clear();
  return status;
}

Status ParamReader::take(std::span<std::byte> to, const char* what) {
  if (to.size() > left()) {
    return InvalidData("{}: expected {} bytes at byte {}, found {}: the file is cut off", what,
                       to.size(), at_, left());
  }
  if (to.size() > kWindow) {
    MILLRACE_RETURN_IF_ERROR(source_->read(at_, to));
  } else if (!to.empty()) {
    MILLRACE_RETURN_IF_ERROR(fill(to.size()));
    std::memcpy(to.data(), window_.data() + (at_ - window_begin_), to.size());
  }
  at_ += to.size();
  return Ok();
}

template <typename T>
StatusOr<T> ParamReader::number(const char* what) {
  T value{};
  MILLRACE_RETURN_IF_ERROR(take(std::as_writable_bytes(std::span(&value, 1)), what));
  return value;
}

StatusOr<std::vector<int64_t>> ParamReader::numbers(uint64_t bytes, const char* what) {
  if (bytes % sizeof(int64_t) != 0)
    return InvalidData("{} at byte {}: expected a multiple of 8 bytes, found {}", what, at_, bytes);
  if (bytes > left()) {
    return InvalidData("{}: expected {} bytes at byte {}, found {}: the file is cut off", what,
                       bytes, at_, left());
  }
  std::vector<int64_t> values(bytes / sizeof(int64_t));
  MILLRACE_RETURN_IF_ERROR(take(std::as_writable_bytes(std::span(values)), what));
  return values;
}

bool ParamReader::copy_buffered(uint64_t offset, std::span<std::byte> to) const {
  const uint64_t end = window_begin_ + window_.size();
  if (offset < window_begin_ || offset > end || to.size() > end - offset) return false;
  if (!to.empty()) std::memcpy(to.data(), window_.data() + (offset - window_begin_), to.size());
  return true;
}

Status ParamReader::read_lod(ParamHeader& header) {
  const uint64_t begin = at_;
  MILLRACE_ASSIGN_OR_RETURN(const auto count, number<uint64_t>("number of LoD levels"));
  if (count > kMaxLodLevels) {
    return InvalidData("number of LoD levels at byte {}: expected at most {}, found {}", begin,
                       kMaxLodLevels, count);
  }
  std::vector<LodLevel> levels;
  for (uint64_t i = 0; i < count; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const auto bytes, number<uint64_t>("size of a LoD level"));
    MILLRACE_ASSIGN_OR_RETURN(LodLevel level, numbers(bytes, "LoD level"));
    levels.push_back(std::move(level));
  }
  header.lod = Lod(std::move(levels));
  return Ok();
}

Status ParamReader::read_rows(ParamHeader& header) {
  const uint64_t begin = at_;
  MILLRACE_ASSIGN_OR_RETURN(const auto count, number<uint64_t>("number of rows"));
  if (count > left() / sizeof(int64_t)) {
    return InvalidData("number of rows at byte {}: found {}, but only {} bytes follow", begin,
                       count, left());
  }
  MILLRACE_ASSIGN_OR_RETURN(header.rows, numbers(count * sizeof(int64_t), "rows"));
  MILLRACE_ASSIGN_OR_RETURN(header.height, number<int64_t>("height"));
  if (header.height < 0) return InvalidData("height: expected at least 0, found {}", header.height);
  return Ok();
}

Status ParamReader::read_tensor(ParamHeader& header) {
  uint64_t begin = at_;
  MILLRACE_ASSIGN_OR_RETURN(const auto version, number<uint32_t>("tensor version"));
  if (version != 0)
    return InvalidData("tensor version at byte {}: expected 0, found {}", begin, version);
  begin = at_;
  MILLRACE_ASSIGN_OR_RETURN(const auto size, number<int32_t>("size of the tensor descriptor"));
  if (size < 0 || static_cast<uint64_t>(size) > std::min(left(), kMaxDescriptor)) {
    return InvalidData("size of the tensor descriptor at byte {}: expected 0 to {}, found {}",
                       begin, std::min(left(), kMaxDescriptor), size);
  }
  std::string descriptor(static_cast<size_t>(size), '\0');
  begin = at_;
  MILLRACE_RETURN_IF_ERROR(
      take(std::as_writable_bytes(std::span(descriptor)), "tensor descriptor"));
  if (const Status status = parse_descriptor(descriptor, header); !status.ok())
    return InvalidData("tensor descriptor at byte {}: {}", begin, status.message());
  const std::optional<int64_t> count = element_count(header.dims);
  int64_t bytes = 0;
  const bool overflow = !count || __builtin_mul_overflow(*count, dtype_size(header.dtype), &bytes);
  header.data_begin = at_;
  if (overflow || static_cast<uint64_t>(bytes) > left()) {
    return InvalidData(
        "data of {} [{}] at byte {}: expected {} bytes, found {}: the file is cut "
        "off or the dims are wrong",
        dtype_name(header.dtype), fmt::join(header.dims, ", "), at_,
        overflow ? "2^63 or more" : std::to_string(bytes), left());
  }
  header.data_bytes = static_cast<uint64_t>(bytes);
  at_ += header.data_bytes;
  return Ok();
}

StatusOr<ParamHeader> ParamReader::next(VarKind kind) {
  ParamHeader header;
  header.kind = kind;
  header.begin = at_;
  MILLRACE_ASSIGN_OR_RETURN(const auto version, number<uint32_t>("version"));
  if (version != 0)
    return InvalidData("version at byte {}: expected 0, found {}", header.begin, version);
  if (kind == VarKind::kSelectedRows) {
    MILLRACE_RETURN_IF_ERROR(read_rows(header));
    MILLRACE_RETURN_IF_ERROR(read_tensor(header));
    MILLRACE_RETURN_IF_ERROR(check_rows(header));
    return header;
  }
  MILLRACE_RETURN_IF_ERROR(read_lod(header));
  MILLRACE_RETURN_IF_ERROR(read_tensor(header));
  const int64_t rows = header.dims.empty() ? 1 : header.dims[0];
  MILLRACE_RETURN_IF_ERROR(header.lod.check(rows));
  return header;
}

StatusOr<std::string> param_header_bytes(const Value& value) {
  const auto* tensor = value.get_if<Tensor>();
  const auto* const rows = value.get_if<SelectedRows>();
  if (tensor == nullptr && rows != nullptr) tensor = &rows->value;
  if (tensor == nullptr || !tensor->initialized())
    return InvalidData("expected a tensor or selected rows with data, found {}", describe(value));
  if (tensor->rank() > kParamHeaderMaxRank)
    return InvalidData("expected at most {} dims, found {}", kParamHeaderMaxRank, tensor->rank());
  std::string out;
  put_param_header<uint32_t>(out, 0);
  if (rows != nullptr) {
    ParamHeader header;
    header.dims.assign(tensor->dims().begin(), tensor->dims().end());
    header.rows = rows->rows;
    header.height = rows->height;
    MILLRACE_RETURN_IF_ERROR(check_rows(header));
    put_param_header<uint64_t>(out, rows->rows.size());
    put_array<int64_t>(out, rows->rows);
    put_param_header<int64_t>(out, rows->height);
  } else {
    MILLRACE_RETURN_IF_ERROR(tensor->lod().check(tensor->rank() == 0 ? 1 : tensor->dim(0)));
    put_param_header<uint64_t>(out, tensor->lod().size());
    for (const LodLevel& level : tensor->lod().levels()) {
      put_param_header<uint64_t>(out, level.size() * sizeof(int64_t));
      put_array<int64_t>(out, level);
    }
  }
  put_descriptor(out, tensor->dtype(), tensor->dims());
  return out;
}

StatusOr<std::string> tensor_header_bytes(DType dtype, llvm::ArrayRef<int64_t> dims) {
  if (dims.size() > kParamHeaderMaxRank)
    return InvalidData("expected at most {} dims, found {}", kParamHeaderMaxRank, dims.size());
  std::string out;
  put_param_header<uint32_t>(out, 0);
  put_param_header<uint64_t>(out, 0);  // levels of LoD
  put_descriptor(out, dtype, dims);
  return out;
}

}  // namespace millrace::io
