#include "interchange/pir/graph.h"

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/json_writer.h"

namespace millrace::interchange::pir {
namespace {

std::string joined_json(const std::vector<std::string>& parts) {
  return fmt::format("[{}]", fmt::join(parts, ","));
}

std::string attr_json(const Attr& attr) {
  return fmt::format(R"({{"AT":{},"N":{}}})", attr.json, json_string(attr.name));
}

// A result that the op does not compute has no type.
std::string result_json(const Value& result) {
  if (result.types.empty()) return R"({"#":"NULL"})";
  return result.is_list ? types_json(result.types) : type_json(result.type());
}

// No gradients are made from results: the program has them.
std::string result_flags(const std::vector<Value>& results) {
  if (results.empty()) return "[]";
  std::vector<std::string> flags;
  std::vector<bool> persistable;
  for (const Value& result : results) persistable.push_back(result.is_persistable);
  if (std::find(persistable.begin(), persistable.end(), true) != persistable.end())
    flags.push_back(attr_json(of_bools("persistable", persistable)));
  flags.push_back(attr_json(of_bools("stop_gradient", std::vector<bool>(results.size(), true))));
  return joined_json(flags);
}

}  // namespace

Value result_of(TensorType type) {
  return {.id = 0, .types = {std::move(type)}, .is_list = false};
}

Value results_of(std::vector<TensorType> types) {
  return {.id = 0, .types = std::move(types), .is_list = true};
}

Value GraphBuilder::parameter(const std::string& name, const TensorType& type) {
  Value value = result_of(type);
  value.id = next_value_++;
  // The flags of A: not distributed, optimized alone, clipped; of OA: persistable, without
  // gradient, not trained.
  open_.back().ops.push_back(fmt::format(
      R"({{"#":"p","A":[0,1,1,{}],"DA":[],"O":{{"%":{},"TT":{}}},"OA":[1,1,0],"QA":[]}})",
      json_string(name), value.id, type_json(type)));
  return value;
}

std::vector<Value> GraphBuilder::add(const std::string& op, const std::vector<Value>& inputs,
                                     const std::vector<Attr>& attrs, std::vector<Value> results,
                                     const std::vector<std::string>& regions) {
  std::vector<std::string> operands;
  operands.reserve(inputs.size());
  for (const Value& input : inputs) operands.push_back(fmt::format(R"({{"%":{}}})", input.id));
  std::vector<std::string> written;
  written.reserve(attrs.size());
  for (const Attr& attr : attrs) written.push_back(attr_json(attr));
  std::vector<std::string> outputs;
  for (Value& result : results) {
    result.id = next_value_++;
    outputs.push_back(fmt::format(R"({{"%":{},"TT":{}}})", result.id, result_json(result)));
  }
  const std::string nested =
      regions.empty() ? "" : fmt::format(R"(,"regions":{})", joined_json(regions));
  open_.back().ops.push_back(fmt::format(R"({{"#":"{}","A":{},"I":{},"O":{},"OA":{}{}}})", op,
                                         joined_json(written), joined_json(operands),
                                         joined_json(outputs), result_flags(results), nested));
  return results;
}

std::vector<Value> GraphBuilder::begin_region(const std::vector<TensorType>& arguments) {
  Region region{.number = next_region_++, .arguments = {}, .ops = {}};
  std::vector<Value> values;
  std::vector<std::string> written;
  for (const TensorType& type : arguments) {
    values.push_back(result_of(type));
    values.back().id = next_argument_--;
    written.push_back(fmt::format(R"({{"#":{},"TT":{}}})", values.back().id, type_json(type)));
  }
  region.arguments = fmt::format("{}", fmt::join(written, ","));
  open_.push_back(std::move(region));
  return values;
}

std::string GraphBuilder::region_json(const Region& region) {
  return fmt::format(
      R"({{"#":"region_{0}","blocks":[{{"#":"block_{0}","args":[{1}],"ops":{2}}}]}})",
      region.number, region.arguments, joined_json(region.ops));
}

std::string GraphBuilder::end_region() {
  std::string text = region_json(open_.back());
  open_.pop_back();
  return text;
}

std::string GraphBuilder::finish() const {
  return fmt::format(
      R"({{"base_code":{{"magic":"pir","trainable":true,"version":{}}},"program":{{"regions":[{}]}}}})",
      kFormVersion, region_json(open_.front()));
}

}  // namespace millrace::interchange::pir
