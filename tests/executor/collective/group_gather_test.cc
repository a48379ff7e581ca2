// Process groups as used by ranks that save and load checkpoints together.
#include "executor/collective/group_gather.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/shared_group.h"
#include "io/checkpoint/save.h"
#include "io/checkpoint/spread_checkpoint.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::executor {
namespace {

using millrace::testing::on_ranks;
using millrace::testing::outcome;
using ::testing::HasSubstr;

std::vector<std::unique_ptr<CollectiveGroup>> groups_of_group_gather(int size,
                                                                     int64_t timeout_ms = 20'000) {
  auto groups = make_thread_groups(size, timeout_ms);
  EXPECT_TRUE(groups.ok());
  return std::move(groups).value();
}

// The messages from rank a to rank b: no two lengths are equal, and some are empty.
std::string message_group_gather(int32_t a, int32_t b) {
  if ((a + b) % 4 == 3) return {};
  return std::string(static_cast<size_t>(a * 1000 + b * 37), static_cast<char>('a' + a * 5 + b));
}

TEST(GroupGather, ExchangesTextsOfAnyLength) {
  for (const int size : {1, 2, 3, 5}) {
    auto groups = groups_of_group_gather(size);
    for (const Status& status : on_ranks(size, [&](int32_t rank) -> Status {
           const auto gather = make_group_gather(*groups[static_cast<size_t>(rank)]);
           EXPECT_EQ(gather->rank(), rank);
           EXPECT_EQ(gather->world_size(), size);
           for (int round = 0; round < 3; ++round) {
             MILLRACE_ASSIGN_OR_RETURN(const auto all,
                                       gather->all_gather(message_group_gather(rank, round)));
             for (int32_t r = 0; r < size; ++r)
               EXPECT_EQ(all[static_cast<size_t>(r)], message_group_gather(r, round));
             std::vector<std::string> to;
             for (int32_t r = 0; r < size; ++r) to.push_back(message_group_gather(rank, r));
             MILLRACE_ASSIGN_OR_RETURN(const auto from, gather->all_to_all(std::move(to)));
             for (int32_t r = 0; r < size; ++r)
               EXPECT_EQ(from[static_cast<size_t>(r)], message_group_gather(r, rank));
           }
           return Ok();
         }))
      EXPECT_EQ(outcome(status), "ok");
  }
}

TEST(GroupGather, CheckpointsOnDisksOfTheRanks) {
  const millrace::testing::TempFolder folder;
  const Dims dims = {40, 300};
  for (const int phase : {0, 1}) {  // three save rows, two load columns
    const int size = phase == 0 ? 3 : 2;
    auto groups = groups_of_group_gather(size);
    for (const Status& status : on_ranks(size, [&](int32_t rank) -> Status {
           const auto gather = make_group_gather(*groups[static_cast<size_t>(rank)]);
           // rank 2 shares a disk with rank 1
           const std::string own = folder / ("disk" + std::to_string(std::min(rank, 1)));
           const io::Box box = io::even_part(dims, phase, rank, size);
           const Value part = millrace::testing::counting_part(dims, box);
           if (phase == 0) {
             io::LocalState state;
             state.add_part("w", part, dims, box.offset);
             return io::save_state_dict(state, own, *gather, {.sync = false, .block_bytes = 5000});
           }
           MILLRACE_ASSIGN_OR_RETURN(io::SpreadCheckpoint checkpoint,
                                     io::SpreadCheckpoint::open(own, *gather));
           Value loaded;
           io::LoadTarget target;
           target.name = "w";
           target.value = &loaded;
           target.box = box;
           MILLRACE_RETURN_IF_ERROR(checkpoint.load_state_dict({target}));
           EXPECT_TRUE(
               millrace::testing::same_bits(*loaded.get_if<Tensor>(), *part.get_if<Tensor>()));
           EXPECT_GT(checkpoint.received_bytes(), 0);
           return Ok();
         }))
      EXPECT_EQ(outcome(status), "ok");
  }
}

TEST(GroupGather, NamesTheRankThatDoesNotCome) {
  auto groups = groups_of_group_gather(3, 200);
  const std::vector<Status> statuses = on_ranks(3, [&](int32_t rank) -> Status {
    const auto gather = make_group_gather(*groups[static_cast<size_t>(rank)]);
    MILLRACE_RETURN_IF_ERROR(gather->all_gather("x").status());
    if (rank == 1) return Ok();
    return gather->all_to_all({"a", "b", "c"}).status();
  });
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), StatusCode::kDistributed);
    EXPECT_THAT(statuses[rank].message(), HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace millrace::executor
