#include "io/checkpoint/save_streams.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/data_file.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {
namespace save_streams_parts {
namespace {

DataItem item_of(std::string name, DType dtype, Dims dims) {
  DataItem item;
  item.entry = {std::move(name), dtype, std::move(dims), 0, 0};
  return item;
}

Status check(const std::vector<StreamedTensor>& tensors) {
  std::set<std::string_view> names;
  for (const StreamedTensor& tensor : tensors) {
    const bool twice = !names.insert(tensor.name).second;
    const bool rows =
        tensor.is_table &&
        (tensor.dims.empty() ||
         (!tensor.read_rows && tensor.dims[0] != static_cast<int64_t>(tensor.rows.size())));
    if (!twice && !rows) continue;
    Location location;
    location.var = tensor.name;
    return (twice ? InvalidArgument("the name occurs twice")
                  : InvalidArgument("{} rows for dims [{}]", tensor.rows.size(),
                                    fmt::join(tensor.dims, ", ")))
        .at(std::move(location));
  }
  return Ok();
}

// Holds the value that is currently being written.
class HeldValue {
 public:
  using Load = std::function<StatusOr<Value>(const std::string&)>;
  explicit HeldValue(const Load& load) : load_(load) {}

  // \param element  index in an array; negative for other values
  // \param rows  true: the row numbers of a table
  Status read(const std::string& name, int64_t element, bool rows, uint64_t offset,
              std::span<std::byte> to) {
    if (name_ != name) {
      value_.clear();
      name_.clear();
      MILLRACE_ASSIGN_OR_RETURN(value_, load_(name));
      name_ = name;
      // Elements are consecutive in the order of the file, which is row-major.
      for (Tensor* const tensor : tensors_of(value_)) {
        if (tensor->layout() == nullptr) continue;
        Tensor plain;
        MILLRACE_RETURN_IF_ERROR(copy_plain(*tensor, plain));
        tensor->swap(plain);
      }
    }
    const std::span<const std::byte> bytes = bytes_of(element, rows);
    if (offset > bytes.size() || to.size() > bytes.size() - offset) {
      return InvalidData("'{}': expected {} bytes at byte {}, found {} in all", name, to.size(),
                         offset, bytes.size());
    }
    std::ranges::copy(bytes.subspan(offset, to.size()), to.begin());
    return Ok();
  }

 private:
  [[nodiscard]] std::span<const std::byte> bytes_of(int64_t element, bool rows) const {
    const auto* const table = value_.get_if<SelectedRows>();
    const auto* const array = value_.get_if<TensorArray>();
    const auto* tensor = table == nullptr ? value_.get_if<Tensor>() : &table->value;
    if (array != nullptr && element >= 0 && element < static_cast<int64_t>(array->size()))
      tensor = &(*array)[static_cast<size_t>(element)];
    if (rows && table != nullptr) return std::as_bytes(std::span(table->rows));
    if (tensor == nullptr) return {};
    return {tensor->raw(), static_cast<size_t>(tensor->bytes())};
  }

  const Load& load_;
  std::string name_;
  Value value_;
};

// Writes one file with all data, and the manifest.
StatusOr<Manifest> write(FileCalls& calls, CheckpointFolder& target,
                         const std::vector<StreamedTensor>& tensors,
                         const std::vector<LocalRecord>& records,
                         const CheckpointSaveOptions& options) {
  Manifest manifest;
  manifest.step = options.step;
  manifest.block_bytes = options.block_bytes;
  std::vector<DataItem> items;
  std::vector<std::function<void(StoredBytes)>> places;
  manifest.tensors.reserve(tensors.size());  // pointers into it are kept
  manifest.records.reserve(records.size());
  for (const StreamedTensor& tensor : tensors) {
    StoredTensor& stored = manifest.tensors.emplace_back();
    stored.name = tensor.name;
    stored.dtype = tensor.dtype;
    stored.dims = tensor.dims;
    stored.lod = tensor.lod;
    const Box box = Box::whole(tensor.dims);
    const std::string name = fmt::format("{}#{}", tensor.name, fmt::join(box.offset, "_"));
    if (tensor.is_table) {
      stored.kind = StoredTensor::Kind::kSelectedRows;
      stored.height = tensor.height;
    }
    if (box.numel() == 0) continue;
    stored.chunks.push_back({box, {}, {}});
    items.push_back(item_of(name, tensor.dtype, tensor.dims));
    items.back().read = tensor.read;
    places.push_back([&stored](StoredBytes bytes) { stored.chunks[0].data = std::move(bytes); });
    if (!tensor.is_table) continue;
    items.push_back(item_of(name + "#rows", DType::kInt64, {tensor.dims[0]}));
    items.back().memory = std::as_bytes(std::span(tensor.rows));
    items.back().read = tensor.read_rows;
    places.push_back([&stored](StoredBytes bytes) { stored.chunks[0].rows = std::move(bytes); });
  }
  for (const LocalRecord& record : records) {
    StoredRecord& stored = manifest.records.emplace_back();
    stored.name = record.name;
    items.push_back(item_of(record.name + "#record", DType::kUint8,
                            {static_cast<int64_t>(record.bytes.size())}));
    items.back().memory = std::as_bytes(std::span(record.bytes));
    places.push_back([&stored](StoredBytes bytes) { stored.data = std::move(bytes); });
  }
  const std::string name = data_file_name(0, 0, target.generation());
  target.add_written(name);
  MILLRACE_ASSIGN_OR_RETURN(
      DataFile written,
      write_data_file(calls, target.path_of(name), items, {{"format", "millrace"}},
                      {options.block_bytes, options.sync, options.progress}));
  manifest.files.push_back(written.file);
  for (size_t i = 0; i < places.size(); ++i) places[i](std::move(written.items[i]));
  std::ranges::sort(manifest.tensors, {}, &StoredTensor::name);
  std::ranges::sort(manifest.records, {}, &StoredRecord::name);
  return manifest;
}

}  // namespace
}  // namespace save_streams_parts

Status save_streams(const std::vector<StreamedTensor>& tensors,
                    const std::vector<LocalRecord>& records,
                    const std::map<std::string, std::string>& user, const std::string& folder,
                    const CheckpointSaveOptions& options, std::vector<StoredArray> arrays) {
  using namespace save_streams_parts;
  MILLRACE_RETURN_IF_ERROR(check(tensors));
  const std::shared_ptr<FileCalls> calls =
      options.calls == nullptr ? system_file_calls() : options.calls;
  CheckpointFolder target(*calls, folder, options);
  MILLRACE_RETURN_IF_ERROR(target.prepare());
  StatusOr<Manifest> manifest = write(*calls, target, tensors, records, options);
  if (manifest.ok()) {
    manifest->user = user;
    manifest->arrays = std::move(arrays);
    std::ranges::sort(manifest->arrays, {}, &StoredArray::name);
  }
  Status status = manifest.ok() ? target.commit(*manifest) : std::move(manifest).status();
  if (!status.ok()) target.roll_back();
  return status;
}

Status save_values(const std::vector<TensorFileEntry>& entries,
                   const std::function<StatusOr<Value>(const std::string&)>& load,
                   const std::string& folder, const CheckpointSaveOptions& options) {
  save_streams_parts::HeldValue held(load);
  std::vector<StreamedTensor> tensors;
  std::vector<StoredArray> arrays;
  const auto add = [&](const TensorFileEntry& entry, const std::string& value, int64_t element) {
    StreamedTensor& tensor = tensors.emplace_back();
    tensor.name = entry.name;
    tensor.dtype = entry.dtype;
    tensor.dims = entry.dims;
    tensor.lod = entry.lod;
    tensor.read = [&held, value, element](uint64_t offset, std::span<std::byte> to) {
      return held.read(value, element, /*rows=*/false, offset, to);
    };
    return &tensor;
  };
  for (const TensorFileEntry& entry : entries) {
    if (entry.kind == VarKind::kLodTensorArray) {
      StoredArray& array = arrays.emplace_back();
      array.name = entry.name;
      for (size_t i = 0; i < entry.elements.size(); ++i) {
        array.written.push_back(!entry.elements[i].name.empty());
        if (array.written.back()) add(entry.elements[i], entry.name, static_cast<int64_t>(i));
      }
      continue;
    }
    StreamedTensor* const tensor = add(entry, entry.name, -1);
    if (entry.kind != VarKind::kSelectedRows) continue;
    tensor->is_table = true;
    tensor->height = entry.height;
    tensor->read_rows = [&held, value = entry.name](uint64_t offset, std::span<std::byte> to) {
      return held.read(value, -1, /*rows=*/true, offset, to);
    };
  }
  return save_streams(tensors, {}, {}, folder, options, std::move(arrays));
}

}  // namespace millrace::io
