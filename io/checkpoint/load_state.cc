#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/cast.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/checkpoint.h"
#include "io/normalize_bools.h"

namespace millrace::io {
namespace {

using Kind = StoredTensor::Kind;

Status check_target(const LoadTarget& target, const StoredTensor& stored, bool casts) {
  if (target.dtype && *target.dtype != stored.dtype && !casts) {
    return InvalidData("expected dtype {}, found {}", dtype_name(*target.dtype),
                       dtype_name(stored.dtype));
  }
  if (!target.dims) return Ok();
  const bool rows = stored.kind == Kind::kSelectedRows;
  bool fits = target.dims->size() == stored.dims.size();
  for (size_t i = rows ? 1 : 0; fits && i < stored.dims.size(); ++i)
    fits = (*target.dims)[i] == -1 || (*target.dims)[i] == stored.dims[i];
  if (fits) return Ok();
  return InvalidData("expected shape [{}], found [{}]", fmt::join(*target.dims, ", "),
                     fmt::join(stored.dims, ", "));
}

// One load: the targets, the memory that is read into, and what remains to do after reading.
class StateLoad {
 public:
  StateLoad(const Manifest& manifest, const std::string& folder,
            const std::vector<LoadTarget>& targets, const LoadStateOptions& options)
      : manifest_(manifest), folder_(folder), targets_(targets), options_(options) {}

  Status run(ReadWanted read) {
    std::vector<WantedBytes> numbers;
    MILLRACE_RETURN_IF_ERROR(read(want_numbers(numbers), numbers));
    std::vector<WantedBytes> values;
    MILLRACE_RETURN_IF_ERROR(read(want_values(values), values));
    MILLRACE_RETURN_IF_ERROR(read(finish(), {}));
    for (Loaded& loaded : loaded_) *loaded.target->value = std::move(loaded.value);
    return Ok();
  }

 private:
  struct Loaded {
    const LoadTarget* target = nullptr;
    const StoredTensor* stored = nullptr;  // null for an array
    const StoredArray* array = nullptr;
    std::vector<int64_t> numbers;  // row numbers of all rows of a table
    Value value;
  };

  [[nodiscard]] Status of_target(Status status, const std::string& name) const {
    Location location = status.location();
    if (location.file.empty()) location.file = folder_;
    location.var = name;
    return std::move(status).at(std::move(location));
  }

  Status check_unexpected() const {
    std::set<std::string, std::less<>> names;
    for (const LoadTarget& target : targets_) names.insert(target.name);
    for (const std::string& name : manifest_.value_names()) {
      if (!names.contains(name))
        return of_target(InvalidData("the checkpoint has a tensor that is not wanted"), name);
    }
    return Ok();
  }

  // Finds and checks the targets. \param wanted  receives the requests for row numbers of tables
  Status want_numbers(std::vector<WantedBytes>& wanted) {
    if (!options_.allow_unexpected) MILLRACE_RETURN_IF_ERROR(check_unexpected());
    for (const LoadTarget& target : targets_) {
      if (!manifest_.has(target.name)) {
        if (options_.allow_missing) continue;
        return no_such_tensor(manifest_, target.name).in_file(folder_);
      }
      Loaded& loaded = loaded_.emplace_back();
      loaded.target = &target;
      loaded.array = manifest_.find_array(target.name);
      Status status = loaded.array != nullptr ? check_array(target, *loaded.array)
                                              : find_tensor(loaded, wanted);
      if (!status.ok()) return of_target(std::move(status), target.name);
    }
    return Ok();
  }

  [[nodiscard]] Status check_array(const LoadTarget& target, const StoredArray& array) const {
    if (target.box || target.rows)
      return InvalidArgument("expected a tensor to load a part of, found an array");
    for (size_t i = 0; i < array.written.size(); ++i) {
      if (!array.written[i]) continue;
      const StoredTensor& element = *manifest_.find(array_element_name(array.name, i));
      if (!target.dtype || *target.dtype == element.dtype || options_.cast) continue;
      return InvalidData("element {}: expected dtype {}, found {}", i, dtype_name(*target.dtype),
                         dtype_name(element.dtype));
    }
    return Ok();
  }

  Status find_tensor(Loaded& loaded, std::vector<WantedBytes>& wanted) const {
    const LoadTarget& target = *loaded.target;
    loaded.stored = manifest_.find(target.name);
    MILLRACE_RETURN_IF_ERROR(check_target(target, *loaded.stored, options_.cast));
    if (loaded.stored->kind != Kind::kSelectedRows || target.box) return Ok();
    loaded.numbers.resize(static_cast<size_t>(loaded.stored->dims[0]));
    want_row_numbers(*loaded.stored, loaded.numbers, wanted);
    return Ok();
  }

  // Allocates memory and requests the values, all at once, so that threads share the reads.
  Status want_values(std::vector<WantedBytes>& wanted) {
    for (Loaded& loaded : loaded_) {
      Status status =
          loaded.array != nullptr ? want_array(loaded, wanted) : want_tensor(loaded, wanted);
      if (!status.ok()) return of_target(std::move(status), loaded.target->name);
    }
    return Ok();
  }

  static Status want_dense(const StoredTensor& stored, const Box& box, Tensor& tensor,
                           std::vector<WantedBytes>& wanted) {
    MILLRACE_RETURN_IF_ERROR(tensor.resize(stored.dtype, box.shape));
    want_box(stored, box, {tensor.raw(), static_cast<size_t>(tensor.bytes())}, wanted);
    return Ok();
  }

  Status want_array(Loaded& loaded, std::vector<WantedBytes>& wanted) const {
    TensorArray& elements = loaded.value.as<TensorArray>();
    elements.resize(loaded.array->written.size());
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!loaded.array->written[i]) continue;
      const StoredTensor& stored = *manifest_.find(array_element_name(loaded.array->name, i));
      MILLRACE_RETURN_IF_ERROR(want_dense(stored, Box::whole(stored.dims), elements[i], wanted));
      elements[i].set_lod(stored.lod);
    }
    return Ok();
  }

  static Status want_tensor(Loaded& loaded, std::vector<WantedBytes>& wanted) {
    const LoadTarget& target = *loaded.target;
    const StoredTensor& stored = *loaded.stored;
    if (stored.kind == Kind::kSelectedRows && !target.box) {
      MILLRACE_RETURN_IF_ERROR(check_row_numbers(stored, loaded.numbers));
      return want_chosen_rows(stored, loaded.numbers, target.rows, loaded.value.as<SelectedRows>(),
                              wanted);
    }
    const Box box = target.box.value_or(Box::whole(stored.dims));
    // Check before allocating memory of that size.
    MILLRACE_RETURN_IF_ERROR(check_inside(box, stored.dims));
    Tensor& tensor = loaded.value.as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(want_dense(stored, box, tensor, wanted));
    if (!target.box) tensor.set_lod(stored.lod);
    return Ok();
  }

  Status finish() {
    for (Loaded& loaded : loaded_) {
      for (Tensor* const tensor : tensors_of(loaded.value)) {
        normalize_bools(*tensor);
        if (!loaded.target->dtype) continue;
        if (Status status = cast(*tensor, *loaded.target->dtype); !status.ok())
          return of_target(std::move(status), loaded.target->name);
      }
    }
    return Ok();
  }

  const Manifest& manifest_;
  const std::string& folder_;
  const std::vector<LoadTarget>& targets_;
  const LoadStateOptions& options_;
  std::deque<Loaded> loaded_;  // reads point into these
};

}  // namespace

Status load_state_with(const Manifest& manifest, const std::string& folder,
                       const std::vector<LoadTarget>& targets, const LoadStateOptions& options,
                       ReadWanted read) {
  return StateLoad(manifest, folder, targets, options).run(read);
}

Status load_state_dict(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets,
                       const LoadStateOptions& options) {
  const auto read = [&](Status mine, const std::vector<WantedBytes>& wanted) {
    return mine.ok() ? checkpoint.read(wanted) : mine;
  };
  return load_state_with(checkpoint.manifest(), checkpoint.folder(), targets, options, read);
}

}  // namespace millrace::io
