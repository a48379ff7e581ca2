#include "io/checkpoint/exchange.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"

namespace millrace::io {
namespace {

std::string text_of(const JsonValue& object, const char* name) {
  const JsonValue* const value = object.find(name);
  const auto* const text = value == nullptr ? nullptr : value->get_if<std::string>();
  return text == nullptr ? std::string() : *text;
}

Status failure_of(const JsonValue& object, size_t rank) {
  const JsonValue* const code = object.find("code");
  const int64_t number = code == nullptr ? 0 : code->count().value_or(0);
  const bool known = number > 0 && number <= static_cast<int64_t>(StatusCode::kInternal);
  Location location;
  location.file = text_of(object, "file");
  location.var = text_of(object, "var");
  return Status(known ? static_cast<StatusCode>(number) : StatusCode::kInternal,
                text_of(object, "message"))
      .at(std::move(location))
      .with_note(fmt::format("on rank {}", rank));
}

}  // namespace

std::string failure_text(const Status& status) {
  JsonWriter out(0);
  out.begin_object().member("code", static_cast<int>(status.code()));
  out.member("message", status.message()).member("file", status.location().file);
  return out.member("var", status.location().var).end_object().take();
}

Status failure_from(std::string_view text, size_t rank) {
  MILLRACE_ASSIGN_OR_RETURN(const JsonValue value, parse_json(text));
  return failure_of(value, rank);
}

StatusOr<std::vector<JsonValue>> exchange(Gather& gather, Status mine, std::string payload) {
  // A list with one item is a payload; an object is an error.
  std::string text = failure_text(mine);
  if (mine.ok()) text = fmt::format("[{}]", payload.empty() ? "null" : payload);
  StatusOr<std::vector<std::string>> all = gather.all_gather(std::move(text));
  if (!mine.ok()) return mine;
  if (!all.ok()) return std::move(all).status();
  std::vector<JsonValue> payloads;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    MILLRACE_ASSIGN_OR_RETURN(JsonValue value, parse_json((*all)[rank]));
    auto* const items = std::get_if<JsonItems>(&value.payload());
    if (items == nullptr) return failure_of(value, rank);
    if (items->size() != 1) return Internal("rank {} sent {} items", rank, items->size());
    payloads.push_back(std::move(items->front()));
  }
  return payloads;
}

Status sent_malformed(size_t rank) {
  return Internal("the message from rank {} is malformed", rank);
}

StatusOr<std::vector<RankItem>> items_of_ranks(const std::vector<JsonValue>& all) {
  std::vector<RankItem> found;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* const items = all[rank].get_if<JsonItems>();
    if (items == nullptr) return sent_malformed(rank);
    for (const JsonValue& item : *items) found.push_back({rank, &item});
  }
  return found;
}

std::string numbers_text(const std::vector<int64_t>& numbers) {
  JsonWriter out(0);
  out.begin_array();
  for (const int64_t number : numbers) out.value(number);
  return out.end_array().take();
}

StatusOr<std::vector<std::vector<int64_t>>> exchange_numbers(Gather& gather, Status mine,
                                                             const std::vector<int64_t>& numbers) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                            exchange(gather, std::move(mine), numbers_text(numbers)));
  std::vector<std::vector<int64_t>> lists;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    auto list = all[rank].counts();
    if (!list) return sent_malformed(rank);
    lists.push_back(*std::move(list));
  }
  return lists;
}

}  // namespace millrace::io
