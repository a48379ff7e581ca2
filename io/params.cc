#include "io/params.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"
#include "io/normalize_bools.h"
#include "io/output_file.h"
#include "io/parallel_for.h"
#include "io/param_header.h"
#include "io/params_manifest.h"
#include "io/paths.h"

namespace millrace::io {
namespace params {
namespace {

// Larger values are split into parts of this size, which several threads read.
constexpr uint64_t kPart = uint64_t{4} << 20U;

Location at_var(const ByteSource& source, const std::string& name) {
  Location location;
  location.file = source.name();
  location.var = name;
  return location;
}

Status check_params(const ParamHeader& header, const ParamSpec& spec) {
  if (spec.dtype && *spec.dtype != header.dtype) {
    return InvalidData("var at byte {}: expected dtype {}, found {}", header.begin,
                       dtype_name(*spec.dtype), dtype_name(header.dtype));
  }
  if (!spec.dims) return Ok();
  // The rows of a sparse table grow, so its first dim is not checked.
  const bool sparse = header.kind == VarKind::kSelectedRows;
  bool fits = spec.dims->size() == header.dims.size();
  for (size_t i = sparse ? 1 : 0; fits && i < header.dims.size(); ++i)
    fits = (*spec.dims)[i] == -1 || (*spec.dims)[i] == header.dims[i];
  if (fits) return Ok();
  return InvalidData("var at byte {}: expected dims [{}], found [{}]", header.begin,
                     fmt::join(*spec.dims, ", "), fmt::join(header.dims, ", "));
}

Status left_over(const ByteSource& source, const ParamReader& reader, size_t vars) {
  if (reader.at_end()) return Ok();
  return InvalidData("expected {} var{} and the end of the file at byte {}, found {} more bytes",
                     vars, vars == 1 ? "" : "s", reader.position(),
                     source.size() - reader.position())
      .in_file(source.name());
}

// Elements that are still to be read from the file, and their destination.
struct Pending {
  uint64_t offset;
  std::span<std::byte> to;
};

std::span<std::byte> memory_of(Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

Tensor& tensor_of(Value& value) {
  auto* const rows = value.get_if<SelectedRows>();
  return rows == nullptr ? value.as<Tensor>() : rows->value;
}

// Allocates the memory for a value. Small values are copied from the buffer at once; others are
// added to `rest`.
StatusOr<Value> place_params(const ParamReader& reader, ParamHeader header,
                             std::vector<Pending>& rest) {
  Value value;
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(header.dtype, header.dims));
  const std::span<std::byte> to = memory_of(tensor);
  if (!reader.copy_buffered(header.data_begin, to)) rest.push_back({header.data_begin, to});
  if (header.kind == VarKind::kSelectedRows) {
    value.as<SelectedRows>() = {std::move(header.rows), header.height, std::move(tensor)};
  } else {
    tensor.set_lod(std::move(header.lod));
    value.as<Tensor>() = std::move(tensor);
  }
  return value;
}

Status read_pending(const ByteSource& source, const std::vector<Pending>& pending, int threads) {
  std::vector<Pending> parts;
  for (const Pending& whole : pending) {
    for (size_t begin = 0; begin < whole.to.size(); begin += kPart) {
      const size_t size = std::min<size_t>(kPart, whole.to.size() - begin);
      parts.push_back({whole.offset + begin, whole.to.subspan(begin, size)});
    }
  }
  return parallel_for(threads, parts.size(),
                      [&](size_t i) { return source.read(parts[i].offset, parts[i].to); })
      .in_file(source.name());
}

template <typename T>
Status to_float16(Tensor& tensor) {
  Tensor half;
  MILLRACE_RETURN_IF_ERROR(half.resize(DType::kFloat16, tensor.dims()));
  std::ranges::transform(tensor.values<T>(), half.data<Float16>(),
                         [](T value) { return Float16(static_cast<float>(value)); });
  half.set_lod(tensor.lod());
  tensor = std::move(half);
  return Ok();
}

// Post-processing after the elements have been read.
Status finish(Value& value, const LoadOptions& options) {
  Tensor& tensor = tensor_of(value);
  normalize_bools(tensor);
  if (!options.as_float16) return Ok();
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return to_float16<float>(tensor);
    case DType::kFloat64:
      return to_float16<double>(tensor);
    case DType::kBfloat16:
      return to_float16<Bfloat16>(tensor);
    default:
      return Ok();
  }
}

// Checks one var of a file and allocates its value.
StatusOr<Value> next_value(ParamReader& reader, const ParamSpec& spec, std::vector<Pending>& rest) {
  MILLRACE_ASSIGN_OR_RETURN(ParamHeader header, reader.next(spec.kind));
  MILLRACE_RETURN_IF_ERROR(check_params(header, spec));
  return place_params(reader, std::move(header), rest);
}

Status of_combined(Status status, const ByteSource& source, llvm::ArrayRef<ParamSpec> specs,
                   size_t index) {
  return std::move(status)
      .at(at_var(source, specs[index].name))
      .with_note(
          fmt::format("var {} of {} in a combined file, which holds no names: the vars are in the "
                      "order of their names",
                      index, specs.size()));
}

Status listed_twice(const ByteSource& source, const ParamSpec& spec) {
  return InvalidArgument("the var is listed twice").at(at_var(source, spec.name));
}

// Views of the bytes to write, and the memory that the views refer to.
struct Pieces {
  std::vector<std::string> headers;
  std::vector<std::string_view> views;
  std::vector<Tensor> plain;  ///< row-major copies of tensors in a library's layout
  uint64_t bytes = 0;
};

StatusOr<Pieces> pieces_of(llvm::ArrayRef<NamedValue> values) {
  Pieces pieces;
  pieces.headers.reserve(values.size());  // views into these must stay valid
  pieces.plain.reserve(values.size());
  for (const NamedValue& named : values) {
    StatusOr<std::string> header = param_header_bytes(*named.value);
    if (!header.ok()) {
      Location location;
      location.var = named.name;
      return std::move(header).status().at(std::move(location));
    }
    pieces.headers.push_back(*std::move(header));
    pieces.views.push_back(pieces.headers.back());
    const auto* const rows = named.value->get_if<SelectedRows>();
    const Tensor* held = rows == nullptr ? named.value->get_if<Tensor>() : &rows->value;
    if (held->layout() != nullptr) {
      MILLRACE_RETURN_IF_ERROR(copy_plain(*held, pieces.plain.emplace_back()));
      held = &pieces.plain.back();
    }
    const Tensor& tensor = *held;
    pieces.views.emplace_back(reinterpret_cast<const char*>(tensor.raw()),
                              static_cast<size_t>(tensor.bytes()));
    pieces.bytes += pieces.headers.back().size() + pieces.views.back().size();
  }
  return pieces;
}

}  // namespace
}  // namespace params

StatusOr<Value> load_param(const ByteSource& source, const ParamSpec& spec,
                           const LoadOptions& options) {
  using namespace params;
  ParamReader reader(source);
  std::vector<Pending> rest;
  StatusOr<Value> value = next_value(reader, spec, rest);
  if (!value.ok()) return std::move(value).status().at(at_var(source, spec.name));
  MILLRACE_RETURN_IF_ERROR(left_over(source, reader, 1).at(at_var(source, spec.name)));
  MILLRACE_RETURN_IF_ERROR(read_pending(source, rest, options.threads));
  MILLRACE_RETURN_IF_ERROR(finish(*value, options));
  return value;
}

StatusOr<Value> load_param_slice(const ByteSource& source, const ParamSpec& spec, int64_t seek,
                                 llvm::ArrayRef<int64_t> shape, const LoadOptions& options) {
  using namespace params;
  const Location location = at_var(source, spec.name);
  ParamReader reader(source);
  StatusOr<ParamHeader> header = reader.next(spec.kind);
  if (!header.ok()) return std::move(header).status().at(location);
  MILLRACE_RETURN_IF_ERROR(check_params(*header, spec).at(location));
  MILLRACE_RETURN_IF_ERROR(left_over(source, reader, 1).at(location));
  if (header->kind != VarKind::kLodTensor)
    return InvalidArgument("seek: only dense tensors have parts, found selected rows").at(location);
  const int64_t size = dtype_size(header->dtype);
  const int64_t there = static_cast<int64_t>(header->data_bytes) / size;
  const std::optional<int64_t> wanted = element_count(shape);
  if (seek < 0 || !wanted || *wanted < 0 || seek > there || *wanted > there - seek) {
    return InvalidArgument("seek {}, shape [{}]: expected a part of the {} elements of [{}]", seek,
                           fmt::join(shape, ", "), there, fmt::join(header->dims, ", "))
        .at(location);
  }
  Value value;
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(header->dtype, shape));
  const uint64_t begin = header->data_begin + static_cast<uint64_t>(seek * size);
  MILLRACE_RETURN_IF_ERROR(read_pending(source, {{begin, memory_of(tensor)}}, options.threads));
  value.as<Tensor>() = std::move(tensor);
  MILLRACE_RETURN_IF_ERROR(finish(value, options));
  return value;
}

StatusOr<ParamValues> load_combined(const ByteSource& source, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options) {
  using namespace params;
  ParamReader reader(source);
  ParamValues values;
  std::vector<Pending> rest;
  for (size_t i = 0; i < specs.size(); ++i) {
    StatusOr<Value> value = next_value(reader, specs[i], rest);
    if (!value.ok()) return of_combined(std::move(value).status(), source, specs, i);
    if (!values.try_emplace(specs[i].name, *std::move(value)).second)
      return listed_twice(source, specs[i]);
  }
  MILLRACE_RETURN_IF_ERROR(left_over(source, reader, specs.size()));
  MILLRACE_RETURN_IF_ERROR(read_pending(source, rest, options.threads));
  for (auto& [name, value] : values) MILLRACE_RETURN_IF_ERROR(finish(value, options));
  return values;
}

StatusOr<CombinedParams> CombinedParams::open(const std::string& path,
                                              llvm::ArrayRef<ParamSpec> specs) {
  using namespace params;
  MILLRACE_ASSIGN_OR_RETURN(ByteSource file, ByteSource::open(path));
  CombinedParams opened(std::move(file));
  ParamReader reader(opened.source_);
  for (size_t i = 0; i < specs.size(); ++i) {
    StatusOr<ParamHeader> header = reader.next(specs[i].kind);
    Status status = header.ok() ? check_params(*header, specs[i]) : header.status();
    if (!status.ok()) return of_combined(std::move(status), opened.source_, specs, i);
    if (!opened.places_.try_emplace(specs[i].name, Place{specs[i], header->begin}).second)
      return listed_twice(opened.source_, specs[i]);
  }
  MILLRACE_RETURN_IF_ERROR(left_over(opened.source_, reader, specs.size()));
  return opened;
}

std::vector<std::string> CombinedParams::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

StatusOr<Value> CombinedParams::load(const std::string& name, const LoadOptions& options) const {
  using namespace params;
  const auto place = places_.find(name);
  if (place == places_.end()) return NotFound("no such var").at(at_var(source_, name));
  ParamReader reader(source_, place->second.begin);
  std::vector<Pending> rest;
  StatusOr<Value> value = next_value(reader, place->second.spec, rest);
  if (!value.ok()) return std::move(value).status().at(at_var(source_, name));
  MILLRACE_RETURN_IF_ERROR(read_pending(source_, rest, options.threads));
  MILLRACE_RETURN_IF_ERROR(finish(*value, options));
  return value;
}

StatusOr<ParamValues> load_separate(const std::string& folder, llvm::ArrayRef<ParamSpec> specs,
                                    const LoadOptions& options) {
  std::vector<Value> loaded(specs.size());
  LoadOptions of_file = options;
  if (specs.size() > 1) of_file.threads = 1;  // the threads read different files, not parts of one
  MILLRACE_RETURN_IF_ERROR(parallel_for(options.threads, specs.size(), [&](size_t i) -> Status {
    const auto named = [&](Status status) {
      Location location = status.location();
      location.var = specs[i].name;
      return std::move(status).at(std::move(location));
    };
    StatusOr<std::string> path = path_below(folder, specs[i].name);
    if (!path.ok()) return named(std::move(path).status());
    StatusOr<ByteSource> source = ByteSource::open(*path);
    if (!source.ok()) return named(std::move(source).status());
    MILLRACE_ASSIGN_OR_RETURN(loaded[i], load_param(*source, specs[i], of_file));
    return Ok();
  }));
  ParamValues values;
  for (size_t i = 0; i < specs.size(); ++i) values[specs[i].name] = std::move(loaded[i]);
  return values;
}

Status save_combined(const std::string& path, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options) {
  using namespace params;
  if (values.empty()) return Ok();
  StatusOr<Pieces> pieces = pieces_of(values);
  if (!pieces.ok()) return std::move(pieces).status().in_file(path);
  MILLRACE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, options.replace));
  MILLRACE_RETURN_IF_ERROR(file.write(pieces->views));
  forget_manifests(path);
  return file.commit(options.sync);
}

Status save_param(const std::string& path, const NamedValue& value, const SaveOptions& options) {
  return save_combined(path, value, options);
}

StatusOr<std::string> combined_bytes(llvm::ArrayRef<NamedValue> values) {
  using namespace params;
  MILLRACE_ASSIGN_OR_RETURN(const Pieces pieces, pieces_of(values));
  std::string bytes;
  bytes.reserve(pieces.bytes);
  for (const std::string_view view : pieces.views) bytes += view;
  return bytes;
}

Status save_separate(const std::string& folder, llvm::ArrayRef<NamedValue> values,
                     const SaveOptions& options) {
  for (const NamedValue& value : values) {
    forget_manifests(folder);
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, make_path_below(folder, value.name));
    MILLRACE_RETURN_IF_ERROR(save_param(path, value, options));
  }
  return Ok();
}

}  // namespace millrace::io
