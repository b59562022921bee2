#include "runtime/call/unsent_links.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

struct FakeLink : std::enable_shared_from_this<FakeLink> {
  explicit FakeLink(std::shared_ptr<UnsentLinks<FakeLink>> links) : unsent(std::move(links)) {}
  ~FakeLink() { unsent->remove(this); }
  bool has_sent_all() const {
    ++looks;
    return has_sent;
  }

  const std::shared_ptr<UnsentLinks<FakeLink>> unsent;
  bool has_sent = false;
  mutable int looks = 0;
};

struct UnsentLinksTest : ::testing::Test {
  std::shared_ptr<FakeLink> make() { return std::make_shared<FakeLink>(unsent); }
  const std::shared_ptr<UnsentLinks<FakeLink>> unsent = std::make_shared<UnsentLinks<FakeLink>>();
};

TEST_F(UnsentLinksTest, that_have_sent_all_are_not_looked_at_again) {
  const auto slow = make(), quick = make(), silent = make();
  unsent->add(*slow);
  unsent->add(*slow);
  unsent->add(*quick);
  quick->has_sent = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(unsent->take_stock(), std::vector{slow});
  EXPECT_EQ(slow->looks, 3);
  EXPECT_EQ(quick->looks, 1);
  EXPECT_EQ(silent->looks, 0);
  unsent->add(*quick);
  slow->has_sent = true;
  quick->has_sent = false;
  EXPECT_EQ(unsent->take_stock(), std::vector{quick});
}

TEST_F(UnsentLinksTest, are_not_kept_alive) {
  auto link = make();
  const std::weak_ptr<FakeLink> weak = link;
  unsent->add(*link);
  link.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(unsent->take_stock().empty());
}

}  // namespace
}  // namespace troupe
