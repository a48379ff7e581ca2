#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/block_runner.h"
#include "framework/base/text.h"
#include "framework/row_owner.h"
#include "framework/slice_cover.h"
#include "framework/var.h"
#include "io/param_writer.h"
#include "io/paths.h"
#include "ps/ops/trainer_ops.h"

// recv_save and checkpoint_notify. Source: spec/transpiler.md section 13, spec/distributed_io.md
// section 3.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::KernelSetup;
using Strings = std::vector<std::string>;
using Link = std::shared_ptr<TrainerLink>;

struct RecvSave {
  Strings endpoints;
  Strings remote_names;
  std::vector<int64_t> slice_elements;
  std::optional<DType> dtype;  // where the op has the attribute
  Dims shape;
  int64_t elements = 1;
  bool alike = false;         // every server holds the whole var
  bool by_remainder = false;  // row r of the var is row r / n of slice r % n
  std::string root;
  std::string path;
  bool overwrite = true;
};

StatusOr<Value> fetch_slice(TrainerLink& link, const RecvSave& save, size_t k) {
  Value slice;
  MILLRACE_RETURN_IF_ERROR(
      link.fetch({{save.endpoints[k], save.remote_names[k], &slice}}, /*any_phase=*/true));
  const auto* const tensor = slice.get_if<Tensor>();
  // Some optimizer state of split parameters is listed as whole, but has the size of a slice.
  const bool listed_whole = save.alike && save.endpoints.size() > 1;
  if (tensor != nullptr && tensor->initialized() &&
      (listed_whole || tensor->numel() == save.slice_elements[k]))
    return slice;
  return Status(StatusCode::kExecution,
                fmt::format("slice '{}' of the server at {}: expected {} elements, found {}",
                            save.remote_names[k], save.endpoints[k], save.slice_elements[k],
                            describe(slice)));
}

StatusOr<io::ParamWriter> create_file(const RecvSave& save, DType dtype) {
  if (save.dtype && *save.dtype != dtype) {
    return Status(StatusCode::kExecution,
                  fmt::format("attribute 'dtype' is {}, but the server at {} holds '{}' of {}",
                              dtype_name(*save.dtype), save.endpoints[0], save.remote_names[0],
                              dtype_name(dtype)));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::make_path_below(save.root, save.path));
  return io::ParamWriter::create(path, dtype, save.shape,
                                 {.replace = save.overwrite ? Replace::kYes : Replace::kNo});
}

Status check_rows_of_server(const RecvSave& save, const std::vector<Value>& slices, size_t k) {
  const auto count = static_cast<int64_t>(slices.size());
  const auto own = static_cast<int64_t>(k);
  Dims dims = save.shape;
  dims[0] = rows_of_server(dims[0], own, count);
  const auto* const tensor = slices[k].get_if<Tensor>();
  const bool fits = tensor != nullptr && tensor->initialized() &&
                    tensor->dims() == llvm::ArrayRef<int64_t>(dims) &&
                    tensor->dtype() == slices[0].get_if<Tensor>()->dtype();
  if (fits) return Ok();
  return Status(StatusCode::kExecution,
                fmt::format("slice '{}' of the server at {}: expected shape [{}], found {}",
                            save.remote_names[k], save.endpoints[k], fmt::join(dims, ", "),
                            describe(slices[k])));
}

// Saves a sparse table, whose rows are distributed by id: needs all slices at once.
Status run_recv_rows(TrainerLink& link, const RecvSave& save) {
  std::vector<Value> slices(save.endpoints.size());
  for (size_t k = 0; k < slices.size(); ++k) {
    MILLRACE_RETURN_IF_ERROR(
        link.fetch({{save.endpoints[k], save.remote_names[k], &slices[k]}}, /*any_phase=*/true));
    MILLRACE_RETURN_IF_ERROR(check_rows_of_server(save, slices, k));
  }
  const DType dtype = slices[0].get_if<Tensor>()->dtype();
  MILLRACE_ASSIGN_OR_RETURN(io::ParamWriter file, create_file(save, dtype));
  constexpr int64_t kChunkBytes = int64_t{1} << 20U;
  const int64_t row_bytes =
      save.shape[0] == 0 ? 0 : save.elements / save.shape[0] * dtype_size(dtype);
  const int64_t rows_a_chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(row_bytes, 1));
  const auto count = static_cast<int64_t>(slices.size());
  Tensor chunk;
  for (int64_t first = 0; first < save.shape[0]; first += rows_a_chunk) {
    Dims dims = save.shape;
    dims[0] = std::min(rows_a_chunk, save.shape[0] - first);
    MILLRACE_RETURN_IF_ERROR(chunk.resize(dtype, dims));
    for (int64_t i = 0; i < dims[0]; ++i) {
      const Tensor& slice =
          *slices[static_cast<size_t>(server_of_row(first + i, count))].get_if<Tensor>();
      std::memcpy(chunk.raw() + i * row_bytes,
                  slice.raw() + position_on_server(first + i, count) * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
    MILLRACE_RETURN_IF_ERROR(file.append(chunk));
  }
  return file.commit();
}

// Writes the slices to the file one by one, so that they need not be in memory together.
Status run_recv_save(TrainerLink& link, const RecvSave& save) {
  if (save.by_remainder) return run_recv_rows(link, save);
  MILLRACE_ASSIGN_OR_RETURN(Value slice, fetch_slice(link, save, 0));
  MILLRACE_ASSIGN_OR_RETURN(io::ParamWriter file,
                            create_file(save, slice.get_if<Tensor>()->dtype()));
  MILLRACE_RETURN_IF_ERROR(file.append(*slice.get_if<Tensor>()));
  const bool whole = save.alike && slice.get_if<Tensor>()->numel() == save.elements;
  for (size_t k = 1; k < save.endpoints.size() && !whole; ++k) {
    MILLRACE_ASSIGN_OR_RETURN(slice, fetch_slice(link, save, k));
    MILLRACE_RETURN_IF_ERROR(file.append(*slice.get_if<Tensor>()));
  }
  return file.commit();
}

// Elements of a shape like "4,2" or "4,".
StatusOr<int64_t> parse_element_count(const KernelSetup& setup, llvm::StringRef shape) {
  llvm::SmallVector<llvm::StringRef, 4> dims;
  shape.split(dims, ',', -1, false);
  int64_t elements = 1;
  for (const llvm::StringRef text : dims) {
    int64_t dim = 0;
    if (text.trim().getAsInteger(10, dim) || dim < 0 ||
        __builtin_mul_overflow(elements, dim, &elements))
      return setup.error("attribute 'slice_shapes': '{}' is not a shape", shape.str());
  }
  return elements;
}

// Checks that the slices make up the var, or that each of them is the whole var.
Status check_slice_shapes(const KernelSetup& setup, RecvSave& save) {
  const std::optional<int64_t> elements = element_count(save.shape);
  if (!elements || *elements < 0) return setup.error("attribute 'shape' is not a valid shape");
  save.elements = *elements;
  const auto slices = setup.attr<Strings>("slice_shapes").size();
  if (slices != save.endpoints.size()) {
    return setup.error("attributes 'slice_shapes' and 'endpoints' have {} and {} entries", slices,
                       save.endpoints.size());
  }
  if (save.by_remainder) {
    // Contents of the slices are checked when they arrive: the original writes their shapes without
    // a comma (spec/fleet.md, quirk 5).
    const auto servers = static_cast<size_t>(setup.attr<int64_t>("pserver_num"));
    if (servers == slices && !save.shape.empty()) return Ok();
    return setup.error(
        "found {} slices of rows: expected 'pserver_num' {} of them, and a shape with rows", slices,
        servers);
  }
  std::vector<VarSlice> in_order;
  int64_t sum = 0;
  save.alike = true;
  for (const std::string& shape : setup.attr<Strings>("slice_shapes")) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t count, parse_element_count(setup, shape));
    save.slice_elements.push_back(count);
    save.alike = save.alike && count == save.elements;
    in_order.push_back({in_quotes(save.remote_names[in_order.size()]), sum, count, save.dtype, {}});
    if (__builtin_add_overflow(sum, count, &sum)) sum = 0;  // refused below
  }
  if (save.alike) return Ok();
  if (const Status status = check_slices_cover(save.path, save.dtype, save.shape, in_order);
      !status.ok())
    return setup.error("{} (attribute 'shape')", status.message());
  return Ok();
}

StatusOr<Control> make_recv_save(const Link& link, const KernelSetup& setup,
                                 const std::string& files_root) {
  MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
  auto save = std::make_shared<RecvSave>();
  save->endpoints = setup.attr<Strings>("endpoints");
  save->remote_names = setup.attr<Strings>("remote_varnames");
  if (save->endpoints.empty() || save->endpoints.size() != save->remote_names.size()) {
    return setup.error("attributes 'endpoints' and 'remote_varnames' have {} and {} entries",
                       save->endpoints.size(), save->remote_names.size());
  }
  const auto shape = setup.attr<std::vector<int64_t>>("shape");
  save->shape.assign(shape.begin(), shape.end());
  if (setup.op().has_attr("dtype")) save->dtype = setup.dtype_attr("dtype");
  save->by_remainder = setup.attr<bool>("is_sparse");
  save->path = setup.attr<std::string>("file_path");
  MILLRACE_RETURN_IF_ERROR(check_slice_shapes(setup, *save));
  save->root = files_root;
  save->overwrite = setup.attr<bool>("overwrite");
  if (files_root.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the op writes the file '{}', but no folder was allowed", save->path))
        .with_hint("run-program --allow-dir DIR lets it use files below a folder");
  }
  MILLRACE_RETURN_IF_ERROR(io::path_below(save->root, save->path).status());
  return Control([link, save](ControlContext& /*ctx*/) { return run_recv_save(*link, *save); });
}

StatusOr<Control> make_checkpoint_notify(const Link& link, const KernelSetup& setup,
                                         const std::shared_ptr<SavedParts>& saved) {
  MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
  Strings endpoints = setup.attr<Strings>("epmap");
  if (endpoints.empty()) endpoints = setup.attr<Strings>("endpoints");
  auto folder = setup.attr<std::string>("dir");
  if (folder.empty()) folder = setup.attr<std::string>("dirname");
  auto table = setup.attr<std::string>("lookup_table");
  if (table.empty()) table = setup.attr<std::string>("varname");
  if (endpoints.empty() || folder.empty())
    return setup.error("attributes 'epmap' and 'dir' must name at least one server and a folder");
  // each server has one slice, which it holds under the name of the table
  for (const char* const slices : {"slice_varnames", "remote_varnames"}) {
    const size_t count = setup.attr<Strings>(slices).size();
    if (count != 0 && count != endpoints.size())
      return setup.error("attribute '{}' has {} entries for {} servers", slices, count,
                         endpoints.size());
  }
  const auto mode = setup.attr<int32_t>("mode");
  return Control([=](ControlContext& /*ctx*/) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RowsToSave rows, rows_to_save(table, mode));
    const std::optional<std::string> named =
        table.empty() ? std::nullopt : std::optional<std::string>(table);
    std::vector<Client::Call> calls;
    for (const std::string& endpoint : endpoints)
      calls.emplace_back(endpoint, protocol::Checkpoint{protocol::SaveVar{named, folder, rows}});
    MILLRACE_RETURN_IF_ERROR(link->client().call_all(calls));
    if (saved == nullptr) return Ok();
    for (const Client::Call& call : calls) {
      MILLRACE_ASSIGN_OR_RETURN(protocol::SavedFile file,
                                protocol::saved_file(call.reply, call.endpoint));
      saved->push_back(saved_part(std::move(file), table, call.endpoint));
    }
    return Ok();
  });
}

}  // namespace

void add_saving_controls(ControlRegistry& registry, const Link& link, const std::string& files_root,
                         const std::shared_ptr<SavedParts>& saved) {
  registry.add("recv_save", [link, files_root](const KernelSetup& setup, BlockRunner& /*runner*/) {
    return make_recv_save(link, setup, files_root);
  });
  registry.add("checkpoint_notify", [link, saved](const KernelSetup& setup, BlockRunner&) {
    return make_checkpoint_notify(link, setup, saved);
  });
}

}  // namespace millrace::ps
