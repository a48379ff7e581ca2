// What ranks exchange while they save and load together: messages that are malformed, ranks that
// are missing or whose disk fails, and files that earlier jobs left.
#include "io/checkpoint/exchange.h"

#include <gmock/gmock.h>

#include "framework/base/errors.h"
#include "io/checkpoint/spread_checkpoint.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using testing::counting_part;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::on_ranks;
using testing::outcome;
using testing::TempFolder;

// Forwards calls, except that another text may replace that of this rank, and that this rank does
// not receive the result of a call and of those after it.
class OddRank final : public Gather {
 public:
  OddRank(std::unique_ptr<Gather> inner, std::string text, int calls)
      : inner_(std::move(inner)), text_(std::move(text)), left_(calls) {}
  [[nodiscard]] int32_t rank() const override { return inner_->rank(); }
  [[nodiscard]] int32_t world_size() const override { return inner_->world_size(); }
  StatusOr<std::vector<std::string>> all_gather(std::string mine) override {
    auto all = inner_->all_gather(text_.empty() ? std::move(mine) : text_);
    if (left_-- <= 0) return Status(StatusCode::kDistributed, "gone");
    return all;
  }
  StatusOr<std::vector<std::string>> all_to_all(std::vector<std::string> to) override {
    return inner_->all_to_all(std::move(to));
  }

 private:
  std::unique_ptr<Gather> inner_;
  std::string text_;
  int left_;
};

TEST(CheckpointExchange, ListsOfOtherThingsThanNumbersAreRefused) {
  ThreadGroup group(2);
  for (const Status& status : on_ranks(2, [&](int32_t rank) {
         OddRank gather(group.member(rank), rank == 0 ? "" : R"([["one"]])", 1);
         return exchange_numbers(gather, Ok(), {7}).status();
       }))
    EXPECT_EQ(status.message(), "the message from rank 1 is malformed");
}

TEST(CheckpointExchange, RankZeroCanBeMissing) {
  ThreadGroup group(2, std::chrono::milliseconds(50));
  EXPECT_EQ(group.member(1)->all_gather("here").status().message(),
            "rank 1 waited 50 ms for the other ranks of the checkpoint; missing: 0");
}

// In the first exchange of a job another rank may still read what the job before it exchanged last.
TEST(CheckpointExchange, FilesOfEarlierJobsStayUntilTheSecondExchange) {
  const TempFolder folder;
  const auto run = [&](const std::string& job, int exchanges) {
    for (const Status& status : on_ranks(2, [&](int32_t rank) -> Status {
           const auto gather = folder_gather(system_file_calls(), folder / "meet", job, rank, 2,
                                             std::chrono::seconds(20));
           for (int i = 0; i < exchanges; ++i)
             MILLRACE_RETURN_IF_ERROR(gather->all_gather("text").status());
           return Ok();
         }))
      EXPECT_EQ(outcome(status), "ok");
    return testing::names_in(folder / "meet");
  };
  run("a", 1);
  EXPECT_THAT(run("b", 1), ElementsAre("a.0.0.all.gather", "a.0.1.all.gather", "b.0.0.all.gather",
                                       "b.0.1.all.gather"));
  for (const std::string& name : run("c", 2)) EXPECT_EQ(name.front(), 'c') << name;
}

Status save_half(Gather& gather, const std::string& folder) {
  const Box box = even_part({8}, 0, gather.rank(), 2);
  const Value part = counting_part({8}, box);
  LocalState state;
  state.add_part("v", part, {8}, box.offset);
  CheckpointSaveOptions options;
  options.sync = false;
  return save_state_dict(state, folder, gather, options);
}

// The coordinator has completed the checkpoint, which needs the files of both ranks.
TEST(CheckpointExchange, ARankThatMissesTheLastExchangeKeepsItsFiles) {
  const TempFolder folder;
  ThreadGroup group(2);
  const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) {
    OddRank gather(group.member(rank), "", rank == 0 ? 100 : 2);
    return save_half(gather, folder / "c");
  });
  EXPECT_EQ(outcome(statuses[0]), "ok");
  EXPECT_EQ(statuses[1].code(), StatusCode::kDistributed);
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  EXPECT_THAT(checkpoint->verify(), IsEmpty());
}

TEST(CheckpointExchange, FilesOfAnInterruptedSaveAreRemoved) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "c");
  testing::put_file(folder / "c/data-5-0.safetensors", "half");
  ThreadGroup group(2);
  for (const Status& status : on_ranks(2, [&](int32_t rank) {
         const auto gather = group.member(rank);
         return save_half(*gather, folder / "c");
       }))
    EXPECT_EQ(outcome(status), "ok");
  EXPECT_THAT(testing::names_in(folder / "c"),
              ElementsAre("data-0-0-1.safetensors", "data-1-0-1.safetensors", "manifest.json"));
}

// Data files of which every read fails.
class DeadDisk final : public ForwardedFileCalls {
 public:
  DeadDisk() : ForwardedFileCalls(system_file_calls()) {}
  StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, calls().open(path));
    if (!path.ends_with(".safetensors")) return file;
    return std::unique_ptr<ReadableFile>(std::make_unique<File>(path, file->size()));
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::string path, uint64_t size) : path_(std::move(path)), size_(size) {}
    [[nodiscard]] const std::string& path() const override { return path_; }
    [[nodiscard]] uint64_t size() const override { return size_; }
    Status read(uint64_t /*offset*/, std::span<std::byte> /*to*/) const override {
      return IoError("the disk fails").in_file(path_);
    }

   private:
    std::string path_;
    uint64_t size_;
  };
};

// Each rank reads what the other one has.
TEST(CheckpointExchange, ADiskThatFailsIsNamedByTheOtherRanks) {
  const TempFolder folder;
  ThreadGroup group(2);
  const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    const std::string own = folder / ("disk" + std::to_string(rank)) + "/c";
    MILLRACE_RETURN_IF_ERROR(save_half(*gather, own));
    SpreadLoadOptions options;
    if (rank == 1) options.load.calls = std::make_shared<DeadDisk>();
    MILLRACE_ASSIGN_OR_RETURN(SpreadCheckpoint checkpoint,
                              SpreadCheckpoint::open(own, *gather, options));
    Value part;
    LoadTarget target;
    target.name = "v";
    target.value = &part;
    target.box = even_part({8}, 0, 1 - rank, 2);
    return checkpoint.load_state_dict({target});
  });
  for (const Status& status : statuses)
    EXPECT_THAT(outcome(status), HasSubstr("disk1/c/data-1-0.safetensors: the disk fails"));
  EXPECT_THAT(outcome(statuses[0]), HasSubstr("on rank 1"));
  EXPECT_THAT(outcome(statuses[1]), Not(HasSubstr("on rank"))) << "it is its own disk";
}

}  // namespace
}  // namespace millrace::io
