// Ranks that have read files of their own exchange their examples.

#include "jobs/data/exchange_rows.h"

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "executor/collective/shared_group.h"
#include "jobs/data/slot_data.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using ::testing::HasSubstr;

// Runs the work of some ranks in threads.
void as_ranks(int count, int64_t timeout_ms,
              const std::function<void(executor::CollectiveGroup&)>& work) {
  auto groups = executor::make_thread_groups(count, timeout_ms);
  ASSERT_TRUE(groups.ok()) << groups.status().to_string();
  std::vector<std::thread> threads;
  threads.reserve(groups->size());
  for (const auto& group : *groups) threads.emplace_back([&work, &group] { work(*group); });
  for (std::thread& thread : threads) thread.join();
}

class ExchangeTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr int kRows[kRanks] = {50, 1, 20};  // of their files

  ExchangeTest() {
    program_->root().declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
    VarSpec ids = VarSpec::tensor(DType::kInt64, {-1, 1});
    ids.lod_level = 1;
    program_->root().declare("ids", ids);
    options_.slots = folder_ / "slots.json";
    testing::put_file(options_.slots, R"(["x", "ids"])");
    options_.seed = 7;
    int value = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::string text;
      for (int row = 0; row < kRows[rank]; ++row, ++value)
        text += fmt::format("2 {} 0 2 {} {}\n", value, value, -value);
      testing::put_file(folder_ / fmt::format("own-{}", rank), text);
    }
    options_.in_memory = true;
    options_.shuffle = false;
    options_.batch_size = 4;
  }

  // The data of a rank, in memory.
  std::unique_ptr<SlotData> load(int rank) {
    FeedOptions options = options_;
    options.files = {folder_ / fmt::format("own-{}", rank)};
    auto slots = read_slots(options.slots, *program_);
    auto data = SlotData::find(options, *std::move(slots));
    EXPECT_TRUE(data.ok() && (*data)->load().ok());
    return *std::move(data);
  }

  // First values of x in the order of the batches; the ids must belong to them.
  static std::vector<float> values(SlotData& data) {
    EXPECT_TRUE(data.restart().ok());
    std::vector<float> all;
    executor::NamedValues feeds;
    while (true) {
      const auto rows = data.next(feeds);
      EXPECT_TRUE(rows.ok());
      if (!rows.ok() || *rows == 0) return all;
      const auto x = feeds.at("x").get_if<Tensor>()->values<float>();
      const auto ids = feeds.at("ids").get_if<Tensor>()->values<int64_t>();
      for (size_t i = 0; i < static_cast<size_t>(*rows); ++i) {
        all.push_back(x[2 * i]);
        EXPECT_EQ(static_cast<float>(ids[2 * i]), x[2 * i]);
        EXPECT_EQ(ids[2 * i + 1], -ids[2 * i]);
      }
    }
  }

  std::unique_ptr<Program> program_ = Program::create();
  testing::TempFolder folder_;
  FeedOptions options_;

  // What the ranks have after each of two exchanges.
  using Shares = std::array<std::vector<float>, kRanks>;
  std::array<Shares, 2> exchanged() {
    std::array<Shares, 2> epochs;
    as_ranks(kRanks, 60'000, [&](executor::CollectiveGroup& group) {
      const auto data = load(group.rank());
      for (Shares& shares : epochs) {
        const Status status = data->exchange(group);
        EXPECT_TRUE(status.ok()) << status.to_string();
        shares[static_cast<size_t>(group.rank())] = values(*data);
      }
    });
    return epochs;
  }
};

TEST_F(ExchangeTest, EveryExampleIsOnOneRank) {
  const auto epochs = exchanged();
  for (const Shares& shares : epochs) {
    std::vector<float> all;
    for (const std::vector<float>& share : shares) {
      EXPECT_THAT(share.size(), ::testing::AnyOf(23U, 24U));
      all.insert(all.end(), share.begin(), share.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), 71U);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ(exchanged(), epochs) << "the seed determines the shares";
  options_.seed = 8;
  EXPECT_NE(exchanged(), epochs);
}

TEST_F(ExchangeTest, RanksThatDifferAreErrorsOnAll) {
  as_ranks(2, 60'000, [&](executor::CollectiveGroup& group) {
    const auto data = load(group.rank());
    if (group.rank() == 1) data->shuffle();
    const Status status = data->exchange(group);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("number of calls since load on all ranks, found 1"));
    EXPECT_EQ(data->loaded_rows(), kRows[group.rank()]);
  });
}

TEST_F(ExchangeTest, ARankThatDoesNotComeIsNamed) {
  as_ranks(2, 500, [&](executor::CollectiveGroup& group) {
    if (group.rank() == 1) return;
    const auto data = load(0);
    const Status status = data->exchange(group);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
    EXPECT_EQ(data->loaded_rows(), 50);
  });
}

}  // namespace
}  // namespace millrace::jobs
