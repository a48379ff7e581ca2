#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// mul, and matmuls in which all matrices of a batch have the same shape.
namespace millrace::gpu {
namespace {

int64_t gpu_product_of(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// X as [rows, inner] and Y as [inner, columns], or transposed, for each matrix of a batch.
struct ProductShape {
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 1;
  int64_t batch = 1;
  bool turn_x = false;
  bool turn_y = false;
  bool one_y = false;  ///< the whole batch uses one Y
};

// Sets up c = a x b; strides follow from the sizes.
MatrixProduct gpu_make(const float* a, const float* b, float* c, int64_t rows, int64_t inner,
                       int64_t columns, bool turn_a, bool turn_b, int64_t batch) {
  MatrixProduct p;
  p.a = a;
  p.b = b;
  p.c = c;
  p.rows = rows;
  p.inner = inner;
  p.columns = columns;
  p.transpose_a = turn_a;
  p.transpose_b = turn_b;
  p.batch = batch;
  p.a_stride = rows * inner;
  p.b_stride = inner * columns;
  p.c_stride = rows * columns;
  return p;
}

class ProductProduct {
 public:
  ProductProduct(const KernelSetup& op, bool is_mul)
      : device_(&device_of(op)),
        x_(op.input("X")),
        y_(op.input("Y")),
        out_(op.output("Out")),
        dout_(op.input("Out@GRAD")),
        dx_(op.output("X@GRAD")),
        dy_(op.output("Y@GRAD")),
        is_mul_(is_mul) {}

  Status read(const KernelSetup& op) {
    if (is_mul_) {
      x_cut_ = op.attr<int32_t>("x_num_col_dims");
      y_cut_ = op.attr<int32_t>("y_num_col_dims");
      return Ok();
    }
    const bool old = op.def().find_attr("transpose_X") != nullptr;
    turn_x_ = op.attr<bool>(old ? "transpose_X" : "trans_x");
    turn_y_ = op.attr<bool>(old ? "transpose_Y" : "trans_y");
    if (op.def().find_attr("alpha") != nullptr) alpha_ = op.attr<float>("alpha");
    if (op.def().find_attr("head_number") != nullptr && op.attr<int32_t>("head_number") > 1)
      return refuse("attribute 'head_number' is above 1");
    return Ok();
  }

  Status forward(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x_, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y_, "Y"));
    Tensor& to = ctx.out(out_);
    MILLRACE_RETURN_IF_ERROR(all_floats({a, b, &to}));
    MILLRACE_ASSIGN_OR_RETURN(const ProductShape s, shape_of(*a, *b));
    if (to.numel() != s.batch * s.rows * s.columns) return refuse("Out {}", describe(to));
    MatrixProduct p = gpu_make(floats(a), floats(b), floats(to), s.rows, s.inner, s.columns,
                               s.turn_x, s.turn_y, s.batch);
    if (s.one_y) p.b_stride = 0;
    p.alpha = alpha_;
    return device_->multiply(p);
  }

  Status backward(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x_, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y_, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout_, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, output_like(ctx, dx_, *a));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_y, output_like(ctx, dy_, *b));
    MILLRACE_RETURN_IF_ERROR(all_floats({a, b, d}));
    MILLRACE_ASSIGN_OR_RETURN(const ProductShape s, shape_of(*a, *b));
    if (d->numel() != s.batch * s.rows * s.columns) return refuse("Out@GRAD {}", describe(*d));
    if (s.one_y)
      return refuse("the gradient of a Y that the whole batch uses is summed on the CPU");
    const float* const dout = floats(d);
    if (to_x != nullptr) {
      // dX = dOut x Y', or its transpose Y x dOut'
      MatrixProduct p = s.turn_x ? gpu_make(floats(b), dout, floats(to_x), s.inner, s.columns,
                                            s.rows, s.turn_y, true, s.batch)
                                 : gpu_make(dout, floats(b), floats(to_x), s.rows, s.columns,
                                            s.inner, false, !s.turn_y, s.batch);
      p.alpha = alpha_;
      MILLRACE_RETURN_IF_ERROR(device_->multiply(p));
    }
    if (to_y == nullptr) return Ok();
    // dY = X' x dOut, or its transpose dOut' x X
    MatrixProduct p = s.turn_y ? gpu_make(dout, floats(a), floats(to_y), s.columns, s.rows, s.inner,
                                          true, s.turn_x, s.batch)
                               : gpu_make(floats(a), dout, floats(to_y), s.inner, s.rows, s.columns,
                                          !s.turn_x, false, s.batch);
    p.alpha = alpha_;
    return device_->multiply(p);
  }

 private:
  [[nodiscard]] StatusOr<ProductShape> shape_of(const Tensor& x, const Tensor& y) const {
    const auto misfit = [&] { return refuse("X {} and Y {}", describe(x), describe(y)); };
    if (x.numel() == 0 || y.numel() == 0) return misfit();
    ProductShape s;
    if (is_mul_) {
      const auto x_cut = static_cast<size_t>(x_cut_);
      const auto y_cut = static_cast<size_t>(y_cut_);
      if (x_cut > x.rank() || y_cut > y.rank()) return misfit();
      s.rows = gpu_product_of(x.dims().take_front(x_cut));
      s.inner = gpu_product_of(x.dims().drop_front(x_cut));
      s.columns = gpu_product_of(y.dims().drop_front(y_cut));
      return gpu_product_of(y.dims().take_front(y_cut)) == s.inner ? StatusOr<ProductShape>(s)
                                                                   : misfit();
    }
    if (x.rank() < 2 || y.rank() < 2) return misfit();
    const auto x_batch = x.dims().drop_back(2);
    const auto y_batch = y.dims().drop_back(2);
    if (!y_batch.empty() && x_batch != y_batch) return misfit();
    s.one_y = y_batch.empty() && !x_batch.empty();
    s.batch = gpu_product_of(x_batch);
    s.turn_x = turn_x_;
    s.turn_y = turn_y_;
    s.rows = x.dim(turn_x_ ? -1 : -2);
    s.inner = x.dim(turn_x_ ? -2 : -1);
    s.columns = y.dim(turn_y_ ? -2 : -1);
    return y.dim(turn_y_ ? -1 : -2) == s.inner ? StatusOr<ProductShape>(s) : misfit();
  }

  Device* device_;
  ArgIndex x_, y_, out_, dout_, dx_, dy_;
  bool is_mul_;
  int64_t x_cut_ = 1;
  int64_t y_cut_ = 1;
  bool turn_x_ = false;
  bool turn_y_ = false;
  float alpha_ = 1.0F;
};

template <bool kIsMul, bool kForward>
StatusOr<Kernel> gpu_make(const KernelSetup& op) {
  if (op.input("MoreX@GRAD")) return refuse("a gradient is added on the CPU");
  ProductProduct product(op, kIsMul);
  MILLRACE_RETURN_IF_ERROR(product.read(op));
  return Kernel([product](const KernelContext& ctx) {
    return kForward ? product.forward(ctx) : product.backward(ctx);
  });
}

}  // namespace

void add_product(KernelRegistry& registry) {
  registry.add("mul", gpu_make<true, true>);
  registry.add("mul_grad", gpu_make<true, false>);
  for (const char* const type : {"matmul", "matmul_v2"}) registry.add(type, gpu_make<false, true>);
  for (const char* const type : {"matmul_grad", "matmul_v2_grad"})
    registry.add(type, gpu_make<false, false>);
}

}  // namespace millrace::gpu
