// Messages arrive unchanged, in chunks of any size; invalid messages are refused with a reason,
// before memory is allocated for them.

#include "ps/transport/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/tensor/layout.h"
#include "proto/ps_service.pb.h"
#include "ps/transport/wire_format.h"
#include "tests/ps/wire_values.h"

namespace millrace::ps {
namespace {

using test::all_kinds;
using test::expect_same;
using test::feed_by;
using test::flat;
using test::floats;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Codec : public ::testing::TestWithParam<size_t> {
 protected:
  BufferPool pool_;
};

TEST_P(Codec, CallsArriveAsTheyWere) {
  const auto values = all_kinds();
  Request request;
  request.method = Method::kPush;
  request.caller = {"job \xff", 3, 77};
  request.epoch = 5;
  request.step = -1;
  request.sequence = 9;
  request.number = INT64_MIN;
  request.text = "barrier";
  for (const auto& [name, value] : values) request.items.push_back({name, &value, nullptr});
  request.items.push_back({"only a name", nullptr, nullptr});
  OutgoingMessage message;
  ASSERT_TRUE(encode_request(request, 1500, message).ok());
  EXPECT_EQ(flat(message).size(), message.bytes());

  CallReader reader(pool_);
  ASSERT_TRUE(feed_by(reader, flat(message), GetParam()).ok());
  ASSERT_TRUE(reader.done());
  EXPECT_EQ(reader.received_bytes(), message.bytes());
  const Request& got = reader.request();
  EXPECT_EQ(got.method, Method::kPush);
  EXPECT_EQ(got.caller.job, request.caller.job);
  EXPECT_EQ(got.caller.trainer, 3);
  EXPECT_EQ(got.caller.incarnation, 77U);
  EXPECT_EQ(got.epoch, 5U);
  EXPECT_EQ(got.step, -1);
  EXPECT_EQ(got.sequence, 9U);
  EXPECT_EQ(got.number, INT64_MIN);
  EXPECT_EQ(got.text, "barrier");
  EXPECT_EQ(reader.timeout_us(), 1500U);
  ASSERT_EQ(got.items.size(), request.items.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(values[i].first);
    EXPECT_EQ(got.items[i].name, values[i].first);
    EXPECT_EQ(got.items[i].value, got.items[i].movable);
    expect_same(*got.items[i].value, values[i].second);
  }
  EXPECT_EQ(got.items.back().value, nullptr);
}

TEST_P(Codec, RepliesFillTheMemoryThatIsThere) {
  Reply reply;
  reply.values.push_back(floats({0, 0, 0, 0}));
  const std::byte* const memory = reply.values[0].get_if<Tensor>()->raw();
  ReplyWriter writer(pool_);
  {
    const Value first = floats({1, 2, 3});
    ASSERT_TRUE(writer.put("a", first).ok());
  }  // the writer has a separate copy
  const Value rows = test::rows_value({1, 2}, 3, 1);
  ASSERT_TRUE(writer.put("b", rows).ok());
  writer.set_epoch(4);
  writer.set_number(-2);
  writer.set_text("{}");
  const std::string bytes = flat(writer.finish(Ok()));

  ReplyReader reader(pool_, reply);
  ASSERT_TRUE(feed_by(reader, bytes, GetParam()).ok());
  ASSERT_TRUE(reader.done());
  ASSERT_TRUE(reader.status().ok());
  EXPECT_EQ(reply.epoch, 4U);
  EXPECT_EQ(reply.number, -2);
  EXPECT_EQ(reply.text, "{}");
  EXPECT_THAT(reply.names, ElementsAre("a", "b"));
  ASSERT_EQ(reply.values.size(), 2U);
  expect_same(reply.values[0], floats({1, 2, 3}));
  expect_same(reply.values[1], rows);
  EXPECT_EQ(reply.values[0].get_if<Tensor>()->raw(), memory);
}

INSTANTIATE_TEST_SUITE_P(Pieces, Codec, ::testing::Values(1, 7, 4096, size_t{1} << 30U));

TEST(CodecErrors, AStatusTravelsWithAllItSays) {
  Location place;
  place.file = "pserver_0/__model__";
  place.block = 2;
  place.op = 0;
  place.op_type = "sgd";
  place.slot = "Grad";
  place.slot_index = 0;
  place.attr = "lr";
  place.var = "w@GRAD";
  place.source = "line 3";
  Status status(StatusCode::kExecution, "no \x1b[31m such row");
  status = std::move(status).at(place).with_hint("look there").with_note("one").with_note("two");
  BufferPool pool;
  ReplyWriter writer(pool);
  const Value value = floats({1});
  ASSERT_TRUE(writer.put("a", value).ok());
  writer.set_epoch(8);
  const std::string bytes = flat(writer.finish(status));
  Reply reply;
  ReplyReader reader(pool, reply);
  ASSERT_TRUE(feed_by(reader, bytes, bytes.size()).ok());
  ASSERT_TRUE(reader.done());
  const Status& got = reader.status();
  EXPECT_EQ(got.code(), StatusCode::kExecution);
  EXPECT_EQ(got.message(), "no \\x1b[31m such row");
  EXPECT_EQ(got.location().to_string(), place.to_string());
  EXPECT_EQ(got.location().source, "line 3");
  EXPECT_EQ(got.hint(), "look there");
  EXPECT_THAT(got.notes(), ElementsAre("one", "two"));
  EXPECT_EQ(reply.epoch, 8U);
  EXPECT_TRUE(reply.values.empty());
}

// A special layout: elements from last to first.
class Backwards final : public Layout {
 public:
  [[nodiscard]] int64_t bytes() const override { return 16; }
  [[nodiscard]] bool same_as(const Layout& other) const override { return this == &other; }
  Status to_plain(const std::byte* from, std::byte* to) const override {
    for (size_t i = 0; i < 4; ++i) std::memcpy(to + 4 * i, from + 4 * (3 - i), 4);
    return Ok();
  }
  [[nodiscard]] std::string name() const override { return "backwards"; }
};

TEST(CodecErrors, PrivateLayoutsBecomePlain) {
  Value value = floats({4, 3, 2, 1});
  ASSERT_TRUE(value.get_if<Tensor>()
                  ->resize(DType::kFloat32, {4}, std::make_shared<const Backwards>())
                  .ok());
  Request request;
  request.items.push_back({"x", &value, nullptr});
  OutgoingMessage message;
  ASSERT_TRUE(encode_request(request, 0, message).ok());
  BufferPool pool;
  CallReader reader(pool);
  ASSERT_TRUE(feed_by(reader, flat(message), 64).ok());
  expect_same(*reader.request().items[0].value, floats({1, 2, 3, 4}));
}

TEST(CodecErrors, StepScopesStayAtHome) {
  Value value;
  value.as<StepScopes>().clear();
  Request request;
  request.items.push_back({"scopes", &value, nullptr});
  OutgoingMessage message;
  const Status status = encode_request(request, 0, message);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("cannot be sent to another process"));
  EXPECT_EQ(status.location().var, "scopes");
}

std::string with_prelude(const PsCall& call) {
  const std::string head = call.SerializeAsString();
  const auto length = static_cast<uint32_t>(head.size());
  std::string bytes(kWireMark);
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + head;
}

PsCall good_call() {
  PsCall call;
  call.set_version(kWireVersion);
  call.set_method(static_cast<uint32_t>(Method::kSend));
  return call;
}

PsTensor& add_tensor(PsCall& call, std::vector<int64_t> dims) {
  PsValue& value = *call.add_items();
  value.set_name("x");
  value.set_kind(static_cast<int32_t>(VarKind::kLodTensor));
  PsTensor& tensor = *value.add_tensors();
  tensor.set_dtype(static_cast<int32_t>(DType::kFloat32));
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

Status read(const std::string& bytes, uint64_t limit = kDefaultMaxPayloadBytes) {
  BufferPool pool;
  CallReader reader(pool, limit);
  return feed_by(reader, bytes, bytes.size());
}

TEST(CodecErrors, WhatIsNoMessageIsRefused) {
  EXPECT_THAT(read("GET / HTTP/1.1\r\n\r\n").message(),
              HasSubstr("expected them to start with MLR1"));
  EXPECT_THAT(read(std::string("MLR1\0\0\0\0", 8)).message(), HasSubstr("the head has 0 bytes"));
  EXPECT_THAT(read("MLR1\xff\xff\xff\xff").message(), HasSubstr("the head has 4294967295 bytes"));
  EXPECT_THAT(read(std::string("MLR1\x02\0\0\0\xff\xff", 10)).message(),
              HasSubstr("cannot be parsed"));
  EXPECT_THAT(read(with_prelude(good_call()) + "x").message(), HasSubstr("after the end"));
}

TEST(CodecErrors, HeadsAreChecked) {
  PsCall call = good_call();
  call.set_version(2);
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("uses version 2"));
  call = good_call();
  call.set_method(200);
  EXPECT_EQ(read(with_prelude(call)).message(), "there is no method 200");
  call = good_call();
  add_tensor(call, {2}).set_dtype(99);
  EXPECT_EQ(read(with_prelude(call)).message(), "there is no dtype 99");
  call = good_call();
  add_tensor(call, {2, -3});
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("invalid tensor dims"));
  call = good_call();
  add_tensor(call, {INT64_MAX, INT64_MAX});
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("invalid tensor dims"));
  call = good_call();
  add_tensor(call, std::vector<int64_t>(40, 1));
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("a tensor of rank 40"));
  call = good_call();
  add_tensor(call, {2}).add_lod_sizes(UINT64_MAX);
  EXPECT_THAT(read(with_prelude(call)).message(),
              HasSubstr("a LoD level has an invalid number of"));
  call = good_call();
  call.add_items()->set_kind(static_cast<int32_t>(VarKind::kLodTensor));
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("has 0 tensors, expected 1"));
  call = good_call();
  call.add_items()->set_kind(static_cast<int32_t>(VarKind::kStepScopes));
  EXPECT_THAT(read(with_prelude(call)).message(), HasSubstr("cannot be sent"));
}

TEST(CodecErrors, SizesAreBounded) {
  PsCall call = good_call();
  add_tensor(call, {1 << 20, 1 << 10});
  const Status status = read(with_prelude(call), 1 << 20);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_THAT(status.message(), HasSubstr("more than 1048576 bytes"));
  // Each is within the limit, their sum is not.
  call = good_call();
  add_tensor(call, {1 << 17});
  add_tensor(call, {1 << 17});
  add_tensor(call, {1});
  EXPECT_EQ(read(with_prelude(call), 1 << 20).code(), StatusCode::kResource);
  call = good_call();
  call.set_text_bytes(UINT64_MAX);
  add_tensor(call, {1});
  EXPECT_EQ(read(with_prelude(call)).code(), StatusCode::kResource);
}

// A message that claims 4 GB costs at most the MiB that is allocated without proof.
TEST(CodecErrors, MemoryFollowsWhatArrives) {
  PsCall call = good_call();
  add_tensor(call, {1000, 1000, 1000});
  BufferPool pool;
  CallReader reader(pool);
  ASSERT_TRUE(feed_by(reader, with_prelude(call), 100).ok());
  EXPECT_EQ(reader.space().size(), size_t{1} << 20U);
}

// That of a caller that the server does not know costs a few KiB, and takes from their budget only
// what has arrived.
TEST(CodecErrors, MemoryOfUnknownCallersFollowsWhatArrives) {
  PsCall call = good_call();
  add_tensor(call, {1000, 1000, 1000});
  BufferPool pool;
  MemoryBudget budget(1 << 20, "unknown callers");
  {
    CallReader reader(pool);
    reader.reserve_head_in(budget);
    Request seen;
    reader.set_admission([&](const Request& envelope) -> StatusOr<MessageGrant> {
      seen = envelope;
      return MessageGrant{&budget, nullptr, true};
    });
    ASSERT_TRUE(feed_by(reader, with_prelude(call), 100).ok());
    EXPECT_EQ(reader.space().size(), size_t{4} << 10U);
    EXPECT_EQ(static_cast<uint32_t>(seen.method), call.method());
    EXPECT_EQ(seen.caller.job, call.job());
    EXPECT_TRUE(seen.items.empty());
    const Status full = feed_by(reader, std::string(4 << 20, 'x'), 4096);
    EXPECT_EQ(full.code(), StatusCode::kResource) << full.to_string();
  }
  EXPECT_TRUE(budget.take(1 << 20));
}

TEST(CodecErrors, ContentIsChecked) {
  const auto with_numbers = [](const PsCall& call, std::vector<int64_t> numbers) {
    return with_prelude(call) + std::string(reinterpret_cast<const char*>(numbers.data()),
                                            numbers.size() * sizeof(int64_t));
  };
  PsCall call = good_call();
  add_tensor(call, {2}).add_lod_sizes(2);
  EXPECT_THAT(read(with_numbers(call, {0, 3, 0})).message(), HasSubstr("LoD level 0"));
  call = good_call();
  add_tensor(call, {1, 2});
  call.mutable_items(0)->set_kind(static_cast<int32_t>(VarKind::kSelectedRows));
  call.mutable_items(0)->set_rows(1);
  call.mutable_items(0)->set_height(5);
  EXPECT_TRUE(read(with_numbers(call, {4, 0})).ok());
  EXPECT_THAT(read(with_numbers(call, {5, 0})).message(),
              HasSubstr("row 5 is out of range for selected rows"));
  EXPECT_THAT(read(with_numbers(call, {-1, 0})).message(),
              HasSubstr("row -1 is out of range for selected rows"));
  call.mutable_items(0)->set_rows(2);
  EXPECT_THAT(read(with_numbers(call, {1, 2, 0})).message(), HasSubstr("2 row numbers for"));
}

TEST(BufferPool, GivesBlocksAgain) {
  BufferPool pool;
  BufferPool::Block block = std::move(pool.take(1 << 20)).value();
  const std::byte* const data = block.data;
  block = {};
  EXPECT_EQ(pool.idle_bytes(), size_t{1} << 20U);
  EXPECT_EQ(pool.take_idle(1 << 10).data, nullptr);  // the buffer would be too large for this size
  block = pool.take_idle(1000000);
  EXPECT_EQ(block.data, data);
  EXPECT_EQ(pool.idle_bytes(), 0U);
}

TEST(BufferPool, KeepsNoMoreThanWasUsedAtOnce) {
  BufferPool pool;
  for (const size_t mib : {size_t{100}, size_t{10}, size_t{40}, size_t{70}})
    EXPECT_TRUE(pool.take(mib << 20U).ok());
  EXPECT_LE(pool.idle_bytes(), size_t{164} << 20U);
  EXPECT_GE(pool.idle_bytes(), size_t{100} << 20U);
}

TEST(BufferPool, BlocksMayOutliveIt) {
  BufferPool::Block block;
  {
    BufferPool pool;
    block = std::move(pool.take(1 << 20)).value();
  }
  std::memset(block.data, 1, block.size);
}

}  // namespace
}  // namespace millrace::ps
