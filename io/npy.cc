#include "io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "framework/base/errors.h"
#include "io/byte_source.h"

namespace millrace::io {
namespace npy {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kNpyMaxRank = 32;

struct Header {
  std::string type;  ///< "<f4"
  bool fortran = false;
  Dims dims;
  uint64_t data_begin = 0;
};

// Parses the header, a Python dict literal with three known keys.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  Status read(Header& header) {
    if (!take('{')) return fail("'{'");
    bool has_type = false;
    bool has_order = false;
    bool has_shape = false;
    while (!take('}')) {
      std::string key;
      if (!read_string(key) || !take(':')) return fail("a key and ':'");
      if (key == "descr") {
        if (!read_string(header.type)) return fail("a plain type string");
        has_type = true;
      } else if (key == "fortran_order") {
        if (!read_bool(header.fortran)) return fail("True or False");
        has_order = true;
      } else if (key == "shape") {
        if (!read_shape(header.dims)) return fail("a tuple of sizes");
        has_shape = true;
      } else {
        return InvalidData("npy header: unknown key '{}'", key);
      }
      if (!take(',') && peek() != '}') return fail("',' or '}'");
    }
    if (!has_type || !has_order || !has_shape)
      return InvalidData("npy header: expected the keys descr, fortran_order and shape");
    return Ok();
  }

 private:
  Status fail(const char* expected) const {
    return InvalidData("npy header: expected {} at byte {}", expected, at_);
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool read_string(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool read_bool(bool& out) {
    skip();
    const std::string_view rest = text_.substr(at_);
    out = rest.starts_with("True");
    if (!out && !rest.starts_with("False")) return false;
    at_ += out ? 4 : 5;
    return true;
  }
  bool read_shape(Dims& dims) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip();
      int64_t dim = -1;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0 || dims.size() == kNpyMaxRank) return false;
      dims.push_back(dim);
      at_ = static_cast<size_t>(end - text_.data());
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

using ReadBytes = llvm::function_ref<Status(std::span<std::byte>)>;

// Reads the text of the header. Version 1 stores its length in 2 bytes, later versions in 4.
StatusOr<std::string> read_header_text(uint64_t size, ReadBytes read, uint64_t& data_begin) {
  constexpr uint64_t kPrefix = 8;
  std::array<uint8_t, 12> bytes{};
  const auto take = [&](size_t begin, size_t count) {
    return read(std::as_writable_bytes(std::span(bytes).subspan(begin, count)));
  };
  if (size < kPrefix + 2) return InvalidData("not an npy file: found only {} bytes", size);
  MILLRACE_RETURN_IF_ERROR(take(0, kPrefix));
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                  [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }))
    return InvalidData("not an npy file: expected the bytes \\x93NUMPY at its start");
  const int version = bytes[6];
  if (version < 1 || version > 3)
    return InvalidData("npy version: expected 1 to 3, found {}", version);
  const size_t digits = version == 1 ? 2 : 4;
  if (size < kPrefix + digits) return InvalidData("npy header: expected its length at byte 8");
  MILLRACE_RETURN_IF_ERROR(take(kPrefix, digits));
  uint64_t length = 0;
  for (size_t i = 0; i < digits; ++i) length |= uint64_t{bytes[kPrefix + i]} << (8 * i);
  data_begin = kPrefix + digits + length;
  constexpr uint64_t kMaxHeader = uint64_t{1} << 20U;  // realistic headers have at most 200 bytes
  const uint64_t most = std::min(kMaxHeader, size - kPrefix - digits);
  if (length > most)
    return InvalidData("npy header: expected at most {} bytes, found {}", most, length);
  std::string text(length, '\0');
  MILLRACE_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(text))));
  return text;
}

StatusOr<Header> read_header(uint64_t size, ReadBytes read) {
  Header header;
  MILLRACE_ASSIGN_OR_RETURN(const std::string text,
                            read_header_text(size, read, header.data_begin));
  MILLRACE_RETURN_IF_ERROR(DictReader(text).read(header));
  return header;
}

struct ElementType {
  DType dtype;
  size_t size;
  bool swapped = false;
  size_t swap_size = 0;      ///< size of the unit whose bytes are swapped; 0: the whole element
  bool is_unsigned = false;  ///< 32 or 64 bits; values must fit the signed type
};

std::optional<ElementType> element_type(std::string_view type) {
  if (type.size() < 3) return std::nullopt;
  const char order = type[0];
  if (order != '<' && order != '>' && order != '|' && order != '=') return std::nullopt;
  struct Row {
    std::string_view name;
    ElementType type;
  };
  static constexpr Row kRows[] = {{"b1", {DType::kBool, 1}},
                                  {"i1", {DType::kInt8, 1}},
                                  {"u1", {DType::kUint8, 1}},
                                  {"i2", {DType::kInt16, 2}},
                                  {"u2", {DType::kBfloat16, 2}},
                                  {"i4", {DType::kInt32, 4}},
                                  {"u4", {DType::kInt32, 4, false, 0, true}},
                                  {"i8", {DType::kInt64, 8}},
                                  {"u8", {DType::kInt64, 8, false, 0, true}},
                                  {"f2", {DType::kFloat16, 2}},
                                  {"f4", {DType::kFloat32, 4}},
                                  {"f8", {DType::kFloat64, 8}},
                                  {"c8", {DType::kComplex64, 8}},
                                  {"c16", {DType::kComplex128, 16}}};
  for (const Row& row : kRows) {
    if (row.name != type.substr(1)) continue;
    ElementType found = row.type;
    found.swapped = order == '>' && found.size > 1;
    // a complex number is two floats
    found.swap_size = row.name[0] == 'c' ? found.size / 2 : found.size;
    return found;
  }
  return std::nullopt;
}

void swap_bytes(std::byte* data, size_t count, size_t size) {
  for (size_t i = 0; i < count; ++i) std::reverse(data + i * size, data + (i + 1) * size);
}

// Fortran order to C order.
void reorder(const std::byte* from, Tensor& to, size_t size) {
  const llvm::ArrayRef<int64_t> dims = to.dims();
  std::vector<int64_t> index(dims.size(), 0);
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  for (int64_t k = 0; k < to.numel(); ++k) {
    int64_t at = 0;
    for (size_t i = 0; i < dims.size(); ++i) at += index[i] * strides[i];
    std::memcpy(to.raw() + static_cast<size_t>(k) * size, from + static_cast<size_t>(at) * size,
                size);
    for (size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
}

Status check_unsigned(const Tensor& tensor) {
  const bool bad =
      tensor.dtype() == DType::kInt32
          ? std::ranges::any_of(tensor.values<int32_t>(), [](int32_t v) { return v < 0; })
          : std::ranges::any_of(tensor.values<int64_t>(), [](int64_t v) { return v < 0; });
  return bad ? InvalidData("npy: unsigned values beyond the range of {}",
                           dtype_name(tensor.dtype()))
             : Ok();
}

std::string_view npy_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "|b1";
    case DType::kInt8:
      return "|i1";
    case DType::kUint8:
      return "|u1";
    case DType::kInt16:
      return "<i2";
    case DType::kBfloat16:
      return "<u2";
    case DType::kInt32:
      return "<i4";
    case DType::kInt64:
      return "<i8";
    case DType::kSizeT:
      return "<u8";
    case DType::kFloat16:
      return "<f2";
    case DType::kFloat32:
      return "<f4";
    case DType::kFloat64:
      return "<f8";
    case DType::kComplex64:
      return "<c8";
    case DType::kComplex128:
      return "<c16";
  }
  return "?";
}

// Interprets the bytes after they are in C order.
Status finish(Tensor& tensor, const ElementType& type) {
  const auto count = static_cast<size_t>(tensor.numel());
  if (type.swapped) {
    swap_bytes(tensor.raw(), count * (type.size / type.swap_size), type.swap_size);
  }
  if (type.is_unsigned) return check_unsigned(tensor);
  if (tensor.dtype() == DType::kBool) {
    for (std::byte& v : std::span(tensor.raw(), count)) v = std::byte{v != std::byte{0}};
  }
  return Ok();
}

}  // namespace
}  // namespace npy

StatusOr<Tensor> read_npy_stream(uint64_t size, npy::ReadBytes read) {
  using namespace npy;
  static_assert(std::endian::native == std::endian::little);
  MILLRACE_ASSIGN_OR_RETURN(const Header header, read_header(size, read));
  const std::optional<ElementType> type = element_type(header.type);
  if (!type) {
    return InvalidData("npy type '{}': expected bool, an integer, a float or a complex number",
                       header.type);
  }
  auto needed = static_cast<int64_t>(type->size);
  for (const int64_t dim : header.dims) {
    if (__builtin_mul_overflow(needed, dim, &needed))
      return InvalidData("npy: the product of the sizes is too large");
  }
  if (const uint64_t there = size - header.data_begin; static_cast<uint64_t>(needed) != there)
    return InvalidData("npy: expected {} bytes of data for its shape, found {}", needed, there);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(type->dtype, header.dims));
  MILLRACE_RETURN_IF_ERROR(read({tensor.raw(), static_cast<size_t>(needed)}));
  if (header.fortran && header.dims.size() > 1) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor ordered, Tensor::create(type->dtype, header.dims));
    reorder(tensor.raw(), ordered, type->size);
    tensor = std::move(ordered);
  }
  MILLRACE_RETURN_IF_ERROR(finish(tensor, *type));
  return tensor;
}

StatusOr<Tensor> parse_npy(std::string_view bytes) {
  return read_npy_stream(bytes.size(), [&](std::span<std::byte> to) {
    if (!to.empty()) std::memcpy(to.data(), bytes.data(), to.size());
    bytes.remove_prefix(to.size());
    return Ok();
  });
}

StatusOr<Tensor> read_npy(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource source, ByteSource::open(path));
  uint64_t at = 0;
  StatusOr<Tensor> tensor = read_npy_stream(source.size(), [&](std::span<std::byte> to) {
    at += to.size();
    return source.read(at - to.size(), to);
  });
  if (!tensor.ok()) return std::move(tensor).status().in_file(path);
  return tensor;
}

std::string npy_header(const Tensor& tensor) {
  using namespace npy;
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (", npy_type(tensor.dtype()));
  for (size_t i = 0; i < tensor.rank(); ++i)
    dict += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.dims()[i]);
  dict += tensor.rank() == 1 ? ",), }" : "), }";
  constexpr size_t kPrefix = 10;
  const size_t total = (kPrefix + dict.size() + 1 + 63) / 64 * 64;
  dict.append(total - kPrefix - dict.size() - 1, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dict.size() & 0xffU);
  header += static_cast<char>(dict.size() >> 8U);
  return header + dict;
}

}  // namespace millrace::io
