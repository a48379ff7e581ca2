#include "jobs/checkpoint/fits_program.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "io/model_folder.h"

namespace millrace::jobs {
namespace {

Status in_checkpoint(Status status, const std::string& folder, const std::string& var) {
  Location location;
  location.file = folder;
  location.var = var;
  return std::move(status).at(std::move(location));
}

void check_vars(const Program& program, const io::Checkpoint& checkpoint,
                std::vector<Status>& wrong) {
  for (const io::ParamSpec& spec : io::persistables_of(program)) {
    const io::StoredTensor* const stored = checkpoint.manifest().find(spec.name);
    const auto report = [&](Status status) {
      wrong.push_back(in_checkpoint(std::move(status), checkpoint.folder(), spec.name));
    };
    if (stored == nullptr) {
      report(NotFound("the program has this variable, the checkpoint does not"));
      continue;
    }
    if (spec.dtype && *spec.dtype != stored->dtype) {
      report(InvalidData("expected dtype {}, found {}", dtype_name(*spec.dtype),
                         dtype_name(stored->dtype)));
    }
    const bool rows = stored->kind == io::StoredTensor::Kind::kSelectedRows;
    if (!spec.dims || rows) continue;
    bool fits = spec.dims->size() == stored->dims.size();
    for (size_t i = 0; fits && i < stored->dims.size(); ++i)
      fits = (*spec.dims)[i] == -1 || (*spec.dims)[i] == stored->dims[i];
    if (!fits) {
      report(InvalidData("expected shape [{}], found [{}]", fmt::join(*spec.dims, ", "),
                         fmt::join(stored->dims, ", ")));
    }
  }
}

void check_arrays(const Program& program, const io::Checkpoint& checkpoint,
                  std::vector<Status>& wrong) {
  for (const Var& var : program.root().vars()) {
    if (!var.persistable() || var.kind() != VarKind::kLodTensorArray) continue;
    const std::string name = var.name().str();
    if (checkpoint.manifest().find_array(name) != nullptr) continue;
    Status status = checkpoint.manifest().find(name) == nullptr
                        ? NotFound("the program has this array, the checkpoint does not")
                        : InvalidData("expected a tensor array, found a tensor");
    wrong.push_back(in_checkpoint(std::move(status), checkpoint.folder(), name));
  }
}

}  // namespace

std::vector<Status> check_fits_program(const io::Checkpoint& checkpoint, const Program& program) {
  std::vector<Status> wrong;
  check_vars(program, checkpoint, wrong);
  check_arrays(program, checkpoint, wrong);
  return wrong;
}

}  // namespace millrace::jobs
