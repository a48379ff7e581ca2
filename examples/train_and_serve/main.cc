// Builds LeNet and a small transformer from scratch, trains them, saves, reloads and serves them.
//   train_and_serve FOLDER [--steps 150] [--devices cpu:2]

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <millrace/executor/session.h>
#include <millrace/frontend/layers.h>

namespace {

namespace layers = millrace::layers;
using millrace::Array;
using millrace::Arrays;
using millrace::Network;
using millrace::Session;
using millrace::Status;
using millrace::VarRef;

constexpr int64_t kRows = 32;

// A small random number generator with a fixed seed; numbers in [0, 1).
class Numbers {
 public:
  float next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<float>(state_ >> 8U) / static_cast<float>(1U << 24U);
  }
  int64_t below(int64_t count) { return static_cast<int64_t>(next() * static_cast<float>(count)); }

 private:
  uint32_t state_ = 1;
};

// A network with its input, label, prediction and loss.
struct Job {
  std::string name;
  Network net;
  VarRef input;
  VarRef label;
  VarRef answer;
  VarRef loss;
};

// Predicts the probabilities of ten classes for an image of 28 x 28.
Job lenet() {
  Job job{"lenet", Network(/*random_seed=*/1), {}, {}, {}, {}};
  job.input = job.net.data("image", {-1, 1, 28, 28});
  job.label = job.net.data("digit", {-1, 1}, millrace::DType::kInt64);
  const VarRef first = layers::conv2d(job.input, 6, {5, 5}, {.act = "relu"});
  const VarRef half = layers::pool2d(first, {2, 2}, {.type = "max", .stride = {2, 2}});
  const VarRef second = layers::conv2d(half, 16, {5, 5}, {.act = "relu"});
  const VarRef quarter = layers::pool2d(second, {2, 2}, {.type = "max", .stride = {2, 2}});
  const VarRef hidden = layers::fc(layers::fc(quarter, 120, {.act = "relu"}), 84, {.act = "relu"});
  const VarRef scores = layers::fc(hidden, 10);
  job.answer = layers::softmax(scores);
  job.loss = layers::mean(layers::softmax_with_cross_entropy(scores, job.label));
  return job;
}

// Images with a bright square; the position of the square is the digit.
Arrays images(Numbers& numbers) {
  std::vector<float> pixels(static_cast<size_t>(kRows * 28 * 28));
  std::vector<int64_t> digits;
  for (int64_t row = 0; row < kRows; ++row) {
    digits.push_back(numbers.below(10));
    const int64_t top = digits.back() / 5 * 14 + 2;
    const int64_t left = digits.back() % 5 * 5 + 1;
    for (int64_t y = 0; y < 28; ++y) {
      for (int64_t x = 0; x < 28; ++x) {
        const bool bright = y >= top && y < top + 8 && x >= left && x < left + 4;
        pixels[static_cast<size_t>((row * 28 + y) * 28 + x)] =
            (bright ? 1.0F : 0.0F) + 0.1F * numbers.next();
      }
    }
  }
  Arrays feeds;
  feeds["image"] = Array::of<float>({kRows, 1, 28, 28}, pixels);
  feeds["digit"] = Array::of<int64_t>({kRows, 1}, digits);
  return feeds;
}

constexpr int32_t kWords = 8;   // words per sentence
constexpr int32_t kWidth = 16;  // size of a word's vector
constexpr int32_t kHeads = 2;
constexpr int64_t kDictionary = 12;

VarRef heads_of(const VarRef& x) {
  const VarRef cut = layers::reshape(x, {-1, kWords, kHeads, kWidth / kHeads});
  return layers::transpose(cut, {0, 2, 1, 3});
}

// Self-attention over the words, with a residual connection and layer norm.
VarRef attend(const VarRef& words) {
  const auto project = [&] { return layers::fc(words, kWidth, {.num_flatten_dims = 2}); };
  const VarRef queries = heads_of(project());
  const VarRef keys = heads_of(project());
  const VarRef values = heads_of(project());
  const double size = 1.0 / std::sqrt(static_cast<double>(kWidth) / kHeads);
  const VarRef weights =
      layers::softmax(layers::matmul(layers::scale(queries, size), keys, {.transpose_y = true}));
  const VarRef found = layers::transpose(layers::matmul(weights, values), {0, 2, 1, 3});
  const VarRef joined = layers::reshape(found, {-1, kWords, kWidth});
  const VarRef out = layers::fc(joined, kWidth, {.num_flatten_dims = 2});
  return layers::layer_norm(layers::elementwise_add(words, out), {.begin_norm_axis = 2});
}

// Predicts the probability that a sentence contains the first word of the dictionary.
Job transformer() {
  Job job{"transformer", Network(/*random_seed=*/2), {}, {}, {}, {}};
  job.input = job.net.data("words", {-1, kWords, 1}, millrace::DType::kInt64);
  job.label = job.net.data("has_it", {-1, 1}, millrace::DType::kInt64);
  const VarRef words =
      layers::reshape(layers::embedding(job.input, kDictionary, kWidth), {-1, kWords, kWidth});
  const VarRef seen = attend(words);
  const VarRef inner = layers::fc(seen, 2 * kWidth, {.num_flatten_dims = 2, .act = "relu"});
  const VarRef outer = layers::fc(inner, kWidth, {.num_flatten_dims = 2});
  const VarRef last =
      layers::layer_norm(layers::elementwise_add(seen, outer), {.begin_norm_axis = 2});
  const VarRef scores = layers::fc(layers::reduce_mean(last, {1}), 2);
  job.answer = layers::softmax(scores);
  job.loss = layers::mean(layers::softmax_with_cross_entropy(scores, job.label));
  return job;
}

Arrays sentences(Numbers& numbers) {
  std::vector<int64_t> words;
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < kRows; ++row) {
    int64_t has_it = 0;
    for (int32_t i = 0; i < kWords; ++i) {
      words.push_back(numbers.below(kDictionary));
      if (words.back() == 0) has_it = 1;
    }
    labels.push_back(has_it);
  }
  Arrays feeds;
  feeds["words"] = Array::of<int64_t>({kRows, kWords, 1}, words);
  feeds["has_it"] = Array::of<int64_t>({kRows, 1}, labels);
  return feeds;
}

double mean_of(const Array& values) {
  double sum = 0;
  for (const float value : values.values<float>()) sum += value;
  return sum / static_cast<double>(values.values<float>().size());
}

struct Options {
  std::string folder;
  int steps = 150;
  int devices = 2;
};

Status run(Job job, Arrays (*batch)(Numbers&), const Options& options) {
  // errors in the layers above are reported here, each with its line
  MILLRACE_RETURN_IF_ERROR(
      job.net.minimize(job.loss, {.method = millrace::Adam{}, .learning_rate = 0.003}).status());
  MILLRACE_ASSIGN_OR_RETURN(
      Session training, Session::open(job.net.main(), &job.net.startup(),
                                      {.threads = options.devices, .devices = options.devices}));
  Numbers numbers;
  double first = 0;
  double last = 0;
  for (int step = 0; step < options.steps; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const Arrays results,
                              training.run(batch(numbers), {job.loss.name()}));
    last = mean_of(results.at(job.loss.name()));
    if (step == 0) first = last;
  }
  std::cout << job.name << ": loss " << first << ", after " << options.steps << " steps " << last
            << "\n";
  if (!(last < first)) return {millrace::StatusCode::kExecution, "the loss did not fall"};

  const std::string place = options.folder + "/" + job.name;
  MILLRACE_RETURN_IF_ERROR(training.save_model(place, {job.input.name()}, {job.answer.name()}));
  MILLRACE_ASSIGN_OR_RETURN(Session serving, Session::open_model(place));
  const Arrays feeds = batch(numbers);
  MILLRACE_ASSIGN_OR_RETURN(const Arrays answers,
                            serving.run({{job.input.name(), feeds.at(job.input.name())}}));
  const Array& answer = answers.at(job.answer.name());
  const auto labels = feeds.at(job.label.name()).values<int64_t>();
  const auto classes = answer.dims.back();
  int64_t right = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    int64_t best = 0;
    for (int64_t k = 1; k < classes; ++k) {
      const auto at = [&](int64_t i) { return answer.values<float>()[row * classes + i]; };
      if (at(k) > at(best)) best = k;
    }
    if (best == labels[static_cast<size_t>(row)]) ++right;
  }
  std::cout << job.name << ": served from " << place << ", " << right << " of " << kRows
            << " right\n";
  return millrace::Ok();
}

// False for unknown arguments.
bool parse(int argc, char** argv, Options& options) {
  if (argc < 2 || argc % 2 != 0) return false;
  options.folder = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--steps") {
      options.steps = std::atoi(value.c_str());
    } else if (flag == "--devices" && value.rfind("cpu:", 0) == 0) {
      options.devices = std::atoi(value.c_str() + 4);
    } else {
      return false;
    }
  }
  return options.steps > 0 && options.devices > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::cerr << "usage: train_and_serve FOLDER [--steps 150] [--devices cpu:2]\n";
    return 2;
  }
  Status status = run(lenet(), images, options);
  if (status.ok()) status = run(transformer(), sentences, options);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
