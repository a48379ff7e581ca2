#include "io/checkpoint/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/of_var.h"
#include "io/json.h"

namespace millrace::io {
namespace plan_parts {
namespace {

using Kind = StoredTensor::Kind;

StatusOr<TensorClaim> claim_of(const LocalTensor& local) {
  TensorClaim claim;
  claim.name = local.name;
  MILLRACE_RETURN_IF_ERROR(check_entry_name(local.name));
  if (local.value == nullptr || !local.value->initialized())
    return InvalidArgument("the var has no value to save");
  const auto* tensor = local.value->get_if<Tensor>();
  if (const auto* const rows = local.value->get_if<SelectedRows>(); rows != nullptr) {
    tensor = &rows->value;
    claim.kind = Kind::kSelectedRows;
    claim.height = rows->height;
    claim.part = local.some_rows;
    if (tensor->rank() == 0 || tensor->dims()[0] != static_cast<int64_t>(rows->rows.size())) {
      return InvalidArgument("{} row numbers do not fit {}", rows->rows.size(), describe(*tensor));
    }
  }
  if (tensor == nullptr) {
    return Unimplemented(
        "checkpoints hold dense tensors, selected rows and tensor arrays, found {}",
        describe(*local.value));
  }
  claim.dtype = tensor->dtype();
  claim.box = Box::whole(tensor->dims());
  claim.dims = claim.box.shape;
  if (!local.global_dims) return claim;
  if (claim.kind != Kind::kDense) return InvalidArgument("selected rows have no parts at offsets");
  claim.part = true;
  claim.dims = *local.global_dims;
  claim.box.offset = local.offset;
  if (Status status = check_inside(claim.box, claim.dims); !status.ok())
    return InvalidArgument("{}", status.message());
  return claim;
}

// A rank and the index of a claim in its list.
struct Holder {
  int32_t rank;
  size_t claim;
};

class Planner {
 public:
  Planner(const std::vector<RankClaims>& ranks, int32_t coordinator)
      : ranks_(ranks), coordinator_(coordinator), load_(ranks.size(), 0) {}

  StatusOr<SavePlan> plan() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const RecordClaim& record : ranks_[rank].records) load_[rank] += record.bytes;
      for (size_t i = 0; i < ranks_[rank].tensors.size(); ++i)
        by_name_[ranks_[rank].tensors[i].name].push_back({static_cast<int32_t>(rank), i});
    }
    for (const auto& [name, holders] : by_name_) {
      Status status =
          claim_at(holders[0]).kind == Kind::kDense ? add_dense(holders) : add_rows(holders);
      if (!status.ok()) return of_var(std::move(status), name);
    }
    MILLRACE_RETURN_IF_ERROR(add_arrays());
    assign_chunks();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const TensorClaim& claim_at(const Holder& holder) const {
    return ranks_[static_cast<size_t>(holder.rank)].tensors[holder.claim];
  }

  Status check_alike(const Holder& first, const Holder& other) const {
    const TensorClaim& a = claim_at(first);
    const TensorClaim& b = claim_at(other);
    const auto differ = [&](const char* what, const std::string& left, const std::string& right) {
      return InvalidArgument("ranks {} and {} disagree on the {}: {} and {}", first.rank,
                             other.rank, what, left, right);
    };
    if (a.kind != b.kind) return differ("kind", kind_name(a.kind), kind_name(b.kind));
    if (a.dtype != b.dtype)
      return differ("dtype", std::string(dtype_name(a.dtype)), std::string(dtype_name(b.dtype)));
    if (a.height != b.height)
      return differ("height", std::to_string(a.height), std::to_string(b.height));
    // Only the number of rows may differ from rank to rank.
    const size_t from = a.kind == Kind::kSelectedRows && a.part && b.part ? 1 : 0;
    const auto tail = [&](const Dims& dims) { return Dims(dims.begin() + from, dims.end()); };
    if (a.dims.size() != b.dims.size() || tail(a.dims) != tail(b.dims)) {
      return differ("shape", fmt::format("[{}]", fmt::join(a.dims, ", ")),
                    fmt::format("[{}]", fmt::join(b.dims, ", ")));
    }
    if (a.kind == Kind::kSelectedRows && a.part != b.part)
      return differ("rows", a.part ? "some" : "all", b.part ? "some" : "all");
    return Ok();
  }

  static std::string kind_name(Kind kind) {
    return kind == Kind::kDense ? "dense" : "selected rows";
  }

  StoredTensor& add_tensor(const TensorClaim& claim) {
    StoredTensor tensor;
    tensor.name = claim.name;
    tensor.kind = claim.kind;
    tensor.dtype = claim.dtype;
    tensor.dims = claim.dims;
    tensor.height = claim.height;
    plan_.tensors.push_back(std::move(tensor));
    return plan_.tensors.back();
  }

  void add_chunk(const Box& box, std::vector<Holder> holders) {
    if (box.numel() == 0) return;
    plan_.chunks.push_back({plan_.tensors.size() - 1, box, 0, 0});
    holders_.push_back(std::move(holders));
  }

  Status add_dense(const std::vector<Holder>& holders) {
    std::map<Box, std::vector<Holder>> boxes;
    for (const Holder& holder : holders) {
      MILLRACE_RETURN_IF_ERROR(check_alike(holders[0], holder));
      boxes[claim_at(holder).box].push_back(holder);
    }
    std::vector<Box> parts;
    for (const auto& [box, those] : boxes) parts.push_back(box);
    const TensorClaim& first = claim_at(holders[0]);
    if (Status status = check_exact_cover(parts, first.dims); !status.ok())
      return InvalidArgument("{}", status.message());
    StoredTensor& tensor = add_tensor(first);
    for (auto& [box, those] : boxes) {
      tensor.sharded = tensor.sharded || box != Box::whole(first.dims);
      add_chunk(box, std::move(those));
    }
    return Ok();
  }

  Status add_rows(const std::vector<Holder>& holders) {
    for (const Holder& holder : holders) MILLRACE_RETURN_IF_ERROR(check_alike(holders[0], holder));
    const TensorClaim& first = claim_at(holders[0]);
    StoredTensor& tensor = add_tensor(first);
    if (!first.part) {
      add_chunk(first.box, holders);
      return Ok();
    }
    tensor.sharded = true;
    tensor.dims[0] = 0;
    for (const Holder& holder : holders) {
      Box box = claim_at(holder).box;
      box.offset[0] = tensor.dims[0];
      if (__builtin_add_overflow(tensor.dims[0], box.shape[0], &tensor.dims[0]))
        return InvalidArgument("found more than 2^63 rows");
      add_chunk(box, {holder});
    }
    return Ok();
  }

  // Arrays are whole and equal on every rank that has them, because their elements are.
  Status add_arrays() {
    std::map<std::string, std::pair<int32_t, const StoredArray*>> first;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const StoredArray& array : ranks_[rank].arrays) {
        const auto [held, added] =
            first.try_emplace(array.name, static_cast<int32_t>(rank), &array);
        if (added || *held->second.second == array) continue;
        return of_var(
            InvalidArgument("ranks {} and {} disagree on the elements of an array: {} and "
                            "{}",
                            held->second.first, rank, written_text(*held->second.second),
                            written_text(array)),
            array.name);
      }
    }
    for (const auto& [name, array] : first) {
      if (by_name_.contains(name))
        return of_var(InvalidArgument("ranks disagree on the kind: dense and array"), name);
      plan_.arrays.push_back(*array.second);
    }
    return Ok();
  }

  static std::string written_text(const StoredArray& array) {
    return fmt::format("{} of {}", std::ranges::count(array.written, true), array.written.size());
  }

  [[nodiscard]] int64_t bytes_of(const PlannedChunk& chunk) const {
    const StoredTensor& tensor = plan_.tensors[chunk.tensor];
    const int64_t numbers = tensor.kind == Kind::kSelectedRows ? chunk.box.shape[0] * 8 : 0;
    return chunk.box.numel() * dtype_size(tensor.dtype) + numbers;
  }

  void assign(size_t index, const Holder& holder) {
    PlannedChunk& chunk = plan_.chunks[index];
    chunk.owner = holder.rank;
    chunk.claim = holder.claim;
    load_[static_cast<size_t>(holder.rank)] += bytes_of(chunk);
  }

  // Assigns first the chunks that have only one possible owner, then the others, largest first.
  void assign_chunks() {
    std::vector<size_t> open;
    for (size_t i = 0; i < plan_.chunks.size(); ++i) {
      const std::vector<Holder>& holders = holders_[i];
      const auto at_coordinator = std::ranges::find(holders, coordinator_, &Holder::rank);
      if (holders.size() == 1) {
        assign(i, holders[0]);
      } else if (!claim_at(holders[0]).part && at_coordinator != holders.end()) {
        assign(i, *at_coordinator);
      } else {
        open.push_back(i);
      }
    }
    std::ranges::stable_sort(open, std::greater(),
                             [&](size_t i) { return bytes_of(plan_.chunks[i]); });
    for (const size_t i : open) {
      assign(i, *std::ranges::min_element(holders_[i], {}, [&](const Holder& holder) {
               return load_[static_cast<size_t>(holder.rank)];
             }));
    }
  }

  const std::vector<RankClaims>& ranks_;
  int32_t coordinator_;
  std::map<std::string, std::vector<Holder>> by_name_;
  SavePlan plan_;
  std::vector<std::vector<Holder>> holders_;  // possible owners of each chunk
  std::vector<int64_t> load_;                 // bytes to write, by rank
};

void write_dims(JsonWriter& out, const char* key, const Dims& dims) {
  out.key(key).begin_array();
  for (const int64_t dim : dims) out.value(dim);
  out.end_array();
}

Status malformed(const char* member) {
  return InvalidData("the claims of a rank: member '{}' is malformed", member);
}

StatusOr<Dims> read_dims(const JsonValue& object, const char* key) {
  const JsonValue* const value = object.find(key);
  const auto numbers = value == nullptr ? std::nullopt : value->counts();
  if (!numbers) return malformed(key);
  return Dims(numbers->begin(), numbers->end());
}

StatusOr<int64_t> read_count(const JsonValue& object, const char* key) {
  const JsonValue* const value = object.find(key);
  const auto number = value == nullptr ? std::nullopt : value->count();
  if (!number) return malformed(key);
  return *number;
}

StatusOr<std::string> read_name(const JsonValue& object) {
  const JsonValue* const value = object.find("name");
  const auto* const text = value == nullptr ? nullptr : value->get_if<std::string>();
  if (text == nullptr) return malformed("name");
  return *text;
}

StatusOr<TensorClaim> read_claim(const JsonValue& object) {
  TensorClaim claim;
  MILLRACE_ASSIGN_OR_RETURN(claim.name, read_name(object));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t rows, read_count(object, "rows"));
  claim.kind = rows == 0 ? Kind::kDense : Kind::kSelectedRows;
  MILLRACE_ASSIGN_OR_RETURN(const int64_t dtype, read_count(object, "dtype"));
  claim.dtype = static_cast<DType>(dtype);
  if (dtype > 1000 || !is_valid(claim.dtype)) return malformed("dtype");
  MILLRACE_ASSIGN_OR_RETURN(claim.dims, read_dims(object, "dims"));
  MILLRACE_ASSIGN_OR_RETURN(claim.box.offset, read_dims(object, "offset"));
  MILLRACE_ASSIGN_OR_RETURN(claim.box.shape, read_dims(object, "shape"));
  MILLRACE_ASSIGN_OR_RETURN(claim.height, read_count(object, "height"));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t part, read_count(object, "part"));
  claim.part = part != 0;
  MILLRACE_RETURN_IF_ERROR(check_inside(claim.box, claim.dims));
  return claim;
}

StatusOr<StoredArray> read_array(const JsonValue& object) {
  StoredArray array;
  MILLRACE_ASSIGN_OR_RETURN(array.name, read_name(object));
  MILLRACE_ASSIGN_OR_RETURN(const Dims written, read_dims(object, "written"));
  for (const int64_t there : written) array.written.push_back(there != 0);
  return array;
}

const JsonItems* items_of(const JsonValue& root, const char* key) {
  const JsonValue* const value = root.find(key);
  return value == nullptr ? nullptr : value->get_if<JsonItems>();
}

}  // namespace
}  // namespace plan_parts

void LocalState::add(std::string name, const Value& value) {
  tensors.push_back({std::move(name), &value, {}, {}, false});
}

void LocalState::add_part(std::string name, const Value& value, Dims global_dims, Dims offset) {
  tensors.push_back({std::move(name), &value, std::move(global_dims), std::move(offset), false});
}

void LocalState::add_rows(std::string name, const Value& value) {
  tensors.push_back({std::move(name), &value, {}, {}, true});
}

void LocalState::add_record(std::string name, std::string_view bytes) {
  records.push_back({std::move(name), bytes});
}

StatusOr<RankClaims> claims_of(const LocalState& state) {
  RankClaims claims;
  std::set<std::string_view> names;
  for (const LocalTensor& local : state.tensors) {
    StatusOr<TensorClaim> claim = plan_parts::claim_of(local);
    if (!claim.ok()) return of_var(std::move(claim).status(), local.name);
    if (!names.insert(local.name).second)
      return of_var(InvalidArgument("the name occurs twice"), local.name);
    claims.tensors.push_back(*std::move(claim));
  }
  names.clear();
  for (const LocalRecord& record : state.records) {
    MILLRACE_RETURN_IF_ERROR(check_entry_name(record.name));
    if (!names.insert(record.name).second)
      return InvalidArgument("record '{}' occurs twice", record.name);
    claims.records.push_back({record.name, static_cast<int64_t>(record.bytes.size())});
  }
  return claims;
}

StatusOr<SavePlan> make_save_plan(const std::vector<RankClaims>& ranks, int32_t coordinator) {
  return plan_parts::Planner(ranks, coordinator).plan();
}

std::string claims_text(const RankClaims& claims) {
  using namespace plan_parts;
  JsonWriter out(0);
  out.begin_object().key("tensors").begin_array();
  for (const TensorClaim& claim : claims.tensors) {
    out.begin_object().member("name", claim.name);
    out.member("rows", claim.kind == Kind::kSelectedRows ? 1 : 0);
    out.member("dtype", static_cast<int>(claim.dtype));
    write_dims(out, "dims", claim.dims);
    write_dims(out, "offset", claim.box.offset);
    write_dims(out, "shape", claim.box.shape);
    out.member("height", claim.height).member("part", claim.part ? 1 : 0).end_object();
  }
  out.end_array().key("arrays").begin_array();
  for (const StoredArray& array : claims.arrays) {
    out.begin_object().member("name", array.name);
    write_dims(out, "written", Dims(array.written.begin(), array.written.end()));
    out.end_object();
  }
  out.end_array().key("records").begin_array();
  for (const RecordClaim& record : claims.records)
    out.begin_object().member("name", record.name).member("bytes", record.bytes).end_object();
  return out.end_array().end_object().take();
}

StatusOr<RankClaims> parse_claims(std::string_view text) {
  using namespace plan_parts;
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue root, parse_json(text));
  const JsonItems* const tensors = items_of(root, "tensors");
  const JsonItems* const arrays = items_of(root, "arrays");
  const JsonItems* const records = items_of(root, "records");
  if (tensors == nullptr || arrays == nullptr || records == nullptr) return malformed("tensors");
  RankClaims claims;
  for (const JsonValue& item : *tensors) {
    MILLRACE_ASSIGN_OR_RETURN(TensorClaim claim, read_claim(item));
    claims.tensors.push_back(std::move(claim));
  }
  for (const JsonValue& item : *arrays) {
    MILLRACE_ASSIGN_OR_RETURN(StoredArray array, read_array(item));
    claims.arrays.push_back(std::move(array));
  }
  for (const JsonValue& item : *records) {
    MILLRACE_ASSIGN_OR_RETURN(std::string name, read_name(item));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t bytes, read_count(item, "bytes"));
    claims.records.push_back({std::move(name), bytes});
  }
  return claims;
}

}  // namespace millrace::io
