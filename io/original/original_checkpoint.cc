#include "io/original/original_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/base/text.h"
#include "io/original/pickle.h"

namespace millrace::io {
namespace original_checkpoint {
namespace {

constexpr std::string_view kMetadataEnding = ".metadata";
constexpr std::string_view kDataEnding = ".distcp";
constexpr size_t kOriginalCheckpointMaxRank = 16;

Status malformed(const char* what) {
  return InvalidData("the metadata of the checkpoint: {} is malformed or missing", what);
}

// A tuple or list of non-negative integers.
std::optional<Dims> dims_of(const Pickle& pickle, PickleRef ref) {
  const std::vector<PickleRef>* items = nullptr;
  if (const auto* const tuple = pickle.get<PickleTuple>(ref)) items = &tuple->items;
  if (const auto* const list = pickle.get<PickleList>(ref)) items = &list->items;
  if (items == nullptr || items->size() > kOriginalCheckpointMaxRank) return std::nullopt;
  Dims dims;
  for (const PickleRef item : *items) {
    const auto* const number = pickle.get<int64_t>(item);
    if (number == nullptr || *number < 0) return std::nullopt;
    dims.push_back(*number);
  }
  return dims;
}

// The state of an object of this class; -1 for anything else.
PickleRef state_of(const Pickle& pickle, PickleRef ref, PickleName name) {
  const auto* const object = pickle.get<PickleObject>(ref);
  return object == nullptr || object->name != name ? -1 : object->state;
}

// ---- arrays in data files

// The dtype described by the pickled `dtype('f4', False, True)` and its state.
StatusOr<DType> read_dtype(const Pickle& pickle, PickleRef ref) {
  const auto* const object = pickle.get<PickleObject>(ref);
  if (object == nullptr || object->name != PickleName::kDtype)
    return InvalidData("an array without dtype");
  const auto* const arguments = pickle.get<PickleTuple>(object->arguments);
  const auto* const code =
      arguments->items.empty() ? nullptr : pickle.get<std::string>(arguments->items[0]);
  if (code == nullptr) return InvalidData("a dtype without name");
  constexpr std::pair<std::string_view, DType> kCodes[] = {
      {"b1", DType::kBool},
      {"u1", DType::kUint8},
      {"i1", DType::kInt8},
      {"i2", DType::kInt16},
      {"i4", DType::kInt32},
      {"i8", DType::kInt64},
      {"f2", DType::kFloat16},
      {"f4", DType::kFloat32},
      {"f8", DType::kFloat64},
      {"c8", DType::kComplex64},
      {"c16", DType::kComplex128},
      {"u2", DType::kBfloat16},  // how the original stores bfloat16, which numpy does not have
  };
  const auto found = std::ranges::find(kCodes, std::string_view(*code),
                                       &std::pair<std::string_view, DType>::first);
  if (found == std::end(kCodes)) return Unimplemented("dtype {} of an array", in_quotes(*code));
  const auto* const state = pickle.get<PickleTuple>(object->state);
  const auto* const order = state == nullptr || state->items.size() < 2
                                ? nullptr
                                : pickle.get<std::string>(state->items[1]);
  if (order == nullptr || (*order != "<" && *order != "|" && *order != "="))
    return Unimplemented("a dtype that is not little-endian");
  return found->second;
}

struct StoredNdarray {
  DType dtype = DType::kFloat32;
  Dims dims;
  PickleBytes bytes;
};

// Parses `_reconstruct(ndarray, (0,), b'b')` with the state (1, shape, dtype, fortran, bytes).
StatusOr<StoredNdarray> read_array(const Pickle& pickle, PickleRef ref) {
  const auto* const state =
      pickle.get<PickleTuple>(state_of(pickle, ref, PickleName::kReconstruct));
  if (state == nullptr || state->items.size() != 5)
    return InvalidData("expected an array of numbers");
  StoredNdarray array;
  const auto dims = dims_of(pickle, state->items[1]);
  if (!dims) return InvalidData("an array without shape");
  array.dims = *dims;
  MILLRACE_ASSIGN_OR_RETURN(array.dtype, read_dtype(pickle, state->items[2]));
  const auto* const fortran = pickle.get<bool>(state->items[3]);
  if (fortran == nullptr || (*fortran && dims->size() > 1))
    return Unimplemented("an array in Fortran (column-major) order");
  const auto* const bytes = pickle.get<PickleBytes>(state->items[4]);
  const auto count = element_count(array.dims);
  int64_t wanted = 0;
  if (bytes == nullptr || !count ||
      __builtin_mul_overflow(*count, dtype_size(array.dtype), &wanted) ||
      static_cast<uint64_t>(wanted) != bytes->size) {
    return InvalidData("shape [{}] of {} does not fit the {} bytes of the array",
                       fmt::join(array.dims, ", "), dtype_name(array.dtype),
                       bytes == nullptr ? 0 : bytes->size);
  }
  array.bytes = *bytes;
  return array;
}

// ---- the metadata

struct Metadata {
  std::map<std::string, std::vector<Box>> boxes;
  std::map<std::pair<std::string, Dims>, std::string> files;
};

StatusOr<Box> read_box(const Pickle& pickle, PickleRef ref) {
  const PickleRef state = state_of(pickle, ref, PickleName::kLocalTensorMetadata);
  const auto offset = dims_of(pickle, pickle.find(state, "global_offset"));
  const auto shape = dims_of(pickle, pickle.find(state, "local_shape"));
  if (!offset || !shape || offset->size() != shape->size())
    return malformed("an entry of state_dict_metadata");
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t end = 0;
    if (__builtin_add_overflow((*offset)[i], (*shape)[i], &end))
      return malformed("an entry of state_dict_metadata");
  }
  return Box{*offset, *shape};
}

Status read_boxes(const Pickle& pickle, PickleRef ref, Metadata& metadata) {
  const auto* const dict = pickle.get<PickleDict>(ref);
  if (dict == nullptr) return malformed("state_dict_metadata");
  for (const auto& [key, value] : dict->items) {
    const auto* const name = pickle.get<std::string>(key);
    const auto* const list = pickle.get<PickleList>(value);
    if (name == nullptr || list == nullptr) return malformed("state_dict_metadata");
    std::vector<Box>& boxes = metadata.boxes[*name];
    if (!boxes.empty())
      return of_var(InvalidData("the metadata of the checkpoint: expected each key once"), *name);
    for (const PickleRef item : list->items) {
      StatusOr<Box> box = read_box(pickle, item);
      if (!box.ok()) return of_var(std::move(box).status(), *name);
      boxes.push_back(*std::move(box));
    }
  }
  return Ok();
}

Status read_files(const Pickle& pickle, PickleRef ref, Metadata& metadata) {
  const auto* const dict = pickle.get<PickleDict>(ref);
  if (dict == nullptr) return malformed("storage_metadata");
  for (const auto& [key, value] : dict->items) {
    const PickleRef state = state_of(pickle, key, PickleName::kLocalTensorIndex);
    const auto* const name = pickle.get<std::string>(pickle.find(state, "tensor_key"));
    const auto offset = dims_of(pickle, pickle.find(state, "global_offset"));
    const auto* const file = pickle.get<std::string>(value);
    if (name == nullptr || !offset || file == nullptr) return malformed("storage_metadata");
    if (file->find('/') != std::string::npos || !file->ends_with(kDataEnding) ||
        file->find('\0') != std::string::npos)
      return InvalidData("expected the name of a data file in the folder, found {}",
                         in_quotes(*file));
    if (!metadata.files.emplace(std::pair(*name, *offset), *file).second)
      return of_var(InvalidData("the metadata of the checkpoint: expected each part once"), *name);
  }
  return Ok();
}

StatusOr<Metadata> read_metadata(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const auto file, system_file_calls()->open(path));
  MILLRACE_ASSIGN_OR_RETURN(const Pickle pickle, read_pickle(*file));
  const PickleRef state = state_of(pickle, pickle.root, PickleName::kMetadata);
  Metadata metadata;
  Status status = read_boxes(pickle, pickle.find(state, "state_dict_metadata"), metadata);
  if (status.ok()) status = read_files(pickle, pickle.find(state, "storage_metadata"), metadata);
  if (!status.ok()) return std::move(status).in_file(path);
  return metadata;
}

// Computes the global dims from the extents of the parts, which must cover each element exactly
// once.
StatusOr<Dims> global_dims(const std::vector<Box>& boxes) {
  if (boxes.empty()) return malformed("the list of parts of a tensor");
  Dims dims(boxes[0].offset.size(), 0);
  for (const Box& box : boxes) {
    if (box.offset.size() != dims.size()) return malformed("the rank of a part");
    for (size_t i = 0; i < dims.size(); ++i)
      dims[i] = std::max(dims[i], box.offset[i] + box.shape[i]);
  }
  if (!element_count(dims)) return malformed("a shape");
  MILLRACE_RETURN_IF_ERROR(check_exact_cover(boxes, dims));
  return dims;
}

StatusOr<std::string> metadata_file(const std::string& folder, int64_t unique_id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            system_file_calls()->list(folder));
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (name.ends_with(kMetadataEnding)) found.push_back(name);
  if (unique_id >= 0) {
    const std::string wanted = std::to_string(unique_id) + std::string(kMetadataEnding);
    if (!std::ranges::binary_search(found, wanted))
      return NotFound("there is no {}", wanted).in_file(folder);
    return folder + "/" + wanted;
  }
  if (found.empty()) return NotFound("there is no *{} file", kMetadataEnding).in_file(folder);
  if (found.size() == 1) return folder + "/" + found[0];
  return InvalidData("expected one save, found {}", fmt::join(found, ", "))
      .in_file(folder)
      .with_hint("use --unique-id to select one");
}

// The data files that are needed; each is read once.
class DataFiles {
 public:
  DataFiles(std::string folder, std::vector<std::unique_ptr<ReadableFile>>& files)
      : folder_(std::move(folder)), files_(files) {}

  StatusOr<StoredNdarray> find(const std::string& file, const std::string& name, size_t& index) {
    auto known = pickles_.find(file);
    if (known == pickles_.end()) {
      MILLRACE_ASSIGN_OR_RETURN(auto opened, system_file_calls()->open(folder_ + "/" + file));
      MILLRACE_ASSIGN_OR_RETURN(Pickle pickle, read_pickle(*opened));
      known = pickles_.emplace(file, std::pair(files_.size(), std::move(pickle))).first;
      files_.push_back(std::move(opened));
    }
    index = known->second.first;
    const Pickle& pickle = known->second.second;
    StatusOr<StoredNdarray> array = read_array(pickle, pickle.find(pickle.root, name));
    if (!array.ok()) return std::move(array).status().in_file(folder_ + "/" + file);
    return array;
  }

 private:
  std::string folder_;
  std::vector<std::unique_ptr<ReadableFile>>& files_;
  std::map<std::string, std::pair<size_t, Pickle>> pickles_;
};

}  // namespace
}  // namespace original_checkpoint

bool has_original_metadata(const std::string& folder) {
  const auto names = system_file_calls()->list(folder);
  return names.ok() && std::ranges::any_of(*names, [](const std::string& name) {
           return name.ends_with(original_checkpoint::kMetadataEnding);
         });
}

StatusOr<OriginalCheckpoint> OriginalCheckpoint::open(const std::string& folder,
                                                      int64_t unique_id) {
  using namespace original_checkpoint;
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, metadata_file(folder, unique_id));
  MILLRACE_ASSIGN_OR_RETURN(const Metadata metadata, read_metadata(path));
  OriginalCheckpoint opened;
  DataFiles files(folder, opened.files_);
  for (const auto& [name, boxes] : metadata.boxes) {
    const auto add = [&]() -> Status {
      OriginalTensor tensor;
      tensor.name = name;
      MILLRACE_ASSIGN_OR_RETURN(tensor.dims, global_dims(boxes));
      for (const Box& box : boxes) {
        const auto file = metadata.files.find({name, box.offset});
        if (file == metadata.files.end()) return malformed("the file of a part");
        OriginalChunk chunk{box, 0, 0};
        MILLRACE_ASSIGN_OR_RETURN(const StoredNdarray array,
                                  files.find(file->second, name, chunk.file));
        if (array.dims != box.shape) {
          return InvalidData("expected shape [{}] in '{}', found [{}]", fmt::join(box.shape, ", "),
                             file->second, fmt::join(array.dims, ", "));
        }
        if (!tensor.chunks.empty() && array.dtype != tensor.dtype) {
          return InvalidData("expected dtype {} in '{}', found {}", dtype_name(tensor.dtype),
                             file->second, dtype_name(array.dtype));
        }
        // One array per file and key. Otherwise a few bytes could represent any number of parts.
        if (std::ranges::find(tensor.chunks, chunk.file, &OriginalChunk::file) !=
            tensor.chunks.end())
          return InvalidData("expected one part per name in '{}', found two", file->second);
        tensor.dtype = array.dtype;
        chunk.data_begin = array.bytes.begin;
        tensor.chunks.push_back(std::move(chunk));
      }
      opened.tensors_.push_back(std::move(tensor));
      return Ok();
    };
    if (Status status = add(); !status.ok()) return of_var(std::move(status).in_file(path), name);
  }
  return opened;
}

StatusOr<Tensor> OriginalCheckpoint::load(const OriginalTensor& tensor) const {
  MILLRACE_ASSIGN_OR_RETURN(Tensor result, Tensor::create(tensor.dtype, tensor.dims));
  const Box whole = Box::whole(tensor.dims);
  for (const OriginalChunk& chunk : tensor.chunks) {
    if (chunk.box.numel() == 0) continue;
    const int64_t size = chunk.box.numel() * dtype_size(tensor.dtype);
    std::vector<std::byte> bytes(static_cast<size_t>(size));
    MILLRACE_RETURN_IF_ERROR(
        of_var(files_[chunk.file]->read(chunk.data_begin, bytes), tensor.name));
    const Runs runs(chunk.box, whole, dtype_size(tensor.dtype));
    for (int64_t run = 0; run < runs.count(); ++run) {
      std::memcpy(result.raw() + runs.to(run), bytes.data() + runs.from(run),
                  static_cast<size_t>(runs.bytes()));
    }
  }
  if (tensor.dtype == DType::kBool) {
    for (int64_t i = 0; i < result.bytes(); ++i)
      if (result.raw()[i] != std::byte{0}) result.raw()[i] = std::byte{1};
  }
  return result;
}

}  // namespace millrace::io
