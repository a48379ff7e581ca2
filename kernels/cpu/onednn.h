#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/base/status.h"
#include "framework/tensor/layout.h"
#include "framework/tensor/tensor.h"
#include "framework/var.h"
#include "kernels/device.h"

/// The only door to oneDNN. Its headers, its exceptions and what differs between its versions stay
/// in onednn*.cc; kernels see descriptions of tensors, makers of primitives, and run().
namespace millrace::kernels::dnn {

/// An argument of a primitive as the caller holds it: element [i, j, ...] of dims stands at offset
/// i * strides[0] + j * strides[1] + ..., in elements.
struct Desc {
  DType dtype = DType::kFloat32;
  Dims dims;     ///< in the order of oneDNN: batch, channels, spatial dims
  Dims strides;  ///< as long as dims
};
/// Row-major elements of these dims.
Desc dense(DType dtype, llvm::ArrayRef<int64_t> dims);
/// An image tensor; with the channels in the last dim if channels_last, else in dim 1.
Desc image(const Tensor& tensor, bool channels_last);

/// What an argument means; for gradients diff_src = gradient of src and so on.
enum class Arg : uint8_t {
  kSrc,
  kWeights,  ///< of a product: the second factor
  kBias,
  kSummand,  ///< added to the result
  kDst,
  kDiffSrc,
  kDiffWeights,
  kDiffDst,
};

/// A primitive made for certain dims, ready to run any number of times.
///
/// Where the library prefers another layout than that of an argument, run() converts to and fro;
/// tensors that are in its own layout already (layout()) are taken and written as they are. Copies
/// share the primitive. Thread-safety: one call at a time.
class Primitive {
 public:
  struct State;
  /// Where an argument stands; only outputs are written.
  struct Binding {
    /// Elements as the maker described them.
    Binding(Arg which, const void* first) : arg(which), data(first) {}
    /// Elements in the layout of the tensor, row-major if it has none.
    Binding(Arg which, const Tensor& tensor)
        : arg(which), data(tensor.raw()), layout(&tensor.layout()) {}

    Arg arg;
    const void* data;
    const std::shared_ptr<const Layout>* layout = nullptr;
  };

  explicit Primitive(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Runs on device.threads() threads; every argument the primitive was made with must be bound.
  /// Uses scratch slot 3 of the device. Errors: kResource, kExecution.
  Status run(CpuDevice& device, llvm::ArrayRef<Binding> bindings) const;

  /// The layout in which nothing is converted for this argument; null if that is the one the maker
  /// described, or if there is no such argument.
  [[nodiscard]] std::shared_ptr<const Layout> layout(Arg arg) const;

 private:
  std::shared_ptr<State> state_;
};

/// What comes last in a fused primitive: max(x, 0), min(max(x, 0), alpha), or alpha * x below 0.
enum class Rectifier : uint8_t { kNone, kRelu, kRelu6, kLeakyRelu };

/// A convolution of any spatial rank from 1 to 3. All makers fail with kUnimplemented, naming what
/// the library said, where it has no such primitive; callers then use a kernel of their own.
struct Convolution {
  Desc src;
  Desc weights;  ///< [out, in, kernel...], or [groups, out / groups, in / groups, kernel...]
  Desc dst;
  Dims strides;  ///< one entry a spatial dim, as in all that follow
  Dims dilations;
  Dims before;  ///< padding
  Dims after;
  bool bias = false;
  bool accumulate = false;  ///< adds to what dst holds
  Rectifier rectifier = Rectifier::kNone;
  float alpha = 0.0F;  ///< of the rectifier
  /// Rounds what is read, of float, to bfloat16 in each run; sums and the result are float.
  /// kUnimplemented where the processor has no such convolutions.
  bool bf16_factors = false;
  /// Winograd's method, for windows of 3 x 3: half of the time or less, twice to four times the
  /// rounding (2e-7 to 6e-7 of the result), scratch memory in proportion to the images.
  /// kUnimplemented where the library has none.
  bool winograd = false;
  /// The weights may be wanted in a layout from which there is no way back; forward only.
  bool packed_weights = false;
  /// Layout in which the gradient of the weights is wanted, where that costs nothing.
  std::shared_ptr<const Layout> weights_layout = nullptr;
};
/// kSrc, kWeights[, kBias] -> kDst = rectifier(src * weights + bias [+ old dst]). The gradients do
/// not look at bias, accumulate and rectifier.
StatusOr<Primitive> convolution(CpuDevice& device, const Convolution& spec);
/// kDiffDst, kWeights -> kDiffSrc.
StatusOr<Primitive> convolution_backward_data(CpuDevice& device, const Convolution& spec);
/// kSrc, kDiffDst -> kDiffWeights.
StatusOr<Primitive> convolution_backward_weights(CpuDevice& device, const Convolution& spec);

/// A function of one number that a primitive applies to its result.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSigmoid, kTanh };

/// dst = activation(alpha * src x weights [+ bias] [+ old dst, or + summand]) of matrices, or of as
/// many matrices as the leading dims say (dims of 1 are repeated). Transposed factors are a matter
/// of strides. With a bias, alpha must be 1.
struct Product {
  Desc src;      ///< [..., rows, inner]
  Desc weights;  ///< [..., inner, columns]
  Desc dst;      ///< [..., rows, columns]
  float alpha = 1.0F;
  bool bias = false;        ///< kBias has one element a column
  bool accumulate = false;  ///< adds to what dst holds
  bool summand = false;     ///< kSummand has the dims and strides of dst; not with accumulate
  Activation activation = Activation::kNone;
  /// Converts weights to the library's own layout in each run; pays for many rows.
  bool pack_weights = false;
  /// Rounds float factors to bfloat16 in each run; sums and the result are float. kUnimplemented
  /// where the processor has no such products.
  bool bf16_factors = false;
  /// Leaves float products to the float units, also where tiles are faster (tile_product.h).
  bool float_units = false;
};
/// kSrc, kWeights[, kBias][, kSummand] -> kDst. Large float products of two matrices run on tiles
/// where the processor has them.
StatusOr<Primitive> product(CpuDevice& device, const Product& spec);

/// c = alpha * op(a) x op(b), all row-major, rows of a matrix a stride apart, in elements.
struct SmallProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  bool a_transposed = false;  ///< a is [inner, rows]
  bool b_transposed = false;  ///< b is [columns, inner]
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  float alpha = 1.0F;
};
/// Multiplies on the calling thread, with nothing prepared: for kernels that spread many small
/// matrices over threads themselves. Matrices must not be empty. Errors: kResource, kExecution.
Status multiply(const SmallProduct& spec, const float* a, const float* b, float* c);

/// Primitives (or other prepared things) of one kernel by the dims they were made for; the one used
/// last is found first. The oldest go when there are too many.
template <typename T>
class ShapeCache {
 public:
  /// The entry of a key; make() gives a StatusOr<T> if there is none yet.
  template <typename Make>
  StatusOr<T*> get(llvm::ArrayRef<int64_t> key, Make&& make) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (key != llvm::ArrayRef<int64_t>(entries_[i]->key)) continue;
      if (i > 0) std::swap(entries_[i], entries_[i - 1]);
      return &entries_[i > 0 ? i - 1 : 0]->value;
    }
    MILLRACE_ASSIGN_OR_RETURN(T made, make());
    if (entries_.size() == kLimit) entries_.pop_back();
    entries_.insert(entries_.begin(),
                    std::make_unique<Entry>(Entry{{key.begin(), key.end()}, std::move(made)}));
    return &entries_.front()->value;
  }

 private:
  static constexpr size_t kLimit = 64;
  struct Entry {
    llvm::SmallVector<int64_t, 12> key;
    T value;
  };
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace millrace::kernels::dnn
