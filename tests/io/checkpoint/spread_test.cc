// Ranks whose folders are on separate disks: values that they save together they load together,
// with any number of ranks and disks; each rank gets from others exactly the blocks that its disk
// does not have; a lost rank or byte is reported by all of them within the deadline.
#include <csignal>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/spread_checkpoint.h"
#include "io/checkpoint/spread_folder.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
using testing::counting;
using testing::counting_part;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

const Dims kSpreadDims = {19, 23};
constexpr int64_t kRows = 50;

std::string disk(const TempFolder& folder, int32_t number) {
  return folder / ("disk" + std::to_string(number));
}

void copy_over(const std::string& from, const std::string& to) {
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

// The values of rank `rank` of n; `first` identifies the save.
struct Held {
  Held(int32_t rank, int32_t n, float first) : box(even_part(kSpreadDims, 0, rank, n)) {
    rows = counting_part(kSpreadDims, box, first);
    plain = counting({4, 3}, first);
    SelectedRows& some = table.as<SelectedRows>();
    some.height = kRows;
    for (int64_t row = rank; row < kRows; row += n) some.rows.push_back(row);
    EXPECT_TRUE(
        some.value.resize(DType::kFloat32, {static_cast<int64_t>(some.rows.size()), 3}).ok());
    for (size_t i = 0; i < some.rows.size() * 3; ++i)
      some.value.data<float>()[i] = first + static_cast<float>(some.rows[i / 3]);
    array.as<TensorArray>().resize(2);
    array.as<TensorArray>()[1] = std::move(counting({6}, first).as<Tensor>());
    record = "rank " + std::to_string(rank);
    state.add_part("rows", rows, kSpreadDims, box.offset);
    state.add("plain", plain);
    state.add("array", array);
    state.add_rows("table", table);
    state.add_record("record", record);
  }
  Box box;
  Value rows;
  Value plain;
  Value array;
  Value table;
  std::string record;
  LocalState state;
};

CheckpointSaveOptions small_blocks() {
  CheckpointSaveOptions options;
  options.sync = false;
  options.block_bytes = 100;  // blocks end within rows and elements
  return options;
}

Status save_rank(Gather& gather, const std::string& folder, float first = 0,
                 Replace replace = Replace::kNo) {
  const Held held(gather.rank(), gather.world_size(), first);
  CheckpointSaveOptions options = small_blocks();
  options.replace = replace;
  return save_state_dict(held.state, folder, gather, options);
}

Status first_failure(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) MILLRACE_RETURN_IF_ERROR(status);
  return Ok();
}

// Saves with n ranks over some disks.
Status save(const TempFolder& folder, int32_t n, int32_t disks, float first = 0,
            Replace replace = Replace::kNo) {
  ThreadGroup group(n);
  return first_failure(on_ranks(n, [&](int32_t rank) {
    const auto gather = group.member(rank);
    return save_rank(*gather, disk(folder, rank % disks) + "/c", first, replace);
  }));
}

// Loads columns, a share of the rows of the table and the whole values, and compares.
Status load_rank(Gather& gather, const std::string& folder, const SpreadLoadOptions& options = {},
                 float first = 0, uint64_t* received = nullptr) {
  MILLRACE_ASSIGN_OR_RETURN(SpreadCheckpoint checkpoint,
                            SpreadCheckpoint::open(folder, gather, options));
  const int32_t rank = gather.rank();
  const int32_t m = gather.world_size();
  const Box columns = even_part(kSpreadDims, 1, rank, m);
  Value part;
  Value plain;
  Value array;
  Value table;
  std::vector<LoadTarget> targets(4);
  targets[0].name = "rows";
  targets[0].value = &part;
  targets[0].box = columns;
  targets[1].name = "plain";
  targets[1].value = &plain;
  targets[2].name = "array";
  targets[2].value = &array;
  targets[3].name = "table";
  targets[3].value = &table;
  targets[3].rows = [&](int64_t row) { return row % m == rank; };
  MILLRACE_RETURN_IF_ERROR(checkpoint.load_state_dict(targets));
  if (received != nullptr) *received = checkpoint.received_bytes();
  EXPECT_TRUE(same_bits(*part.get_if<Tensor>(),
                        *counting_part(kSpreadDims, columns, first).get_if<Tensor>()));
  EXPECT_TRUE(same_bits(*plain.get_if<Tensor>(), *counting({4, 3}, first).get_if<Tensor>()));
  const TensorArray& elements = *array.get_if<TensorArray>();
  EXPECT_EQ(elements.size(), 2);
  EXPECT_FALSE(elements[0].initialized());
  EXPECT_TRUE(same_bits(elements[1], *counting({6}, first).get_if<Tensor>()));
  const SelectedRows& rows = *table.get_if<SelectedRows>();
  EXPECT_EQ(rows.rows.size(), static_cast<size_t>((kRows - rank + m - 1) / m));
  for (size_t i = 0; i < rows.rows.size() * 3; ++i) {
    EXPECT_EQ(rows.rows[i / 3] % m, rank);
    EXPECT_EQ(rows.value.data<float>()[i], first + static_cast<float>(rows.rows[i / 3]));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string record, checkpoint.load_record("record", rank % 2));
  EXPECT_EQ(record, "rank " + std::to_string(rank % 2));
  return Ok();
}

std::vector<Status> load_spread(const TempFolder& folder, int32_t m, int32_t disks,
                                const SpreadLoadOptions& options = {}, float first = 0) {
  ThreadGroup group(m);
  return on_ranks(m, [&](int32_t rank) {
    const auto gather = group.member(rank);
    return load_rank(*gather, disk(folder, rank % disks) + "/c", options, first);
  });
}

TEST(SpreadCheckpoint, EveryDiskHasItsFilesAndTheManifest) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(*system_file_calls()->list(disk(folder, rank) + "/c"),
                ElementsAre("data-" + std::to_string(rank) + "-0.safetensors", "manifest.json"));
    EXPECT_EQ(testing::bytes_of(disk(folder, rank) + "/c/manifest.json"),
              testing::bytes_of(disk(folder, 0) + "/c/manifest.json"));
    // A single disk is not complete, which is reported.
    EXPECT_THAT(outcome(Checkpoint::open(disk(folder, rank) + "/c")),
                HasSubstr("they must load it together"));
  }
  // Files copied into one folder are a normal checkpoint.
  for (int32_t rank = 1; rank < 3; ++rank)
    copy_over(disk(folder, rank) + "/c", disk(folder, 0) + "/c");
  const auto joined = Checkpoint::open(disk(folder, 0) + "/c");
  ASSERT_EQ(outcome(joined), "ok");
  EXPECT_TRUE(joined->verify().empty());
}

TEST(SpreadCheckpoint, AnyCountOverAnyDisks) {
  for (const int32_t n : {2, 3, 5}) {
    for (int32_t disks = 1; disks <= n; ++disks) {
      const TempFolder folder;
      ASSERT_EQ(outcome(save(folder, n, disks)), "ok") << n << " over " << disks;
      for (const int32_t m : {2, 3, 5, 7}) {
        if (m < disks) continue;  // every disk must be visible to a rank
        for (const Status& status : load_spread(folder, m, disks))
          EXPECT_EQ(outcome(status), "ok") << n << " to " << m << " over " << disks;
      }
    }
  }
}

TEST(SpreadCheckpoint, SendsInRoundsOfBoundedSize) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  SpreadLoadOptions options;
  options.max_sent_bytes = 1;  // one block per message
  for (const Status& status : load_spread(folder, 3, 3, options)) EXPECT_EQ(outcome(status), "ok");
}

TEST(SpreadCheckpoint, SendsOnlyWhatADiskDoesNotHave) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 2, 1)), "ok");
  uint64_t common = 1;
  uint64_t spread = 0;
  for (uint64_t* const received : {&common, &spread}) {
    ThreadGroup group(2);
    for (const Status& status : on_ranks(2, [&](int32_t rank) {
           const auto gather = group.member(rank);
           return load_rank(*gather, disk(folder, received == &common ? 0 : rank) + "/c", {}, 0,
                            rank == 1 ? received : nullptr);
         }))
      EXPECT_EQ(outcome(status), "ok");
  }
  EXPECT_EQ(common, 0);
  // Rank 1 has no files at all and receives every block that it needs exactly once.
  const auto whole = Checkpoint::open(disk(folder, 0) + "/c");
  ASSERT_EQ(outcome(whole), "ok");
  EXPECT_GT(spread, 0);
  EXPECT_LE(spread, whole->manifest().bytes());
}

// Forwards calls up to a given one, at which the rank fails.
class LostRank final : public Gather {
 public:
  LostRank(std::unique_ptr<Gather> inner, int calls) : inner_(std::move(inner)), left_(calls) {}
  [[nodiscard]] int32_t rank() const override { return inner_->rank(); }
  [[nodiscard]] int32_t world_size() const override { return inner_->world_size(); }
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    if (left_-- <= 0) return Status(StatusCode::kDistributed, "gone");
    return inner_->all_gather(std::move(mine));
  }
  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override {
    if (left_-- <= 0) return Status(StatusCode::kDistributed, "gone");
    return inner_->all_to_all(std::move(to));
  }
  [[nodiscard]] bool was_lost() const { return left_ < 0; }

 private:
  std::unique_ptr<Gather> inner_;
  int left_;
};

// Rank 1 of 3 fails at every exchange in turn. \param body  what each rank does
void lose_at_every_exchange(const std::function<Status(Gather&)>& body,
                            const std::function<void(int)>& check) {
  using Clock = std::chrono::steady_clock;
  bool lost = true;
  int exchanges = 0;
  for (; lost; ++exchanges) {
    ASSERT_LT(exchanges, 50);
    ThreadGroup group(3, std::chrono::milliseconds(100));
    const auto begin = Clock::now();
    const std::vector<Status> statuses = on_ranks(3, [&](int32_t rank) {
      LostRank gather(group.member(rank), rank == 1 ? exchanges : 1000);
      Status status = body(gather);
      if (rank == 1) lost = gather.was_lost();
      return status;
    });
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
    for (const int32_t rank : {0, 2}) {
      const Status& status = statuses[static_cast<size_t>(rank)];
      if (!lost) {
        EXPECT_EQ(outcome(status), "ok");
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kDistributed) << "exchange " << exchanges;
      EXPECT_THAT(status.message(), HasSubstr("missing: 1")) << "exchange " << exchanges;
    }
    check(exchanges);
  }
  EXPECT_GT(exchanges, 4);
}

TEST(SpreadCheckpoint, ARankThatIsLostWhileLoadingIsNamed) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  lose_at_every_exchange(
      [&](Gather& gather) {
        SpreadLoadOptions options;
        options.max_sent_bytes = 1000;
        return load_rank(gather, disk(folder, gather.rank()) + "/c", options);
      },
      [](int /*exchange*/) {});
}

TEST(SpreadCheckpoint, ARankThatIsLostWhileSavingLeavesTheOldOrTheNew) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  float newest = 0;
  lose_at_every_exchange(
      [&](Gather& gather) {
        return save_rank(gather, disk(folder, gather.rank()) + "/c", 1000, Replace::kYes);
      },
      [&](int exchange) {
        // The old or the new checkpoint on all ranks, and never the old one after the new one.
        bool good = false;
        for (const float first : {newest, 1000.0F}) {
          ThreadGroup group(3);
          bool fits = true;
          for (const Status& status : on_ranks(3, [&](int32_t rank) -> Status {
                 const auto gather = group.member(rank);
                 MILLRACE_ASSIGN_OR_RETURN(
                     SpreadCheckpoint checkpoint,
                     SpreadCheckpoint::open(disk(folder, rank) + "/c", *gather));
                 Value plain;
                 LoadTarget target;
                 target.name = "plain";
                 target.value = &plain;
                 MILLRACE_RETURN_IF_ERROR(checkpoint.load_state_dict({target}));
                 if (plain.get_if<Tensor>()->values<float>()[0] != first)
                   return InvalidData("another save");
                 return Ok();
               }))
            fits = fits && status.ok();
          if (fits) newest = first;
          good = good || fits;
        }
        EXPECT_TRUE(good) << "exchange " << exchange;
      });
  EXPECT_EQ(newest, 1000);
}

TEST(SpreadCheckpoint, AKilledProcessIsNamedByTheOthers) {
  const TempFolder folder;
  constexpr int32_t kRanks = 3;
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto gather = folder_gather(system_file_calls(), folder / "meet", "job", rank, kRanks,
                                        std::chrono::milliseconds(1500));
      const std::string own = disk(folder, rank) + "/c";
      if (!save_rank(*gather, own).ok() || !load_rank(*gather, own).ok()) ::_exit(1);
      if (rank == 1) ::raise(SIGKILL);
      const Status status = load_rank(*gather, own);
      const bool named = status.code() == StatusCode::kDistributed &&
                         status.message().find("missing: 1") != std::string::npos;
      ::_exit(named ? 0 : 2);
    }
    children.push_back(child);
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[static_cast<size_t>(rank)], &status, 0),
              children[static_cast<size_t>(rank)]);
    if (rank == 1) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank;
    }
  }
}

TEST(SpreadCheckpoint, ADamagedByteIsNamedOnAllRanks) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  const std::string path = disk(folder, 2) + "/c/data-2-0.safetensors";
  std::string bytes = testing::bytes_of(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  testing::put_file(path, bytes);
  for (const Status& status : load_spread(folder, 3, 3)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    EXPECT_THAT(outcome(status), HasSubstr("data-2-0.safetensors"));
    EXPECT_THAT(outcome(status), HasSubstr("not what was saved: expected checksum"));
  }
  ThreadGroup group(3);
  for (const Status& status : on_ranks(3, [&](int32_t rank) -> Status {
         const auto gather = group.member(rank);
         MILLRACE_ASSIGN_OR_RETURN(SpreadCheckpoint checkpoint,
                                   SpreadCheckpoint::open(disk(folder, rank) + "/c", *gather));
         MILLRACE_ASSIGN_OR_RETURN(const std::vector<Status> wrong, checkpoint.verify());
         EXPECT_GE(wrong.size(), 2);  // the file, and the tensor in it
         EXPECT_THAT(wrong[0].to_string(), HasSubstr("data-2-0.safetensors"));
         return Ok();
       }))
    EXPECT_EQ(outcome(status), "ok");
}

TEST(SpreadCheckpoint, WhatIsNotThereIsNamed) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 3, 3)), "ok");
  fs::remove(disk(folder, 0) + "/c/manifest.json");
  for (const Status& status : load_spread(folder, 3, 3)) EXPECT_EQ(outcome(status), "ok");
  for (const Status& status : load_spread(folder, 2, 3)) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(outcome(status), HasSubstr("data-2-0.safetensors"));
    EXPECT_THAT(outcome(status), HasSubstr("on the disk of none of the 2 ranks"));
  }
  for (const int32_t rank : {1, 2}) fs::remove(disk(folder, rank) + "/c/manifest.json");
  for (const Status& status : load_spread(folder, 3, 3)) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(outcome(status), HasSubstr("no rank has manifest.json"));
  }
}

TEST(SpreadCheckpoint, OneRankThatFailsStopsAll) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 2, 2)), "ok");
  ThreadGroup group(2);
  std::vector<Value> values(2);
  const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    MILLRACE_ASSIGN_OR_RETURN(SpreadCheckpoint checkpoint,
                              SpreadCheckpoint::open(disk(folder, rank) + "/c", *gather));
    LoadTarget target;
    target.name = rank == 0 ? "plain" : "plane";
    target.value = &values[static_cast<size_t>(rank)];
    return checkpoint.load_state_dict({target});
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(outcome(status), HasSubstr("'plane': the checkpoint has no such tensor"));
  }
  EXPECT_FALSE(values[0].initialized());
}

TEST(SpreadCheckpoint, TheNewerOfTwoManifestsCounts) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save(folder, 2, 2)), "ok");
  // A save that was interrupted between the manifests keeps the old checkpoint, and its files, on
  // one disk.
  fs::copy(disk(folder, 1) + "/c", folder / "kept");
  ASSERT_EQ(outcome(save(folder, 2, 2, 1000, Replace::kYes)), "ok");
  copy_over(folder / "kept", disk(folder, 1) + "/c");
  for (const Status& status : load_spread(folder, 2, 2, {}, 1000)) EXPECT_EQ(outcome(status), "ok");
  // The next save removes the rest.
  ASSERT_EQ(outcome(save(folder, 2, 2, 2000, Replace::kYes)), "ok");
  EXPECT_THAT(*system_file_calls()->list(disk(folder, 1) + "/c"),
              ElementsAre("data-1-0-2.safetensors", "manifest.json"));
}

TEST(SpreadCheckpoint, KeepsTheLastOnEveryDisk) {
  const TempFolder folder;
  const auto save_step = [&](int64_t step) {
    ThreadGroup group(2);
    return first_failure(on_ranks(2, [&](int32_t rank) {
      const auto gather = group.member(rank);
      const Held held(rank, 2, static_cast<float>(step));
      return save_checkpoint(held.state, disk(folder, rank), step, *gather, small_blocks(), 2);
    }));
  };
  for (int64_t step = 1; step <= 4; ++step) ASSERT_EQ(outcome(save_step(step)), "ok");
  // Rank 1 was interrupted before it renamed its manifest: the checkpoint is complete nevertheless.
  fs::remove(disk(folder, 1) + "/step-4/manifest.json");
  ASSERT_EQ(outcome(save_step(5)), "ok");
  for (int32_t rank = 0; rank < 2; ++rank)
    EXPECT_THAT(*system_file_calls()->list(disk(folder, rank)), ElementsAre("step-4", "step-5"));
  testing::put_file(disk(folder, 0) + "/step-5/data-0-0.safetensors", "other");
  ThreadGroup group(2);
  for (const Status& status : on_ranks(2, [&](int32_t rank) -> Status {
         const auto gather = group.member(rank);
         MILLRACE_ASSIGN_OR_RETURN(const LastSpreadCheckpoint last,
                                   open_last_spread_checkpoint(disk(folder, rank), *gather));
         EXPECT_EQ(last.step, 4);
         EXPECT_EQ(last.skipped.size(), 1);
         EXPECT_THAT(outcome(last.skipped.at(0)), HasSubstr("step-5/data-0-0.safetensors"));
         return Ok();
       }))
    EXPECT_EQ(outcome(status), "ok");
}

}  // namespace
}  // namespace millrace::io
