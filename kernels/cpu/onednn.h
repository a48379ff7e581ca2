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

/// The only interface to oneDNN. Its headers, exceptions and differences between versions stay in
/// onednn*.cc. Kernels see descriptions of tensors, makers of primitives, and run().
namespace millrace::kernels::dnn {

/// An argument of a primitive as the caller stores it: element [i, j, ...] of dims is at offset i *
/// strides[0] + j * strides[1] + ..., in elements.
struct Desc {
  DType dtype = DType::kFloat32;  ///< of the elements in memory
  Dims dims;                      ///< in the order of oneDNN: batch, channels, spatial dims
  Dims strides;                   ///< one entry per dim
};
/// Row-major elements of these dims.
Desc dense(DType dtype, llvm::ArrayRef<int64_t> dims);
/// An image tensor; the channels are in the last dim if channels_last, else in dim 1.
Desc image(const Tensor& tensor, bool channels_last);

/// The role of an argument; for gradients, diff_src is the gradient of src, and so on.
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

/// A primitive made for certain dims; it can run any number of times.
///
/// Where the library prefers another layout than the argument has, run() converts in both
/// directions. Tensors that are already in the preferred layout (layout()) are read and written
/// without conversion. Copies share the primitive. Thread-safety: one call at a time.
class Primitive {
 public:
  struct State;  ///< hides the types of the library
  /// Memory of an argument; only outputs are written.
  struct Binding {
    /// Elements as the maker described them.
    Binding(Arg which, const void* first) : arg(which), data(first) {}
    /// Elements in the layout of the tensor, row-major if it has none.
    Binding(Arg which, const Tensor& tensor)
        : arg(which), data(tensor.raw()), layout(&tensor.layout()) {}

    Arg arg;           ///< which operand
    const void* data;  ///< its elements
    /// Order of the elements; null: row-major.
    const std::shared_ptr<const Layout>* layout = nullptr;
  };

  explicit Primitive(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Runs on device.threads() threads; every argument that the primitive was made with must be
  /// bound. Uses scratch slot 3 of the device. Errors: kResource, kExecution.
  Status run(CpuDevice& device, llvm::ArrayRef<Binding> bindings) const;

  /// The layout for which this argument needs no conversion; null if it is the one that the maker
  /// described, or if there is no such argument.
  [[nodiscard]] std::shared_ptr<const Layout> layout(Arg arg) const;

 private:
  std::shared_ptr<State> state_;
};

/// The last operation of a fused primitive: max(x, 0), min(max(x, 0), alpha), or alpha * x below 0.
enum class Rectifier : uint8_t { kNone, kRelu, kRelu6, kLeakyRelu };

/// A convolution of spatial rank 1 to 3. All makers fail with kUnimplemented and the library's
/// message where it has no such primitive; callers then use another kernel.
struct Convolution {
  Desc src;      ///< [batch, in, spatial...]
  Desc weights;  ///< [out, in, kernel...], or [groups, out / groups, in / groups, kernel...]
  Desc dst;      ///< [batch, out, spatial...]
  Dims strides;  ///< one entry per spatial dim, also in the following lists
  Dims dilations;
  Dims before;              ///< padding
  Dims after;               ///< padding after the last element
  bool bias = false;        ///< kBias has one element per output channel
  bool accumulate = false;  ///< adds to the old content of dst
  Rectifier rectifier = Rectifier::kNone;
  float alpha = 0.0F;  ///< of the rectifier
  /// Rounds float inputs to bfloat16 in each run; sums and the result are float. kUnimplemented if
  /// the processor has no such convolutions.
  bool bf16_factors = false;
  /// Winograd's method, for 3 x 3 windows: at most half the time, two to four times the rounding
  /// error (2e-7 to 6e-7 of the result), and scratch memory in proportion to the images.
  /// kUnimplemented if the library does not have it.
  bool winograd = false;
  /// The preferred layout of the weights may be one that cannot be converted back; forward only.
  bool packed_weights = false;
  /// Preferred layout of the gradient of the weights; used if it costs nothing.
  std::shared_ptr<const Layout> weights_layout = nullptr;
  /// Forward, with src and weights of int8: the sums of integers, plus the bias, are multiplied by
  /// the scale of their output channel. One entry for each channel of dst, none 0; empty for
  /// floating point. The layout of the weights cannot be converted back.
  std::vector<float> scales = {};
};
/// kSrc, kWeights[, kBias] -> kDst = rectifier(src * weights + bias [+ old dst]). The gradients
/// ignore bias, accumulate and rectifier.
StatusOr<Primitive> convolution(CpuDevice& device, const Convolution& spec);
/// kDiffDst, kWeights -> kDiffSrc.
StatusOr<Primitive> convolution_backward_data(CpuDevice& device, const Convolution& spec);
/// kSrc, kDiffDst -> kDiffWeights.
StatusOr<Primitive> convolution_backward_weights(CpuDevice& device, const Convolution& spec);

/// A function of one number that a primitive applies to its result.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSigmoid, kTanh };

/// dst = activation(alpha * src x weights [+ bias] [+ old dst, or + summand]) of matrices, or of
/// batches of matrices with the given leading dims (dims of 1 are repeated). Transposed factors are
/// expressed by strides. With a bias, alpha must be 1.
struct Product {
  Desc src;      ///< [..., rows, inner]
  Desc weights;  ///< [..., inner, columns]
  Desc dst;      ///< [..., rows, columns]
  float alpha = 1.0F;
  bool bias = false;        ///< kBias has one element per column
  bool accumulate = false;  ///< adds to the old content of dst
  bool summand = false;     ///< kSummand has the dims and strides of dst; not with accumulate
  Activation activation = Activation::kNone;
  /// Converts weights to the library's layout in each run; pays off for many rows.
  bool pack_weights = false;
  /// Rounds float factors to bfloat16 in each run; sums and the result are float. kUnimplemented if
  /// the processor has no such products.
  bool bf16_factors = false;
  /// Uses no tiles for float products, even where they are faster (tile_product.h).
  bool float_units = false;
  /// With src and weights of int8, for two matrices: one entry for each column, as in Convolution.
  std::vector<float> scales = {};
};
/// kSrc, kWeights[, kBias][, kSummand] -> kDst. Large float products of two matrices use tiles if
/// the processor has them.
StatusOr<Primitive> product(CpuDevice& device, const Product& spec);

/// True if products and convolutions of int8 are exact on this processor: it adds pairs of products
/// in 32 bits (VNNI of AVX2 or AVX-512). Others saturate such sums at 16 bits, or halve the weights
/// to avoid that. The limit of cpu_isa.h may forbid the instructions.
bool multiplies_int8();

/// c = alpha * op(a) x op(b), all row-major; strides are from row to row, in elements.
struct SmallProduct {
  int64_t rows = 0;           ///< of c
  int64_t columns = 0;        ///< of c
  int64_t inner = 0;          ///< terms of each sum
  bool a_transposed = false;  ///< a is [inner, rows]
  bool b_transposed = false;  ///< b is [columns, inner]
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  float alpha = 1.0F;  ///< factor of the product
};
/// Multiplies on the calling thread, without a prepared primitive: for kernels that distribute many
/// small matrices over threads themselves. Matrices must not be empty. Errors: kResource,
/// kExecution.
Status multiply(const SmallProduct& spec, const float* a, const float* b, float* c);

/// Primitives (or other prepared objects) of one kernel, by the dims they were made for. The entry
/// used last is checked first. The oldest entries are removed when there are too many.
template <typename T>
class ShapeCache {
 public:
  /// The entry of a key; make() must return a StatusOr<T> and is called if there is no entry yet.
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
  /// Bounds the memory of programs whose shapes differ in every run.
  static constexpr size_t kLimit = 64;
  struct Entry {
    llvm::SmallVector<int64_t, 12> key;  ///< dims and flags of one shape
    T value;                             ///< what was made for it
  };
  std::vector<std::unique_ptr<Entry>> entries_;  ///< at stable addresses
};

}  // namespace millrace::kernels::dnn
