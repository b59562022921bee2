#include "launcher/bench/faults/domain_book.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = EngineDomainChange::Kind;

EngineDomainChange change(Kind kind, std::int32_t domain, std::int32_t serving) {
  EngineDomainChange of;
  of.kind = kind;
  of.domain = domain;
  of.serving = serving;
  of.all = 3;
  return of;
}

TEST(DomainBook, knows_which_domains_are_away) {
  DomainBook book;
  book.take(change(Kind::dropped, 1, 2), 0.5);
  book.take(change(Kind::dropped, 0, 1), 1);
  EXPECT_THAT(book.away(), ElementsAre(0, 1));
  book.take(change(Kind::back, 1, 2), 2);
  EXPECT_THAT(book.away(), ElementsAre(0));
  EXPECT_EQ(book.changes().size(), 3U);
  EXPECT_EQ(book.changes()[0].at_seconds, 0.5);
  EXPECT_THAT(book.contradictions(), IsEmpty());
}

TEST(DomainBook, notes_what_cannot_be) {
  DomainBook book;
  book.take(change(Kind::back, 1, 3), 0);
  book.take(change(Kind::dropped, 1, 2), 0);
  book.take(change(Kind::dropped, 1, 2), 0);
  book.take(change(Kind::dropped, 2, 2), 0);
  EXPECT_THAT(
      book.contradictions(),
      ElementsAre("step domain 1 is back, but was not dropped", "step domain 1 is dropped twice",
                  "2 of 3 step domains are said to serve after step domain 2 is dropped, "
                  "and not 1"));
}

}  // namespace
}  // namespace troupe
