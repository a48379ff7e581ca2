#include "kernels/cpu/detection/boxes.h"

#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {

StatusOr<std::vector<int64_t>> part_offsets(const Tensor& tensor, const Tensor* counts,
                                            const char* slot) {
  if (counts == nullptr) {
    if (tensor.lod().empty())
      return KernelContext::error("{} must have a LoD, found {}", slot, describe(tensor));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(tensor, slot));
    return std::vector<int64_t>(offsets.begin(), offsets.end());
  }
  std::vector<int64_t> offsets = {0};
  const int64_t rows = tensor.rank() == 0 ? 0 : tensor.dim(0);
  MILLRACE_RETURN_IF_ERROR(dispatch<IntTypes>(counts->dtype(), [&](auto tag) -> Status {
    for (const auto count : counts->values<typename decltype(tag)::type>()) {
      if (count < 0 || count > rows - offsets.back())
        return KernelContext::error("the counts of {} do not add up to its {} rows", slot, rows);
      offsets.push_back(offsets.back() + count);
    }
    return Ok();
  }));
  if (offsets.back() == rows) return offsets;
  return KernelContext::error("the counts of {} add up to {}, expected {}", slot, offsets.back(),
                              rows);
}

Status put_int32(Tensor* out, llvm::ArrayRef<int64_t> values, bool column) {
  if (out == nullptr) return Ok();
  Dims dims = {static_cast<int64_t>(values.size())};
  if (column) dims.push_back(1);
  MILLRACE_RETURN_IF_ERROR(out->resize(DType::kInt32, dims));
  for (size_t i = 0; i < values.size(); ++i)
    out->data<int32_t>()[i] = static_cast<int32_t>(values[i]);
  return Ok();
}

}  // namespace millrace::kernels
