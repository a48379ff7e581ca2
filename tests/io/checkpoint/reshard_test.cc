// A checkpoint that N ranks wrote is read by M ranks, for all N and M in 1..16, sliced by rows and
// by columns, replicated, and as rows of a table: bit by bit the same. Replicas are stored once.
#include "io/checkpoint/reshard.h"

#include <atomic>

#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/own_values.h"
#include "tests/io/checkpoint/memory_disk.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using testing::counting_part;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

const Dims kReshardDims = {19, 23};

// Has a different length on every rank.
std::string record_of(int32_t rank) {
  return "rank " + std::to_string(rank) + std::string(static_cast<size_t>(rank) * 3, '.');
}

// All values of a job of n ranks.
Status save_all(const std::string& folder, int32_t n) {
  ThreadGroup group(n);
  std::vector<Status> statuses = on_ranks(n, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    const Box by_rows = even_part(kReshardDims, 0, rank, n);
    const Box by_columns = even_part(kReshardDims, 1, rank, n);
    const Value rows = counting_part(kReshardDims, by_rows);
    const Value columns = counting_part(kReshardDims, by_columns);
    const Value replicated = counting({8});
    const Value plain = counting({3, 2}, 50);
    Value table;
    SelectedRows& some = table.as<SelectedRows>();
    some.height = 100;
    for (int64_t row = rank; row < 100; row += n) some.rows.push_back(row);
    std::ranges::reverse(some.rows);  // tables are not sorted
    EXPECT_TRUE(
        some.value.resize(DType::kFloat32, {static_cast<int64_t>(some.rows.size()), 3}).ok());
    for (size_t i = 0; i < some.rows.size(); ++i)
      for (size_t k = 0; k < 3; ++k)
        some.value.data<float>()[i * 3 + k] =
            static_cast<float>(some.rows[i] * 3) + static_cast<float>(k);
    const std::string record = record_of(rank);
    LocalState state;
    state.add_part("rows", rows, kReshardDims, by_rows.offset);
    state.add_part("columns", columns, kReshardDims, by_columns.offset);
    state.add_part("replicated", replicated, {8}, {0});
    state.add("plain", plain);
    state.add_rows("table", table);
    state.add_record("record", record);
    CheckpointSaveOptions options;
    options.sync = false;
    options.block_bytes = 100;  // blocks end within rows and elements
    return save_state_dict(state, folder, *gather, options);
  });
  for (Status& status : statuses) MILLRACE_RETURN_IF_ERROR(std::move(status));
  return Ok();
}

void expect_loads(const Checkpoint& checkpoint, int32_t m) {
  for (int32_t rank = 0; rank < m; ++rank) {
    for (const int64_t axis : {0, 1}) {
      const Box box = even_part(kReshardDims, axis, rank, m);
      const Value expected = counting_part(kReshardDims, box);
      for (const char* name : {"rows", "columns"}) {
        const auto part = checkpoint.load_box(name, box);
        ASSERT_EQ(outcome(part), "ok");
        ASSERT_TRUE(same_bits(*part, *expected.get_if<Tensor>()))
            << name << " rank " << rank << " of " << m << ", axis " << axis;
      }
    }
    const auto table = checkpoint.load_rows("table", [&](int64_t row) { return row % m == rank; });
    ASSERT_EQ(outcome(table), "ok");
    std::set<int64_t> seen;
    for (size_t i = 0; i < table->rows.size(); ++i) {
      seen.insert(table->rows[i]);
      for (size_t k = 0; k < 3; ++k)
        ASSERT_EQ(table->value.data<float>()[i * 3 + k],
                  static_cast<float>(table->rows[i] * 3) + static_cast<float>(k));
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>((100 - rank + m - 1) / m));
  }
}

TEST(CheckpointReshard, AnyCountToAnyCount) {
  const TempFolder folder;
  for (int32_t n = 1; n <= 16; ++n) {
    const std::string path = folder / std::to_string(n);
    ASSERT_EQ(outcome(save_all(path, n)), "ok");
    const auto checkpoint = Checkpoint::open(path, {.threads = n % 3 + 1});
    ASSERT_EQ(outcome(checkpoint), "ok");
    for (int32_t m = 1; m <= 16; ++m) expect_loads(*checkpoint, m);
    EXPECT_TRUE(same_bits(*checkpoint->load("replicated")->get_if<Tensor>(),
                          *counting({8}).get_if<Tensor>()));
    EXPECT_TRUE(same_bits(*checkpoint->load("plain")->get_if<Tensor>(),
                          *counting({3, 2}, 50).get_if<Tensor>()));
    for (int32_t rank = 0; rank < n; ++rank)
      EXPECT_EQ(*checkpoint->load_record("record", rank), record_of(rank));
    // Replicas are stored once, so the size is that of one rank's data, plus headers.
    uint64_t bytes = 0;
    for (const StoredTensor& tensor : checkpoint->manifest().tensors) bytes += tensor.bytes();
    EXPECT_EQ(bytes, 2 * 19 * 23 * 4 + 32 + 24 + 100 * (8 + 12));
  }
}

TEST(CheckpointReshard, ReplicasAreSharedOutByBytes) {
  const TempFolder folder;
  ThreadGroup group(4);
  const std::vector<Status> statuses = on_ranks(4, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    std::vector<Value> values;
    for (int i = 0; i < 40; ++i) values.push_back(counting({100 + i}));
    LocalState state;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto extent = static_cast<int64_t>(100 + i);
      state.add_part("v" + std::to_string(i), values[i], {extent}, {0});
    }
    return save_state_dict(state, folder / "c", *gather);
  });
  for (const Status& status : statuses) ASSERT_EQ(outcome(status), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  std::map<int32_t, uint64_t> by_file;
  for (const StoredTensor& tensor : checkpoint->manifest().tensors)
    by_file[tensor.chunks.at(0).data.file] += tensor.bytes();
  ASSERT_EQ(by_file.size(), 4);
  for (const auto& [file, bytes] : by_file) {
    EXPECT_GE(bytes, 40 * 100);
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(by_file[0]), 600);
  }
}

TEST(CheckpointReshard, DisagreementFailsOnAllRanks) {
  const TempFolder folder;
  const auto texts_of = [&](const char* name, auto state_of) {
    ThreadGroup group(3, std::chrono::seconds(10));
    std::vector<std::string> texts;
    for (const Status& status : on_ranks(3, [&](int32_t rank) -> Status {
           const auto gather = group.member(rank);
           const Value value = state_of(rank);
           LocalState state;
           state.add("w", value);
           return save_state_dict(state, folder / name, *gather);
         }))
      texts.push_back(outcome(status));
    return texts;
  };
  const auto shapes = texts_of("a", [](int32_t rank) { return counting({rank == 2 ? 5 : 4}); });
  for (const std::string& text : shapes)
    EXPECT_THAT(text, HasSubstr("'w': ranks 0 and 2 disagree on the shape: [4] and [5]"));
  const auto nothing =
      texts_of("b", [](int32_t rank) { return rank == 1 ? Value() : counting({4}); });
  for (const std::string& text : nothing)
    EXPECT_THAT(text, HasSubstr("'w': the var has no value to save"));
  EXPECT_THAT(nothing[0], HasSubstr("on rank 1"));
}

TEST(CheckpointReshard, SilentRankIsNamed) {
  const TempFolder folder;
  ThreadGroup group(3, std::chrono::milliseconds(200));
  const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    return save_state_dict({}, folder / "c", *gather);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.to_string(), HasSubstr("missing: 2"));
  }
}

TEST(CheckpointReshard, RanksMeetInAFolder) {
  const TempFolder folder;
  for (int round = 0; round < 3; ++round) {
    const std::vector<Status> statuses = on_ranks(3, [&](int32_t rank) -> Status {
      const auto gather =
          folder_gather(system_file_calls(), folder / "meet", "save-" + std::to_string(round), rank,
                        3, std::chrono::seconds(20));
      const Box box = even_part({7}, 0, rank, 3);
      const Value part = counting_part({7}, box);
      LocalState state;
      state.add_part("v", part, {7}, box.offset);
      return save_checkpoint(state, folder / "root", round, *gather);
    });
    for (const Status& status : statuses) ASSERT_EQ(outcome(status), "ok");
  }
  const auto last = open_last_checkpoint(folder / "root");
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_EQ(last->step, 2);
  EXPECT_TRUE(
      same_bits(*last->checkpoint.load("v")->get_if<Tensor>(), *counting({7}).get_if<Tensor>()));
  // Files of all jobs except the last two have been removed.
  EXPECT_LE(system_file_calls()->list(folder / "meet")->size(), 6);
}

// Counts the bytes that are read.
class CountingCalls final : public FileCalls {
 public:
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 const NewFile& file) override {
    return inner_->create(path, file);
  }
  StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    auto file = inner_->open(path);
    if (!file.ok()) return file;
    return std::unique_ptr<ReadableFile>(std::make_unique<File>(*std::move(file), read_));
  }
  Status rename(const std::string& from, const std::string& to) override {
    return inner_->rename(from, to);
  }
  Status remove(const std::string& path) override { return inner_->remove(path); }
  Status remove_folder(const std::string& path) override { return inner_->remove_folder(path); }
  StatusOr<bool> make_folder(const std::string& path) override { return inner_->make_folder(path); }
  Status sync_folder(const std::string& path) override { return inner_->sync_folder(path); }
  StatusOr<std::vector<std::string>> list(const std::string& path) override {
    return inner_->list(path);
  }
  [[nodiscard]] uint64_t read() const { return read_; }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> inner, std::atomic<uint64_t>& read)
        : inner_(std::move(inner)), read_(read) {}
    [[nodiscard]] const std::string& path() const override { return inner_->path(); }
    [[nodiscard]] uint64_t size() const override { return inner_->size(); }
    Status read(uint64_t offset, std::span<std::byte> to) const override {
      read_ += to.size();
      return inner_->read(offset, to);
    }

   private:
    std::unique_ptr<ReadableFile> inner_;
    std::atomic<uint64_t>& read_;
  };
  std::shared_ptr<FileCalls> inner_ = system_file_calls();
  std::atomic<uint64_t> read_ = 0;
};

TEST(CheckpointReshard, ReadsOnlyTheBlocksItNeeds) {
  const TempFolder folder;
  const Value big = counting({1000, 64});
  const Value small = counting({10});
  LocalState state;
  state.add("big", big);
  state.add("small", small);
  CheckpointSaveOptions options;
  options.block_bytes = 4096;
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c", options)), "ok");
  const auto calls = std::make_shared<CountingCalls>();
  const auto checkpoint = Checkpoint::open(folder / "c", {.calls = calls});
  ASSERT_EQ(outcome(checkpoint), "ok");
  uint64_t before = calls->read();
  ASSERT_EQ(outcome(checkpoint->load("small")), "ok");
  EXPECT_EQ(calls->read() - before, 40);
  before = calls->read();
  const auto part = checkpoint->load_box("big", {{500, 0}, {10, 64}});
  ASSERT_EQ(outcome(part), "ok");
  EXPECT_EQ((part->values<float>()[0]), 500 * 64);
  EXPECT_LE(calls->read() - before, 2 * 4096);
}

TEST(CheckpointReshard, RewritesForOtherCounts) {
  const TempFolder folder;
  for (const int32_t n : {1, 2, 5}) {
    const std::string path = folder / std::to_string(n);
    ASSERT_EQ(outcome(save_all(path, n)), "ok");
    const auto from = Checkpoint::open(path);
    ASSERT_EQ(outcome(from), "ok");
    for (const int32_t m : {1, 3, 4, 16}) {
      for (const bool by_remainder : {true, false}) {
        ReshardOptions options;
        options.ranks = m;
        options.axis = m % 2;
        options.rows_by_remainder = by_remainder;
        options.max_memory_bytes = 200;  // smaller than a row of the larger tensors
        options.save.replace = Replace::kYes;
        options.save.sync = false;
        const std::string to = folder / "to";
        ASSERT_EQ(outcome(reshard_checkpoint(*from, to, options)), "ok");
        const auto checkpoint = Checkpoint::open(to);
        ASSERT_EQ(outcome(checkpoint), "ok");
        EXPECT_TRUE(checkpoint->verify().empty());
        EXPECT_EQ(checkpoint->manifest().world_size, m);
        const StoredTensor* const rows = checkpoint->manifest().find("rows");
        EXPECT_EQ(rows->chunks.size(), n == 1 ? 1 : m);
        EXPECT_EQ(rows->sharded, n > 1 && m > 1);
        expect_loads(*checkpoint, 2);
        for (int32_t rank = 0; rank < n; ++rank)
          EXPECT_EQ(*checkpoint->load_record("record", rank), record_of(rank));
      }
    }
  }
}

// What is not split is written by the rank that has least: tables, too.
TEST(CheckpointReshard, WholeTablesGoToTheRankThatHasLeast) {
  const TempFolder folder;
  const Value large = counting({1000});
  Value table;
  table.as<SelectedRows>() = {{7, 2}, 10, std::move(counting({2, 3}).as<Tensor>())};
  LocalState state;
  state.add("large", large);
  state.add("table", table);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  const auto from = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(from), "ok");
  ReshardOptions options;
  options.ranks = 2;
  const auto disk = std::make_shared<testing::MemoryDisk>();
  options.save.calls = disk;
  ASSERT_EQ(outcome(reshard_checkpoint(*from, "to", options)), "ok");
  const auto to = Checkpoint::open("to", {.calls = disk});
  ASSERT_EQ(outcome(to), "ok");
  EXPECT_EQ(to->manifest().find("large")->chunks[0].data.file, 0);
  EXPECT_EQ(to->manifest().find("table")->chunks[0].data.file, 1);
  // An error of the disk leaves nothing.
  for (int64_t call = 0; call < disk->calls(); ++call) {
    const auto failing = std::make_shared<testing::MemoryDisk>();
    failing->fail_at(call);
    options.save.calls = failing;
    if (reshard_checkpoint(*from, "to", options).ok()) continue;
    if (Checkpoint::open("to", {.calls = failing}).ok()) continue;
    EXPECT_THAT(failing->files(), ::testing::IsEmpty()) << "call " << call;
  }
}

// Whole values that differ between ranks are stored separately, compared by their bytes, shapes or
// LoD; slices are not.
TEST(CheckpointReshard, ValuesOfEachRankGetNamesOfTheirOwn) {
  ThreadGroup group(2);
  std::vector<std::vector<std::string>> names(2);
  const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) -> Status {
    const auto gather = group.member(rank);
    const auto of_rank = [&](int32_t mine) { return rank == 0 ? 0 : mine; };
    const Value same = counting({4});
    const Value bytes = counting({4}, static_cast<float>(of_rank(1)));
    const Value shape = counting(rank == 0 ? Dims{2, 2} : Dims{4});
    Value lod = counting({4});
    lod.as<Tensor>().set_lod(Lod({{0, 1, 4}, {0, 1 + of_rank(1), 3, 4, 4}}));
    const Value part = counting({1}, static_cast<float>(rank));
    LocalState state;
    state.add("same", same);
    state.add("bytes", bytes);
    state.add("shape", shape);
    state.add("lod", lod);
    state.add_part("part", part, {2}, {rank});
    MILLRACE_ASSIGN_OR_RETURN(const LocalState named, with_own_names(state, *gather));
    for (const LocalTensor& tensor : named.tensors)
      names[static_cast<size_t>(rank)].push_back(tensor.name);
    return Ok();
  });
  for (const Status& status : statuses) EXPECT_EQ(outcome(status), "ok");
  EXPECT_EQ(names[0], (std::vector<std::string>{"same", "bytes", "shape", "lod", "part"}));
  EXPECT_EQ(names[1],
            (std::vector<std::string>{"same", "bytes@rank1", "shape@rank1", "lod@rank1", "part"}));
}

TEST(CheckpointReshard, RefusesImpossibleLayouts) {
  const TempFolder folder;
  ASSERT_EQ(outcome(save_all(folder / "c", 1)), "ok");
  const auto from = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(from), "ok");
  ReshardOptions options;
  options.ranks = 0;
  EXPECT_THAT(outcome(reshard_checkpoint(*from, folder / "to", options)), HasSubstr("0 ranks"));
  options.ranks = 1;
  options.axis = -1;
  EXPECT_THAT(outcome(reshard_checkpoint(*from, folder / "to", options)), HasSubstr("axis -1"));
}

}  // namespace
}  // namespace millrace::io
