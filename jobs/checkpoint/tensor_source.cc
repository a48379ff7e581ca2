#include "jobs/checkpoint/tensor_source.h"

namespace millrace::jobs {

TensorSource::~TensorSource() = default;

StatusOr<io::TensorFileEntry> TensorSource::facts(const std::string& name) const {
  MILLRACE_ASSIGN_OR_RETURN(const Value value, load(name));
  return io::tensor_file_entry(name, value);
}

int64_t TensorSource::step() const {
  return -1;
}

std::vector<TensorSource::Slice> TensorSource::slices(const std::string& /*name*/) const {
  return {};
}

}  // namespace millrace::jobs
