#pragma once

#include <utility>
#include <vector>

#include "kernels/cpu/rnn/step_order.h"
#include "kernels/gpu/functors/recurrent.h"
#include "kernels/gpu/functors/row_moves.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/device_numbers.h"
#include "kernels/gpu/ops/kept_memory.h"

/// What lstm and gru over LoD sequences have in common: the rows of each time step, and device
/// memory for what the program does not request.
namespace millrace::gpu {

/// The rows of sequences by time step (kernels/cpu/rnn/step_order.h), with the numbers that the
/// kernels need in device memory. Thread-safety: as Device.
class StepRows {
 public:
  explicit StepRows(Memory& memory) : memory_(memory) {}

  /// Errors: kResource, kExecution.
  /// \param offsets  of the sequences
  /// \param reverse  the last row of a sequence is its time step 0
  Status build(llvm::ArrayRef<int64_t> offsets, bool reverse);

  [[nodiscard]] const kernels::rnn::StepOrder& order() const { return order_; }
  /// Row of the LoD tensor at each position in order of time steps, from the given position on.
  [[nodiscard]] const int64_t* rows(int64_t from = 0) const { return numbers_ + from; }
  /// The inverse: the position of each row.
  [[nodiscard]] const int64_t* positions() const { return numbers_ + order_.rows(); }
  /// The position of the previous time step; of the first one -1 - n for sequence n. For PickRows.
  [[nodiscard]] const int64_t* before() const { return numbers_ + 2 * order_.rows(); }
  /// Sequences, longest first, and the inverse.
  [[nodiscard]] const int64_t* sequences() const { return numbers_ + 3 * order_.rows(); }
  [[nodiscard]] const int64_t* ranks() const { return sequences() + order_.sequences(); }

  /// to[i, :] = from[rows[i], :], or of `other` as PickRows has it, for `count` rows.
  [[nodiscard]] Status pick(const int64_t* rows, const float* from, const float* other,
                            int64_t width, int64_t count, float* to) const;

 private:
  Memory& memory_;
  kernels::rnn::StepOrder order_;
  std::vector<int64_t> offsets_;  ///< that the order was built for
  DeviceNumbers held_;
  const int64_t* numbers_ = nullptr;  ///< in device memory: all of the above, one after another
};

/// Float arrays of one call in one allocation that is kept between calls. First add() all of them,
/// then open() once; after that the pointers are valid.
class ScratchFloats {
 public:
  explicit ScratchFloats(Memory& memory) : kept_(memory, "states of a recurrent op") {}
  /// Sets *place in open(). \param given  memory to use instead; null: none
  void add(float** place, int64_t count, float* given = nullptr);
  /// Errors: kResource.
  Status open();

 private:
  KeptMemory<float> kept_;
  std::vector<std::pair<float**, int64_t>> wanted_;  ///< with the offset of each
  int64_t total_ = 0;                                ///< elements
};

/// The memory of an output, or null if the program does not request it. Errors: rejects the call if
/// it has another number of elements or is not f32.
StatusOr<float*> output_of_size(Tensor* tensor, int64_t count);

/// Finds the gradients that the ops have in common: of Input, Weight and, where the op has them,
/// Bias and first states. Errors: rejects outputs with other dims.
/// \param args, tensors, to  structs of one of the ops
template <typename Args, typename Tensors, typename Wanted>
Status find_common_gradients(const KernelContext& ctx, const Args& args, const Tensors& tensors,
                             Wanted& to) {
  MILLRACE_ASSIGN_OR_RETURN(to.input, output_like(ctx, args.dinput, *tensors.input));
  MILLRACE_ASSIGN_OR_RETURN(to.weight, output_like(ctx, args.dweight, *tensors.weight));
  if (tensors.bias != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(to.bias, output_like(ctx, args.dbias, *tensors.bias));
  }
  if (tensors.h0 != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(to.h0, output_like(ctx, args.dh0, *tensors.h0));
  }
  return Ok();
}

/// to[k] = sum of column k of [rows, width]; nothing if `to` is null.
Status sum_columns(Device& device, const float* from, int64_t rows, int64_t width, float* to);

}  // namespace millrace::gpu
