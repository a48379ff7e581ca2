// Builds a small classifier, trains it on points of three spirals, and prints loss and accuracy.
//   train [STEPS]

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include <millrace/executor/session.h>
#include <millrace/frontend/layers.h>

namespace {

namespace layers = millrace::layers;
using millrace::VarRef;

constexpr int64_t kClasses = 3;
constexpr int64_t kPoints = 100;  // per class

// Points on three spiral arms, and the index of the arm of each point.
millrace::Arrays spirals() {
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int64_t arm = 0; arm < kClasses; ++arm) {
    for (int64_t i = 0; i < kPoints; ++i) {
      const float radius = static_cast<float>(i) / kPoints;
      const float angle = 4.0F * (radius + static_cast<float>(arm));
      points.insert(points.end(), {radius * std::sin(angle), radius * std::cos(angle)});
      labels.push_back(arm);
    }
  }
  millrace::Arrays feeds;
  feeds["point"] = millrace::Array::of<float>({kClasses * kPoints, 2}, points);
  feeds["arm"] = millrace::Array::of<int64_t>({kClasses * kPoints, 1}, labels);
  return feeds;
}

millrace::Status train(int steps) {
  millrace::Network net(/*random_seed=*/1);
  const VarRef point = net.data("point", {-1, 2});
  const VarRef arm = net.data("arm", {-1, 1}, millrace::DType::kInt64);
  const VarRef hidden = layers::fc(point, 32, {.act = "tanh"});
  const VarRef guess = layers::fc(layers::fc(hidden, 32, {.act = "tanh"}), kClasses);
  const VarRef loss = layers::mean(layers::softmax_with_cross_entropy(guess, arm));
  const VarRef right = layers::accuracy(layers::softmax(guess), arm);
  // errors in the lines above are reported here, each with its line
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.method = millrace::Adam{},
                                               .learning_rate = 0.02,
                                               .clip = millrace::ClipByGlobalNorm{1.0},
                                               .regularization = millrace::L2Decay{1e-5}})
                               .status());

  MILLRACE_ASSIGN_OR_RETURN(millrace::Session session,
                            millrace::Session::open(net.main(), &net.startup()));
  const millrace::Arrays feeds = spirals();
  for (int step = 0; step < steps; ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const millrace::Arrays results,
                              session.run(feeds, {loss.name(), right.name()}));
    if (step % 50 == 0 || step == steps - 1) {
      std::cout << "step " << step << ": loss " << results.at(loss.name()).values<float>()[0]
                << ", accuracy " << results.at(right.name()).values<float>()[0] << "\n";
    }
  }
  return millrace::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  const millrace::Status status = train(argc > 1 ? std::atoi(argv[1]) : 301);
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok() ? 0 : 1;
}
