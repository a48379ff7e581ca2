// A background save stores the values at the time of the call, errors are returned by the next
// call, and buffers are reused.
#include "io/checkpoint/async_save.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/limit.h"
#include "io/checkpoint/folder.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using ::testing::HasSubstr;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

TEST(AsyncSave, StoresTheValuesOfTheCall) {
  const TempFolder folder;
  const std::string root = folder / "root";
  AsyncSaver saver;
  Value value = counting({1000});
  Value table;
  table.as<SelectedRows>() = {{3, 1}, 5, std::move(counting({2, 2}).as<Tensor>())};
  std::string record = "before";
  std::atomic<bool> changed = false;
  LocalState state;
  state.add("v", value);
  state.add("t", table);
  state.add_record("r", record);
  ASSERT_EQ(outcome(saver.start(state,
                                [&](const LocalState& copy) {
                                  while (!changed) std::this_thread::yield();
                                  return save_checkpoint(copy, root, 1);
                                })),
            "ok");
  EXPECT_TRUE(saver.busy());
  EXPECT_THAT(outcome(saver.start(
                  state, [](const LocalState&) { return Ok(); }, AsyncSaver::IfBusy::kFail)),
              HasSubstr("still being written"));
  value.as<Tensor>().data<float>()[0] = 99;
  table.as<SelectedRows>().rows[0] = 4;
  record = "behind";
  changed = true;
  ASSERT_EQ(outcome(saver.wait()), "ok");
  EXPECT_FALSE(saver.busy());
  const auto last = open_last_checkpoint(root);
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_TRUE(
      same_bits(*last->checkpoint.load("v")->get_if<Tensor>(), *counting({1000}).get_if<Tensor>()));
  EXPECT_EQ(last->checkpoint.load("t")->get_if<SelectedRows>()->rows[0], 3);
  EXPECT_EQ(*last->checkpoint.load_record("r"), "before");
}

// Copies are made while the caller continues; only code that changes a value waits for its copy.
TEST(AsyncSave, LazyCopiesHaveTheValuesOfTheCall) {
  const TempFolder folder;
  AsyncSaver saver;
  std::vector<Value> values;
  for (int i = 0; i < 20; ++i) values.push_back(counting({100 + 20000 * (i % 3)}));
  Value table;
  table.as<SelectedRows>() = {{3, 1}, 50, std::move(counting({2, 2}).as<Tensor>())};
  LocalState state;
  for (size_t i = 0; i < values.size(); ++i) state.add("v" + std::to_string(i), values[i]);
  state.add("t", table);
  for (int round = 0; round < 20; ++round) {
    const std::string root = folder / "root";
    const auto first = static_cast<float>(round);
    ASSERT_EQ(outcome(saver.start_lazily(state,
                                         [&](const LocalState& copy) {
                                           return save_checkpoint(copy, root, round,
                                                                  {.sync = false}, 1);
                                         })),
              "ok");
    table.as<SelectedRows>().rows[0] = round;
    for (Value& value : values) {
      saver.before_change(&value);
      for (float& number : value.as<Tensor>().values<float>()) ++number;
    }
    saver.before_change(&table);
    ASSERT_EQ(outcome(saver.wait()), "ok");
    EXPECT_FALSE(saver.copying());
    const auto last = open_last_checkpoint(root);
    ASSERT_EQ(outcome(last), "ok");
    EXPECT_EQ(last->checkpoint.load("t")->get_if<SelectedRows>()->rows[0],
              round == 0 ? 3 : round - 1);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto stored = last->checkpoint.load("v" + std::to_string(i));
      const Value expected = counting({100 + 20000 * (static_cast<int64_t>(i) % 3)}, first);
      ASSERT_TRUE(same_bits(*stored->get_if<Tensor>(), *expected.get_if<Tensor>())) << i;
    }
  }
  const Value nothing;
  state.add("none", nothing);
  EXPECT_THAT(outcome(saver.start_lazily(state, [](const LocalState&) { return Ok(); })),
              HasSubstr("'none': the var has no value to save"));
}

TEST(AsyncSave, ErrorsComeOutOnce) {
  AsyncSaver saver;
  const Value value = counting({4});
  LocalState state;
  state.add("v", value);
  const auto fail = [](const LocalState&) { return Status(StatusCode::kIo, "the disk fails"); };
  const auto succeed = [](const LocalState&) { return Ok(); };
  ASSERT_EQ(outcome(saver.start(state, fail)), "ok");
  EXPECT_THAT(outcome(saver.start(state, succeed)), HasSubstr("the disk fails"));
  EXPECT_EQ(outcome(saver.start(state, succeed)), "ok");
  EXPECT_EQ(outcome(saver.wait()), "ok");
  const Value nothing;
  state.tensors[0].value = &nothing;
  EXPECT_THAT(outcome(saver.start(state, succeed)), HasSubstr("'v': the var has no value"));
}

// Elements in backward order.
class Backward final : public Layout {
 public:
  explicit Backward(int64_t elements) : elements_(elements) {}
  [[nodiscard]] int64_t bytes() const override { return elements_ * 4 + 64; }
  [[nodiscard]] bool same_as(const Layout& other) const override { return &other == this; }
  Status to_plain(const std::byte* from, std::byte* to) const override {
    for (int64_t i = 0; i < elements_; ++i)
      std::memcpy(to + i * 4, from + (elements_ - 1 - i) * 4, 4);
    return Ok();
  }
  [[nodiscard]] std::string name() const override { return "backward"; }

 private:
  int64_t elements_;
};

// If only one thread may read.
class Elsewhere final : public Layout {
 public:
  [[nodiscard]] int64_t bytes() const override { return 8; }
  [[nodiscard]] bool same_as(const Layout& other) const override { return &other == this; }
  [[nodiscard]] bool is_private() const override { return true; }
  Status to_plain(const std::byte* /*from*/, std::byte* to) const override {
    EXPECT_EQ(std::this_thread::get_id(), reader_);
    const float values[2] = {3, 4};
    std::memcpy(to, values, sizeof values);
    return Ok();
  }
  [[nodiscard]] std::string name() const override { return "elsewhere"; }

 private:
  std::thread::id reader_ = std::this_thread::get_id();
};

TEST(AsyncSave, ValuesInOtherMemoryAreCopiedByTheCall) {
  const TempFolder folder;
  Value value;
  ASSERT_TRUE(value.as<Tensor>().resize(DType::kFloat32, {2}, std::make_shared<Elsewhere>()).ok());
  LocalState state;
  state.add("v", value);
  AsyncSaver saver;
  ASSERT_EQ(outcome(saver.reserve(state)), "ok");
  ASSERT_EQ(outcome(saver.start_lazily(
                state,
                [&](const LocalState& copy) { return save_checkpoint(copy, folder / "root", 1); })),
            "ok");
  ASSERT_EQ(outcome(saver.wait()), "ok");
  const auto last = open_last_checkpoint(folder / "root");
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_THAT(last->checkpoint.load("v")->get_if<Tensor>()->values<float>(),
              ::testing::ElementsAre(3, 4));
}

// Copies keep the layout of the values; files are row-major nevertheless.
TEST(AsyncSave, OtherLayoutsAreSavedRowMajor) {
  const TempFolder folder;
  std::vector<Value> values(4);
  LocalState state;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto elements = static_cast<int64_t>(50 + 30 * i);
    auto& tensor = values[i].as<Tensor>();
    ASSERT_TRUE(
        tensor.resize(DType::kFloat32, {elements}, std::make_shared<Backward>(elements)).ok());
    auto* const data = reinterpret_cast<float*>(tensor.raw());
    for (int64_t k = 0; k < elements; ++k) data[k] = static_cast<float>(elements - 1 - k);
    state.add("v" + std::to_string(i), values[i]);
  }
  AsyncSaver saver;
  for (int round = 0; round < 4; ++round) {
    const auto save = [&](const LocalState& copy) {
      return save_checkpoint(copy, folder / "root", round, {.sync = false}, 1);
    };
    ASSERT_EQ(outcome(round % 2 == 0 ? saver.start(state, save) : saver.start_lazily(state, save)),
              "ok");
    ASSERT_EQ(outcome(saver.wait()), "ok");
    const auto last = open_last_checkpoint(folder / "root");
    ASSERT_EQ(outcome(last), "ok");
    for (size_t i = 0; i < values.size(); ++i) {
      const auto stored = last->checkpoint.load("v" + std::to_string(i));
      ASSERT_TRUE(same_bits(*stored->get_if<Tensor>(),
                            *counting({static_cast<int64_t>(50 + 30 * i)}).get_if<Tensor>()))
          << i << " in round " << round;
    }
    EXPECT_NE(values[0].get_if<Tensor>()->layout(), nullptr);
  }
}

TEST(AsyncSave, ReservingNeedsTheMemoryOfTheCopies) {
  AsyncSaver saver;
  const Value value = counting({1000});
  LocalState state;
  state.add("v", value);
  set_max_tensor_bytes(3999);
  const Status status = saver.reserve(state);
  set_max_tensor_bytes(0);
  EXPECT_EQ(status.code(), StatusCode::kResource) << outcome(status);
  EXPECT_EQ(outcome(saver.reserve(state)), "ok");
}

TEST(AsyncSave, TakesBuffersAgain) {
  AsyncSaver saver;
  const Value value = counting({1000});
  LocalState state;
  state.add("v", value);
  ASSERT_EQ(outcome(saver.reserve(state)), "ok");
  std::vector<const std::byte*> places;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(
        outcome(saver.start(state,
                            [&](const LocalState& copy) {
                              places.push_back(copy.tensors[0].value->get_if<Tensor>()->raw());
                              return Ok();
                            })),
        "ok");
    ASSERT_EQ(outcome(saver.wait()), "ok");
  }
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[1], places[2]);
}

}  // namespace
}  // namespace millrace::io
