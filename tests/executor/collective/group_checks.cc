#include "tests/executor/collective/group_checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "framework/tensor/tensor.h"

namespace millrace::executor {
namespace {

// Small whole numbers, so that every order of combining produces the same result in every type.
template <typename T>
T element(int rank, int64_t index) {
  return static_cast<T>(static_cast<float>((rank * 3 + index * 5) % 4 + 1));
}

template <typename T>
float combined(Reduction reduction, int size, int64_t index) {
  auto result = static_cast<float>(element<T>(0, index));
  for (int rank = 1; rank < size; ++rank) {
    const auto value = static_cast<float>(element<T>(rank, index));
    switch (reduction) {
      case Reduction::kSum:
        result += value;
        break;
      case Reduction::kProd:
        result *= value;
        break;
      case Reduction::kMax:
        result = std::max(result, value);
        break;
      case Reduction::kMin:
        result = std::min(result, value);
        break;
    }
  }
  return static_cast<float>(static_cast<T>(result));
}

template <typename T>
std::vector<T> values(int rank, int64_t count, int64_t first = 0) {
  std::vector<T> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(element<T>(rank, first + i));
  return result;
}

template <typename T>
std::byte* raw_bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

class Checker {
 public:
  explicit Checker(CollectiveGroup& group) : group_(group) {}

  template <typename T>
  void check_type(DType dtype) {
    dtype_ = dtype;
    for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{4096}, int64_t{300'001}}) {
      for (const Reduction reduction :
           {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin}) {
        // the largest size takes long and differs only in its number of messages
        if (count > 100'000 && reduction != Reduction::kSum) continue;
        check_reductions<T>(count, reduction);
      }
      check_moves<T>(count);
    }
  }

  void check_messages() {
    const int right = (group_.rank() + 1) % group_.size();
    const int left = (group_.rank() + group_.size() - 1) % group_.size();
    if (group_.size() == 1) return;
    for (const int64_t count : {int64_t{3}, int64_t{100'000}}) {
      std::vector<int32_t> out = values<int32_t>(group_.rank(), count);
      std::vector<int32_t> in(out.size());
      // even ranks first, so that every message has a receiver
      for (int turn = 0; turn < 2; ++turn) {
        const bool sends = (group_.rank() % 2 == 0) == (turn == 0);
        if (group_.size() % 2 == 1) break;
        expect(sends ? group_.send(raw_bytes(out), count * 4, right)
                     : group_.receive(raw_bytes(in), count * 4, left),
               "message");
      }
      if (group_.size() % 2 == 0)
        expect_equal(
            in, [&](int64_t i) { return element<int32_t>(left, i); }, "message");
    }
    expect(group_.barrier(), "barrier");
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  template <typename T>
  void check_reductions(int64_t count, Reduction reduction) {
    const int size = group_.size();
    const auto expected = [&](int64_t i) { return combined<T>(reduction, size, i); };
    std::vector<T> data = values<T>(group_.rank(), count);
    expect(group_.all_reduce(dtype_, raw_bytes(data), count, reduction), "all_reduce");
    expect_equal(data, expected, "all_reduce");
    const int root = static_cast<int>(count % size);
    data = values<T>(group_.rank(), count);
    expect(group_.reduce(dtype_, raw_bytes(data), count, reduction, root), "reduce");
    expect_equal(
        data,
        [&](int64_t i) {
          return group_.rank() == root ? expected(i)
                                       : static_cast<float>(element<T>(group_.rank(), i));
        },
        "reduce");
    std::vector<T> all = values<T>(group_.rank(), count * size);
    std::vector<T> part(static_cast<size_t>(count));
    expect(group_.reduce_scatter(dtype_, raw_bytes(all), count, raw_bytes(part), reduction),
           "reduce_scatter");
    expect_equal(
        part, [&](int64_t i) { return expected(group_.rank() * count + i); }, "reduce_scatter");
  }

  template <typename T>
  void check_moves(int64_t count) {
    const auto bytes = static_cast<int64_t>(count * static_cast<int64_t>(sizeof(T)));
    for (int root = 0; root < group_.size(); ++root) {
      std::vector<T> data = values<T>(group_.rank(), count);
      expect(group_.broadcast(raw_bytes(data), bytes, root), "broadcast");
      expect_equal(
          data, [&](int64_t i) { return static_cast<float>(element<T>(root, i)); }, "broadcast");
    }
    std::vector<T> part = values<T>(group_.rank(), count);
    std::vector<T> all(static_cast<size_t>(count * group_.size()));
    expect(group_.all_gather(raw_bytes(part), bytes, raw_bytes(all)), "all_gather");
    expect_equal(
        all,
        [&](int64_t i) {
          return static_cast<float>(element<T>(static_cast<int>(i / count), i % count));
        },
        "all_gather");
  }

  void expect(const Status& status, const char* call) {
    if (!status.ok() && problem_.empty())
      problem_ = fmt::format("{}: {}", call, status.to_string());
  }

  template <typename T, typename Expected>
  void expect_equal(const std::vector<T>& found, Expected&& expected, const char* call) {
    for (size_t i = 0; i < found.size() && problem_.empty(); ++i) {
      const auto want = static_cast<float>(expected(static_cast<int64_t>(i)));
      if (static_cast<float>(found[i]) == want) continue;
      problem_ =
          fmt::format("{} of {} elements of {}: element {} is {}, expected {}", call, found.size(),
                      dtype_name(dtype_), i, static_cast<float>(found[i]), want);
    }
  }

  CollectiveGroup& group_;
  DType dtype_ = DType::kInt32;
  std::string problem_;
};

}  // namespace

std::string check_group(CollectiveGroup& group) {
  Checker checker(group);
  checker.check_type<float>(DType::kFloat32);
  checker.check_type<double>(DType::kFloat64);
  checker.check_type<Float16>(DType::kFloat16);
  checker.check_type<Bfloat16>(DType::kBfloat16);
  checker.check_type<int32_t>(DType::kInt32);
  checker.check_type<int64_t>(DType::kInt64);
  checker.check_type<uint8_t>(DType::kUint8);
  checker.check_messages();
  return checker.problem();
}

std::string check_subgroups(CollectiveGroup& group) {
  std::vector<int> same;  // ranks with the same parity, the last one first
  for (int rank = group.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == group.rank() % 2) same.push_back(rank);
  }
  StatusOr<std::unique_ptr<CollectiveGroup>> part = group.subgroup(same);
  if (!part.ok()) return part.status().to_string();
  std::string problem = check_group(**part);
  if (!problem.empty()) return "in a group of every other rank: " + problem;
  for (int again = 0; again < 2; ++again) {
    if (group.rank() >= 2) break;
    const std::vector<int> two = group.size() > 1 ? std::vector<int>{0, 1} : std::vector<int>{0};
    StatusOr<std::unique_ptr<CollectiveGroup>> pair = group.subgroup(two);
    if (!pair.ok()) return pair.status().to_string();
    std::vector<int32_t> data{group.rank() + 1};
    const Status status = (*pair)->all_reduce(DType::kInt32, raw_bytes(data), 1);
    if (!status.ok()) return status.to_string();
    if (data[0] != (group.size() > 1 ? 3 : 1)) return fmt::format("group of two: {}", data[0]);
  }
  const Status status = group.barrier();
  return status.ok() ? "" : status.to_string();
}

}  // namespace millrace::executor
