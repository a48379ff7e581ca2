#include "kernels/cpu/cpu_isa.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/cpu/wide_loops.h"

// The limit is that of a process and can be set once, so each case is a process of its own.
namespace millrace::kernels {
namespace {

// Ends the process: 0 if the limit holds for all kernels, 3 if the processor lacks the
// instructions.
[[noreturn]] void limit_and_look(std::string_view name) {
  const Status limit = limit_cpu_isa(name);
  if (limit.code() == StatusCode::kUnimplemented) std::_Exit(3);
  const bool newer = (name != "amx" && tiles::available()) ||
                     (name.starts_with("avx2") && wide_loops() != nullptr) ||
                     (name == "avx2" && dnn::multiplies_int8());
  std::_Exit(limit.ok() && !newer && effective_cpu_isa() == name && cpu_isa_allows(name) ? 0 : 1);
}

TEST(CpuIsa, NoKernelUsesNewerInstructionsThanTheNamedOnes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::string& name : cpu_isa_names()) {
    const auto held_or_lacking = [](int status) {
      return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
    };
    EXPECT_EXIT(limit_and_look(name), held_or_lacking, "") << name;
  }
}

// Adds the product of small integers, whose sums are exact, to ones. The rows of the transposed
// left factor, or those of the right one, are 1024 floats apart.
bool adds_the_product(int64_t rows, int64_t columns, bool transposed) {
  constexpr int64_t kInner = 20;
  std::vector<float> a(static_cast<size_t>(rows * kInner));
  std::vector<float> b(static_cast<size_t>(kInner * columns));
  std::vector<float> c(static_cast<size_t>(rows * columns), 1.0F);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 11) - 5;
  dnn::Product spec{dnn::dense(DType::kFloat32, {rows, kInner}),
                    dnn::dense(DType::kFloat32, {kInner, columns}),
                    dnn::dense(DType::kFloat32, {rows, columns})};
  if (transposed) spec.src.strides = {1, rows};
  spec.accumulate = true;
  CpuDevice device;
  const auto made = dnn::product(device, spec);
  if (!made.ok()) return false;
  const Status status = made->run(
      device,
      {{dnn::Arg::kSrc, a.data()}, {dnn::Arg::kWeights, b.data()}, {dnn::Arg::kDst, c.data()}});
  if (!status.ok()) return false;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 1;
      for (int64_t k = 0; k < kInner; ++k) {
        const int64_t at = transposed ? k * rows + i : i * kInner + k;
        sum += a[static_cast<size_t>(at)] * b[static_cast<size_t>(k * columns + j)];
      }
      if (c[static_cast<size_t>(i * columns + j)] != sum) return false;
    }
  }
  return true;
}

[[noreturn]] void limit_and_multiply() {
  const bool good = limit_cpu_isa("avx2").ok() && adds_the_product(1024, 64, true) &&
                    adds_the_product(64, 1024, false) && adds_the_product(64, 1024, true);
  std::_Exit(good ? 0 : 1);
}

#if defined(__x86_64__)
TEST(CpuIsa, ProductsOfRowsThatShareLinesOfTheCacheAreCopiedRight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no such processor";
  EXPECT_EXIT(limit_and_multiply(), testing::ExitedWithCode(0), "");
}

TEST(CpuIsa, TheOldestIsThereOnProcessorsThatTheKernelsNeed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // not asked of the library under test: that would fix the limit
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no such processor";
  EXPECT_EXIT(limit_and_look("avx2"), testing::ExitedWithCode(0), "");
}
#endif

TEST(CpuIsa, AnotherNameIsRefusedAndChangesNothing) {
  const std::string before = effective_cpu_isa();
  const Status refused = limit_cpu_isa("sse9");
  EXPECT_EQ(refused.code(), StatusCode::kUsage);
  EXPECT_THAT(refused.message(), testing::HasSubstr("expected one of avx2, avx2_vnni"));
  EXPECT_EQ(effective_cpu_isa(), before);
}

TEST(CpuIsa, ALimitThatComesTooLateIsAnError) {
  if (!cpu_isa_allows("avx2")) GTEST_SKIP() << "no such processor";
  const Status late = limit_cpu_isa("avx2");
  EXPECT_EQ(late.code(), StatusCode::kUsage) << late.message();
  EXPECT_THAT(late.message(), testing::HasSubstr("kernels have run already"));
}

}  // namespace
}  // namespace millrace::kernels
