// Float products of two matrices: tiles of bfloat16 parts compared with oneDNN, on one thread or
// several.
//
//     product_bench [--threads 1] [--rounds 7] [--shape ROWSxCOLUMNSxINNER ...] [--check]
//
// Prints one line of JSON per shape and form of the factors: microseconds (the best round) and the
// rate of what kernels use; on processors with tiles also the ratio, and the error of each: root
// mean square of the error over that of the result, relative to sums in double. --check multiplies
// once and fails if tiles are less exact than a float product.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/device.h"

namespace {

using millrace::kernels::CpuDevice;
namespace dnn = millrace::kernels::dnn;
namespace tiles = millrace::kernels::tiles;

// The error is measured on the first rows only, because sums in double are slow.
constexpr int64_t kCheckedRows = 48;

struct Matrices {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<double> exact;
};

std::vector<float> draw(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

Matrices make(const tiles::Shape& s) {
  std::mt19937 random(1);
  Matrices m{draw(s.rows * s.inner, random), draw(s.inner * s.columns, random), {}};
  const int64_t rows = std::min(s.rows, kCheckedRows);
  m.exact.resize(static_cast<size_t>(rows * s.columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < s.inner; ++k) {
      const double x = m.a[static_cast<size_t>(s.a_transposed ? k * s.rows + i : i * s.inner + k)];
      for (int64_t j = 0; j < s.columns; ++j) {
        const int64_t at = s.b_transposed ? j * s.inner + k : k * s.columns + j;
        m.exact[static_cast<size_t>(i * s.columns + j)] += x * m.b[static_cast<size_t>(at)];
      }
    }
  }
  return m;
}

double error_of(const std::vector<float>& c, const std::vector<double>& exact) {
  double wrong = 0;
  double all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    wrong += (c[i] - exact[i]) * (c[i] - exact[i]);
    all += exact[i] * exact[i];
  }
  return std::sqrt(wrong / all);
}

template <typename Body>
double best_of(int rounds, int64_t repeats, Body&& body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < repeats; ++i) {
      if (const millrace::Status status = body(); !status.ok()) {
        fmt::print(stderr, "product_bench: {}\n", status.to_string());
        std::exit(1);
      }
    }
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    best = std::min(best, took.count() / static_cast<double>(repeats));
  }
  return best;
}

// Returns false if the error of tiles is too large.
bool measure(CpuDevice& device, const tiles::Shape& s, int rounds, bool check) {
  const Matrices m = make(s);
  std::vector<float> c(static_cast<size_t>(s.rows * s.columns));
  std::vector<float> native(c.size());
  const auto work = s.rows * s.columns * s.inner;
  const int64_t repeats = check ? 1 : std::max<int64_t>(1, 200'000'000 / work);
  const auto by_tiles = [&] {
    return tiles::multiply(device, s, {m.a.data(), m.b.data(), nullptr, nullptr, c.data()});
  };
  const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
    dnn::Desc desc = dnn::dense(millrace::DType::kFloat32, {rows, columns});
    if (transposed) desc.strides = {1, rows};
    return desc;
  };
  dnn::Product spec;
  spec.src = matrix(s.rows, s.inner, s.a_transposed);
  spec.weights = matrix(s.inner, s.columns, s.b_transposed);
  spec.dst = matrix(s.rows, s.columns, false);
  spec.float_units = true;
  const auto primitive = dnn::product(device, spec);
  if (!primitive.ok()) {
    fmt::print(stderr, "product_bench: {}\n", primitive.status().to_string());
    std::exit(1);
  }
  const auto by_library = [&] {
    return primitive->run(device, {{dnn::Arg::kSrc, m.a.data()},
                                   {dnn::Arg::kWeights, m.b.data()},
                                   {dnn::Arg::kDst, native.data()}});
  };
  const double other = best_of(rounds, repeats, by_library);
  const auto gflops = [work](double us) { return 2e-3 * static_cast<double>(work) / us; };
  fmt::print(
      "{{\"rows\": {}, \"columns\": {}, \"inner\": {}, \"form\": \"{}{}\", \"threads\": {}, "
      "\"onednn_us\": {:.1f}",
      s.rows, s.columns, s.inner, s.a_transposed ? 't' : 'n', s.b_transposed ? 't' : 'n',
      device.threads(), other);
  if (!tiles::available()) {
    fmt::print(", \"gflops\": {:.1f}}}\n", gflops(other));
    return true;
  }
  const double own = best_of(rounds, repeats, by_tiles);
  const double error = error_of(c, m.exact);
  const double allowed = 2.0 * error_of(native, m.exact) + 1e-7;
  const bool taken = tiles::pay(s, device.threads());
  fmt::print(
      ", \"tiles_us\": {:.1f}, \"ratio\": {:.2f}, \"tiles_gflops\": {:.0f}, \"tiles_error\": "
      "{:.2e}, "
      "\"onednn_error\": {:.2e}, \"taken\": {}, \"gflops\": {:.1f}}}\n",
      own, other / own, gflops(own), error, error_of(native, m.exact), taken,
      gflops(taken ? own : other));
  return error <= allowed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("float products by tiles of bfloat16 parts, and by oneDNN");
  int threads = 1;
  int rounds = 7;
  bool check = false;
  std::vector<std::string> shapes = {"512x400x429", "64x400x400", "2048x2048x2048"};
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  app.add_option("--shape", shapes, "ROWSxCOLUMNSxINNER");
  app.add_flag("--check", check);
  std::string isa;
  app.add_option("--cpu-isa", isa, "as of run-program");
  CLI11_PARSE(app, argc, argv);
  if (!isa.empty()) {
    if (const millrace::Status limit = millrace::kernels::limit_cpu_isa(isa); !limit.ok()) {
      fmt::print(stderr, "product_bench: --cpu-isa: {}\n", limit.to_string());
      return 2;
    }
  }
  if (check && !tiles::available()) {
    fmt::print("{{\"skipped\": \"this processor has no tiles\"}}\n");
    return 0;
  }
  if (check) {
    rounds = 1;
    shapes = {"100x37x65", "65x130x900"};
  }
  CpuDevice device(threads);
  bool good = true;
  for (const std::string& text : shapes) {
    tiles::Shape s;
    if (std::sscanf(text.c_str(), "%ldx%ldx%ld", &s.rows, &s.columns, &s.inner) != 3 ||
        s.rows <= 0 || s.columns <= 0 || s.inner <= 0) {
      fmt::print(stderr, "product_bench: --shape {}: expected ROWSxCOLUMNSxINNER\n", text);
      return 2;
    }
    for (int form = 0; form < 4; ++form) {
      s.a_transposed = form % 2 != 0;
      s.b_transposed = form / 2 != 0;
      s.a_stride = s.a_transposed ? s.rows : s.inner;
      s.b_stride = s.b_transposed ? s.inner : s.columns;
      s.c_stride = s.columns;
      good = measure(device, s, rounds, check) && good;
    }
  }
  if (!good) fmt::print(stderr, "product_bench: tiles are less exact than floats\n");
  return good ? 0 : 1;
}
