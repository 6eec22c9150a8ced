#include <gtest/gtest.h>

#include <stdexcept>

TEST(Sum, Passes) { EXPECT_EQ(1 + 2, 3); }

TEST(Sum, Fails) {
  EXPECT_EQ(1 + 2, 4);
}

TEST(Sum, Errors) { throw std::runtime_error("boom"); }

TEST(Sum, IsSkipped) { GTEST_SKIP() << "not today"; }
