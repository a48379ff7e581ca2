#include "io/checkpoint/own_values.h"

#include <map>
#include <span>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/tensor/layout.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/exchange.h"
#include "io/checksum.h"

namespace millrace::io {
namespace {

void add_numbers(ChecksumStream& stream, std::span<const int64_t> numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  stream.add(std::as_bytes(std::span(&count, 1)));
  stream.add(std::as_bytes(numbers));
}

Status add_tensor(ChecksumStream& stream, const Tensor& tensor) {
  if (tensor.layout() != nullptr) {
    Tensor plain;
    MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, plain));
    return add_tensor(stream, plain);
  }
  add_numbers(stream, std::vector<int64_t>{static_cast<int64_t>(tensor.dtype())});
  add_numbers(stream, std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end()));
  for (size_t i = 0; i < tensor.lod().size(); ++i) {
    const auto level = tensor.lod().level(i);
    add_numbers(stream, {level.data(), level.size()});
  }
  stream.add({tensor.raw(), static_cast<size_t>(tensor.bytes())});
  return Ok();
}

// Checksum of everything that a checkpoint would store of a value.
StatusOr<Checksum> checksum_of_value(const Value& value) {
  ChecksumStream stream;
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    add_numbers(stream, rows->rows);
    add_numbers(stream, std::vector<int64_t>{rows->height});
  } else if (const auto* const array = value.get_if<TensorArray>()) {
    std::vector<int64_t> written;
    for (const Tensor& element : *array) written.push_back(element.initialized() ? 1 : 0);
    add_numbers(stream, written);
  } else if (value.get_if<Tensor>() == nullptr) {
    return InvalidArgument("expected a tensor, selected rows or a tensor array");
  }
  for (const Tensor* const tensor : tensors_of(value))
    MILLRACE_RETURN_IF_ERROR(add_tensor(stream, *tensor));
  return stream.value();
}

bool is_whole(const LocalTensor& tensor) {
  return !tensor.global_dims && !tensor.some_rows;
}

// [[name, checksum], ...] of the values that this rank has whole.
StatusOr<std::string> checksums_text(const LocalState& state) {
  JsonWriter out(0);
  out.begin_array();
  for (const LocalTensor& tensor : state.tensors) {
    if (!is_whole(tensor)) continue;
    Location location;
    location.var = tensor.name;
    if (tensor.value == nullptr || !tensor.value->initialized())
      return InvalidArgument("the var has no value to save").at(std::move(location));
    StatusOr<Checksum> checksum = checksum_of_value(*tensor.value);
    if (!checksum.ok()) return std::move(checksum).status().at(std::move(location));
    out.begin_array().value(tensor.name).value(checksum->text()).end_array();
  }
  return out.end_array().take();
}

}  // namespace

std::string name_of_rank(std::string_view name, int32_t rank) {
  return fmt::format("{}@rank{}", name, rank);
}

std::string stored_name(const Manifest& manifest, std::string_view name, int32_t rank) {
  std::string own = name_of_rank(name, rank);
  return manifest.has(own) ? own : std::string(name);
}

StatusOr<LocalState> with_own_names(const LocalState& state, Gather& gather) {
  if (gather.world_size() == 1) return state;
  StatusOr<std::string> mine = checksums_text(state);
  Status status = mine.status();
  std::string text = mine.ok() ? *std::move(mine) : std::string();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                            exchange(gather, std::move(status), std::move(text)));
  std::map<std::string, std::string> first;  // for each name, the checksum of the lowest rank
  std::map<std::string, std::string> own;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RankItem> items, items_of_ranks(all));
  for (const auto& [rank, item] : items) {
    const auto* const pair = item->get_if<JsonItems>();
    const bool whole = pair != nullptr && pair->size() == 2;
    const auto* const name = whole ? (*pair)[0].get_if<std::string>() : nullptr;
    const auto* const sum = whole ? (*pair)[1].get_if<std::string>() : nullptr;
    if (name == nullptr || sum == nullptr) return sent_malformed(rank);
    first.emplace(*name, *sum);
    if (rank == static_cast<size_t>(gather.rank())) own.emplace(*name, *sum);
  }
  LocalState named = state;
  for (LocalTensor& tensor : named.tensors) {
    if (is_whole(tensor) && own[tensor.name] != first[tensor.name])
      tensor.name = name_of_rank(tensor.name, gather.rank());
  }
  return named;
}

}  // namespace millrace::io
