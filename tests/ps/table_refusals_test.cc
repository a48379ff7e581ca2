// What typed tables refuse, and what they say then; initial values and random numbers within their
// bounds.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "ps/protocol/pack.h"
#include "ps/table/barrier_table.h"
#include "ps/table/sparse_geo_table.h"
#include "ps/table/table_files.h"
#include "ps/table/table_handler.h"
#include "ps/table/table_sender.h"
#include "ps/table/tensor_table.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/fake_sender.h"

namespace millrace::ps {
namespace {

using ::millrace::testing::TempFolder;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;

SparseTableOptions refusing_options() {
  SparseTableOptions options;
  options.table_id = 6;
  options.accessor.embedx_dim = 2;
  options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
  return options;
}

TEST(TableSettings, UnknownNamesAreNamed) {
  EXPECT_EQ(parse_accessor("RowAccessor").status().message(),
            "unknown table accessor 'RowAccessor'");
  EXPECT_EQ(parse_accessor("CtrCommonAccessor").value(), AccessorOptions::Kind::kCtrCommon);
  EXPECT_EQ(parse_accessor("SparseAccessor").value(), AccessorOptions::Kind::kSparse);
  EXPECT_EQ(parse_accessor("CommMergeAccessor").value(), AccessorOptions::Kind::kCommMerge);
  EXPECT_EQ(parse_accessor("EmbeddingAccessor").value(), AccessorOptions::Kind::kEmbedding);
  EXPECT_EQ(parse_sparse_rule("AdamRule").status().message(),
            "unknown sparse table rule 'AdamRule'");
  EXPECT_EQ(parse_sparse_rule("SparseSharedAdamSGDRule").value(),
            SparseRuleOptions::Kind::kSharedAdam);
  EXPECT_EQ(parse_sparse_rule("StdAdaGradSGDRule").value(), SparseRuleOptions::Kind::kStdAdagrad);
  EXPECT_EQ(parse_sparse_rule("SparseAdaGradSGDRule").value(), SparseRuleOptions::Kind::kAdagrad);
  EXPECT_EQ(parse_initializer("xavier&1").status().message(),
            "unknown table initializer 'xavier&1'");
  for (const char* const text :
       {"fill_constant", "fill_constant&x", "fill_constant&1&2", "uniform_random&1&2",
        "uniform_random&-1&0&1", "gaussian_random&1&0&x", "gaussian_random&1&0&1&1"}) {
    EXPECT_EQ(parse_initializer(text).status().message(),
              fmt::format("initializer '{}' has invalid arguments", text));
  }
}

TEST(Initializers, FillWithinTheirBounds) {
  for (const char* const text : {"fill_constant&0.5", "uniform_random&3&-2&6",
                                 "gaussian_random&3&1&2", "truncated_gaussian_random&3&1&2"}) {
    const auto made = parse_initializer(text);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(initializer_text(*made), text);
    Floats values(20'000);
    KeyedRandom random(made->seed, 1);
    made->fill(values, random);
    double mean = 0;
    double squares = 0;
    for (const float value : values) mean += value / static_cast<double>(values.size());
    for (const float value : values)
      squares += (value - mean) * (value - mean) / static_cast<double>(values.size());
    const double deviation = std::sqrt(squares);
    switch (made->kind) {
      case Initializer::Kind::kConstant:
        EXPECT_THAT(values, Each(0.5F));
        break;
      case Initializer::Kind::kUniform:
        EXPECT_THAT(values, Each(AllOf(Ge(-2), Le(6))));
        EXPECT_NEAR(mean, 2, 0.1);
        EXPECT_NEAR(deviation, 8 / std::sqrt(12.0), 0.1);
        break;
      case Initializer::Kind::kGaussian:
        EXPECT_NEAR(mean, 1, 0.1);
        EXPECT_NEAR(deviation, 2, 0.1);
        EXPECT_GT(*std::max_element(values.begin(), values.end()), 5) << "not cut off";
        break;
      case Initializer::Kind::kTruncatedGaussian:
        EXPECT_THAT(values, Each(AllOf(Ge(-3), Le(5))));  // two deviations
        EXPECT_NEAR(mean, 1, 0.1);
        EXPECT_NEAR(deviation, 2 * 0.8796, 0.1);
        EXPECT_GT(*std::max_element(values.begin(), values.end()), 4.8);
        EXPECT_LT(*std::min_element(values.begin(), values.end()), -2.8);
        break;
    }
  }
}

TEST(BarrierRefusals, NameTheTrainer) {
  BarrierTable table(2, {});
  const auto arrive = [&](int trainer, int64_t phase, int ms = 20'000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    return table.arrive(CommBarrier::kReceive, trainer, phase, deadline).message();
  };
  EXPECT_EQ(arrive(2, 1), "barrier 'receive': trainer 2 is unknown or has left");
  EXPECT_EQ(arrive(0, 2), "barrier 'receive': trainer 0 is at phase 2, expected 1");
  std::string message;
  std::thread waits([&] { message = arrive(0, 1); });
  while (arrive(1, 2, 1) != "barrier 'receive': trainer 1 is at phase 2, expected 1")
    std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ASSERT_TRUE(table.leave(0).ok());
  waits.join();
  EXPECT_THAT(message, AnyOf(HasSubstr("trainer 0 was lost or has left"),
                             HasSubstr("trainer 0 is unknown or has left")));
  EXPECT_EQ(table.live(), 1);
  EXPECT_EQ(table.join(2).message(), "trainer 2 is unknown");
  EXPECT_EQ(table.join(-1).message(), "trainer -1 is unknown");
}

TEST(SparseRefusals, NameTheTable) {
  const auto table = *SparseTable::create(refusing_options());
  Floats rows(4);
  const Keys keys{1, 2};
  EXPECT_EQ(table->pull(keys, rows.data(), std::vector<int32_t>{1}).message(),
            "table 6: 1 counts for 2 keys");
  EXPECT_EQ(table->restore(1, Floats{1}).message(), "table 6: a row of 1 floats, expected 2");
  SparseTableOptions options = refusing_options();
  EXPECT_EQ(SparseGeoTable::create(options, 2).status().message(),
            "table 6: a geo table adds deltas, expected CommMergeAccessor");
  options.accessor.kind = AccessorOptions::Kind::kCommMerge;
  EXPECT_EQ(SparseGeoTable::create(options, 0).status().message(),
            "trainers is 0, expected at least 1");
  const auto geo = *SparseGeoTable::create(options, 2);
  SelectedRows changed;
  for (const int trainer : {-1, 2}) {
    EXPECT_EQ(geo->pull_changed(trainer, changed).message(),
              fmt::format("table 6 has 2 trainers, found trainer {}", trainer));
  }
  options.disk_path = "anywhere";
  EXPECT_EQ(SparseGeoTable::create(options, 2).status().message(),
            "table 6: a geo table must be in memory, but disk_path is set");
}

TEST(StepRefusals, NameTheTrainer) {
  TensorTable steps(2, {});
  const auto push = [&](int trainer, const Keys& numbers) {
    const Value value = testing::ids(numbers);
    const Value* const arg = &value;
    return steps.push(PushKind::kUpdate, TableCall{trainer, 0, {&arg, 1}}).message();
  };
  EXPECT_EQ(push(0, {1, 2}), "found 2 numbers of steps, expected 1");
  EXPECT_EQ(push(0, {-1}), "trainer 0 sent -1 steps, expected at least 0");
  for (const int trainer : {-1, 2}) {
    EXPECT_EQ(push(trainer, {1}), fmt::format("found steps of trainer {}, expected one of the 2 "
                                              "trainers",
                                              trainer));
  }
  EXPECT_EQ(steps.steps(), 0);
  EXPECT_EQ(push(1, {0}), "");
  EXPECT_EQ(push(1, {7}), "");
  EXPECT_EQ(steps.steps(), 7);
}

class IgnoredReply final : public ReplySink {
 public:
  Status put(std::string_view, const Value&) override { return Ok(); }
  StatusOr<std::byte*> put_room(std::string_view, DType, llvm::ArrayRef<int64_t>) override {
    return Status(StatusCode::kUnimplemented, "room");
  }
  void set_epoch(uint64_t) override {}
  void set_number(int64_t) override {}
  void set_text(std::string) override {}
};

TEST(HandlerRefusals, NameTheTableAndTheCall) {
  TableHandler handler(1);
  ASSERT_TRUE(handler.add_sparse(*SparseTable::create(refusing_options()), 0).ok());
  EXPECT_EQ(handler.add_sparse(*SparseTable::create(refusing_options()), 0).message(),
            "table 6 already exists");
  DenseTableOptions dense;
  dense.sync = true;
  EXPECT_EQ(handler.add(7, *DenseTable::create(dense)).message(),
            "table 7 is synchronous: add_in_steps() adds it");
  const auto call = [&](auto message) {
    IgnoredReply reply;
    return handler
        .handle(protocol::pack(std::move(message)),
                std::chrono::steady_clock::now() + std::chrono::seconds(20), reply)
        .to_string();
  };
  const Value numbers = testing::dense({1});
  EXPECT_THAT(call(protocol::Pull{6, PullKind::kPlain, {{"keys", &numbers, nullptr}}}),
              AllOf(HasSubstr("argument 0 is f32 [1], expected a tensor of i64"),
                    HasSubstr("in a pull from table 6")));
  EXPECT_THAT(call(protocol::Push{6, PushKind::kUpdate, {{"keys", nullptr, nullptr}}}),
              AllOf(HasSubstr("argument 0 is missing"), HasSubstr("in a push to table 6")));
  EXPECT_THAT(call(protocol::Pull{7, PullKind::kPlain, {}}),
              HasSubstr("this server has no table 7"));
  EXPECT_THAT(call(protocol::Barrier{protocol::ServerBarrier{CommBarrier::kSend}}),
              HasSubstr("table servers have no barriers without phases"));
  EXPECT_THAT(call(protocol::GetNow{.names = {"w"}}),
              HasSubstr("'get-no-barrier' is not implemented by table servers"));
}

TEST(SenderRefusals, NameTheTable) {
  TableSender sender(nullptr, {{0, {0, 10, 2, 2, 0, {}}}});
  CommContext context;
  context.var_name = "t@GRAD";
  context.table_id = 0;
  const auto now = std::chrono::steady_clock::now();
  Value rows;
  rows.as<SelectedRows>().rows = {1};
  ASSERT_TRUE(rows.as<SelectedRows>().value.resize(DType::kFloat64, {1, 2}).ok());
  EXPECT_THAT(sender.send(context, {&rows, 1}, now).message(),
              HasSubstr("table 0 takes f32, found"));
  const Value numbers = testing::ids({1, 2});
  const Value* const value = &numbers;
  EXPECT_THAT(sender.set(context, {&value, 1}, now).message(),
              HasSubstr("table 0 takes f32, found i64 [2, 1]"));
  context.table_id = 5;
  EXPECT_EQ(sender.send(context, {&rows, 1}, now).message(),
            "context 't@GRAD': table 5 is not a sparse table");
  Value none;
  EXPECT_EQ(sender.receive(context, {&none, 1}, now).message(),
            "the dims of 't@GRAD' of table 5 are unknown");
}

class DamagedTables : public ::testing::Test {
 protected:
  // What loading says of a file with these bytes.
  std::string load(const std::string& bytes) {
    const std::string path = disk_ / "rows";
    EXPECT_TRUE(write_file_atomically(path, bytes, Replace::kYes).ok());
    auto table = *SparseTable::create(refusing_options());
    return load_rows(*table, path).status().message();
  }
  TempFolder disk_;
};

TEST_F(DamagedTables, AreNamedByWhatIsWrong) {
  const auto table = *SparseTable::create(refusing_options());
  const Keys keys{4, 5};
  ASSERT_TRUE(table->set(keys, Floats{1, 2, 3, 4}.data()).ok());
  ASSERT_TRUE(save_rows(*table, disk_ / "good", 0).ok());
  const std::string good = *read_file(disk_ / "good", 1 << 20);
  EXPECT_EQ(load(good), "");
  EXPECT_THAT(load("rows"), HasSubstr("4 bytes are too short for a table file"));
  EXPECT_THAT(load("x" + good.substr(1)),
              HasSubstr("it is not a file of this kind of table, its first bytes are wrong"));
  std::string other = good;
  other[20] = static_cast<char>(other[20] ^ 1);
  EXPECT_THAT(load(other), HasSubstr("its checksum is wrong"));
}

TEST_F(DamagedTables, TextIsNamedByLine) {
  auto table = *SparseTable::create(refusing_options());
  const auto parse = [&](const char* text) {
    return parse_rows(*table, text, "rows.txt").status().to_string();
  };
  EXPECT_THAT(
      parse("1 2 3\n4 5 6 7 8\n"),
      AllOf(HasSubstr("line 2: expected a key with at most 2 values"), HasSubstr("rows.txt")));
  EXPECT_THAT(parse("1 2 3\n\n"), HasSubstr("line 2: expected a key"));
  EXPECT_THAT(parse("1 2 3\n4 5\n"), HasSubstr("line 2: table 6: a row of 1 floats, expected 2"));
  EXPECT_EQ(*parse_rows(*table, "1 2 3\n7 8 9", "rows.txt"), 2) << "without a last line end";
  EXPECT_EQ(*parse_rows(*table, "", "rows.txt"), 0);
  EXPECT_EQ(*parse_rows(*table, "1 2 3\n7 8 9\n", "rows.txt", [](uint64_t key) { return key > 1; }),
            1);
}

}  // namespace
}  // namespace millrace::ps
