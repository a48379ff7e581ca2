// Recurrent layers over padded sequences.

#include "interchange/from_pir/op_context.h"

namespace millrace::interchange::pir {
namespace {

// A stack of layers. The fourth result is for the gradient.
Status rnn(ImportContext& c) {
  if (c.source().results.size() != 4) return c.refuse("another number of results than 4");
  const std::string x = c.in(0);
  const std::vector<std::string> states = c.list(1);
  const std::vector<std::string> weights = c.list(2);
  const std::string lengths = c.has(3) ? c.in(3) : "";
  if (c.has(4)) (void)c.constant(4);  // the state of dropout, which tests do not read
  const auto is_test = c.attr<bool>("is_test");
  const auto probability = static_cast<float>(c.attr<double>("dropout_prob"));
  if (!is_test && probability > 0) return c.refuse("rnn with dropout draws random numbers");
  Op& op = c.append("rnn");
  op.set_input("Input", x).set_input("PreState", states).set_input("WeightList", weights);
  if (!lengths.empty()) op.set_input("SequenceLength", lengths);
  c.set_attr(op, "dropout_prob", AttrValue::of_float(probability));
  c.set_attr(op, "is_bidirec", AttrValue::of_bool(c.attr<bool>("is_bidirec")));
  for (const char* name : {"input_size", "hidden_size", "num_layers", "seed"})
    c.set_attr(op, name, AttrValue::of_long(c.attr<int64_t>(name)));
  c.set_attr(op, "mode", AttrValue::of_string(c.attr<std::string>("mode")));
  c.set_attr(op, "is_test", AttrValue::of_bool(is_test));
  c.add_result(op, "Out", 0);
  c.add_result(op, "DropoutState", 1);
  c.add_results(op, "State", 2);
  c.add_result(op, "Reserve", 3);
  c.finish_op(op);
  return Ok();
}

}  // namespace

void add_recurrent_imports(ImportConverters& table) {
  table["rnn"] = rnn;
}

}  // namespace millrace::interchange::pir
