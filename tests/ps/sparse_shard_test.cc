// Parts of sparse tables: memory for rows, keys that wait for admission, rows in a cold store, and
// the numbers that new rows begin with.
#include "ps/table/sparse_shard.h"

#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/table/keyed_random.h"
#include "ps/table/sparse_table.h"
#include "ps/table/typed_table.h"

namespace millrace::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;

TEST(RowSlab, SaysForWhichRowsThereIsNoMemory) {
  RowSlab slab(1);
  ASSERT_TRUE(slab.reserve(10).ok());
  const Status status = slab.reserve(size_t{1} << 50U);  // more than any address space
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_EQ(status.message(), "out of memory for 1125899906842624 rows of 12 bytes");
  EXPECT_EQ(slab.append(7), 0U) << "what it had is still there";
  EXPECT_EQ(slab.key(0), 7U);
}

TEST(KeyedRandom, GaussianNumbersAreThoseOfBoxAndMuller) {
  for (uint64_t key = 0; key < 20; ++key) {
    KeyedRandom uniform(3, key);
    KeyedRandom gaussian(3, key);
    for (int i = 0; i < 3; ++i) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform.uniform()));
      const double angle = 2.0 * std::numbers::pi * uniform.uniform();
      EXPECT_DOUBLE_EQ(gaussian.gaussian(), radius * std::cos(angle)) << key;
    }
  }
}

SparseTableOptions one_part(const std::string& entry) {
  SparseTableOptions options;
  options.partitions = 1;
  options.seed = 11;
  options.accessor.embedx_dim = 1;
  options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
  options.accessor.initializer = *parse_initializer("fill_constant&4");
  options.entry = *parse_entry(entry);
  return options;
}

Floats access(SparseTable& table, const Keys& keys) {
  Floats values(keys.size());
  const Status status = table.pull(keys, values.data());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return values;
}

Keys keys_up_to(int64_t end) {
  Keys keys(static_cast<size_t>(end));
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

// Memory for waiting keys grows several times meanwhile, and some of them share an entry of the
// index.
TEST(CountFilter, EveryKeyKeepsItsOwnCount) {
  const auto table = *SparseTable::create(one_part("count_filter_entry:3"));
  const Keys keys = keys_up_to(5000);
  for (int time = 1; time <= 2; ++time) {
    EXPECT_THAT(access(*table, keys), Each(0)) << time;
    EXPECT_EQ(table->size(), 0);
  }
  EXPECT_THAT(access(*table, {17, 4998}), ElementsAre(4, 4));
  EXPECT_EQ(table->size(), 2);
  EXPECT_THAT(access(*table, keys), Each(4));
  EXPECT_EQ(table->size(), 5000);
}

TEST(CountFilter, AnEmptiedTableForgetsItsCounts) {
  const auto table = *SparseTable::create(one_part("count_filter_entry:3"));
  const Keys keys = keys_up_to(100);
  for (int time = 1; time <= 2; ++time) access(*table, keys);
  ASSERT_TRUE(table->clear().ok());
  const auto state = table->state();
  ASSERT_TRUE(state.ok());
  for (const auto& [name, value] : *state) {
    if (value.get_if<Tensor>()->dtype() == DType::kFloat32) {
      EXPECT_EQ(value.get_if<Tensor>()->numel(), 0) << name;
    }
  }
  const Keys others{200, 201};
  for (int time = 1; time <= 2; ++time) {
    EXPECT_THAT(access(*table, keys), Each(0)) << time;
    EXPECT_THAT(access(*table, others), Each(0)) << time;
  }
  EXPECT_THAT(access(*table, keys), Each(4));
}

TEST(CountFilter, ACountOfZeroAdmitsEveryKey) {
  const auto entry = parse_entry("count_filter_entry:0");
  ASSERT_TRUE(entry.ok()) << entry.status().to_string();
  EXPECT_EQ(entry->count, 0);
  const auto table = *SparseTable::create(one_part("count_filter_entry:0"));
  EXPECT_THAT(access(*table, {1, 2}), ElementsAre(4, 4));
}

// Draw n of a partition is made with its own seed, so that servers that continue from a snapshot,
// and servers of a later build, admit the same keys.
TEST(Probability, DrawsDependOnSeedNumberAndKey) {
  const SparseTableOptions options = one_part("probability_entry:0.25");
  const auto table = *SparseTable::create(options);
  const Keys keys = keys_up_to(200);
  access(*table, keys);
  const uint64_t seed = mix_bits(options.seed) + static_cast<uint64_t>(options.table_id);
  std::set<uint64_t> expected;
  for (uint64_t key = 0; key < 200; ++key)
    if (KeyedRandom(seed + 2 + key, key).uniform() < 0.25) expected.insert(key);
  const auto admitted = [](SparseTable& from) {
    std::set<uint64_t> found;
    EXPECT_TRUE(from.visit([&](uint64_t key, float*) {
                      found.insert(key);
                      return Ok();
                    })
                    .ok());
    return found;
  };
  EXPECT_EQ(admitted(*table), expected);
  const auto other = *SparseTable::create(options);
  const auto state = table->state();
  ASSERT_TRUE(state.ok());
  ASSERT_TRUE(other->set_state(*state).ok());
  for (SparseTable* const each : {table.get(), other.get()}) access(*each, keys);
  EXPECT_GT(admitted(*table).size(), expected.size());
  EXPECT_EQ(admitted(*other), admitted(*table));
}

// Keys that come from other partitions must not get the draws again that have refused them.
TEST(Probability, DrawsAreNotRepeatedWithOtherPartitions) {
  const SparseTableOptions options = one_part("probability_entry:0.25");
  SparseTableOptions more = options;
  more.partitions = 2;
  int refused = 0;
  int admitted = 0;
  for (int64_t key = 0; key < 100; ++key) {
    const auto first = *SparseTable::create(options);
    access(*first, {key});
    if (first->size() != 0) continue;
    ++refused;
    const auto second = *SparseTable::create(more);
    ASSERT_TRUE(second->set_state(*first->state()).ok());
    access(*second, {key});
    admitted += static_cast<int>(second->size());
  }
  EXPECT_GT(refused, 60);
  EXPECT_GT(admitted, 5);
}

TEST(Accessors, NeedWeights) {
  using Rows = AccessorOptions::Kind;
  for (const auto& [kind, dim, least] :
       {std::tuple(Rows::kEmbedding, 0, 1), {Rows::kCommMerge, -1, 1}, {Rows::kSparse, -1, 0}}) {
    SparseTableOptions options = one_part("none");
    options.accessor.kind = kind;
    options.accessor.embedx_dim = dim;
    const Status status = SparseTable::create(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), fmt::format("embedx_dim is {}, expected at least {}", dim, least));
  }
}

// A row without statistics is pushed as one show, so adagrad divides its gradients by nothing.
TEST(Accessors, APushOfAnEmbeddingIsOneShow) {
  SparseTableOptions options = one_part("none");
  options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kAdagrad;
  options.accessor.embedx_rule.learning_rate = 0.5F;
  const auto table = *SparseTable::create(options);
  const Keys keys{3};
  ASSERT_TRUE(table->push(keys, Floats{2}.data()).ok());  // no squares before the first step
  EXPECT_THAT(access(*table, keys), ElementsAre(3));
}

// ---- rows in a cold store

// Like a store of sorted files, which must be asked in the order of its keys.
class SortedStore final : public ColdStore {
 public:
  explicit SortedStore(std::map<uint64_t, Floats>& rows) : rows_(rows) {}
  Status get(std::span<const uint64_t> keys,
             const std::function<Status(size_t, std::span<const float>)>& found) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i > 0) {
        EXPECT_LT(keys[i - 1], keys[i]);
      }
      const auto row = rows_.find(keys[i]);
      if (row != rows_.end()) MILLRACE_RETURN_IF_ERROR(found(i, row->second));
    }
    return Ok();
  }
  Status put(uint64_t key, std::span<const float> row) override {
    rows_[key].assign(row.begin(), row.end());
    return Ok();
  }
  Status erase(uint64_t key) override {
    rows_.erase(key);
    return Ok();
  }
  Status flush() override { return Ok(); }
  Status visit(const std::function<Status(uint64_t, std::span<const float>)>& visitor) override {
    for (const auto& [key, row] : rows_) MILLRACE_RETURN_IF_ERROR(visitor(key, row));
    return Ok();
  }

 private:
  std::map<uint64_t, Floats>& rows_;
};

TEST(ColdRows, AreAskedForInOrderAndOnce) {
  const SparseTableOptions options = one_part("none");
  const auto accessor = Accessor::create(options.accessor);
  ASSERT_TRUE(accessor.ok());
  ShardContext context;
  context.accessor = accessor->get();
  context.memory_rows = 64;
  std::map<uint64_t, Floats> cold;
  SparseShard shard(context, std::make_unique<SortedStore>(cold));
  const auto batch_of = [](const Keys& keys, std::vector<uint64_t>& hashes,
                           std::vector<uint32_t>& order) {
    hashes.clear();
    for (const int64_t key : keys) hashes.push_back(mix_bits(static_cast<uint64_t>(key)));
    order.resize(keys.size());
    std::iota(order.begin(), order.end(), 0U);
    return ShardBatch{keys.data(), hashes.data(), order};
  };
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> order;
  const Keys all = keys_up_to(500);
  Floats values(all.begin(), all.end());
  ASSERT_TRUE(shard.set(batch_of(all, hashes, order), values.data(), nullptr).ok());
  EXPECT_LE(shard.size(), 64U);
  EXPECT_GE(cold.size(), 436U);
  // downwards, and each twice
  Keys down;
  for (int64_t key = 499; key >= 0; --key) down.insert(down.end(), {key, 499 - key});
  Floats found(down.size());
  ASSERT_TRUE(shard.pull(batch_of(down, hashes, order), found.data(), nullptr, true).ok());
  for (size_t i = 0; i < down.size(); ++i)
    ASSERT_EQ(found[i], static_cast<float>(down[i])) << down[i];
}

}  // namespace
}  // namespace millrace::ps
