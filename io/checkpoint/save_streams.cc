#include "io/checkpoint/save_streams.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/data_file.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {
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
        (tensor.dims.empty() || tensor.dims[0] != static_cast<int64_t>(tensor.rows.size()));
    if (!twice && !rows) continue;
    Location location;
    location.var = tensor.name;
    return (twice ? InvalidArgument("the name is there twice")
                  : InvalidArgument("{} rows for dims [{}]", tensor.rows.size(),
                                    fmt::join(tensor.dims, ", ")))
        .at(std::move(location));
  }
  return Ok();
}

// One file of everything, and the manifest that says so.
StatusOr<Manifest> write(FileCalls& calls, CheckpointFolder& target,
                         const std::vector<StreamedTensor>& tensors,
                         const std::vector<LocalRecord>& records,
                         const CheckpointSaveOptions& options) {
  Manifest manifest;
  manifest.step = options.step;
  manifest.block_bytes = options.block_bytes;
  std::vector<DataItem> items;
  std::vector<std::function<void(StoredBytes)>> places;
  manifest.tensors.reserve(tensors.size());  // places keep pointers
  manifest.records.reserve(records.size());
  for (const StreamedTensor& tensor : tensors) {
    StoredTensor& stored = manifest.tensors.emplace_back();
    stored.name = tensor.name;
    stored.dtype = tensor.dtype;
    stored.dims = tensor.dims;
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

Status save_streams(const std::vector<StreamedTensor>& tensors,
                    const std::vector<LocalRecord>& records,
                    const std::map<std::string, std::string>& user, const std::string& folder,
                    const CheckpointSaveOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check(tensors));
  const std::shared_ptr<FileCalls> calls =
      options.calls == nullptr ? system_file_calls() : options.calls;
  CheckpointFolder target(*calls, folder, options);
  MILLRACE_RETURN_IF_ERROR(target.prepare());
  StatusOr<Manifest> manifest = write(*calls, target, tensors, records, options);
  if (manifest.ok()) manifest->user = user;
  Status status = manifest.ok() ? target.commit(*manifest) : std::move(manifest).status();
  if (!status.ok()) target.roll_back();
  return status;
}

}  // namespace millrace::io
