#include "ps/table/table_files.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "io/paths.h"
#include "ps/table/ctr_accessor.h"
#include "ps/table/large_scale_kv.h"
#include "ps/table/routing.h"
#include "ps/table/table_folder.h"

// Tables are restored from their files bit by bit, also from the disk tier and from text; damaged
// files are refused.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;

class TableFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() /
               ("table_files_test." + std::to_string(getpid()) + "." +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/000");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

SparseTableOptions ctr_table_files() {
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCtrCommon;
  options.accessor.embedx_dim = 4;
  options.accessor.fea_dim = 7;
  options.accessor.embedx_threshold = 1;
  options.accessor.embed_rule.kind = options.accessor.embedx_rule.kind =
      SparseRuleOptions::Kind::kAdam;
  return options;
}

std::unique_ptr<SparseTable> make_table_files(const SparseTableOptions& options) {
  auto table = SparseTable::create(options);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return std::move(*table);
}

// 3000 rows, a third of them without embedx weights.
void train(SparseTable& table) {
  const auto width = static_cast<size_t>(table.accessor().push_floats());
  KeyedRandom random(1, 1);
  for (int64_t key = 0; key < 3000; ++key) {
    Floats push(width);
    for (float& value : push) value = static_cast<float>(random.gaussian());
    push[CtrAccessor::kPushShow] = 1;
    push[CtrAccessor::kPushClick] = key % 3 == 0 ? 0 : 1;
    const int64_t id = key * key * 77;
    ASSERT_TRUE(table.push({&id, 1}, push.data()).ok());
    ASSERT_TRUE(table.push({&id, 1}, push.data()).ok());
  }
}

using Rows = std::map<uint64_t, Floats>;
Rows rows_of_table_files(SparseTable& table) {
  Rows rows;
  EXPECT_TRUE(table
                  .visit([&](uint64_t key, float* row) {
                    rows[key] = Floats(row, row + table.accessor().used_floats(row));
                    return Ok();
                  })
                  .ok());
  return rows;
}

TEST_F(TableFilesTest, RowsComeBackBitByBitForAnyNumberOfServers) {
  auto table = make_table_files(ctr_table_files());
  train(*table);
  const std::string path = table_file(folder_, 0, 0);
  const auto saved = save_rows(*table, path, 0);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(*saved, table->size());
  Rows all;
  const auto routing = SparseRouting::create(10, 3);
  for (int64_t server = 0; server < 3; ++server) {
    auto part = make_table_files(ctr_table_files());
    const auto loaded = load_rows(*part, path, [&](uint64_t key) {
      return routing->server_of(static_cast<int64_t>(key)) == server;
    });
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(*loaded, part->size());
    all.merge(rows_of_table_files(*part));
  }
  EXPECT_EQ(all, rows_of_table_files(*table));
}

TEST_F(TableFilesTest, EqualRowsGiveEqualBytesWhateverTheOrderOfPushes) {
  SparseTableOptions options;
  options.accessor.embedx_dim = 2;
  auto a = make_table_files(options);
  auto b = make_table_files(options);
  const Floats none(2);
  for (int64_t key = 0; key < 500; ++key) {
    const int64_t other = 499 - key;
    ASSERT_TRUE(a->push({&key, 1}, none.data()).ok());
    ASSERT_TRUE(b->push({&other, 1}, none.data()).ok());
  }
  ASSERT_TRUE(save_rows(*a, folder_ + "/a", 0).ok());
  ASSERT_TRUE(save_rows(*b, folder_ + "/b", 0).ok());
  EXPECT_EQ(*read_file(folder_ + "/a", 1 << 20), *read_file(folder_ + "/b", 1 << 20));
}

TEST_F(TableFilesTest, ServersSaveTheirPartsByName) {
  LargeScaleKv kv;
  const std::shared_ptr<SparseTable> table = make_table_files(ctr_table_files());
  train(*table);
  ASSERT_TRUE(kv.add("emb.block0", "emb", table).ok());
  EXPECT_EQ(*kv.size("emb.block0"), 3000);
  ASSERT_TRUE(kv.save("emb.block0", folder_).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/emb/emb.block0"));
  LargeScaleKv other;
  const std::shared_ptr<SparseTable> empty = make_table_files(ctr_table_files());
  ASSERT_TRUE(other.add("emb.block0", "emb", empty).ok());
  EXPECT_EQ(*other.load("emb.block0", folder_), 3000);
  EXPECT_EQ(rows_of_table_files(*empty), rows_of_table_files(*table));
  EXPECT_EQ(kv.size("emb").status().message(), "this server has no table 'emb'");
  EXPECT_EQ(kv.add("../x", "emb", table).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(kv.add("emb.block0", "emb", table).code(), StatusCode::kInvalidArgument);
}

TEST_F(TableFilesTest, EveryDamageIsFound) {
  auto table = make_table_files(ctr_table_files());
  const Floats push(static_cast<size_t>(table->accessor().push_floats()), 1);
  for (int64_t key = 0; key < 3; ++key) ASSERT_TRUE(table->push({&key, 1}, push.data()).ok());
  const std::string path = folder_ + "/rows";
  ASSERT_TRUE(save_rows(*table, path, 0).ok());
  const std::string good = *read_file(path, 1 << 20);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    ASSERT_TRUE(write_file_atomically(path, bad, Replace::kYes, Flush::kNo).ok());
    auto other = make_table_files(ctr_table_files());
    EXPECT_EQ(load_rows(*other, path).status().code(), StatusCode::kInvalidData) << at;
    EXPECT_EQ(other->size(), 0);
    ASSERT_TRUE(write_file_atomically(path, good.substr(0, at), Replace::kYes, Flush::kNo).ok());
    EXPECT_EQ(load_rows(*other, path).status().code(), StatusCode::kInvalidData) << at;
  }
  SparseTableOptions wider = ctr_table_files();
  wider.accessor.embedx_dim = 5;
  wider.accessor.fea_dim = 8;
  ASSERT_TRUE(write_file_atomically(path, good, Replace::kYes).ok());
  EXPECT_THAT(load_rows(*make_table_files(wider), path).status().message(),
              HasSubstr("rows of 24 floats, but table 0 has rows of 27"));
  EXPECT_EQ(load_rows(*make_table_files(ctr_table_files()), path + "x").status().code(),
            StatusCode::kNotFound);
}

TEST_F(TableFilesTest, TextGivesEveryFloatBack) {
  auto table = make_table_files(ctr_table_files());
  train(*table);
  const auto saved = save_rows_as_text(*table, folder_, 0, 10, 5, 0);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  auto other = make_table_files(ctr_table_files());
  int64_t loaded = 0;
  for (int64_t shard = 0; shard < 5; ++shard) {
    const auto some = load_rows_from_text(*other, table_text_file(folder_, 0, 0, shard));
    ASSERT_TRUE(some.ok()) << some.status().to_string();
    loaded += *some;
  }
  EXPECT_EQ(loaded, table->size());
  EXPECT_EQ(rows_of_table_files(*other), rows_of_table_files(*table));
}

TEST_F(TableFilesTest, AServerMayHaveOneShardButNotNone) {
  auto table = make_table_files(ctr_table_files());
  train(*table);
  const auto saved = save_rows_as_text(*table, folder_, 0, 1, 1, 0);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(*saved, table->size());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/000/part-000-00000"));
  for (const auto& [all, own] : {std::pair<int64_t, int64_t>{10, 0}, {0, 1}}) {
    EXPECT_EQ(
        save_rows_as_text(*table, folder_, 0, all, own, 0).status().message(),
        fmt::format("table 0: found {} shards, {} of them on this server, expected at least 1", all,
                    own));
  }
}

TEST_F(TableFilesTest, ReadsALineOfTheOriginal) {
  SparseTableOptions options = ctr_table_files();
  options.accessor.kind = AccessorOptions::Kind::kSparse;
  options.accessor.embedx_threshold = 0;
  options.accessor.embedx_dim = 3;
  options.accessor.fea_dim = 6;
  auto table = make_table_files(options);
  const std::string path = folder_ + "/part";
  // written by the original after three pushes: the powers of beta1 and beta2 are 0.9^3, 0.999^3
  const std::string line =
      "12 0 0 1.7 17 0 -0.000744134 0.112605 0.00126798 0.729 0.997003 -0.00892743 -0.00130686 "
      "-0.000628889 -0.0794351 0.0939622 0.0112586 0.000630985 0.000882877 1.26754e-05 0.81 "
      "0.998001\n";
  ASSERT_TRUE(write_file_atomically(path, line).ok());
  const auto loaded = load_rows_from_text(*table, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  Floats pulled(4);
  const int64_t key = 12;
  ASSERT_TRUE(table->pull({&key, 1}, pulled.data()).ok());
  EXPECT_THAT(pulled, ElementsAre(-0.000744134F, -0.00892743F, -0.00130686F, -0.000628889F));
  for (const char* bad : {"x 1\n", "1 2 y\n", "1 2\n"}) {
    ASSERT_TRUE(write_file_atomically(path, bad, Replace::kYes).ok());
    EXPECT_EQ(load_rows_from_text(*table, path).status().code(), StatusCode::kInvalidData) << bad;
  }
  ASSERT_TRUE(
      write_file_atomically(path, line.substr(0, line.size() - 1) + " 0\n", Replace::kYes).ok());
  EXPECT_THAT(load_rows_from_text(*table, path).status().message(), HasSubstr("line 1"));
  EXPECT_EQ(load_rows_from_text(*table, path + ".gz").status().code(), StatusCode::kNotFound);
}

TEST_F(TableFilesTest, CompressedTextIsRead) {
  constexpr char kBytes[] =  // "7 1 2\n9 3 4\n"
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x33\x57\x30\x54\x30\xe2"
      "\xb2\x54\x30\x56\x30\xe1\x02\x00\xff\x84\x38\x98\x0c\x00\x00\x00";
  const std::string bytes(kBytes, sizeof(kBytes) - 1);
  const std::string path = folder_ + "/rows.gz";
  ASSERT_TRUE(write_file_atomically(path, bytes, Replace::kYes).ok());
  SparseTableOptions options;
  options.accessor.embedx_dim = 2;
  options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
  auto table = make_table_files(options);
  EXPECT_EQ(*load_rows_from_text(*table, path), 2);
  const Keys keys{9, 7};
  Floats rows(4);
  ASSERT_TRUE(table->pull(keys, rows.data()).ok());
  EXPECT_THAT(rows, ElementsAre(3, 4, 1, 2));
  ASSERT_TRUE(write_file_atomically(path, bytes.substr(0, bytes.size() - 9), Replace::kYes).ok());
  EXPECT_EQ(load_rows_from_text(*table, path).status().code(), StatusCode::kInvalidData);
}

TEST_F(TableFilesTest, DenseTablesKeepTheirOptimizer) {
  DenseTableOptions options;
  options.elements = 100;
  options.rule = DenseTableOptions::Rule::kAdam;
  auto a = *DenseTable::create(options);
  const Floats grads(100, 0.5F);
  ASSERT_TRUE(a->push(grads).ok());
  const std::string path = folder_ + "/dense";
  ASSERT_TRUE(save_dense(*a, path).ok());
  auto b = *DenseTable::create(options);
  const Status loaded = load_dense(*b, path);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  for (auto* const table : {a.get(), b.get()}) ASSERT_TRUE(table->push(grads).ok());
  Floats from_a(100), from_b(100);
  ASSERT_TRUE(a->pull(std::span<float>(from_a)).ok());
  ASSERT_TRUE(b->pull(std::span<float>(from_b)).ok());
  EXPECT_EQ(from_a, from_b);
  options.elements = 99;
  EXPECT_EQ(load_dense(**DenseTable::create(options), path).code(), StatusCode::kInvalidData);
  options.rule = DenseTableOptions::Rule::kSgd;
  EXPECT_THAT(load_dense(**DenseTable::create(options), path).message(),
              HasSubstr("5 columns, expected 1"));
}

// States of two ops may have the same number of floats.
TEST_F(TableFilesTest, StatesOfAnotherOpAreRefused) {
  const auto op_of = [](const char* type, const char* attrs) {
    return *UpdateOp::create({type, attrs, {0}});
  };
  const auto momentum = op_of("momentum", "mu&0.5");
  const auto adagrad = op_of("adagrad", "");
  DenseTableOptions dense;
  dense.elements = 3;
  dense.updates = {{3, momentum}};
  SparseTableOptions rows;
  rows.accessor.embedx_dim = 2;
  rows.accessor.embedx_rule.op = momentum;
  auto table = *DenseTable::create(dense);
  auto sparse = make_table_files(rows);
  const Keys keys{7};
  ASSERT_TRUE(table->push(Floats{1, 2, 3}).ok());
  ASSERT_TRUE(sparse->push(keys, Floats{1, 2}.data()).ok());
  ASSERT_TRUE(save_dense(*table, folder_ + "/dense").ok());
  ASSERT_TRUE(save_rows(*sparse, folder_ + "/rows", 0).ok());
  EXPECT_TRUE(load_dense(**DenseTable::create(dense), folder_ + "/dense").ok());
  EXPECT_EQ(*load_rows(*make_table_files(rows), folder_ + "/rows"), 1);
  dense.updates = {{3, adagrad}};
  rows.accessor.embedx_rule.op = adagrad;
  EXPECT_THAT(load_dense(**DenseTable::create(dense), folder_ + "/dense").message(),
              HasSubstr("found the state 'Velocity', expected 'Moment'"));
  EXPECT_THAT(load_rows(*make_table_files(rows), folder_ + "/rows").status().message(),
              HasSubstr("found the state 'op Velocity', expected 'op Moment'"));
  rows.accessor.embedx_rule.op = nullptr;
  EXPECT_FALSE(load_rows(*make_table_files(rows), folder_ + "/rows").ok());
}

// The slices of a dense table of 23 elements on the servers of a job, after a push.
std::vector<std::unique_ptr<DenseTable>> dense_shares(int64_t servers, bool trained) {
  const std::vector<DenseRange> ranges = *dense_ranges(23, servers);
  std::vector<std::unique_ptr<DenseTable>> tables;
  for (const DenseRange& range : ranges) {
    DenseTableOptions options;
    options.table_id = 4;
    options.elements = range.count;
    options.rule = DenseTableOptions::Rule::kAdam;
    tables.push_back(*DenseTable::create(options));
    Floats grads;
    for (int64_t i = 0; i < range.count; ++i)
      grads.push_back(static_cast<float>(range.begin + i) - 11.5F);
    // workers push nothing to a server that has no elements
    const Status pushed = trained && range.count > 0 ? tables.back()->push(grads) : Ok();
    EXPECT_TRUE(pushed.ok());
  }
  return tables;
}

Floats pushed_once_more(const std::vector<std::unique_ptr<DenseTable>>& tables) {
  Floats all;
  for (const auto& table : tables) {
    Floats own(static_cast<size_t>(table->size()), 0.25F);
    EXPECT_TRUE(table->push(own).ok());
    EXPECT_TRUE(table->pull(std::span<float>(own)).ok());
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

TEST_F(TableFilesTest, AnyNumberOfServersTakesADenseTable) {
  for (const int64_t servers : {1, 2, 3, 12}) {
    const std::string folder = folder_ + "/" + std::to_string(servers);
    const auto saved = dense_shares(servers, true);
    for (int64_t i = 0; i < servers; ++i)
      ASSERT_TRUE(
          save_table(*saved[static_cast<size_t>(i)], folder, {i, servers, 1}, Replace::kNo).ok());
    EXPECT_EQ(save_table(*saved[0], folder, {0, servers, 1}, Replace::kNo).code(),
              StatusCode::kUsage);
    EXPECT_TRUE(has_tables(folder));
    const Floats wanted = pushed_once_more(saved);
    for (const int64_t others : {1, 2, 3, 12}) {
      const auto loaded = dense_shares(others, false);
      for (int64_t i = 0; i < others; ++i) {
        const Status status = load_table(*loaded[static_cast<size_t>(i)], folder, {i, others, 1});
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      EXPECT_EQ(pushed_once_more(loaded), wanted) << servers << " to " << others;
    }
  }
  EXPECT_FALSE(has_tables(folder_));
  EXPECT_FALSE(has_tables(folder_ + "/nowhere"));
}

TEST_F(TableFilesTest, AnyNumberOfServersTakesRows) {
  constexpr int64_t kShards = 10;
  auto whole = make_table_files(ctr_table_files());
  train(*whole);
  const Rows rows = rows_of_table_files(*whole);
  // one server saved it, so all three read its file
  ASSERT_TRUE(save_table(*whole, folder_, {0, 1, kShards}, 0, Replace::kNo).ok());
  Rows found;
  for (int64_t i = 0; i < 3; ++i) {
    auto part = make_table_files(ctr_table_files());
    ASSERT_TRUE(load_table(*part, folder_, {i, 3, kShards}).ok());
    EXPECT_GT(part->size(), 0);
    ASSERT_TRUE(save_table(*part, folder_ + "/of3", {i, 3, kShards}, 0, Replace::kNo).ok());
    found.merge(rows_of_table_files(*part));
  }
  EXPECT_EQ(found, rows);
  auto again = make_table_files(ctr_table_files());
  // what it had before is replaced
  const int64_t other = 5;
  ASSERT_FALSE(rows.contains(5));
  const Floats push(static_cast<size_t>(again->accessor().push_floats()), 1);
  ASSERT_TRUE(again->push({&other, 1}, push.data()).ok());
  ASSERT_TRUE(load_table(*again, folder_ + "/of3", {0, 1, kShards}).ok());
  EXPECT_EQ(rows_of_table_files(*again), rows);
  // all rows or none, also where only the last file is damaged
  ASSERT_TRUE(
      write_file_atomically(table_file(folder_ + "/of3", 0, 2), "rows", Replace::kYes).ok());
  EXPECT_EQ(load_table(*again, folder_ + "/of3", {0, 1, kShards}).code(), StatusCode::kInvalidData);
  EXPECT_EQ(again->size(), 0);
}

TEST_F(TableFilesTest, FoldersOfTablesThatAreNotWholeLoadNothing) {
  const auto saved = dense_shares(2, true);
  for (int64_t i = 0; i < 2; ++i)
    ASSERT_TRUE(save_table(*saved[static_cast<size_t>(i)], folder_, {i, 2, 1}, Replace::kNo).ok());
  const auto one = dense_shares(1, false);
  std::filesystem::remove(table_file(folder_, 4, 1));
  const Status missing = load_table(*one[0], folder_, {0, 1, 1});
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.to_string(), HasSubstr("part-001.rows"));
  // with the same number of servers each reads only its file
  const auto two = dense_shares(2, false);
  EXPECT_TRUE(load_table(*two[0], folder_, {0, 2, 1}).ok());
  // the last slice is not the whole table
  std::filesystem::copy_file(table_file(folder_, 4, 0), table_file(folder_, 4, 1));
  EXPECT_THAT(load_table(*one[0], folder_, {0, 1, 1}).to_string(),
              HasSubstr("24 elements in 2 files, which are not those of this job"));
  ASSERT_TRUE(
      write_file_atomically(folder_ + "/004/layout", "servers=0 shards=1\n", Replace::kYes).ok());
  EXPECT_THAT(load_table(*one[0], folder_, {0, 1, 1}).to_string(),
              HasSubstr("expected 'servers=N shards=M'"));

  auto rows = make_table_files(ctr_table_files());
  train(*rows);
  ASSERT_TRUE(save_table(*rows, folder_, {0, 1, 10}, 0, Replace::kNo).ok());
  std::string bytes = *read_file(table_file(folder_, 0, 0), int64_t{1} << 30U);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(write_file_atomically(table_file(folder_, 0, 0), bytes, Replace::kYes).ok());
  EXPECT_EQ(load_table(*rows, folder_, {0, 1, 10}).code(), StatusCode::kInvalidData);
  EXPECT_EQ(rows->size(), 0);
}

// A job with one embedding more numbers the others differently.
TEST_F(TableFilesTest, RowsOfAnotherTableAreRefused) {
  SparseTableOptions options = ctr_table_files();
  options.name = "clicks";
  auto saved = make_table_files(options);
  train(*saved);
  ASSERT_TRUE(save_table(*saved, folder_, {0, 1, 10}, 0, Replace::kNo).ok());
  options.name = "shops";
  const auto other = make_table_files(options);
  EXPECT_THAT(load_table(*other, folder_, {0, 1, 10}).to_string(),
              HasSubstr("table 0 is 'shops', found the rows of 'clicks'"));
  EXPECT_EQ(other->size(), 0);
  options.name = "clicks";
  EXPECT_TRUE(load_table(*make_table_files(options), folder_, {0, 1, 10}).ok());
}

// Servers empty the folder at their start.
TEST_F(TableFilesTest, FoldersOfOthersAreNotTaken) {
  SparseTableOptions options = ctr_table_files();
  options.disk_path = folder_ + "/other";
  std::filesystem::create_directories(options.disk_path + "/part-000");
  const Status refused = SparseTable::create(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("files that no typed table has written"));
}

TEST_F(TableFilesTest, FoldersAreInsideTheAllowedOne) {
  std::filesystem::create_directories(folder_ + "/in");
  std::filesystem::create_directory_symlink("/", folder_ + "/in/out");
  EXPECT_TRUE(io::check_inside(folder_ + "/in", folder_ + "/in/new/disk").ok());
  for (const char* path : {"", "/in/../disk", "/in2", "/in/out/tmp"})
    EXPECT_EQ(io::check_inside(folder_ + "/in", folder_ + path).code(), StatusCode::kInvalidData)
        << path;
}

TEST_F(TableFilesTest, RowsBeyondMemoryAreTheSameRows) {
  SparseTableOptions options = ctr_table_files();
  options.partitions = 2;
  auto memory = make_table_files(options);
  options.disk_path = folder_ + "/disk";
  options.memory_rows = 600;
  const auto made = SparseTable::create(options);
  if (made.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << "built without RocksDB";
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  SparseTable& disk = **made;
  EXPECT_EQ(disk.table_class(), "SSDSparseTable");
  train(*memory);
  train(disk);
  EXPECT_LE(disk.size(), 800);
  EXPECT_EQ(memory->size(), 3000);
  EXPECT_EQ(rows_of_table_files(disk), rows_of_table_files(*memory));
  // Batches larger than memory, repeated keys, and the end of a day.
  Keys keys;
  for (int64_t key = 0; key < 3000; ++key) keys.push_back(key * key * 77);
  const auto width = static_cast<size_t>(disk.accessor().pull_floats());
  Floats a(keys.size() * width), b(a.size());
  ASSERT_TRUE(memory->pull(keys, a.data()).ok());
  ASSERT_TRUE(disk.pull(keys, b.data()).ok());
  EXPECT_EQ(a, b);
  for (SparseTable* const table : {memory.get(), &disk}) EXPECT_EQ(*table->shrink(), 1000);
  EXPECT_EQ(rows_of_table_files(disk), rows_of_table_files(*memory));
  const auto saved_a = save_rows(*memory, folder_ + "/a", 0);
  const auto saved_b = save_rows(disk, folder_ + "/b", 0);
  EXPECT_EQ(*saved_a, *saved_b);
  EXPECT_EQ(*read_file(folder_ + "/a", 1 << 24), *read_file(folder_ + "/b", 1 << 24));
}

}  // namespace
}  // namespace millrace::ps
