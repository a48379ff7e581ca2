// Every message survives packing and unpacking; a field that is missing or out of range is an error
// that names the method and the field.
#include <gmock/gmock.h>

#include "ps/protocol/answers.h"
#include "ps/protocol/pack.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps::protocol {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What arrives when a message is sent.
template <typename Message>
Message sent(Message message) {
  const Request request = pack(std::move(message));
  EXPECT_EQ(request.method, Message::kMethod);
  StatusOr<Message> arrived = unpack<Message>(request);
  EXPECT_TRUE(arrived.ok()) << arrived.status().to_string();
  return arrived.ok() ? *std::move(arrived) : Message{};
}

template <typename Message>
std::string refusal(const Request& request) {
  const StatusOr<Message> arrived = unpack<Message>(request);
  EXPECT_EQ(arrived.status().code(), StatusCode::kInvalidArgument);
  return arrived.status().message();
}

Request raw(Method method, int64_t number, std::string text, std::vector<RequestItem> items = {}) {
  Request request;
  request.method = method;
  request.number = number;
  request.text = std::move(text);
  request.items = std::move(items);
  return request;
}

TEST(Protocol, MessagesArriveAsTheyWereSent) {
  const Hello hello = sent(Hello{true, 7, 9, {"server 0 of 2", "receives w as f32 [2]"}});
  EXPECT_THAT(hello.plan, ElementsAre("server 0 of 2", "receives w as f32 [2]"));
  EXPECT_TRUE(hello.has_fetched);
  EXPECT_EQ(hello.sent, 7);
  EXPECT_EQ(hello.settled, 9U);
  EXPECT_THAT(sent(GetNow{{"w", "b"}}).names, ElementsAre("w", "b"));
  EXPECT_TRUE(sent(Complete{true}).stays);
  EXPECT_TRUE(sent(Complete{true}).waits);
  EXPECT_FALSE(sent(Complete{.stays = true, .waits = false}).waits);
  const Loss loss = sent(Loss{3, 17, -1});
  EXPECT_EQ(loss.trainer, 3);
  EXPECT_EQ(loss.incarnation, 17U);
  EXPECT_EQ(loss.steps, -1);
  EXPECT_FALSE(sent(Loss{3, 17}).steps.has_value());
  const Count count = sent(Count{"steps", -3});
  EXPECT_EQ(count.counter, "steps");
  EXPECT_EQ(count.steps, -3);
  const GoTo go_to = sent(GoTo{5, 11});
  EXPECT_EQ(go_to.step, 5);
  EXPECT_EQ(go_to.settled, 11U);
  EXPECT_EQ(go_to.oldest, "");
  const GoTo with_reason = sent(GoTo{5, 11, "a:1", 77});
  EXPECT_EQ(with_reason.settled, 11U);
  EXPECT_EQ(with_reason.oldest, "a:1");
  EXPECT_EQ(with_reason.oldest_epoch, 77U);
  const Value value = floats({1, 2});
  const auto run = sent(protocol::Run{"forward", {{"x", &value, nullptr}}, {"y"}});
  EXPECT_EQ(run.message, "forward");
  ASSERT_EQ(run.inputs.size(), 1U);
  EXPECT_EQ(run.inputs[0].value, &value);
  EXPECT_THAT(run.outputs, ElementsAre("y"));
  EXPECT_EQ(sent(Prefetch{"table", {}}).table, "table");
  EXPECT_FALSE(sent(Prefetch{}).table.has_value());
}

TEST(Protocol, KindsArriveAsTheyWereSent) {
  for (const SendKind kind : {SendKind::kGradients, SendKind::kValues})
    EXPECT_EQ(sent(Send{kind, {}}).kind, kind);
  for (const GetKind kind : {GetKind::kValues, GetKind::kChangedRows})
    EXPECT_EQ(sent(Get{kind, {}}).kind, kind);
  for (const PullKind kind :
       {PullKind::kPlain, PullKind::kCounted, PullKind::kQuiet, PullKind::kChangedRows})
    EXPECT_EQ(sent(Pull{3, kind, {}}).kind, kind);
  for (const PushKind kind : {PushKind::kUpdate, PushKind::kValues, PushKind::kEndDay})
    EXPECT_EQ(sent(Push{3, kind, {}}).kind, kind);
  for (const CommBarrier kind : {CommBarrier::kSend, CommBarrier::kReceive, CommBarrier::kInit,
                                 CommBarrier::kLoad, CommBarrier::kShrink, CommBarrier::kWorker}) {
    EXPECT_EQ(std::get<ServerBarrier>(sent(Barrier{ServerBarrier{kind}}).what).kind, kind);
    const Barrier of_tables = sent(Barrier{TableBarrier{kind, 4}});
    EXPECT_EQ(std::get<TableBarrier>(of_tables.what).kind, kind);
    EXPECT_EQ(std::get<TableBarrier>(of_tables.what).phase, 4);
  }
  EXPECT_TRUE(std::holds_alternative<LeaveBarriers>(sent(Barrier{LeaveBarriers{}}).what));
}

TEST(Protocol, RequestsAboutFilesArriveAsTheyWereSent) {
  for (const bool replaces : {false, true}) {
    const auto table = std::get<SaveTable>(sent(Checkpoint{SaveTable{2, "dir", 3, replaces}}).what);
    EXPECT_EQ(table.table, 2);
    EXPECT_EQ(table.folder, "dir");
    EXPECT_EQ(table.mode, 3);
    EXPECT_EQ(table.replaces, replaces);
  }
  const auto load = std::get<LoadTable>(sent(Checkpoint{LoadTable{2, "dir"}}).what);
  EXPECT_EQ(load.table, 2);
  EXPECT_EQ(load.folder, "dir");
  EXPECT_TRUE(std::holds_alternative<CountLoaded>(sent(Checkpoint{CountLoaded{}}).what));
  const auto var =
      std::get<SaveVar>(sent(Checkpoint{SaveVar{"t", "dir", RowsToSave::kChanged}}).what);
  EXPECT_EQ(var.table, "t");
  EXPECT_EQ(var.folder, "dir");
  EXPECT_EQ(var.rows, RowsToSave::kChanged);
}

TEST(Protocol, FieldsThatAreMissingOrOutOfRangeAreErrors) {
  const auto names = [](const char* method, const char* field) {
    return AllOf(HasSubstr(std::string("'") + method + "'"),
                 HasSubstr(std::string("field '") + field + "'"));
  };
  EXPECT_THAT(refusal<Hello>(raw(Method::kHello, 0, "")), names("hello", "sent"));
  EXPECT_THAT(refusal<Hello>(raw(Method::kHello, 0, "-1")), names("hello", "sent"));
  EXPECT_THAT(refusal<Hello>(raw(Method::kHello, 2, "0")), names("hello", "has_fetched"));
  EXPECT_THAT(refusal<Send>(raw(Method::kSend, 0, "sett")), names("send", "kind"));
  EXPECT_THAT(refusal<Complete>(raw(Method::kComplete, -1, "")), names("complete", "stays"));
  EXPECT_THAT(refusal<Count>(raw(Method::kCount, 1, "")), names("count", "counter"));
  EXPECT_THAT(refusal<GoTo>(raw(Method::kGoTo, -1, "0")), names("go-to", "step"));
  EXPECT_THAT(refusal<GoTo>(raw(Method::kGoTo, 1, "x")), names("go-to", "settled"));
  EXPECT_THAT(refusal<GoTo>(raw(Method::kGoTo, 1, "1 x a:1")), names("go-to", "oldest_epoch"));
  EXPECT_THAT(refusal<Loss>(raw(Method::kLoss, -1, "1 ?")), names("loss", "trainer"));
  EXPECT_THAT(refusal<Loss>(raw(Method::kLoss, 1, "x ?")), names("loss", "incarnation"));
  EXPECT_THAT(refusal<Loss>(raw(Method::kLoss, 1, "1 -2")), names("loss", "steps"));
  EXPECT_THAT(refusal<Barrier>(raw(Method::kTableBarrier, 1, "lunch")),
              names("table-barrier", "kind"));
  EXPECT_THAT(refusal<Barrier>(raw(Method::kTableBarrier, -1, "send")),
              names("table-barrier", "phase"));
  EXPECT_THAT(refusal<Checkpoint>(raw(Method::kCheckpoint, 0, "t")), names("checkpoint", "folder"));
  const std::vector<RequestItem> folder{{"dir", nullptr, nullptr}};
  EXPECT_THAT(refusal<Checkpoint>(raw(Method::kCheckpoint, 0, "@SAVE_TABLE@", folder)),
              names("checkpoint", "mode"));
  EXPECT_THAT(
      refusal<Checkpoint>(raw(Method::kCheckpoint, int64_t{1} << 40, "@LOAD_TABLE@", folder)),
      names("checkpoint", "table"));
  EXPECT_THAT(refusal<Checkpoint>(raw(Method::kCheckpoint, 3, "t", folder)),
              HasSubstr("'t': checkpoint mode is 3, expected 0, 1 or 2"));
}

TEST(Protocol, WhatWasSentEverywhereIsAddedToTheMessage) {
  Request fetch = pack(FetchBarrier{{"w"}});
  Request leave = pack(Complete{.stays = true, .waits = false});
  for (const bool sent : {true, false}) {
    set_sent_everywhere(fetch, sent);
    set_sent_everywhere(leave, sent);
    EXPECT_EQ(unpack<FetchBarrier>(fetch)->sent_everywhere, sent);
    const auto complete = unpack<Complete>(leave);
    EXPECT_EQ(complete->sent_everywhere, sent);
    EXPECT_TRUE(complete->stays);
    EXPECT_FALSE(complete->waits);
  }
  Request send = pack(Push{5, PushKind::kUpdate, {}});
  set_sent_everywhere(send, true);
  EXPECT_EQ(send.number, 5);
}

TEST(Protocol, CallsThatChangeTheServerNeedASequence) {
  EXPECT_TRUE(needs_sequence(pack(Send{})));
  EXPECT_TRUE(needs_sequence(pack(Get{GetKind::kChangedRows, {}})));
  EXPECT_FALSE(needs_sequence(pack(Get{})));
  EXPECT_TRUE(needs_sequence(pack(Pull{0, PullKind::kCounted, {}})));
  EXPECT_FALSE(needs_sequence(pack(Pull{0, PullKind::kQuiet, {}})));
  EXPECT_FALSE(needs_sequence(pack(Hello{})));
  EXPECT_FALSE(needs_sequence(pack(GoTo{})));
}

TEST(Protocol, AnswersThatAreMalformedAreErrors) {
  Reply reply;
  reply.number = 3;
  reply.text = "4 5 2";
  const auto hello = hello_answer(reply);
  ASSERT_TRUE(hello.ok()) << hello.status().to_string();
  EXPECT_EQ(hello->mode, ServerMode::kGeo);
  EXPECT_EQ(hello->sent, 4);
  EXPECT_EQ(hello->applied, 5);
  EXPECT_EQ(hello->standing, HelloAnswer::Standing::kMustGoBack);
  for (const char* const text : {"", "4 5", "4 5 3", "-4 5 0", "4 5 0 0"}) {
    reply.text = text;
    EXPECT_EQ(hello_answer(reply).status().code(), StatusCode::kInvalidData) << text;
  }
  reply.text = "4 5 0\n1 77";
  const auto suspecting = hello_answer(reply);
  ASSERT_TRUE(suspecting.ok()) << suspecting.status().to_string();
  ASSERT_EQ(suspecting->suspects.size(), 1U);
  EXPECT_EQ(suspecting->suspects[0].trainer, 1);
  EXPECT_EQ(suspecting->suspects[0].incarnation, 77U);
  reply.text = "4 5 0\n1";
  EXPECT_EQ(hello_answer(reply).status().code(), StatusCode::kInvalidData);
  reply.text = "4 5 0";
  reply.number = 2;
  EXPECT_EQ(hello_answer(reply).status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(saved_file(reply, "a:1").status().message(),
              HasSubstr("the server at a:1 did not report which file it wrote"));
}

}  // namespace
}  // namespace millrace::ps::protocol
