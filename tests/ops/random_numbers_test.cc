#include "ops/random_numbers.h"

#include <gtest/gtest.h>

#include "ops/registry.h"

namespace millrace::ops {
namespace {

TEST(RandomNumbers, AreDrawnWithAndWithoutASeedButNotByGradients) {
  const auto registry = standard_registry();
  for (const char* const type : {"uniform_random", "dropout", "bernoulli", "dpsgd", "randperm"})
    EXPECT_TRUE(draws_random_numbers(*registry->find(type))) << type;
  for (const char* const type : {"dropout_grad", "relu", "fill_constant", "sgd"})
    EXPECT_FALSE(draws_random_numbers(*registry->find(type))) << type;
}

}  // namespace
}  // namespace millrace::ops
