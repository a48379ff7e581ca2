#include "ps/table/sparse_table.h"

#include <cmath>
#include <map>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/table/ctr_accessor.h"
#include "ps/table/routing.h"
#include "ps/table/sparse_geo_table.h"
#include "tests/ps/fake_sender.h"

// Sparse tables: rows are the result of their pushes; admission and memory are as documented.

namespace millrace::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Keys = std::vector<int64_t>;
using Kind = SparseRuleOptions::Kind;
using Floats = std::vector<float>;

SparseTableOptions embedding_sparse_table(
    int dim, SparseRuleOptions::Kind rule = SparseRuleOptions::Kind::kNaive) {
  SparseTableOptions options;
  options.accessor.embedx_dim = dim;
  options.accessor.embedx_rule.kind = rule;
  options.accessor.initializer = *parse_initializer("uniform_random&3&-1&1");
  return options;
}

std::unique_ptr<SparseTable> make_sparse_table(const SparseTableOptions& options) {
  auto table = SparseTable::create(options);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return std::move(*table);
}

Floats pull_sparse_table(SparseTable& table, const Keys& keys, bool training = true) {
  Floats out(keys.size() * static_cast<size_t>(table.accessor().pull_floats()));
  const Status status = table.pull(keys, out.data(), {}, training);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

// Pushes and pulls of random keys, whose calls grow the index in their middle.
void compare_with_a_map(int partitions) {
  std::mt19937_64 random(5);
  SparseTableOptions options = embedding_sparse_table(3);
  options.partitions = partitions;
  options.accessor.embedx_rule.learning_rate = 0.0625F;  // so that products are exact
  auto table = make_sparse_table(options);
  std::map<int64_t, std::array<float, 3>> model;
  for (int round = 0; round < 200; ++round) {
    Keys keys(1 + random() % 300);
    for (int64_t& key : keys) {
      key = static_cast<int64_t>(random() % 5000);
      if (key % 7 == 0) key = -key * 1'000'000'007;  // any 64-bit number is a valid key
    }
    Floats grads(keys.size() * 3);
    for (float& g : grads) g = static_cast<float>(random() % 8);
    for (const int64_t key : keys) {
      if (model.contains(key)) continue;
      const Floats start = pull_sparse_table(*table, {key});
      model[key] = {start[0], start[1], start[2]};
    }
    ASSERT_TRUE(table->push(keys, grads.data()).ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t k = 0; k < 3; ++k) model[keys[i]][k] -= 0.0625F * grads[i * 3 + k];
    }
  }
  EXPECT_EQ(table->size(), static_cast<int64_t>(model.size()));
  for (const auto& [key, row] : model)
    ASSERT_THAT(pull_sparse_table(*table, {key}), ::testing::ElementsAreArray(row));
}

TEST(SparseTableTest, EqualsAMapWhateverTheOrderAndRepeats) {
  compare_with_a_map(16);
  compare_with_a_map(1);
}

TEST(SparseTableTest, NewRowsDependOnSeedAndKeyOnly) {
  SparseTableOptions options = embedding_sparse_table(4);
  auto a = make_sparse_table(options);
  options.partitions = 1;
  options.create_on_pull = true;
  auto b = make_sparse_table(options);
  Keys up(1000), down(1000);
  for (int64_t i = 0; i < 1000; ++i)
    up[static_cast<size_t>(i)] = down[static_cast<size_t>(999 - i)] = i;
  pull_sparse_table(*b, down);
  EXPECT_EQ(pull_sparse_table(*a, up), pull_sparse_table(*b, up));
  EXPECT_EQ(a->size(), 0) << "a pull makes no row";
  EXPECT_EQ(b->size(), 1000);
  const Floats none(4000);
  ASSERT_TRUE(a->push(up, none.data()).ok());
  EXPECT_EQ(pull_sparse_table(*a, up), pull_sparse_table(*b, up))
      << "the first push makes what pulls have promised";
  options.seed = 1;
  EXPECT_NE(pull_sparse_table(*make_sparse_table(options), {1}), pull_sparse_table(*a, {1}));
}

TEST(SparseTableTest, ARowCostsValuesStateAndSixteenBytes) {
  for (const auto& [dim, rule] :
       {std::pair{16, Kind::kAdagrad}, {8, Kind::kAdam}, {1, Kind::kNaive}}) {
    auto table = make_sparse_table(embedding_sparse_table(dim, rule));
    Keys keys(50'000);
    const Floats grads(keys.size() * static_cast<size_t>(dim));
    for (int64_t next = 0; next < 700'000;) {
      for (int64_t& key : keys) key = next++;
      ASSERT_TRUE(table->push(keys, grads.data()).ok());
      const double row =
          static_cast<double>(table->memory_bytes()) / static_cast<double>(table->size());
      const double own = table->accessor().row_floats() * 4.0;
      if (table->size() < 200'000) continue;
      ASSERT_LE(row - own, 16) << table->size() << " rows, dim " << dim;
    }
  }
}

TEST(SparseTableTest, ThreadsDoNotLosePushes) {
  auto table = make_sparse_table(embedding_sparse_table(8));
  const Keys keys = [] {
    Keys made(4000);
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<int64_t>(i % 1000);
    return made;
  }();
  const Floats before = pull_sparse_table(*table, keys);
  const Floats grads(keys.size() * 8, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(table->push(keys, grads.data()).ok());
        pull_sparse_table(*table, keys);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Floats after = pull_sparse_table(*table, keys);
  for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i] - 160 * 0.05F, 1e-4);
}

TEST(SparseTableTest, PaddingReadsAsZerosAndIsNeverPushed) {
  SparseTableOptions options = embedding_sparse_table(2);
  options.padding = -1;
  auto table = make_sparse_table(options);
  const Floats grads(4, 1);
  ASSERT_TRUE(table->push(Keys{-1, 5}, grads.data()).ok());
  EXPECT_EQ(table->size(), 1);
  const Floats values = pull_sparse_table(*table, {-1, 5});
  EXPECT_EQ(values[0], 0);
  EXPECT_NE(values[2], 0);
}

TEST(SparseTableTest, CountFilterAdmitsFromTheNthAccessOn) {
  SparseTableOptions options = embedding_sparse_table(2);
  options.entry = *parse_entry("count_filter_entry:5");
  auto table = make_sparse_table(options);
  const Floats grads{1, 1};
  for (int access = 1; access <= 4; ++access) {
    EXPECT_THAT(pull_sparse_table(*table, {9}), Each(0)) << access;
    ASSERT_TRUE(table->push(Keys{9}, grads.data()).ok());
    EXPECT_THAT(pull_sparse_table(*table, {9}, false), Each(0)) << "reading is no access";
  }
  EXPECT_EQ(table->size(), 0);
  const Floats first = pull_sparse_table(*table, {9});
  EXPECT_NE(first[0], 0);
  ASSERT_TRUE(table->push(Keys{9}, grads.data()).ok());
  EXPECT_FLOAT_EQ(pull_sparse_table(*table, {9})[0], first[0] - 0.05F);
  Floats out(2);
  const std::vector<int32_t> five{5};
  ASSERT_TRUE(table->pull(Keys{10}, out.data(), five).ok());
  EXPECT_NE(out[0], 0) << "an id that occurs five times in a batch";
}

TEST(SparseTableTest, ProbabilityAdmitsThatShareOfAccesses) {
  constexpr double kProbability = 0.25;
  constexpr int kKeys = 20'000;
  SparseTableOptions options = embedding_sparse_table(1);
  options.entry = *parse_entry("probability_entry:0.25");
  auto table = make_sparse_table(options);
  Keys keys(kKeys);
  for (int i = 0; i < kKeys; ++i) keys[static_cast<size_t>(i)] = i;
  double expected = 0;
  for (int access = 0; access < 3; ++access) {
    pull_sparse_table(*table, keys);
    expected += (kKeys - expected) * kProbability;
    const double sigma = std::sqrt(kKeys * kProbability * (1 - kProbability));
    EXPECT_NEAR(static_cast<double>(table->size()), expected, 4 * sigma) << access;
  }
}

TEST(SparseTableTest, EntriesAreParsedAsTheOriginalWritesThem) {
  EXPECT_EQ(parse_entry("none")->kind, EntryPolicy::Kind::kNone);
  EXPECT_EQ(parse_entry("count_filter&7")->count, 7);
  EXPECT_EQ(parse_entry("probability&0.5")->probability, 0.5);
  const auto names = parse_entry("show_click_entry:show:click");
  EXPECT_EQ(names->show_var, "show");
  EXPECT_EQ(names->click_var, "click");
  for (const char* text : {"probability_entry:1", "probability_entry:0", "count_filter_entry:-1",
                           "count_filter_entry:x", "show_click_entry:show", "often"})
    EXPECT_EQ(parse_entry(text).status().code(), StatusCode::kInvalidArgument) << text;
}

TEST(SparseTableTest, RoutingGivesEveryKeyOneOwner) {
  std::mt19937_64 random(1);
  for (int64_t shards = 1; shards <= 1000; shards += 1 + static_cast<int64_t>(random() % 9)) {
    for (int64_t servers = 1; servers <= 7; ++servers) {
      const auto routing = SparseRouting::create(shards, servers);
      ASSERT_TRUE(routing.ok());
      std::map<std::pair<int64_t, int64_t>, int64_t> shard_of;
      for (int i = 0; i < 200; ++i) {
        const auto key = static_cast<int64_t>(i < 100 ? static_cast<uint64_t>(i) : random());
        const int64_t server = routing->server_of(key);
        const int64_t local = routing->local_shard_of(key);
        ASSERT_GE(server, 0);
        ASSERT_LT(server, servers);
        ASSERT_LT(local, routing->shards_per_server());
        const auto shard =
            static_cast<int64_t>(static_cast<uint64_t>(key) % static_cast<uint64_t>(shards));
        const auto [at, added] = shard_of.emplace(std::pair{server, local}, shard);
        ASSERT_EQ(at->second, shard) << "two shards in one place";
      }
    }
  }
  EXPECT_FALSE(SparseRouting::create(0, 1).ok());
  EXPECT_FALSE(SparseRouting::create(5, 0).ok());
}

TEST(SparseTableTest, DenseRangesAreThoseOfTheOriginal) {
  const auto ranges = dense_ranges(186, 2);
  ASSERT_EQ(ranges->size(), 2U);
  EXPECT_EQ((*ranges)[0].count, 94);
  EXPECT_EQ((*ranges)[1].begin, 94);
  EXPECT_EQ((*ranges)[1].count, 92);
  for (int64_t n = 0; n < 40; ++n) {
    for (int64_t servers = 1; servers <= 7; ++servers) {
      const auto all = dense_ranges(n, servers);
      int64_t at = 0;
      for (const DenseRange& range : *all) {
        EXPECT_TRUE(range.begin == at || range.count == 0);
        at += range.count;
      }
      EXPECT_EQ(at, n);
      EXPECT_EQ(all->size(), static_cast<size_t>(servers));
    }
  }
}

TEST(SparseTableTest, SetGivesWeightsAndVisitSeesThem) {
  auto table = make_sparse_table(embedding_sparse_table(2));
  ASSERT_TRUE(table->set(Keys{3, 4}, Floats{1, 2, 3, 4}.data()).ok());
  std::map<uint64_t, float> seen;
  ASSERT_TRUE(table
                  ->visit([&](uint64_t key, float* row) {
                    seen[key] = row[1];
                    return Ok();
                  })
                  .ok());
  EXPECT_EQ(seen, (std::map<uint64_t, float>{{3, 2}, {4, 4}}));
  auto copy = make_sparse_table(embedding_sparse_table(2));
  ASSERT_TRUE(copy->restore(3, Floats{1, 2}).ok());
  EXPECT_THAT(pull_sparse_table(*copy, {3}), ElementsAre(1, 2));
  EXPECT_EQ(copy->restore(3, Floats{1}).code(), StatusCode::kInvalidArgument);
}

TEST(SparseTableTest, CallsOfTheWireAreChecked) {
  auto table = make_sparse_table(embedding_sparse_table(2));
  const Value ids = testing::ids({1, 2});
  const Value grads = testing::dense({1, 1, 1, 1});
  const std::vector<const Value*> good{&ids, &grads};
  ASSERT_TRUE(table->push(PushKind::kUpdate, TableCall{0, 0, good}).ok());
  Value reply;
  ASSERT_TRUE(table->pull(PullKind::kPlain, TableCall{0, 0, {good.data(), 1}}, reply).ok());
  EXPECT_THAT(reply.get_if<Tensor>()->dims(), ElementsAre(2, 2));
  const std::vector<const Value*> swapped{&grads, &ids};
  EXPECT_THAT(table->push(PushKind::kUpdate, TableCall{0, 0, swapped}).message(),
              HasSubstr("argument 0 is f32 [4]"));
  const Value few = testing::dense({1});
  const std::vector<const Value*> short_one{&ids, &few};
  EXPECT_EQ(table->push(PushKind::kUpdate, TableCall{0, 0, short_one}).message(),
            "argument 1 has 1 elements, expected 4");
  EXPECT_EQ(table->push(PushKind::kUpdate, TableCall{0, 0, {good.data(), 1}}).message(),
            "argument 1 is missing");
}

TEST(SparseTableTest, RatesOfASharedCounterScaleTheRule) {
  auto table = make_sparse_table(embedding_sparse_table(1));
  std::atomic<float> rate = 0.5F;
  table->share_rate(&rate);
  const Floats before = pull_sparse_table(*table, {1});
  ASSERT_TRUE(table->push(Keys{1}, Floats{1}.data()).ok());
  EXPECT_FLOAT_EQ(pull_sparse_table(*table, {1})[0], before[0] - 0.025F);
}

SparseTableOptions ctr_sparse_table() {
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCtrCommon;
  options.accessor.embedx_dim = 2;
  options.accessor.fea_dim = 5;
  options.accessor.embedx_threshold = 10;
  options.accessor.embed_rule.kind = options.accessor.embedx_rule.kind =
      SparseRuleOptions::Kind::kNaive;
  options.accessor.embed_rule.learning_rate = options.accessor.embedx_rule.learning_rate = 1;
  return options;
}

TEST(CtrTableTest, EmbedxBeginsWhenTheScoreIsThere) {
  auto table = make_sparse_table(ctr_sparse_table());
  EXPECT_THAT(pull_sparse_table(*table, {1}), ElementsAre(0, 0, 0, 0, 0));
  // score = (10 - 5) * 0.1 + 5 = 5.5 per push
  const Floats push{7, 10, 5, -1, 1, 1};
  ASSERT_TRUE(table->push(Keys{1}, push.data()).ok());
  EXPECT_THAT(pull_sparse_table(*table, {1}), ElementsAre(10, 5, 1, 0, 0));
  ASSERT_TRUE(table->push(Keys{1}, push.data()).ok());
  Floats row = pull_sparse_table(*table, {1});
  EXPECT_EQ(row[0], 20);
  EXPECT_NE(row[3], 0) << "made by the push that reached the threshold";
  EXPECT_LE(std::abs(row[3]), 1e-4F) << "and not changed by it";
  const float start = row[3];
  ASSERT_TRUE(table->push(Keys{1}, push.data()).ok());
  EXPECT_FLOAT_EQ(pull_sparse_table(*table, {1})[3], start - 1);
}

TEST(CtrTableTest, TheSparseAccessorPullsWeightsOnly) {
  SparseTableOptions options = ctr_sparse_table();
  options.accessor.kind = AccessorOptions::Kind::kSparse;
  options.accessor.embedx_threshold = 0;
  auto table = make_sparse_table(options);
  const Floats before = pull_sparse_table(*table, {1});
  ASSERT_EQ(before.size(), 3U);
  ASSERT_TRUE(table->push(Keys{1}, Floats{7, 1, 0, 1, 2, 3}.data()).ok());
  EXPECT_THAT(pull_sparse_table(*table, {1}),
              ElementsAre(before[0] - 1, before[1] - 2, before[2] - 3));
}

// Its one weight is embed_w; whatever the score, there are no others.
TEST(CtrTableTest, AnEmbeddingMayHaveOneWeight) {
  for (const float threshold : {0.0F, 2.0F}) {
    SparseTableOptions options = ctr_sparse_table();
    options.accessor.kind = AccessorOptions::Kind::kSparse;
    options.accessor.embedx_dim = 0;
    options.accessor.fea_dim = 3;
    options.accessor.embedx_threshold = threshold;
    auto table = make_sparse_table(options);
    const Floats before = pull_sparse_table(*table, {1});
    ASSERT_EQ(before.size(), 1U);
    for (int push = 0; push < 3; ++push)
      ASSERT_TRUE(table->push(Keys{1}, Floats{7, 1, 0, 0.25F}.data()).ok());
    EXPECT_THAT(pull_sparse_table(*table, {1}), ElementsAre(before[0] - 0.75F));
    auto other = make_sparse_table(options);
    const auto state = table->state();
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE(other->set_state(*state).ok());
    EXPECT_EQ(pull_sparse_table(*other, {1}), pull_sparse_table(*table, {1}));
  }
}

TEST(CtrTableTest, DimsMustBeThoseOfTheAccessor) {
  SparseTableOptions options = ctr_sparse_table();
  options.accessor.fea_dim = 4;
  EXPECT_EQ(SparseTable::create(options).status().message(),
            "fea_dim is 4, expected embedx_dim + 3 = 5");
  options.partitions = 3;
  EXPECT_THAT(SparseTable::create(options).status().message(), HasSubstr("power of two"));
}

// Rows with statistics set by the test: (show, click, delta score, unseen days).
void put_stats(SparseTable& table, int64_t key, float show, float click, float delta,
               float unseen) {
  Floats row(static_cast<size_t>(table.accessor().row_floats()));
  row[CtrAccessor::kShow] = show;
  row[CtrAccessor::kClick] = click;
  row[CtrAccessor::kDelta] = delta;
  row[CtrAccessor::kUnseen] = unseen;
  ASSERT_TRUE(table.restore(static_cast<uint64_t>(key), row).ok());
}

TEST(CtrTableTest, SavesWhatAModeAsksFor) {
  auto table = make_sparse_table(ctr_sparse_table());
  put_stats(*table, 1, 1, 1, 1, 0);     // score 1: below 1.5
  put_stats(*table, 2, 2, 2, 0.1F, 0);  // delta below 0.25
  put_stats(*table, 3, 2, 2, 0.3F, 16);
  put_stats(*table, 4, 2, 2, 0.3F, 17);  // unseen too long
  const auto saved = [&](int mode) {
    std::set<uint64_t> keys;
    EXPECT_TRUE(table
                    ->visit([&](uint64_t key, float* row) {
                      if (table->accessor().is_saved(row, mode)) keys.insert(key);
                      table->accessor().after_save(row, mode);
                      return Ok();
                    })
                    .ok());
    return keys;
  };
  EXPECT_THAT(saved(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(saved(2), ElementsAre(2, 3));
  EXPECT_THAT(saved(1), ElementsAre(3));
  EXPECT_THAT(saved(1), ElementsAre()) << "the delta was saved";
  EXPECT_THAT(saved(3), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(saved(2), ElementsAre(2)) << "a day later";
}

TEST(CtrTableTest, ShrinkDropsLowScoresAndOldRows) {
  auto table = make_sparse_table(ctr_sparse_table());
  put_stats(*table, 1, 0.8F, 0.8F, 0, 0);  // 0.784 after the decay: below 0.8
  put_stats(*table, 2, 0.9F, 0.9F, 0, 0);
  put_stats(*table, 3, 9, 9, 0, 31);
  for (int64_t key = 100; key < 5000; ++key) put_stats(*table, key, 9, 9, 0, 0);
  EXPECT_EQ(*table->shrink(), 2);
  EXPECT_EQ(table->size(), 4901);
  EXPECT_FLOAT_EQ(pull_sparse_table(*table, {2})[0], 0.9F * 0.98F);
  for (int64_t key = 100; key < 5000; ++key)
    ASSERT_FLOAT_EQ(pull_sparse_table(*table, {key})[0], 9 * 0.98F) << key;
  EXPECT_EQ(pull_sparse_table(*table, {1})[0], 0);
}

TEST(CtrTableTest, GradientsAreDividedByShows) {
  SparseTableOptions options = ctr_sparse_table();
  options.accessor.embed_rule.kind = SparseRuleOptions::Kind::kAdagrad;
  auto table = make_sparse_table(options);
  ASSERT_TRUE(table->push(Keys{1}, Floats{0, 4, 0, 8, 0, 0}.data()).ok());
  EXPECT_FLOAT_EQ(pull_sparse_table(*table, {1})[2], -2);
  options.accessor.show_scale = false;
  auto other = make_sparse_table(options);
  ASSERT_TRUE(other->push(Keys{1}, Floats{0, 4, 0, 8, 0, 0}.data()).ok());
  EXPECT_FLOAT_EQ(pull_sparse_table(*other, {1})[2], -8);
}

TEST(GeoTableTest, GivesEachTrainerWhatChangedSinceHeAsked) {
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCommMerge;
  options.accessor.embedx_dim = 2;
  auto made = SparseGeoTable::create(options, 2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  SparseGeoTable& table = **made;
  const auto push = [&](PushKind kind, Value ids, Value values) {
    const std::vector<const Value*> args{&ids, &values};
    ASSERT_TRUE(table.push(kind, TableCall{0, 0, args}).ok());
  };
  push(PushKind::kValues, testing::ids({5, 6}), testing::dense({1, 1, 2, 2}));
  push(PushKind::kUpdate, testing::ids({9, 5}), testing::dense({1, 2, 3, 4}));
  push(PushKind::kUpdate, testing::ids({9}), testing::dense({10, 10}));
  for (const int trainer : {0, 1}) {
    Value reply;
    ASSERT_TRUE(table.pull(PullKind::kChangedRows, TableCall{trainer, 0, {}}, reply).ok());
    const auto& rows = *reply.get_if<SelectedRows>();
    EXPECT_THAT(rows.rows, ElementsAre(5, 9));
    EXPECT_THAT(testing::floats(reply), ElementsAre(4, 5, 11, 12));
  }
  push(PushKind::kUpdate, testing::ids({6}), testing::dense({1, 1}));
  SelectedRows changed;
  ASSERT_TRUE(table.pull_changed(0, changed).ok());
  EXPECT_THAT(changed.rows, ElementsAre(6));
  ASSERT_TRUE(table.pull_changed(0, changed).ok());
  EXPECT_TRUE(changed.rows.empty());
  EXPECT_EQ(table.pull_changed(2, changed).code(), StatusCode::kInvalidArgument);
  // A response that was lost is sent again, including changes since then.
  push(PushKind::kUpdate, testing::ids({9}), testing::dense({1, 1}));
  ASSERT_TRUE(table.pull_changed(0, changed, 77).ok());
  push(PushKind::kUpdate, testing::ids({5}), testing::dense({1, 1}));
  ASSERT_TRUE(table.pull_changed(0, changed, 77).ok());
  EXPECT_THAT(changed.rows, ElementsAre(5, 9));
  ASSERT_TRUE(table.pull_changed(0, changed, 78).ok());
  EXPECT_TRUE(changed.rows.empty());
}

}  // namespace
}  // namespace millrace::ps
