#include "io/npz.h"

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <llvm/ADT/StringRef.h>
#include <zip.h>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"
#include "io/byte_source.h"
#include "io/npy.h"

namespace millrace::io {
namespace {

// Deflate shrinks by 1032 at most.
constexpr uint64_t kMaxRatio = 1032;

uint64_t max_unpacked(const NpzLimits& limits, uint64_t packed) {
  const auto most = static_cast<uint64_t>(limits.max_total_bytes);
  const auto by_ratio = static_cast<uint64_t>(limits.max_ratio);
  const uint64_t usual = packed > most / by_ratio ? most : packed * by_ratio;
  return std::min(most, std::max(usual, static_cast<uint64_t>(limits.unlimited_ratio_bytes)));
}

struct ZipDiscard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Zip = std::unique_ptr<zip_t, ZipDiscard>;

struct ZipFileClose {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using ZipMember = std::unique_ptr<zip_file_t, ZipFileClose>;

StatusOr<Zip> open_zip(const std::string& path) {
  int error = 0;
  Zip archive(zip_open(path.c_str(), ZIP_RDONLY, &error));
  if (archive != nullptr) return archive;
  if (error == ZIP_ER_NOENT) return NotFound("no such file").in_file(path);
  zip_error_t text;
  zip_error_init_with_code(&text, error);
  Status status =
      InvalidData("no zip archive that can be read: {}", zip_error_strerror(&text)).in_file(path);
  zip_error_fini(&text);
  return status;
}

// The array of a member, unpacked straight into its memory.
StatusOr<Tensor> unpack(zip_t* archive, uint64_t index, const zip_stat_t& stat) {
  if (stat.size > stat.comp_size * kMaxRatio + kMaxRatio) {
    return InvalidData("{} packed bytes cannot give the {} that the archive states", stat.comp_size,
                       stat.size);
  }
  const ZipMember member(zip_fopen_index(archive, index, 0));
  if (member == nullptr) return InvalidData("{}", zip_strerror(archive));
  const auto read = [&](std::span<std::byte> to) -> Status {
    while (!to.empty()) {
      const zip_int64_t got = zip_fread(member.get(), to.data(), to.size());
      if (got <= 0) {
        return InvalidData("expected {} more bytes, found the end: {}", to.size(),
                           zip_file_strerror(member.get()));
      }
      to = to.subspan(static_cast<size_t>(got));
    }
    return Ok();
  };
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, read_npy_stream(stat.size, read));
  // Reading on to the end makes libzip compare the checksum.
  std::byte beyond{};
  if (const zip_int64_t got = zip_fread(member.get(), &beyond, 1); got != 0) {
    return got > 0 ? InvalidData("more bytes than the {} that the archive states", stat.size)
                   : InvalidData("{}", zip_file_strerror(member.get()));
  }
  return tensor;
}

StatusOr<std::string> member_name(const zip_stat_t& stat) {
  llvm::StringRef name(stat.name);
  if (!name.consume_back(".npy")) return InvalidData("expected names that end in .npy");
  return name.str();
}

// ---- conventions

using Tensors = std::map<std::string, Tensor>;

// The member, taken out; not initialized if there is none.
Tensor take(Tensors& members, const std::string& name) {
  const auto found = members.find(name);
  if (found == members.end()) return {};
  Tensor tensor = std::move(found->second);
  members.erase(found);
  return tensor;
}

StatusOr<std::vector<int64_t>> integers(const Tensor& tensor, const std::string& name) {
  std::vector<int64_t> values;
  if (tensor.dtype() == DType::kInt64) {
    const auto span = tensor.values<int64_t>();
    values.assign(span.begin(), span.end());
  } else if (tensor.dtype() == DType::kInt32) {
    const auto span = tensor.values<int32_t>();
    values.assign(span.begin(), span.end());
  } else {
    return InvalidData("member '{}': expected int64, found {}", name, describe(tensor));
  }
  return values;
}

StatusOr<int64_t> integer(const Tensor& tensor, const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, integers(tensor, name));
  if (values.size() != 1 || values[0] < 0)
    return InvalidData("member '{}': expected one number that is not negative", name);
  return values[0];
}

// Array `name` with its LoD and true dtype.
StatusOr<Tensor> take_tensor(Tensors& members, const std::string& name) {
  Tensor tensor = take(members, name);
  if (const Tensor dtype = take(members, name + ".dtype"); dtype.initialized()) {
    const std::string_view text(reinterpret_cast<const char*>(dtype.raw()),
                                static_cast<size_t>(dtype.bytes()));
    if (text != "bfloat16" || tensor.dtype() != DType::kBfloat16) {
      return InvalidData(
          "member '{}.dtype': expected the bytes of \"bfloat16\" beside uint16, found {} bytes "
          "beside {}",
          name, text.size(), describe(tensor));
    }
  }
  std::vector<LodLevel> levels;
  while (true) {
    const std::string key = fmt::format("{}.lod{}", name, levels.size());
    const Tensor offsets = take(members, key);
    if (!offsets.initialized()) break;
    MILLRACE_ASSIGN_OR_RETURN(LodLevel level, integers(offsets, key));
    levels.push_back(std::move(level));
  }
  tensor.set_lod(Lod(std::move(levels)));
  if (Status status = tensor.lod().check(tensor.rank() == 0 ? 1 : tensor.dim(0)); !status.ok())
    return InvalidData("member '{}': {}", name, status.message());
  return tensor;
}

StatusOr<Value> take_rows(Tensors& members, const std::string& name) {
  Value value;
  auto& rows = value.as<SelectedRows>();
  MILLRACE_ASSIGN_OR_RETURN(rows.rows, integers(take(members, name + ".rows"), name + ".rows"));
  const Tensor height = take(members, name + ".height");
  if (!height.initialized()) return InvalidData("member '{}.height' is missing", name);
  MILLRACE_ASSIGN_OR_RETURN(rows.height, integer(height, name + ".height"));
  MILLRACE_ASSIGN_OR_RETURN(rows.value, take_tensor(members, name));
  if (rows.value.rank() == 0 || rows.value.dim(0) != static_cast<int64_t>(rows.rows.size())) {
    return InvalidData("member '{}': expected {} rows as in '{}.rows', found {}", name,
                       rows.rows.size(), name, describe(rows.value));
  }
  for (const int64_t row : rows.rows) {
    if (row < 0 || row >= rows.height) {
      return InvalidData("member '{}.rows': expected rows below {}, found {}", name, rows.height,
                         row);
    }
  }
  return value;
}

// Elements that are not there were never written, which only a stated length can tell from the end.
StatusOr<Value> take_array(Tensors& members, const std::string& name) {
  constexpr int64_t kMaxLengthWithGaps = 65536;
  Value value;
  auto& array = value.as<TensorArray>();
  std::optional<int64_t> length;
  if (const Tensor stated = take(members, name + ".length"); stated.initialized()) {
    MILLRACE_ASSIGN_OR_RETURN(length, integer(stated, name + ".length"));
  }
  for (int64_t i = 0; !length || i < *length; ++i) {
    const std::string key = fmt::format("{}.{}", name, i);
    if (members.contains(key)) {
      MILLRACE_ASSIGN_OR_RETURN(Tensor element, take_tensor(members, key));
      array.push_back(std::move(element));
    } else if (!length) {
      break;
    } else if (*length > kMaxLengthWithGaps) {
      return InvalidData("member '{}' is missing: '{}.length' is {}", key, name, *length);
    } else {
      array.emplace_back();
    }
  }
  return value;
}

// "x" for "x.length", for "x.0", and for "x.7" beside "x.length"; empty for other names.
std::string array_of(const Tensors& members, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string tail = name.substr(dot + 1);
  std::string array = name.substr(0, dot);
  if (members.contains(array)) return {};
  if (tail == "length" || tail == "0") return array;
  const bool number = !tail.empty() && tail.find_first_not_of("0123456789") == std::string::npos;
  return number && members.contains(array + ".length") ? array : std::string();
}

StatusOr<std::map<std::string, Value>> to_values(Tensors members) {
  std::map<std::string, Value> values;
  while (!members.empty()) {
    // Companions sort behind their array, except those of tensor arrays.
    std::string name = members.begin()->first;
    if (const std::string array = array_of(members, name); !array.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(values[array], take_array(members, array));
    } else if (members.contains(name + ".rows")) {
      MILLRACE_ASSIGN_OR_RETURN(values[name], take_rows(members, name));
    } else {
      MILLRACE_ASSIGN_OR_RETURN(values[name].as<Tensor>(), take_tensor(members, name));
    }
  }
  return values;
}

// ---- writing

struct ZipSourceFree {
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};

class NpzWriter {
 public:
  // Bytes must live until finish().
  Status add(const std::string& name, const Tensor& tensor) {
    if (tensor.layout() != nullptr) {
      Tensor plain;
      MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, plain));
      return add(name, plain);
    }
    parts_.push_back({name + ".npy", npy_header(tensor)});
    std::string& bytes = parts_.back().bytes;
    bytes.append(reinterpret_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
    return Ok();
  }
  Status add_integers(const std::string& name, llvm::ArrayRef<int64_t> values, bool scalar) {
    Tensor tensor;
    const Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(values.size())};
    MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kInt64, dims));
    std::copy(values.begin(), values.end(), tensor.data<int64_t>());
    return add(name, tensor);
  }
  Status add_tensor(const std::string& name, const Tensor& tensor) {
    MILLRACE_RETURN_IF_ERROR(add(name, tensor));
    if (tensor.dtype() == DType::kBfloat16) {
      constexpr std::string_view kText = "bfloat16";
      Tensor text;
      MILLRACE_RETURN_IF_ERROR(text.resize(DType::kUint8, {static_cast<int64_t>(kText.size())}));
      std::memcpy(text.raw(), kText.data(), kText.size());
      MILLRACE_RETURN_IF_ERROR(add(name + ".dtype", text));
    }
    for (size_t i = 0; i < tensor.lod().size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(
          add_integers(fmt::format("{}.lod{}", name, i), tensor.lod().level(i), false));
    }
    return Ok();
  }

  StatusOr<std::string> finish() {
    // libzip deletes archives without members; this is the record that ends every archive.
    constexpr size_t kEndRecord = 22;
    if (parts_.empty()) return "PK\x05\x06" + std::string(kEndRecord - 4, '\0');
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const sink = zip_source_buffer_create(nullptr, 0, 0, &error);
    if (sink == nullptr) return fail(zip_error_strerror(&error));
    const std::unique_ptr<zip_source_t, ZipSourceFree> keeper(sink);
    Zip archive(zip_open_from_source(sink, ZIP_CREATE | ZIP_TRUNCATE, &error));
    if (archive == nullptr) return fail(zip_error_strerror(&error));
    zip_source_keep(sink);  // closing the archive gives up one reference
    for (const Part& part : parts_) {
      zip_source_t* const source =
          zip_source_buffer(archive.get(), part.bytes.data(), part.bytes.size(), 0);
      if (source == nullptr) return fail(zip_strerror(archive.get()));
      const zip_int64_t index =
          zip_file_add(archive.get(), part.name.c_str(), source, ZIP_FL_ENC_UTF_8);
      if (index < 0) {
        zip_source_free(source);
        return fail(zip_strerror(archive.get()));
      }
      const auto at = static_cast<zip_uint64_t>(index);
      zip_set_file_compression(archive.get(), at, ZIP_CM_STORE, 0);
      // 1 January 1980, the first moment that an archive can state
      zip_file_set_dostime(archive.get(), at, 0, (1U << 5U) | 1U, 0);
    }
    if (zip_close(archive.get()) != 0) return fail(zip_strerror(archive.get()));
    (void)archive.release();
    return read_back(sink);
  }

 private:
  struct Part {
    std::string name;
    std::string bytes;
  };
  static Status fail(const char* text) { return Internal("writing an npz archive: {}", text); }

  static StatusOr<std::string> read_back(zip_source_t* source) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (zip_source_stat(source, &stat) != 0 || zip_source_open(source) != 0)
      return fail(zip_error_strerror(zip_source_error(source)));
    std::string bytes(stat.size, '\0');
    const zip_int64_t got = zip_source_read(source, bytes.data(), bytes.size());
    zip_source_close(source);
    if (got != static_cast<zip_int64_t>(bytes.size())) return fail("cannot read it back");
    return bytes;
  }

  std::vector<Part> parts_;
};

Status add_value(NpzWriter& writer, const std::string& name, const Value& value) {
  if (!value.initialized()) return Ok();
  if (const auto* const tensor = value.get_if<Tensor>()) return writer.add_tensor(name, *tensor);
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    MILLRACE_RETURN_IF_ERROR(writer.add_tensor(name, rows->value));
    MILLRACE_RETURN_IF_ERROR(writer.add_integers(name + ".rows", rows->rows, false));
    return writer.add_integers(name + ".height", rows->height, true);
  }
  if (const auto* const array = value.get_if<TensorArray>()) {
    // readers of the archive count on a member for every element, even one that was never written
    MILLRACE_ASSIGN_OR_RETURN(const Tensor gap, Tensor::create(DType::kFloat32, {0}));
    for (size_t i = 0; i < array->size(); ++i) {
      const Tensor& element = (*array)[i];
      MILLRACE_RETURN_IF_ERROR(
          writer.add_tensor(fmt::format("{}.{}", name, i), element.initialized() ? element : gap));
    }
    return writer.add_integers(name + ".length", static_cast<int64_t>(array->size()), true);
  }
  return InvalidData("'{}' is {}, which an npz archive cannot hold", name, describe(value));
}

}  // namespace

StatusOr<std::map<std::string, Tensor>> read_npz(const std::string& path, const NpzLimits& limits) {
  // Refuses what is no regular file, and tells how much there is to unpack.
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource file, ByteSource::open(path));
  const uint64_t max_total = max_unpacked(limits, file.size());
  MILLRACE_ASSIGN_OR_RETURN(const Zip archive, open_zip(path));
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  if (count > limits.max_members) {
    return Status(StatusCode::kResource,
                  fmt::format("{} members, more than the limit of {}", count, limits.max_members))
        .in_file(path);
  }
  Tensors members;
  uint64_t total = 0;
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if (zip_stat_index(archive.get(), i, 0, &stat) != 0 || (stat.valid & kNeeded) != kNeeded)
      return InvalidData("member {}: no name or size", i).in_file(path);
    total += std::min<uint64_t>(stat.size, std::numeric_limits<uint64_t>::max() - total);
    if (total > max_total) {
      return Status(StatusCode::kResource,
                    fmt::format("more than {} bytes unpacked from {}", max_total, file.size()))
          .in_file(path);
    }
    const auto in_member = [&](const Status& status) {
      return Status(status.code(), fmt::format("member '{}': {}", stat.name, status.message()))
          .in_file(path);
    };
    StatusOr<std::string> name = member_name(stat);
    if (!name.ok()) return in_member(name.status());
    StatusOr<Tensor> tensor = unpack(archive.get(), i, stat);
    if (!tensor.ok()) return in_member(tensor.status());
    if (!members.try_emplace(*name, *std::move(tensor)).second)
      return in_member(InvalidData("it stands in the archive twice"));
  }
  return members;
}

StatusOr<std::map<std::string, Value>> read_values(const std::string& path,
                                                   const NpzLimits& limits) {
  MILLRACE_ASSIGN_OR_RETURN(Tensors members, read_npz(path, limits));
  StatusOr<std::map<std::string, Value>> values = to_values(std::move(members));
  if (!values.ok()) return std::move(values).status().in_file(path);
  return values;
}

StatusOr<std::string> npz_bytes(const std::map<std::string, Value>& values) {
  NpzWriter writer;
  for (const auto& [name, value] : values) MILLRACE_RETURN_IF_ERROR(add_value(writer, name, value));
  return writer.finish();
}

}  // namespace millrace::io
