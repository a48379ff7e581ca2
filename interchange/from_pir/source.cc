#include "interchange/from_pir/source.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"

namespace millrace::interchange::pir {
namespace {

using nlohmann::json;

// Members of JSON values that may be anything.
const json* member(const json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() ? nullptr : &*found;
}

const json* list_member(const json& value, const char* name) {
  const json* const found = member(value, name);
  return found != nullptr && found->is_array() ? found : nullptr;
}

std::string text_member(const json& value, const char* name) {
  const json* const found = member(value, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

Status malformed(const char* what) {
  return InvalidData("malformed {}", what);
}

StatusOr<std::vector<int64_t>> read_ints(const json& list, const char* what) {
  if (!list.is_array()) return malformed(what);
  std::vector<int64_t> values;
  for (const json& value : list) {
    if (!value.is_number_integer()) return malformed(what);
    values.push_back(value.get<int64_t>());
  }
  return values;
}

// {"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,3],"NCHW",[],0]}
StatusOr<TensorType> read_type(const json& value) {
  const std::string tag = text_member(value, "#");
  const json* const data = list_member(value, "D");
  if (tag != "0.t_dtensor")
    return tag.empty() ? malformed("type") : Unimplemented("values of the type {}", tag);
  if (data == nullptr || data->size() < 2) return malformed("type");
  const std::string element = text_member((*data)[0], "#");
  const auto dtype = dtype_of_tag(element);
  if (!dtype) return Unimplemented("values of the element type {}", element);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, read_ints((*data)[1], "dims"));
  // Products with an unknown extent are unknown: release 3 states them as -4 where it infers -1
  // * 4.
  TensorType type{.dtype = *dtype};
  for (const int64_t dim : dims) type.dims.push_back(std::max<int64_t>(dim, -1));
  return type;
}

StatusOr<SourceResult> read_result(const json& value) {
  SourceResult result;
  const json* const id = member(value, "%");
  const json* const type = member(value, "TT");
  if (id == nullptr || !id->is_number_integer() || type == nullptr) return malformed("result");
  result.id = id->get<int64_t>();
  const std::string tag = text_member(*type, "#");
  if (tag == "NULL") {
    result.id = 0;
    return result;
  }
  if (tag != "0.t_vec") {
    MILLRACE_ASSIGN_OR_RETURN(result.types.emplace_back(), read_type(*type));
    return result;
  }
  result.is_list = true;
  const json* const types = list_member(*type, "D");
  if (types == nullptr) return malformed("list of types");
  for (const json& one : *types) {
    MILLRACE_ASSIGN_OR_RETURN(result.types.emplace_back(), read_type(one));
  }
  return result;
}

StatusOr<SourceAttr> read_attr(const json& value);

template <typename T>
StatusOr<SourceAttr> joined(const std::vector<SourceAttr>& parts) {
  std::vector<T> values;
  for (const SourceAttr& part : parts) {
    const T* const one = std::get_if<T>(&part);
    if (one == nullptr) return malformed("list of values of several kinds");
    values.push_back(*one);
  }
  return SourceAttr(std::move(values));
}

StatusOr<SourceAttr> read_list(const json& data) {
  if (!data.is_array()) return malformed("list");
  std::vector<SourceAttr> parts;
  for (const json& element : data) {
    // Lists of lists do not exist, so this ends.
    if (text_member(element, "#") == "0.a_array") return Unimplemented("lists of lists");
    MILLRACE_ASSIGN_OR_RETURN(parts.emplace_back(), read_attr(element));
  }
  if (parts.empty()) return SourceAttr(std::monostate());
  if (std::holds_alternative<bool>(parts[0])) return joined<bool>(parts);
  if (std::holds_alternative<int64_t>(parts[0])) return joined<int64_t>(parts);
  if (std::holds_alternative<double>(parts[0])) return joined<double>(parts);
  return joined<std::string>(parts);
}

// JSON has no numbers that are not finite: {"#":"0.a_f64","VD":"-INF"}
std::optional<double> not_finite(const json& value) {
  const std::string text = text_member(value, "VD");
  if (text == "INF") return std::numeric_limits<double>::infinity();
  if (text == "-INF") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// {"#":"0.a_i32","D":1}
StatusOr<SourceAttr> read_attr(const json& value) {
  const std::string tag = text_member(value, "#");
  const bool is_float = tag == "0.a_f32" || tag == "0.a_f64";
  if (const auto special = not_finite(value); special && is_float) return SourceAttr(*special);
  const json* const data = member(value, "D");
  if (tag.empty() || data == nullptr) return malformed("attribute");
  if (tag == "0.a_bool") {
    if (data->is_boolean()) return SourceAttr(data->get<bool>());
  } else if (tag == "0.a_i32" || tag == "0.a_i64") {
    if (data->is_number_integer()) return SourceAttr(data->get<int64_t>());
  } else if (is_float) {
    if (data->is_number()) return SourceAttr(data->get<double>());
  } else if (tag == "0.a_str" || tag == "1.a_dtype") {
    if (data->is_string()) return SourceAttr(data->get<std::string>());
  } else if (tag == "1.a_intarray") {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<int64_t> values, read_ints(*data, "list"));
    return SourceAttr(std::move(values));
  } else if (tag == "1.a_place") {
    return SourceAttr(std::monostate());
  } else if (tag == "0.a_array") {
    return read_list(*data);
  } else {
    return Unimplemented("attributes of the kind {}", tag);
  }
  return malformed("attribute");
}

Status read_attrs(const json& list, SourceOp& op) {
  for (const json& value : list) {
    const std::string name = text_member(value, "N");
    const json* const attr = member(value, "AT");
    if (name.empty() || attr == nullptr) return malformed("attribute");
    StatusOr<SourceAttr> read = read_attr(*attr);
    if (!read.ok()) return std::move(read).status().with_note(fmt::format("attribute {}", name));
    if (!op.attrs.emplace(name, *std::move(read)).second)
      return InvalidData("the attribute {} twice", name);
  }
  return Ok();
}

// {"#":"p","A":[0,1,1,"fc_0.w_0"],"O":{"%":1,"TT":{..}},"OA":[1,0,1],..}
StatusOr<SourceParam> read_param(const json& value) {
  const json* const parts = list_member(value, "A");
  const json* const output = member(value, "O");
  if (parts == nullptr || parts->size() < 4 || !(*parts)[3].is_string() || output == nullptr)
    return malformed("parameter");
  MILLRACE_ASSIGN_OR_RETURN(const SourceResult result, read_result(*output));
  if (result.is_list || result.types.size() != 1) return malformed("parameter");
  // [persistable, stop_gradient, trainable]
  const json* const flags = list_member(value, "OA");
  const bool is_stored = flags == nullptr || flags->empty() || (*flags)[0] != 0;
  return SourceParam{(*parts)[3].get<std::string>(), result.id, result.types[0], is_stored};
}

StatusOr<SourceOp> read_op(const json& value, const std::string& name) {
  SourceOp op;
  op.name = name;
  const json* const attrs = list_member(value, "A");
  const json* const inputs = list_member(value, "I");
  const json* const results = list_member(value, "O");
  if (attrs == nullptr || inputs == nullptr || results == nullptr) return malformed("op");
  op.has_regions = member(value, "regions") != nullptr;
  MILLRACE_RETURN_IF_ERROR(read_attrs(*attrs, op));
  for (const json& input : *inputs) {
    const json* const id = member(input, "%");
    if (id == nullptr || !id->is_number_integer()) return malformed("operand");
    op.inputs.push_back(id->get<int64_t>());
  }
  for (const json& result : *results) {
    MILLRACE_ASSIGN_OR_RETURN(op.results.emplace_back(), read_result(result));
  }
  return op;
}

// Reads the ops and checks that each value is computed once, before it is read.
class BlockReader {
 public:
  StatusOr<SourceProgram> read(const json& ops) {
    for (const json& value : ops) {
      const std::string name = text_member(value, "#");
      const bool is_named = name == "p" || (name.size() > 2 && name[1] == '.');
      Status status = is_named ? read_one(value, name) : malformed("name of an op");
      if (!status.ok()) return std::move(status).with_note(op_text(name, count_));
      ++count_;
    }
    return std::move(program_);
  }

 private:
  Status read_one(const json& value, const std::string& name) {
    if (name == "p" || name == "0.parameter") {
      MILLRACE_ASSIGN_OR_RETURN(SourceParam param, read_param(value));
      MILLRACE_RETURN_IF_ERROR(define(param.id));
      program_.params.push_back(std::move(param));
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(SourceOp op, read_op(value, name));
    for (const int64_t id : op.inputs)
      if (id != 0 && !defined_.contains(id))
        return InvalidData("value {} is read, but no earlier op computes it", id);
    for (const SourceResult& result : op.results)
      if (result.id != 0) MILLRACE_RETURN_IF_ERROR(define(result.id));
    program_.ops.push_back(std::move(op));
    return Ok();
  }

  Status define(int64_t id) {
    if (id > 0 && defined_.insert(id).second) return Ok();
    return InvalidData("value {} is computed twice, or has a number below 1", id);
  }

  SourceProgram program_;
  std::set<int64_t> defined_;
  size_t count_ = 0;
};

const json* only(const json* list) {
  return list != nullptr && list->size() == 1 ? &(*list)[0] : nullptr;
}

}  // namespace

std::string op_text(llvm::StringRef name, size_t index) {
  std::string dialect;
  if (name.consume_front("0.")) dialect = "builtin.";
  if (name.consume_front("1.")) dialect = "pd_op.";
  if (name.consume_front("2.")) dialect = "cf.";
  return fmt::format("op {} ({}{})", index, dialect, name.str());
}

bool is_pir(std::string_view bytes) {
  const std::string_view start = bytes.substr(0, 256);
  return start.find("\"base_code\"") != std::string_view::npos &&
         start.find("\"pir\"") != std::string_view::npos;
}

StatusOr<SourceProgram> read_source(std::string_view bytes) {
  const json file = json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (file.is_discarded()) return InvalidData("the bytes are no JSON, or the file is cut off");
  const json* const head = member(file, "base_code");
  if (head == nullptr || text_member(*head, "magic") != "pir")
    return InvalidData("the file is no PIR program: it does not have the magic word \"pir\"");
  const json* const version = member(*head, "version");
  if (version == nullptr || !version->is_number_integer()) return malformed("version");
  if (version->get<int64_t>() != kFormVersion)
    return Unimplemented("version {} of PIR programs, expected {}", version->get<int64_t>(),
                         kFormVersion);
  const json* const program = member(file, "program");
  const json* const region = program == nullptr ? nullptr : only(list_member(*program, "regions"));
  const json* const block = region == nullptr ? nullptr : only(list_member(*region, "blocks"));
  const json* const ops = block == nullptr ? nullptr : list_member(*block, "ops");
  if (ops == nullptr)
    return InvalidData("a program with one region and one block with ops is expected");
  return BlockReader().read(*ops);
}

}  // namespace millrace::interchange::pir
