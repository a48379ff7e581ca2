// Slices must cover their var exactly once, and rows that are joined must be alike.
#include "framework/slice_cover.h"

#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "framework/tensor/join_rows.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

VarSlice slice(std::string label, int64_t offset, int64_t rows) {
  return {std::move(label), offset, rows * 2, DType::kFloat32, {rows, 2}};
}

std::string problem(const std::vector<VarSlice>& slices) {
  const Status status = check_slices_cover("w", DType::kFloat32, {5, 2}, slices);
  return status.ok() ? "ok" : status.message();
}

TEST(SliceCover, GapsOverlapsAndOtherFormsAreNamed) {
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'b'", 4, 3)}), "ok");
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'none'", 0, 0), slice("'b'", 4, 3)}), "ok");
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'b'", 6, 2)}),
            "slice 'b' of 'w' begins at element 6, expected 4: a gap");
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'b'", 2, 4)}),
            "slice 'b' of 'w' begins at element 2, expected 4: an overlap");
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'b'", 4, 2)}),
            "the slices of 'w' have 8 elements, expected 10");
  EXPECT_EQ(problem({slice("'a'", 0, 2), slice("'b'", 4, 4)}),
            "slice 'b' of 'w' has 8 elements at 4, but 'w' has 10 elements");
  EXPECT_EQ(problem({}), "the slices of 'w' have 0 elements, expected 10");
  VarSlice other = slice("'a'", 0, 5);
  other.dtype = DType::kFloat64;
  EXPECT_EQ(problem({other}), "slice 'a' of 'w' is f64, expected f32");
  other = slice("'a'", 0, 5);
  other.dims = {2, 5};
  EXPECT_EQ(problem({other}), "slice 'a' of 'w' has dims [2, 5], expected rows of [5, 2]");
  EXPECT_THAT(check_slices_cover("w", std::nullopt, {-1, 2}, {}).message(),
              HasSubstr("'w' has dims [-1, 2]"));
}

// Random slices are accepted, and no longer after any one of them has been moved, removed or
// repeated.
TEST(SliceCover, OnlyExactCoversPass) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<VarSlice> slices;
    int64_t rows = 0;
    for (uint32_t count = 1 + random() % 6; count > 0; --count) {
      const int64_t height = 1 + static_cast<int64_t>(random() % 9);
      slices.push_back(slice("s", rows * 2, height));
      rows += height;
    }
    const auto accepts = [&](const std::vector<VarSlice>& some) {
      return check_slices_cover("w", DType::kFloat32, {rows, 2}, some).ok();
    };
    ASSERT_TRUE(accepts(slices));
    const size_t at = random() % slices.size();
    std::vector<VarSlice> changed = slices;
    changed[at].offset += 2;
    EXPECT_FALSE(accepts(changed));
    changed = slices;
    changed.erase(changed.begin() + static_cast<int64_t>(at));
    EXPECT_FALSE(accepts(changed));
    changed = slices;
    changed.push_back(slices[at]);
    EXPECT_FALSE(accepts(changed));
  }
}

SelectedRows some_rows(std::vector<int64_t> rows, int64_t width) {
  SelectedRows made;
  made.height = 9;
  EXPECT_TRUE(made.value.resize(DType::kFloat32, {static_cast<int64_t>(rows.size()), width}).ok());
  std::iota(made.value.data<float>(), made.value.data<float>() + made.value.numel(), 1.0F);
  made.rows = std::move(rows);
  return made;
}

TEST(JoinRows, KeepsOrderAndRepeats) {
  const SelectedRows a = some_rows({4, 1}, 1);
  SelectedRows b = some_rows({4}, 1);
  const SelectedRows none;
  SelectedRows all;
  ASSERT_TRUE(join_rows({&none, &a, &none, &b}, all).ok());
  EXPECT_THAT(all.rows, ElementsAre(4, 1, 4));
  EXPECT_THAT(all.value.values<float>(), ElementsAre(1, 2, 1));
  EXPECT_EQ(all.height, 9);
  b.height = 8;
  EXPECT_EQ(join_rows({&a, &b}, all).code(), StatusCode::kExecution);
  b = some_rows({4}, 2);
  EXPECT_EQ(join_rows({&a, &b}, all).code(), StatusCode::kExecution);
  ASSERT_TRUE(join_rows({&none, &none}, all).ok());
  EXPECT_TRUE(all.rows.empty());
  EXPECT_EQ(all.value.numel(), 0);
}

}  // namespace
}  // namespace millrace
