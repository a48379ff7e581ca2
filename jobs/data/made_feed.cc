#include "jobs/data/made_feed.h"

#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>

namespace millrace::jobs {
namespace {

struct Filling {
  bool random = false;
  uint64_t seed = 0;
  std::optional<int64_t> high;  ///< of integers, exclusive; none: 2
};

struct Form {
  DType dtype = DType::kFloat32;
  Dims dims;
};

Status usage(llvm::StringRef name, const std::string& what) {
  return {StatusCode::kUsage, fmt::format("options.values {}: {}", name.str(), what)};
}

// Returns nothing if the word is neither zeros nor random.
StatusOr<std::optional<Filling>> parse_filling(llvm::StringRef name, llvm::StringRef text) {
  if (text == "zeros") return std::optional<Filling>(Filling{});
  if (!text.consume_front("random")) return std::optional<Filling>();
  Filling filling;
  filling.random = true;
  const auto [seed, high] = text.ltrim(':').split(':');
  const bool has_seed = text.startswith(":") && !seed.getAsInteger(10, filling.seed);
  int64_t given = 0;
  const bool has_high = high.empty() || (!high.getAsInteger(10, given) && given > 0);
  if (!high.empty()) filling.high = given;
  if (!has_seed || !has_high) {
    return usage(name, fmt::format("expected random:SEED or random:SEED:HIGH, found 'random{}'",
                                   text.str()));
  }
  return std::optional<Filling>(filling);
}

// "8x13xf32", "f32" for a scalar
StatusOr<Form> parse_form(llvm::StringRef name, llvm::StringRef text) {
  Form form;
  llvm::StringRef rest = text;
  while (rest.contains('x')) {
    const auto [head, tail] = rest.split('x');
    int64_t dim = 0;
    if (head.getAsInteger(10, dim) || dim < 0)
      return usage(name, fmt::format("'{}' is not a valid dim, in '{}'", head.str(), text.str()));
    form.dims.push_back(dim);
    rest = tail;
  }
  const std::optional<DType> dtype = parse_dtype(rest.str());
  if (!dtype)
    return usage(name, fmt::format("'{}' is not an element type, in '{}'", rest.str(), text.str()));
  form.dtype = *dtype;
  return form;
}

StatusOr<Form> declared_form(llvm::StringRef name, const Program& program) {
  const Var* const var = program.root().find_var(name);
  if (var == nullptr || !var->spec().has_tensor()) {
    return usage(name,
                 "the program does not declare this tensor; expected dims and type: "
                 "x=8x13xf32=random:7");
  }
  Form form{var->dtype(), {}};
  for (const int64_t dim : var->dims()) form.dims.push_back(dim < 0 ? 1 : dim);
  return form;
}

// Random numbers that depend only on the seed, not on the standard library.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : engine_(seed) {}
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }
  int64_t below(int64_t high) { return static_cast<int64_t>(unit() * static_cast<double>(high)); }

 private:
  std::mt19937_64 engine_;
};

template <typename T>
void fill_made_feed(Tensor& tensor, const Filling& filling) {
  Numbers numbers(filling.seed);
  for (T& value : tensor.values<T>()) {
    if constexpr (std::is_same_v<T, bool>) {
      value = numbers.below(2) == 1;
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(numbers.below(filling.high.value_or(2)));
    } else {
      value = T(static_cast<float>(2 * numbers.unit() - 1));
    }
  }
}

// Largest HIGH of an element type; 0 for types without one.
int64_t highest(DType dtype) {
  if (!is_integer(dtype)) return 0;
  const int64_t bits = 8 * dtype_size(dtype) - (dtype == DType::kUint8 ? 0 : 1);
  return bits >= 62 ? std::numeric_limits<int64_t>::max() : int64_t{1} << bits;
}

Status fill_random(llvm::StringRef name, Tensor& tensor, const Filling& filling) {
  const int64_t most = highest(tensor.dtype());
  if (filling.high && most == 0)
    return usage(name, fmt::format("HIGH is for integers, found elements of {}",
                                   dtype_name(tensor.dtype())));
  if (filling.high > most)
    return usage(name, fmt::format("expected HIGH of at most {} for elements of {}, found {}", most,
                                   dtype_name(tensor.dtype()), *filling.high));
  switch (tensor.dtype()) {
    case DType::kFloat32:
      fill_made_feed<float>(tensor, filling);
      return Ok();
    case DType::kFloat64:
      fill_made_feed<double>(tensor, filling);
      return Ok();
    case DType::kFloat16:
      fill_made_feed<Float16>(tensor, filling);
      return Ok();
    case DType::kBfloat16:
      fill_made_feed<Bfloat16>(tensor, filling);
      return Ok();
    case DType::kInt64:
      fill_made_feed<int64_t>(tensor, filling);
      return Ok();
    case DType::kInt32:
      fill_made_feed<int32_t>(tensor, filling);
      return Ok();
    case DType::kInt16:
      fill_made_feed<int16_t>(tensor, filling);
      return Ok();
    case DType::kInt8:
      fill_made_feed<int8_t>(tensor, filling);
      return Ok();
    case DType::kUint8:
      fill_made_feed<uint8_t>(tensor, filling);
      return Ok();
    case DType::kBool:
      fill_made_feed<bool>(tensor, filling);
      return Ok();
    default:
      return usage(name, "random values of this element type are not supported");
  }
}

}  // namespace

StatusOr<std::optional<Tensor>> make_feed(llvm::StringRef name, llvm::StringRef text,
                                          const Program& program) {
  const auto [head, tail] = text.rsplit('=');
  const llvm::StringRef how = tail.empty() ? head : tail;
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Filling> filling, parse_filling(name, how));
  if (!filling) return std::optional<Tensor>();
  StatusOr<Form> form = tail.empty() ? declared_form(name, program) : parse_form(name, head);
  if (!form.ok()) return std::move(form).status();
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(form->dtype, form->dims));
  if (filling->random) {
    MILLRACE_RETURN_IF_ERROR(fill_random(name, tensor, *filling));
  } else {
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
  }
  return std::optional<Tensor>(std::move(tensor));
}

}  // namespace millrace::jobs
