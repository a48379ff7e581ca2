#include "ps/table/initializer.h"

#include <vector>

#include "framework/base/errors.h"
#include "ps/table/number_text.h"

namespace millrace::ps {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

void Initializer::fill(std::span<float> values, KeyedRandom& random) const {
  for (float& value : values) {
    switch (kind) {
      case Kind::kConstant:
        value = a;
        break;
      case Kind::kUniform:
        value = static_cast<float>(a + (static_cast<double>(b) - a) * random.uniform());
        break;
      case Kind::kGaussian:
        value = static_cast<float>(a + b * random.gaussian());
        break;
      case Kind::kTruncatedGaussian: {
        double z = random.gaussian();
        while (z < -2 || z > 2) z = random.gaussian();
        value = static_cast<float>(a + b * z);
        break;
      }
    }
  }
}

StatusOr<Initializer> parse_initializer(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '&');
  Initializer made;
  if (parts[0] == "fill_constant") {
    if (parts.size() == 2 && read_number(parts[1], made.a)) return made;
  } else {
    using Kind = Initializer::Kind;
    if (parts[0] == "uniform_random") {
      made.kind = Kind::kUniform;
    } else if (parts[0] == "gaussian_random") {
      made.kind = Kind::kGaussian;
    } else if (parts[0] == "truncated_gaussian_random") {
      made.kind = Kind::kTruncatedGaussian;
    } else {
      return InvalidArgument("unknown table initializer '{}'", text);
    }
    if (parts.size() == 4 && read_number(parts[1], made.seed) && read_number(parts[2], made.a) &&
        read_number(parts[3], made.b))
      return made;
  }
  return InvalidArgument("initializer '{}' has invalid arguments", text);
}

std::string initializer_text(const Initializer& made) {
  using Kind = Initializer::Kind;
  if (made.kind == Kind::kConstant) return fmt::format("fill_constant&{}", made.a);
  const char* const name = made.kind == Kind::kUniform    ? "uniform_random"
                           : made.kind == Kind::kGaussian ? "gaussian_random"
                                                          : "truncated_gaussian_random";
  return fmt::format("{}&{}&{}&{}", name, made.seed, made.a, made.b);
}

}  // namespace millrace::ps
