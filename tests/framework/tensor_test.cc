#include "framework/tensor/tensor.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/limit.h"
#include "framework/tensor/scope.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor floats(std::vector<int64_t> dims, std::vector<float> values) {
  Tensor tensor;
  EXPECT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

TEST(Tensor, KeepsItsMemoryWhereItSuffices) {
  Tensor tensor = floats({4}, {1, 2, 3, 4});
  const std::byte* const before = tensor.raw();
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {2}).ok());
  EXPECT_EQ(tensor.raw(), before);
  EXPECT_EQ(tensor.numel(), 2);
}

TEST(Tensor, TakesNewMemoryIfSomebodySharesTheOld) {
  Tensor tensor = floats({2}, {1, 2});
  const Tensor view = tensor.share();
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {2}).ok());
  EXPECT_FALSE(tensor.shares_memory_with(view));
  EXPECT_THAT(view.values<float>(), ElementsAre(1, 2));
}

TEST(Tensor, IsEmptyOnceMovedFrom) {
  Tensor tensor = floats({2}, {1, 2});
  Tensor taken = std::move(tensor);
  EXPECT_FALSE(tensor.initialized());  // NOLINT(bugprone-use-after-move)
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {2}).ok());
  EXPECT_FALSE(tensor.shares_memory_with(taken));
  EXPECT_THAT(taken.values<float>(), ElementsAre(1, 2));
}

TEST(Tensor, RefusesDimsThatNoTensorHas) {
  Tensor tensor;
  EXPECT_THAT(tensor.resize(DType::kFloat32, {2, -1}).message(),
              HasSubstr("no tensor has the dims [2, -1]"));
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(tensor.resize(DType::kFloat32, {kHuge, kHuge}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tensor.resize(DType::kFloat32, {int64_t{1} << 60}).code(), StatusCode::kResource);
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {0, kHuge}).ok());
}

TEST(Tensor, RefusesMoreBytesThanTheProcessAllows) {
  EXPECT_GT(max_tensor_bytes(), 0);
  set_max_tensor_bytes(1000);
  Tensor tensor;
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {250}).ok());
  const Status status = tensor.resize(DType::kFloat32, {2, 251});
  set_max_tensor_bytes(0);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_EQ(status.message(), "a tensor of 2008 bytes is above the limit of 1000 bytes");
  EXPECT_THAT(status.notes(), ElementsAre("the tensor is f32 [2, 251]"));
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {2, 251}).ok());
}

TEST(Tensor, SharesRows) {
  const Tensor tensor = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = tensor.share_rows(1, 3);
  EXPECT_THAT(rows.dims(), ElementsAre(2, 2));
  EXPECT_THAT(rows.values<float>(), ElementsAre(3, 4, 5, 6));
}

TEST(Tensor, HasNoElementsInBoundMemoryBeforeItIsResized) {
  std::vector<std::byte> memory(64);
  Tensor tensor;
  tensor.bind(nullptr, memory.data(), memory.size());
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_FALSE(tensor.initialized());
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {}).ok());
  EXPECT_EQ(tensor.raw(), memory.data());
  EXPECT_EQ(tensor.numel(), 1);
}

TEST(Tensor, AViewOfMemoryWithoutOwnerIsNotWrittenAnew) {
  std::vector<std::byte> memory(64);
  Tensor tensor;
  tensor.bind(nullptr, memory.data(), memory.size());
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {2}).ok());
  Tensor view = tensor.share();
  EXPECT_TRUE(view.shares_memory_with(tensor));
  ASSERT_TRUE(view.resize(DType::kFloat32, {3}).ok());
  EXPECT_FALSE(view.shares_memory_with(tensor));
}

TEST(Tensor, ACopyOfNothingIsNothing) {
  Tensor tensor = floats({2}, {1, 2});
  ASSERT_TRUE(tensor.copy_from(Tensor()).ok());
  EXPECT_FALSE(tensor.initialized());
}

TEST(Lod, ChecksItsOffsets) {
  EXPECT_TRUE(Lod({{0, 2, 3}, {0, 1, 4, 4}}).check(4).ok());
  EXPECT_THAT(Lod({{1, 4}}).check(4).message(), HasSubstr("a first offset of 0, found 1"));
  EXPECT_THAT(Lod({{0, 5, 2, 4}}).check(4).message(), HasSubstr("at least 5 at 2, found 2"));
  EXPECT_THAT(Lod({{0, 3}}).check(4).message(),
              HasSubstr("a last offset of 4 (the rows), found 3"));
  EXPECT_THAT(Lod({{0, 1}, {0, 2, 4}}).check(4).message(),
              HasSubstr("a last offset of 2 (the entries of the next level), found 1"));
}

TEST(Float16, RoundsToNearestEven) {
  for (const float value : {0.0F, 1.0F, -2.5F, 65504.0F, 6.103515625e-05F, 5.9604644775390625e-08F})
    EXPECT_EQ(static_cast<float>(Float16(value)), value);
  EXPECT_EQ(static_cast<float>(Float16(2049.0F)), 2048.0F);
  EXPECT_EQ(static_cast<float>(Float16(2051.0F)), 2052.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.0F))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(Bfloat16(1.0F)), 1.0F);
  EXPECT_EQ(static_cast<float>(Bfloat16(1.00390625F)), 1.0F);
  EXPECT_EQ(static_cast<float>(Bfloat16(1.01171875F)), 1.015625F);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

// Elements in reverse order after one byte of padding per row.
class Reversed final : public Layout {
 public:
  explicit Reversed(int64_t numel) : numel_(numel) {}
  [[nodiscard]] int64_t bytes() const override { return numel_ * 4 + 8; }
  [[nodiscard]] bool same_as(const Layout& other) const override {
    return other.bytes() == bytes();
  }
  Status to_plain(const std::byte* from, std::byte* to) const override {
    const auto* const source = reinterpret_cast<const float*>(from);
    std::reverse_copy(source, source + numel_, reinterpret_cast<float*>(to));
    return Ok();
  }
  [[nodiscard]] std::string name() const override { return "reversed"; }

 private:
  int64_t numel_;
};

TEST(Layout, TravelsWithTheTensorUntilItIsMadePlain) {
  Tensor tensor;
  const auto layout = std::make_shared<const Reversed>(3);
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {3}, layout).ok());
  EXPECT_EQ(tensor.bytes(), 12);
  EXPECT_EQ(tensor.storage_bytes(), 20);
  std::ranges::copy(std::vector<float>{1, 2, 3}, reinterpret_cast<float*>(tensor.raw()));
  const Tensor view = tensor.share();
  auto copy = tensor.clone();
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->layout(), layout);

  ASSERT_TRUE(make_plain(tensor).ok());
  EXPECT_THAT(tensor.values<float>(), ElementsAre(3, 2, 1));
  EXPECT_EQ(view.layout(), layout);
  ASSERT_TRUE(make_plain(*copy).ok());
  EXPECT_THAT(copy->values<float>(), ElementsAre(3, 2, 1));
  // new dims without a layout are plain again
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {3}, layout).ok());
  ASSERT_TRUE(tensor.resize(DType::kFloat32, {2}).ok());
  EXPECT_EQ(tensor.layout(), nullptr);
}

TEST(Scope, FindsNamesInEnclosingScopes) {
  Scope root;
  Scope child(&root);
  root.local("a").as<Tensor>() = floats({1}, {1});
  EXPECT_EQ(child.find("a"), root.find_local("a"));
  EXPECT_EQ(child.find_local("a"), nullptr);
  EXPECT_EQ(&child.root(), &root);
  child.local("a").as<Strings>() = {"x"};
  EXPECT_TRUE(child.find("a")->holds<Strings>());
}

TEST(Value, ClonesWhatItHolds) {
  Value value;
  auto& rows = value.as<SelectedRows>();
  rows.rows = {3, 1};
  rows.height = 5;
  rows.value = floats({2, 1}, {7, 8});
  const auto copy = clone(value);
  ASSERT_TRUE(copy.ok());
  const auto* const copied = copy->get_if<SelectedRows>();
  ASSERT_NE(copied, nullptr);
  EXPECT_FALSE(copied->value.shares_memory_with(rows.value));
  EXPECT_THAT(copied->value.values<float>(), ElementsAre(7, 8));
  EXPECT_THAT(copied->rows, ElementsAre(3, 1));
}

}  // namespace
}  // namespace millrace
