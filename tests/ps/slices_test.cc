// Random rows, heights and servers: every row goes to exactly one slice or server, the order is
// kept, and what was split can be put together again.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "framework/row_owner.h"
#include "framework/slice_cover.h"
#include "ps/server/table_rows.h"
#include "ps/slices/row_places.h"
#include "ps/slices/slicer.h"
#include "ps/table/key_plan.h"
#include "ps/table/routing.h"
#include "transpiler/distribute/slice.h"

namespace millrace::ps {
namespace {

using Random = std::mt19937;

int64_t below(Random& random, int64_t end) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

constexpr int64_t kWidth = 3;

// Slices of one to nine or more rows; more than eight slices take another path.
struct Case {
  std::vector<int64_t> heights;
  std::vector<int64_t> begins;
  int64_t height = 0;
  Value value;  // selected rows
  [[nodiscard]] const SelectedRows& rows() const { return *value.get_if<SelectedRows>(); }
};

Case random_case(Random& random, bool repeats) {
  Case made;
  const int64_t slices = 1 + below(random, 12);
  for (int64_t k = 0; k < slices; ++k) {
    made.begins.push_back(made.height);
    made.heights.push_back(1 + below(random, 9));
    made.height += made.heights.back();
  }
  std::vector<int64_t> ids(static_cast<size_t>(made.height));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(static_cast<size_t>(below(random, made.height + 1)));
  for (size_t i = 0; repeats && i < ids.size(); i += 3) ids[i] = ids[ids.size() - 1 - i];
  auto& rows = made.value.as<SelectedRows>();
  rows.height = made.height;
  EXPECT_TRUE(rows.value.resize(DType::kFloat32, {static_cast<int64_t>(ids.size()), kWidth}).ok());
  float next = 1;
  for (size_t i = 0; i < ids.size() * kWidth; ++i) rows.value.data<float>()[i] = next++;
  rows.rows.assign(ids.begin(), ids.end());
  return made;
}

struct SlicedRow {
  int64_t id;
  std::vector<float> values;
  bool operator==(const SlicedRow&) const = default;
};

std::vector<SlicedRow> rows_in(const SelectedRows& rows, int64_t begin = 0) {
  std::vector<SlicedRow> all;
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const float* const from = rows.value.data<float>() + i * kWidth;
    all.push_back({begin + rows.rows[i], {from, from + kWidth}});
  }
  return all;
}

// The rows of the input that belong to a slice, in their order.
std::vector<SlicedRow> expected_in(const Case& from, size_t k) {
  std::vector<SlicedRow> all;
  for (SlicedRow& row : rows_in(from.rows())) {
    if (row.id >= from.begins[k] && row.id < from.begins[k] + from.heights[k])
      all.push_back(std::move(row));
  }
  return all;
}

// Adds up rows with equal ids, in the order of their first occurrence.
std::vector<SlicedRow> added_up(const std::vector<SlicedRow>& rows) {
  std::vector<SlicedRow> all;
  for (const SlicedRow& row : rows) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const SlicedRow& other) { return other.id == row.id; });
    if (found == all.end()) {
      all.push_back(row);
      continue;
    }
    for (size_t i = 0; i < row.values.size(); ++i) found->values[i] += row.values[i];
  }
  return all;
}

TEST(Slices, EveryRowIsInExactlyOneSlice) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const Case from = random_case(random, round % 2 == 0);
    Slicer keeping(from.heights, Repeats::kKeep);
    Slicer adding_up(from.heights, Repeats::kAddUp);
    for (int time = 0; time < 2; ++time) {  // memory is reused, as by a trainer
      ASSERT_TRUE(keeping.split(from.value).ok());
      ASSERT_TRUE(adding_up.split(from.value).ok());
    }
    ASSERT_EQ(keeping.slices().size(), from.heights.size());
    ASSERT_EQ(adding_up.slices().size(), from.heights.size());
    for (size_t k = 0; k < from.heights.size(); ++k) {
      const std::vector<SlicedRow> expected = expected_in(from, k);
      const auto& kept = *keeping.slices()[k].get_if<SelectedRows>();
      EXPECT_EQ(kept.height, from.heights[k]);
      EXPECT_EQ(rows_in(kept, from.begins[k]), expected);
      const auto& added = *adding_up.slices()[k].get_if<SelectedRows>();
      EXPECT_EQ(added.height, from.heights[k]);
      EXPECT_EQ(rows_in(added, from.begins[k]), added_up(expected));
    }
  }
}

TEST(Slices, EveryRowOfADistributedTableIsOnOneServer) {
  for (int64_t servers = 1; servers < 6; ++servers) {
    for (int64_t height = 0; height < 20; ++height) {
      std::vector<int64_t> counts(static_cast<size_t>(servers), 0);
      for (int64_t row = 0; row < height; ++row)
        ++counts[static_cast<size_t>(server_of_row(row, servers))];
      for (int64_t server = 0; server < servers; ++server) {
        const int64_t count = rows_of_server(height, server, servers);
        EXPECT_EQ(count, counts[static_cast<size_t>(server)]);
        const std::vector<int64_t> rows = first_rows_of_server(count, server, servers);
        for (int64_t at = 0; at < count; ++at) {
          const int64_t row = rows[static_cast<size_t>(at)];
          EXPECT_LT(row, height);
          EXPECT_EQ(server_of_row(row, servers), server);
          EXPECT_EQ(position_on_server(row, servers), at);
        }
      }
    }
  }
}

TEST(Slices, ATensorIsTheSameWhenItsSlicesAreJoined) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const Case from = random_case(random, false);
    Value value;
    auto& whole = value.as<Tensor>();
    ASSERT_TRUE(whole.resize(DType::kFloat32, {from.height, kWidth}).ok());
    std::iota(whole.data<float>(), whole.data<float>() + whole.numel(), 1.0F);
    Slicer slicer(from.heights, Repeats::kKeep);
    ASSERT_TRUE(slicer.split(value).ok());
    Value joined;
    ASSERT_TRUE(join_slices(slicer.slices(), joined).ok());
    const auto& again = *joined.get_if<Tensor>();
    EXPECT_EQ(again.dims(), whole.dims());
    EXPECT_TRUE(
        std::equal(whole.data<float>(), whole.data<float>() + whole.numel(), again.data<float>()));
  }
}

TEST(Slices, RowsAreTheSameWhenTheirSlicesAreJoined) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    const Case from = random_case(random, round % 2 == 0);
    Slicer slicer(from.heights, Repeats::kKeep);
    ASSERT_TRUE(slicer.split(from.value).ok());
    Value joined;
    ASSERT_TRUE(join_slices(slicer.slices(), joined).ok());
    // the rows of each slice stay in their order, slice after slice
    std::vector<SlicedRow> expected;
    for (size_t k = 0; k < from.heights.size(); ++k)
      for (SlicedRow& row : expected_in(from, k)) expected.push_back(std::move(row));
    EXPECT_EQ(rows_in(*joined.get_if<SelectedRows>()), expected);
    EXPECT_EQ(joined.get_if<SelectedRows>()->height, from.height);
  }
}

TEST(Slices, OtherValuesAreErrors) {
  Slicer slicer({2, 3}, Repeats::kKeep);
  Value value;
  EXPECT_EQ(slicer.split(value).code(), StatusCode::kExecution);
  ASSERT_TRUE(value.as<Tensor>().resize(DType::kFloat32, {4, 1}).ok());
  EXPECT_THAT(slicer.split(value).message(),
              ::testing::HasSubstr("slices of 2, 3 rows do not cover f32 [4, 1]"));
  for (const Repeats repeats : {Repeats::kKeep, Repeats::kAddUp}) {
    Slicer rows({2, 3}, repeats);
    auto& wrong = value.as<SelectedRows>();
    wrong.rows = {5};
    ASSERT_TRUE(wrong.value.resize(DType::kFloat32, {1, 1}).ok());
    EXPECT_EQ(rows.split(value).message(), "row 5 is out of range, the slices cover [0, 5)");
    wrong.rows = {1, 2};
    EXPECT_THAT(rows.split(value).message(), ::testing::HasSubstr("selected rows have 2 row ids"));
  }
}

// The slices of the transpiler cover their var, and their heights are those that values are split
// by.
TEST(Slices, AgreeWithTheTranspiler) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const Dims dims{1 + below(random, 60), 1 + below(random, 4)};
    const auto slices =
        transpiler::slice_variable(dims, 1 + below(random, 8), 1 + below(random, 30));
    ASSERT_TRUE(slices.ok()) << slices.status().to_string();
    std::vector<VarSlice> cover;
    std::vector<int64_t> heights;
    for (const transpiler::Slice& slice : *slices) {
      cover.push_back({"slice", slice.offset, slice.elems, std::nullopt, slice.dims});
      heights.push_back(slice.dims[0]);
    }
    const Status covered = check_slices_cover("w", std::nullopt, dims, cover);
    ASSERT_TRUE(covered.ok()) << covered.to_string();
    Value value;
    auto& whole = value.as<Tensor>();
    ASSERT_TRUE(whole.resize(DType::kFloat32, dims).ok());
    std::iota(whole.data<float>(), whole.data<float>() + whole.numel(), 0.0F);
    Slicer slicer(heights, Repeats::kKeep);
    ASSERT_TRUE(slicer.split(value).ok());
    for (size_t k = 0; k < heights.size(); ++k) {
      const auto& slice = *slicer.slices()[k].get_if<Tensor>();
      EXPECT_EQ(slice.numel(), (*slices)[k].elems);
      EXPECT_EQ(slice.data<float>()[0], static_cast<float>((*slices)[k].offset));
    }
  }
}

TEST(Slices, PlacesOfRowsAreSortedAndNoRowIsTwice) {
  std::vector<RowPlace> places;
  const std::vector<int64_t> first{4, 0, 2};
  const std::vector<int64_t> second{1, 5, 3};
  add_places(first, 0, places, [](int64_t row) { return row != 0; });
  add_places(second, 1, places);
  ASSERT_TRUE(sort_places(places).ok());
  std::vector<int64_t> rows;
  for (const RowPlace& place : places) {
    rows.push_back(place.row);
    EXPECT_EQ((place.shard == 0 ? first : second)[place.position], place.row);
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(1, 2, 3, 4, 5));
  add_places(second, 2, places);
  EXPECT_EQ(sort_places(places).message(), "two servers have row 1");
  EXPECT_EQ(sort_places(places, "key").message(), "two servers have key 1");
}

TEST(Slices, ARangeOfADenseTableIsTheSameForOneServerAndForAll) {
  for (int64_t servers = 1; servers < 6; ++servers) {
    const auto ranges = dense_ranges(23, servers);
    for (int64_t server = 0; server < servers; ++server) {
      const DenseRange one = dense_range(23, servers, server);
      EXPECT_EQ(one.begin, (*ranges)[static_cast<size_t>(server)].begin);
      EXPECT_EQ(one.count, (*ranges)[static_cast<size_t>(server)].count);
    }
    EXPECT_EQ(dense_range(23, servers, servers).count, 0);  // no server
  }
}

TEST(Slices, EveryKeyGoesToTheServerThatOwnsIt) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const auto servers = static_cast<size_t>(1 + below(random, 9));
    const int64_t shards = 1 + below(random, 100);
    std::vector<int64_t> ids(static_cast<size_t>(below(random, 50)));
    for (int64_t& id : ids) id = below(random, 40);
    const std::optional<int64_t> padding =
        round % 2 == 0 ? std::nullopt : std::optional<int64_t>(below(random, 40));
    const auto plan = make_key_plan(ids, shards, servers, padding);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto routing = SparseRouting::create(shards, static_cast<int64_t>(servers));
    ASSERT_TRUE(routing.ok());
    ASSERT_EQ(plan->places.size(), ids.size());
    std::map<int64_t, int64_t> occurrences;
    for (size_t i = 0; i < ids.size(); ++i) {
      const KeyPlan::Place place = plan->places[i];
      if (padding == ids[i]) {
        EXPECT_EQ(place.server, -1);
        continue;
      }
      ++occurrences[ids[i]];
      ASSERT_EQ(place.server, routing->server_of(ids[i]));
      const KeyPlan::ServerKeys& own = plan->by_server[static_cast<size_t>(place.server)];
      ASSERT_LT(place.position, own.size);
      EXPECT_EQ(own.keys.get_if<Tensor>()->data<int64_t>()[place.position], ids[i]);
    }
    size_t keys = 0;
    for (const KeyPlan::ServerKeys& own : plan->by_server) {
      keys += own.size;
      for (size_t i = 0; i < own.size; ++i) {
        const int64_t key = own.keys.get_if<Tensor>()->data<int64_t>()[i];
        EXPECT_EQ(own.counts.get_if<Tensor>()->data<int64_t>()[i], occurrences[key]);
      }
    }
    EXPECT_EQ(keys, occurrences.size());
  }
}

// Startup programs number the rows of each server from 0.
TEST(RowNumbers, AreThoseOfTheServerWhateverItsStartupProgramLeft) {
  for (const bool numbered : {false, true}) {
    std::vector<RowPlace> places;
    for (int64_t server = 0; server < 3; ++server) {
      Value table;
      auto& rows = table.as<SelectedRows>();
      ASSERT_TRUE(rows.value.resize(DType::kFloat32, {4, kWidth}).ok());
      if (numbered) {
        rows.height = 4;
        rows.rows = {0, 1, 2, 3};
      }
      number_rows(table, server, 3, 0);
      EXPECT_EQ(rows.height, 12);
      EXPECT_EQ(rows.rows, first_rows_of_server(4, server, 3));
      add_places(rows.rows, static_cast<size_t>(server), places);
    }
    EXPECT_TRUE(sort_places(places).ok());
  }
}

// Every server has as many rows as the first one; those beyond the table are dropped.
TEST(RowNumbers, EndWithTheTable) {
  for (int64_t height = 1; height < 12; ++height) {
    std::vector<Value> tables(4);
    std::vector<const SelectedRows*> shards;
    for (int64_t server = 0; server < 4; ++server) {
      Value& table = tables[static_cast<size_t>(server)];
      const int64_t made = rows_of_server(height, 0, 4);
      ASSERT_TRUE(table.as<Tensor>().resize(DType::kFloat32, {made, kWidth}).ok());
      number_rows(table, server, 4, height);
      const auto& rows = *table.get_if<SelectedRows>();
      EXPECT_EQ(rows.height, height);
      EXPECT_EQ(rows.value.dim(0), static_cast<int64_t>(rows.rows.size()));
      shards.push_back(&rows);
    }
    SelectedRows whole;
    const Status joined = join_shards(shards, whole);
    ASSERT_TRUE(joined.ok()) << joined.to_string();
    EXPECT_EQ(whole.height, height);
    EXPECT_EQ(whole.rows.size(), static_cast<size_t>(height));
  }
  Value other;  // not as many rows as the first server of a table of 5 has
  ASSERT_TRUE(other.as<Tensor>().resize(DType::kFloat32, {4, kWidth}).ok());
  number_rows(other, 1, 3, 5);
  EXPECT_EQ(other.get_if<SelectedRows>()->height, 12);
}

SelectedRows shard_of_rows(std::vector<int64_t> rows, int64_t height, int64_t width) {
  SelectedRows shard;
  shard.height = height;
  EXPECT_TRUE(shard.value.resize(DType::kFloat32, {static_cast<int64_t>(rows.size()), width}).ok());
  for (int64_t i = 0; i < shard.value.numel(); ++i)
    shard.value.data<float>()[i] = static_cast<float>(10 * rows[static_cast<size_t>(i / width)]);
  shard.rows = std::move(rows);
  return shard;
}

TEST(JoinShards, PutsRowsInOrder) {
  const SelectedRows first = shard_of_rows({4, 0}, 6, 2);
  const SelectedRows none;
  const SelectedRows last = shard_of_rows({1}, 6, 2);
  SelectedRows whole;
  ASSERT_TRUE(join_shards(std::array{&none, &first, &last}, whole).ok());
  EXPECT_EQ(whole.height, 6);
  EXPECT_THAT(whole.rows, ::testing::ElementsAre(0, 1, 4));
  EXPECT_THAT(whole.value.values<float>(), ::testing::ElementsAre(0, 0, 10, 10, 40, 40));
}

TEST(JoinShards, RefusesWhatIsNoTable) {
  const SelectedRows good = shard_of_rows({0, 2}, 4, 2);
  const auto error = [&](const SelectedRows& other) {
    SelectedRows whole;
    return join_shards(std::array{&good, &other}, whole).to_string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error(shard_of_rows({1}, 5, 2)), HasSubstr("expected a table of 4 rows, found 5"));
  EXPECT_THAT(error(shard_of_rows({1}, 5, 2)), HasSubstr("in the shard of server 1"));
  EXPECT_THAT(error(shard_of_rows({1}, 4, 3)),
              HasSubstr("expected rows like those of f32 [2, 2], found f32 [1, 3]"));
  EXPECT_THAT(error(shard_of_rows({2}, 4, 2)), HasSubstr("two servers have row 2"));
  EXPECT_THAT(error(shard_of_rows({4}, 4, 2)),
              HasSubstr("server 1 has row 4 of a table of 4 rows"));
  EXPECT_THAT(error(shard_of_rows({-1}, 4, 2)), HasSubstr("server 1 has row -1"));
  SelectedRows more = shard_of_rows({1}, 4, 2);
  more.rows.push_back(3);
  EXPECT_THAT(error(more), HasSubstr("2 row numbers, but values f32 [1, 2]"));
}

TEST(RowNumbers, OfLoadedRowsStay) {
  Value table;
  auto& rows = table.as<SelectedRows>();
  ASSERT_TRUE(rows.value.resize(DType::kFloat32, {2, kWidth}).ok());
  rows.height = 6;
  rows.rows = {0, 1};
  number_rows(table, 1, 3, 0);
  EXPECT_EQ(rows.height, 6);
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace millrace::ps
