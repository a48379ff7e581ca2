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
#include "io/npz_names.h"

namespace millrace::io {
namespace {

// Deflate cannot compress by more than a factor of 1032.
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
      InvalidData("not a readable zip archive: {}", zip_error_strerror(&text)).in_file(path);
  zip_error_fini(&text);
  return status;
}

// Unpacks the array of a member directly into its memory.
StatusOr<Tensor> unpack(zip_t* archive, uint64_t index, const zip_stat_t& stat) {
  if (stat.size > stat.comp_size * kMaxRatio + kMaxRatio) {
    return InvalidData("{} compressed bytes cannot contain the {} bytes that the archive states",
                       stat.comp_size, stat.size);
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
  // Reading past the last byte makes libzip verify the checksum.
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

// ---- naming conventions

using Tensors = std::map<std::string, Tensor>;
using Names = NpzNames;

template <typename Members>
Names names_of(const Members& members) {
  Names names;
  for (const auto& [name, member] : members) names.insert(name);
  return names;
}

// Removes the member and returns it; not initialized if there is none.
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
    return InvalidData("member '{}': expected one non-negative number", name);
  return values[0];
}

// The array `name` with its LoD and its true dtype.
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
  } else if (tensor.dtype() == DType::kBfloat16) {
    return InvalidData(
        "member '{}' is of uint16: expected a member '{}.dtype' that says \"bfloat16\"", name,
        name);
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

// Missing elements were never written. Only a stated length can tell a missing element from the
// end.
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

// The array that a member belongs to: "x" for "x.length", for "x.0", and for "x.7" if there is
// "x.length"; empty for other names.
// \param values  values found so far. If one has the name of the array, the elements are separate
//                values; companions of other values have no such effect
template <typename Members, typename Values>
std::string array_of(const Members& members, const Values& values, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string tail = name.substr(dot + 1);
  std::string array = name.substr(0, dot);
  if (values.contains(array)) return {};
  if (tail == "length" || tail == "0") return array;
  const bool number = !tail.empty() && tail.find_first_not_of("0123456789") == std::string::npos;
  return number && members.contains(array + ".length") ? array : std::string();
}

// \param others  names of values of the archive whose members are not in `members`
StatusOr<std::map<std::string, Value>> to_values(Tensors members, const Names& others) {
  std::map<std::string, Value> values;
  Names known = others;
  while (!members.empty()) {
    // The companions of a value sort after it, except those of tensor arrays.
    std::string name = members.begin()->first;
    if (const std::string array = array_of(members, known, name); !array.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(values[array], take_array(members, array));
      known.insert(array);
    } else if (members.contains(name + ".rows")) {
      MILLRACE_ASSIGN_OR_RETURN(values[name], take_rows(members, name));
      known.insert(name);
    } else {
      MILLRACE_ASSIGN_OR_RETURN(values[name].as<Tensor>(), take_tensor(members, name));
      known.insert(name);
    }
  }
  return values;
}

struct Member {
  uint64_t index = 0;
  zip_stat_t stat = {};
};

// Reads the table of members and checks it against the limits.
StatusOr<std::map<std::string, Member>> read_table(zip_t* archive, uint64_t file_bytes,
                                                   const NpzLimits& limits) {
  const uint64_t max_total = max_unpacked(limits, file_bytes);
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  if (count > limits.max_members) {
    return Status(StatusCode::kResource,
                  fmt::format("{} members, more than the limit of {}", count, limits.max_members));
  }
  std::map<std::string, Member> members;
  uint64_t total = 0;
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    Member member;
    member.index = i;
    zip_stat_init(&member.stat);
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if (zip_stat_index(archive, i, 0, &member.stat) != 0 ||
        (member.stat.valid & kNeeded) != kNeeded)
      return InvalidData("member {}: no name or size", i);
    total += std::min<uint64_t>(member.stat.size, std::numeric_limits<uint64_t>::max() - total);
    if (total > max_total) {
      return Status(StatusCode::kResource,
                    fmt::format("more than {} bytes unpacked from {}", max_total, file_bytes));
    }
    StatusOr<std::string> name = member_name(member.stat);
    if (!name.ok())
      return InvalidData("member '{}': {}", member.stat.name, name.status().message());
    if (!members.try_emplace(*name, member).second)
      return InvalidData("member '{}': it occurs twice in the archive", member.stat.name);
  }
  return members;
}

StatusOr<Tensor> unpack(zip_t* archive, const Member& member) {
  StatusOr<Tensor> tensor = unpack(archive, member.index, member.stat);
  if (tensor.ok()) return tensor;
  return Status(tensor.status().code(),
                fmt::format("member '{}': {}", member.stat.name, tensor.status().message()));
}

using Groups = std::map<std::string, std::vector<std::string>>;

// Groups members by the value that they belong to. The names are those that to_values() returns.
StatusOr<Groups> group_members(zip_t* archive, const std::map<std::string, Member>& members) {
  Names names = names_of(members);
  Groups groups;
  while (!names.empty()) {
    const std::string name = *names.begin();
    const std::string array = array_of(names, groups, name);
    std::vector<std::string>& group = groups[array.empty() ? name : array];
    if (!array.empty()) {
      std::optional<int64_t> length;
      if (const auto stated = members.find(array + ".length"); stated != members.end()) {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor tensor, unpack(archive, stated->second));
        MILLRACE_ASSIGN_OR_RETURN(length, integer(tensor, array + ".length"));
      }
      take_array_names(names, array, length, group);
      continue;
    }
    if (names.erase(name + ".rows") > 0) {
      group.push_back(name + ".rows");
      if (names.erase(name + ".height") > 0) group.push_back(name + ".height");
    }
    take_names(names, name, group);
  }
  return groups;
}

}  // namespace

struct NpzFile::Parts {
  std::string path;
  Zip archive;
  std::map<std::string, Member> members;
  std::map<std::string, std::vector<std::string>> values;
};

NpzFile::NpzFile(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
NpzFile::NpzFile(NpzFile&& other) noexcept = default;
NpzFile& NpzFile::operator=(NpzFile&& other) noexcept = default;
NpzFile::~NpzFile() = default;

StatusOr<NpzFile> NpzFile::open(const std::string& path, const NpzLimits& limits) {
  auto parts = std::make_unique<Parts>();
  parts->path = path;
  // ByteSource rejects anything but a regular file and provides the file size.
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource file, ByteSource::open(path));
  MILLRACE_ASSIGN_OR_RETURN(parts->archive, open_zip(path));
  StatusOr<std::map<std::string, Member>> members =
      read_table(parts->archive.get(), file.size(), limits);
  if (!members.ok()) return std::move(members).status().in_file(path);
  parts->members = *std::move(members);
  StatusOr<Groups> values = group_members(parts->archive.get(), parts->members);
  if (!values.ok()) return std::move(values).status().in_file(path);
  parts->values = *std::move(values);
  return NpzFile(std::move(parts));
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, members] : parts_->values) names.push_back(name);
  return names;
}

uint64_t NpzFile::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, member] : parts_->members) sum += member.stat.size;
  return sum;
}

StatusOr<Value> NpzFile::load(const std::string& name) const {
  const auto found = parts_->values.find(name);
  if (found == parts_->values.end()) return NotFound("no value '{}'", name).in_file(parts_->path);
  Tensors tensors;
  for (const std::string& member : found->second) {
    StatusOr<Tensor> tensor = unpack(parts_->archive.get(), parts_->members.at(member));
    if (!tensor.ok()) return std::move(tensor).status().in_file(parts_->path);
    tensors[member] = *std::move(tensor);
  }
  Names others = names_of(parts_->values);
  others.erase(name);
  StatusOr<std::map<std::string, Value>> values = to_values(std::move(tensors), std::move(others));
  if (!values.ok()) return std::move(values).status().in_file(parts_->path);
  const auto value = values->find(name);
  if (values->size() != 1 || value == values->end()) {
    return InvalidData("member '{}': its companion members are inconsistent", found->second.front())
        .in_file(parts_->path);
  }
  return std::move(value->second);
}

StatusOr<std::map<std::string, Tensor>> read_npz(const std::string& path, const NpzLimits& limits) {
  MILLRACE_ASSIGN_OR_RETURN(const ByteSource file, ByteSource::open(path));
  MILLRACE_ASSIGN_OR_RETURN(const Zip archive, open_zip(path));
  StatusOr<std::map<std::string, Member>> members = read_table(archive.get(), file.size(), limits);
  if (!members.ok()) return std::move(members).status().in_file(path);
  Tensors tensors;
  for (const auto& [name, member] : *members) {
    StatusOr<Tensor> tensor = unpack(archive.get(), member);
    if (!tensor.ok()) return std::move(tensor).status().in_file(path);
    tensors[name] = *std::move(tensor);
  }
  return tensors;
}

StatusOr<std::map<std::string, Value>> read_values(const std::string& path,
                                                   const NpzLimits& limits) {
  MILLRACE_ASSIGN_OR_RETURN(Tensors members, read_npz(path, limits));
  StatusOr<std::map<std::string, Value>> values = to_values(std::move(members), {});
  if (!values.ok()) return std::move(values).status().in_file(path);
  return values;
}

Status NpzStream::add_array(const std::string& name, const Tensor& tensor) {
  if (tensor.layout() != nullptr) {
    Tensor plain;
    MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, plain));
    return add_array(name, plain);
  }
  const std::string header = npy_header(tensor);
  const std::string_view pieces[] = {
      header, {reinterpret_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())}};
  return zip_.add(name + ".npy", pieces);
}

Status NpzStream::add_integers(const std::string& name, llvm::ArrayRef<int64_t> values,
                               bool scalar) {
  Tensor tensor;
  const Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(values.size())};
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kInt64, dims));
  std::copy(values.begin(), values.end(), tensor.data<int64_t>());
  return add_array(name, tensor);
}

Status NpzStream::add_tensor(const std::string& name, const Tensor& tensor) {
  MILLRACE_RETURN_IF_ERROR(add_array(name, tensor));
  if (tensor.dtype() == DType::kBfloat16) {
    constexpr std::string_view kText = "bfloat16";
    Tensor text;
    MILLRACE_RETURN_IF_ERROR(text.resize(DType::kUint8, {static_cast<int64_t>(kText.size())}));
    std::memcpy(text.raw(), kText.data(), kText.size());
    MILLRACE_RETURN_IF_ERROR(add_array(name + ".dtype", text));
  }
  for (size_t i = 0; i < tensor.lod().size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(
        add_integers(fmt::format("{}.lod{}", name, i), tensor.lod().level(i), /*scalar=*/false));
  }
  return Ok();
}

Status NpzStream::add(const std::string& name, const Value& value) {
  if (!value.initialized()) return Ok();
  if (const auto* const tensor = value.get_if<Tensor>()) return add_tensor(name, *tensor);
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    MILLRACE_RETURN_IF_ERROR(add_tensor(name, rows->value));
    MILLRACE_RETURN_IF_ERROR(add_integers(name + ".rows", rows->rows, /*scalar=*/false));
    return add_integers(name + ".height", rows->height, /*scalar=*/true);
  }
  if (const auto* const array = value.get_if<TensorArray>()) {
    // readers of the archive expect a member for every element, even one that was never written
    MILLRACE_ASSIGN_OR_RETURN(const Tensor gap, Tensor::create(DType::kFloat32, {0}));
    for (size_t i = 0; i < array->size(); ++i) {
      const Tensor& element = (*array)[i];
      MILLRACE_RETURN_IF_ERROR(
          add_tensor(fmt::format("{}.{}", name, i), element.initialized() ? element : gap));
    }
    return add_integers(name + ".length", static_cast<int64_t>(array->size()), /*scalar=*/true);
  }
  return InvalidData("'{}' is {}, which an npz archive cannot hold", name, describe(value));
}

StatusOr<std::string> npz_bytes(const std::map<std::string, Value>& values) {
  std::string bytes;
  NpzStream stream([&](std::span<const std::string_view> pieces) {
    for (const std::string_view piece : pieces) bytes += piece;
    return Ok();
  });
  for (const auto& [name, value] : values) MILLRACE_RETURN_IF_ERROR(stream.add(name, value));
  MILLRACE_RETURN_IF_ERROR(stream.finish());
  return bytes;
}

}  // namespace millrace::io
