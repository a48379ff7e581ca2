#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include <xxhash.h>

#include "kernels/cpu/feature/ngram_filter.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Every n-gram of 2 to pyramid_layer tokens has a row of num_emb elements. The row is composed of
// chunks of rand_len elements of W, at positions given by hashes of the n-gram. The gradient op
// updates W directly.
namespace millrace::kernels {
namespace pyramid_hash_kernels {
namespace {

struct PyramidHashAttrs {
  explicit PyramidHashAttrs(const KernelSetup& op)
      : width(op.attr<int32_t>("num_emb")),
        space(op.attr<int32_t>("space_len")),
        longest(op.attr<int32_t>("pyramid_layer")),
        piece(op.attr<int32_t>("rand_len")),
        rate(op.attr<float>("drop_out_percent")),
        training(op.attr<int32_t>("is_training") != 0),
        seed(static_cast<uint32_t>(op.attr<int32_t>("seed"))) {}

  int64_t width;
  int64_t space;
  int64_t longest;
  int64_t piece;
  float rate;
  bool training;
  uint32_t seed;
};

Status check_attrs(const KernelSetup& op, const PyramidHashAttrs& attrs) {
  if (attrs.piece > 0 && attrs.space > 0 && attrs.width % attrs.piece == 0) return Ok();
  return op.error("num_emb {} must be a multiple of rand_len {}, and space_len {} must be positive",
                  attrs.width, attrs.piece, attrs.space);
}

Status check_inputs(const PyramidHashAttrs& attrs, const Tensor& x, const Tensor& w) {
  if (x.dtype() != DType::kInt32 || x.lod().empty() || x.lod().last().back() != x.numel())
    return KernelContext::error("X must be i32 with a LoD and one token per row, found {}",
                                describe(x));
  if (w.numel() != attrs.space + attrs.piece)
    return KernelContext::error("W must have space_len + rand_len = {} elements, found {}",
                                attrs.space + attrs.piece, describe(w));
  return Ok();
}

// Tokens are hashed as floats.
int64_t place_of(const PyramidHashAttrs& attrs, const float* tokens, int64_t count, int64_t piece) {
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  return static_cast<int64_t>(XXH32(tokens, bytes, static_cast<uint32_t>(piece))) % attrs.space;
}

// Calls body(first token, tokens) for each n-gram of a sequence: all pairs, then all triples, ...
template <typename Body>
void for_ngrams(int64_t begin, int64_t end, int64_t longest, Body&& body) {
  for (int64_t count = 2; count <= longest && count <= end - begin; ++count) {
    for (int64_t first = begin; first + count <= end; ++first) body(first, count);
  }
}

// The white and black lists that the op uses.
struct Filters {
  std::optional<NgramFilter> white;
  std::optional<NgramFilter> black;

  [[nodiscard]] bool let_in(const float* tokens, int64_t count) const {
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    return (!white || white->has(tokens, bytes)) && (!black || !black->has(tokens, bytes));
  }
};

// Which n-grams have a row.
struct Kept {
  std::vector<int32_t> flags;  ///< one per n-gram, in order
  LodLevel rows = {
      0};  ///< row offsets of the sequences; a sequence without rows has one row of zeros
  LodLevel kept = {0};  ///< the same without the rows of zeros
};

Kept choose(const PyramidHashAttrs& attrs, const Filters& filters, llvm::ArrayRef<int64_t> offsets,
            const float* tokens) {
  Kept kept;
  uint32_t seed = attrs.seed;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    int64_t count = 0;
    for_ngrams(offsets[i], offsets[i + 1], attrs.longest, [&](int64_t first, int64_t length) {
      bool keep = filters.let_in(tokens + first, length);
      // numbers of the C library, from which the original draws
      if (keep && attrs.training)
        keep = static_cast<float>(rand_r(&seed)) / static_cast<float>(RAND_MAX) >= attrs.rate;
      kept.flags.push_back(keep ? 1 : 0);
      count += keep ? 1 : 0;
    });
    kept.kept.push_back(kept.kept.back() + count);
    kept.rows.push_back(kept.rows.back() + std::max<int64_t>(count, 1));
  }
  return kept;
}

template <typename T>
void fill_rows(const PyramidHashAttrs& attrs, const Kept& kept, llvm::ArrayRef<int64_t> offsets,
               const float* tokens, const T* weights, T* out) {
  const int32_t* flag = kept.flags.data();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (kept.kept[i + 1] == kept.kept[i]) out = std::fill_n(out, attrs.width, T{0});
    for_ngrams(offsets[i], offsets[i + 1], attrs.longest, [&](int64_t first, int64_t length) {
      if (*flag++ == 0) return;
      for (int64_t j = 0; j < attrs.width; j += attrs.piece)
        out = std::copy_n(weights + place_of(attrs, tokens + first, length, j), attrs.piece, out);
    });
  }
}

Status put_flags(Tensor& to, const Kept& kept, int64_t rows) {
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kInt32, {rows, 1}));
  std::fill(std::copy(kept.flags.begin(), kept.flags.end(), to.data<int32_t>()),
            to.data<int32_t>() + rows, 0);
  to.set_lod(Lod({kept.kept}));
  return Ok();
}

// Inputs and outputs of the forward op.
struct PyramidHashForward {
  explicit PyramidHashForward(const KernelSetup& op)
      : attrs(op),
        x(op.input("X")),
        w(op.input("W")),
        white(op.attr<bool>("use_filter") && op.attr<int32_t>("white_list_len") > 0
                  ? op.input("WhiteList")
                  : ArgIndex{}),
        black(op.attr<bool>("use_filter") && op.attr<int32_t>("black_list_len") > 0
                  ? op.input("BlackList")
                  : ArgIndex{}),
        out(op.output("Out")),
        flags(op.output("DropPos")),
        floats(op.output("X_Temp_Out")) {}

  Status run(const KernelContext& ctx) const;

  PyramidHashAttrs attrs;
  ArgIndex x;
  ArgIndex w;
  ArgIndex white;
  ArgIndex black;
  ArgIndex out;
  ArgIndex flags;
  ArgIndex floats;
};

Status PyramidHashForward::run(const KernelContext& ctx) const {
  const Tensor& from = ctx.in(x);
  const Tensor& weights = ctx.in(w);
  MILLRACE_RETURN_IF_ERROR(check_inputs(attrs, from, weights));
  Filters filters;
  if (white) {
    MILLRACE_ASSIGN_OR_RETURN(filters.white, NgramFilter::read(ctx.in(white), "WhiteList"));
  }
  if (black) {
    MILLRACE_ASSIGN_OR_RETURN(filters.black, NgramFilter::read(ctx.in(black), "BlackList"));
  }
  const std::vector<float> tokens(from.data<int32_t>(), from.data<int32_t>() + from.numel());
  const Lod lod = from.lod();
  const llvm::ArrayRef<int64_t> offsets = lod.last();
  const Kept kept = choose(attrs, filters, offsets, tokens.data());
  if (Tensor* const to = ctx.find_out(floats)) {
    MILLRACE_RETURN_IF_ERROR(to->resize(DType::kFloat32, from.dims()));
    std::copy(tokens.begin(), tokens.end(), to->data<float>());
  }
  if (Tensor* const to = ctx.find_out(flags))
    MILLRACE_RETURN_IF_ERROR(put_flags(*to, kept, from.numel() * attrs.longest));
  Tensor& result = ctx.out(out);
  return dispatch<Types<float, int8_t>>(weights.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    MILLRACE_RETURN_IF_ERROR(result.resize(weights.dtype(), {kept.rows.back(), attrs.width}));
    result.set_lod(Lod({kept.rows}));
    fill_rows(attrs, kept, offsets, tokens.data(), weights.data<T>(), result.data<T>());
    if constexpr (std::is_same_v<T, float>) {
      if (!attrs.training)
        for (float& value : result.values<float>()) value *= attrs.rate;
    }
    return Ok();
  });
}

StatusOr<Kernel> pyramid_hash(const KernelSetup& op) {
  const PyramidHashForward forward(op);
  MILLRACE_RETURN_IF_ERROR(check_attrs(op, forward.attrs));
  return Kernel([forward](const KernelContext& ctx) { return forward.run(ctx); });
}

// W -= lr * the gradient of its chunks; the op has no gradient output.
StatusOr<Kernel> pyramid_hash_grad(const KernelSetup& op) {
  const PyramidHashAttrs attrs(op);
  MILLRACE_RETURN_IF_ERROR(check_attrs(op, attrs));
  const ArgIndex x_arg = op.input("X");
  const ArgIndex w_arg = op.input("W");
  const ArgIndex flags_arg = op.input("DropPos");
  const ArgIndex dout_arg = op.input("Out@GRAD");
  const float rate = op.attr<float>("lr");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const flags, needed(ctx, flags_arg, "DropPos"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(needed(ctx, w_arg, "W").status());
    Tensor& w = ctx.stored_in(w_arg);
    MILLRACE_RETURN_IF_ERROR(check_inputs(attrs, *x, w));
    if (w.dtype() != DType::kFloat32 || dout->dtype() != DType::kFloat32)
      return ctx.error("W and Out@GRAD must be f32, found {} and {}", describe(w), describe(*dout));
    const std::vector<float> tokens(x->data<int32_t>(), x->data<int32_t>() + x->numel());
    if (std::all_of(tokens.begin(), tokens.end(), [](float token) { return token == -1; }))
      return Ok();  // padding only
    const llvm::ArrayRef<int64_t> offsets = x->lod().last();
    int64_t ngrams = 0;
    int64_t rows = 0;
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      for_ngrams(offsets[i], offsets[i + 1], attrs.longest, [&](int64_t, int64_t) { ++ngrams; });
    if (flags->dtype() != DType::kInt32 || flags->numel() < ngrams)
      return ctx.error("DropPos must be i32 with {} elements, found {}", ngrams, describe(*flags));
    const int32_t* flag = flags->data<int32_t>();
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const int64_t before = rows;
      for_ngrams(offsets[i], offsets[i + 1], attrs.longest, [&](int64_t first, int64_t length) {
        if (*flag++ == 0) return;
        if (++rows * attrs.width > dout->numel()) return;
        const float* from = dout->data<float>() + (rows - 1) * attrs.width;
        for (int64_t j = 0; j < attrs.width; j += attrs.piece, from += attrs.piece) {
          float* const to = w.data<float>() + place_of(attrs, tokens.data() + first, length, j);
          for (int64_t k = 0; k < attrs.piece; ++k) to[k] -= rate * from[k];
        }
      });
      if (rows == before) ++rows;  // a row of zeros
    }
    if (rows * attrs.width == dout->numel()) return Ok();
    return ctx.error("Out@GRAD must have {} rows of {}, found {}", rows, attrs.width,
                     describe(*dout));
  });
}

}  // namespace
}  // namespace pyramid_hash_kernels

void add_feature_pyramid_hash(KernelRegistry& registry) {
  using namespace pyramid_hash_kernels;
  for (const char* const type : {"pyramid_hash", "search_pyramid_hash"})
    registry.add(type, pyramid_hash);
  for (const char* const type : {"pyramid_hash_grad", "search_pyramid_hash_grad"})
    registry.add(type, pyramid_hash_grad);
}

}  // namespace millrace::kernels
