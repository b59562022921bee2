#pragma once

#include <gtest/gtest.h>

/// Declares the value of a Result, or ends the test with its message.
#define REQUIRE_OK(declaration, expression) \
  REQUIRE_OK_IMPL_(TROUPE_CONCAT_(required_, __LINE__), declaration, expression)
#define REQUIRE_OK_IMPL_(name, declaration, expression) \
  auto name = (expression);                             \
  ASSERT_TRUE(name.ok()) << name.error().message;       \
  declaration = std::move(name).value()
