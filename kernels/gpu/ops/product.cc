#include <algorithm>
#include <array>
#include <optional>

#include <llvm/ADT/SmallVector.h>

#include "kernels/gpu/ops/halves.h"
#include "kernels/registry.h"
#include "ops/math/matrix_dims.h"

// mul, matmul and the like.
namespace millrace::gpu {
namespace product_kernels {
namespace {

int64_t gpu_product_of(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// X as [rows, inner] and Y as [inner, columns], or transposed, for each matrix of a batch. A batch
// has several levels where an operand is repeated along some of its dims.
struct ProductShape {
  struct Level {
    int64_t size;
    std::array<int64_t, 3> strides;  ///< in X, Y and Out; 0: repeated
  };
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 1;
  bool turn_x = false;
  bool turn_y = false;
  Element element = Element::kFloat32;
  llvm::SmallVector<Level, 4> levels;

  [[nodiscard]] int64_t out_count() const {
    int64_t count = rows * columns;
    for (const Level& level : levels) count *= level.size;
    return count;
  }
  // Adds a level outside of the others.
  void add_outer(int64_t size, const std::array<int64_t, 3>& strides) {
    if (size == 1) return;
    if (!levels.empty()) {
      Level& inner_level = levels.front();
      bool joins = true;
      for (size_t k = 0; k < 3; ++k)
        joins &= strides[k] == inner_level.strides[k] * inner_level.size;
      if (joins) {
        inner_level.size *= size;
        return;
      }
    }
    levels.insert(levels.begin(), Level{size, strides});
  }
  // Matrices of X that are multiplied by the same Y are rows of one large X.
  void fold() {
    if (turn_x || levels.size() != 1 || levels[0].strides[1] != 0 ||
        levels[0].strides[0] != rows * inner)
      return;
    rows *= levels[0].size;
    levels.clear();
  }
};

enum Operand : size_t { kX = 0, kY = 1, kOut = 2 };

// The product c = a x b with operands in these roles; sizes of one matrix are given.
struct Roles {
  Operand a, b, c;
};

constexpr int64_t kMostCalls = 256;

// Levels that one call does not cover: all but one along which c advances. Errors: rejects batches
// that take too many calls, and sums of products that would each be rounded to 16 bits.
StatusOr<std::optional<size_t>> batched_level(const ProductShape& s, const Roles& roles) {
  std::optional<size_t> found;
  int64_t calls = 1;
  for (size_t i = 0; i < s.levels.size(); ++i) {
    calls *= s.levels[i].size;
    if (s.levels[i].strides[roles.c] == 0 && s.element != Element::kFloat32)
      return refuse("a sum of 16-bit products");
    if (s.levels[i].strides[roles.c] != 0 && (!found || s.levels[i].size > s.levels[*found].size))
      found = i;
  }
  if (found) calls /= s.levels[*found].size;
  if (calls > kMostCalls) return refuse("the batch takes {} products", calls);
  return found;
}

// Runs the product for all matrices of the batch. Where c is repeated, products are added.
Status multiply_batch(Device& device, const ProductShape& s, const Roles& roles,
                      const MatrixProduct& one) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<size_t> batched, batched_level(s, roles));
  llvm::SmallVector<ProductShape::Level, 4> outer;
  MatrixProduct p = one;
  p.element = s.element;
  const int64_t size = bytes_of(s.element);
  for (size_t i = 0; i < s.levels.size(); ++i) {
    if (batched != i) {
      outer.push_back(s.levels[i]);
      continue;
    }
    p.batch = s.levels[i].size;
    p.a_stride = s.levels[i].strides[roles.a];
    p.b_stride = s.levels[i].strides[roles.b];
    p.c_stride = s.levels[i].strides[roles.c];
  }
  llvm::SmallVector<int64_t, 4> at(outer.size(), 0);
  while (true) {
    MatrixProduct call = p;
    bool adds = false;
    for (size_t i = 0; i < outer.size(); ++i) {
      call.a = static_cast<const std::byte*>(call.a) + at[i] * outer[i].strides[roles.a] * size;
      call.b = static_cast<const std::byte*>(call.b) + at[i] * outer[i].strides[roles.b] * size;
      call.c = static_cast<std::byte*>(call.c) + at[i] * outer[i].strides[roles.c] * size;
      adds |= at[i] > 0 && outer[i].strides[roles.c] == 0;
    }
    call.beta = adds ? 1.0F : 0.0F;
    MILLRACE_RETURN_IF_ERROR(device.multiply(call));
    size_t i = outer.size();
    while (i > 0 && ++at[i - 1] == outer[i - 1].size) at[--i] = 0;
    if (i == 0) return Ok();
  }
}

// c = a x b of one matrix each.
MatrixProduct one_product(const void* a, const void* b, void* c, int64_t rows, int64_t inner,
                          int64_t columns, bool turn_a, bool turn_b, float alpha) {
  MatrixProduct p;
  p.a = a;
  p.b = b;
  p.c = c;
  p.rows = rows;
  p.inner = inner;
  p.columns = columns;
  p.transpose_a = turn_a;
  p.transpose_b = turn_b;
  p.alpha = alpha;
  return p;
}

// Which attributes an op has.
enum class ProductKind : uint8_t { kMul, kMatmul, kMatmulV2, kBmm };

class ProductOp {
 public:
  ProductOp(const KernelSetup& op, ProductKind kind)
      : device_(&device_of(op)),
        x_(op.input("X")),
        y_(op.input("Y")),
        out_(op.output("Out")),
        dout_(op.input("Out@GRAD")),
        dx_(op.output("X@GRAD")),
        dy_(op.output("Y@GRAD")),
        kind_(kind) {}

  Status read(const KernelSetup& op) {
    if (kind_ == ProductKind::kMul) {
      x_cut_ = op.attr<int32_t>("x_num_col_dims");
      y_cut_ = op.attr<int32_t>("y_num_col_dims");
    } else if (kind_ != ProductKind::kBmm) {
      const bool old = kind_ == ProductKind::kMatmul;
      turn_x_ = op.attr<bool>(old ? "transpose_X" : "trans_x");
      turn_y_ = op.attr<bool>(old ? "transpose_Y" : "trans_y");
    }
    if (op.def().find_attr("alpha") != nullptr) alpha_ = op.attr<float>("alpha");
    if (op.def().find_attr("head_number") != nullptr && op.attr<int32_t>("head_number") > 1)
      return refuse("attribute 'head_number' is above 1");
    return Ok();
  }

  Status forward(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x_, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y_, "Y"));
    Tensor& to = ctx.out(out_);
    MILLRACE_ASSIGN_OR_RETURN(const Element element, element_of({a, b, &to}));
    MILLRACE_ASSIGN_OR_RETURN(ProductShape s, shape_of(*a, *b));
    s.element = element;
    if (to.numel() != s.out_count()) return refuse("Out {}", describe(to));
    return multiply_batch(*device_, s, {kX, kY, kOut},
                          one_product(a->raw(), b->raw(), to.raw(), s.rows, s.inner, s.columns,
                                      s.turn_x, s.turn_y, alpha_));
  }

  Status backward(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x_, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y_, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout_, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, output_like(ctx, dx_, *a));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, output_like(ctx, dy_, *b));
    MILLRACE_ASSIGN_OR_RETURN(const Element element, element_of({a, b, d, to_x, to_y}));
    MILLRACE_ASSIGN_OR_RETURN(ProductShape s, shape_of(*a, *b));
    s.element = element;
    if (d->numel() != s.out_count()) return refuse("Out@GRAD {}", describe(*d));
    // dX = dOut x Y', or its transpose Y x dOut'
    const Roles for_x = s.turn_x ? Roles{kY, kOut, kX} : Roles{kOut, kY, kX};
    // dY = X' x dOut, or its transpose dOut' x X
    const Roles for_y = s.turn_y ? Roles{kOut, kX, kY} : Roles{kX, kOut, kY};
    if (to_x != nullptr) MILLRACE_RETURN_IF_ERROR(batched_level(s, for_x).status());
    if (to_y != nullptr) MILLRACE_RETURN_IF_ERROR(batched_level(s, for_y).status());
    if (to_x != nullptr) {
      const MatrixProduct p =
          s.turn_x ? one_product(b->raw(), d->raw(), to_x->raw(), s.inner, s.columns, s.rows,
                                 s.turn_y, /*turn_b=*/true, alpha_)
                   : one_product(d->raw(), b->raw(), to_x->raw(), s.rows, s.columns, s.inner,
                                 /*turn_a=*/false, !s.turn_y, alpha_);
      MILLRACE_RETURN_IF_ERROR(multiply_batch(*device_, s, for_x, p));
    }
    if (to_y == nullptr) return Ok();
    const MatrixProduct p = s.turn_y
                                ? one_product(d->raw(), a->raw(), to_y->raw(), s.columns, s.rows,
                                              s.inner, /*turn_a=*/true, s.turn_x, alpha_)
                                : one_product(a->raw(), d->raw(), to_y->raw(), s.inner, s.rows,
                                              s.columns, !s.turn_x, /*turn_b=*/false, alpha_);
    return multiply_batch(*device_, s, for_y, p);
  }

 private:
  [[nodiscard]] StatusOr<ProductShape> shape_of(const Tensor& x, const Tensor& y) const {
    const auto misfit = [&] { return refuse("X {} and Y {}", describe(x), describe(y)); };
    if (x.numel() == 0 || y.numel() == 0) return misfit();
    ProductShape s;
    if (kind_ == ProductKind::kMul) {
      const auto x_cut = static_cast<size_t>(x_cut_);
      const auto y_cut = static_cast<size_t>(y_cut_);
      if (x_cut > x.rank() || y_cut > y.rank()) return misfit();
      s.rows = gpu_product_of(x.dims().take_front(x_cut));
      s.inner = gpu_product_of(x.dims().drop_front(x_cut));
      s.columns = gpu_product_of(y.dims().drop_front(y_cut));
      return gpu_product_of(y.dims().take_front(y_cut)) == s.inner ? StatusOr<ProductShape>(s)
                                                                   : misfit();
    }
    // the attributes of matmul_v2 do not apply to vectors
    const bool vectors = kind_ == ProductKind::kMatmul;
    s.turn_x = turn_x_ && (vectors || x.rank() > 1);
    s.turn_y = turn_y_ && (vectors || y.rank() > 1);
    const ops::MatrixDims a = ops::left_matrix(x.dims(), s.turn_x);
    const ops::MatrixDims b = ops::right_matrix(y.dims(), s.turn_y);
    if (a.cols != b.rows) return misfit();
    s.rows = a.rows;
    s.inner = a.cols;
    s.columns = b.cols;
    const size_t rank = std::max(a.batch.size(), b.batch.size());
    const auto dim = [rank](const Dims& batch, size_t at) {
      return at < rank - batch.size() ? 1 : batch[at - (rank - batch.size())];
    };
    std::array<int64_t, 3> strides = {s.rows * s.inner, s.inner * s.columns, s.rows * s.columns};
    for (size_t i = rank; i-- > 0;) {
      const int64_t of_x = dim(a.batch, i);
      const int64_t of_y = dim(b.batch, i);
      if (of_x != of_y && of_x != 1 && of_y != 1) return misfit();
      const int64_t size = of_x == 1 ? of_y : of_x;
      s.add_outer(size, {of_x == 1 ? 0 : strides[kX], of_y == 1 ? 0 : strides[kY], strides[kOut]});
      strides = {strides[kX] * of_x, strides[kY] * of_y, strides[kOut] * size};
    }
    s.fold();
    return s;
  }

  Device* device_;
  ArgIndex x_, y_, out_, dout_, dx_, dy_;
  ProductKind kind_;
  int64_t x_cut_ = 1;
  int64_t y_cut_ = 1;
  bool turn_x_ = false;
  bool turn_y_ = false;
  float alpha_ = 1.0F;
};

template <ProductKind kKind, bool kForward>
StatusOr<Kernel> product_kernel(const KernelSetup& op) {
  if (op.input("MoreX@GRAD")) return refuse("a gradient is added on the CPU");
  ProductOp product(op, kKind);
  MILLRACE_RETURN_IF_ERROR(product.read(op));
  return Kernel([product](const KernelContext& ctx) {
    return kForward ? product.forward(ctx) : product.backward(ctx);
  });
}

template <ProductKind kKind>
void add_products(KernelRegistry& registry, const char* type, const char* grad_type) {
  registry.add(type, product_kernel<kKind, true>);
  registry.add(grad_type, product_kernel<kKind, false>);
}

}  // namespace
}  // namespace product_kernels

void add_product(KernelRegistry& registry) {
  using namespace product_kernels;
  add_products<ProductKind::kMul>(registry, "mul", "mul_grad");
  add_products<ProductKind::kMatmul>(registry, "matmul", "matmul_grad");
  add_products<ProductKind::kMatmulV2>(registry, "matmul_v2", "matmul_v2_grad");
  add_products<ProductKind::kBmm>(registry, "bmm", "bmm_grad");
}

}  // namespace millrace::gpu
